"""Saying something to people: reply, push, multicast, broadcast, narrowcast, and what may be said.

POST /v2/bot/message/reply       200 · 400: the token, the messages, or a retry key
POST /v2/bot/message/push        200 · 400 · 409: accepted before · 429: the quota
POST /v2/bot/message/multicast   200 · the same
POST /v2/bot/message/broadcast   200 · the same
POST /v2/bot/message/narrowcast  202 · the same; GET …/progress/narrowcast
POST /v2/bot/message/validate/{kind}  200 · 400: what is wrong with the messages
"""

import secrets
from collections.abc import Collection
from typing import Any
from uuid import UUID

from starlette.responses import Response

from .calls import ApiRoute, Asked, done
from .chats import Entry
from .messages import check_messages
from .platform import Platform
from .recipients import Recipients
from .refusals import Detail, Refusal, not_found, wrong_body, wrong_parameter, wrong_property
from .sendings import Sending, iso
from .sources import is_id
from .tokens import Accepted

Json = dict[str, Any]
KINDS = ("reply", "push", "multicast", "narrowcast", "broadcast")
_QUOTABLE = ("text", "textV2", "sticker", "image", "video", "template", "flex")
_MOST_RECIPIENTS = 500
_NO_RECIPIENTS = 2
"""LINE's code for a narrowcast with too few recipients."""


def api_routes(platform: Platform) -> list[ApiRoute]:
    """The routes."""
    api = MessagingApi(platform)
    sent = "/v2/bot/message"
    return [
        ApiRoute("POST", f"{sent}/reply", api.reply),
        ApiRoute("POST", f"{sent}/push", api.push),
        ApiRoute("POST", f"{sent}/multicast", api.multicast),
        ApiRoute("POST", f"{sent}/broadcast", api.broadcast),
        ApiRoute("POST", f"{sent}/narrowcast", api.narrowcast),
        ApiRoute("GET", f"{sent}/progress/narrowcast", api.progress),
        *(ApiRoute("POST", f"{sent}/validate/{kind}", api.validate) for kind in KINDS),
    ]


class MessagingApi:
    """The routes that send messages."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform

    # ---- to one

    async def reply(self, asked: Asked) -> Response:
        """Send messages to the chat of the reply token, which is used up."""
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
        self._note(asked, "reply", [chat_id])
        return done({"sentMessages": self._say(chat_id, messages, via="reply")})

    async def push(self, asked: Asked) -> Response:
        """Send messages to a chat, once for each retry key."""
        body = await asked.json()
        chat_id = body.get("to")
        if not isinstance(chat_id, str) or not is_id(chat_id):
            raise wrong_property("to")
        messages = check_messages(body)
        units = _units(body)
        key = self._new_retry_key(asked)
        if not self._platform.accounts.knows(chat_id):
            raise Refusal(400, "Failed to send messages")
        self._take_from_quota(max(len(self._platform.accounts.members(chat_id) or ()), 1))
        asked.chat_id = chat_id
        sent = self._say(chat_id, messages, via="push")
        self._accept(asked, key, sent)
        self._note(asked, "push", [chat_id], units)
        return done({"sentMessages": sent})

    # ---- to many

    async def multicast(self, asked: Asked) -> Response:
        """Send messages to these users; unknown ones are not reported."""
        body = await asked.json()
        users, messages, units = _users(body), check_messages(body), _units(body)
        key = self._new_retry_key(asked)
        self._send(asked, "multicast", self._reachable(users), messages, units)
        self._accept(asked, key)
        return done()

    async def broadcast(self, asked: Asked) -> Response:
        """Send messages to every friend."""
        messages = check_messages(await asked.json())
        key = self._new_retry_key(asked)
        self._send(asked, "broadcast", self._platform.accounts.friends(), messages)
        self._accept(asked, key)
        return done()

    async def narrowcast(self, asked: Asked) -> Response:
        """Send messages to the matching friends; `progress` tells the result."""
        body = await asked.json()
        messages = check_messages(body)
        users = self._narrowed(body)
        key = self._new_retry_key(asked)
        if users:
            self._send(asked, "narrowcast", users, messages)
        else:
            self._note(asked, "narrowcast", [], failure=_NO_RECIPIENTS)
        self._accept(asked, key)
        return done(status=202)

    def _narrowed(self, body: Json) -> list[str]:
        """The recipients of a narrowcast.

        Age and area are unknown: a demographic filter matches no user.
        """
        platform, friends = self._platform, self._platform.accounts.friends()
        audiences, sendings = platform.audiences, platform.sendings
        reader = Recipients(
            frozenset(friends),
            audience=audiences.members,
            earlier=lambda id: _recipients(sendings.find(id)),
        )
        chosen = reader.read(body["recipient"]) if "recipient" in body else frozenset(friends)
        if "filter" in body:
            chosen = frozenset()
        return [user for user in friends if user in chosen][: _limit(body, self._left())]

    def _left(self) -> int | None:
        """The remaining quota. None: it is unlimited."""
        platform = self._platform
        return None if platform.quota is None else max(platform.quota - platform.used, 0)

    async def progress(self, asked: Asked) -> Response:
        """Return the result of a narrowcast. Refusal: 404, there was none."""
        request_id = asked.query("requestId")
        if not request_id:
            raise wrong_parameter("requestId")
        sending = self._platform.sendings.find(request_id)
        if sending is None or sending.kind != "narrowcast":
            raise not_found()
        return done(_progress(sending))

    async def validate(self, asked: Asked) -> Response:
        """Check messages without sending them."""
        check_messages(await asked.json())
        return done()

    # ---- how it is done

    def _reachable(self, users: Collection[str]) -> list[str]:
        known = self._platform.accounts.find
        return [user for user in dict.fromkeys(users) if known(user) is not None]

    def _send(
        self,
        asked: Asked,
        kind: str,
        users: Collection[str],
        messages: list[Json],
        units: tuple[str, ...] = (),
    ) -> None:
        self._take_from_quota(len(users))
        for user in users:
            self._say(user, messages, via=kind)
        self._note(asked, kind, users, units)

    def _note(
        self,
        asked: Asked,
        kind: str,
        users: Collection[str],
        units: tuple[str, ...] = (),
        failure: int | None = None,
    ) -> None:
        now = self._platform.clock()
        sending = Sending(asked.request_id, kind, now, tuple(users), units, failure)
        self._platform.sendings.add(sending)

    def _new_retry_key(self, asked: Asked) -> str | None:
        """The retry key of the call.

        None: it has none. Refusal: it is not a UUID, or was accepted before.
        """
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
            extra = {"sentMessages": accepted.sent} if accepted.sent else {}
            raise Refusal(409, "The retry key is already accepted", extra=extra, headers=headers)
        return key

    def _accept(self, asked: Asked, key: str | None, sent: list[Json] | None = None) -> None:
        if key is not None:
            accepted = Accepted(asked.request_id, sent or [], self._platform.clock())
            self._platform.retry_keys.accept(key, accepted)

    def _take_from_quota(self, cost: int) -> None:
        """Count one message for each recipient. Refusal: the quota is used up."""
        platform = self._platform
        if platform.quota is not None and platform.used + cost > platform.quota:
            raise Refusal(429, "You have reached your monthly limit.")
        platform.used += cost

    def _say(self, chat_id: str, messages: list[Json], *, via: str) -> list[Json]:
        """Send messages. A user who blocks the bot does not see them; the bot gets no error."""
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


def _users(body: Json) -> list[str]:
    users = body.get("to")
    if not isinstance(users, list) or not 1 <= len(users) <= _MOST_RECIPIENTS:
        raise wrong_body([Detail("to", f"Size must be between 1 and {_MOST_RECIPIENTS}")])
    if not all(is_id(user, "U") for user in users):
        raise wrong_property("to")
    return users


def _units(body: Json) -> tuple[str, ...]:
    units = body.get("customAggregationUnits", [])
    if not isinstance(units, list) or len(units) > 1 or not all(map(is_unit, units)):
        raise wrong_body([Detail("customAggregationUnits", "invalid customAggregationUnits")])
    return tuple(units)


def is_unit(value: Any) -> bool:
    """True: it is a valid name of an aggregation unit."""
    return (
        isinstance(value, str)
        and 1 <= len(value) <= 30
        and value.isascii()
        and value.replace("_", "a").isalnum()
    )


def _limit(body: Json, left: int | None) -> int | None:
    """The most recipients. None: all. Refusal: 400, it is not valid."""
    limit = body.get("limit", {})
    most = limit.get("max") if isinstance(limit, dict) else 0
    if not isinstance(limit, dict) or (most is not None and (type(most) is not int or most < 1)):
        raise wrong_body([Detail("limit.max", "must be greater than or equal to 1")])
    if limit.get("upToRemainingQuota") is True and left is not None:
        return left if most is None else min(most, left)
    return most


def _recipients(sending: Sending | None) -> frozenset[str] | None:
    return None if sending is None else frozenset(sending.recipients)


def _progress(sending: Sending) -> Json:
    times = {"acceptedTime": iso(sending.at), "completedTime": iso(sending.at)}
    if sending.failure is not None:
        failed = {"phase": "failed", "failedDescription": "There were not enough recipients"}
        return failed | {"errorCode": sending.failure} | times
    number = len(sending.recipients)
    counts = {"successCount": number, "failureCount": 0, "targetCount": number}
    return {"phase": "succeeded"} | counts | times
