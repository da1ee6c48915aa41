"""Bars, from the tables of a page: the picture cannot say anything else than the text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log10

from .svg import Drawing, width_of

WIDTH = 760
LABELS = 190
END = 96
"""Behind the longest bar, for its figure."""


@dataclass(frozen=True)
class Bar:
    """One bar: how long, in which colour, and what stands at its end."""

    value: float
    kind: str
    words: str


@dataclass(frozen=True)
class Group:
    """Bars with one label, and a floor that none of them can go below."""

    label: str
    bars: Sequence[Bar]
    floor: float | None = None


def draw_bars(
    title: str,
    groups: Sequence[Group],
    legend: Sequence[tuple[str, str]],
    *,
    logarithmic: float | None = None,
    note: str = "",
) -> Drawing:
    """Draw groups of horizontal bars. *logarithmic*: the value at which its axis begins."""
    gap = 16 if any(len(group.bars) > 1 for group in groups) else 8
    heights = [len(group.bars) * 17 + gap for group in groups]
    axis = 0 if logarithmic is None else 16
    drawing = Drawing(WIDTH, 78 + sum(heights) + axis + (22 if note else 0), title)
    drawing.text(20, 30, title, size=16, bold=True)
    _draw_legend(drawing, legend, any(group.floor is not None for group in groups))
    longest = max(bar.value for group in groups for bar in group.bars)
    room = WIDTH - LABELS - END

    def at(value: float) -> float:
        if logarithmic is None:
            return LABELS + room * value / longest
        share = log10(max(value, logarithmic) / logarithmic) / log10(longest / logarithmic)
        return LABELS + room * share

    if logarithmic is not None:
        _draw_decades(drawing, logarithmic, longest, at, 70 + sum(heights))
    top = 70.0
    for group, height in zip(groups, heights, strict=True):
        _draw_group(drawing, group, top, at)
        top += height
    if note:
        drawing.text(20, top + axis + 14, note, "soft", size=12)
    return drawing


def _draw_decades(
    drawing: Drawing, first: float, last: float, at: Callable[[float], float], bottom: float
) -> None:
    """Draw a line and its seconds at each power of ten."""
    value = first
    while value <= last:
        drawing.line(at(value), 62, at(value), bottom, "grid")
        words = f"{value:g} s" if value >= 1 else f"{value * 1000:g} ms"
        drawing.text(at(value), bottom + 12, words, "soft", size=11, anchor="middle")
        value *= 10


def _draw_legend(drawing: Drawing, legend: Sequence[tuple[str, str]], floor: bool) -> None:  # noqa: FBT001
    x = 20.0
    for kind, words in legend:
        if kind == "floor":
            drawing.line(x + 5, 42, x + 5, 56, "ink")
        else:
            drawing.rect(x, 44, 11, 11, kind)
        drawing.text(x + 17, 54, words, "soft", size=12)
        x += 36 + width_of(words, 12)
    assert floor == any(kind == "floor" for kind, _ in legend)


def _draw_group(drawing: Drawing, group: Group, top: float, at: Callable[[float], float]) -> None:
    middle = top + len(group.bars) * 17 / 2 + 4
    drawing.text(LABELS - 12, middle, group.label, size=13, anchor="end")
    for number, bar in enumerate(group.bars):
        y = top + number * 17
        end = at(bar.value)
        drawing.rect(LABELS, y, end - LABELS, 13, bar.kind)
        drawing.text(max(end, LABELS) + 6, y + 11, bar.words, size=12)
    if group.floor is not None:
        x = at(group.floor)
        drawing.line(x, top - 3, x, top + len(group.bars) * 17 - 1, "ink")
