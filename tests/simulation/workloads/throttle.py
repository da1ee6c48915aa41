"""throttle: never more than limit and burst in any window, and no call is counted twice."""

import asyncio
from random import Random
from typing import NamedTuple

from dibs import AsyncDibs, Busy, Unavailable

from ..faults import LATE, USUAL
from ..system import CLOCK, Process
from ..world import World
from .base import ANSWERED, Workload

KEY = "all"
_LONG = 36_000.0
_OWN = 4


class Call(NamedTuple):
    """A call that was let through: the server has counted it between these times."""

    asked: float
    answered: float


class Own:
    """A key that only one actor calls, and so slowly that nothing comes back."""

    def __init__(self, process: Process, random: Random) -> None:
        self.key = f"own:{process.name}:{random.random()}"
        self.passed = 0
        self.unknown = 0
        """Calls without an answer: they may have been counted."""


class Throttle(Workload):
    """Five processes, one key for all; and a key for each actor, of which nothing comes back."""

    name = "throttle"
    kinds = (*USUAL, *LATE, "kill", "restart", "failover")
    processes = 5

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.limit = self.random.choice((1, 3, 8))
        self.per = self.random.choice((0.5, 2.0, 5.0))
        self.burst = self.random.choice((1, self.limit, 2 * self.limit))
        self.calls: list[Call] = []

    async def actor(self, process: Process, dibs: AsyncDibs, random: Random) -> None:
        own = Own(process, random)
        for _ in range(random.randrange(10, 25)):
            await self._call(process, dibs)
            for _ in range(random.choice((0, 1, 4))):
                if own.passed + own.unknown > _OWN:
                    own = Own(process, random)
                await self._call_own(process, dibs, own)
            await asyncio.sleep(random.choice((0.0, 0.01, 0.1, 0.6)))

    async def _call(self, process: Process, dibs: AsyncDibs) -> None:
        since, asked = process.awake, CLOCK.now
        try:
            await dibs.throttle(KEY, limit=self.limit, per=self.per, burst=self.burst)
        except Busy as error:
            self.world.counts["Busy"] += 1
            if not 0 < error.retry_after <= self.per / self.limit * (self.burst + 1):
                self.world.violate(f"{KEY}: try again in {error.retry_after} s")
        except Unavailable:
            self.world.counts["Unavailable"] += 1
        else:
            self.world.counts["passed"] += 1
            self.calls.append(Call(asked, CLOCK.now))
            self._check()
        self.within(process, since, ANSWERED, "throttle")

    def _check(self) -> None:
        """Those that were surely counted within one window."""
        end = self.calls[-1].answered
        inside = [call for call in self.calls if call.asked >= end - self.per]
        most = self.limit + self.burst
        if len(inside) > most and not self.world.has_lost(min(call.asked for call in inside)):
            self.world.violate(f"{KEY}: {len(inside)} in {self.per} s, at most {most} may be")

    async def _call_own(self, process: Process, dibs: AsyncDibs, own: "Own") -> None:
        """One of four calls: it passes, unless four have passed or may have been counted."""
        try:
            await dibs.throttle(own.key, limit=_OWN, per=_LONG)
        except Busy:
            if own.passed + own.unknown < _OWN and self.world.plan.may_kill:
                self.world.violate(f"own: {process} is refused, {own.passed} of {_OWN} have passed")
            own.unknown += _OWN
        except Unavailable:
            own.unknown += 1
        else:
            own.passed += 1
            if own.passed > _OWN and not self.world.has_lost(0.0):
                self.world.violate(f"own: {process} has {own.passed} calls of {_OWN}")

    async def settled(self) -> None:
        """All is well: the next call is allowed when the error says so, and not before."""
        process = self.world.living[0]
        await process.spawn(self._is_true(self.clients[process]))

    async def _is_true(self, dibs: AsyncDibs) -> None:
        options = {"limit": self.limit, "per": self.per, "burst": self.burst}
        wait = 0.0
        for _ in range(self.burst + 2):
            try:
                await dibs.throttle("last", **options)  # type: ignore[arg-type]
            except Busy as error:
                wait = error.retry_after
        await asyncio.sleep(wait * 0.9)
        if wait > 0.5 and await self._is_allowed(dibs, options):  # replies may take 20 ms
            self.world.violate(f"last: allowed before the {wait:.3f} s are over")
        await asyncio.sleep(wait * 0.1 + 0.001)
        if not await self._is_allowed(dibs, options):
            self.world.violate(f"last: refused after the {wait:.3f} s are over")

    async def _is_allowed(self, dibs: AsyncDibs, options: dict[str, float]) -> bool:
        try:
            await dibs.throttle("last", **options)  # type: ignore[arg-type]
        except Busy:
            return False
        return True
