"""What went wrong, as RFC 9457 problem+json."""

from collections.abc import Mapping
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response


def problem(
    status: int,
    detail: str,
    *,
    facts: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A response that says what is wrong, with *facts* as further fields."""
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status}
    return JSONResponse(
        {**body, "detail": detail, **(facts or {})},
        status,
        dict(headers or {}),
        media_type="application/problem+json",
    )


async def on_http_error(request: Request, error: Exception) -> Response:
    """The exception handler for refusals of the framework: unknown paths, methods, and sizes."""
    assert isinstance(error, HTTPException)
    return problem(error.status_code, error.detail, headers=error.headers)
