"""What a key, a call and a process cost: `python -m benchmarks.capacity`.

Server memory for each key, commands and round trips for each call, connections for each process.
These are counts, not times: they are the same on a busy machine. `--only memory` is the first part.
"""

import argparse
import asyncio
import threading
import tracemalloc
from collections import Counter
from collections.abc import Awaitable, Callable
from time import monotonic, sleep
from typing import Any
from unittest import mock

import redis

from dibs import AsyncDibs, Dibs
from dibs.testing import Engine, FaultProxy, Server

MANY = 100_000
HELD = 20_000
"""Keys of which the memory in this process is measured: tracing it is slow."""
AT_ONCE = 500
CALLS = 200
VALUE = "x" * 1000
OWN = {"info", "command|info", "client|list", "client|setname", "hello", "client|setinfo", "config"}
Step = Callable[[Dibs, str], Any]
AsyncStep = Callable[[AsyncDibs, str], Awaitable[Any]]


def main() -> None:
    """Measure on empty servers, and print the tables of docs/redis-server.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("memory", "commands", "connections"))
    only = parser.parse_args().only
    if only in (None, "memory"):
        _print_memory()
    with Server.start() as server:
        if only in (None, "commands"):
            _print_commands(server)
        if only in (None, "connections"):
            _print_connections(server)


# ------------------------------------------------------------------------------------- memory

HOLDERS = {"web-1": 4711, "orders-api-7d9f8c6b5-x2x7k": 17}
"""Host name and process id: they are a part of the value of a lease."""
ENGINES: tuple[Engine, ...] = ("valkey", "redis7")


async def _kept(dibs: AsyncDibs, key: str) -> None:
    async with dibs.claim(key, window=86400, after="hold"):
        pass


async def _replayed(dibs: AsyncDibs, key: str) -> None:
    async with dibs.claim(key, window=86400, after="replay") as claim:
        claim.complete({"order": 17})


async def _load() -> str:
    return VALUE


KEYS: dict[str, AsyncStep] = {
    "`hold`: a lease": lambda dibs, key: dibs.try_hold(key, ttl=3600),
    "`hold` with `fence=True`": lambda dibs, key: dibs.try_hold(key, ttl=3600, fence=True),
    "`hold` with `limit=5`, one permit taken": lambda dibs, key: dibs.try_hold(
        key, ttl=3600, limit=5
    ),
    'a submission that is done, `after="hold"`': _kept,
    'a submission that is done, `after="replay"`, a result of 12 bytes': _replayed,
    "`cached`: a value of 1002 bytes as JSON": lambda dibs, key: dibs.get_or_load(
        key, _load, ttl=86400
    ),
}


def _print_memory() -> None:
    print("Bytes for each: used_memory / MEMORY USAGE of its keys\n")
    versions: list[str] = []
    for engine in ENGINES:
        with Server.start(engine) as server:
            versions.append(f"{engine} {'.'.join(map(str, server.version))}")
    columns = [
        f"{version}, holder {name}:{pid}" for version in versions for name, pid in _holders()
    ]
    print(f"| what | {' | '.join(columns)} | this process |\n|---|{'---|' * (len(columns) + 1)}")
    for what, step in KEYS.items():
        cells = [_in_server(engine, *who, step) for engine in ENGINES for who in _holders()]
        print(f"| {what} | {' | '.join(cells)} | {_in_process(step):.0f} |", flush=True)
    print()


def _holders() -> list[tuple[str, int]]:
    return list(HOLDERS.items())


def _in_server(engine: Engine, host: str, pid: int, step: AsyncStep) -> str:
    """`used_memory` and MEMORY USAGE for each call of *step*."""
    # A separate server for each: one that was flushed frees memory in the background.
    with Server.start(engine) as server, server.client() as client:
        with (
            mock.patch("socket.gethostname", return_value=host),
            mock.patch("os.getpid", return_value=pid),
        ):
            used = asyncio.run(_used(server.url, client, step))
        found: Any = list(client.scan_iter(count=1000))
        usage = [
            client.memory_usage(key, samples=0) for key in found[:: max(len(found) // 1000, 1)]
        ]
        mean = sum(int(each or 0) for each in usage) / len(usage)
        return f"{used / MANY:.0f} / {mean * len(found) / (MANY + 1):.0f}"


async def _used(url: str, client: "redis.Redis", step: AsyncStep) -> int:
    async with AsyncDibs(url, budget=30) as dibs:
        made = [await step(dibs, "warm:up")]
        before = _memory(client)
        for first in range(0, MANY, AT_ONCE):
            keys = [f"order:{number:012}" for number in range(first, first + AT_ONCE)]
            made += await asyncio.gather(*[step(dibs, key) for key in keys])
        return _memory(client) - before


def _in_process(step: AsyncStep) -> float:
    """Bytes of this process for each call, while what it returned is kept."""

    async def measure(url: str) -> float:
        async with AsyncDibs(url, budget=30) as dibs:
            made = [await step(dibs, "warm:up")]
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
            made += [await step(dibs, f"order:{number:012}") for number in range(HELD)]
            held = tracemalloc.get_traced_memory()[0] - before
            tracemalloc.stop()
            return held / HELD

    with Server.start() as server:
        return asyncio.run(measure(server.url))


def _memory(client: "redis.Redis") -> int:
    """What the keys use, when the server has finished to rearrange its tables."""
    last = -1
    while (now := _used_memory(client)) != last:
        last = now
        sleep(1.5)
    return now


def _used_memory(client: "redis.Redis") -> int:
    facts: dict[str, Any] = client.info("memory")  # pyright: ignore[reportAssignmentType]
    return int(facts["used_memory"]) - int(facts["mem_clients_normal"])


# ----------------------------------------------------------------------------------- commands


def _hold(dibs: Dibs, key: str) -> None:
    with dibs.hold(key, ttl=30):
        pass


def _refused(dibs: Dibs, key: str) -> None:
    dibs.try_hold("taken", ttl=30)


def _fenced(dibs: Dibs, key: str) -> None:
    with dibs.hold(key, ttl=30, fence=True):
        pass


def _limited(dibs: Dibs, key: str) -> None:
    with dibs.hold(key, ttl=30, limit=5):
        pass


def _claimed(dibs: Dibs, key: str) -> None:
    with dibs.claim(key, window=60):
        pass


def _duplicate(dibs: Dibs, key: str) -> None:
    with dibs.claim("done", window=60, after="replay"):
        pass


def _miss(dibs: Dibs, key: str) -> None:
    dibs.get_or_load(key, lambda: VALUE, ttl=60)


def _hit(dibs: Dibs, key: str) -> None:
    dibs.get_or_load("hit", lambda: VALUE, ttl=60)


def _local_hit(dibs: Dibs, key: str) -> None:
    dibs.get_or_load("local", lambda: VALUE, ttl=60, local=True)


def _replay(dibs: Dibs, key: str) -> None:
    with dibs.claim(key, window=86400, after="replay") as claim:
        claim.complete({"order": 17})


CALLED: dict[str, Step] = {
    "`hold`, acquired and released": _hold,
    "`hold`, refused; held by another process": _refused,
    "`hold` with `fence=True`": _fenced,
    "`hold` with `limit=5`": _limited,
    "`once`, processed": _claimed,
    '`once`, a duplicate that gets the result (`after="replay"`)': _duplicate,
    "`cached`, a miss: loaded and stored": _miss,
    "`cached`, a hit": _hit,
    "`cached` with `local`, a hit in memory": _local_hit,
}


def _print_commands(server: Server) -> None:
    print("| call | commands for each | round trips |\n|---|---|---|")
    server.flush()
    with (
        Dibs(server.url) as other,
        FaultProxy(server.port) as proxy,
        Dibs(proxy.url, budget=5) as dibs,
    ):
        other.try_hold("taken", ttl=3600)
        _replay(other, "done")
        for what, step in CALLED.items():
            step(dibs, "first")
            step(dibs, "second")
            before = Counter(server.command_counts())
            for number in range(CALLS):
                step(dibs, f"order:{what}:{number}")
            counted = _each(Counter(server.command_counts()) - before)
            print(f"| {what} | {counted} | {_round_trips(proxy, dibs, step)} |")
    print()


def _round_trips(proxy: FaultProxy, dibs: Dibs, step: Step) -> int:
    """How often a call waits for a reply, where each reply takes a tenth of a second."""
    proxy.delay(replies=0.1)
    step(dibs, f"slow:{id(step)}:1")
    since = monotonic()
    step(dibs, f"slow:{id(step)}:2")
    took = monotonic() - since
    proxy.heal()
    return round(took / 0.1)


def _each(counted: "Counter[str]") -> str:
    shown = {name: count / CALLS for name, count in counted.items() if name not in OWN}
    return " ".join(f"{name} {count:.3g}" for name, count in shown.items() if count >= 0.05) or "0"


# -------------------------------------------------------------------------------- connections


def _print_connections(server: Server) -> None:
    print("| process | connections |\n|---|---|")
    for what, count in {
        "`AsyncDibs`, 500 tasks at once": _of_tasks(server, waiting=False),
        "… and a task that waits for a key": _of_tasks(server, waiting=True),
        "`Dibs`, 1 thread": _of_threads(server, 1),
        "`Dibs`, 8 threads at once": _of_threads(server, 8),
        "`Dibs`, 32 threads at once": _of_threads(server, 32),
        "… and a thread that waits for a key": _of_threads(server, 32, waiting=True),
    }.items():
        print(f"| {what} | {count} |")


def _connected(server: Server) -> int:
    with server.client() as client:
        return len(client.client_list()) - 1


def _of_tasks(server: Server, *, waiting: bool) -> int:
    async def use() -> int:
        async with AsyncDibs(server.url) as dibs:
            await asyncio.gather(*(dibs.try_hold(f"t:{n}", ttl=30) for n in range(500)))
            waits = asyncio.create_task(dibs.try_hold("taken", ttl=1, wait=0.5 if waiting else 0))
            await asyncio.sleep(0.2)
            count = _connected(server)
            await waits
            return count

    return _beside_a_holder(server, lambda: asyncio.run(use()))


def _of_threads(server: Server, threads: int, *, waiting: bool = False) -> int:
    def use() -> int:
        with Dibs(server.url) as dibs:
            _run_at_once(dibs, threads, wait=0.5 if waiting else 0)
            return _connected(server)

    return _beside_a_holder(server, use)


def _run_at_once(dibs: Dibs, threads: int, wait: float) -> None:
    start = threading.Barrier(threads)

    def work(number: int) -> None:
        start.wait()
        for step in range(100):
            _hold(dibs, f"t:{number}:{step}")

    def wait_in_vain() -> None:
        dibs.try_hold("taken", ttl=1, wait=wait)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
    if wait:
        workers.append(threading.Thread(target=wait_in_vain))
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def _beside_a_holder(server: Server, count: Callable[[], int]) -> int:
    """What *count* returns while another process holds "taken", without that one's connection."""
    server.flush()
    with Dibs(server.url) as other, other.hold("taken", ttl=60):
        return count() - 1


if __name__ == "__main__":
    main()
