"""What a guarded operation may answer, in the words of OpenAPI."""

from typing import Any

from .policy import Policy

_WAIT = {
    "Retry-After": {
        "description": "Seconds after which another try makes sense.",
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
    },
}


def documented(operation: dict[str, Any] | None, policy: Policy | None) -> None:
    """Write the answers of *policy*, and the key that it asks for, into *operation*."""
    if operation is None or policy is None:
        return
    answers = operation.setdefault("responses", {})
    for status, description in _answers(policy):
        answers.setdefault(status, _answer(status, description))
    if policy.key != "never":
        parameters = operation.setdefault("parameters", [])
        if not any(each.get("name", "").lower() == policy.header.lower() for each in parameters):
            parameters.append(_key(policy))


def _answers(policy: Policy) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    if policy.key in ("never", "optional"):
        found.append(("429", policy.message or "Submitted a moment ago; not done again."))
    if policy.key != "never":
        found.append(("400", f"{policy.header} is missing or malformed."))
        found.append(("409", f"The first request with this {policy.header} is still at work."))
        found.append(("422", f"This {policy.header} was used for another request."))
    if policy.on_outage != "open":
        found.append(("503", "It cannot be made sure now that this is done only once."))
    return found


def _answer(status: str, description: str) -> dict[str, Any]:
    answer = {
        "description": description,
        "content": {"application/problem+json": {"schema": _PROBLEM}},
    }
    return {**answer, "headers": _WAIT} if status in ("409", "429", "503") else answer


def _key(policy: Policy) -> dict[str, Any]:
    return {
        "name": policy.header,
        "in": "header",
        "required": policy.key == "required",
        "description": "Names this submission: sent again with the same key, it is not done again.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 255},
    }
