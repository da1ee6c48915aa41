"""The pages beside the chat: a pad for messages, and the rich menus. Nothing reaches the bot.

POST /chat/api/pad/check        a JSON text: what LINE would say about it, by line
POST /chat/api/pad/send?input=  the same; its messages are in a chat then, as if the bot had sent
                                them · 400: LINE would refuse it
GET  /chat/api/menus            all rich menus, their names, and who sees them
POST /chat/api/preview/{verb}   the webhook that a bot would get for what a person does
"""

from collections.abc import Callable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from . import events, page_input
from .chats import Entry
from .events import Draft, Json, Mention, Stamp
from .pad import look
from .platform import Platform
from .refusals import Refusal
from .visitors import Visitor

_LONGEST_TEXT = 512 * 1024
_UNKNOWN = "…"
"""The placeholder in a preview for what would be new in a real webhook."""


class Workbench:
    """The API of the pad and of the page of rich menus."""

    def __init__(self, platform: Platform, visitor: Callable[[Request], Visitor]) -> None:
        self._platform = platform
        self._visitor = visitor

    @property
    def routes(self) -> list[BaseRoute]:
        """The routes, below the path of the panel."""
        return [
            Route("/api/pad/check", self.check, methods=["POST"], max_body_size=_LONGEST_TEXT),
            Route("/api/pad/send", self.send, methods=["POST"], max_body_size=_LONGEST_TEXT),
            Route("/api/menus", self.menus, methods=["GET"]),
            Route("/api/preview/{verb}", self.preview, methods=["POST"]),
        ]

    # ---- the pad

    async def check(self, request: Request) -> Response:
        """Check messages as LINE would."""
        self._visitor(request)
        return JSONResponse(look(await _text(request)).json())

    async def send(self, request: Request) -> Response:
        """Send the messages to the chat that *input* names, without using the quota."""
        visitor = self._visitor(request)
        given = page_input.read(page_input.parsed(request.query_params.get("input", "{}").encode()))
        looked = look(await _text(request))
        if looked.refusal:
            raise HTTPException(400, looked.refusal)
        chat_id = visitor.phones[given.person].places[given.place].chat_id
        platform = self._platform
        for message in looked.messages:
            entry = Entry(platform.next_number(), "bot", message, platform.clock(), via="pad")
            platform.add_entry(chat_id, entry)
        return JSONResponse({}, 202)

    # ---- rich menus

    async def menus(self, request: Request) -> Response:
        """List all menus, the oldest first."""
        visitor = self._visitor(request)
        return JSONResponse([self._menu(menu, visitor) for menu in self._platform.menus.all()])

    def _menu(self, menu: Json, visitor: Visitor) -> Json:
        menus, menu_id, phones = self._platform.menus, menu["richMenuId"], visitor.phones.values()
        aliases = [alias for alias, id in menus.names().items() if id == menu_id]
        seen_by = [each.name for each in phones if menus.seen_by(each.private.chat_id) is menu]
        facts = menu | {"aliases": aliases, "seenBy": seen_by}
        facts |= {"isDefault": _or_none(lambda: menus.default) == menu_id}
        return facts | {"hasPicture": _or_none(lambda: menus.picture(menu_id)) is not None}

    async def preview(self, request: Request) -> Response:
        """The body of the webhook, which is not sent."""
        visitor = self._visitor(request)
        given = page_input.read(page_input.parsed(await request.body()))
        source = visitor.phones[given.person].places[given.place]
        stamp = Stamp(self._platform.clock(), *[_UNKNOWN] * 5)
        draft = self._draft(request.path_params["verb"], given)
        event = events.compose(draft.in_standby() if given.is_standby else draft, source, stamp)
        return JSONResponse({"destination": self._platform.channel.bot_id, "events": [event]})

    def _draft(self, verb: str, given: page_input.PageInput) -> Draft:
        if verb != "switch":
            channel = self._platform.channel
            bot = Mention(f"@{channel.name}", channel.bot_id, is_self=True)
            return page_input.draft(verb, given, bot)
        menu_id = _or_none(lambda: self._platform.menus.named(page_input.alias_of(given)))
        return page_input.switched(given, "SUCCESS" if menu_id else "RICHMENU_ALIAS_ID_NOTFOUND")


def _or_none(find: Callable[[], Any]) -> Any:
    try:
        return find()
    except Refusal:
        return None


async def _text(request: Request) -> str:
    try:
        return (await request.body()).decode()
    except UnicodeDecodeError:
        raise HTTPException(400, "The body must be UTF-8.") from None
