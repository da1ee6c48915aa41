"""A workload that is wrong on purpose, for the tests of the simulation."""

import asyncio
from random import Random

from dibs import AsyncDibs, Busy, Unavailable

from ..system import Process
from .base import Workload


class Mistaken(Workload):
    """Expects that no caller is ever refused."""

    name = "mistaken"

    async def actor(self, process: Process, dibs: AsyncDibs, random: Random) -> None:
        for _ in range(3):
            try:
                async with dibs.hold("k", ttl=5):
                    await asyncio.sleep(0.2)
            except Busy:
                self.world.violate("k: refused")
            except Unavailable:
                pass
