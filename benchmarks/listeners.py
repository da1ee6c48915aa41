"""What listeners cost: CPU of an acquire + release pair with each, beside one without any.

Fifty tasks, each with its own key, as in the part `hold`. A client with the listener and one
without any take turns in one process, some milliseconds each, and what counts is the CPU time of
that process: the lower quartile of all turns of either. What else the machine does spoils single
turns, and those of both alike, so that the difference is the same from run to run.
"""

from __future__ import annotations

import asyncio
import gc
import time
from dataclasses import asdict, dataclass, field
from statistics import median, quantiles
from typing import Any

from . import measure
from .systems import LISTENING
from .worker import Bench, Broken, Worker

CALLERS = 50
PAIRS = 8
"""By each task in one turn."""
TURNS = 60
"""Of either client in one round."""


@dataclass
class Cell:
    """One listener: for each round the CPU time of a pair without and with it, in µs."""

    system: str
    plain_us: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    broken: str | None = None

    @property
    def more_us(self) -> float:
        """What the listener adds to a pair."""
        return median(mine - none for mine, none in zip(self.cpu_us, self.plain_us, strict=True))

    def measure(self, worker: Worker, turns: int) -> None:
        """One more round."""
        if self.broken is not None:
            return
        try:
            figures = worker.do(f"{__name__}:in_turns", turns=turns)
        except Broken as reason:
            self.broken = str(reason)
        else:
            self.plain_us.append(figures["plain_us"])
            self.cpu_us.append(figures["cpu_us"])


def run(plan: measure.Plan, bench: Bench) -> dict[str, Any]:
    """A figure a round for every listener that is wanted."""
    systems = [system for system in LISTENING if plan.wants(system.label)]
    asked = [(Cell(each.system.name), each) for each in bench.of(systems)]
    for cell, worker in plan.in_rounds(asked):
        cell.measure(worker, 4 if plan.quick else TURNS)
    return {"core": bench.core, "cells": [asdict(cell) for cell, _ in asked]}


def cells_of(result: dict[str, Any]) -> list[Cell]:
    """The cells of a result that may have been through JSON."""
    return [Cell(**cell) for cell in result["cells"]]


# What runs inside a worker.


def in_turns(opener: Any, port: int, *, turns: int) -> dict[str, float]:
    """CPU time of a pair: without a listener (plain_us), and by *opener*, which has one."""
    from .systems.ours import Tasks

    async def both() -> dict[str, float]:
        clients = [await Tasks.open(port, CALLERS), await opener.open(port, CALLERS)]
        try:
            found = await _take_turns(clients, turns)
        finally:
            for client in clients:
                await client.aclose()
        plain, with_listener = (quantiles(each, n=4)[0] for each in found)
        return {"plain_us": plain, "cpu_us": with_listener}

    return asyncio.run(both())


async def _take_turns(clients: list[Any], turns: int) -> list[list[float]]:
    """The figures of each client: a warm-up, then *turns* for each, in changing order."""
    steps = [[each.pair_on(f"bench:{n}") for n in range(CALLERS)] for each in clients]
    found: list[list[float]] = [[] for _ in clients]
    for each in steps:
        await _turn(each)
    gc.collect()
    gc.freeze()
    for number in range(turns):
        for which in (0, 1) if number % 2 else (1, 0):
            found[which].append(await _turn(steps[which]))
    return found


async def _turn(steps: list[Any]) -> float:
    """µs of CPU time for a pair of one turn."""

    async def caller(step: Any) -> None:
        for _ in range(PAIRS):
            await step()

    began = time.process_time()
    await asyncio.gather(*(caller(step) for step in steps))
    return (time.process_time() - began) / (len(steps) * PAIRS) * 1e6
