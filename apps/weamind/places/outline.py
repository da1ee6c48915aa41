"""Outlines: lines kept as short text, and how a point lies to their edges.

Coordinates are whole steps of a ten-thousandth of a degree, east and north: about ten metres.
A line is text in the way of encoded polylines: the differences from point to point, five bits
to a character, least first.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from math import cos, inf, radians, sqrt
from typing import TypeVar

Point = tuple[int, int]
Ring = Sequence[tuple[float, float]]
"""A closed line: the first point is also the last."""
Edge = tuple[float, float, float, float]
"""From where to where: x, y, x, y."""

_Point = TypeVar("_Point", bound=tuple[float, float])

STEPS = 10_000
"""How many steps a degree has."""
_METRES_NORTH = 111_000 / STEPS


def read_line(text: str) -> list[Point]:
    """The points of a line that `write_line` has written."""
    numbers: list[int] = []
    value = shift = 0
    for byte in text.encode("ascii"):
        value |= (byte - 63 & 31) << shift
        shift += 5
        if byte - 63 < 32:
            numbers.append(~(value >> 1) if value & 1 else value >> 1)
            value = shift = 0
    return list(zip(accumulate(numbers[::2]), accumulate(numbers[1::2]), strict=True))


def write_line(points: Iterable[Point]) -> str:
    """A line as text; `read_line` gives back the same points."""
    x = y = 0
    text: list[str] = []
    for east, north in points:
        text += [_write(east - x), _write(north - y)]
        x, y = east, north
    return "".join(text)


def _write(number: int) -> str:
    value = ~(number << 1) if number < 0 else number << 1
    text = ""
    while value >= 32:
        text += chr((value & 31 | 32) + 63)
        value >>= 5
    return text + chr(value + 63)


def join(lines: Mapping[int, Sequence[_Point]], numbers: Iterable[int]) -> list[_Point]:
    """The ring of the lines with these *numbers*; ~n is line n from its end to its beginning."""
    ring: list[_Point] = []
    for number in numbers:
        line = lines[number] if number >= 0 else lines[~number][::-1]
        ring += line[1:] if ring else line
    return ring


def edges(rings: Iterable[Ring]) -> list[Edge]:
    """The straight pieces of some rings."""
    return [(*a, *b) for ring in rings for a, b in pairwise(ring)]


def holds(edges: Iterable[Edge], x: float, y: float) -> bool:
    """Whether the point lies within: in an odd number of rings, so holes and islands come right.

    Those edges are enough that go past the point's latitude.
    """
    odd = False
    for x1, y1, x2, y2 in edges:
        if (y1 > y) is not (y2 > y) and x < (x2 - x1) * (y - y1) / (y2 - y1) + x1:
            odd = not odd
    return odd


def metres(edges: Iterable[Edge], x: float, y: float) -> float:
    """The distance to the nearest edge, from either side; infinite without edges."""
    narrow = cos(radians(y / STEPS))
    nearest = inf
    for x1, y1, x2, y2 in edges:
        px, py = (x - x1) * narrow, y - y1
        dx, dy = (x2 - x1) * narrow, y2 - y1
        length = dx * dx + dy * dy
        along = max(0.0, min(1.0, (px * dx + py * dy) / length)) if length else 0.0
        nearest = min(nearest, (px - along * dx) ** 2 + (py - along * dy) ** 2)
    return sqrt(nearest) * _METRES_NORTH
