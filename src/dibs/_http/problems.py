"""Responses in place of the endpoint's: a replay, or a refusal as problem+json (RFC 9457).

| what happened | status |
|---|---|
| running, or inside of the window, without a client's key | 429, Retry-After |
| the same client's key: still running | 409, Retry-After |
| … done, and its response was not stored | 409 |
| … with another payload | 422 |
| the key of a lease is held by another request | 409, Retry-After |
| the key of a throttle was called too often | 429, Retry-After, RateLimit, RateLimit-Policy |
| the client's key is missing or malformed, or the body is incomplete | 400 |
| it says twice who submits or where, or the fields that count cannot be read | 400 |
| the body is longer than the policy accepts | 413 |
| the body does not arrive in time | 408 |
| too many long bodies arrive at a time | 503, Retry-After |
| Redis is unavailable, and the policy is "closed" | 503, Retry-After |
"""

import json
import math
from typing import Any

from ..errors import Busy, DibsError, Duplicate, Mismatch, Unavailable
from .facts import InvalidRequest
from .policy import Policy
from .responses import Headers, Response, readable

REPLAYED = "idempotent-replayed"
_TITLES = {
    400: "Invalid request",
    408: "Request timeout",
    413: "Request too large",
    503: "Service unavailable",
}
_NO_GUARANTEE = "It cannot be known right now whether this was submitted before."
_RUNNING = 10.0
"""Seconds after which a client may ask again whether a running request has ended."""
_DECOMPRESSED = 64
"""How many times `most` a stored response may have, decompressed."""
_BUSY = "Another request is working on this."
_NOT_NOW = "This attempt was not processed; try again soon."
"""An earlier one may have been."""
_TOO_OFTEN = "This was called too often."
_QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded"
"""Registered by draft-ietf-httpapi-ratelimit-headers-10."""
_NO_LEASE = "It cannot be known right now whether another request is working on this."


def replay(policy: Policy, stored: Response, accept_encoding: str | None = None) -> Response:
    """Return the stored response, marked as a replay, in a coding that the client accepts."""
    response = readable(stored, accept_encoding, _DECOMPRESSED * policy.most)
    if response is None:
        detail = "The stored response has a content coding that this client does not accept."
        return _problem(policy, 409, "already-done", "Already processed", detail, state="done")
    headers = (*response.headers, (REPLAYED, "true"))
    if stored.status not in (204, 304):
        headers = (*headers, ("content-length", str(len(response.body))))
    return Response(stored.status, headers, response.body)


def is_refusal(response: Response) -> bool:
    """Return True if it stands for a request that was not processed; else it is a replay."""
    return (REPLAYED, "true") not in response.headers


def refusal_response(
    policy: Policy, error: DibsError | InvalidRequest, *, by_client: bool
) -> Response:
    """Return the refusal for *error*. *by_client*: the request has a client's key."""
    if isinstance(error, Duplicate):
        return _duplicate(policy, error, by_client=by_client)
    if isinstance(error, Mismatch):
        detail = f"This {policy.header} was used for a different request. Use a new key."
        return _problem(policy, 422, "payload-mismatch", "Idempotency key reused", detail)
    if isinstance(error, InvalidRequest):
        after = 1.0 if error.status == 503 else None
        title = _TITLES[error.status]
        return _problem(policy, error.status, error.kind, title, error.detail, retry_after=after)
    assert isinstance(error, Unavailable)
    retry = f"repeat it soon, with the same {policy.header}."
    not_now = f"This attempt was not processed; {retry}" if by_client else _NOT_NOW
    detail = f"{_NO_GUARANTEE} {not_now}"
    return _problem(policy, 503, "unavailable", "Service unavailable", detail, retry_after=1.0)


def busy(error: Busy | Unavailable, message: str | None = None) -> Response:
    """Return the refusal of a request that got no lease.

    *message*: for whom the endpoint is for.
    """
    if isinstance(error, Unavailable):
        detail = f"{_NO_LEASE} {_NOT_NOW}"
        return _problem(None, 503, "unavailable", "Service unavailable", detail, retry_after=1.0)
    facts = {} if message is None else {"message": message}
    detail = message or _BUSY
    wait = None if error.retry_after == math.inf else error.retry_after  # without a ttl: not ours
    return _problem(None, 409, "busy", "Busy", detail, retry_after=wait, **facts)


def too_often(
    policy: str, fields: Headers, retry_after: float, message: str | None = None
) -> Response:
    """Return the refusal of a request that came too early. *policy*: its name.

    *fields*: more headers.
    """
    facts: dict[str, Any] = {"violated-policies": [policy]}
    if message is not None:
        facts["message"] = message
    title, detail = "Too many requests", message or _TOO_OFTEN
    problem = _problem(None, 429, _QUOTA_EXCEEDED, title, detail, retry_after=retry_after, **facts)
    return problem._replace(headers=(*problem.headers, *fields))


def _duplicate(policy: Policy, error: Duplicate, *, by_client: bool) -> Response:
    wait = min(error.retry_after, _longest_wait(policy, error.state))
    facts: dict[str, Any] = {"state": error.state}
    if error.message is not None:
        facts["message"] = error.message
    if not by_client:
        detail = error.message or "The same request was submitted a moment ago."
        title = "Duplicate request"
        return _problem(
            policy, 429, "duplicate-submission", title, detail, retry_after=wait, **facts
        )
    if error.state == "running":
        detail = error.message or _in_progress(policy)
        title = "Request in progress"
        return _problem(policy, 409, "in-progress", title, detail, retry_after=wait, **facts)
    # No Retry-After: a retry gets the same until the window is over, and would then run again.
    done = f"A request with this {policy.header} was processed already"
    detail = error.message or f"{done}; its response was not stored."
    return _problem(policy, 409, "already-done", "Already processed", detail, **facts)


def _longest_wait(policy: Policy, state: str) -> float:
    """Return the longest Retry-After, in seconds.

    A running claim is kept for a lease, so that a crash does not let a second one in too early. But
    most requests end much earlier, and then the key is free, or is kept for the rest of the window.
    """
    window = policy.claim_options.window
    return window if state == "done" or policy.after == "hold" else min(window, _RUNNING)


def _in_progress(policy: Policy) -> str:
    return f"A request with this {policy.header} is still being processed."


def _problem(
    policy: Policy | None,
    status: int,
    kind: str,
    title: str,
    detail: str,
    *,
    retry_after: float | None = None,
    **facts: Any,
) -> Response:
    uri = kind if ":" in kind else f"urn:dibs:{kind}"
    document = {"type": uri, "title": title, "status": status, "detail": detail}
    headers = [("content-type", "application/problem+json"), ("cache-control", "no-store")]
    if policy is not None and policy.docs is not None:
        headers.append(("link", f'<{policy.docs}>; rel="describedby"'))
    if retry_after is not None:
        # Rounded up: a client that comes back then must not be too early.
        facts["retryAfter"] = max(math.ceil(retry_after), 1)
        headers.append(("retry-after", str(facts["retryAfter"])))
    body = json.dumps({**document, **facts}, ensure_ascii=False).encode()
    return Response(status, (*headers, ("content-length", str(len(body)))), body)


# ---- the same in an OpenAPI document

_RETRY_AFTER = {
    "Retry-After": {
        "description": "Seconds after which the request can be retried.",
        "schema": {"type": "integer", "minimum": 1},
    }
}
_PROBLEM = {
    "type": "object",
    "title": "Problem",
    "description": "RFC 9457",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "message": {"type": "string"},
        "state": {"type": "string", "enum": ["running", "done"]},
        "retryAfter": {"type": "integer", "minimum": 1},
        "violated-policies": {"type": "array", "items": {"type": "string"}},
    },
}


def document(operation: dict[str, Any] | None, policy: Policy | None) -> None:
    """Add the refusals of *policy*, and the header of its key, to an *operation* of OpenAPI."""
    if operation is None or policy is None:
        return
    responses = operation.setdefault("responses", {})
    for status, description in _descriptions(policy):
        responses.setdefault(status, _described(status, description))
    if policy.key != "never":
        parameters = operation.setdefault("parameters", [])
        if not any(each.get("name", "").lower() == policy.header.lower() for each in parameters):
            parameters.append(_key_parameter(policy))


def document_lease(operation: dict[str, Any] | None, *, closed: bool) -> None:
    """Add the refusals of a lease to an *operation*. *closed*: an outage is refused, too."""
    _document(operation, "409", _BUSY, closed=closed)


def document_throttle(operation: dict[str, Any] | None, *, closed: bool) -> None:
    """Add the refusals of a throttle to an *operation*."""
    _document(operation, "429", _TOO_OFTEN, closed=closed)


def _document(
    operation: dict[str, Any] | None, status: str, description: str, *, closed: bool
) -> None:
    if operation is None:
        return
    responses = operation.setdefault("responses", {})
    responses.setdefault(status, _described(status, description))
    if closed:
        responses.setdefault("503", _described("503", _NO_LEASE))


def _descriptions(policy: Policy) -> list[tuple[str, str]]:
    descriptions: list[tuple[str, str]] = []
    if policy.key in ("never", "optional"):
        descriptions.append(
            ("429", policy.message or "The same request was submitted a moment ago.")
        )
    if policy.key != "never":
        descriptions.append(("400", f"{policy.header} is missing or malformed."))
        descriptions.append(("409", _in_progress(policy)))
        descriptions.append(("422", f"This {policy.header} was used for a different request."))
    if policy.on_outage != "open":
        descriptions.append(("503", _NO_GUARANTEE))
    return descriptions


def _described(status: str, description: str) -> dict[str, Any]:
    response = {
        "description": description,
        "content": {"application/problem+json": {"schema": _PROBLEM}},
    }
    return {**response, "headers": _RETRY_AFTER} if status in ("409", "429", "503") else response


def _key_parameter(policy: Policy) -> dict[str, Any]:
    return {
        "name": policy.header,
        "in": "header",
        "required": policy.key == "required",
        "description": "Identifies this request: a retry with the same key is not processed again.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 255},
    }
