"""The letters of the labels, as outlines: no font has to be on the machine.

`glyphs.json` was made by `tools/make_glyphs.py`; whose letters they are: `LICENCE.md`.
"""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

EM = 1000
"""Units of an em."""
_DATA = Path(__file__).with_name("glyphs.json")
_STEPS = 12
"""Into how many straight pieces a curve is cut: at 120 pixels an em, each is about one pixel."""
_COMMAND = re.compile(r"([MLHVCZ])([-0-9. ,]*)")
_NUMBER = re.compile(r"-?[0-9.]+")

Point = tuple[float, float]
Contour = list[Point]


class Glyph(NamedTuple):
    """A letter: how far it goes, and its outline. What is inside two contours is outside."""

    advance: float
    contours: list[Contour]


@cache
def glyphs() -> dict[str, Glyph]:
    """All letters that there are."""
    data = json.loads(_DATA.read_text("utf-8"))
    return {
        character: Glyph(each["advance"], contours(each["path"]))
        for character, each in data.items()
    }


def contours(path: str) -> list[Contour]:
    """The closed lines of an SVG path. ValueError: it has a command that our paths do not have."""
    if _COMMAND.sub("", path).strip():
        raise ValueError("a path may have M, L, H, V, C and Z")
    found: list[Contour] = []
    for command, text in _COMMAND.findall(path):
        numbers = [float(number) for number in _NUMBER.findall(text)]
        if command == "M":
            found.append([])
        found[-1].extend(_points(command, numbers, found[-1][-1] if found[-1] else (0, 0)))
    return found


def _points(command: str, numbers: list[float], at: Point) -> Iterator[Point]:
    """Where the line goes from *at*."""
    if command == "H":
        yield from ((x, at[1]) for x in numbers)
    elif command == "V":
        yield from ((at[0], y) for y in numbers)
    elif command == "C":
        pairs = _pairs(numbers)
        for first, second, end in zip(pairs[::3], pairs[1::3], pairs[2::3], strict=True):
            yield from _curve(at, first, second, end)
            at = end
    else:
        yield from _pairs(numbers)


def _pairs(numbers: list[float]) -> list[Point]:
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def _curve(start: Point, first: Point, second: Point, end: Point) -> Iterator[Point]:
    for step in range(1, _STEPS + 1):
        t = step / _STEPS
        weights = ((1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3)
        points = (start, first, second, end)
        yield (
            sum(weight * point[0] for weight, point in zip(weights, points, strict=True)),
            sum(weight * point[1] for weight, point in zip(weights, points, strict=True)),
        )
