"""What a key, a call and a process cost: `python -m benchmarks.capacity`.

Server memory for each key, commands and round trips for each call, connections for each process.
These are counts, not times: they are the same on a busy machine.
"""

import asyncio
import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable
from time import monotonic
from typing import Any

import redis

from dibs import AsyncDibs, Dibs
from dibs.testing import FaultProxy, Server

MANY = 20_000
CALLS = 200
VALUE = "x" * 1000
OWN = {"info", "command|info", "client|list", "client|setname", "hello", "client|setinfo", "config"}
Step = Callable[[Dibs, str], Any]


def main() -> None:
    """Measure all of it on an empty Valkey, and print the tables of docs/production/capacity.md."""
    with Server.start() as server:
        print(f"Valkey {'.'.join(map(str, server.version))}\n")
        _print_memory()
        _print_commands(server)
        _print_connections(server)


# ------------------------------------------------------------------------------------- memory


def _kept(dibs: Dibs, key: str) -> None:
    with dibs.claim(key, window=86400, after="hold"):
        pass


def _replayed(dibs: Dibs, key: str) -> None:
    with dibs.claim(key, window=86400, after="replay") as claim:
        claim.complete({"order": 17})


def _cached(dibs: Dibs, key: str) -> None:
    dibs.get_or_load(key, lambda: VALUE, ttl=86400)


KEYS: dict[str, Step] = {
    "`hold`: a lease": lambda dibs, key: dibs.try_hold(key, ttl=3600),
    "`hold` with `fence=True`": lambda dibs, key: dibs.try_hold(key, ttl=3600, fence=True),
    "`hold` with `limit=5`, one permit taken": lambda dibs, key: dibs.try_hold(
        key, ttl=3600, limit=5
    ),
    '`claim` that is done, `after="hold"`': _kept,
    '`claim` that is done, `after="replay"`, a result of 12 bytes': _replayed,
    "`cached`: a value of 1002 bytes as JSON": _cached,
}


def _print_memory() -> None:
    print("| what | bytes in Redis for each | bytes in this process for each |\n|---|---|---|")
    for what, step in KEYS.items():
        # A server of its own for each: one that was flushed frees memory in the background.
        with Server.start() as server, Dibs(server.url) as dibs, server.client() as client:
            step(dibs, "warm:up")
            tracemalloc.start()
            before, mine = _memory(client), tracemalloc.get_traced_memory()[0]
            made = [step(dibs, f"order:{number:012}") for number in range(MANY)]
            held = (tracemalloc.get_traced_memory()[0] - mine) / len(made)
            tracemalloc.stop()
            print(f"| {what} | {(_memory(client) - before) / MANY:.0f} | {held:.0f} |")
    print()


def _memory(client: "redis.Redis") -> int:
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
        _replayed(other, "done")
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
