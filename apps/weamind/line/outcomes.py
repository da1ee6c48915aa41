"""The outcome of a message, by LINE's answer. Pure: no I/O."""

from typing import Literal

import httpx2 as httpx

Outcome = Literal[
    "sent",
    "no_token",  # there was nothing to reply to
    "spent",  # the token was used before, by us
    "invalid_token",  # unknown to LINE, or expired: certainly not sent
    "rejected",  # LINE does not like the message: a mistake of ours
    "unauthorized",  # LINE does not know us
    "rate_limited",
    "server_error",  # it may have been sent
    "timeout",  # it may have been sent
    "unreachable",  # it was not sent
]


def outcome_of_reply(answer: httpx.Response | Exception) -> Outcome:
    """The outcome of a reply."""
    if isinstance(answer, httpx.Response) and answer.status_code == 400:
        return "invalid_token" if "reply token" in _message(answer).lower() else "rejected"
    return _outcome(answer)


def outcome_of_push(answer: httpx.Response | Exception) -> Outcome:
    """The outcome of a push, or of another call that may be repeated with the same key."""
    if isinstance(answer, httpx.Response) and answer.status_code == 409:
        return "sent"  # an earlier try, whose answer did not arrive
    return _outcome(answer)


def _outcome(answer: httpx.Response | Exception) -> Outcome:
    if not isinstance(answer, httpx.Response):
        return _without_answer(answer)
    status = answer.status_code
    if 200 <= status < 300:
        return "sent"
    if status in (401, 403):
        return "unauthorized"
    if status == 429:
        return "rate_limited"
    return "server_error" if status >= 500 else "rejected"


def _without_answer(error: Exception) -> Outcome:
    # Without a connection, nothing can have been sent; with one, it may have been.
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout):
        return "unreachable"
    return "timeout"


def _message(answer: httpx.Response) -> str:
    try:
        document = answer.json()
    except ValueError:
        return ""
    found = document.get("message") if isinstance(document, dict) else None
    return found if isinstance(found, str) else ""
