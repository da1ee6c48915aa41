"""leader: one at a time, fences that grow, and somebody soon after all is well again."""

import asyncio
from random import Random

from dibs import AsyncDibs, LeaseLost, Unavailable

from ..faults import LATE, SECONDS, USUAL
from ..system import BEGIN, CLOCK, Process
from ..world import World
from .base import Workload
from .holders import Holders

_AFTER = 8.0
"""Seconds after the last fault, in which a leader must be elected."""


class Leader(Workload):
    """Processes that want to lead, lead for a while, resign and want to lead again."""

    name = "leader"
    kinds = (*USUAL, *LATE, "kill", "restart", "failover")
    actors = 1

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.ttl = self.random.choice((1.0, 2.0, 4.0))
        self.holders = Holders(world, "leader")
        self.led_at = 0.0

    async def actor(self, process: Process, dibs: AsyncDibs, random: Random) -> None:
        while CLOCK.now < BEGIN + 2 * SECONDS + _AFTER:
            try:
                async with dibs.leader("leader", ttl=self.ttl) as lease:
                    entry = self.holders.enter(lease, process)
                    try:
                        await self._lead(random)
                    finally:
                        self.holders.leave(entry)
            except (LeaseLost, Unavailable) as error:
                self.world.counts[type(error).__name__] += 1
            await asyncio.sleep(random.random() * 0.2)

    async def _lead(self, random: Random) -> None:
        for _ in range(random.randrange(1, 10)):
            self.led_at = CLOCK.now
            await asyncio.sleep(0.3)
            self.holders.check()
        self.led_at = CLOCK.now

    async def settled(self) -> None:
        if self.led_at < BEGIN + 2 * SECONDS + _AFTER - 1.0:
            led = self.led_at - BEGIN
            self.world.violate(f"nobody leads since {led:.2f}")
        for key, value in self.leftovers().items():
            self.world.violate(f"{key!r} is left behind: {value!r}")
