"""Hand-over: a detached lease is continued once, by one of all who have its token."""

import asyncio
from random import Random

from dibs import AsyncDibs, Busy, LeaseLost, Unavailable
from dibs._async.hold import AsyncLease

from ..faults import LATE, USUAL
from ..system import CLOCK, Process
from ..world import World
from .base import Workload
from .holders import Holders

_MOST_HANDS = 3
"""How often a lease is handed on at most."""


class HandOver(Workload):
    """Leases that travel: every process tries to continue each token, and one may."""

    name = "handover"
    kinds = (*USUAL, *LATE, "restart", "failover")
    actors = 1

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.ttl = self.random.choice((1.0, 2.0, 20.0))
        self.holders = Holders(world, "h")
        self.continued: dict[str, float] = {}
        """Tokens that were continued, and when."""

    async def actor(self, process: Process, dibs: AsyncDibs, random: Random) -> None:
        for _ in range(5):
            try:
                async with dibs.hold(
                    "h", ttl=self.ttl, wait=random.choice((0, 2)), fence=True
                ) as lease:
                    token = await self._work(process, lease, random, 0)
                if token is not None:
                    await self._offer(token, random, 1)
            except (Busy, LeaseLost, Unavailable) as error:
                self.world.counts[type(error).__name__] += 1
            await asyncio.sleep(random.random() * 0.3)

    async def _work(
        self, process: Process, lease: AsyncLease, random: Random, hands: int
    ) -> str | None:
        entry = self.holders.enter(lease, process)
        try:
            await asyncio.sleep(random.choice((0.01, 0.3, 0.8)))
            self.holders.check()
        finally:
            self.holders.leave(entry)
        if hands < _MOST_HANDS and random.random() < 0.6:
            return await lease.detach(ttl=3)
        return None

    async def _offer(self, token: str, random: Random, hands: int) -> None:
        """Every process tries to continue it."""
        seeds = [random.random() for _ in self.world.living]
        tasks = [
            process.spawn(self._continue(process, token, Random(seed), hands))
            for process, seed in zip(self.world.living, seeds, strict=True)
        ]
        for task in tasks:
            await task

    async def _continue(self, process: Process, token: str, random: Random, hands: int) -> None:
        try:
            async with self.clients[process].hold(
                "h", ttl=self.ttl, token=token, fence=True
            ) as lease:
                self._continues(token, process)
                following = await self._work(process, lease, random, hands)
            if following is not None:
                await self._offer(following, random, hands + 1)
        except (Busy, LeaseLost, Unavailable) as error:
            self.world.counts[type(error).__name__] += 1

    def _continues(self, token: str, process: Process) -> None:
        self.world.counts["continued"] += 1
        since = self.continued.setdefault(token, CLOCK.now)
        if since < CLOCK.now and not self.world.has_lost(since):
            self.world.violate(f"h: {process} continues a token that was continued before")

    async def settled(self) -> None:
        await asyncio.sleep(max(self.ttl, 3.0) if self.ttl < 5 else 4.0)
        for key, value in self.leftovers().items():
            self.world.violate(f"{key!r} is left behind: {value!r}")
