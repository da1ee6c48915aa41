"""What the errors of redis-py, sockets and asyncio mean: wrong settings, or an outage."""

import re
import socket
import ssl
from collections.abc import Iterator

from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    NoPermissionError,
    RedisError,
    ResponseError,
)

from .._core.causes import cause_for, code_of_reply
from .._core.lease import mistake
from .._core.request import ErrorReply
from ..errors import Cause, UsageError

CONNECTION_ERRORS = (OSError, EOFError, RedisError, TimeoutError)
"""What redis-py, sockets and asyncio raise if a server cannot be reached."""


def settings_error(error: BaseException) -> UsageError | None:
    """Return a UsageError that names the fix if the settings are wrong; None: an outage."""
    if isinstance(error, UsageError):
        return error
    text = str(error)
    if isinstance(error, NoPermissionError) and "hello" not in text:
        # Of CLIENT SETNAME or SELECT, because of what the URL asks for. redis-py cuts the code off.
        return mistake(ErrorReply(f"NOPERM {text}"))
    if isinstance(error, AuthenticationError | AuthorizationError) or text.startswith(
        ("WRONGPASS", "NOAUTH", "NOPERM", "invalid username-password", "Authentication required")
    ):
        return UsageError("the server refused the credentials; check user and password in the URL")
    if isinstance(error, ResponseError) and "DB index" in text:
        return UsageError("the server does not have this database; check the number in the URL")
    if not isinstance(error, CONNECTION_ERRORS):
        return UsageError(f"these settings do not allow a connection: {error}")
    fix = _fix_for_tls(error)
    return None if fix is None else UsageError(fix)


def is_hello_refused(error: BaseException) -> bool:
    """True: the server, or a proxy before it, does not know HELLO; RESP2 may work.

    With a password, a server without HELLO asks for the password instead of calling it unknown.
    For a Unix socket redis-py raises the reply of the server as an error of its own.
    """
    if str(error).startswith(("NOAUTH", "Authentication required")):
        return True
    if settings_error(error) is not None or code_of_reply(str(error)) is not None:
        return False
    return any(isinstance(each, ResponseError) for each in _chain(error))


def is_closed_by_server(error: BaseException) -> bool:
    """True: the server accepted the connection and closed it: it may not know HELLO."""
    return isinstance(error, CONNECTION_ERRORS) and cause_of(error).code == "disconnected"


# ---- certificates

_WRONG_NAME = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, …_IP_ADDRESS_MISMATCH
_WRONG_TIME = (9, 10)  # …_CERT_NOT_YET_VALID, …_CERT_HAS_EXPIRED
_CA = "name the file of its CA in the URL: rediss://…?ssl_ca_certs=/path/to/ca.pem"


def _fix_for_tls(error: BaseException) -> str | None:
    """What to change if TLS fails because of the settings; None: it has another reason."""
    for each in _chain(error):
        if isinstance(each, ssl.SSLCertVerificationError):
            return _fix_for_certificate(each.verify_code)
        if isinstance(each, ssl.SSLError) and (fix := _fix_for_handshake(each)) is not None:
            return fix
    if _lacks_file(error):
        return "a file that the URL names for TLS is not there; check ssl_ca_certs, ssl_certfile"
    return None


def _fix_for_certificate(verify_code: int) -> str:
    if verify_code in _WRONG_NAME:
        problem = "the certificate of the server is for another host name"
        return f"{problem}; use the name that it was made for in the URL"
    if verify_code in _WRONG_TIME:
        return "the certificate of the server has expired or is not valid yet; renew it"
    return f"the certificate of the server is not trusted; {_CA}"


def _fix_for_handshake(error: ssl.SSLError) -> str | None:
    reason = error.reason or ""
    if reason == "WRONG_VERSION_NUMBER":
        return "the server does not speak TLS on this port; use redis://, or its port for TLS"
    if error.library in ("PEM", "X509") or "PEM" in reason or "KEY_VALUES_MISMATCH" in reason:
        return "a file that the URL names for TLS cannot be read; check ssl_ca_certs, ssl_certfile"
    if "ALERT" in reason and any(word in reason for word in ("CERT", "UNKNOWN_CA", "HANDSHAKE")):
        problem = "the server does not accept our certificate"
        return f"{problem}; pass the one it knows: rediss://…?ssl_certfile=…&ssl_keyfile=…"
    return None


# "Error 2 connecting to /run/redis.sock." of redis-py, where TCP has "… to host:6379."
_OF_A_SOCKET = re.compile(r"\bunix\b|connecting to (?:/|(?!\S+:\d+\.))")


def _lacks_file(error: BaseException) -> bool:
    """True: a file for TLS is missing, or a folder. For a unix socket the same is an outage."""
    kinds = (FileNotFoundError, IsADirectoryError)
    missing = any(isinstance(each, kinds) for each in _chain(error))
    return missing and _OF_A_SOCKET.search(str(error)) is None


# ---- the cause of an outage

_BY_TYPE: tuple[tuple[type[BaseException], str], ...] = (
    (ssl.SSLEOFError, "disconnected"),
    (ssl.SSLZeroReturnError, "disconnected"),
    (ssl.SSLError, "tls"),
    (socket.gaierror, "dns"),
    (ConnectionRefusedError, "refused"),
    (FileNotFoundError, "refused"),  # a unix socket
    (ConnectionError, "disconnected"),  # reset, aborted, broken pipe
    (EOFError, "disconnected"),
    (AuthenticationError, "auth"),
    (AuthorizationError, "auth"),
    (TimeoutError, "connect"),
)
_BY_NAME = {
    "MasterNotFoundError": "no_master",
    "BusyLoadingError": "loading",
    "ReadOnlyError": "readonly",
    "MaxClientsError": "max_clients",
    "TimeoutError": "connect",  # redis-py has one of its own
}
_BY_WORDS = {
    "onnection closed": "disconnected",
    "onnection reset": "disconnected",
    "o route": "unreachable",
    "unreachable": "unreachable",
}


def cause_of(error: BaseException) -> Cause:
    """Return the cause of an outage: a code, and a sentence."""
    code = next((code for each in _chain(error) if (code := _code(each)) is not None), "other")
    if code == "refused" and _lacks_file(error):
        code = "tls"
    if code == "connect":
        return cause_for(code)
    if isinstance(error, EOFError):
        return cause_for("disconnected")
    return cause_for(code, " ".join(str(error).split())[:160] or type(error).__name__)


def _code(error: BaseException) -> str | None:
    text = str(error)
    known = _BY_NAME.get(type(error).__name__) or code_of_reply(text)
    if known is not None:
        return known
    words = next((code for words, code in _BY_WORDS.items() if words in text), None)
    return words or next((code for kind, code in _BY_TYPE if isinstance(error, kind)), None)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and those that it was raised from, the original one first."""
    found: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and each not in found:
        found.append(each)
        each = each.__cause__ or each.__context__
    return reversed(found)
