"""Where everything is: the chat, LINE Login's page, LIFF's script, and LINE's API."""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from .authorize import LoginPage
from .panel import ChatPanel


def chat_routes(panel: ChatPanel) -> list[BaseRoute]:
    """The page at /chat/, and LINE's API at its own paths: LINE's SDKs take no path before them."""
    return [
        Route("/", _to_the_page, methods=["GET"]),
        Route("/chat", _to_the_page, methods=["GET"]),
        Mount("/chat", routes=panel.routes),
        *LoginPage(panel).routes,
        Mount("/", app=panel.api),
    ]


async def _to_the_page(request: Request) -> Response:
    return RedirectResponse(str(request.url.replace(path="/chat/", query="")))


def create_page(panel: ChatPanel) -> Starlette:
    """An app with only the chat and LINE's API."""
    return Starlette(routes=chat_routes(panel), exception_handlers={HTTPException: _sentence})


async def _sentence(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)
