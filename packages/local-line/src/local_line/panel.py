"""The chat page: phones in the browser, and a look at what goes over the wire.

GET  /chat/                  the page; with it, a visitor has three people with phones
GET  /chat/pad, /chat/menus  the pages beside it; `workbench` has what they ask for
GET  /chat/api/events?as=    Server-Sent Events: `state` (all of it), then what happens
POST /chat/api/{verb}        what a person does: 202, its webhook has left · 400 · 409
POST /chat/api/upload?input=  a file that a person sends, as the body
GET  /chat/api/menu/{id}, /chat/api/content/{id}, /chat/api/face   pictures
GET  /chat/api/row/{number}  a webhook or a call in full

Verbs: say tap switch location sticker image unsend played beacon follow unfollow join leave
redeliver pair replay login.
"""

import json
import re
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from . import page_input, wire
from .accounts import Person
from .api import create_api
from .contents import Content
from .events import Draft, Json, Mention
from .journal import Call, News, Window
from .platform import Platform
from .refusals import Refusal
from .streams import Stream
from .visitors import NAMES, Phone, Visitor
from .workbench import Workbench

STATIC = Path(__file__).with_name("static")
COOKIE = "local_line"
_VISITOR = re.compile(r"[0-9a-f]{8}")
_LONGEST_BODY = 32 * 1024
_LARGEST_FILE = 10 * 1024 * 1024
_LOG = 60
_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'self'; img-src 'self' https:; base-uri 'none'; "
    "frame-ancestors 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_SHOWN = ("image/png", "image/jpeg", "image/gif", "image/webp", "video/", "audio/")
"""What a browser may draw; anything else is saved as a file, since it could be an HTML page."""
_OF_ONE_CHAT = ("entry", "loading", "read", "unsent", "friendship", "menu")
"""News for the members of the chat only."""


class ChatPanel:
    """The page's side of a platform, which is open while the panel is."""

    def __init__(
        self,
        platform: Platform,
        *,
        api: Starlette | None = None,
        open_bot: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """*api*: the result of `create_api` for the platform, if it is also served elsewhere.

        *open_bot* is awaited whenever a page is opened; OSError: there is no bot.
        """
        self.platform = platform
        self.api = api or create_api(platform)
        """LINE's API, as it is served beside the page."""
        self._open_bot = open_bot
        self._visitors: dict[str, Visitor] = {}
        self._windows: set[Window] = set()
        self._is_closing = False

    async def __aenter__(self) -> "ChatPanel":
        self._is_closing = False
        await self.platform.__aenter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.end_requests()
        await self.platform.__aexit__(*exception)

    @property
    def routes(self) -> list[BaseRoute]:
        """The routes of the panel, below its own path."""
        return [
            Route("/", self.page, methods=["GET"]),
            Route("/pad", self.pad, methods=["GET"]),
            Route("/menus", self.menus, methods=["GET"]),
            *Workbench(self.platform, self.visitor).routes,
            Mount("/static", StaticFiles(directory=STATIC)),
            Route("/api/events", self.watch, methods=["GET"]),
            Route("/api/menu/{menu_id}", self.picture, methods=["GET"]),
            Route("/api/content/{message_id}", self.content, methods=["GET"]),
            Route("/api/face", self.face, methods=["GET"]),
            Route("/api/row/{number:int}", self.row, methods=["GET"]),
            Route("/api/upload", self.upload, methods=["POST"], max_body_size=_LARGEST_FILE),
            Route("/api/{verb}", self.act, methods=["POST"], max_body_size=_LONGEST_BODY),
        ]

    async def end_requests(self) -> None:
        """End all streams."""
        self._is_closing = True
        for window in self._windows:
            window.end()

    # ---- what a browser draws

    async def page(self, request: Request) -> Response:
        """Serve the chat page."""
        return self._html(request, "chat.html")

    async def pad(self, request: Request) -> Response:
        """Serve the pad, on which messages are pasted, drawn and checked."""
        return self._html(request, "pad.html")

    async def menus(self, request: Request) -> Response:
        """Serve the page of all rich menus."""
        return self._html(request, "menus.html")

    def _html(self, request: Request, name: str) -> Response:
        return self.welcome(request, FileResponse(STATIC / name, headers=_HEADERS))

    def welcome(self, request: Request, response: Response) -> Response:
        """Return *response*, with a cookie for a new visitor.

        Links from other sites send it, too.
        """
        if not _VISITOR.fullmatch(request.cookies.get(COOKIE, "")):
            response.set_cookie(COOKIE, secrets.token_hex(4), httponly=True, samesite="lax")
        return response

    async def picture(self, request: Request) -> Response:
        """Serve the picture of a rich menu."""
        self.visitor(request)
        try:
            picture = self.platform.menus.picture(request.path_params["menu_id"])
        except Refusal as refusal:
            raise HTTPException(refusal.status, "There is no such picture.") from None
        return _file(picture.data, picture.media_type)

    async def content(self, request: Request) -> Response:
        """Serve the content of a message to the members of its chat."""
        visitor, message_id = self.visitor(request), request.path_params["message_id"]
        chats = [self.platform.chats.open(chat_id) for chat_id in visitor.chat_ids]
        is_theirs = any(entry.id == message_id for chat in chats for entry in chat.entries)
        content = self.platform.contents.find(message_id) if is_theirs else None
        if content is None:
            raise HTTPException(404, "There is no such content.")
        return _file(content.data, content.media_type)

    async def face(self, request: Request) -> Response:
        """Serve the picture of the bot."""
        picture = self.platform.channel.picture
        if picture is None:
            raise HTTPException(404, "The bot has no picture.")
        return _file(picture.data, picture.media_type)

    async def row(self, request: Request) -> Response:
        """Return a webhook or a call in full."""
        self.visitor(request)
        found = wire.find(self.platform.journal, request.path_params["number"])
        if found is None:
            raise HTTPException(404, "There is no such row.")
        return JSONResponse(wire.details(found, self.platform.api_base))

    # ---- what people do

    async def act(self, request: Request) -> Response:
        """Send a webhook at once; its result arrives in the stream."""
        visitor = self.visitor(request)
        given = page_input.read(page_input.parsed(await request.body() or b"{}"))
        verb, phone = request.path_params["verb"], visitor.phones[given.person]
        if verb == "login":
            login = self.platform.log_in(phone.private)
            return JSONResponse({"accessToken": login.access_token, "idToken": login.id_token})
        self._find_bot()
        if verb == "redeliver":
            self._redeliver(phone)
        elif verb == "replay":
            await self._replay(page_input.number_of(given))
        elif verb == "pair":
            self._start(phone, phone.last * 2, given)
        else:
            draft = self._draft(verb, phone, given)
            self._start(phone, [draft.by(draft.source or phone.places[given.place])], given)
        return JSONResponse({}, 202)

    async def upload(self, request: Request) -> Response:
        """Send a file: its name and type come with it, and *input* says by whom and where."""
        visitor = self.visitor(request)
        given = page_input.read(page_input.parsed(request.query_params.get("input", "{}").encode()))
        phone = visitor.phones[given.person]
        self._find_bot()
        self._check_friendship(phone, given)
        media_type = request.headers.get("content-type") or "application/octet-stream"
        name = request.query_params.get("name", "file")[:200]
        content = Content(await request.body(), media_type.partition(";")[0].lower(), name)
        self._start(phone, [page_input.uploaded(content).by(phone.places[given.place])], given)
        return JSONResponse({}, 202)

    def _find_bot(self) -> None:
        if not self.platform.webhook_url:
            raise HTTPException(503, "The bot is not there yet.")

    def _draft(self, verb: str, phone: Phone, given: page_input.PageInput) -> Draft:
        if verb == "follow":
            return self.platform.following(phone.private)
        if verb == "unfollow":
            return self.platform.unfollowing(phone.private)
        self._check_friendship(phone, given)
        if verb == "switch":
            return page_input.switched(given, self._switch(phone, page_input.alias_of(given)))
        channel = self.platform.channel
        return page_input.draft(
            verb, given, Mention(f"@{channel.name}", channel.bot_id, is_self=True)
        )

    def _check_friendship(self, phone: Phone, given: page_input.PageInput) -> None:
        if given.place != "private":
            return
        person = self._person(phone)
        if person.has_blocked:
            raise HTTPException(409, "You have blocked the bot. Add it again first.")
        person.is_friend = True  # as in LINE's app, where a bot is added before it is written to

    def _switch(self, phone: Phone, alias: str) -> str:
        """Switch to another menu. Returns LINE's answer."""
        menus = self.platform.menus
        try:
            menus.link(phone.private.chat_id, menus.named(alias))
        except Refusal:
            return "RICHMENU_ALIAS_ID_NOTFOUND"
        self.platform.journal.tell(News("menu", {}, phone.private.chat_id))
        return "SUCCESS"

    def _start(self, phone: Phone, drafts: list[Draft], given: page_input.PageInput) -> None:
        if not drafts:
            raise HTTPException(409, "Do something first: it is what will be repeated.")
        self._person(phone)
        drafts = [draft.in_standby() if given.is_standby else draft for draft in drafts]
        events = self.platform.happen(drafts)
        self.platform.start(events, redelivery=given.is_redelivered)
        phone.last_event = events[-1]["webhookEventId"]
        if drafts[-1].type in ("message", "postback"):
            phone.last = [drafts[-1]]
        self._tell_friendship(phone)

    def _redeliver(self, phone: Phone) -> None:
        if phone.last_event is None:
            raise HTTPException(409, "Do something first: it is what will be delivered again.")
        self.platform.start_again(phone.last_event)

    async def _replay(self, number: int) -> None:
        row = wire.find(self.platform.journal, number)
        if row is None:
            raise HTTPException(404, "There is no such row.")
        if not isinstance(row, Call):
            self.platform.repeat(row)
            return
        try:
            await wire.call_again(self.api, self.platform.channel.access_token, row)
        except ValueError as error:
            raise HTTPException(409, str(error)) from None

    # ---- what a visitor sees

    def visitor(self, request: Request) -> Visitor:
        """The visitor of this browser. 400: the page was never opened here."""
        cookie = request.cookies.get(COOKIE, "")
        if not _VISITOR.fullmatch(cookie):
            raise HTTPException(400, "Open the page first: it gives you a phone.")
        return self._visitors.setdefault(cookie, Visitor(cookie))

    def person(self, request: Request, name: str) -> Person:
        """One of the visitor's people. 400: the page was never opened here."""
        return self._person(self.visitor(request).phones[name])

    def _person(self, phone: Phone) -> Person:
        person = self.platform.accounts.person(phone.private.chat_id)
        person.name = phone.name
        return person

    def _tell_friendship(self, phone: Phone) -> None:
        facts = self._friendship(phone)
        self.platform.journal.tell(News("friendship", facts, phone.private.chat_id))

    def _friendship(self, phone: Phone) -> Json:
        person, members = self._person(phone), self.platform.accounts.members
        facts = {"isFriend": person.is_friend, "hasBlocked": person.has_blocked}
        joined = [
            name for name in ("group", "room") if members(phone.places[name].chat_id) is not None
        ]
        return facts | {"joined": joined}

    def _menu(self, phone: Phone) -> Json:
        return {"menu": self.platform.menus.seen_by(phone.private.chat_id)}

    def _state(self, visitor: Visitor, phone: Phone) -> Json:
        chats = {name: self._chat(chat_id) for chat_id, name in phone.chat_ids.items()}
        lately = self.platform.journal.lately(visitor.chat_ids, _LOG)
        log = [news.facts | {"kind": news.kind} for news in lately]
        channel = self.platform.channel
        facts: Json = {"bot": channel.name, "hasFace": channel.picture is not None}
        facts |= {"me": phone.private.chat_id, "person": phone.person, "people": NAMES}
        facts |= {"chats": chats, "log": log}
        facts |= {"liff": {id: app["view"]["url"] for id, app in self.platform.liff_apps.items()}}
        return facts | self._friendship(phone) | self._menu(phone)

    def _chat(self, chat_id: str) -> Json:
        chat = self.platform.chats.open(chat_id)
        entries = [self._drawn(entry.json()) for entry in chat.entries]
        return {"entries": entries, "loading": chat.loading(self.platform.clock())}

    def _drawn(self, entry: Json) -> Json:
        """An entry with its coupon and the names of its mentions."""
        parts = entry["message"].get("substitution", {}).values()
        ids = {part["mentionee"].get("userId") for part in parts if part["type"] == "mention"}
        people = [person for id in ids if id and (person := self.platform.accounts.find(id))]
        names = {person.user_id: person.name for person in people}
        coupon = self.platform.coupons.get(entry["message"].get("couponId"))
        return entry | ({"names": names} if names else {}) | ({"coupon": coupon} if coupon else {})

    # ---- the stream

    async def watch(self, request: Request) -> Response:
        """Stream what happens to this person."""
        person = page_input.person_of(request.query_params.get("as", "ann"))
        visitor = self.visitor(request)
        return Stream(self._seen(visitor, visitor.phones[person]))

    async def _seen(self, visitor: Visitor, phone: Phone) -> AsyncGenerator[str, None]:
        window = self.platform.journal.open_window(visitor.chat_ids)
        self._windows.add(window)
        try:
            yield _sse("opening", {})
            if error := await self._opened():
                yield _sse("closed", {"error": error})
            window.clear()  # the state has it: what happened meanwhile must not be drawn twice
            yield _sse("state", self._state(visitor, phone))
            while not self._is_closing and (news := await window.next()) is not None:
                if update := self._update(visitor, phone, news, window):
                    yield update
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

    def _update(self, visitor: Visitor, phone: Phone, news: News, window: Window) -> str:
        """The data of a change for this phone. Empty: it is for another one."""
        if window.has_missed:
            window.clear()
            return _sse("state", self._state(visitor, phone))
        chat = phone.chat_ids.get(news.chat_id or "")
        if news.kind in _OF_ONE_CHAT and news.chat_id is not None and chat is None:
            return ""
        facts = self._menu(phone) if news.kind == "menu" else news.facts
        facts = self._drawn(facts) if news.kind == "entry" else facts
        return _sse(news.kind, facts | {"chat": chat})


def _file(data: bytes, media_type: str) -> Response:
    headers = {"Cache-Control": "private, max-age=3600, immutable"}
    headers |= {"X-Content-Type-Options": "nosniff"}
    if not media_type.startswith(_SHOWN):
        media_type = "application/octet-stream"
        headers |= {"Content-Disposition": "attachment"}
    return Response(data, media_type=media_type, headers=headers)


def _sse(kind: str, message: Json) -> str:
    return f"event: {kind}\ndata: {json.dumps(message)}\n\n"
