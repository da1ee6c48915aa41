"""What happens in chats, as the JSON of LINE's webhooks, and the signature under it.

Nothing here looks at a clock or rolls dice: ids, tokens and times are handed in.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .sources import Source

Json = dict[str, Any]
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


@dataclass(frozen=True)
class Draft:
    """Something that somebody does; it becomes an event when it is sent."""

    type: str
    content: Json = field(default_factory=dict)
    shown: Json | None = None
    """What stands in the chat then: a message of this person."""
    source: Source | None = None
    """None: the person of whom the platform is talking anyway."""
    is_replyable: bool = True
    is_standby: bool = False

    def by(self, source: Source) -> "Draft":
        """The same, done there."""
        return replace(self, source=source)

    def in_standby(self) -> "Draft":
        """The same, while another module has the conversation: there is no reply token."""
        return replace(self, is_standby=True)


# ---- what people do


def text(words: str) -> Draft:
    """Somebody writes."""
    message = {"type": "text", "text": words}
    return Draft("message", {"message": message}, shown=message)


def location(
    latitude: float, longitude: float, *, title: str | None = None, address: str | None = None
) -> Draft:
    """Somebody shares a place."""
    message: Json = {"type": "location", "latitude": latitude, "longitude": longitude}
    message |= {"title": title} if title is not None else {}
    message |= {"address": address} if address is not None else {}
    return Draft("message", {"message": message}, shown=message)


def sticker(package_id: str = "446", sticker_id: str = "1988") -> Draft:
    """Somebody sends a sticker."""
    message = {"type": "sticker", "packageId": package_id, "stickerId": sticker_id}
    message |= {"stickerResourceType": "STATIC"}
    return Draft("message", {"message": message}, shown=message)


def image() -> Draft:
    """Somebody sends a picture."""
    message = {"type": "image", "contentProvider": {"type": "line"}}
    return Draft("message", {"message": message}, shown=message)


def postback(data: str, *, display_text: str | None = None, params: Json | None = None) -> Draft:
    """Somebody taps a button, or an area of the rich menu."""
    content: Json = {"data": data} | ({"params": params} if params else {})
    shown = {"type": "text", "text": display_text} if display_text else None
    return Draft("postback", {"postback": content}, shown=shown)


def follow(*, is_unblocked: bool = False) -> Draft:
    """Somebody adds the bot, or takes back a block."""
    return Draft("follow", {"follow": {"isUnblocked": is_unblocked}})


def unfollow() -> Draft:
    """Somebody blocks the bot: nothing can be said to that."""
    return Draft("unfollow", is_replyable=False)


def join() -> Draft:
    """The bot is invited to a group or room."""
    return Draft("join")


def leave() -> Draft:
    """The bot is removed from a group or room."""
    return Draft("leave", is_replyable=False)


def member_joined(user_id: str) -> Draft:
    """Somebody else joins the group or room."""
    members = [{"type": "user", "userId": user_id}]
    return Draft("memberJoined", {"joined": {"members": members}})


def anything(type: str, *, is_replyable: bool = False, **content: Any) -> Draft:
    """An event of any kind, also of one that nobody has heard of yet."""
    return Draft(type, content, is_replyable=is_replyable)


# ---- as JSON


@dataclass(frozen=True)
class Stamp:
    """What the platform adds to a draft: all that is new for every event."""

    at: float
    event_id: str
    reply_token: str
    message_id: str
    quote_token: str


def compose(draft: Draft, source: Source, stamp: Stamp) -> Json:
    """The event, as it stands in the body of a webhook for the first time."""
    event: Json = {"type": draft.type} | draft.content
    if draft.type == "message":
        event["message"] = _message(draft.content["message"], stamp)
    event |= {
        "timestamp": int(stamp.at * 1000),
        "source": source.json(),
        "mode": "standby" if draft.is_standby else "active",
        "webhookEventId": stamp.event_id,
        "deliveryContext": {"isRedelivery": False},
    }
    if draft.is_replyable and not draft.is_standby:
        event["replyToken"] = stamp.reply_token
    return event


def _message(content: Json, stamp: Stamp) -> Json:
    quotable = content["type"] in ("text", "sticker", "image", "video")
    quote = {"quoteToken": stamp.quote_token} if quotable else {}
    return content | {"id": stamp.message_id} | quote


def redelivered(event: Json) -> Json:
    """The same event, delivered once more; nothing else in it differs."""
    return event | {"deliveryContext": {"isRedelivery": True}}


def body_of(destination: str, events: Sequence[Json]) -> bytes:
    """The body of a webhook: these bytes are signed, and these bytes are sent."""
    body = {"destination": destination, "events": list(events)}
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def signature(secret: str, body: bytes) -> str:
    """What stands in `x-line-signature`."""
    return base64.b64encode(hmac.digest(secret.encode(), body, hashlib.sha256)).decode()


def ulid(at: float, dice: int) -> str:
    """An id that sorts by time: 48 bits of milliseconds, 80 of chance."""
    number = int(at * 1000) << 80 | dice & (1 << 80) - 1
    return "".join(_CROCKFORD[number >> 5 * place & 31] for place in range(25, -1, -1))
