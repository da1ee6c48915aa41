"""Who gets a key that ten processes want all the time: ``python -m benchmarks.fairness``.

In each process a few callers take the key, keep it for 5 ms, release it and take it again. Printed
is, for each system, how the turns were shared between callers and between processes, the longest
wait of a caller, and how often a process followed itself. Fair would be the same share for each
caller, and a longest wait of one turn of all others.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from . import servers
from .systems import WAITERS, System
from .worker import Broken, Worker

KEPT = 0.005
WAIT = 60.0
LATER = 1.0
"""Seconds until all begin together: all are connected by then."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fairness", description=__doc__)
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--callers", type=int, default=5, help="in each process")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--only", default="", help="systems with this in their name")
    args = parser.parse_args()
    print(f"{args.processes} processes, {args.callers} callers each, {args.seconds:g} s")
    print("system | turns | of a caller: least, median, most | of a process | longest wait | again")
    for system in WAITERS:
        if args.only in system.label and system.absence() is None:
            print(system.label, *_row(system, args), sep=" | ", flush=True)


def _row(system: System, args: argparse.Namespace) -> list[str]:
    with servers.serving() as server, ExitStack() as running:
        workers = [Worker(system, server.port, None) for _ in range(args.processes)]
        for worker in workers:
            running.callback(worker.close)
            worker.ready()
        begin = time.time() + LATER
        for worker in workers:
            worker.begin(
                f"benchmarks.fairness:turns_in_{system.mode}", callers=args.callers, begin=begin,
                end=begin + args.seconds,
            )  # fmt: skip
        try:
            return _summary([worker.answer() for worker in workers])
        except Broken as reason:
            return [str(reason)]


def _summary(processes: list[list[list[tuple[float, float]]]]) -> list[str]:
    """*processes*: of each caller of each process, when it got the key and after what wait."""
    callers = [len(turns) for process in processes for turns in process]
    shares = [sum(len(turns) for turns in process) for process in processes]
    order = sorted(
        (at, number)
        for number, process in enumerate(processes) for turns in process for at, _ in turns
    )  # fmt: skip
    again = sum(a[1] == b[1] for a, b in itertools.pairwise(order))
    waits = [wait for process in processes for turns in process for _, wait in turns]
    return [
        f"{sum(callers)}",
        f"{min(callers)}, {statistics.median(callers):g}, {max(callers)}",
        f"{min(shares)}, {statistics.median(shares):g}, {max(shares)}",
        f"{max(waits, default=0):.2f} s",
        f"{again / max(len(order) - 1, 1):.0%}",
    ]


# What runs inside a worker.


def turns_in_threads(
    opener: Callable[..., Any], port: int, *, callers: int, begin: float, end: float
) -> list[list[tuple[float, float]]]:
    """The turns of so many threads."""
    client = opener(port, callers)
    turns: list[list[tuple[float, float]]] = [[] for _ in range(callers)]

    def caller(own: list[tuple[float, float]]) -> None:
        while (asked := time.time()) < end:
            release = client.take("fair", WAIT)
            if release is None:  # the wait counts, though it was in vain
                own.append((time.time(), WAIT))
                continue
            own.append((time.time(), time.time() - asked))
            time.sleep(KEPT)
            release()

    client.take("connect", 1)()
    time.sleep(max(begin - time.time(), 0))
    threads = [threading.Thread(target=caller, args=(own,)) for own in turns]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    client.close()
    return turns


def turns_in_asyncio(
    opener: Any, port: int, *, callers: int, begin: float, end: float
) -> list[list[tuple[float, float]]]:
    """The turns of so many tasks."""

    async def caller(client: Any) -> list[tuple[float, float]]:
        own: list[tuple[float, float]] = []
        while (asked := time.time()) < end:
            release = await client.take("fair", WAIT)
            own.append((time.time(), time.time() - asked))
            await asyncio.sleep(KEPT)
            await release()
        return own

    async def all_callers() -> list[list[tuple[float, float]]]:
        client = await opener.open(port, callers)
        await (await client.take("connect", 1))()
        await asyncio.sleep(max(begin - time.time(), 0))
        turns = await asyncio.gather(*[caller(client) for _ in range(callers)])
        await client.aclose()
        return turns

    return asyncio.run(all_callers())


if __name__ == "__main__":
    main()
