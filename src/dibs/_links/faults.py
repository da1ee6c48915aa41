"""What an exception from below means: a mistake in the settings, or an outage and its cause."""

from redis.exceptions import AuthenticationError, AuthorizationError, RedisError, ResponseError

from ..errors import UsageError

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
    text = str(error)
    return isinstance(error, ResponseError) and ("HELLO" in text.upper() or "NOPROTO" in text)


def cause_of(error: BaseException) -> str:
    """What happened, in a few words, for people."""
    if isinstance(error, TimeoutError) or type(error).__name__ == "TimeoutError":
        return "timed out"
    if isinstance(error, EOFError):
        return "the server closed the connection"
    return " ".join(str(error).split())[:160] or type(error).__name__
