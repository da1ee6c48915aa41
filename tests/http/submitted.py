"""Requests as the tests of the engine submit them."""

from typing import Any

from dibs._http.facts import RequestFacts, RequestHeaders
from dibs._http.policy import GuardOptions, Policy
from dibs._http.submission import Submission, submission_of

JSON = {"content-type": "application/json"}
FORM = {"content-type": "application/x-www-form-urlencoded"}
SECRET = b"of the tests"
SITE = GuardOptions[Any](secret=SECRET)


def facts(body: bytes = b"{}", **changes: Any) -> RequestFacts:
    given: dict[str, Any] = {
        "method": "POST", "route": "POST /orders/{id}", "path": "/orders/17", "query": "",
        "headers": JSON, "body": body, "user": "U4711", "path_fields": {"id": "17"},
    }  # fmt: skip
    given |= changes
    return RequestFacts(**{**given, "headers": RequestHeaders(given["headers"])})


def submitted(
    seen: RequestFacts,
    *,
    keys: tuple[str, ...] = (),
    site: GuardOptions[Any] = SITE,
    **options: Any,
) -> Submission:
    policy = Policy(window=10, **options)
    found = submission_of(policy, seen, list(keys), site)
    assert isinstance(found, Submission)
    return found


def key(seen: RequestFacts, **options: Any) -> str:
    return submitted(seen, **options).key


def form(*parts: tuple[str, str, bytes], boundary: str = "xyz") -> tuple[dict[str, str], bytes]:
    """A multipart form: name, file name or nothing, content."""
    body, mark = b"", boundary.strip('"')
    for name, file, content in parts:
        about = f'form-data; name="{name}"' + (f'; filename="{file}"' if file else "")
        body += f"--{mark}\r\nContent-Disposition: {about}\r\n\r\n".encode() + content + b"\r\n"
    headers = {"content-type": f"multipart/form-data; boundary={boundary}"}
    return headers, body + f"--{mark}--\r\n".encode()
