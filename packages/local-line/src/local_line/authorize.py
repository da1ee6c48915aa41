"""LINE Login's page, and LIFF's script for pages outside of LINE's app.

GET /oauth2/v2.1/authorize?response_type=code&client_id=&redirect_uri=&state=
        200: a page that asks who logs in · 400: something is missing, or of another channel
    …&as=ann    302: back to redirect_uri with a code · as=: with error=access_denied
GET /liff/edge/2/sdk.js, /liff/edge/versions/{version}/sdk.js
"""

from html import escape
from urllib.parse import parse_qsl, urlencode, urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from . import page_input
from .logins import Grant
from .panel import STATIC, ChatPanel
from .visitors import NAMES

_PERSON = '<li><a class="person" href="{address}">{name}</a></li>'
_DENIED = {"error": "access_denied", "error_description": "The resource owner denied the request."}
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}


class LoginPage:
    """The page on which a visitor chooses who logs in."""

    def __init__(self, panel: ChatPanel) -> None:
        self._panel = panel
        self._html = (STATIC / "authorize.html").read_text("utf-8")

    @property
    def routes(self) -> list[BaseRoute]:
        """At LINE's own paths."""
        return [
            Route("/oauth2/v2.1/authorize", self.show, methods=["GET"]),
            Route("/liff/edge/2/sdk.js", _script, methods=["GET"]),
            Route("/liff/edge/versions/{version}/sdk.js", _script, methods=["GET"]),
        ]

    async def show(self, request: Request) -> Response:
        """Show the page; once a person is chosen, redirect back. 400: invalid parameters."""
        asked = dict(request.query_params)
        self._check(asked)
        if "as" in asked:
            return RedirectResponse(_with(asked["redirect_uri"], self._answer(request, asked)), 302)
        people = "".join(
            _PERSON.format(address=_choose(asked, person), name=escape(name))
            for person, name in NAMES.items()
        )
        page = self._html.replace("{{people}}", people).replace("{{cancel}}", _choose(asked, ""))
        page = page.replace("{{to}}", escape(_origin(asked["redirect_uri"])))
        return self._panel.welcome(request, HTMLResponse(page, headers=_HEADERS))

    def _check(self, asked: dict[str, str]) -> None:
        for name in ("client_id", "redirect_uri", "state"):
            if not asked.get(name):
                raise HTTPException(400, f"{name} is missing.")
        if asked.get("response_type") != "code":
            raise HTTPException(400, "response_type must be code.")
        if not _origin(asked["redirect_uri"]):
            raise HTTPException(400, "redirect_uri must be an address with http or https.")
        channel_id = self._panel.platform.channel.channel_id
        if asked["client_id"] != channel_id:
            hint = f"Start local-line with --channel-id {asked['client_id'][:20]}"
            raise HTTPException(400, f"client_id: the channel's id is {channel_id}. {hint}")

    def _answer(self, request: Request, asked: dict[str, str]) -> dict[str, str]:
        state = {"state": asked["state"]}
        if not asked["as"]:
            return _DENIED | state
        person = self._panel.person(request, page_input.person_of(asked["as"]))
        platform = self._panel.platform
        grant = Grant(
            person.user_id, asked["redirect_uri"], asked.get("nonce"), asked.get("liff_id")
        )
        return {"code": platform.logins.grant(grant, platform.clock())} | state


def _choose(asked: dict[str, str], person: str) -> str:
    return escape(f"?{urlencode(asked | {'as': person})}")


def _origin(address: str) -> str:
    """The origin of an address. Empty: a browser cannot be redirected there."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return ""
    is_page = parts.scheme in ("http", "https") and parts.netloc
    return f"{parts.scheme}://{parts.netloc}" if is_page else ""


def _with(address: str, more: dict[str, str]) -> str:
    parts = urlsplit(address)
    query = [*parse_qsl(parts.query, keep_blank_values=True), *more.items()]
    return parts._replace(query=urlencode(query)).geturl()


async def _script(request: Request) -> Response:
    headers = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
    return FileResponse(STATIC / "liff.js", media_type="text/javascript", headers=headers)
