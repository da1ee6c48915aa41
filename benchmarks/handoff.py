"""From one holder's release to the next holder's start, with twenty waiting.

The clock runs from the moment the holder begins to release until a waiter has the key in hand; so
it holds the release itself, the wake-up and the acquisition. The new holder keeps the key for a few
milliseconds, long enough for all others to have been woken, or to have polled, in vain. Waiters
arrive spread over a tenth of a second, as polls do in life: arriving together would make redis-py's
waiters look at the same moment and find the key free by luck.

Two variants. *One client*: the waiters share it, as in one process, and dibs may hand the key over
inside. *Own clients*: each has its own, as in twenty processes, and only the server connects them.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from typing import Any

from . import measure, servers
from .systems import WAITERS, System
from .worker import Bench, Broken, Worker

LINE, QUICK_LINE = 20, 5
KEPT = 0.005
ARRIVAL = 0.1
WAIT = 10.0
VARIANTS = {"one client": False, "own clients": True}


def run(plan: measure.Plan, bench: Bench) -> dict[str, Any]:
    """Milliseconds of every hand-off and commands for each, by system and variant."""
    waiters = QUICK_LINE if plan.quick else LINE
    asked = [
        (label, worker, apart)
        for worker in bench.of(system for system in WAITERS if lines(plan, system))
        for label, apart in lines(plan, worker.system)
    ]
    rows: dict[str, dict[str, Any]] = {
        label: {"ms": [], "served_ms": [], "commands": []} for label, *_ in asked
    }
    for label, worker, apart in plan.in_rounds(asked):
        _ask(bench.server, worker, rows[label], waiters=waiters, apart=apart)
    return {"waiters": waiters, "rows": rows}


def lines(plan: measure.Plan, system: System) -> list[tuple[str, bool]]:
    """The variants that are wanted: a label, and whether each waiter has its own client."""
    variants = [(f"{system.label}, {variant}", apart) for variant, apart in VARIANTS.items()]
    return [(label, apart) for label, apart in variants if plan.wants(label)]


def _ask(server: servers.Server, worker: Worker, row: dict[str, Any], **how: Any) -> None:
    before = server.commands()
    try:
        gaps = worker.do(f"{__name__}:line_in_{worker.system.mode}", **how)
    except Broken as reason:
        row["broken"] = str(reason)
        return
    row["ms"] += gaps
    row["served_ms"].append(sum(gaps))
    row["commands"].append(sum(servers.spent(before, server.commands()).values()) / len(gaps))


class Relay:
    """The moments of releasing and of taking, and the milliseconds between one and the next."""

    def __init__(self) -> None:
        self._released: float | None = None
        self.gaps: list[float] = []

    def releasing(self) -> None:
        self._released = time.perf_counter()

    def taken(self) -> None:
        """Called by the holder only, so the two never race."""
        assert self._released is not None, "taken while it was held"
        self.gaps.append((time.perf_counter() - self._released) * 1e3)
        self._released = None


# What runs inside a worker.


def line_in_threads(opener: Any, port: int, *, waiters: int, apart: bool) -> list[float]:
    """The gaps of a line of threads."""
    clients = [opener(port, waiters) for _ in range(waiters if apart else 1)]
    key, relay, trouble = _fresh_key(), Relay(), list[BaseException]()

    def waiter(number: int) -> None:
        try:
            time.sleep(random.random() * ARRIVAL)
            release = clients[number % len(clients)].take(key, WAIT)
            relay.taken()
            time.sleep(KEPT)
            relay.releasing()
            release()
        except BaseException as error:
            trouble.append(error)

    for number, client in enumerate(clients):
        client.pair_on(f"bench:warm:{number}")()
    release = clients[0].take(key, 0)
    threads = [
        threading.Thread(target=waiter, args=(number,), daemon=True) for number in range(waiters)
    ]
    for thread in threads:
        thread.start()
    time.sleep(ARRIVAL * 2)
    relay.releasing()
    release()
    for thread in threads:
        thread.join(WAIT + 5)
    for client in clients:
        client.close()
    return _finished(relay, waiters, trouble)


def line_in_asyncio(opener: Any, port: int, *, waiters: int, apart: bool) -> list[float]:
    """The gaps of a line of tasks."""

    async def line() -> list[float]:
        clients = [await opener.open(port, waiters) for _ in range(waiters if apart else 1)]
        key, relay = _fresh_key(), Relay()

        async def waiter(number: int) -> None:
            await asyncio.sleep(random.random() * ARRIVAL)
            release = await clients[number % len(clients)].take(key, WAIT)
            relay.taken()
            await asyncio.sleep(KEPT)
            relay.releasing()
            await release()

        for number, client in enumerate(clients):
            await client.pair_on(f"bench:warm:{number}")()
        release = await clients[0].take(key, 0)
        tasks = [asyncio.create_task(waiter(number)) for number in range(waiters)]
        await asyncio.sleep(ARRIVAL * 2)
        relay.releasing()
        await release()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        for client in clients:
            await client.aclose()
        return _finished(relay, waiters, [answer for answer in answers if answer is not None])

    return asyncio.run(line())


def _fresh_key() -> str:
    """No line finds a key that a line that broke has left behind."""
    return f"bench:handoff:{random.getrandbits(64):x}"


def _finished(relay: Relay, waiters: int, trouble: list[BaseException]) -> list[float]:
    if trouble:
        raise trouble[0]
    if len(relay.gaps) != waiters:
        raise AssertionError(f"only {len(relay.gaps)} of {waiters} waiters were served")
    return relay.gaps
