"""A call to LINE's API: who may make it, how it is read, answered and logged."""

import json
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import Any, NamedTuple
from urllib.parse import parse_qsl
from uuid import uuid4

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from .faults import refuse
from .journal import Call
from .platform import Platform
from .refusals import Refusal, wrong_parameter
from .sources import is_id

_UNKNOWN = (
    "Authentication failed due to the following reason: invalid token. "
    "Confirm that the access token in the authorization header is valid."
)
_TOO_OFTEN = "The API rate limit has been exceeded. Try again later."
_SHOWN_HEADERS = ("content-type", "x-line-retry-key", "x-line-delivery-tag")
_CHATS = ("userId", "chatId")
_KEPT_BODY = 128 * 1024
"""Longer bodies, such as pictures, are not stored in the journal."""


class Asked:
    """One call: its parts, checked as they are read."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.request_id = str(uuid4())
        self.chat_id: str | None = _chat_in(request)
        """The chat that it is about, once known."""
        self.body: Any = None
        self.sent = b""

    def part(self, name: str) -> str:
        """A path parameter."""
        return self.request.path_params[name]

    def user(self) -> str:
        """The user in the path. Refusal: 400, it is not a user id."""
        if not is_id(self.part("userId"), "U"):
            raise wrong_parameter("userId")
        return self.part("userId")

    def query(self, name: str) -> str | None:
        """A query parameter. None: it is missing."""
        return self.request.query_params.get(name)

    def header(self, name: str) -> str | None:
        """A header. None: it is missing."""
        return self.request.headers.get(name)

    @property
    def media_type(self) -> str:
        """Of the body, without its parameters."""
        return (self.header("content-type") or "").partition(";")[0].strip().lower()

    @property
    def bearer(self) -> str:
        """The access token of the call; empty: none."""
        scheme, _, token = (self.header("authorization") or "").partition(" ")
        return token.strip() if scheme.lower() == "bearer" else ""

    async def data(self) -> bytes:
        """The body as it was received."""
        self.sent = await self.request.body()
        return self.sent

    async def json(self) -> dict[str, Any]:
        """The body as JSON. Refusal: 400 or 415, it is not a JSON object."""
        if self.media_type != "application/json":
            raise Refusal(415, f"The content type, {self.media_type}, is not supported")
        self.body = _parsed(await self.data())
        if not isinstance(self.body, dict):
            raise Refusal(400, "The request body could not be parsed as JSON (line: 1, column: 1)")
        return self.body

    async def form(self) -> dict[str, str]:
        """The fields of a form."""
        self.body = dict(parse_qsl((await self.data()).decode("utf-8", "replace")))
        return self.body


def _chat_in(request: Request) -> str | None:
    for name in _CHATS:
        if is_id(request.path_params.get(name)):
            return request.path_params[name]
    return None


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except json.JSONDecodeError as error:
        place = f"(line: {error.lineno}, column: {error.colno})"
    except (ValueError, RecursionError):
        place = "(line: -, column: -)"
    raise Refusal(400, f"The request body could not be parsed as JSON {place}")


Handler = Callable[[Asked], Awaitable[Response]]


class ApiRoute(NamedTuple):
    """One route of the API."""

    method: str
    path: str
    handler: Handler
    is_open: bool = False
    """True: it needs no channel access token; the handler checks the caller."""


def done(body: dict[str, Any] | None = None, status: int = 200) -> Response:
    """The answer to a successful call; many have an empty body."""
    return JSONResponse(body or {}, status)


def guarded(platform: Platform, route: ApiRoute) -> Callable[[Request], Awaitable[Response]]:
    """The handler for the web server: every call is answered in LINE's words, and logged."""

    async def answer(request: Request) -> Response:
        asked, row, note = Asked(request), Row(platform, route.path), ""
        fault = None
        try:
            if not route.is_open:
                _authorize(platform, asked)
            _admit(platform, route)
            fault = platform.faults.take(route.path)
            refuse(fault)
            response = await route.handler(asked)
        except Refusal as refusal:
            response, note = refusal.response(), refusal.message
        except HTTPException as error:  # a body that is too long
            row.write(asked, Response(status_code=error.status_code), error.detail)
            raise
        row.write(asked, response, note)
        if fault is not None:
            await platform.faults.delay(fault)
        return response

    return answer


class Row:
    """A row of the journal: numbered when the call begins, written when it is answered."""

    def __init__(self, platform: Platform, route: str) -> None:
        self._platform = platform
        self._route = route
        self._at, self._since = platform.clock(), monotonic()
        self._number = platform.journal.begin()

    def write(
        self, asked: Asked, response: Response, note: str = "", *, is_known: bool = True
    ) -> None:
        """Write the row with this answer."""
        response.headers["x-line-request-id"] = asked.request_id
        is_cut = len(asked.sent) > _KEPT_BODY
        shown = {name: value for name in _SHOWN_HEADERS if (value := asked.header(name))}
        call = Call(
            self._at, asked.request.method, self._route, response.status_code,
            monotonic() - self._since, asked.request_id, note, asked.body, self._number,
            _path_of(asked.request), shown, b"" if is_cut else asked.sent, is_cut,
            _answer(response), is_known,
        )  # fmt: skip
        self._platform.journal.called(call, asked.chat_id)


def _path_of(request: Request) -> str:
    path = request.url.path.removeprefix(request.scope.get("root_path", ""))
    return f"{path}?{request.url.query}" if request.url.query else path


def _answer(response: Response) -> Any:
    if isinstance(response, JSONResponse):
        return json.loads(bytes(response.body))
    return f"({response.media_type or 'no content type'}, {len(response.body)} bytes)"


def _authorize(platform: Platform, asked: Asked) -> None:
    if not platform.is_channel_token(asked.bearer):
        raise Refusal(401, _UNKNOWN)


def _admit(platform: Platform, route: ApiRoute) -> None:
    if not platform.rates.admit(route.method, route.path, platform.clock()):
        raise Refusal(429, _TOO_OFTEN)
