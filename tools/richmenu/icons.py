"""The six icons, drawn by hand in a square of 100 by 100."""

from collections.abc import Callable
from itertools import pairwise
from math import acos, cos, hypot, sin, tau

from PIL import Image, ImageDraw

Point = tuple[float, float]


class Pen:
    """Draws on a mask; coordinates go from 0 to 100, to the right and down."""

    def __init__(self, size: int) -> None:
        self.mask = Image.new("L", (size, size))
        self._draw = ImageDraw.Draw(self.mask)
        self._unit = size / 100

    def disc(self, x: float, y: float, radius: float, *, ink: bool = True) -> None:
        """A filled circle; without *ink*, a hole, here as everywhere."""
        box = self._scaled((x - radius, y - radius), (x + radius, y + radius))
        self._draw.ellipse(box, fill=_shade(ink=ink))

    def box(self, start: Point, end: Point, radius: float, *, ink: bool = True) -> None:
        """A filled rectangle with round corners."""
        self._draw.rounded_rectangle(
            self._scaled(start, end), radius * self._unit, fill=_shade(ink=ink)
        )

    def shape(self, *points: Point, radius: float = 0.0, ink: bool = True) -> None:
        """A filled polygon, wider by *radius*, which also rounds its corners."""
        self._draw.polygon(self._scaled(*points), fill=_shade(ink=ink))
        if radius:
            self.line(*points, points[0], width=2 * radius, ink=ink)

    def line(self, *points: Point, width: float, ink: bool = True) -> None:
        """A line with round ends and corners."""
        # Not Pillow's own line: its sides are off by some pixels, which shows beside round ends.
        for start, end in pairwise(points):
            self._draw.polygon(self._scaled(*_sides(start, end, width / 2)), fill=_shade(ink=ink))
        for x, y in points:
            self.disc(x, y, width / 2, ink=ink)

    def _scaled(self, *points: Point) -> list[Point]:
        return [(x * self._unit, y * self._unit) for x, y in points]


def _shade(*, ink: bool) -> int:
    return 255 if ink else 0


def _sides(start: Point, end: Point, half: float) -> tuple[Point, ...]:
    """The corners of a straight bar."""
    (x, y), (right, down) = start, (end[0] - start[0], end[1] - start[1])
    scale = half / hypot(right, down)
    across, along = -down * scale, right * scale
    return (
        (x + across, y + along),
        (end[0] + across, end[1] + along),
        (end[0] - across, end[1] - along),
        (x - across, y - along),
    )


def _house(pen: Pen) -> None:
    pen.box((70, 14), (81, 40), 3)
    pen.shape((50, 13), (91, 48), (9, 48), radius=5)
    pen.box((18, 44), (82, 92), 8)
    pen.box((40, 61), (60, 120), 6, ink=False)


def _office(pen: Pen) -> None:
    pen.box((12, 8), (60, 92), 7)
    pen.box((65, 40), (89, 92), 6)
    for y in (20, 36, 52):
        for x in (23, 40):
            pen.box((x, y), (x + 9, y + 9), 2, ink=False)
    for y in (52, 68):
        pen.box((73, y), (81, y + 9), 2, ink=False)
    pen.box((29, 71), (43, 120), 3, ink=False)


def _clock(pen: Pen) -> None:
    pen.disc(50, 50, 43)
    pen.line((50, 25), (50, 52), (67, 62), width=8.5, ink=False)


def _gear(pen: Pen) -> None:
    teeth = 8
    for tooth in range(teeth):
        middle = tau * tooth / teeth
        corners = ((34, 0.29), (43.5, 0.155), (43.5, -0.155), (34, -0.29))
        pen.shape(*(_around(middle + turn, far) for far, turn in corners), radius=2.5)
    pen.disc(50, 50, 36)
    pen.disc(50, 50, 15, ink=False)


def _around(angle: float, far: float) -> Point:
    """So *far* from the middle, at *angle*."""
    return 50 + far * sin(angle), 50 - far * cos(angle)


def _pin(pen: Pen) -> None:
    x, y, radius, tip, round_by = 50, 38, 28, 89, 5
    turn = acos(radius / (tip - y))  # where a line from the tip touches the circle
    right, down = radius * sin(turn), radius * cos(turn)
    pen.disc(x, y, radius + round_by)
    pen.shape((x - right, y + down), (x + right, y + down), (x, tip), radius=round_by)
    pen.disc(x, y, 13, ink=False)


def _dots(pen: Pen) -> None:
    for x in (18, 50, 82):
        pen.disc(x, 50, 11.5)


ICONS: dict[str, Callable[[Pen], None]] = {
    "house": _house,
    "office": _office,
    "clock": _clock,
    "gear": _gear,
    "pin": _pin,
    "dots": _dots,
}
