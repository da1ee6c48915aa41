"""What we set out to reach, and whether this run reached it.

The aims are ratios wherever they can be: against redis-py's Lock, valkey-glide and the raw floor,
measured in the same run and pinned. Only a refusal and a hand-off have a figure of their own, far
enough from what a slow machine can spoil.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from . import hold, table
from .measure import Spread
from .systems import DIBS, FLOOR, GLIDE, LOCK

SPEED = (
    ("threads 1", LOCK, 3.0),
    ("threads 8", LOCK, 3.0),
    ("threads 1", FLOOR, 0.5),
    ("threads 8", FLOOR, 0.5),
    ("asyncio 1", LOCK, 3.5),
    ("asyncio 50", LOCK, 12.0),
    ("asyncio 500", LOCK, 14.0),
    ("asyncio 500", GLIDE, 4.0),
)
"""dibs, with so many callers, against whom, at least how many times as fast."""

A_FEW_US = 10.0
HANDOFF_MS = 2.0


@dataclass(frozen=True)
class Aim:
    """A sentence, what was found, and whether that is enough; ``met`` is None if not measured."""

    sentence: str
    found: str = table.NOTHING
    met: bool | None = None

    def __str__(self) -> str:
        verdict = {True: "met", False: "MISSED", None: "not measured"}[self.met]
        return f"  {verdict:<12}  {self.sentence:<64}  {self.found}"


def judged(results: dict[str, Any]) -> list[Aim]:
    """Every aim, judged by whatever parts were run."""
    return [
        *_speed(results.get("pinned")),
        *_refusal(results.get("refusal")),
        *_handoff(results.get("handoff")),
    ]


def _speed(result: dict[str, Any] | None) -> Iterator[Aim]:
    cells = hold.cells_of(result) if result else []
    for column, other, least in SPEED:
        sentence = f"{column}: at least {least:g} × {other}"
        found = hold.ratio(hold.find(cells, DIBS, column), hold.find(cells, other, column))
        yield (
            Aim(sentence)
            if found is None
            else Aim(sentence, f"{table.short(found)} ×", found >= least)
        )


def _refusal(result: dict[str, Any] | None) -> Iterator[Aim]:
    sentence = f"refused by this process: under {A_FEW_US:g} µs, no command"
    for label, row in _ours(result):
        us, commands = Spread(tuple(row["us"])).middle, Spread(tuple(row["commands"])).middle
        found = f"{table.short(us)} µs, {commands:.1f} commands"
        yield Aim(f"{label}, {sentence}", found, us < A_FEW_US and commands == 0)
    if not _ours(result):
        yield Aim(sentence)


def _handoff(result: dict[str, Any] | None) -> Iterator[Aim]:
    sentence = f"hand-off: median at most {HANDOFF_MS:g} ms"
    for label, row in _ours(result):
        ms = Spread(tuple(row["ms"])).middle
        yield Aim(f"{label}, {sentence}", f"{table.short(ms)} ms", ms <= HANDOFF_MS)
    if not _ours(result):
        yield Aim(sentence)


def _ours(result: dict[str, Any] | None) -> list[tuple[str, dict[str, Any]]]:
    rows = result["rows"].items() if result else ()
    return [(label, row) for label, row in rows if DIBS in label and "broken" not in row]
