"""Reading what is in the cache: hits per second, and what one costs the client's CPU.

The value is a menu of about 1 kB of JSON, or something tiny. One caller alone pays for the round
trip; a hundred on their own keys show what a client does with many requests at once; a hundred on
one key show whether it knows that they want the same. A load during these is an error. Fifty that
each read another key every time show what a miss costs. Pinned, as ``hold`` is, and for the same
reason.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import count
from typing import Any

from . import concurrent_callers, measure
from .systems import HITS, TASKS, THREADS, System
from .values import VALUES
from .worker import Bench, Broken, Worker

CALLERS_AND_KEYS = {THREADS: ((1, 1), (8, 8)), TASKS: ((1, 1), (100, 100), (100, 1), (50, 0))}
"""So many callers on so many keys; 0: another key for each read."""

WARM = 3
"""Reads of every key before the clock starts: loaded, found, and remembered where that is done."""


@dataclass
class Cell:
    """One system with so many callers on so many keys: a figure for each round."""

    system: str
    mode: str
    callers: int
    keys: int
    value: str
    rates: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    broken: str | None = None

    @property
    def column(self) -> str:
        return column(self.mode, self.callers, self.keys, self.value)

    @property
    def label(self) -> str:
        return f"{self.column} {self.system}"

    def measure(self, worker: Worker, seconds: float) -> None:
        """One more round. What a system cannot do is kept as its answer, and not asked again."""
        if self.broken is not None:
            return
        how = {"callers": self.callers, "keys": self.keys, "value": self.value, "seconds": seconds}
        try:
            figures = worker.do(f"{__name__}:hits_in_{self.mode}", **how)
        except Broken as reason:
            self.broken = str(reason)
        else:
            self.rates.append(figures["rate"])
            self.cpu_us.append(figures["cpu_us"])


def column(mode: str, callers: int, keys: int, value: str) -> str:
    """asyncio 100 on one key, menu"""
    if keys == 0:
        return f"{mode} {callers}, misses, {value}"
    where = "" if callers == 1 else " on one key" if keys == 1 else f" on {keys} keys"
    return f"{mode} {callers}{where}, {value}"


def run(plan: measure.Plan, bench: Bench) -> dict[str, Any]:
    """A figure a round for every cell that is wanted."""
    systems = [system for system in HITS if _cells(plan, system)]
    asked = [(cell, worker) for worker in bench.of(systems) for cell in _cells(plan, worker.system)]
    for cell, worker in plan.in_rounds(asked, together=lambda pair: pair[0].column):
        cell.measure(worker, plan.seconds)
    return {"core": bench.core, "cells": [asdict(cell) for cell, _ in asked]}


def _cells(plan: measure.Plan, system: System) -> list[Cell]:
    cells = [
        Cell(system.name, system.mode, callers, keys, value)
        for value in VALUES
        for callers, keys in CALLERS_AND_KEYS[system.mode]
    ]
    return [cell for cell in cells if plan.wants(cell.label)]


def cells_of(result: dict[str, Any]) -> list[Cell]:
    """The cells of a result that may have been through JSON."""
    return [Cell(**cell) for cell in result["cells"]]


def find(cells: Sequence[Cell], system: str, column: str) -> Cell | None:
    return next((cell for cell in cells if (cell.system, cell.column) == (system, column)), None)


def ratio(cell: Cell | None, other: Cell | None) -> float | None:
    """How many times as fast; None unless both were measured."""
    return measure.ratio(cell.rates, other.rates) if cell and other else None


# What runs inside a worker.


class ValueLoader:
    """What is behind the cache; once it is closed, nothing is loaded."""

    def __init__(self, value: str) -> None:
        self.value = VALUES[value]
        self._is_closed = False

    def load(self, name: str) -> Any:
        if self._is_closed:
            raise AssertionError(f"{name} was in the cache, and is not found")
        return self.value

    async def load_async(self, name: str) -> Any:
        return self.load(name)

    def close(self, found: list[Any]) -> None:
        """Everything is in the cache, as *found* must show."""
        if found != [self.value] * len(found):
            raise AssertionError(f"the cache changed {self.value!r} to {found[0]!r}")
        self._is_closed = True


def hits_in_threads(
    opener: Any, port: int, *, callers: int, keys: int, value: str, seconds: float
) -> dict[str, float]:
    """Hits by that many threads that share one client."""
    client, loader = opener(port, callers), ValueLoader(value)
    try:
        read, names = client.cached(loader.load), [f"{value}:{number}" for number in range(keys)]
        loader.close([read(name) for _ in range(WARM) for name in names])
        steps = [partial(read, names[number % keys]) for number in range(callers)]
        return concurrent_callers.in_threads(
            [partial(_itself, step) for step in steps], seconds
        ).as_dict()
    finally:
        client.close()


def _itself(step: concurrent_callers.Step) -> concurrent_callers.Step:
    return step


_UNREAD = count()
"""Numbers of keys that this process has not read."""


def _read_new(read: Callable[[str], Awaitable[Any]], prefix: str) -> Awaitable[Any]:
    return read(f"{prefix}:{next(_UNREAD)}")


def hits_in_asyncio(
    opener: Any, port: int, *, callers: int, keys: int, value: str, seconds: float
) -> dict[str, float]:
    """Hits, or misses, by that many tasks that share one client."""

    async def hits() -> dict[str, float]:
        client, loader = await opener.open(port, callers), ValueLoader(value)
        try:
            read = client.cached(loader.load_async)
            names = [f"{value}:{number}" for number in range(keys)]
            if keys:
                loader.close([await read(name) for _ in range(WARM) for name in names])
                steps = [partial(read, names[number % keys]) for number in range(callers)]
            else:
                steps = [partial(_read_new, read, f"{os.getpid()}:{value}")] * callers
            return (await concurrent_callers.in_tasks(steps, seconds)).as_dict()
        finally:
            await client.aclose()

    return asyncio.run(hits())
