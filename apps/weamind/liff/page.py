"""The settings page, and what it asks for.

GET  /liff/settings     the page; its style and script beside it
GET  /liff/places       every county and township
GET  /users/me          home and office of who has the token: 200 · 401 · 503
POST /users/locations   {"location_type": "home", "place": CODE}: 200 · 400 · 401 · 413 · 422 · 503

Refusals are problem+json. LINE tells who the caller is, by the LIFF access token in `Authorization:
Bearer …`; an id that a caller sends is ignored.
"""

import functools
import json
from pathlib import Path

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router

from ..user.users import Users, UsersUnavailable
from .answers import BadToken, NoAnswer
from .choices import all_places, read_choice, show_choice, show_person
from .problems import Refusal, problem
from .tokens import Tokens

SDK = "https://static.line-scdn.net/liff/edge/2/sdk.js"
LONGEST_BODY = 4096
_LINES_HOSTS = "https://api.line.me https://access.line.me https://liffsdk.line-scdn.net"
_STATIC = Path(__file__).with_name("static")
_PRIVATE = {"Cache-Control": "no-store"}
_CHECKED = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}


class SettingsPage:
    """The page of one LIFF app, as two ASGI apps: `pages` for /liff, `people` for /users."""

    def __init__(self, liff_id: str, *, tokens: Tokens, users: Users, sdk: str = SDK) -> None:
        """*sdk*: where LIFF's script is; one that is not LINE's asks its own host only."""
        self._tokens = tokens
        self._users = users
        self._html = _read("settings.html").replace("{{liff_id}}", liff_id).replace("{{sdk}}", sdk)
        self._policy = _policy(sdk)
        self._places = json.dumps(all_places(), ensure_ascii=False, separators=(",", ":"))
        self.pages = Router([
            Route("/settings", self.show),
            Route("/settings.css", functools.partial(_file, "settings.css", "text/css")),
            Route("/settings.js", functools.partial(_file, "settings.js", "text/javascript")),
            Route("/places", self.places),
        ])  # fmt: skip
        self.people = Router([
            Route("/me", self.me),
            Route("/locations", self.choose, methods=["POST"]),
        ])  # fmt: skip

    async def show(self, request: Request) -> Response:
        """Serve the page, which is the same for all users."""
        return Response(self._html, headers=_CHECKED | self._policy, media_type="text/html")

    async def places(self, request: Request) -> Response:
        """Return all places to choose from."""
        kept = {"Cache-Control": "public, max-age=3600"}
        return Response(self._places, headers=kept, media_type="application/json")

    async def me(self, request: Request) -> Response:
        """Return what the user has chosen so far."""
        try:
            person = await self._users.meet(await self._user_of(_token(request)))
        except Refusal as refusal:
            return problem(refusal)
        except UsersUnavailable:
            return problem(_out("The database does not answer."))
        return JSONResponse(show_person(person), headers=_PRIVATE)

    async def choose(self, request: Request) -> Response:
        """Set a home or office. The input is checked before any request to LINE."""
        try:
            token, choice = _token(request), read_choice(await _body(request))
            user_id = await self._user_of(token)
            await self._users.set_place(user_id, choice.kind, choice.place.code)
        except Refusal as refusal:
            return problem(refusal)
        except UsersUnavailable:
            return problem(_out("The database does not answer."))
        return JSONResponse(show_choice(choice), headers=_PRIVATE)

    async def _user_of(self, token: str) -> str:
        try:
            return await self._tokens.user_of(token)
        except BadToken:
            raise _unauthorized("The token is not good, or not any more.") from None
        except NoAnswer:
            raise _out("LINE does not say whose token it is.") from None


def _policy(sdk: str) -> dict[str, str]:
    folder = sdk.removesuffix("2/sdk.js")
    hosts = _LINES_HOSTS if sdk == SDK else folder.removesuffix("liff/edge/").rstrip("/")
    return {
        # Scripts of LINE's from where the SDK lies, and nowhere else; with it go the hosts that it
        # asks itself: who the page is, and whether the person is logged in.
        "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self' data:; "
        f"script-src 'self' {folder}; connect-src 'self' {hosts}; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        # After the login the address has a code in it, which is for this page only.
        "Referrer-Policy": "strict-origin",
    }


# ---- reading a request


def _token(request: Request) -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise _unauthorized("Authorization: must be Bearer and a LIFF access token.")
    return token.strip()


async def _body(request: Request) -> bytes:
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > LONGEST_BODY:
                raise Refusal(413, f"The body must not have more than {LONGEST_BODY} bytes.")
    except ClientDisconnect:
        raise Refusal(400, "The caller left.") from None
    return bytes(body)


# ---- refusals


def _unauthorized(detail: str) -> Refusal:
    return Refusal(401, detail, headers={"WWW-Authenticate": "Bearer"})


def _out(detail: str) -> Refusal:
    return Refusal(503, detail, headers={"Retry-After": "1"})


# ---- files


@functools.cache
def _read(name: str) -> str:
    return (_STATIC / name).read_text("utf-8")


async def _file(name: str, kind: str, request: Request) -> Response:
    return Response(_read(name), headers=_CHECKED, media_type=kind)
