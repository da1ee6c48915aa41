"""A hundred values in one call, ten of them cold: what it costs the client, and who is asked.

The values are menus of about 1 kB of JSON. Ninety are in the cache, ten have never been asked for;
the load takes no time. Beside the CPU time and the wall time of a call stand the calls of the
loader and the commands that the server saw. Pinned, as ``hits`` is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

from . import measure, servers
from .systems import MANY
from .values import VALUES
from .worker import Bench, Broken, Worker

WARM, COLD = 90, 10


def run(plan: measure.Plan, bench: Bench) -> dict[str, Any]:
    """CPU and wall time, loader calls and commands of each call."""
    times = 10 if plan.quick else 200
    workers = bench.of(system for system in MANY if plan.wants(system.label))
    names = ("cpu_us", "us", "loads", "commands")
    rows: dict[str, dict[str, Any]] = {w.system.label: {n: [] for n in names} for w in workers}
    for number, worker in enumerate(plan.in_rounds(workers)):
        _ask(bench.server, worker, times, number, rows[worker.system.label])
    return {"core": bench.core, "rows": rows}


def _ask(
    server: servers.Server, worker: Worker, times: int, number: int, row: dict[str, Any]
) -> None:
    job = f"{__name__}:many_in_{worker.system.mode}"
    try:
        worker.do(job, times=1, label=f"{number}-warm")  # connections, scripts, imports
        before = server.commands()
        for name, figure in worker.do(job, times=times, label=str(number)).items():
            row[name].append(figure)
        spent = sum(servers.spent(before, server.commands()).values())
        row["commands"].append(round(spent / times, 1))
    except Broken as reason:
        row["broken"] = str(reason)


# What runs inside a worker.


class ValueLoader:
    """What is behind the cache, and how often it was asked."""

    def __init__(self) -> None:
        self.calls = 0

    def load(self, names: list[str]) -> dict[str, Any]:
        self.calls += 1
        return dict.fromkeys(names, VALUES["menu"])

    async def load_async(self, names: list[str]) -> dict[str, Any]:
        return self.load(names)


class Stopwatch:
    """CPU and wall time of this process, between `start` and `stop`, added up."""

    def __init__(self) -> None:
        self.cpu = self.wall = 0.0

    def start(self) -> None:
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def stop(self) -> None:
        self.cpu += time.process_time() - self._cpu
        self.wall += time.perf_counter() - self._wall

    def figures(self, times: int, calls: int) -> dict[str, float]:
        return {
            "cpu_us": self.cpu / times * 1e6,
            "us": self.wall / times * 1e6,
            "loads": calls / times,
        }


def _asked(times: int, label: str) -> Iterator[list[str]]:
    """The warm names, and ten that were not read before."""
    warm = [f"warm{number}" for number in range(WARM)]
    for call in range(times):
        yield warm + [f"{label}-{call}-{number}" for number in range(COLD)]


def _check(found: dict[str, Any], names: list[str]) -> None:
    if found != dict.fromkeys(names, VALUES["menu"]):
        raise AssertionError("these are not the values that were loaded")


def many_in_threads(opener: Any, port: int, *, times: int, label: str) -> dict[str, float]:
    """Calls by one thread."""
    client, loader, watch = opener(port, 1), ValueLoader(), Stopwatch()
    try:
        read = client.many(loader.load)
        read([f"warm{number}" for number in range(WARM)])
        loader.calls = 0
        for names in _asked(times, label):
            watch.start()
            found = read(names)
            watch.stop()
            _check(found, names)
        return watch.figures(times, loader.calls)
    finally:
        client.close()


def many_in_asyncio(opener: Any, port: int, *, times: int, label: str) -> dict[str, float]:
    """Calls by one task."""

    async def calls() -> dict[str, float]:
        client, loader, watch = await opener.open(port, 1), ValueLoader(), Stopwatch()
        try:
            read = client.many(loader.load_async)
            await read([f"warm{number}" for number in range(WARM)])
            loader.calls = 0
            for names in _asked(times, label):
                watch.start()
                found = await read(names)
                watch.stop()
                _check(found, names)
            return watch.figures(times, loader.calls)
        finally:
            await client.aclose()

    return asyncio.run(calls())
