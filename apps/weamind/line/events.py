"""What LINE tells the bot: webhook bodies, read tolerantly into small facts.

The attributes have the names that LINE's own SDK gives them, so that its event objects fit
wherever these do. LINE adds fields, events and modes whenever it likes: what is not known is left
out, and one event that cannot be read does not affect the others.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, TypeVar

T = TypeVar("T")
LONGEST_ID = 255
_LONGEST_TEXT = 5000


class Malformed(ValueError):
    """Not a webhook body: no JSON, or not an object with a list of events."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where it comes from. In a group or room `user_id` may be missing."""

    type: str = ""
    user_id: str | None = None
    group_id: str | None = None
    room_id: str | None = None


@dataclass(frozen=True, slots=True)
class DeliveryContext:
    """Whether LINE says that it has sent this before. It may be a duplicate without saying so."""

    is_redelivery: bool = False


@dataclass(frozen=True, slots=True)
class Mentionee:
    """A mentioned user, and where in the text, in UTF-16 units."""

    index: int
    length: int
    is_self: bool = False


@dataclass(frozen=True, slots=True)
class Mention:
    """All mentioned users."""

    mentionees: tuple[Mentionee, ...] = ()


@dataclass(frozen=True, slots=True)
class Message:
    """A message of any type: `text` of a text, coordinates of a location."""

    type: str = ""
    text: str | None = None
    latitude: float | None = None
    longitude: float | None = None
    title: str | None = None
    address: str | None = None
    mention: Mention | None = None


@dataclass(frozen=True, slots=True)
class Postback:
    """What was tapped."""

    data: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `message` and `postback`: only where its type has one."""

    type: str = ""
    mode: str = "active"
    timestamp: int | None = None
    source: Source | None = None
    webhook_event_id: str | None = None
    delivery_context: DeliveryContext = field(default_factory=DeliveryContext)
    reply_token: str | None = None
    message: Message | None = None
    postback: Postback | None = None


@dataclass(frozen=True, slots=True)
class Webhook:
    """The events of one call, and how many more could not be read."""

    events: tuple[Event, ...]
    unreadable: int = 0


def parse_webhook(body: bytes) -> Webhook:
    """The events in *body*. Malformed: it is not what LINE sends."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):  # also bytes that are no text, and numbers without end
        raise Malformed("the body is not JSON") from None
    found = document.get("events") if isinstance(document, dict) else None
    if not isinstance(found, list):
        raise Malformed("the body has no list of events")
    events = [parse_event(each) for each in found if isinstance(each, dict)]
    return Webhook(tuple(events), len(found) - len(events))


def parse_event(document: dict[str, Any]) -> Event:
    """Parse an event; missing and malformed fields are None."""
    return Event(
        type=_word(document.get("type")) or "",
        mode=_word(document.get("mode")) or "active",
        timestamp=_whole(document.get("timestamp")),
        source=_part(document.get("source"), _source),
        webhook_event_id=_id(document.get("webhookEventId")),
        delivery_context=_part(document.get("deliveryContext"), _delivery) or DeliveryContext(),
        reply_token=_id(document.get("replyToken")),
        message=_part(document.get("message"), _message),
        postback=_part(document.get("postback"), _postback),
    )


def dump_event(event: Event) -> dict[str, Any]:
    """*event* as LINE would send it: `parse_event` makes the same of it again."""

    def named(name: str) -> str:
        first, *more = name.split("_")
        return first + "".join(map(str.title, more))

    def dumped(value: Any) -> Any:
        if is_dataclass(value):
            parts = ((each.name, getattr(value, each.name)) for each in fields(value))
            return {named(name): dumped(part) for name, part in parts if part is not None}
        return [dumped(each) for each in value] if isinstance(value, tuple) else value

    return dumped(event)


# ---- the parts of an event


def _source(document: dict[str, Any]) -> Source:
    return Source(
        type=_word(document.get("type")) or "",
        user_id=_id(document.get("userId")),
        group_id=_id(document.get("groupId")),
        room_id=_id(document.get("roomId")),
    )


def _delivery(document: dict[str, Any]) -> DeliveryContext:
    return DeliveryContext(document.get("isRedelivery") is True)


def _message(document: dict[str, Any]) -> Message:
    return Message(
        type=_word(document.get("type")) or "",
        text=_text(document.get("text")),
        latitude=_number(document.get("latitude")),
        longitude=_number(document.get("longitude")),
        title=_text(document.get("title")),
        address=_text(document.get("address")),
        mention=_part(document.get("mention"), _mention),
    )


def _mention(document: dict[str, Any]) -> Mention:
    found = document.get("mentionees")
    listed = found if isinstance(found, list) else []
    return Mention(tuple(one for each in listed if (one := _part(each, _mentionee))))


def _mentionee(document: dict[str, Any]) -> Mentionee | None:
    index, length = _whole(document.get("index")), _whole(document.get("length"))
    if index is None or length is None:
        return None
    return Mentionee(index, length, document.get("isSelf") is True)


def _postback(document: dict[str, Any]) -> Postback:
    return Postback(_text(document.get("data")) or "")


# ---- values


def _part(value: object, parse: Callable[[dict[str, Any]], T]) -> T | None:
    return parse(value) if isinstance(value, dict) else None


def _word(value: object) -> str | None:
    """A name that LINE chose, such as a type."""
    return value if isinstance(value, str) and len(value) <= 64 else None


def _id(value: object) -> str | None:
    """Something that can be a key: not too long, and nothing in it that a database refuses."""
    if isinstance(value, str) and 0 < len(value) <= LONGEST_ID and value.isprintable():
        return value
    return None


def _text(value: object) -> str | None:
    """The text of a message, without half surrogate pairs and without NUL."""
    if not isinstance(value, str):
        return None
    whole = value[:_LONGEST_TEXT].encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return whole.replace("\0", "")


def _whole(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < 2**63 else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
