"""What a person chooses, and what there is to choose from, as JSON. Pure: no I/O."""

import json
from typing import Any, NamedTuple

from ..places import atlas
from ..places.place import Place
from ..user.database import Kind, Person
from .problems import Refusal

Json = dict[str, Any]
KINDS: dict[str, Kind] = {"home": "home", "office": "office", "work": "office"}
"""The kinds that a caller may name. The buttons in the chat say office, other programs say work."""


class Choice(NamedTuple):
    """A place, and what it becomes."""

    kind: Kind
    place: Place


def read_choice(body: bytes) -> Choice:
    """The choice in *body*. Refusal: 400, it is not JSON; 422, there is no such kind or place."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        raise Refusal(400, "The body must be JSON.") from None
    if not isinstance(said, dict):
        raise Refusal(422, "The body must be an object with location_type and place.")
    kind, code = said.get("location_type"), said.get("place")
    if not isinstance(kind, str) or kind not in KINDS:
        raise Refusal(422, "location_type: must be home, office or work.")
    place = atlas.by_code(code) if isinstance(code, str) else None
    if place is None:
        raise Refusal(422, "place: must be the code of a township or county of /liff/places.")
    return Choice(KINDS[kind], place)


def show_choice(choice: Choice) -> Json:
    """The JSON of a choice."""
    return {"location_type": choice.kind, "place": _shown(choice.place)}


def show_person(person: Person) -> Json:
    """What a person has chosen so far. A code that is not on the map counts as none."""
    return {"home": _found(person.home), "office": _found(person.office)}


def all_places() -> Json:
    """Every county with its townships, in the order in which they are usually listed."""
    return {
        "counties": [
            {"code": county.code, "name": county.name, "towns": _towns(county)}
            for county in atlas.counties()
        ]
    }


def _towns(county: Place) -> list[Json]:
    return [{"code": each.code, "name": each.town} for each in atlas.towns_of(county.county)]


def _found(code: str | None) -> Json | None:
    place = atlas.by_code(code) if code else None
    return _shown(place) if place else None


def _shown(place: Place) -> Json:
    return {"code": place.code, "name": place.name}
