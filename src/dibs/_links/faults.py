"""What an exception from below means: a mistake in the settings, or an outage and its cause."""

import socket
import ssl
from collections.abc import Iterator

from redis.exceptions import AuthenticationError, AuthorizationError, RedisError, ResponseError

from .._core.causes import cause_for, code_of_reply
from ..errors import Cause, UsageError

BELOW = (OSError, EOFError, RedisError, TimeoutError)
"""All that redis-py, sockets and asyncio raise when a server cannot be reached."""


def mistake_in_settings(error: BaseException) -> UsageError | None:
    """The sentence that names the fix, where asking again cannot help; None: an outage."""
    if isinstance(error, UsageError):
        return error
    text = str(error)
    if isinstance(error, AuthenticationError | AuthorizationError) or text.startswith(
        ("WRONGPASS", "NOAUTH", "NOPERM", "invalid username-password", "Authentication required")
    ):
        return UsageError("the server refused the credentials; check user and password in the URL")
    if isinstance(error, ResponseError) and "DB index" in text:
        return UsageError("the server has no such database; check the number in the URL")
    if not isinstance(error, BELOW):
        return UsageError(f"no connection can be made with these settings: {error}")
    return None


def lacks_hello(error: BaseException) -> bool:
    """True: the server (or a proxy before it) does not speak RESP3; RESP2 may work."""
    if not isinstance(error, ResponseError) or mistake_in_settings(error) is not None:
        return False
    return code_of_reply(str(error)) is None


def was_closed(error: BaseException) -> bool:
    """True: the server accepted the connection and closed it: HELLO may be unknown to it."""
    return isinstance(error, BELOW) and cause_of(error).code == "disconnected"


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
    """What happened, with a code for machines, in a few words for people."""
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
    """The error, and those that it was raised from: the deepest knows best, so it comes first."""
    found: list[BaseException] = []
    each: BaseException | None = error
    while each is not None and each not in found:
        found.append(each)
        each = each.__cause__ or each.__context__
    return reversed(found)
