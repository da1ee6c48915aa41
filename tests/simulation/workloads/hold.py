"""hold and limit: so many holders of a key, extensions that count, nothing left behind."""

import asyncio
from random import Random
from typing import Any, ClassVar

from dibs import AsyncDibs, Busy, LeaseLost, Unavailable
from dibs._async.hold import AsyncLease

from ..faults import LATE, USUAL
from ..fixed_seeds import FIRST_WITH_MORE
from ..system import Process
from ..world import World
from .base import ANSWERED, Workload, cancelled_after
from .holders import Holders


class Hold(Workload):
    """Holds, renewed or extended or neither, of two keys, one with fences; some are cancelled."""

    name = "hold"
    kinds = (*USUAL, *LATE, "kill", "restart", "failover")
    limit: int | None = None
    answered: ClassVar[float] = ANSWERED

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.ttl = self.random.choice((0.4, 1.0, 2.0, 5.0, 30.0, 30.0))
        self.renews = self.random.choice((0.0, 0.4, 1.0))
        self.extends = self.random.choice((0.0, 0.7))
        self.keys = {key: Holders(world, key, self.limit or 1) for key in ("k:1", "k:2")}

    async def actor(self, process: Process, dibs: AsyncDibs, random: Random) -> None:
        for _ in range(random.randrange(4, 9)):
            wait, since = random.choice((0, 0.2, 1.0, 3.0)), process.awake
            task = process.spawn(self._hold(process, dibs, random, wait))
            try:
                if random.random() < 0.12:
                    self.world.counts["cancelled"] += 1
                    await cancelled_after(task, random.random() * 0.6)
                await task
            except (Busy, Unavailable) as error:
                self.world.counts[type(error).__name__] += 1
                self.within(process, since, wait + self.answered, type(error).__name__)
            except LeaseLost:
                self.world.counts["lost"] += 1
            except asyncio.CancelledError:
                pass
            await asyncio.sleep(random.random() * 0.3)

    async def _hold(self, process: Process, dibs: AsyncDibs, random: Random, wait: float) -> None:
        key, since = random.choice(tuple(self.keys)), process.awake
        options: dict[str, Any] = {"renew": random.random() < self.renews, "fence": key == "k:1"}
        holders = self.keys[key]
        async with dibs.hold(key, ttl=self.ttl, wait=wait, limit=self.limit, **options) as lease:
            self.within(process, since, wait + ANSWERED, "hold")
            entry = holders.enter(lease, process)
            try:
                await self._work(lease, holders, random)
            finally:
                holders.leave(entry)

    async def _work(self, lease: AsyncLease, holders: Holders, random: Random) -> None:
        for _ in range(random.choice((1, 1, 3))):
            if random.random() < self.extends:
                await self._extend(lease, random.choice((0.5, 5.0)))
            await asyncio.sleep(random.choice((0.001, 0.05, 0.3, 1.2)))
            holders.check()

    async def _extend(self, lease: AsyncLease, ttl: float) -> None:
        try:
            self.world.counts["extended"] += await lease.extend(ttl)
        except Unavailable:
            self.world.counts["extension unavailable"] += 1

    async def settled(self) -> None:
        await asyncio.sleep(1.0)
        for key, value in self.leftovers().items():
            self.world.violate(f"{key!r} is left behind: {value!r}")


class All(Hold):
    """hold_all of two of three keys, named in any order, some with fences; beside single holds."""

    name = "all"
    answered = 3 * ANSWERED
    """The first attempt, one that waits, and the extension at its end."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.keys["k:3"] = Holders(world, "k:3")

    async def _hold(self, process: Process, dibs: AsyncDibs, random: Random, wait: float) -> None:
        if random.random() < 0.25:
            return await super()._hold(process, dibs, random, wait)
        keys, since = random.sample(tuple(self.keys), 2), process.awake
        options: dict[str, Any] = {"renew": random.random() < self.renews}
        options["fence"] = "k:1" in keys
        async with dibs.hold_all(keys, ttl=self.ttl, wait=wait, **options) as leases:
            self.within(process, since, wait + self.answered, "hold_all")
            entries = {key: self.keys[key].enter(leases[key], process) for key in keys}
            try:
                for key in keys:
                    await self._work(leases[key], self.keys[key], random)
            finally:
                for key, entry in entries.items():
                    self.keys[key].leave(entry)


class AllOfSlots(All):
    """The same on a cluster whose slots move."""

    name = "all_of_slots"
    topology = "cluster"
    kinds = (*USUAL, *LATE, "kill", "restart", "failover", "move", "move")


class Limit(Hold):
    """The same with two permits for each key."""

    name = "limit"
    actors = 3
    limit = 2


class Late(Hold):
    """hold, where the only faults are packets that arrive late.

    In seeds from `FIRST_WITH_MORE` on short extensions are followed by a long one: a copy of a
    short one that is executed after it must not count.
    """

    name = "late"
    kinds = LATE
    more_kinds = ()

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.extends_twice = int(world.seed.rpartition("/")[2]) >= FIRST_WITH_MORE
        if self.extends_twice:
            self.ttl = self.random.choice((0.4, 1.0, 2.0))

    async def _work(self, lease: AsyncLease, holders: Holders, random: Random) -> None:
        if self.extends_twice and random.random() < 0.5:
            for ttl in (0.5, 0.5, 0.5, 5.0):
                await self._extend(lease, ttl)
                await asyncio.sleep(0.1)
            await asyncio.sleep(2.4)
            holders.check()
        await super()._work(lease, holders, random)


class SwitchedMaster(Hold):
    """hold on a Sentinel service: its master changes, in order or with writes that are lost."""

    name = "sentinel"
    topology = "sentinel"
    kinds = (*USUAL, *LATE, "kill", "switch", "switch")


class MovingSlots(Hold):
    """hold on a cluster whose slots move from node to node."""

    name = "cluster"
    topology = "cluster"
    kinds = (*USUAL, *LATE, "kill", "restart", "failover", "move", "move")
