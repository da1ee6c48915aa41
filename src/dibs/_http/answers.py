"""What a caller is told in place of the work: problem+json (RFC 9457), or the answer of the first.

| what happened | status |
|---|---|
| running, or inside the window, without a client's key | 429, Retry-After |
| the same client's key: still running | 409, Retry-After |
| … done, and its answer was not kept | 409 |
| … with another payload | 422 |
| the client's key is missing or malformed, or the request broke off | 400 |
| the request is longer than the policy takes | 413 |
| the store is out, and the policy is "closed" | 503, Retry-After |
"""

import json
import math
from typing import Any, NamedTuple

from ..errors import DibsError, Duplicate, Mismatch, Unavailable
from .facts import KeyTrouble
from .kept import Headers, Kept, decoded
from .policy import Policy

REPLAYED = "idempotent-replayed"


class Answer(NamedTuple):
    """A whole answer. Names of headers are in lower case."""

    status: int
    headers: Headers
    body: bytes


def replay(policy: Policy, kept: Kept, accepts: str | None = None) -> Answer:
    """The answer that the first one got, marked as such, in a coding that this client can read."""
    readable = decoded(kept, accepts)
    if readable is None:
        detail = "This was done already; its answer was kept in a coding that you do not accept."
        return _problem(policy, 409, "already-done", "Already done", detail, state="done")
    headers = (*readable.headers, (REPLAYED, "true"))
    if kept.status not in (204, 304):
        headers = (*headers, ("content-length", str(len(readable.body))))
    return Answer(kept.status, headers, readable.body)


def refusal(policy: Policy, error: DibsError | KeyTrouble, *, by_client: bool) -> Answer:
    """The polite answer for *error*."""
    if isinstance(error, Duplicate):
        return _duplicate(policy, error, by_client=by_client)
    if isinstance(error, Mismatch):
        detail = f"This {policy.header} was used before, for another request. Use a new one."
        return _problem(policy, 422, "payload-mismatch", "Another request has this key", detail)
    if isinstance(error, KeyTrouble):
        title = "This request is unclear" if error.status == 400 else "This request is too large"
        return _problem(policy, error.status, error.kind, title, error.sentence)
    assert isinstance(error, Unavailable)
    detail = "It cannot be made sure now that this is done only once. Nothing was done."
    title = "Please try again soon"
    return _problem(policy, 503, "unavailable", title, detail, retry_after=1.0)


def _duplicate(policy: Policy, error: Duplicate, *, by_client: bool) -> Answer:
    wait = error.retry_after if error.retry_after != math.inf else policy.terms.window
    facts: dict[str, Any] = {"state": error.state}
    if error.message is not None:
        facts["message"] = error.message
    if not by_client:
        detail = error.message or "This was submitted a moment ago."
        title = "Already submitted"
        return _problem(
            policy, 429, "duplicate-submission", title, detail, retry_after=wait, **facts
        )
    if error.state == "running":
        detail = error.message or "The first request with this key is still at work."
        return _problem(
            policy, 409, "in-progress", "Still at work", detail, retry_after=wait, **facts
        )
    # A new try would be told the same until the window is over, and then be done again.
    detail = error.message or "This was done already; its answer was not kept."
    return _problem(policy, 409, "already-done", "Already done", detail, **facts)


def _problem(
    policy: Policy,
    status: int,
    kind: str,
    title: str,
    detail: str,
    *,
    retry_after: float | None = None,
    **facts: Any,
) -> Answer:
    document = {"type": f"urn:dibs:{kind}", "title": title, "status": status, "detail": detail}
    headers = [("content-type", "application/problem+json"), ("cache-control", "no-store")]
    if policy.docs is not None:
        headers.append(("link", f'<{policy.docs}>; rel="describedby"'))
    if retry_after is not None:
        # Up: whoever comes back then must not come too early.
        facts["retryAfter"] = max(math.ceil(retry_after), 1)
        headers.append(("retry-after", str(facts["retryAfter"])))
    body = json.dumps({**document, **facts}, ensure_ascii=False).encode()
    return Answer(status, (*headers, ("content-length", str(len(body)))), body)
