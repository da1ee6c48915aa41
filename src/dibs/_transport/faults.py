"""What the errors of redis-py, sockets and asyncio mean: wrong settings, or an outage."""

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
from .tls_problems import TlsProblem, UnreadableFile, tls_problem

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


# ---- TLS

_UNREADABLE = "a file that the URL names for TLS cannot be read"
_CA = "name the file of its CA in the URL: rediss://…?ssl_ca_certs=/path/to/ca.pem"
_CLIENT = "rediss://…?ssl_certfile=…&ssl_keyfile=…"
_FIXES: dict[TlsProblem, str] = {
    "file": f"{_UNREADABLE}; check ssl_ca_certs, ssl_certfile",
    "authority": f"the certificate of the server is not trusted; {_CA}",
    "host": "the certificate of the server is for another host name; use the name that it was made"
    " for in the URL",
    "validity": "the certificate of the server has expired or is not valid yet; renew it",
    "plain": "the server does not speak TLS on this port; use redis://, or its port for TLS",
    "client": f"the server does not accept our certificate; pass the one it knows: {_CLIENT}",
    "refused": "the server refused the TLS handshake; if it asks clients for a certificate, pass"
    f" {_CLIENT}, else check ssl_ciphers",
    "version": "the server offers no version of TLS that the URL allows; check ssl_min_version in"
    " the URL and tls-protocols of the server",
    "ciphers": "OpenSSL knows no cipher that the URL names; check ssl_ciphers",
}


def _fix_for_tls(error: BaseException) -> str | None:
    """What to change if TLS fails because of the settings; None: it has another reason."""
    for each in _chain(error):
        if isinstance(each, UnreadableFile):
            return f"{_UNREADABLE}: {each}"
        if (problem := tls_problem(each)) is not None:
            return _FIXES[problem]
    return None


# ---- the cause of an outage

_BY_TYPE: tuple[tuple[type[BaseException], str], ...] = (
    (UnreadableFile, "tls"),
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
