"""Faults of a Sentinel service, of a single address and of a cluster, and what came of them.

    python -m tests.scenarios                          every scenario, the table on the terminal
    python -m tests.scenarios --only switch          those whose name contains the word
    python -m tests.scenarios --seconds 8             shorter

`DIBS_SRC` names the sources that the workers import, to compare with another version.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dibs
from dibs.testing import FaultProxy, Server, eventually

from . import histories
from .histories import Verdict
from .topologies import (
    Service,
    is_in_sync,
    is_master,
    open_slot,
    reshard,
    sentinel_service,
    slot_of,
    start_replicated_cluster,
)

SRC = os.environ.get("DIBS_SRC") or str(Path(dibs.__file__).parents[1])
ROOT = Path(__file__).parents[1]


@dataclass
class Result:
    """What a scenario showed."""

    verdict: Verdict
    successor: int | None = None
    """The port of the server that was promoted."""
    complaints: list[str] = field(default_factory=list[str])


class Workers:
    """Processes that use a target, each with its own file."""

    def __init__(self, folder: Path, seconds: float, **options: Any) -> None:
        self._folder = folder
        self._seconds = seconds
        self._until: float | None = None
        self._options = options
        self._processes: list[subprocess.Popen[str]] = []

    def start(self, kind: str) -> subprocess.Popen[str]:
        """Another one: tasks or threads."""
        number = len(self._processes)
        options = {**self._options, "kind": kind, "file": str(self._folder / f"{number}.jsonl")}
        with (self._folder / f"{number}.err").open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.histories", json.dumps(options)],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": SRC},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self._processes.append(process)
        return process

    def start_and_wait(self, *kinds: str) -> None:
        """Some more, until all of them have begun. The first ones begin the time that counts."""
        started = [self.start(kind) for kind in kinds]
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        if self._until is None:
            self._until = time.monotonic() + self._seconds
        for process in started:
            assert process.stdin is not None
            process.stdin.write(f"{self._until}\n")
            process.stdin.close()

    def result(self, successor: Server | None = None) -> Result:
        """What they did, when all have ended."""
        codes = [process.wait(60) for process in self._processes]
        complaints = [
            line
            for file in sorted(self._folder.glob("*.err"))
            for line in file.read_text().splitlines()[-3:]
        ]
        assert not any(codes), f"workers ended with {codes}: {complaints}"
        records = histories.read(sorted(self._folder.glob("*.jsonl")))
        port = None if successor is None else successor.port
        return Result(histories.check(records), port, complaints)

    def kill(self) -> None:
        """Leave nothing behind."""
        for process in self._processes:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                stream.close()


@contextmanager
def workers(seconds: float, **options: Any) -> Iterator[Workers]:
    """Processes that are gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="dibs-history-") as folder:
        running = Workers(Path(folder), seconds, **options)
        try:
            yield running
        finally:
            running.kill()


@contextmanager
def joining(running: Workers, *kinds: str) -> Iterator[None]:
    """Processes that come while something happens."""
    thread = threading.Thread(target=running.start_and_wait, args=kinds)
    thread.start()
    yield
    thread.join()


# ---- Sentinel

SENTINEL_USERS = ("tasks", "threads", "tasks", "threads")


@contextmanager
def sentinel_at_work(
    seconds: float, config: tuple[str, ...] = (), **options: Any
) -> Iterator[tuple[Service, Workers]]:
    """Three sentinels, a master, two replicas, and four processes that use them."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dibs-sentinel-")))

        def start(engine: Any = "valkey", **options: Any) -> Server:
            return stack.enter_context(Server.start(engine, **options))

        service = stack.enter_context(
            sentinel_service(start, folder, down_after_ms=1000, config=config)
        )
        options["servers"] = [server.port for server in service.servers]
        running = stack.enter_context(workers(seconds, target=service.url, **options))
        running.start_and_wait(*SENTINEL_USERS)
        time.sleep(2)
        yield service, running


def sentinel_kill(seconds: float) -> Result:
    """The master is killed, and comes back, empty, when another has taken its place."""
    with sentinel_at_work(seconds) as (service, running):
        service.master.kill()
        successor = service.promoted()
        time.sleep(1)
        service.master.restart()
        return running.result(successor)


def sentinel_stop(seconds: float) -> Result:
    """The master is stopped, and resumes when another has taken its place."""
    with sentinel_at_work(seconds) as (service, running):
        service.master.freeze()
        successor = service.promoted()
        time.sleep(1)
        service.master.thaw()
        return running.result(successor)


def sentinel_switch(seconds: float) -> Result:
    """SENTINEL FAILOVER: a replica is promoted while the master is well."""
    with sentinel_at_work(seconds) as (service, running):
        service.sentinels[0].failover()
        return running.result(service.promoted())


def sentinel_switch_joining(seconds: float, config: tuple[str, ...] = ()) -> Result:
    """The same, while further processes start."""
    with sentinel_at_work(seconds, config) as (service, running):
        with joining(running, "tasks", "threads"):
            service.sentinels[0].failover()
        successor = service.promoted()
        eventually(lambda: service.sentinels[0].master_port() == successor.port, within=30)
        running.start_and_wait("tasks", "threads")
        return running.result(successor)


def sentinel_switch_joining_1(seconds: float) -> Result:
    """The same with `min-replicas-to-write 1`."""
    return sentinel_switch_joining(seconds, MIN_REPLICAS)


def sentinel_switch_joining_2(seconds: float) -> Result:
    """The same with `min-replicas-to-write 2`: all replicas that there are."""
    return sentinel_switch_joining(seconds, (*MIN_REPLICAS, "--min-replicas-to-write", "2"))


def sentinel_kill_1(seconds: float) -> Result:
    """The master is killed, with `min-replicas-to-write 1`."""
    with sentinel_at_work(seconds, MIN_REPLICAS) as (service, running):
        service.master.kill()
        return running.result(service.promoted())


MIN_REPLICAS = ("--min-replicas-to-write", "1", "--min-replicas-max-lag", "2")


# ---- one address


def address_switch(seconds: float) -> Result:
    """A replica is promoted by hand behind one address; the old master closes no connection."""
    with (
        Server.start() as old,
        Server.start(config=("--replicaof", f"127.0.0.1 {old.port}")) as new,
        FaultProxy(old.port) as proxy,
        workers(seconds, target=proxy.url, servers=[old.port, new.port]) as running,
    ):
        eventually(lambda: is_in_sync(new), within=30)
        running.start_and_wait(*SENTINEL_USERS)
        time.sleep(2)
        new.client().execute_command("REPLICAOF", "NO", "ONE")
        old.client().execute_command("REPLICAOF", "127.0.0.1", new.port)
        proxy.move_to(new.port)
        return running.result(new)


# ---- cluster


@contextmanager
def cluster_at_work(
    seconds: float, **options: Any
) -> Iterator[tuple[list[Server], list[Server], Workers]]:
    """Three masters with a replica each, and four processes that use them."""
    with ExitStack() as stack:

        def start(engine: Any = "valkey", **options: Any) -> Server:
            return stack.enter_context(Server.start(engine, **options))

        masters, replicas = start_replicated_cluster(start)
        target = "redis+cluster://" + ",".join(f"127.0.0.1:{each.port}" for each in masters)
        running = stack.enter_context(workers(seconds, target=target, **options))
        running.start_and_wait(*SENTINEL_USERS)
        time.sleep(2)
        yield masters, replicas, running


def cluster_kill(seconds: float) -> Result:
    """A master is killed; its replica takes its slots."""
    with cluster_at_work(seconds) as (masters, replicas, running):
        masters[1].kill()
        eventually(lambda: is_master(replicas[1]), within=30)
        return running.result(replicas[1])


def cluster_stop(seconds: float) -> Result:
    """A master is stopped, and resumes when its replica has taken its slots."""
    with cluster_at_work(seconds) as (masters, replicas, running):
        masters[1].freeze()
        eventually(lambda: is_master(replicas[1]), within=30)
        time.sleep(1)
        masters[1].thaw()
        return running.result(replicas[1])


def cluster_failover(seconds: float) -> Result:
    """CLUSTER FAILOVER, twice: there and back."""
    with cluster_at_work(seconds) as (masters, replicas, running):
        for taker, giver in ((replicas[1], masters[1]), (masters[1], replicas[1])):
            eventually(lambda taker=taker: is_in_sync(taker), within=30)
            taker.client().execute_command("CLUSTER", "FAILOVER")
            eventually(lambda taker=taker: is_master(taker), within=30)
            eventually(lambda giver=giver: not is_master(giver), within=30)
        return running.result()


def cluster_reshard(seconds: float) -> Result:
    """2000 slots move from the first master to the second, and back, with their keys."""
    with cluster_at_work(seconds, keys=_keys_below(2000)) as (masters, _, running):
        one, two, three = masters
        reshard(range(2000), one, two, three)
        reshard(range(2000), two, one, three)
        return running.result()


def cluster_interrupted(seconds: float) -> Result:
    """Slots begin to move and stay so: half of each slot's keys would be on either side."""
    keys = _keys_below(2000)
    with cluster_at_work(seconds, keys=keys) as (masters, _, running):
        one, two, three = masters
        slots = sorted({slot_of(f"{kind}:{key}") for key in keys for kind in ("hold", "fenced")})
        for slot in slots:
            if slot < 5461:
                open_slot(slot, one, two)
        time.sleep(seconds / 2)
        for slot in slots:
            if slot < 5461:
                reshard([slot], one, two, three)
        return running.result()


def _keys_below(slot: int) -> list[str]:
    """Keys whose leases are in the first slots."""
    names = (f"key:{number}" for number in range(1_000_000))
    found = (name for name in names if slot_of(f"hold:{name}") < slot)
    return [next(found) for _ in range(histories.KEYS)]


# ---- the table

SCENARIOS: dict[str, Callable[[float], Result]] = {
    "sentinel kill": sentinel_kill,
    "sentinel kill, min-replicas-to-write 1": sentinel_kill_1,
    "sentinel stop": sentinel_stop,
    "sentinel switch": sentinel_switch,
    "sentinel switch, processes joining": sentinel_switch_joining,
    "sentinel switch, joining, min-replicas-to-write 1": sentinel_switch_joining_1,
    "sentinel switch, joining, min-replicas-to-write 2": sentinel_switch_joining_2,
    "one address, promoted by hand": address_switch,
    "cluster kill": cluster_kill,
    "cluster stop": cluster_stop,
    "cluster failover": cluster_failover,
    "cluster reshard": cluster_reshard,
    "cluster interrupted reshard": cluster_interrupted,
}
COLUMNS = (
    "scenario", "leases", "overlaps, copied", "overlaps, not copied", "fences", "done twice",
    "loaded twice", "unguarded holds / once", "outage",
)  # fmt: skip


def row(name: str, result: Result) -> list[str]:
    """One line of the table."""
    verdict = result.verdict
    copied = len(verdict.copied_overlaps(result.successor))
    if result.successor is None:
        copied = len(verdict.overlaps)
    return [
        name,
        str(verdict.records["hold"] + verdict.records["fenced"]),
        str(copied),
        str(len(verdict.overlaps) - copied),
        str(verdict.fences),
        str(verdict.executions),
        str(verdict.loads),
        f"{verdict.unguarded['hold']} / {verdict.unguarded['once']}",
        f"{verdict.outage:.1f} s",
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="scenarios whose name contains this")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--verbose", action="store_true")
    asked = parser.parse_args()
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|", flush=True)
    broken = 0
    for name, scenario in SCENARIOS.items():
        for _ in range(asked.times if asked.only in name else 0):
            result = scenario(asked.seconds)
            cells = row(name, result)
            broken += int(cells[2])
            print("| " + " | ".join(cells) + " |", flush=True)
            if asked.verbose:
                for each in result.verdict.overlaps[:20]:
                    print(each)
                print("\n".join(result.complaints))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
