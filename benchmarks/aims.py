"""What we set out to reach, and whether this run reached it.

The aims are ratios wherever they can be: against redis-py's Lock, valkey-glide and the raw floor,
measured in the same run and pinned. Only a refusal, a hand-off, a hit in memory and a follower have
an absolute figure, far enough from what a slow machine can spoil.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from . import hits, hold, measure, stampede, table
from .measure import Spread
from .systems import (
    BARE,
    CACHED,
    CACHED_LOCAL,
    CASHEWS,
    CASHEWS_LOCAL,
    DIBS,
    FLOOR,
    GLIDE,
    IDEMKIT,
    LOCK,
    RELEASE,
    RENEWED,
    REPLAY,
    TASKS,
)

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

HITS = (
    ("asyncio 1, menu", CACHED, CASHEWS, 4.0),
    ("asyncio 100 on 100 keys, menu", CACHED, CASHEWS, 5.0),
    ("asyncio 100 on one key, menu", CACHED, CASHEWS, 2.0),
    ("asyncio 1, menu", CACHED_LOCAL, CASHEWS_LOCAL, 3.0),
)
"""With so many callers on so many keys: who, against whom, at least how many times as fast."""

MISSES = ("asyncio 50, misses, menu", CACHED, CASHEWS, 1.3)
"""The same by the CPU time of the client: cashews without a lock asks the server for less."""

RENEWAL = 1.25
"""CPU time of a lease that could be renewed and ends at once, against a plain one, at most."""

A_FEW_US = 10.0
HANDOFF_MS = 2.0
LOCAL_HITS = 300_000
COMMANDS = 40
FOLLOWER_MS = 20.0
TRIPS = 2


@dataclass(frozen=True)
class Aim:
    """A sentence, what was found, and whether that is enough; ``met`` is None if not measured."""

    sentence: str
    found: str = table.NOTHING
    met: bool | None = None

    def __str__(self) -> str:
        verdict = {True: "met", False: "MISSED", None: "not measured"}[self.met]
        return f"  {verdict:<12}  {self.sentence:<78}  {self.found}"


def judged(results: dict[str, Any]) -> list[Aim]:
    """Every aim, judged by the parts that were run."""
    return [
        *_speed(results.get("pinned")),
        *_renewal(results.get("pinned")),
        *_refusal(results.get("refusal")),
        *_handoff(results.get("handoff")),
        *_hits(results.get("hits")),
        *_misses(results.get("hits")),
        *_local_hits(results.get("hits")),
        *_stampede(results.get("stampede")),
        *_guard(results.get("guard")),
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


def _renewal(result: dict[str, Any] | None) -> Iterator[Aim]:
    cells = hold.cells_of(result) if result else []
    for callers in hold.CALLERS[TASKS]:
        column = f"{TASKS} {callers}"
        sentence = f"{column}: {RENEWED} takes at most {RENEWAL:g} × the CPU of {DIBS}"
        renewed, plain = (hold.find(cells, name, column) for name in (RENEWED, DIBS))
        found = measure.ratio(renewed.cpu_us, plain.cpu_us) if renewed and plain else None
        yield (
            Aim(sentence)
            if found is None
            else Aim(sentence, f"{table.short(found)} ×", found <= RENEWAL)
        )


def _misses(result: dict[str, Any] | None) -> Iterator[Aim]:
    cells = hits.cells_of(result) if result else []
    column, ours, other, least = MISSES
    sentence = f"{column}: {other} takes at least {least:g} × the CPU of {ours}"
    theirs, mine = (hits.find(cells, name, column) for name in (other, ours))
    found = measure.ratio(theirs.cpu_us, mine.cpu_us) if theirs and mine else None
    yield (
        Aim(sentence) if found is None else Aim(sentence, f"{table.short(found)} ×", found >= least)
    )


def _hits(result: dict[str, Any] | None) -> Iterator[Aim]:
    cells = hits.cells_of(result) if result else []
    for column, ours, other, least in HITS:
        sentence = f"{column}: {ours} at least {least:g} × {other}"
        found = hits.ratio(hits.find(cells, ours, column), hits.find(cells, other, column))
        yield (
            Aim(sentence)
            if found is None
            else Aim(sentence, f"{table.short(found)} ×", found >= least)
        )


def _local_hits(result: dict[str, Any] | None) -> Iterator[Aim]:
    column = "asyncio 1, menu"
    sentence = f"{column}: {CACHED_LOCAL} at least {table.whole(LOCAL_HITS)} hits/s"
    cell = hits.find(hits.cells_of(result) if result else [], CACHED_LOCAL, column)
    rate = Spread.of(cell.rates) if cell else None
    if rate is None:
        yield Aim(sentence)
    else:
        yield Aim(sentence, f"{table.whole(rate.middle)} hits/s", rate.middle >= LOCAL_HITS)


def _stampede(result: dict[str, Any] | None) -> Iterator[Aim]:
    """Counts must be right in every round; the time is the median, as every other time is."""
    sentence = f"1 load, at most {COMMANDS} commands, last {FOLLOWER_MS:g} ms behind first"
    rows = result["rows"] if result else {}
    for seconds in stampede.LOADS:
        row = rows.get(label := stampede.label(CACHED, seconds), {"broken": None})
        if "broken" in row:
            yield Aim(f"{label}: {sentence}")
            continue
        loads, commands, ms = max(row["loads"]), max(row["commands"]), row["behind_ms"]
        middle = Spread(tuple(ms)).middle
        met = set(row["loads"]) == {1} and commands <= COMMANDS and middle <= FOLLOWER_MS
        found = f"{loads:g} loads, {commands:g} commands, {table.short(middle)} ms"
        yield Aim(f"{label}: {sentence}", found, met)


def _guard(result: dict[str, Any] | None) -> Iterator[Aim]:
    """What the guard adds to a request, less than what idemkit adds; and its round trips."""
    rows = {name: row for name, row in (result or {"rows": {}})["rows"].items() if "new" in row}
    for name in (REPLAY, RELEASE):
        sentence = f"{name}: adds less than {IDEMKIT}, in at most {TRIPS} round trips"
        if not {name, IDEMKIT, BARE} <= rows.keys() or not rows[name]["new"]:
            yield Aim(sentence)
            continue
        floor = Spread(tuple(rows[BARE]["new"])).middle
        ours, theirs = (Spread(tuple(rows[who]["new"])).middle - floor for who in (name, IDEMKIT))
        trips = Spread(tuple(rows[name]["trips"])).middle
        found = f"{table.short(ours)} µs against {table.short(theirs)}, {trips:.1f} trips"
        yield Aim(sentence, found, ours < theirs and trips <= TRIPS + 0.1)


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
