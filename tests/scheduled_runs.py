"""Five machines whose clocks are apart, killed at random: is every run completed exactly once?

    python -m tests.scheduled_runs                     1 000 runs, some minutes
    python -m tests.scheduled_runs --runs 100         fewer

A machine is a process: its clock is the real one plus an offset, at most 15 s either way; one more
is two hours behind, and must not run anything. Each has `--schedules` functions, with periods from
`--every` on; a function takes some time, and appends its run to a file when it begins and when it
ends. One machine after the other, at random, is killed (SIGKILL) and started again. At the end,
each run since all machines were up must have ended exactly once.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from dibs.testing import Child, Server

MACHINES = 5
APART = 30.0
"""Seconds between the clocks that are the furthest ahead and behind."""
WRONG = -7200.0
"""Of the machine whose clock is wrong."""


async def machine(
    url: str, file: str, offset: float, periods: dict[str, int], ttl: float, takes: float
) -> None:
    """One machine, until it is killed."""
    import asyncio
    import os
    import random
    import time

    from dibs import AsyncDibs

    log = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(what: str, key: str, run: object) -> None:
        due = int(run.at.timestamp())  # type: ignore[attr-defined]
        line = f"{what} {key} {due} {os.getpid()} {time.monotonic()} {offset}\n"
        os.write(log, line.encode())

    dibs = AsyncDibs(url, budget=2)

    def schedule(key: str, every: int) -> None:
        @dibs.scheduled(every=every, key=key, ttl=ttl)
        async def work(run: object) -> None:
            note("begin", key, run)
            await asyncio.sleep(random.uniform(0, takes))
            note("end", key, run)

    for key, every in periods.items():
        schedule(key, every)
    scheduler = dibs.scheduler()
    scheduler.clock = lambda: time.time() + offset
    async with dibs, scheduler:
        print("ready", flush=True)
        await asyncio.Event().wait()


@dataclass
class Verdict:
    """What the files say."""

    runs: int
    """Runs that were due while machines ran."""
    begun: int
    """How often a function began."""
    killed: int
    """Machines that were killed."""
    taken_over: int
    """Runs that ended on another machine, or in a later run, than they began."""
    aside: int
    """How often a function began on the machine whose clock is wrong."""
    lost: list[tuple[str, int]]
    twice: list[tuple[str, int]]
    longest: float
    """Seconds from the first beginning of a run to its end, at most."""

    @property
    def is_right(self) -> bool:
        """True: each run was completed exactly once, by machines whose clocks are right."""
        return not self.lost and not self.twice and not self.aside

    def __str__(self) -> str:
        return (
            f"| {self.runs} | {self.runs - len(self.lost)} | {len(self.twice)} |"
            f" {len(self.lost)} | {self.killed} | {self.begun - self.runs} | {self.taken_over} |"
            f" {self.aside} | {self.longest:.1f} s |"
        )


COLUMNS = (
    "runs", "completed", "completed twice", "not completed", "machines killed",
    "runs cut short", "runs taken over", "begun by the wrong clock", "longest from begin to end",
)  # fmt: skip


def check(file: Path, periods: dict[str, int], since: float, until: float, kills: int) -> Verdict:
    """Judge the runs after *since*, up to *until* (seconds since the epoch)."""
    begun: dict[tuple[str, int], list[tuple[str, float]]] = defaultdict(list)
    ended: dict[tuple[str, int], list[tuple[str, float]]] = defaultdict(list)
    aside = 0
    for line in file.read_text().splitlines():
        what, key, run, pid, at, offset = line.split()
        aside += what == "begin" and float(offset) == WRONG
        (begun if what == "begin" else ended)[key, int(run)].append((pid, float(at)))
    due = [
        (key, run)
        for key, every in periods.items()
        for run in range(int(since // every + 1) * every, int(until) + 1, every)
    ]
    counts = Counter({run: len(ended[run]) for run in due})
    spans = [ended[run][0][1] - begun[run][0][1] for run in due if ended[run]]
    return Verdict(
        runs=len(due),
        begun=sum(len(begun[run]) for run in due),
        killed=kills,
        taken_over=sum(len(begun[run]) > 1 for run in due),
        aside=aside,
        lost=[run for run in due if counts[run] == 0],
        twice=[run for run in due if counts[run] > 1],
        longest=max(spans, default=0.0),
    )


def run(
    url: str,
    runs: int,
    *,
    schedules: int,
    every: int,
    ttl: float,
    takes: float,
    seed: int,
    apart: float = APART,
    count: int = MACHINES,
) -> Verdict:
    """Run machines until *runs* were due; kill one of them at random, again and again."""
    numbers = random.Random(seed)
    spread = [apart * (number / (count - 1) - 0.5) for number in range(count)] + [WRONG]
    periods = {f"job-{number}": every + number % 20 for number in range(schedules)}
    each_second = sum(1 / period for period in periods.values())
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dibs-runs-")))
        file = folder / "runs"

        def start(number: int) -> Child:
            arguments = (url, str(file), spread[number], periods, ttl, takes)
            return stack.enter_context(Child(machine, *arguments))

        machines = [start(number) for number in range(count + 1)]
        for each in machines:
            assert each.line(within=120) == "ready"
        # By the clock that is the most ahead: what is due before, it may have seen as the past.
        since = time.time() + apart / 2 + 1
        until = since + runs / each_second + 1
        kills = 0
        while time.time() < until + apart / 2 + ttl:
            time.sleep(numbers.uniform(0.2, 2.0))
            number = numbers.randrange(count + 1)
            machines[number].kill()
            kills += 1
            time.sleep(numbers.uniform(0, 0.3))
            machines[number] = start(number)
            assert machines[number].line(within=120) == "ready"
        time.sleep(2 * (ttl + takes))
        return check(file, periods, since, until, kills)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--schedules", type=int, default=60)
    parser.add_argument("--every", type=int, default=31, help="the shortest period, in seconds")
    parser.add_argument("--ttl", type=float, default=5.0)
    parser.add_argument("--takes", type=float, default=3.0, help="seconds that a run takes at most")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with Server.start("valkey") as server:
        verdict = run(
            server.url, asked.runs, schedules=asked.schedules, every=asked.every, ttl=asked.ttl,
            takes=asked.takes, seed=asked.seed,
        )  # fmt: skip
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|")
    print(verdict)
    for name in ("lost", "twice"):
        if getattr(verdict, name):
            print(name, getattr(verdict, name)[:20])
    return 0 if verdict.is_right else 1


if __name__ == "__main__":
    sys.exit(main())
