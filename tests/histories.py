"""What several processes did at the same time, written down and checked afterwards.

A worker process holds keys, submits orders, takes fences and reads cached values, and writes one
line for each of them: when it began and ended, by the clock that all processes of a machine share.
`check` reads the lines of all workers and counts what must not be: leases of one key that overlap,
fences that do not grow, orders that were done twice, values that were loaded twice.

    python -m tests.histories '{"target": "redis+sentinel://…", "file": "…", "kind": "tasks", …}'
"""

import asyncio
import itertools
import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

KEYS = 8
"""Keys that all processes hold in turn: few, so that they are contended all the time."""
TTL = 4.0
BODY = 0.02
EVERY = 0.25
"""A new order and a new value for all processes at once, in seconds."""


class Record(NamedTuple):
    """One thing that a worker did. Times are those of CLOCK_MONOTONIC."""

    kind: str
    """hold, fenced, once, load."""
    key: str
    begin: float
    end: float
    guarded: bool
    fence: int
    worker: str
    seen_on: tuple[int, ...]
    """The servers (ports) that had this lease in the moment before it ended."""


class Overlap(NamedTuple):
    """Two leases of one key at one time, the earlier one first."""

    first: Record
    second: Record


@dataclass
class Verdict:
    """What a history shows."""

    records: Counter[str] = field(default_factory=Counter[str])
    overlaps: list[Overlap] = field(default_factory=list[Overlap])
    fences: int = 0
    """Leases whose fence is not greater than that of an earlier lease."""
    executions: int = 0
    """Orders that were done more than once, by guarded claims."""
    loads: int = 0
    """Values that were loaded more than once."""
    unguarded: Counter[str] = field(default_factory=Counter[str])
    outage: float = 0.0
    """The longest time for which one worker had only unguarded leases of one key."""

    def copied_overlaps(self, successor: int | None) -> list[Overlap]:
        """Those where the *successor* (its port) knew of the first lease and granted the second."""
        return [
            each
            for each in self.overlaps
            if successor in each.first.seen_on and successor in each.second.seen_on
        ]


# ---- checking


def read(files: Iterable[Path]) -> list[Record]:
    """All lines of all workers. A worker that was killed may leave half a line."""
    records: list[Record] = []
    for file in files:
        for line in file.read_text().splitlines():
            with suppress(ValueError):
                *facts, seen_on = json.loads(line)
                records.append(Record(*facts, seen_on=tuple(seen_on)))
    return records


def check(records: list[Record]) -> Verdict:
    """Count what must not be."""
    verdict = Verdict()
    by_key: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in sorted(records, key=lambda record: record.begin):
        verdict.records[record.kind] += 1
        if record.guarded:
            by_key[record.kind, record.key].append(record)
        else:
            verdict.unguarded[record.kind] += 1
    for (kind, _), guarded in by_key.items():
        if kind in ("hold", "fenced"):
            verdict.overlaps += overlaps(guarded)
        if kind == "fenced":
            verdict.fences += not_growing(guarded)
        if kind == "once":
            verdict.executions += len(guarded) > 1
        if kind == "load":
            verdict.loads += len(guarded) > 1
    verdict.outage = max((_outage(mine) for mine in _by_worker_and_key(records)), default=0.0)
    return verdict


def overlaps(records: list[Record]) -> list[Overlap]:
    """Pairs of leases of one key, sorted by their begin, of which the second came too early."""
    found: list[Overlap] = []
    latest: Record | None = None
    for record in records:
        if latest is not None and record.begin < latest.end:
            found.append(Overlap(latest, record))
        if latest is None or record.end > latest.end:
            latest = record
    return found


def not_growing(records: list[Record]) -> int:
    """How many leases have a fence that is not greater than all before."""
    highest, wrong = 0, 0
    for record in records:
        wrong += record.fence <= highest
        highest = max(highest, record.fence)
    return wrong


def _by_worker_and_key(records: list[Record]) -> list[list[Record]]:
    groups: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in sorted(records, key=lambda record: record.begin):
        if record.kind == "hold":
            groups[record.worker, record.key].append(record)
    return list(groups.values())


def _outage(records: list[Record]) -> float:
    """The longest time from the first of some unguarded leases in a row to the last one's end."""
    longest, since = 0.0, None
    for record in records:
        if record.guarded:
            since = None
        else:
            since = record.begin if since is None else since
            longest = max(longest, record.end - since)
    return longest


# ---- a worker


class Work:
    """What a worker has to do, and where it writes what it did."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.target: str = options["target"]
        self.tasks: int = options.get("tasks", 10)
        self.until = 0.0
        self.servers: list[int] = options.get("servers", [])
        self.keys: list[str] = options.get("keys") or [f"key:{n}" for n in range(KEYS)]
        self.extras: bool = options.get("extras", True)
        self._worker = f"{os.getpid()}"
        self._file = Path(options["file"]).open("w", buffering=1)  # noqa: SIM115 - until the end
        self._guard = threading.Lock()
        self.causes = Counter[str]()
        """Why leases were not guarded."""

    def record(self, event: Any) -> None:
        """A listener."""
        if event.kind == "outage":
            self.causes[event.cause] += 1

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.until

    def wait_for_start(self) -> None:
        """Until all workers have come this far: the parent says when to end."""
        print("ready", flush=True)
        self.until = float(input())

    def write(
        self, kind: str, key: str, begin: float, guarded: bool, fence: int, seen_on: list[int]
    ) -> None:
        line = json.dumps(
            [kind, key, begin, time.monotonic(), guarded, fence, self._worker, seen_on]
        )
        with self._guard:
            self._file.write(line + "\n")


def _tick() -> int:
    return int(time.monotonic() / EVERY)


async def _tasks(work: Work) -> None:
    import redis.asyncio as redis

    from dibs import AsyncDibs, Busy, DibsError, Duplicate

    eyes = [redis.Redis(port=port, socket_timeout=0.1, retry=None) for port in work.servers]

    async def seen_on(key: str, token: str) -> list[int]:
        async def look(port: int, eye: Any) -> int | None:
            with suppress(redis.RedisError, OSError):
                return port if await eye.get(key) == token.encode() else None
            return None

        pairs = zip(work.servers, eyes, strict=True)
        found = await asyncio.gather(*[look(port, eye) for port, eye in pairs])
        return [port for port in found if port]

    async def hold(dibs: AsyncDibs, kind: str, key: str) -> None:
        try:
            async with dibs.hold(key, ttl=TTL, fence=kind == "fenced") as lease:
                begin = time.monotonic()
                await asyncio.sleep(random.uniform(0.5, 1.5) * BODY)
                ports = await seen_on(key, lease.token) if lease.guarded else []
                if not lease.lost:
                    work.write(kind, key, begin, lease.guarded, lease.fence or 0, ports)
        except Busy:
            await asyncio.sleep(random.uniform(0, BODY))
        except DibsError as error:
            print(repr(error), file=sys.stderr)

    async def holds(dibs: AsyncDibs, kind: str) -> None:
        while not work.is_over:
            await hold(dibs, kind, f"{kind}:{random.choice(work.keys)}")

    async def orders(dibs: AsyncDibs) -> None:
        for tick in itertools.count(_tick() + 1):
            if work.is_over:
                return
            await asyncio.sleep(tick * EVERY - time.monotonic() + random.uniform(0, 0.1))
            with suppress(Duplicate):
                async with dibs.claim(f"order:{tick}", window=60, after="hold") as claim:
                    begin = time.monotonic()
                    await asyncio.sleep(BODY)
                    work.write("once", f"order:{tick}", begin, claim.guarded, 0, [])

    async def values(dibs: AsyncDibs) -> None:
        guarded = True

        async def load(tick: int) -> int:
            begin = time.monotonic()
            await asyncio.sleep(BODY)
            work.write("load", f"value:{tick}", begin, guarded, 0, [])
            return tick

        for tick in itertools.count(_tick() + 1):
            if work.is_over:
                return
            await asyncio.sleep(tick * EVERY - time.monotonic())
            # In the slot of the value, so that it is guarded if and only if the value is.
            probe = await dibs.try_hold(f"probe:{{value:{tick}}}:{os.getpid()}", ttl=TTL)
            guarded = probe is not None and probe.guarded
            await dibs.get_or_load(f"value:{tick}", partial(load, tick), ttl=60)

    work.wait_for_start()
    async with AsyncDibs(work.target, listeners=[work.record]) as dibs:
        extras = [orders(dibs), values(dibs), holds(dibs, "fenced")] if work.extras else []
        await asyncio.gather(*[holds(dibs, "hold") for _ in range(work.tasks)], *extras)
    for eye in eyes:
        await eye.aclose()


def _threads(work: Work) -> None:
    import redis

    from dibs import Busy, Dibs, DibsError, Duplicate

    eyes = [redis.Redis(port=port, socket_timeout=0.1, retry=None) for port in work.servers]

    def seen_on(key: str, token: str) -> list[int]:
        found: list[int] = []
        for port, eye in zip(work.servers, eyes, strict=True):
            with suppress(redis.RedisError, OSError):
                found += [port] if eye.get(key) == token.encode() else []
        return found

    def hold(dibs: Dibs, kind: str, key: str) -> None:
        try:
            with dibs.hold(key, ttl=TTL, fence=kind == "fenced") as lease:
                begin = time.monotonic()
                time.sleep(random.uniform(0.5, 1.5) * BODY)
                ports = seen_on(key, lease.token) if lease.guarded else []
                if not lease.lost:
                    work.write(kind, key, begin, lease.guarded, lease.fence or 0, ports)
        except Busy:
            time.sleep(random.uniform(0, BODY))
        except DibsError as error:
            print(repr(error), file=sys.stderr)

    def holds(dibs: Dibs, kind: str) -> None:
        while not work.is_over:
            hold(dibs, kind, f"{kind}:{random.choice(work.keys)}")

    def orders(dibs: Dibs) -> None:
        for tick in itertools.count(_tick() + 1):
            if work.is_over:
                return
            time.sleep(max(tick * EVERY - time.monotonic() + random.uniform(0, 0.1), 0))
            with (
                suppress(Duplicate),
                dibs.claim(f"order:{tick}", window=60, after="hold") as claim,
            ):
                begin = time.monotonic()
                time.sleep(BODY)
                work.write("once", f"order:{tick}", begin, claim.guarded, 0, [])

    work.wait_for_start()
    with Dibs(work.target, listeners=[work.record]) as dibs:
        jobs: list[Callable[[], None]] = [partial(holds, dibs, "hold")] * work.tasks
        if work.extras:
            jobs += [partial(orders, dibs), partial(holds, dibs, "fenced")]
        threads = [threading.Thread(target=job) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for eye in eyes:
        eye.close()


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    options = json.loads(sys.argv[1])
    work = Work(options)
    if options.get("kind", "tasks") == "threads":
        _threads(work)
    else:
        asyncio.run(_tasks(work))
    if work.causes:
        print(f"outages: {dict(work.causes)}", file=sys.stderr)


if __name__ == "__main__":
    _main()
