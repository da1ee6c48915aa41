"""Refusals in Starlette and FastAPI: a document in JSON, or what the application makes of it."""

import json
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response as StarletteResponse

from .._http.problems import is_refusal
from .._http.responses import Response
from .asgi import Message, encoded

GUARD = "dibs.guard"
"""Where the scope of a request has its guard."""


class Refused(HTTPException):
    """A request that was refused, for an exception handler of the application.

    `status_code`, `detail` and `headers` (Retry-After) are those of any HTTPException; *problem* is
    the document that is sent without a handler, and *response* the response with it.
    """

    def __init__(self, refusal: Response) -> None:
        self.problem: dict[str, Any] = json.loads(refusal.body)
        self.response = response_of(refusal)
        after = dict(refusal.headers).get("retry-after")
        headers = None if after is None else {"Retry-After": after}
        super().__init__(refusal.status, self.problem["detail"], headers)


def response_of(response: Response) -> StarletteResponse:
    """*response*, to be returned by an endpoint."""
    made = StarletteResponse(response.body, response.status)
    made.raw_headers = encoded(response)
    return made


def answer(request: Request, response: Response) -> StarletteResponse:
    """The response in place of the endpoint's. Refused: the application has a handler for it."""
    if is_refusal(response) and _is_handled(request, response.status):
        raise refused(request, response)
    return response_of(response)


def refused(request: Request, response: Response) -> Exception:
    """An exception that becomes *response*, unless it is a refusal that the application handles."""
    error: Refused | _Replayed = _Replayed(response)
    if is_refusal(response):
        error = Refused(response)
        request.scope[GUARD].refusal = response
    # Here and not in install(): a mounted application has handlers of its own.
    handlers: Any = request.scope.get("starlette.exception_handlers")
    if handlers is not None:
        handlers[0].setdefault(type(error), _answer)
    return error


class _Replayed(Exception):
    """A stored response, where it cannot be returned. No HTTPException: that would be handled by
    its status.
    """

    def __init__(self, response: Response) -> None:
        super().__init__()
        self.response = response_of(response)


async def _answer(request: Request, error: Exception) -> StarletteResponse:
    assert isinstance(error, Refused | _Replayed)
    return error.response


def _is_handled(request: Request, status: int) -> bool:
    """True: by status or as Refused. A handler of all exceptions is not meant for refusals."""
    by_class, by_status = request.scope.get("starlette.exception_handlers", ({}, {}))
    return status in by_status or by_class.get(Refused, _answer) is not _answer


def with_headers_of(refusal: Response, message: Message) -> Message:
    """The beginning of a page that an application has made of *refusal*, with those headers of it
    that the page does not set itself.
    """
    lines = list(message.get("headers", ()))
    names = {bytes(name).lower() for name, _ in lines}
    wanted = (b"retry-after", b"cache-control", b"ratelimit", b"ratelimit-policy")
    missing = [line for line in encoded(refusal) if line[0] in wanted and line[0] not in names]
    return {**message, "headers": [*lines, *missing]}


def with_fields(fields: list[tuple[str, str]], message: Message) -> Message:
    """The beginning of a response, with further headers."""
    lines = [(name.encode(), value.encode()) for name, value in fields]
    return {**message, "headers": [*message.get("headers", ()), *lines]}
