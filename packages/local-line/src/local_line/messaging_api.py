"""Saying something to people: reply, push, the loading dots, and what may be said.

POST /v2/bot/message/reply               200 · 400: the token, the messages, or a retry key
POST /v2/bot/message/push                200 · 400 · 409: accepted before · 429: the quota
POST /v2/bot/message/validate/{reply|push}  200 · 400: what is wrong with the messages
POST /v2/bot/chat/loading/start          202 · 400
GET  /v2/bot/message/quota, /quota/consumption
"""

import secrets
from typing import TYPE_CHECKING, Any
from uuid import UUID

from starlette.responses import Response

from .calls import Asked, Entrance, done
from .chats import Entry
from .journal import News
from .messages import check_messages
from .refusals import Detail, Refusal, wrong_body, wrong_property
from .sources import is_id
from .tokens import Accepted

if TYPE_CHECKING:
    from .platform import Platform

Json = dict[str, Any]
_QUOTABLE = ("text", "textV2", "sticker", "image", "video", "template", "flex")
_ONLY_USERS = (
    "Only user id is acceptable, please confirm if there are any group/room ids or illegal ids."
)


def entrances(platform: "Platform") -> list[Entrance]:
    """The routes."""
    api = MessagingApi(platform)
    return [
        Entrance("POST", "/v2/bot/message/reply", api.reply),
        Entrance("POST", "/v2/bot/message/push", api.push),
        Entrance("POST", "/v2/bot/message/validate/reply", api.validate),
        Entrance("POST", "/v2/bot/message/validate/push", api.validate),
        Entrance("POST", "/v2/bot/chat/loading/start", api.show_loading),
        Entrance("GET", "/v2/bot/message/quota", api.quota),
        Entrance("GET", "/v2/bot/message/quota/consumption", api.consumption),
    ]


class MessagingApi:
    """What a bot says."""

    def __init__(self, platform: "Platform") -> None:
        self._platform = platform

    async def reply(self, asked: Asked) -> Response:
        """The messages are in the chat that the token is for, which is spent by it."""
        if asked.header("x-line-retry-key") is not None:
            raise Refusal(400, "The retry key is not supported by this endpoint")
        body = await asked.json()
        token = body.get("replyToken")
        if not isinstance(token, str) or not token:
            raise wrong_body([Detail("replyToken", "May not be empty")])
        messages = check_messages(body)
        chat_id = self._platform.reply_tokens.spend(token, self._platform.clock())
        if chat_id is None:
            raise Refusal(400, "Invalid reply token")
        asked.chat_id = chat_id
        return done({"sentMessages": self._say(chat_id, messages, via="reply")})

    async def push(self, asked: Asked) -> Response:
        """The messages are in that chat, once for each retry key."""
        body = await asked.json()
        chat_id = body.get("to")
        if not isinstance(chat_id, str) or not is_id(chat_id):
            raise wrong_property("to")
        messages = check_messages(body)
        key = self._new_retry_key(asked)
        self._take_from_quota(chat_id)
        asked.chat_id = chat_id
        sent = self._say(chat_id, messages, via="push")
        if key is not None:
            accepted = Accepted(asked.request_id, sent, self._platform.clock())
            self._platform.retry_keys.accept(key, accepted)
        return done({"sentMessages": sent})

    def _new_retry_key(self, asked: Asked) -> str | None:
        """None: there is none. Refusal: it is no UUID, or was accepted before."""
        key = asked.header("x-line-retry-key")
        if key is None:
            return None
        try:
            key = str(UUID(key))
        except ValueError:
            raise Refusal(400, "The retry key is invalid") from None
        accepted = self._platform.retry_keys.find(key, self._platform.clock())
        if accepted is not None:
            headers = {"x-line-accepted-request-id": accepted.request_id}
            words = "The retry key is already accepted"
            raise Refusal(409, words, extra={"sentMessages": accepted.sent}, headers=headers)
        return key

    def _take_from_quota(self, chat_id: str) -> None:
        """One message for everybody who gets it. Refusal: nobody knows them, or it is used up."""
        platform = self._platform
        if not platform.accounts.knows(chat_id):
            raise Refusal(400, "Failed to send messages")
        cost = max(len(platform.accounts.members(chat_id) or ()), 1)
        if platform.used + cost > platform.quota:
            raise Refusal(429, "You have reached your monthly limit.")
        platform.used += cost

    def _say(self, chat_id: str, messages: list[Json], *, via: str) -> list[Json]:
        """Somebody who has blocked the bot does not see it; the bot is not told."""
        platform = self._platform
        person = platform.accounts.find(chat_id)
        sent: list[Json] = []
        for message in messages:
            number = platform.next_number()
            quote = {"quoteToken": secrets.token_urlsafe(24)}
            sent.append({"id": number} | (quote if message["type"] in _QUOTABLE else {}))
            if person is None or not person.has_blocked:
                entry = Entry(number, "bot", message, platform.clock(), via=via)
                platform.add_entry(chat_id, entry)
        return sent

    async def validate(self, asked: Asked) -> Response:
        """Whether it could be sent; nothing is."""
        check_messages(await asked.json())
        return done()

    async def show_loading(self, asked: Asked) -> Response:
        """The dots are shown, until the bot says something or the time is over."""
        body = await asked.json()
        platform = self._platform
        chat_id, seconds = _loading(body.get("chatId"), body.get("loadingSeconds", 20))
        asked.chat_id = chat_id
        person = platform.accounts.find(chat_id)
        if person is not None and not person.has_blocked:
            platform.chats.open(chat_id).load(platform.clock() + seconds)
            platform.journal.tell(News("loading", {"seconds": seconds}, chat_id))
        return done(status=202)

    async def quota(self, asked: Asked) -> Response:
        """How much may be pushed in a month."""
        return done({"type": "limited", "value": self._platform.quota})

    async def consumption(self, asked: Asked) -> Response:
        """How much of it was."""
        return done({"totalUsage": self._platform.used})


def _loading(chat_id: Any, seconds: Any) -> tuple[str, int]:
    """Both, if both are right."""
    mistakes: list[Detail] = []
    if not is_id(chat_id, "U"):
        mistakes.append(Detail("chatId", _ONLY_USERS))
    if type(seconds) is not int or not 5 <= seconds <= 60:
        mistakes.append(Detail("loadingSeconds", "Must be between 5 and 60"))
    if type(seconds) is not int or seconds % 5:
        mistakes.append(Detail("loadingSeconds", "must be a multiple of five"))
    if mistakes:
        raise wrong_body(mistakes)
    return chat_id, seconds
