"""How long there is no leader after one resigned, was killed or stopped, or Redis failed over.

    python -m tests.handovers                 every scenario, a table on the terminal
    python -m tests.handovers --times 3       fewer hand-overs of each
    python -m tests.handovers --only kill     scenarios whose name contains the word

Each candidate is a process. Their times are of one monotonic clock, that of the machine.
"""

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from dibs.testing import Child, Server

from .topologies import sentinel_service


async def stand(url: str, ttl: float) -> None:
    """A candidate: says when it is elected, deposed and resigned, and stands again."""
    import asyncio
    import contextlib
    import signal
    from time import monotonic

    from dibs import AsyncDibs, LeaseLost

    async def lead() -> None:
        while True:
            fence = None
            try:
                async with dibs.leader("indexer", ttl=ttl) as leader:
                    fence = leader.fence
                    print("elected", monotonic(), fence, flush=True)
                    await asyncio.Event().wait()
            except LeaseLost:
                print("deposed", monotonic(), fence, flush=True)
            except asyncio.CancelledError:
                if fence is not None:
                    print("resigned", monotonic(), fence, flush=True)
                raise

    async with AsyncDibs(url) as dibs:
        task = asyncio.create_task(lead())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        print("ready", flush=True)
        with contextlib.suppress(asyncio.CancelledError):
            await task


class Change:
    """One line of a candidate."""

    def __init__(self, line: str) -> None:
        self.kind, at, fence = line.split()
        self.at, self.fence = float(at), int(fence)


@dataclass
class Election:
    """Candidates, and who leads."""

    url: str
    ttl: float
    stack: ExitStack
    candidates: list[Child] = field(default_factory=list[Child])
    fences: list[int] = field(default_factory=list[int])

    def join(self) -> Child:
        """Another candidate."""
        child = self.stack.enter_context(Child(stand, self.url, self.ttl))
        assert child.line(within=30) == "ready"
        self.candidates.append(child)
        return child

    def elected(self, *, within: float = 30.0) -> tuple[Child, Change]:
        """Who is elected next, and when."""
        give_up = time.monotonic() + within
        while time.monotonic() < give_up:
            for child in self.candidates:
                if not child._lines.empty():
                    change = Change(child.line())
                    if change.kind == "elected":
                        self.fences.append(change.fence)
                        return child, change
            time.sleep(0.002)
        raise AssertionError(f"nobody was elected within {within:g} s")


@dataclass
class Measured:
    """What a scenario showed."""

    gaps: list[float]
    """Seconds from the fault to the next election."""
    fences: list[int]
    late: list[float] = field(default_factory=list[float])
    """Seconds for which the old leader continued after it could run again."""
    kept: int = 0
    """Faults after which the same leader continued to lead."""

    @property
    def fences_grow(self) -> bool:
        return self.fences == sorted(set(self.fences))


def resign(election: Election, times: int) -> Measured:
    """SIGTERM: the leader ends its block."""
    return _replaced(election, times, lambda child: os.kill(child.pid, signal.SIGTERM))


def kill(election: Election, times: int) -> Measured:
    """SIGKILL: the lease runs out."""
    return _replaced(election, times, lambda child: os.kill(child.pid, signal.SIGKILL))


def _replaced(election: Election, times: int, end: Callable[[Child], None]) -> Measured:
    gaps: list[float] = []
    leader, _ = election.elected()
    for _ in range(times):
        election.join()
        time.sleep(min(election.ttl / 5, 0.6))
        election.candidates.remove(leader)
        since = time.monotonic()
        end(leader)
        successor, change = election.elected(within=election.ttl + 30)
        gaps.append(change.at - since)
        leader.kill()
        leader = successor
    return Measured(gaps, election.fences)


def stop(election: Election, times: int) -> Measured:
    """SIGSTOP: the leader is stopped until another one leads, and then resumes."""
    measured = Measured([], election.fences)
    leader, _ = election.elected()
    for _ in range(times):
        since = time.monotonic()
        leader.freeze()
        successor, change = election.elected(within=election.ttl + 30)
        measured.gaps.append(change.at - since)
        time.sleep(0.5)
        continued = time.monotonic()
        leader.thaw()
        change = Change(leader.line(within=30))
        assert change.kind == "deposed", change.kind
        measured.late.append(change.at - continued)
        leader = successor
    return measured


SCENARIOS: dict[str, Callable[[Election, int], Measured]] = {
    "resign": resign,
    "kill": kill,
    "stop": stop,
}


def on_one_server(name: str, ttl: float, times: int) -> Measured:
    """Three candidates, one Valkey."""
    with ExitStack() as stack:
        server = stack.enter_context(Server.start("valkey"))
        election = Election(server.url, ttl, stack)
        for _ in range(3):
            election.join()
        return SCENARIOS[name](election, times)


def failover(ttl: float, times: int) -> Measured:
    """The master of a Sentinel service is killed; a replica takes its place after two seconds."""
    measured = Measured([], [])
    for _ in range(times):
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dibs-leader-")))

            def start(
                engine: str = "valkey", stack: ExitStack = stack, **options: object
            ) -> Server:
                return stack.enter_context(Server.start(engine, **options))  # type: ignore[arg-type]

            service = stack.enter_context(sentinel_service(start, folder, down_after_ms=1000))
            election = Election(service.url, ttl, stack)
            for _ in range(3):
                election.join()
            election.elected()
            time.sleep(1)
            since = time.monotonic()
            service.master.kill()
            service.promoted()
            try:
                _, change = election.elected(within=ttl + 5)
                measured.gaps.append(change.at - since)
            except AssertionError:
                measured.kept += 1
            assert election.fences == sorted(set(election.fences)), election.fences
    return measured


COLUMNS = (
    "fault", "ttl", "hand-overs", "the next one leads after: median (longest)", "leader kept",
    "fences grow", "old leader stopped after SIGCONT: median (longest)",
)  # fmt: skip


def row(name: str, ttl: float, measured: Measured) -> str:
    """One line of the table."""

    def span(values: list[float]) -> str:
        if not values:
            return "–"
        return f"{statistics.median(values):.3f} s ({max(values):.3f} s)"

    cells = [
        name, f"{ttl:g} s", str(len(measured.gaps)), span(measured.gaps), str(measured.kept),
        "yes" if measured.fences_grow else "NO", span(measured.late),
    ]  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--times", type=int, default=10)
    asked = parser.parse_args()
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|", flush=True)
    wrong = 0
    for name in SCENARIOS:
        if asked.only in name:
            measured = on_one_server(name, 3.0, asked.times)
            wrong += not measured.fences_grow
            print(row(name, 3.0, measured), flush=True)
    for ttl in (15.0, 2.0):
        if asked.only in "failover":
            print(row("failover", ttl, failover(ttl, max(asked.times // 3, 1))), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
