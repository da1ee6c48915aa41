"""A cluster of three against a single server: pairs of acquire and release, 500 tasks.

    python -m benchmarks.cluster                         both, in turns
    PYTHONPATH=<other sources> python -m benchmarks.cluster

The ratio of throughputs depends on what else the machine does; the client's CPU time for a pair
does not.
"""

import argparse
import asyncio
import time
from contextlib import ExitStack
from statistics import median
from typing import Any, NamedTuple

from dibs import AsyncDibs
from dibs.testing import Server
from tests.topologies import start_cluster


class Round(NamedTuple):
    """One measurement."""

    rate: float
    """Pairs per second."""
    cpu: float
    """Microseconds of the client's CPU for a pair."""


async def _loop(dibs: AsyncDibs, key: str, until: float) -> int:
    pairs = 0
    while time.monotonic() < until:
        async with dibs.hold(key, ttl=10):
            pairs += 1
    return pairs


async def measure(dibs: AsyncDibs, tasks: int, seconds: float) -> Round:
    """All tasks at once, each with its own key."""
    since, cpu = time.monotonic(), time.process_time()
    loops = [_loop(dibs, f"user:{number}", since + seconds) for number in range(tasks)]
    pairs = sum(await asyncio.gather(*loops))
    lasted, used = time.monotonic() - since, time.process_time() - cpu
    return Round(pairs / lasted, used / pairs * 1e6)


async def compare(single: str, cluster: str, tasks: int, seconds: float, rounds: int) -> None:
    """In turns, so that both get the same share of a busy machine."""
    results: dict[str, list[Round]] = {"single": [], "cluster": []}
    async with AsyncDibs(single, budget=5) as one, AsyncDibs(cluster, budget=5) as many:
        for _ in range(rounds + 1):
            results["single"].append(await measure(one, tasks, seconds))
            results["cluster"].append(await measure(many, tasks, seconds))
    for name, measured in results.items():
        rates = [each.rate for each in measured[1:]]
        cpus = [each.cpu for each in measured[1:]]
        print(f"{name:8} {median(rates):9,.0f} pairs/s {median(cpus):6.1f} µs of client CPU a pair")
    pairs = list(zip(results["cluster"][1:], results["single"][1:], strict=True))
    rate = median(many.rate / one.rate for many, one in pairs)
    cpu = median(one.cpu / many.cpu for many, one in pairs)
    print(f"cluster / single: {rate:.2f} by throughput, {cpu:.2f} by client CPU")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=0.25)
    parser.add_argument("--rounds", type=int, default=25)
    asked = parser.parse_args()
    with ExitStack() as stack:

        def start(engine: Any = "valkey", **options: Any) -> Server:
            return stack.enter_context(Server.start(engine, **options))

        nodes = start_cluster(start)
        single = start()
        url = f"redis+cluster://127.0.0.1:{nodes[0].port}"
        asyncio.run(compare(single.url, url, asked.tasks, asked.seconds, asked.rounds))


if __name__ == "__main__":
    main()
