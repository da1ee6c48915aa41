"""The map: every county, township and landmark, by code, by county and by coordinates.

It is read from `taiwan.json` at the first query, and the outline of a township at the first point
near it; landmarks are read from `landmarks.txt`. How the files were made, and whose data it is:
`LICENCE.md`.
"""

import json
from collections.abc import Iterator
from functools import cache, cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from .landmarks import FILE, Landmark, read_landmarks
from .outline import STEPS, Edge, edges, holds, join, metres, read_line
from .place import Place

_DATA = Path(__file__).with_name("taiwan.json")
_CELL = STEPS // 10
"""The side of a cell of the index, in steps: about ten kilometres."""
_REACH = 1000
"""How many metres off the drawn coast a beach, a pier or a harbour still belongs to it."""
_REACH_NEAR_FUJIAN = 500
"""The same for Kinmen and Matsu, whose foreign neighbours begin less than two kilometres away."""
_MARGIN = 110
"""`_REACH` in steps, and a little more, in either direction and at every latitude of Taiwan."""
_ROW = _MARGIN
"""How high a row of edges is: what is within reach is in the same row or a neighbouring one."""


class Atlas:
    """What `taiwan.json` says, indexed by code and by cell."""

    def __init__(self, data: dict[str, Any]) -> None:
        counties, towns = data["counties"], data["towns"]
        names = {code: name for code, name, *_ in counties}
        self.counties = tuple(Place(code, name, None, *at) for code, name, _, at in counties)
        self.towns = tuple(
            Place(code, names[code[:5]], name, *at) for code, name, _, at, _, _ in towns
        )
        self.by_code = {place.code: place for place in (*self.counties, *self.towns)}
        self.english = {code: english for code, _, english, *_ in (*counties, *towns)}
        self._outlines = {
            code: _Outline(box, borders, data["lines"]) for code, *_, box, borders in towns
        }
        self._cells: dict[tuple[float, float], list[Place]] = {}
        for town in self.towns:
            for cell in self._outlines[town.code].cells():
                self._cells.setdefault(cell, []).append(town)

    def locate(self, latitude: float, longitude: float) -> Place | None:
        """The township there, or one that is so near that the map may be wrong about the coast."""
        if not (-90 <= latitude <= 90 and -180 <= longitude <= 180):  # so it is with NaN, too
            return None
        x, y = longitude * STEPS, latitude * STEPS
        towns = [
            town
            for town in self._cells.get((x // _CELL, y // _CELL), ())
            if self._outlines[town.code].is_near(x, y)
        ]
        for town in towns:
            if self._outlines[town.code].holds(x, y):
                return town
        return self._ashore(towns, x, y)

    def _ashore(self, towns: list[Place], x: float, y: float) -> Place | None:
        """The nearest of *towns*, if it is within reach."""
        away = {town: self._outlines[town.code].metres(x, y) for town in towns}
        nearest = min(away, key=away.__getitem__, default=None)
        return nearest if nearest and away[nearest] <= _reach(nearest) else None


class _Outline:
    """A township's outline: a box around it at once, its edges when a point comes near."""

    def __init__(self, box: list[int], borders: list[list[int]], lines: list[str]) -> None:
        west, south, east, north = box
        self._west, self._south = west - _MARGIN, south - _MARGIN
        self._east, self._north = east + _MARGIN, north + _MARGIN
        self._borders, self._lines = borders, lines

    def is_near(self, x: float, y: float) -> bool:
        return self._west <= x <= self._east and self._south <= y <= self._north

    def holds(self, x: float, y: float) -> bool:
        return holds(self._rows.get(y // _ROW, ()), x, y)

    def metres(self, x: float, y: float) -> float:
        """How far the edge is, if that is not more than `_REACH`; otherwise more than that."""
        row = y // _ROW
        near = (self._rows.get(number, ()) for number in (row - 1, row, row + 1))
        return metres(chain.from_iterable(near), x, y)

    def cells(self) -> Iterator[tuple[int, int]]:
        for column in range(self._west // _CELL, self._east // _CELL + 1):
            for row in range(self._south // _CELL, self._north // _CELL + 1):
                yield column, row

    @cached_property
    def _rows(self) -> dict[float, list[Edge]]:
        used = {max(number, ~number) for border in self._borders for number in border}
        lines = {number: read_line(self._lines[number]) for number in used}
        rows: dict[float, list[Edge]] = {}
        for edge in edges(join(lines, border) for border in self._borders):
            low, high = sorted((edge[1], edge[3]))
            for row in range(int(low // _ROW), int(high // _ROW) + 1):
                rows.setdefault(row, []).append(edge)
        return rows


def _reach(town: Place) -> float:
    return _REACH_NEAR_FUJIAN if town.code.startswith("09") else _REACH


@cache
def atlas() -> Atlas:
    """The one map of this process, read now if it has not been read before."""
    return Atlas(json.loads(_DATA.read_text("utf-8")))


def counties() -> tuple[Place, ...]:
    """All 22 of them, as they are usually listed: from north to south, then east, then islands."""
    return atlas().counties


def towns_of(county: str) -> tuple[Place, ...]:
    """The townships of a county, by its full name with 臺; none, if there is no such county."""
    return tuple(town for town in atlas().towns if town.county == county)


@cache
def landmarks() -> tuple[Landmark, ...]:
    """All landmarks, as `landmarks.txt` lists them."""
    return tuple(read_landmarks(FILE.read_text("utf-8"), atlas().towns))


@cache
def _landmarks_by_code() -> dict[str, Place]:
    return {each.place.code: each.place for each in landmarks()}


def by_code(code: str) -> Place | None:
    """The township (8 digits) or county (5 digits) with the government's *code*, or the landmark
    with ours."""
    return atlas().by_code.get(code) or _landmarks_by_code().get(code)


def english(place: Place) -> str:
    """The official English name of a township or county: Xinyi District, or Taipei City."""
    return atlas().english[place.code]


def locate(latitude: float, longitude: float) -> Place | None:
    """The township at these coordinates, in degrees; None at sea, abroad, and for no coordinates.

    Up to a kilometre off the coast (half of one at Kinmen and Matsu) it is the nearest one: the
    coast is drawn roughly, and a phone on a pier is not abroad. NaN, infinities and what lies off
    the globe are nowhere. So are the islets that the map leaves out (東沙島, 太平島, 彭佳嶼), which
    are found by name: the weather of the harbour that administers them would be that of a place 50
    to 1600 km away.
    """
    return atlas().locate(latitude, longitude)
