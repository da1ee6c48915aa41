"""What a permit of `limit=3` costs beside a lease that one may hold.

Every caller has its own key, as in the part `hold`: the price of the lease itself, for the client's
CPU and for the server's, which takes a permit by a script. Pinned, both share one core, and pairs
per second are the sum of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from . import hold, measure
from .systems import LIMITS, TASKS, THREADS, System
from .worker import Bench, Broken, Worker

CALLERS = {THREADS: (1, 8), TASKS: (1, 50)}


@dataclass
class Cell:
    """One system with so many callers: three figures for each round."""

    system: str
    mode: str
    callers: int
    rates: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    server_us: list[float] = field(default_factory=list)
    broken: str | None = None

    @property
    def column(self) -> str:
        return f"{self.mode} {self.callers}"

    def measure(self, bench: Bench, worker: Worker, seconds: float) -> None:
        """One more round."""
        if self.broken is not None:
            return
        before = bench.server.cpu_seconds()
        job = f"{hold.__name__}:pairs_in_{self.mode}"
        try:
            figures = worker.do(job, callers=self.callers, seconds=seconds)
        except Broken as reason:
            self.broken = str(reason)
            return
        self.rates.append(figures["rate"])
        self.cpu_us.append(figures["cpu_us"])
        spent = bench.server.cpu_seconds() - before
        self.server_us.append(spent / (figures["rate"] * seconds) * 1e6)


def run(plan: measure.Plan, bench: Bench) -> dict[str, Any]:
    """Figures of each round, with and without a limit."""
    asked = [
        (cell, worker)
        for worker in bench.of(system for system in LIMITS if plan.wants(system.label))
        for cell in _cells(worker.system)
    ]
    for cell, worker in plan.in_rounds(asked, together=lambda pair: pair[0].column):
        cell.measure(bench, worker, plan.seconds)
    return {"core": bench.core, "cells": [asdict(cell) for cell, _ in asked]}


def _cells(system: System) -> list[Cell]:
    return [Cell(system.name, system.mode, callers) for callers in CALLERS[system.mode]]


def cells_of(result: dict[str, Any]) -> list[Cell]:
    """The cells of a result that may have been through JSON."""
    return [Cell(**cell) for cell in result["cells"]]


def find(cells: Sequence[Cell], system: str, column: str) -> Cell | None:
    return next((cell for cell in cells if (cell.system, cell.column) == (system, column)), None)
