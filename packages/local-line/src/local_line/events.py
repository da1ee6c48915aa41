"""What happens in chats, as the JSON of LINE's webhooks, and the signature under it.

Nothing here reads a clock or makes random numbers: ids, tokens and times are handed in.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .contents import Content, sample_picture
from .lengths import utf16
from .sources import Source

Json = dict[str, Any]
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


@dataclass(frozen=True)
class Draft:
    """What a user does; it becomes an event when it is sent."""

    type: str
    content: Json = field(default_factory=dict)
    shown: Json | None = None
    """What the chat shows for it: a message of this person."""
    source: Source | None = None
    """None: the person that the call to the platform names."""
    is_replyable: bool = True
    is_standby: bool = False
    carried: Content | None = None
    """The content of a picture, video, sound or file."""
    takes_back: str | None = None
    """The id of the message that it unsends."""

    def by(self, source: Source) -> "Draft":
        """The same, from that source."""
        return replace(self, source=source)

    def in_standby(self) -> "Draft":
        """The same, while another module has the conversation: there is no reply token."""
        return replace(self, is_standby=True)


# ---- what people do


def text(words: str, *, mentions: Sequence["Mention"] = (), quoting: str | None = None) -> Draft:
    """A text message, *quoting* another one by its id. ValueError: a mention is not in the text."""
    message: Json = {"type": "text", "text": words}
    if mentions:
        message["mention"] = {"mentionees": [each.json(words) for each in mentions]}
    message |= {"quotedMessageId": quoting} if quoting is not None else {}
    return Draft("message", {"message": message}, shown=message)


@dataclass(frozen=True)
class Mention:
    """A mention in a text: `Mention("@Ann", user_id)`."""

    words: str
    """The text of the mention, with the @."""
    user_id: str | None = None
    """None: all members, as `@All`."""
    is_self: bool = False
    """True: it is the bot."""

    def json(self, text: str) -> Json:
        """The JSON of an event, counted in UTF-16 units.

        ValueError: the text does not contain it.
        """
        place = utf16(text[: text.index(self.words)])
        facts: Json = {"index": place, "length": utf16(self.words)}
        if self.user_id is None:
            return facts | {"type": "all"}
        return facts | {"type": "user", "userId": self.user_id, "isSelf": self.is_self}


def location(
    latitude: float, longitude: float, *, title: str | None = None, address: str | None = None
) -> Draft:
    """A location. LINE's app always sends an address: without one, the coordinates."""
    message: Json = {"type": "location", "latitude": latitude, "longitude": longitude}
    message |= {"title": title} if title is not None else {}
    message |= {"address": address or f"{latitude}, {longitude}"}
    return Draft("message", {"message": message}, shown=message)


def sticker(package_id: str = "446", sticker_id: str = "1988") -> Draft:
    """A sticker."""
    message = {"type": "sticker", "packageId": package_id, "stickerId": sticker_id}
    message |= {"stickerResourceType": "STATIC"}
    return Draft("message", {"message": message}, shown=message)


def image(content: Content | None = None) -> Draft:
    """A picture; without *content*, one that is drawn here."""
    message = {"type": "image", "contentProvider": {"type": "line"}}
    carried = content or sample_picture()
    return Draft("message", {"message": message}, shown=message, carried=carried)


def video(content: Content, *, duration: int = 1000) -> Draft:
    """A video of *duration* milliseconds."""
    message: Json = {"type": "video", "duration": duration, "contentProvider": {"type": "line"}}
    return Draft("message", {"message": message}, shown=message, carried=content)


def audio(content: Content, *, duration: int = 1000) -> Draft:
    """A voice message of *duration* milliseconds."""
    message: Json = {"type": "audio", "duration": duration, "contentProvider": {"type": "line"}}
    return Draft("message", {"message": message}, shown=message, carried=content)


def file(content: Content) -> Draft:
    """A file with its name."""
    name = content.name or "file"
    message: Json = {"type": "file", "fileName": name, "fileSize": len(content.data)}
    return Draft("message", {"message": message}, shown=message, carried=content)


def unsend(message_id: str) -> Draft:
    """A message is unsent. The event has no reply token."""
    unsent = {"unsend": {"messageId": message_id}}
    return Draft("unsend", unsent, is_replyable=False, takes_back=message_id)


def postback(data: str, *, display_text: str | None = None, params: Json | None = None) -> Draft:
    """A user taps a button, or an area of the rich menu."""
    content: Json = {"data": data} | ({"params": params} if params else {})
    shown = {"type": "text", "text": display_text} if display_text else None
    return Draft("postback", {"postback": content}, shown=shown)


def follow(*, is_unblocked: bool = False) -> Draft:
    """A user adds the bot as a friend, or unblocks it."""
    return Draft("follow", {"follow": {"isUnblocked": is_unblocked}})


def unfollow() -> Draft:
    """A user blocks the bot. The event has no reply token."""
    return Draft("unfollow", is_replyable=False)


def join() -> Draft:
    """The bot is invited to a group or room."""
    return Draft("join")


def leave() -> Draft:
    """The bot is removed from a group or room."""
    return Draft("leave", is_replyable=False)


def member_joined(*user_ids: str) -> Draft:
    """Others join the group or room."""
    return Draft("memberJoined", {"joined": {"members": _members(user_ids)}})


def member_left(*user_ids: str) -> Draft:
    """Others leave the group or room. The event has no reply token."""
    return Draft("memberLeft", {"left": {"members": _members(user_ids)}}, is_replyable=False)


def _members(user_ids: Sequence[str]) -> list[Json]:
    return [{"type": "user", "userId": user_id} for user_id in user_ids]


def video_played(tracking_id: str) -> Draft:
    """A user has watched a video of the bot to its end."""
    return Draft("videoPlayComplete", {"videoPlayComplete": {"trackingId": tracking_id}})


def beacon(hwid: str = "d41d8cd98f", *, type: str = "enter", dm: str | None = None) -> Draft:
    """A user enters the range of a beacon."""
    seen = {"hwid": hwid, "type": type} | ({"dm": dm} if dm is not None else {})
    return Draft("beacon", {"beacon": seen})


def account_link(nonce: str, *, is_ok: bool = True) -> Draft:
    """A user has linked another account to the one at LINE, or tried to."""
    link = {"result": "ok" if is_ok else "failed", "nonce": nonce}
    return Draft("accountLink", {"link": link}, is_replyable=is_ok)


def anything(type: str, *, is_replyable: bool = False, **content: Any) -> Draft:
    """An event of any kind, also of an unknown one."""
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
    read_token: str = ""


def compose(draft: Draft, source: Source, stamp: Stamp) -> Json:
    """The JSON of the event, for its first webhook."""
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
    read = {"markAsReadToken": stamp.read_token} if stamp.read_token else {}
    return content | {"id": stamp.message_id} | quote | read


def redelivered(event: Json) -> Json:
    """The same event, delivered once more; nothing else in it differs."""
    return event | {"deliveryContext": {"isRedelivery": True}}


def body_of(destination: str, events: Sequence[Json]) -> bytes:
    """The body of a webhook: these bytes are signed, and these bytes are sent."""
    body = {"destination": destination, "events": list(events)}
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def signature(secret: str, body: bytes) -> str:
    """The value of `x-line-signature`."""
    return base64.b64encode(hmac.digest(secret.encode(), body, hashlib.sha256)).decode()


def ulid(at: float, random_number: int) -> str:
    """An id that sorts by time: 48 bits of milliseconds, 80 random bits."""
    number = int(at * 1000) << 80 | random_number & (1 << 80) - 1
    return "".join(_CROCKFORD[number >> 5 * place & 31] for place in range(25, -1, -1))
