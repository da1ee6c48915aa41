"""Input of the chat page, checked: a browser is not trusted."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException

from . import events
from .contents import Content
from .events import Draft
from .lengths import utf16
from .visitors import NAMES, PLACES

_PARAMS = ("date", "time", "datetime")


@dataclass(frozen=True)
class PageInput:
    """Who does something, where and how, and the other fields."""

    person: str
    place: str
    is_standby: bool
    is_redelivered: bool
    facts: dict[str, Any]


def parsed(data: bytes) -> Any:
    """Parse a JSON text. 400: it is not valid."""
    try:
        body = json.loads(data)
        json.dumps(body, ensure_ascii=False).encode()  # half a character cannot be sent on
        return body
    except (ValueError, RecursionError):
        raise HTTPException(400, "The body must be JSON.") from None


def read(body: Any) -> PageInput:
    """Read the input. 400: it is not an object, or a field is not valid."""
    if not isinstance(body, dict):
        raise HTTPException(400, "The body must be a JSON object.")
    place, person = body.get("place", "private"), person_of(body.get("as", "ann"))
    if place not in PLACES:
        raise HTTPException(400, f"place must be one of: {', '.join(PLACES)}.")
    return PageInput(
        person, place, body.get("standby") is True, body.get("redelivery") is True, body
    )


def person_of(value: Any) -> str:
    """The person of that name. 400: it is unknown."""
    if value not in NAMES:
        raise HTTPException(400, f"as must be one of: {', '.join(NAMES)}.")
    return value


def draft(verb: str, given: PageInput, bot: events.Mention) -> Draft:
    """The event for what the person does. 400: the input is not valid. 404: the verb is unknown."""
    if verb == "say":
        return _say(given, bot)
    if verb not in _VERBS:
        raise HTTPException(404, "There is no such verb.")
    return _VERBS[verb](given)


def _say(given: PageInput, bot: events.Mention) -> Draft:
    text = _text(given, "text", most=5000)
    if given.facts.get("mention") is True and bot.words not in text:
        text = f"{bot.words} {text}"
    quoting = _text(given, "quoting", most=40) if "quoting" in given.facts else None
    mentions = [bot] if given.place != "private" and bot.words in text else []
    return events.text(text, mentions=mentions, quoting=quoting)


def _tap(given: PageInput) -> Draft:
    shown = _text(given, "displayText", most=300, least=0) if "displayText" in given.facts else None
    data = _text(given, "data", most=300)
    return events.postback(data, display_text=shown, params=_params(given))


def alias_of(given: PageInput) -> str:
    """The alias of the menu to switch to. 400: it is not valid."""
    return _text(given, "alias", most=32)


def switched(given: PageInput, status: str) -> Draft:
    """The event for a menu switch, and whether it succeeded."""
    params = {"newRichMenuAliasId": alias_of(given), "status": status}
    return events.postback(_text(given, "data", most=300, least=0), params=params)


def _locate(given: PageInput) -> Draft:
    latitude = _number(given, "latitude", 90)
    longitude = _number(given, "longitude", 180)
    named = {
        name: _text(given, name, most=100) for name in ("title", "address") if given.facts.get(name)
    }
    return events.location(latitude, longitude, **named)


def _among_others(make: Callable[[], Draft]) -> Callable[[PageInput], Draft]:
    def draft(given: PageInput) -> Draft:
        if given.place == "private":
            raise HTTPException(400, "place must be a group or a room.")
        return make()

    return draft


_VERBS: dict[str, Callable[[PageInput], Draft]] = {
    "tap": _tap,
    "location": _locate,
    "sticker": lambda given: events.sticker(),
    "image": lambda given: events.image(),
    "join": _among_others(events.join),
    "leave": _among_others(events.leave),
    "unsend": lambda given: events.unsend(_text(given, "id", most=40)),
    "played": lambda given: events.video_played(_text(given, "trackingId", most=100)),
    "beacon": lambda given: events.beacon(),
}


def uploaded(content: Content) -> Draft:
    """The event for an upload: a picture, video, voice message or file, by its media type."""
    kind = content.media_type.partition("/")[0]
    make = {"image": events.image, "video": events.video, "audio": events.audio}.get(kind)
    return make(content) if make is not None else events.file(content)


# ---- parts


def number_of(given: PageInput) -> int:
    """The number of a row of the wire view. 400: it is not a number."""
    value: Any = given.facts.get("number")
    if type(value) is not int:
        raise HTTPException(400, "number must be the number of a row.")
    return value


def _text(given: PageInput, name: str, *, most: int, least: int = 1) -> str:
    value = given.facts.get(name)
    if not isinstance(value, str) or not least <= utf16(value) <= most:
        raise HTTPException(400, f"{name} must be a text of {least} to {most} characters.")
    return value


def _number(given: PageInput, name: str, most: float) -> float:
    value: Any = given.facts.get(name)
    if type(value) not in (int, float) or not -most <= value <= most:
        raise HTTPException(400, f"{name} must be a number from {-most} to {most}.")
    return value


def _params(given: PageInput) -> dict[str, str] | None:
    params = given.facts.get("params")
    if params is None:
        return None
    if not isinstance(params, dict) or not all(
        name in _PARAMS and isinstance(value, str) and len(value) <= 100
        for name, value in params.items()
    ):
        raise HTTPException(400, "params must be what a picker of dates returns.")
    return params
