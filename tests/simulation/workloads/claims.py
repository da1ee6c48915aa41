"""once and claim: a submission runs once, and its record stays for its window."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

from dibs import AsyncDibs, Duplicate, LeaseLost, Unavailable
from dibs._async.claim import AsyncClaim
from dibs.events import Event

from ..faults import LATE, USUAL
from ..system import CLOCK, Process
from ..world import World
from .base import ANSWERED, Workload, cancelled_after

_ENDS = frozenset({"completed", "released", "late", "leaked"})


class WorkFailed(Exception):
    """What a body raises."""


class Run:
    """One execution of a submission."""

    def __init__(self, claim: AsyncClaim, process: Process, number: int, asked_at: float) -> None:
        self.claim = claim
        self.process = process
        self.result = {"run": number}
        self.asked_at = asked_at
        self.began_at = CLOCK.now
        self.is_running = True
        self.worked_until = 0.0
        """When its body has ended: what it leaves lasts from then on."""
        self.ended_at: float | None = None
        """When its end was confirmed, or could not be."""
        self.is_kept = self.is_kept_free = False
        """What it left is on the server: it was ours, or the key was free."""

    @property
    def is_sure(self) -> bool:
        """It runs, and no other execution may."""
        return self.is_running and not self.process.is_dead and not self.claim.lost


class Submission:
    """All executions of one key."""

    def __init__(self, world: World, key: str, window: float) -> None:
        self._world = world
        self._key = key
        self._window = window
        self._runs: list[Run] = []
        self.unanswered: list[float] = []
        """When calls began that met an outage or were cancelled: they may have had the key."""
        self.results: list[Any] = []

    def begin(self, claim: AsyncClaim, process: Process, asked_at: float) -> Run:
        """A body begins: no other may run, and none may have left something."""
        run = Run(claim, process, len(self._runs) + 1, asked_at)
        self._world.note("runs", self._key, process.name, run.result)
        for other in self._runs:
            self._compare(run, other)
        self._runs.append(run)
        return run

    def _compare(self, run: Run, other: Run) -> None:
        if self._world.has_lost(other.began_at):
            return
        if other.is_sure:
            self._world.violate(f"{self._key}: two run at once, {other.process} and {run.process}")
        if not self._is_in_window(other):
            return
        assert other.ended_at is not None
        since = CLOCK.now - other.worked_until
        age = f"{since:.2f} s after its end, with a window of {self._window} s"
        if other.is_kept:
            self._world.violate(f"{self._key}: {run.process} runs it again {age}")
        elif other.is_kept_free and run.asked_at > other.ended_at and not self._overtaken(other):
            self._world.violate(
                f"{self._key}: {run.process} runs it again {age}; the lease of {other.process} had"
                " run out without anybody taking the key"
            )

    def _overtaken(self, run: Run) -> bool:
        """Whether another had asked for the key before *run* could record its end."""
        assert run.ended_at is not None
        later = [each.asked_at for each in self._runs if each.began_at >= run.ended_at]
        unanswered = [at for at in self.unanswered if at >= run.began_at]
        return any(at <= run.ended_at for at in later + unanswered)

    def _is_in_window(self, run: Run) -> bool:
        """Whether what *run* has left, if anything, is still there: counted from its end."""
        return run.ended_at is not None and CLOCK.now < run.worked_until + self._window

    def end(self, run: Run, how: str | None, *, leaves: bool) -> None:
        """A body has ended. *how*: the event of its end. *leaves*: it is to leave something."""
        run.ended_at = CLOCK.now
        self._world.note("ran", self._key, run.process.name, str(how))
        self._world.counts[str(how)] += 1
        if not leaves or not run.claim.guarded:
            return
        others = [each for each in self._runs if each is not run and each.began_at >= run.began_at]
        run.is_kept = how == "completed"
        run.is_kept_free = how == "late" and not others

    def replayed(self, result: Any, asked_at: float) -> None:
        """A duplicate got *result*: that of the run whose result was kept, if there is one."""
        kept = [
            each
            for each in self._runs
            if each.is_kept
            and self._is_in_window(each)
            and each.ended_at < asked_at  # type: ignore[operator]
            and not self._world.has_lost(each.began_at)
        ]
        legal = [kept[-1].result] if kept else self.results
        if result not in legal:
            self._world.violate(f"{self._key}: replayed {result}, and not {legal}")


class Claims(Workload):
    """Submissions of a few keys, by many callers, some of which fail or are cancelled."""

    name = "claims"
    kinds = (*USUAL, *LATE, "kill", "restart", "failover", "clock")

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.options: dict[str, Any] = {
            "after": self.random.choice(("replay", "replay", "hold", "release")),
            "on_error": self.random.choice(("release", "hold")),
            "window": self.random.choice((2.5, 600.0)),
            "lease": self.random.choice((0.6, 1.0, 2.5)),
        }
        self.submissions = {
            key: Submission(world, key, self.options["window"]) for key in ("o:1", "o:2", "o:3")
        }
        self._ends: dict[asyncio.Task[Any] | None, str] = {}

    def listeners(self, process: Process) -> list[Callable[[Event], object]]:
        def remember(event: Event) -> None:
            self._ends[asyncio.current_task()] = event.kind

        remember.kinds = _ENDS  # type: ignore[attr-defined]
        return [*super().listeners(process), remember]

    async def actor(self, process: Process, dibs: AsyncDibs, random: Random) -> None:
        for _ in range(random.randrange(4, 9)):
            wait, since = random.choice((0, 0.5, 3.0)), process.awake
            task = process.spawn(self._submit(process, dibs, random, wait))
            try:
                if random.random() < 0.1:
                    await cancelled_after(task, random.random() * 0.6)
                await task
            except (Duplicate, Unavailable) as error:
                self.world.counts[type(error).__name__] += 1
                self.within(process, since, wait + ANSWERED, type(error).__name__)
            except (WorkFailed, LeaseLost) as error:
                self.world.counts[type(error).__name__] += 1
            except asyncio.CancelledError:
                self.world.counts["cancelled"] += 1
            await asyncio.sleep(random.random() * 0.4)

    async def _submit(self, process: Process, dibs: AsyncDibs, random: Random, wait: float) -> None:
        key, asked_at = random.choice(tuple(self.submissions)), CLOCK.now
        submission, run, is_done = self.submissions[key], None, False
        is_answered = False
        try:
            async with dibs.claim(key, wait=wait, **self.options) as claim:
                is_answered = True
                if claim.replayed:
                    self.world.counts["replayed"] += 1
                    submission.replayed(claim.result, asked_at)
                    return
                run = submission.begin(claim, process, asked_at)
                await self._work(claim, run, random)
                submission.results.append(run.result)
                is_done = True
        except Duplicate:
            is_answered = True
            raise
        finally:
            if not is_answered:
                submission.unanswered.append(asked_at)
            how = self._ends.pop(asyncio.current_task(), None)
            if run is not None:
                leaves = self.options["after" if is_done else "on_error"] != "release"
                submission.end(run, how, leaves=leaves)

    async def _work(self, claim: AsyncClaim, run: Run, random: Random) -> None:
        try:
            await asyncio.sleep(random.choice((0.001, 0.1, 0.6, 1.5)))
            if random.random() < 0.25:
                raise WorkFailed
            claim.complete(run.result)
        finally:
            run.is_running, run.worked_until = False, CLOCK.now

    async def settled(self) -> None:
        for key, value in self.leftovers().items():
            if not value.startswith(b"dibs1 done"):
                self.world.violate(f"{key!r} is left behind: {value!r}")
