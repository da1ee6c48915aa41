"""LINE's HTTP API, with LINE's own paths, to be mounted at the base URL of a bot."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from . import (
    account_api,
    audience_api,
    content_api,
    coupon_api,
    group_api,
    insight_api,
    liff_api,
    login_api,
    messaging_api,
    module_api,
    richmenu_api,
)
from .calls import ApiRoute, Asked, Row, guarded
from .platform import Platform

LONGEST_BODY = 2 * 1024 * 1024
_FOR_PAGES = [
    Middleware(
        CORSMiddleware,
        allow_origins=["*"],
        allow_methods=["GET", "POST"],
        allow_headers=["Authorization", "Content-Type"],
    )
]
_WORDS = {404: "Not found", 405: "Method Not Allowed", 413: "Request Entity Too Large"}
_PARTS = (
    messaging_api, content_api, richmenu_api, account_api, group_api, coupon_api, audience_api,
    insight_api, liff_api, login_api, module_api,
)  # fmt: skip


def api_routes(platform: Platform) -> list[ApiRoute]:
    """Every route that is served."""
    return [route for part in _PARTS for route in part.api_routes(platform)]


def create_api(platform: Platform) -> Starlette:
    """Create the API of that platform. Unknown routes are answered 404, in LINE's words."""
    routes = [_route(platform, each) for each in api_routes(platform)]

    async def refuse(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return await _in_lines_words(platform, request, error)

    return Starlette(
        routes=routes,
        exception_handlers={HTTPException: refuse},
        max_body_size=LONGEST_BODY,
    )


def _route(platform: Platform, route: ApiRoute) -> Route:
    """Routes without a channel access token may also be called by pages of other origins."""
    answer, method = guarded(platform, route), route.method
    if not route.is_open:
        return Route(route.path, answer, methods=[method])
    return Route(route.path, answer, methods=[method, "OPTIONS"], middleware=_FOR_PAGES)


async def _in_lines_words(platform: Platform, request: Request, error: HTTPException) -> Response:
    """Also log requests for unknown routes: a bot's author looks for them."""
    words = _WORDS.get(error.status_code, error.detail)
    response = JSONResponse({"message": words}, error.status_code, dict(error.headers or {}))
    if error.status_code in (404, 405):
        asked = Asked(request)
        await asked.data()
        row = Row(platform, request.url.path.removeprefix(request.scope.get("root_path", "")))
        row.write(asked, response, words, is_known=False)
    return response
