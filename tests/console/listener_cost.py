"""What the listener of the console costs: `python -m tests.console.listener_cost`.

Client CPU of acquire and release at 50 tasks, by process time: without a listener, with one that
does nothing, and with `Statistics`. The three take turns in one run.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

from dibs import AsyncDibs
from dibs.console.statistics import Statistics
from dibs.testing import Server

TASKS, PAIRS, ROUNDS = 50, 200, 15


async def _pairs(dibs: AsyncDibs, task: int) -> None:
    for number in range(PAIRS):
        async with dibs.hold(f"order:{task}:{number}", ttl=5, name="order:{id}"):
            pass


async def _cost(dibs: AsyncDibs) -> float:
    """Microseconds of CPU for one pair."""
    began = time.process_time()
    await asyncio.gather(*(_pairs(dibs, task) for task in range(TASKS)))
    return (time.process_time() - began) / (TASKS * PAIRS) * 1e6


def _nothing(event: object) -> None:
    pass


async def main() -> None:
    """Print the medians."""
    listeners: dict[str, list[Any]] = {"none": [], "empty": [_nothing], "console": [Statistics()]}
    with Server.start("valkey") as server:
        clients = {name: AsyncDibs(server.url, listeners=each) for name, each in listeners.items()}
        costs: dict[str, list[float]] = {name: [] for name in clients}
        for _ in range(ROUNDS):
            for name, dibs in clients.items():
                costs[name].append(await _cost(dibs))
        for dibs in clients.values():
            await dibs.aclose()
    middle = {name: statistics.median(each) for name, each in costs.items()}
    for name, cost in middle.items():
        print(f"{name:8} {cost:6.2f} µs a pair (best {min(costs[name]):.2f})")
    own = middle["console"] - middle["empty"]
    print(f"the listener itself: {own:.2f} µs, {100 * own / middle['none']:.1f} % of a pair")


if __name__ == "__main__":
    asyncio.run(main())
