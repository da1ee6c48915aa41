"""scheduled: each run happens once, on one machine, not before its time, and none is left out."""

import asyncio
from random import Random
from typing import Any

from dibs import AsyncDibs
from dibs._async.scheduled import AsyncScheduledRun

from ..faults import LATE, SECONDS, USUAL
from ..server import Session
from ..system import BEGIN, CLOCK, EPOCH, Process
from ..world import World
from .base import Workload

_END = BEGIN + 3 * SECONDS
_LAST_KEY = b"scheduled-last:s"
_SOON = 0.2
"""How late a run begins at most, if nothing goes wrong."""
_AT_ONCE = 1.5
"""How late a run may be on a network without faults, in seconds."""
_MOST_EARLY = 0.001
"""Seconds: runs are due by the server's clock, which is read in milliseconds."""


class Execution:
    """One execution of a run."""

    def __init__(self, run: AsyncScheduledRun, process: Process) -> None:
        self.at = run.at.timestamp()
        self.lease = run.lease
        self.process = process
        self.began_at = CLOCK.now
        self.is_running = True
        self.is_over = self.is_lost = False
        """The server has recorded that it has finished. It has ended without its lease."""

    @property
    def is_sure(self) -> bool:
        """It runs, and no other execution may."""
        return self.is_running and not self.process.is_dead and not self.lease.lost


class Scheduled(Workload):
    """A function that is due every two seconds, on all processes."""

    name = "scheduled"
    kinds = (*USUAL, *LATE, "kill", "restart", "failover", "clock")
    actors = 1

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.every = self.random.choice((1.0, 2.0))
        self.options: dict[str, Any] = {
            "key": "s", "every": self.every, "ttl": self.random.choice((1.0, 2.0, 5.0)),
            "missed": self.random.choice(("once", "skip")),
        }  # fmt: skip
        # Shorter than the interval, also if it begins a little late: nothing is missed by itself.
        self.lengths = self.random.choice(((0.01,), (0.01, 0.3), (0.3, self.every - 0.5)))
        self.runs: list[Execution] = []
        self._observe, world.server.observe = world.server.observe, self._look

    # ---- running

    async def actor(self, process: Process, dibs: AsyncDibs, random: Random) -> None:
        @dibs.scheduled(**self.options)
        async def work(run: AsyncScheduledRun) -> None:
            await self._work(run, process, random)

        async with dibs.scheduler(drain=2):
            await asyncio.sleep(_END - CLOCK.now)

    async def _work(self, run: AsyncScheduledRun, process: Process, random: Random) -> None:
        execution = Execution(run, process)
        self._begins(execution)
        try:
            await asyncio.sleep(random.choice(self.lengths))
        finally:
            execution.is_running, execution.is_lost = False, run.lease.lost

    # ---- checking

    def _begins(self, execution: Execution) -> None:
        self.world.note("runs", f"{execution.at:.0f}", execution.process.name)
        self.world.counts["runs"] += 1
        if execution.at > CLOCK.wall() + _MOST_EARLY:
            early = execution.at - CLOCK.wall()
            self.world.violate(f"{execution.process} runs {early:.2f} s too early")
        late = CLOCK.wall() - execution.at
        if not self.world.plan.faults and late > _SOON:
            self.world.violate(f"{execution.process} runs {late:.2f} s late, and nothing is wrong")
        for other in self.runs:
            if self.world.has_lost(other.began_at):
                continue
            if other.is_sure:
                self.world.violate(f"two run at once, {other.process} and {execution.process}")
            if other.is_over and other.at == execution.at:
                self.world.violate(
                    f"{execution.process} executes a run that {other.process} has finished"
                )
        self.runs.append(execution)

    def _look(self, session: Session | None, words: list[bytes], reply: Any) -> None:
        """A run that ended without its lease must not be recorded as over by who ran it.

        One that is recorded must not run again. That its function has returned says less: until the
        server has heard of it, its lease may run out.
        """
        assert self._observe is not None
        self._observe(session, words, reply)
        # The script that records: three keys, then the time of the run and who records it.
        if words[0] in (b"EVAL", b"EVALSHA") and words[2:4] == [b"3", _LAST_KEY]:
            at, holder = int(words[6]) / 1000, words[7].decode()
            own = [
                execution
                for execution in self.runs
                if holder.startswith(f"{execution.process.name}:")
            ]
            last = next((execution for execution in reversed(own) if execution.at == at), None)
            if last is None or not isinstance(reply, int):
                return
            last.is_over = not last.is_lost
            if last.is_lost:
                self.world.violate(f"{last.process} records a run that it ran without a lease")

    async def settled(self) -> None:
        """Every run after the last fault was run, by one of them."""
        healed = max([fault.at + 2 * fault.length for fault in self.world.plan.faults], default=0.0)
        first = BEGIN + healed + self.options["ttl"] + 4.0
        done = {round(execution.at) for execution in self.runs if not execution.is_lost}
        last = EPOCH + _END - _AT_ONCE - max(self.lengths)
        for due in range(round(EPOCH + first), round(last)):
            if due % self.every == 0 and due not in done:
                self.world.violate(f"the run of {due - EPOCH - BEGIN:.0f} has not run")
        for key, value in self.leftovers().items():
            if key == b"scheduled:{scheduled-last:s}":
                self.world.violate(f"{key!r} is left behind: {value!r}")
