"""LINE's HTTP API, with LINE's own paths, to be mounted where a bot is told that LINE is."""

from typing import TYPE_CHECKING
from uuid import uuid4

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from . import account_api, messaging_api, richmenu_api
from .calls import guarded

if TYPE_CHECKING:
    from .platform import Platform

LONGEST_BODY = 2 * 1024 * 1024
_WORDS = {404: "Not found", 405: "Method Not Allowed", 413: "Request Entity Too Large"}


def create_api(platform: "Platform") -> Starlette:
    """The API of that platform. What it does not know is answered 404, in LINE's words."""
    entrances = [
        *messaging_api.entrances(platform),
        *richmenu_api.entrances(platform),
        *account_api.entrances(platform),
    ]
    routes = [
        Route(each.path, guarded(platform, each), methods=[each.method]) for each in entrances
    ]
    return Starlette(
        routes=routes,
        exception_handlers={HTTPException: _in_lines_words},
        max_body_size=LONGEST_BODY,
    )


async def _in_lines_words(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = _WORDS.get(error.status_code, error.detail)
    headers = dict(error.headers or {}) | {"x-line-request-id": str(uuid4())}
    return JSONResponse({"message": words}, error.status_code, headers)
