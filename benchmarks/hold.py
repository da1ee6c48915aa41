"""Acquire + release pairs per second, uncontended, and what one pair costs the client's CPU.

Every caller has its own key, so this is the price of the lease itself: two round trips and the
Python around them. Pinned, server and client share one core and the figure is work per pair, the
same from run to run. Unpinned, the scheduler's wake-ups across cores have their say; that table is
closer to a deployment and noisier.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from . import concurrent_callers, measure
from .systems import LADDER, LEASES, TASKS, THREADS, System
from .worker import Bench, Broken, Worker

CALLERS = {THREADS: (1, 8), TASKS: (1, 50, 500)}


@dataclass
class Cell:
    """One system with so many callers: a figure for each round."""

    system: str
    mode: str
    callers: int
    rates: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    broken: str | None = None

    @property
    def column(self) -> str:
        return f"{self.mode} {self.callers}"

    @property
    def label(self) -> str:
        return f"{self.column} {self.system}"

    def measure(self, worker: Worker, seconds: float) -> None:
        """One more round. What a system cannot do is kept as its answer, and not asked again."""
        if self.broken is not None:
            return
        try:
            figures = worker.do(
                f"{__name__}:pairs_in_{self.mode}", callers=self.callers, seconds=seconds
            )
        except Broken as reason:
            self.broken = str(reason)
        else:
            self.rates.append(figures["rate"])
            self.cpu_us.append(figures["cpu_us"])


def run(plan: measure.Plan, bench: Bench, systems: Sequence[System] = LEASES) -> dict[str, Any]:
    """A figure a round for every cell that is wanted."""
    systems = [system for system in systems if _cells(plan, system)]
    asked = [(cell, worker) for worker in bench.of(systems) for cell in _cells(plan, worker.system)]
    for cell, worker in plan.in_rounds(asked, together=lambda pair: pair[0].column):
        cell.measure(worker, plan.seconds)
    return {"core": bench.core, "cells": [asdict(cell) for cell, _ in asked]}


def ladder(plan: measure.Plan, bench: Bench) -> dict[str, Any]:
    """The same for the steps from the floor to dibs."""
    return run(plan, bench, LADDER)


def _cells(plan: measure.Plan, system: System) -> list[Cell]:
    cells = [Cell(system.name, system.mode, callers) for callers in CALLERS[system.mode]]
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


def pairs_in_threads(opener: Any, port: int, *, callers: int, seconds: float) -> dict[str, float]:
    """Pairs by that many threads that share one client."""
    client = opener(port, callers)
    try:
        makers = [partial(client.pair_on, f"bench:{number}") for number in range(callers)]
        return concurrent_callers.in_threads(makers, seconds).as_dict()
    finally:
        client.close()


def pairs_in_asyncio(opener: Any, port: int, *, callers: int, seconds: float) -> dict[str, float]:
    """Pairs by that many tasks that share one client."""

    async def pairs() -> dict[str, float]:
        client = await opener.open(port, callers)
        try:
            steps = [client.pair_on(f"bench:{number}") for number in range(callers)]
            return (await concurrent_callers.in_tasks(steps, seconds)).as_dict()
        finally:
            await client.aclose()

    run = getattr(opener, "run", asyncio.run)
    return run(pairs())
