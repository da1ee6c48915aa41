"""What LINE's answers about a token mean. Pure: no I/O."""

import re
from typing import Any

_USER_ID = re.compile("U[0-9a-f]{32}")


class BadToken(Exception):
    """LINE refuses the token, or it is another channel's; the message has neither token nor id."""


class NoAnswer(Exception):
    """LINE did not answer, or not as documented; the message has neither token nor id."""


def seconds_left(status: int, answer: object, channel_id: str) -> int:
    """How long a token of *channel_id* is still valid, by LINE's answer to `verify`.

    BadToken: it is not, or it belongs to another channel. NoAnswer: it is not a valid answer.
    """
    if status in (400, 401):
        raise BadToken("LINE does not know it, or it has expired")
    facts = _object(status, answer)
    client_id, expires_in = facts.get("client_id"), facts.get("expires_in")
    if not isinstance(client_id, str) or not isinstance(expires_in, int):
        raise NoAnswer("what came is not an answer of LINE's")
    if client_id != channel_id:
        raise BadToken("it belongs to another channel than LINE_LOGIN_CHANNEL_ID")
    if expires_in <= 0:
        raise BadToken("it has expired")
    return expires_in


def user_id(status: int, answer: object) -> str:
    """The user's id, by LINE's answer to `profile`.

    BadToken: they have not allowed it. NoAnswer.
    """
    if status in (400, 401):
        raise BadToken("LINE does not know it, or it has expired")
    if status == 403:
        raise BadToken("it does not allow to ask who it is: the LIFF app needs the scope profile")
    found = _object(status, answer).get("userId")
    if not isinstance(found, str) or not _USER_ID.fullmatch(found):
        raise NoAnswer("what came is not an answer of LINE's")
    return found


def _object(status: int, answer: object) -> dict[str, Any]:
    if status != 200:
        raise NoAnswer(f"status {status}")
    if not isinstance(answer, dict):
        raise NoAnswer("what came is not an answer of LINE's")
    return answer
