"""The Flex pad: a JSON text as LINE would read it, and in which line it is wrong."""

import json
import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from .findings import Path
from .messages import check_messages, mistakes_in
from .refusals import Refusal

Json = dict[str, Any]
_CONTAINERS = ("bubble", "carousel")
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


class Place(NamedTuple):
    """A position in a text; line and column count from 1."""

    line: int
    column: int


class Mistake(NamedTuple):
    """An error, in LINE's words, and where in the text."""

    place: Place
    property: str
    message: str

    def json(self) -> Json:
        """The JSON for the page."""
        return self.place._asdict() | {"property": self.property, "message": self.message}


@dataclass(frozen=True)
class Look:
    """What LINE would say about a text."""

    messages: list[Json]
    """The messages that can be sent; none, if there is an error."""
    refusal: str = ""
    """The message of LINE's refusal; empty: it accepts them."""
    mistakes: tuple[Mistake, ...] = ()

    def json(self) -> Json:
        """The JSON for the page."""
        mistakes = [mistake.json() for mistake in self.mistakes]
        return {"messages": self.messages, "refusal": self.refusal, "mistakes": mistakes}


def look(text: str) -> Look:
    """Check a Flex container, a message, a list of messages, or the body of a request with them."""
    try:
        value = json.loads(text, parse_constant=_refuse)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()  # no half characters
    except json.JSONDecodeError as error:
        return _unreadable(Place(error.lineno, error.colno), error.msg)
    except (ValueError, RecursionError) as error:
        return _unreadable(Place(1, 1), str(error))
    messages, before = _messages(value)
    try:
        check_messages({"messages": messages})
    except Refusal as refusal:
        places = positions(text)
        mistakes = tuple(
            Mistake(_nearest(places, _in_text(path, before)), detail.property, detail.message)
            for path, detail in mistakes_in(messages)
        )
        return Look([], refusal.message, mistakes)
    return Look(messages)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _unreadable(place: Place, why: str) -> Look:
    where = f"(line: {place.line}, column: {place.column})"
    sentence = f"The request body could not be parsed as JSON {where}"
    return Look([], sentence, (Mistake(place, "", why),))


def _messages(value: Any) -> tuple[Any, Path]:
    """The messages in *value*, and the path of *value* in a request."""
    if isinstance(value, list):
        return value, ("messages",)
    if not isinstance(value, dict):
        return [value], ("messages", 0)
    if "messages" in value:
        return value["messages"], ()
    if value.get("type") in _CONTAINERS:
        flex = {"type": "flex", "altText": "Flex", "contents": value}
        return [flex], ("messages", 0, "contents")
    return [value], ("messages", 0)


def _in_text(path: Path, before: Path) -> Path:
    return path[len(before) :] if path[: len(before)] == before else ()


def _nearest(places: dict[Path, Place], path: Path) -> Place:
    """A missing field is reported at its parent."""
    while path and path not in places:
        path = path[:-1]
    return places.get(path, Place(1, 1))


def positions(text: str) -> dict[Path, Place]:
    """Where each value of a JSON text begins; a named one, at its name."""
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    found: dict[Path, Place] = {}
    steps: list[str | int | None] = []  # of an object whose next name was not read yet: None
    for token in _TOKEN.finditer(text):
        line = bisect_right(starts, token.start())
        place = Place(line, token.start() - starts[line - 1] + 1)
        _read(token.group(), place, steps, found)
    return found


def _read(
    token: str, place: Place, steps: list[str | int | None], found: dict[Path, Place]
) -> None:
    if token in ("}", "]"):
        steps.pop()
    elif token == ",":
        steps[-1] = steps[-1] + 1 if isinstance(steps[-1], int) else None
    elif steps and steps[-1] is None:
        steps[-1] = json.loads(token)
        found[_path(steps)] = place
    elif token != ":":
        found.setdefault(_path(steps), place)
        steps += {"{": [None], "[": [0]}.get(token, [])


def _path(steps: list[str | int | None]) -> Path:
    return tuple(step for step in steps if step is not None)
