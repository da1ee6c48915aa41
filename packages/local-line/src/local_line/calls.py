"""A call to LINE's API: who may make it, how it is read, answered and written down."""

import hmac
import json
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from .faults import refuse
from .journal import Call
from .refusals import Refusal

if TYPE_CHECKING:
    from .platform import Platform

_UNKNOWN = (
    "Authentication failed due to the following reason: invalid token. "
    "Confirm that the access token in the authorization header is valid."
)


class Asked:
    """One call: its parts, checked as they are read."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.request_id = str(uuid4())
        self.chat_id: str | None = None
        """Whose chat it is about, once that is known."""
        self.body: Any = None

    def part(self, name: str) -> str:
        """A part of the address."""
        return self.request.path_params[name]

    def header(self, name: str) -> str | None:
        """None: it was not sent."""
        return self.request.headers.get(name)

    async def json(self) -> dict[str, Any]:
        """The body. Refusal: 400 or 415, it is not a JSON object."""
        media_type = (self.header("content-type") or "").partition(";")[0].strip().lower()
        if media_type != "application/json":
            raise Refusal(415, f"The content type, {media_type}, is not supported")
        self.body = _parsed(await self.request.body())
        if not isinstance(self.body, dict):
            raise Refusal(400, "The request body could not be parsed as JSON (line: 1, column: 1)")
        return self.body


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        place = f"(line: {error.lineno}, column: {error.colno})"
    except (ValueError, RecursionError):
        place = "(line: -, column: -)"
    raise Refusal(400, f"The request body could not be parsed as JSON {place}")


Handler = Callable[[Asked], Awaitable[Response]]


class Entrance(NamedTuple):
    """One route of the API."""

    method: str
    path: str
    handler: Handler


def done(body: dict[str, Any] | None = None, status: int = 200) -> Response:
    """It was done; many calls have nothing to tell."""
    return JSONResponse(body or {}, status)


def guarded(platform: "Platform", entrance: Entrance) -> Callable[[Request], Awaitable[Response]]:
    """What the web server calls: every call is answered in LINE's words, and written down."""

    async def answer(request: Request) -> Response:
        asked, since, note = Asked(request), monotonic(), ""
        fault = None
        try:
            _authorize(platform, asked)
            fault = platform.faults.take(entrance.path)
            refuse(fault)
            response = await entrance.handler(asked)
        except Refusal as refusal:
            response, note = refusal.response(), refusal.message
        response.headers["x-line-request-id"] = asked.request_id
        took = monotonic() - since
        call = Call(
            platform.clock(), entrance.method, entrance.path, response.status_code, took,
            asked.request_id, note, asked.body,
        )  # fmt: skip
        platform.journal.called(call, asked.chat_id)
        if fault is not None:
            await platform.faults.dawdle(fault)
        return response

    return answer


def _authorize(platform: "Platform", asked: Asked) -> None:
    scheme, _, token = (asked.header("authorization") or "").partition(" ")
    right = platform.channel.access_token.encode()
    if scheme.lower() != "bearer" or not hmac.compare_digest(token.strip().encode(), right):
        raise Refusal(401, _UNKNOWN)
