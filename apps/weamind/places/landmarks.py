"""Landmarks: what `landmarks.txt` says about peaks, lakes, islands, campuses, stations, sights."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from .place import Place

FILE = Path(__file__).with_name("landmarks.txt")
_OFF_THE_MAP = "off the map"
_ALSO_A_TOWNSHIP, _BY_ITSELF = "~", "="


@dataclass(frozen=True, slots=True)
class Landmark:
    """A landmark and its names, the first of which people read."""

    place: Place
    names: tuple[str, ...]
    shared: frozenset[str] = frozenset()
    """Those of the names that a township has, too."""
    by_itself: frozenset[str] = frozenset()
    """Those that are ordinary words within a longer text."""


def read_landmarks(text: str, towns: Iterable[Place]) -> Iterator[Landmark]:
    """The landmarks in *text*. ValueError: a line that cannot be read, or names no township."""
    by_name = {town.name: town for town in towns}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            try:
                yield _landmark([field.strip() for field in line.split("|")], by_name)
            except (ValueError, KeyError):
                raise ValueError(f"{FILE.name}, line {number}: {line}") from None


def _landmark(fields: list[str], towns: dict[str, Place]) -> Landmark:
    code, name, also, area, at, elevation, *more = fields
    town, (latitude, longitude) = towns[area], map(float, at.split())
    if more not in ([], [_OFF_THE_MAP]):
        raise ValueError(more)
    marked = [each.strip() for each in (name, *also.split(",")) if each.strip()]
    names = tuple(each.lstrip(_ALSO_A_TOWNSHIP + _BY_ITSELF) for each in marked)
    place = Place(
        code, town.county, town.town, latitude, longitude,
        landmark=names[0], elevation=int(elevation), town_code="" if more else town.code,
    )  # fmt: skip
    return Landmark(place, names, _with(_ALSO_A_TOWNSHIP, marked), _with(_BY_ITSELF, marked))


def _with(mark: str, marked: list[str]) -> frozenset[str]:
    return frozenset(each[1:] for each in marked if each.startswith(mark))
