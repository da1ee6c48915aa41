"""What went wrong, as RFC 9457 problem+json."""

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

DATABASE_IS_OUT = (OperationalError, InterfaceError, PoolTimeout)
REFUSED: dict[int | str, dict[str, Any]] = {
    "4XX": {
        "description": "What is wrong, as RFC 9457 says it.",
        "content": {"application/problem+json": {"schema": {"type": "object"}}},
    }
}
"""For the OpenAPI document, which else promises a 422 for what is a 400 here."""
_LONGEST_BODY = 64 * 1024
_log = logging.getLogger(__name__)


def problem(
    status: int,
    detail: str,
    *,
    type: str = "about:blank",
    facts: Mapping[str, object] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """A response that says what is wrong, with *facts* as further fields."""
    body = {"type": type, "title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    return JSONResponse(
        {**body, **(facts or {})},
        status,
        dict(headers or {}),
        media_type="application/problem+json",
    )


async def on_http_error(request: Request, error: StarletteHTTPException) -> Response:
    """Unknown paths and methods, bodies that are too large, and refusals of endpoints."""
    return problem(error.status_code, error.detail, headers=error.headers)


async def on_invalid(request: Request, error: RequestValidationError) -> Response:
    """400, with the first invalid field. The input is not repeated."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][1:])
    if first["type"] == "json_invalid":
        return problem(400, "The body must be JSON.")
    if not field:
        return problem(400, "The body must be a JSON object, sent as application/json.")
    said = first["msg"].removeprefix("Value error, ")
    return problem(400, f"{field}: {said}", facts={"field": field})


async def on_database_outage(request: Request, error: Exception) -> Response:
    """503: the outcome is unknown; the same submission may be tried again."""
    _log.error("The database does not answer: %s", type(error).__name__)
    return problem(503, "The database does not answer.", headers={"Retry-After": "1"})


async def on_mistake(request: Request, error: Exception) -> Response:
    """500: our mistake. Its traceback is in the log."""
    return problem(500, "Something went wrong here.")


HANDLERS: dict[Any, Any] = {
    StarletteHTTPException: on_http_error,
    RequestValidationError: on_invalid,
    Exception: on_mistake,
    **dict.fromkeys(DATABASE_IS_OUT, on_database_outage),
}


class ShortBodies:
    """Refuses a body that is longer than any order, before it is in memory as a whole."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        size = 0

        async def limited() -> Message:
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > _LONGEST_BODY:
                raise HTTPException(413, f"The body must not have more than {_LONGEST_BODY} bytes.")
            return message

        await self._app(scope, limited if scope["type"] == "http" else receive, send)
