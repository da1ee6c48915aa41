"""The commands that waiting sends to the server: fifty callers, three seconds, one held key.

No caller gets the key, so every command is one that waiting itself costs. The holder is a separate
client. Opening connections is not counted (see :data:`benchmarks.servers.CONNECTING`); subscribing
to a wake-up is.
"""

from __future__ import annotations

import asyncio
import random
import threading
from typing import Any

from . import measure, servers
from .handoff import lines
from .systems import WAITERS
from .worker import Bench, Broken, Worker

WAITING, SECONDS = 50, 3


def run(plan: measure.Plan, bench: Bench) -> dict[str, Any]:
    """Commands in all, by system and variant. Once is enough: nothing here is luck."""
    callers, seconds = (10, 0.1) if plan.quick else (WAITING, SECONDS)
    rows: dict[str, dict[str, Any]] = {}
    for worker in bench.of(system for system in WAITERS if lines(plan, system)):
        for label, apart in lines(plan, worker.system):
            plan.note(label)
            rows[label] = _ask(bench.server, worker, callers=callers, seconds=seconds, apart=apart)
    return {"waiters": callers, "seconds": seconds, "rows": rows}


def _ask(server: servers.Server, worker: Worker, **how: Any) -> dict[str, Any]:
    before = server.commands()
    try:
        worker.do(f"{__name__}:wait_in_{worker.system.mode}", **how)
    except Broken as reason:
        return {"broken": str(reason)}
    spent = servers.spent(before, server.commands())
    return {"commands": sum(spent.values()), "by_name": spent}


# What runs inside a worker.


def wait_in_threads(opener: Any, port: int, *, callers: int, seconds: float, apart: bool) -> None:
    """That many threads wait in vain."""
    clients = [opener(port, callers) for _ in range(callers if apart else 1)]
    holder, key, served = opener(port, 1), _fresh_key(), list[object]()
    release = holder.take(key, 0)

    def waiter(number: int) -> None:
        served.append(clients[number % len(clients)].take(key, seconds))

    threads = [
        threading.Thread(target=waiter, args=(number,), daemon=True) for number in range(callers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    release()
    for client in (holder, *clients):
        client.close()
    _in_vain(served, callers)


def wait_in_asyncio(opener: Any, port: int, *, callers: int, seconds: float, apart: bool) -> None:
    """That many tasks wait in vain."""

    async def wait() -> None:
        clients = [await opener.open(port, callers) for _ in range(callers if apart else 1)]
        holder, key = await opener.open(port, 1), _fresh_key()
        release = await holder.take(key, 0)
        waiters = (clients[number % len(clients)].take(key, seconds) for number in range(callers))
        served = await asyncio.gather(*waiters)
        await release()
        for client in (holder, *clients):
            await client.aclose()
        _in_vain(served, callers)

    asyncio.run(wait())


def _fresh_key() -> str:
    return f"bench:waiting:{random.getrandbits(64):x}"


def _in_vain(served: list[object], callers: int) -> None:
    if served != [None] * callers:
        raise AssertionError("a held key was given away, or a waiter failed")
