"""Who did what when: a lane for each, drawn from the times of a real run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict

from .svg import Drawing, width_of

WIDTH = 760
LABELS = 148
RIGHT = 24
LANE = 58


class Span(TypedDict):
    """Something that lasts."""

    lane: int
    start: float
    end: float
    kind: str
    words: str


class Mark(TypedDict):
    """Something that happens."""

    lane: int
    at: float
    kind: str
    words: str


class Run(TypedDict):
    """What was recorded: seconds since the first call."""

    title: str
    lanes: list[str]
    spans: list[Span]
    marks: list[Mark]


KINDS = {"works": "ours", "waits": "wait", "stopped": "other", "kept": "grid", "late": "theirs"}
"""The colour of a span."""
MARKS = {"answer": "good", "refused": "bad", "killed": "bad", "asks": "ink"}


def draw_timeline(run: Run) -> Drawing:
    """Draw the lanes of a run, and the seconds below them."""
    ends = [span["end"] for span in run["spans"]] + [mark["at"] for mark in run["marks"]]
    last = max(ends)
    height = 56 + LANE * len(run["lanes"]) + 30
    drawing = Drawing(WIDTH, height, run["title"])
    drawing.text(20, 30, run["title"], size=16, bold=True)
    room = WIDTH - LABELS - RIGHT

    def at(seconds: float) -> float:
        return LABELS + room * seconds / (last * 1.02)

    _draw_scale(drawing, last, at, height)
    for number, name in enumerate(run["lanes"]):
        y = _top(number)
        drawing.text(LABELS - 12, y + 28, name, size=13, anchor="end", bold=True)
    for span in run["spans"]:
        y = _top(span["lane"])
        x, end = at(span["start"]), at(span["end"])
        drawing.rect(x, y + 16, end - x, 16, KINDS[span["kind"]])
        _write(drawing, x, y + 12, span["words"], "ink")
    for mark in run["marks"]:
        y = _top(mark["lane"])
        x = at(mark["at"])
        kind = MARKS[mark["kind"]]
        if mark["kind"] == "killed":
            drawing.cross(x, y + 24, kind)
        else:
            drawing.dot(x, y + 24, kind)
        _write(drawing, x, y + (12 if mark["kind"] == "refused" else 46), mark["words"], kind)
    return drawing


def _top(lane: int) -> float:
    return 46 + lane * LANE


def _write(drawing: Drawing, x: float, y: float, words: str, kind: str) -> None:
    """Write to the right of *x*, or to its left where the picture ends."""
    if x + width_of(words, 12) > WIDTH - 8:
        drawing.text(min(x + 6, WIDTH - 10), y, words, kind, size=12, anchor="end")
    else:
        drawing.text(x, y, words, kind, size=12)


def _draw_scale(drawing: Drawing, last: float, at: Callable[[float], float], height: float) -> None:
    step = next(step for step in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20) if last / step <= 9)
    for number in range(int(last / step) + 1):
        x = at(number * step)
        drawing.line(x, 50, x, height - 26, "grid")
        drawing.text(x, height - 10, f"{number * step:g} s", "soft", size=11, anchor="middle")
