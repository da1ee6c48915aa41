"""The bars: which table of which page, and how it is shown."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .bars import Bar, Group, draw_bars
from .svg import Drawing

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "docs" / "benchmarks.md"
RIVALS = ROOT / "benchmarks" / "results" / "rivals.json"
NUMBER = re.compile(r"\d+(?:\.\d+)?")


def rows_of(page: Path, heading: str) -> Iterator[list[str]]:
    """Yield the cells of a table's rows; *heading* begins its first line."""
    lines = iter(page.read_text("utf-8").splitlines())
    for line in lines:
        if line.startswith(f"| {heading}"):
            break
    else:
        raise ValueError(f"{page.name} has no table {heading!r}")
    next(lines)
    for line in lines:
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in line.strip("|").split("|")]


def numbers(cell: str) -> list[float]:
    """Return the numbers of a cell."""
    return [float(found) for found in NUMBER.findall(cell.replace("\N{NO-BREAK SPACE}", ""))]


def draw_lock() -> Drawing:
    """Draw what a pair costs the client: dibs, redis-py's Lock, and a bare socket as the floor."""
    groups: list[Group] = []
    for label, ours, theirs, floor in rows_of(BENCHMARKS, "client CPU of a pair, µs"):
        dibs, lock, socket = (numbers(cell)[0] for cell in (ours, theirs, floor))
        bars = [
            Bar(dibs, "ours", f"{dibs:g} µs"),
            Bar(lock, "theirs", f"{lock:g} µs: {lock / dibs:.1f} ×"),
        ]
        groups.append(Group(label.split(";")[0], bars, socket))
    return draw_bars(
        "CPU of the client for acquire and release",
        groups,
        [("ours", "dibs"), ("theirs", "redis-py's Lock"), ("floor", "a bare socket")],
    )


def draw_guard() -> Drawing:
    """Draw what a guard adds to a request, one at a time and fifty at once."""
    groups: list[Group] = []
    for label, cost, _ in rows_of(BENCHMARKS, "guard |"):
        alone, together = numbers(cost)[0], numbers(cost)[1]
        kind = "ours" if label.startswith("dibs") else "theirs"
        name = label.split(" (")[0].replace("asgi-idempotency-header", "asgi-idempotency-h.")
        bars = [Bar(alone, kind, f"{alone:g} µs"), Bar(together, "other", f"{together:g} µs")]
        groups.append(Group(name, bars))
    return draw_bars(
        "What a guard adds to a request",
        groups,
        [("ours", "dibs"), ("theirs", "others, one at a time"), ("other", "50 at once")],
    )


def draw_outage() -> Drawing:
    """Draw how long the second call takes while Redis hangs."""
    results: dict[str, Any] = json.loads(RIVALS.read_text("utf-8"))
    found: dict[str, float] = {}
    silent: set[str] = set()
    for name, cells in results["cells"].items():
        if "outage" in cells and " " not in name and "second" in cells["outage"]:
            found[name] = cells["outage"]["second"]["took"]
            if cells["outage"]["second"]["outcome"] == "no answer":
                silent.add(name)
    ordered = sorted(found, key=lambda name: (found[name], name))
    groups = [
        Group(
            name,
            [
                Bar(
                    found[name],
                    "ours" if name == "dibs" else "theirs",
                    "no answer" if name in silent else _time(found[name]),
                )
            ],
        )
        for name in ordered
    ]
    return draw_bars(
        "Redis hangs: how long the second call takes",
        groups,
        [("ours", "dibs"), ("theirs", "others, each at its defaults")],
        logarithmic=0.0001,
        note="Each line is ten times as long as the one before it. No answer: none in 70 s.",
    )


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds >= 0.95 else f"{seconds * 1000:.1f} ms"


BARS: dict[str, Callable[[], Drawing]] = {
    "bars-lock": draw_lock,
    "bars-guard": draw_guard,
    "bars-outage": draw_outage,
}
