"""What "somebody here already has it" costs: the answer a busy process gives most often.

The key is held through the very client that is then asked again, as when a user sends a second
message while the first is still being answered. dibs knows without asking; redis-py's Lock has to
ask the server. Beside the time stand the commands that the server saw for each refusal.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from . import measure, servers
from .systems import DIBS, LEASES, LOCK
from .worker import Bench, Broken, Worker

KEY = "bench:refused"
ASKED = tuple(system for system in LEASES if system.name in (LOCK, DIBS))


def run(plan: measure.Plan, bench: Bench) -> dict[str, Any]:
    """Microseconds and commands for each refusal."""
    times = 500 if plan.quick else 5000
    workers = bench.of(system for system in ASKED if plan.wants(system.label))
    rows: dict[str, dict[str, Any]] = {w.system.label: {"us": [], "commands": []} for w in workers}
    for worker in plan.in_rounds(workers):
        _ask(bench.server, worker, times, rows[worker.system.label])
    return {"rows": rows}


def _ask(server: servers.Server, worker: Worker, times: int, row: dict[str, Any]) -> None:
    try:
        before = server.commands()
        row["us"].append(worker.do(f"{__name__}:refusals_in_{worker.system.mode}", times=times))
        row["commands"].append(_per_refusal(server, before, times))
    except Broken as reason:
        row["broken"] = str(reason)


def _per_refusal(server: servers.Server, before: dict[str, int], times: int) -> float:
    """To one place: taking and giving back the key is a handful of commands among thousands."""
    return round(sum(servers.spent(before, server.commands()).values()) / times, 1)


# What runs inside a worker.


def refusals_in_threads(opener: Any, port: int, *, times: int) -> float:
    """Microseconds for one refusal, in one thread."""
    client = opener(port, 1)
    try:
        release = client.take(KEY, 0)
        started = time.perf_counter()
        for _ in range(times):
            if client.refused(KEY) is not True:
                raise AssertionError("a held key was given away")
        elapsed = time.perf_counter() - started
        release()
        return elapsed / times * 1e6
    finally:
        client.close()


def refusals_in_asyncio(opener: Any, port: int, *, times: int) -> float:
    """Microseconds for one refusal, in one task."""

    async def refusals() -> float:
        client = await opener.open(port, 1)
        try:
            release = await client.take(KEY, 0)
            started = time.perf_counter()
            for _ in range(times):
                if await client.refused(KEY) is not True:
                    raise AssertionError("a held key was given away")
            elapsed = time.perf_counter() - started
            await release()
            return elapsed / times * 1e6
        finally:
            await client.aclose()

    return asyncio.run(refusals())
