"""All callers want a value that is not stored: four processes, fifty tasks in each, one cold key.

Counted are the loads, and the commands that the server ran meanwhile, those inside of scripts as
well. Timed is how long after the first caller had the value the last one had it: the way from the
leader to the slowest follower. One of the loads is longer than the leader's lock may last.

Before that, every process reads other keys, some of them together with the other processes, so that
connections are open and scripts loaded. Then the processes are started, one line in each of
their pipes, and their clocks are compared: the monotonic clock is the same for all processes.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

from . import measure, servers
from .systems import STAMPEDE, System
from .values import MENU
from .worker import Bench, Broken, Worker

PROCESSES, TASKS = 4, 50
LOADS, QUICK_LOADS = (0.03, 0.2, 1.0, 4.0), (0.03,)
ROUNDS = 3
WARM = 3
SETTLED = 0.1
"""Seconds after which no request is under way."""


def run(plan: measure.Plan, bench: Bench) -> dict[str, Any]:
    """Loads, commands and the slowest follower, by system and length of the load."""
    systems = {system.name: system for system in STAMPEDE if _labels(plan, system)}
    for name, absence in ((name, system.absence()) for name, system in list(systems.items())):
        if absence is not None:
            bench.absent.append(absence)
            del systems[name]
    rows: dict[str, dict[str, Any]] = {
        label: {"loads": [], "commands": [], "behind_ms": []}
        for label, _ in sorted(
            (each for system in systems.values() for each in _labels(plan, system)),
            key=lambda each: each[1],
        )
    }
    for system in plan.in_rounds(list(systems.values()), rounds=min(plan.rounds, ROUNDS)):
        _ask(plan, bench, system, rows)
    return {"processes": PROCESSES, "tasks": TASKS, "rows": rows}


def label(system: str, seconds: float) -> str:
    """load of 0.2 s, dibs cached"""
    return f"load of {seconds:g} s, {system}"


def _labels(plan: measure.Plan, system: System) -> list[tuple[str, float]]:
    """The rows that are wanted of it, each with the length of its load."""
    lengths = QUICK_LOADS if plan.quick else LOADS
    asked = [(label(system.name, seconds), seconds) for seconds in lengths]
    return [(text, seconds) for text, seconds in asked if plan.wants(text)]


def _ask(plan: measure.Plan, bench: Bench, system: System, rows: dict[str, Any]) -> None:
    """One round of one system, in fresh processes."""
    asked = [(text, s) for text, s in _labels(plan, system) if "broken" not in rows[text]]
    with _processes(bench, system) as workers:
        for text, seconds in asked:
            plan.note(text)
            try:
                found = _storm(bench.server, workers, seconds)
            except Broken as reason:
                rows[text]["broken"] = str(reason)
                return  # what its processes do now is unknown
            for name, figure in found.items():
                rows[text][name].append(figure)


@contextmanager
def _processes(bench: Bench, system: System) -> Iterator[list[Worker]]:
    with ExitStack() as stack:
        workers = [
            stack.enter_context(closing(Worker(system, bench.server.port, bench.core)))
            for _ in range(PROCESSES)
        ]
        for worker in workers:
            worker.ready()
        yield workers


def _storm(server: servers.Server, workers: list[Worker], seconds: float) -> dict[str, float]:
    _all(workers, "gather", shared=f"warm:{uuid.uuid4().hex}")
    before = server.commands()
    found = _all(workers, "load_at_once", name=f"cold:{uuid.uuid4().hex}", seconds=seconds)
    spent = servers.spent(before, server.commands())
    _all(workers, "leave")
    ends = [end for each in found for end in each["ends"]]
    return {
        "loads": sum(each["loads"] for each in found),
        "commands": sum(spent.values()),
        "behind_ms": (max(ends) - min(ends)) * 1e3,
    }


def _all(workers: list[Worker], function: str, **arguments: Any) -> list[Any]:
    """What all of them answer; they do it at the same time."""
    for worker in workers:
        worker.begin(f"{__name__}:{function}", **arguments)
    return [worker.answer() for worker in workers]


# What runs inside a worker.


class Guests:
    """The tasks of one process, who share one client; here from one job to the next."""

    def __init__(self, opener: Any, port: int) -> None:
        self.loads = 0
        self.seconds = 0.0
        self._runner = asyncio.Runner()
        self.client = self._runner.run(opener.open(port, TASKS))
        self.read = self.client.cached(self._load)

    async def _load(self, name: str) -> Any:
        self.loads += 1
        await asyncio.sleep(self.seconds)
        return MENU

    def warm(self, shared: str) -> None:
        """Open every connection and load every script, as a leader and as a follower."""
        self.seconds = 0.05
        self._runner.run(self._together([f"{shared}:{uuid.uuid4().hex}" for _ in range(TASKS)]))
        for number in range(WARM):
            self._runner.run(self._together([f"{shared}:{number}"] * TASKS))

    def load_at_once(self, name: str, seconds: float) -> dict[str, Any]:
        """All callers at once: how often it was loaded, and when each had the value."""
        self.loads, self.seconds = 0, seconds
        return {"ends": self._runner.run(self._together([name] * TASKS)), "loads": self.loads}

    async def _together(self, names: list[str]) -> list[float]:
        ends = await asyncio.gather(*(self._guest(name) for name in names))
        await asyncio.sleep(SETTLED)
        return ends

    async def _guest(self, name: str) -> float:
        if await self.read(name) != MENU:
            raise AssertionError("the cache changed the value")
        return time.perf_counter()

    def leave(self) -> None:
        self._runner.run(self.client.aclose())
        self._runner.close()


_here: list[Guests] = []


def gather(opener: Any, port: int, *, shared: str) -> None:
    _here[:] = [Guests(opener, port)]
    _here[0].warm(shared)


def load_at_once(opener: Any, port: int, *, name: str, seconds: float) -> dict[str, Any]:
    return _here[0].load_at_once(name, seconds)


def leave(opener: Any, port: int) -> None:
    _here.pop().leave()
