"""A server that hangs (SIGSTOP) and comes back: how long callers wait. Only with ``--slow``.

dibs runs fail-open, its default, so a call during the outage gives an unguarded lease; redis-py's
Lock runs at its defaults and raises. Either is an answer, and the time until it is what counts.
*First*: the first call of a warm client. *Next*: the slowest of the calls after it, a hundred of
them for clients that answer fast enough. *Back*: from SIGCONT until a call is truly served again. A
call that has not answered after ten seconds is given up and shown as ``>10 s``.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from . import measure, servers
from .systems import DIBS, LEASES, LOCK
from .worker import Bench, Broken, Worker

KEY = "bench:outage"
CAP = 10.0
NEXT = 100
ASKED = tuple(system for system in LEASES if system.name in (LOCK, DIBS))


class Answer(NamedTuple):
    """One acquire and release: whether the server truly served it, and when the caller knew."""

    served: bool
    ms: float | None


Call = Callable[[], Answer]


def run(plan: measure.Plan, bench: Bench) -> dict[str, Any]:
    """Milliseconds of the first call, the slowest after it, the way back; None for ">10 s"."""
    rows: dict[str, dict[str, Any]] = {}
    for worker in bench.of(system for system in ASKED if plan.wants(system.label)):
        plan.note(worker.system.label)
        rows[worker.system.label] = _ask(bench.server, worker)
    return {"rows": rows}


def _ask(server: servers.Server, worker: Worker) -> dict[str, Any]:
    try:
        return worker.do(f"{__name__}:outage_in_{worker.system.mode}", server=server.process.pid)
    except Broken as reason:
        return {"broken": str(reason)}


def _phases(call: Call, pause: Callable[[float], object], server: int) -> dict[str, Any]:
    """The outage, seen by one caller, who stops the server itself: the moments are exact."""
    call()
    with servers.stopped(server):
        first, after = call().ms, list[float | None]()
        while not _enough(after):
            after.append(call().ms)
    slowest = None if None in after else max(ms for ms in after if ms is not None)
    return {
        "first": first,
        "next": slowest,
        "calls": len(after),
        "back": _until_served(call, pause),
    }


def _enough(calls: list[float | None]) -> bool:
    """A hundred calls, or as many as fit into the cap: two calls of five seconds are enough."""
    return len(calls) >= NEXT or None in calls or sum(ms or 0 for ms in calls) > CAP * 1e3


def _until_served(call: Call, pause: Callable[[float], object]) -> float | None:
    started = time.perf_counter()
    while _ms_since(started) is not None:
        if call().served:
            return _ms_since(started)
        pause(0.002)
    return None


def _ms_since(started: float) -> float | None:
    """None beyond the cap."""
    elapsed = time.perf_counter() - started
    return elapsed * 1e3 if elapsed < CAP else None


# What runs inside a worker.


def outage_in_threads(opener: Any, port: int, *, server: int) -> dict[str, Any]:
    """What one thread sees. A call beyond the cap is left behind in its own thread."""
    client = opener(port, 2)

    def asked(answers: list[Answer]) -> None:
        started, served = time.perf_counter(), False
        with suppress(Exception):
            served = client.served(KEY)
        answers.append(Answer(served, _ms_since(started)))

    def call() -> Answer:
        answers: list[Answer] = []
        thread = threading.Thread(target=asked, args=(answers,), daemon=True)
        thread.start()
        thread.join(CAP)
        return answers[0] if answers else Answer(False, None)

    return _phases(call, time.sleep, server)


def outage_in_asyncio(opener: Any, port: int, *, server: int) -> dict[str, Any]:
    """What one task sees. A call beyond the cap is cancelled."""

    async def asked(client: Any) -> Answer:
        started, served = time.perf_counter(), False
        with suppress(Exception):
            async with asyncio.timeout(CAP):
                served = await client.served(KEY)
        return Answer(served, _ms_since(started))

    with asyncio.Runner() as runner:
        client = runner.run(opener.open(port, 2))
        return _phases(
            lambda: runner.run(asked(client)),
            lambda seconds: runner.run(asyncio.sleep(seconds)),
            server,
        )
