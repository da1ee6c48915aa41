"""The chat page: a phone in the browser, and a look at what goes over the wire.

GET  /chat/                 the page; with it, a visitor is a person with a phone
GET  /chat/api/events       Server-Sent Events: `state` (all of it), then what happens
POST /chat/api/{verb}       what the person does: 202, its webhook has left · 400 · 409
GET  /chat/api/menu/{id}    the picture of a rich menu

Verbs: say tap switch location sticker image follow unfollow join redeliver pair.
"""

import hashlib
import json
import re
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from . import wishes
from .accounts import Person
from .events import Draft, Json
from .journal import News, Window
from .platform import Platform
from .refusals import Refusal
from .sources import Source
from .streams import Stream

STATIC = Path(__file__).with_name("static")
COOKIE = "local_line"
_VISITOR = re.compile(r"[0-9a-f]{8}")
_LONGEST_BODY = 32 * 1024
_LOG = 60
_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class Visitor:
    """Somebody who has opened the page: a person, with a chat and a group of their own."""

    def __init__(self, cookie: str) -> None:
        name = hashlib.sha256(cookie.encode()).hexdigest()[:32]
        user_id, group_id = f"U{name}", f"C{name}"
        self.private = Source.user(user_id)
        self.places: Mapping[str, Source] = {
            "private": self.private,
            "group": Source.group(group_id, user_id),
            "anonymous": Source.group(group_id),
        }
        self.chat_ids = {user_id: "private", group_id: "group"}
        """Under which name the page knows a chat."""
        self.last: list[Draft] = []
        """What they did last, each with its source."""
        self.last_event: str | None = None


class ChatPanel:
    """The page's side of a platform, which is open while the panel is."""

    def __init__(
        self, platform: Platform, *, open_bot: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """*open_bot* is awaited whenever a page is opened; OSError: there is no bot."""
        self.platform = platform
        self._open_bot = open_bot
        self._visitors: dict[str, Visitor] = {}
        self._windows: set[Window] = set()
        self._is_closing = False

    async def __aenter__(self) -> "ChatPanel":
        self._is_closing = False
        await self.platform.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.send_home()
        await self.platform.__aexit__(*exception)

    @property
    def routes(self) -> list[BaseRoute]:
        """What the panel answers, below its own path."""
        return [
            Route("/", self.page, methods=["GET"]),
            Mount("/static", StaticFiles(directory=STATIC)),
            Route("/api/events", self.watch, methods=["GET"]),
            Route("/api/menu/{menu_id}", self.picture, methods=["GET"]),
            Route("/api/{verb}", self.act, methods=["POST"], max_body_size=_LONGEST_BODY),
        ]

    async def send_home(self) -> None:
        """Nobody watches any more: every stream ends now."""
        self._is_closing = True
        for window in self._windows:
            window.end()

    # ---- answers

    async def page(self, request: Request) -> Response:
        """The page."""
        response = FileResponse(STATIC / "chat.html", headers=_HEADERS)
        if not _VISITOR.fullmatch(request.cookies.get(COOKIE, "")):
            response.set_cookie(COOKIE, secrets.token_hex(4), httponly=True, samesite="strict")
        return response

    async def picture(self, request: Request) -> Response:
        """What a rich menu looks like."""
        self._visitor(request)
        try:
            picture = self.platform.menus.picture(request.path_params["menu_id"])
        except Refusal as refusal:
            raise HTTPException(refusal.status, "There is no such picture.") from None
        headers = {"Cache-Control": "private, max-age=3600, immutable"}
        return Response(picture.data, media_type=picture.media_type, headers=headers)

    async def act(self, request: Request) -> Response:
        """A webhook leaves for it at once; the stream tells what becomes of it."""
        visitor = self._visitor(request)
        wish = wishes.read(await _body(request))
        verb = request.path_params["verb"]
        self._find_bot()
        if verb == "redeliver":
            self._redeliver(visitor)
        elif verb == "pair":
            self._start(visitor, visitor.last * 2, wish)
        else:
            draft = self._draft(verb, visitor, wish)
            self._start(visitor, [draft.by(draft.source or visitor.places[wish.place])], wish)
        return JSONResponse({}, 202)

    def _find_bot(self) -> None:
        if not self.platform.webhook_url:
            raise HTTPException(503, "The bot is not there yet.")

    def _draft(self, verb: str, visitor: Visitor, wish: wishes.Wish) -> Draft:
        if verb == "follow":
            return self.platform.following(visitor.private)
        if verb == "unfollow":
            return self.platform.unfollowing(visitor.private)
        if wish.place == "private" and self._person(visitor).has_blocked:
            raise HTTPException(409, "You have blocked the bot. Add it again first.")
        if verb == "switch":
            return wishes.switched(wish, self._switch(visitor, wishes.alias_of(wish)))
        return wishes.draft(verb, wish)

    def _switch(self, visitor: Visitor, alias: str) -> str:
        """Another menu is on the phone; what LINE says about it."""
        menus = self.platform.menus
        try:
            menus.link(visitor.private.chat_id, menus.named(alias))
        except Refusal:
            return "RICHMENU_ALIAS_ID_NOTFOUND"
        self.platform.journal.tell(News("menu", {}, visitor.private.chat_id))
        return "SUCCESS"

    def _start(self, visitor: Visitor, drafts: list[Draft], wish: wishes.Wish) -> None:
        if not drafts:
            raise HTTPException(409, "Do something first: it is what will be repeated.")
        drafts = [draft.in_standby() if wish.is_standby else draft for draft in drafts]
        events = self.platform.happen(drafts)
        self.platform.start(events, redelivery=wish.is_redelivered)
        visitor.last_event = events[-1]["webhookEventId"]
        if drafts[-1].type in ("message", "postback"):
            visitor.last = [drafts[-1]]
        self._tell_friendship(visitor)

    def _redeliver(self, visitor: Visitor) -> None:
        if visitor.last_event is None:
            raise HTTPException(409, "Do something first: it is what will be delivered again.")
        self.platform.start_again(visitor.last_event)

    # ---- what a visitor sees

    def _visitor(self, request: Request) -> Visitor:
        """400: the page was never opened here."""
        cookie = request.cookies.get(COOKIE, "")
        if not _VISITOR.fullmatch(cookie):
            raise HTTPException(400, "Open the page first: it gives you a phone.")
        return self._visitors.setdefault(cookie, Visitor(cookie))

    def _person(self, visitor: Visitor) -> Person:
        return self.platform.accounts.person(visitor.private.chat_id)

    def _tell_friendship(self, visitor: Visitor) -> None:
        facts = self._friendship(visitor)
        self.platform.journal.tell(News("friendship", facts, visitor.private.chat_id))

    def _friendship(self, visitor: Visitor) -> Json:
        person, group = self._person(visitor), visitor.places["group"].chat_id
        facts = {"isFriend": person.is_friend, "hasBlocked": person.has_blocked}
        return facts | {"isInGroup": self.platform.accounts.members(group) is not None}

    def _menu(self, visitor: Visitor) -> Json:
        return {"menu": self.platform.menus.seen_by(visitor.private.chat_id)}

    def _state(self, visitor: Visitor) -> Json:
        chats = {name: self._chat(chat_id) for chat_id, name in visitor.chat_ids.items()}
        lately = self.platform.journal.lately(visitor.chat_ids, _LOG)
        log = [news.facts | {"kind": news.kind} for news in lately]
        facts = {"bot": self.platform.channel.name, "chats": chats, "log": log}
        return facts | self._friendship(visitor) | self._menu(visitor)

    def _chat(self, chat_id: str) -> Json:
        chat = self.platform.chats.open(chat_id)
        loading = chat.loading(self.platform.clock())
        return {"entries": [entry.json() for entry in chat.entries], "loading": loading}

    # ---- the stream

    async def watch(self, request: Request) -> Response:
        """What happens to this visitor, as it happens."""
        return Stream(self._seen(self._visitor(request)))

    async def _seen(self, visitor: Visitor) -> AsyncGenerator[str, None]:
        window = self.platform.journal.open_window(visitor.chat_ids)
        self._windows.add(window)
        try:
            yield _sse("opening", {})
            if error := await self._opened():
                yield _sse("closed", {"error": error})
            window.clear()  # the state has it: what happened meanwhile must not be drawn twice
            yield _sse("state", self._state(visitor))
            while not self._is_closing and (news := await window.next()) is not None:
                yield self._told(visitor, news, window)
        finally:
            self._windows.discard(window)
            self.platform.journal.close_window(window)

    async def _opened(self) -> str:
        """Why there is no bot; empty: there is one."""
        try:
            if self._open_bot is not None:
                await self._open_bot()
        except OSError as error:
            return f"The bot does not start: {error}."
        return ""

    def _told(self, visitor: Visitor, news: News, window: Window) -> str:
        if window.has_missed:
            window.clear()
            return _sse("state", self._state(visitor))
        facts = self._menu(visitor) if news.kind == "menu" else news.facts
        chat = visitor.chat_ids.get(news.chat_id or "")
        return _sse(news.kind, facts | {"chat": chat})


async def _body(request: Request) -> Any:
    try:
        body = json.loads(await request.body() or b"{}")
        json.dumps(body, ensure_ascii=False).encode()  # half a character cannot be sent on
        return body
    except (ValueError, RecursionError):
        raise HTTPException(400, "The body must be JSON.") from None


def _sse(kind: str, message: Json) -> str:
    return f"event: {kind}\ndata: {json.dumps(message)}\n\n"


# ---- where it is put


def chat_routes(panel: ChatPanel) -> list[BaseRoute]:
    """The page at /chat/, and LINE's API at its own paths: LINE's SDKs take no path before them."""
    return [
        Route("/", _to_the_page, methods=["GET"]),
        Route("/chat", _to_the_page, methods=["GET"]),
        Mount("/chat", routes=panel.routes),
        Mount("/", app=panel.platform.app),
    ]


async def _to_the_page(request: Request) -> Response:
    return RedirectResponse(str(request.url.replace(path="/chat/", query="")))


def create_page(panel: ChatPanel) -> Starlette:
    """An app of nothing but the chat and LINE's API."""
    return Starlette(routes=chat_routes(panel), exception_handlers={HTTPException: _sentence})


async def _sentence(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)
