"""What errors of redis-py, sockets, TLS and asyncio mean: wrong settings, or an outage."""

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Literal

from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    NoPermissionError,
    RedisError,
    ResponseError,
)

from .._core.causes import cause_for, code_of_reply
from .._core.keys import printable
from .._core.lease import mistake
from .._core.request import ErrorReply, ProtocolError
from ..errors import Cause, UsageError
from . import redis_internals

TlsProblem = Literal[
    "file", "authority", "host", "validity", "plain", "client", "refused", "version", "ciphers"
]

_WRONG_HOST = (62, 64)  # X509_V_ERR_HOSTNAME_MISMATCH, …_IP_ADDRESS_MISMATCH
_NOT_VALID = (9, 10)  # …_CERT_NOT_YET_VALID, …_CERT_HAS_EXPIRED
_NO_RECORD = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
"""How versions of OpenSSL call a first reply that is not TLS."""


class UnreadableFile(OSError):
    """A file that the URL names for TLS cannot be opened."""

    def __init__(self, option: str, path: object, error: OSError) -> None:
        super().__init__(f"{option}={path}: {error.strerror}")


def tls_problem(error: BaseException) -> TlsProblem | None:
    """Return what *error*, without those that it was raised from, says.

    None: nothing about settings.
    """
    if isinstance(error, UnreadableFile):
        return "file"
    if isinstance(error, ssl.SSLCertVerificationError):
        return _of_certificate(error.verify_code)
    return _of_handshake(error) if isinstance(error, ssl.SSLError) else None


def reason_of(error: BaseException) -> str:
    """Return the name that OpenSSL has for it; "" if it is not an error of OpenSSL."""
    return (isinstance(error, ssl.SSLError) and getattr(error, "reason", None)) or ""


def _of_certificate(verify_code: int) -> TlsProblem:
    if verify_code in _WRONG_HOST:
        return "host"
    return "validity" if verify_code in _NOT_VALID else "authority"


def _of_handshake(error: ssl.SSLError) -> TlsProblem | None:
    reason, library = reason_of(error), getattr(error, "library", None)
    if reason in _NO_RECORD:
        return "plain"
    if library in ("PEM", "X509") or "PEM" in reason or "KEY_VALUES_MISMATCH" in reason:
        return "file"
    if "PROTOCOL" in reason:
        return "version"
    if "cipher can be selected" in str(error):
        return "ciphers"
    return _of_alert(reason) if "ALERT" in reason else None


def _of_alert(reason: str) -> TlsProblem | None:
    """Of a server that ends the handshake. "refused": by a certificate or by a cipher."""
    if "CERT" in reason or "UNKNOWN_CA" in reason:
        return "client"
    return "refused" if "HANDSHAKE" in reason or "INSUFFICIENT" in reason else None


_MOST = 32
"""Contexts that are kept; the oldest goes first."""
_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")

ContextKey = tuple[object, ...]
FileStates = tuple[tuple[int, int, int] | None, ...]
"""When each file was changed, its size and its number; None: it is not there."""

_contexts: dict[ContextKey, tuple[FileStates, ssl.SSLContext]] = {}


def share_context(connection: Any, options: Mapping[str, Any]) -> None:
    """Have *connection*, which is not open yet, use the context of others with these *options*.

    UnreadableFile: there is none yet, and a file for it cannot be read.
    """
    if not redis_internals.uses_tls(connection):
        return
    chosen = sorted((name, repr(each)) for name, each in options.items() if name[:4] == "ssl_")
    key = (redis_internals.is_async(connection), *chosen)
    state = _file_states(options)
    known_state, context = _contexts.get(key, (None, None))
    if known_state != state:
        context = None
        check_files(options)
    with contextlib.suppress(OSError, ValueError):  # redis-py raises it again when it connects
        redis_internals.use_context(connection, context, partial(_keep_context, key, state))


def check_files(options: Mapping[str, Any]) -> None:
    """UnreadableFile: one of the files for TLS cannot be read.

    The error of OpenSSL does not tell which one, nor whether it was the file or the connection.
    """
    for name in _FILES:
        try:
            open(options.get(name) or os.devnull, "rb").close()
        except OSError as error:
            raise UnreadableFile(name, options[name], error) from None


def _keep_context(key: ContextKey, state: FileStates, context: ssl.SSLContext) -> None:
    _contexts[key] = (state, context)
    while len(_contexts) > _MOST:
        with contextlib.suppress(RuntimeError, KeyError):  # other threads are at it as well
            del _contexts[next(iter(_contexts))]


def _file_states(options: Mapping[str, Any]) -> FileStates:
    """Of the files that these options name, and of the certificates of the system."""
    of_system = ssl.get_default_verify_paths().cafile
    return tuple([_file_state(options.get(name)) for name in _FILES] + [_file_state(of_system)])


def _file_state(path: Any) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except (OSError, TypeError, ValueError):  # not there, or not a path
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


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
    """Return True if the server, or a proxy before it, does not know HELLO; RESP2 may work.

    With a password, a server without HELLO asks for the password instead of calling it unknown.
    For a Unix socket redis-py raises the reply of the server as an error of its own.
    """
    if str(error).startswith(("NOAUTH", "Authentication required")):
        return True
    if settings_error(error) is not None or code_of_reply(str(error)) is not None:
        return False
    return any(isinstance(each, ResponseError) for each in _error_chain(error))


def is_closed_by_server(error: BaseException) -> bool:
    """Return True if the server accepted the connection and closed it: it may not know HELLO."""
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
    """Return what to change if TLS fails because of the settings; None: it has another reason."""
    for each in _error_chain(error):
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
    (ProtocolError, "protocol"),
    (ConnectionError, "disconnected"),  # reset, aborted, broken pipe
    (EOFError, "disconnected"),
    (AuthenticationError, "auth"),
    (AuthorizationError, "auth"),
    (TimeoutError, "connect"),
)
_BY_NAME = {
    "MasterNotFoundError": "no_master",
    "BusyLoadingError": "loading",
    "InvalidResponse": "protocol",
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
    code = next(
        (code for each in _error_chain(error) if (code := _code_in(each)) is not None), "other"
    )
    if code == "connect":
        return cause_for(code)
    if isinstance(error, EOFError):
        return cause_for("disconnected")
    text = printable(" ".join(str(error).split()))[:160]
    return cause_for(code, text or type(error).__name__)


def _code_in(error: BaseException) -> str | None:
    text = str(error)
    known = _BY_NAME.get(type(error).__name__) or code_of_reply(text)
    if known is not None:
        return known
    words = next((code for words, code in _BY_WORDS.items() if words in text), None)
    return words or next((code for kind, code in _BY_TYPE if isinstance(error, kind)), None)


def _error_chain(error: BaseException) -> Iterator[BaseException]:
    """Return the error and those that it was raised from, the original one first."""
    found: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and each not in found:
        found.append(each)
        each = each.__cause__ or each.__context__
    return reversed(found)


def read_alert(connection: Any, limit: float) -> ssl.SSLError | None:
    """The alert, if it names a mistake in the settings. None: there is none within *limit* seconds.

    *connection*: of redis-py, for threads; the server has closed it.
    """
    if not redis_internals.uses_tls(connection):
        return None
    try:
        with redis_internals.connected_socket(connection) as connected:
            connected.settimeout(limit)
            connected.recv(1)
    except CONNECTION_ERRORS as error:
        redis_internals.close_failed_socket(error)
        return _tls_mistake(error)
    return None


async def read_alert_async(connection: Any, limit: float) -> ssl.SSLError | None:
    """Return the same for a connection of redis.asyncio."""
    if not redis_internals.uses_tls(connection):
        return None
    try:
        async with asyncio.timeout(limit):
            with redis_internals.aborted_on_failure(connection):
                await redis_internals.read_only(connection)
    except CONNECTION_ERRORS as error:
        return _tls_mistake(error)
    finally:
        redis_internals.abort(connection)
    return None


def _tls_mistake(error: Exception) -> ssl.SSLError | None:
    if not isinstance(error, ssl.SSLError):
        return None
    return None if settings_error(error) is None else error
