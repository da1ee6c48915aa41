"""cached and cached_many: a read is never older than a write or an invalidation before it."""

import asyncio
import math
from collections.abc import Callable, Iterable
from random import Random
from typing import Any, NamedTuple

from dibs import AsyncDibs, Unavailable
from dibs.events import Event

from ..faults import LATE, USUAL
from ..system import CLOCK, Process
from ..world import World
from .base import ANSWERED, Workload, cancelled_after

_LONGEST_LOAD = 1.5
_PUSHED = 0.05
"""How long a notification may take on a network without faults."""


class Change(NamedTuple):
    """A change of the data that was announced: set in the cache, or invalidated there."""

    version: int
    began_at: float
    ended_at: float


class Register:
    """The truth behind one cached value: versions 0, 1, 2 …, and what was announced of them."""

    def __init__(self, world: World, key: object) -> None:
        self._world = world
        self._key = key
        self.version = 0
        self._changes: list[Change] = []
        """Those that the server has confirmed."""
        self._set: dict[int, float] = {}
        """Versions that were set in the cache, and when that was confirmed; inf: it was not."""
        self._loads: list[float] = []
        """When the loads began that are under way."""
        self._pending: set[int] = set()
        """Versions whose announcement is under way: it ends the loads before it."""

    def change(self) -> int:
        """The data has a new version."""
        self.version += 1
        self._pending.add(self.version)
        return self.version

    def announced(self, version: int) -> None:
        """The announcement of *version* has ended, confirmed or not."""
        self._pending.discard(version)

    def sets(self, version: int) -> None:
        """*version* is being set: from now on readers may see it."""
        self._set[version] = math.inf

    def confirmed(self, version: int, began_at: float) -> None:
        """The server has confirmed that *version* is set, or what was before it deleted."""
        self._changes.append(Change(version, began_at, CLOCK.now))
        if version in self._set:
            self._set[version] = CLOCK.now

    def read(self, version: int, began_at: float, reader: Process, slack: float) -> None:
        """A read that began at *began_at* has got *version*. *slack*: of values in memory."""
        self._world.note("read", str(self._key), version, reader.name)
        for change in self._changes:
            is_before = change.ended_at < began_at - slack and not self._is_undone(change)
            is_later = self._set.get(version, -math.inf) >= change.began_at
            if change.version > version and is_before and not is_later:
                age = CLOCK.now - change.ended_at
                self._world.violate(
                    f"{self._key}: {reader} reads {version}, {age:.2f} s after {change.version}"
                    " was announced"
                )
                return

    def _is_undone(self, change: Change) -> bool:
        """Whether a replica has taken over that did not have it."""
        # By when it may have been executed: its reply may come after the failover.
        losses = [loss for loss in self._world.losses if loss[0]]
        return any(since - 1 <= change.ended_at and change.began_at <= at for since, at in losses)

    def load_begins(self) -> float:
        """A load begins; on a network without faults it is the only one."""
        began_at = CLOCK.now
        last = max([change.ended_at for change in self._changes], default=0.0)
        overlap = [each for each in self._loads if each > last + _PUSHED]
        if overlap and not self._pending and not self._world.plan.faults:
            self._world.violate(f"{self._key}: two loads at once, and nothing is wrong")
        self._loads.append(began_at)
        return began_at

    def load_ends(self, began_at: float) -> None:
        """A load has ended."""
        self._loads.remove(began_at)


class Outages:
    """Which processes know that the server is out."""

    def __init__(self) -> None:
        self._out: set[Process] = set()

    def listener(self, process: Process) -> Callable[[Event], object]:
        """Have it learn of the outages of *process*."""

        def learn(event: Event) -> None:
            (self._out.add if event.kind == "outage" else self._out.discard)(process)

        learn.kinds = frozenset({"outage", "recovered"})  # type: ignore[attr-defined]
        return learn

    def __contains__(self, process: Process) -> bool:
        return process in self._out


class Cached(Workload):
    """Readers and writers of two values: set, invalidated, tagged, in memory, stale."""

    name = "cached"
    kinds = (*USUAL, *LATE, "kill", "restart", "failover", "clock")
    items: tuple[int, ...] = (1, 2)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        local, stale = self.random.choice((0.0, 0.0, 0.2, 1.0)), self.random.choice((0, 0, 5.0))
        self.options: dict[str, Any] = {
            "ttl": self.random.choice((0.3, 2.0, 60.0)),
            "stale": stale,
            "local": local,
            "tags": ("group:{item}",) if self.random.random() < 0.4 else (),
            "lock_ttl": self.random.choice((1.0, 3.0)),
        }
        # A value may have been read just before a change, and its reply been late.
        self.slack = 0.0 if not local else local + 0.3 if world.plan.faults else _PUSHED
        self.loads = self.random.choice(
            ((0.001, 0.05), (0.3, 0.6, 1.0), (0.05, 0.5, _LONGEST_LOAD))
        )
        self.ways = self.random.choice(
            (("invalidate",), ("set",), ("invalidate", "set", "refresh"))
        )
        if not world.plan.may_kill:  # a late copy may replace a newer value: docs/guarantees.md
            self.ways = ("invalidate",)
        self.registers = {item: Register(world, f"item {item}") for item in self.items}
        self.outages = Outages()
        self.functions: dict[Process, Any] = {}

    def make_client(self, process: Process) -> AsyncDibs:
        url, listeners = self.world.topology.url, self.listeners(process)
        dibs = AsyncDibs(url, on_outage="open", listeners=listeners)
        self.functions[process] = self.make_function(process, dibs)
        return dibs

    def listeners(self, process: Process) -> list[Callable[[Event], object]]:
        return [*super().listeners(process), self.outages.listener(process)]

    def make_function(self, process: Process, dibs: AsyncDibs) -> Any:
        """The cached function of *process*."""
        random = Random(f"{self.world.seed}/{process.name}/loads")

        @dibs.cached("value:{item}", **self.options)
        async def value(item: int) -> int:
            return (await self.load([item], random))[item]

        return value

    async def load(self, items: Iterable[int], random: Random) -> dict[int, int]:
        """Read the data, which takes a while."""
        registers = {item: self.registers[item] for item in items}
        versions = {item: register.version for item, register in registers.items()}
        began = [register.load_begins() for register in registers.values()]
        self.world.note("load", versions)
        self.world.counts["loads"] += 1
        try:
            await asyncio.sleep(random.choice(self.loads))
        finally:
            for register, at in zip(registers.values(), began, strict=True):
                register.load_ends(at)
        return versions

    async def actor(self, process: Process, dibs: AsyncDibs, random: Random) -> None:
        function = self.functions[process]
        for _ in range(random.randrange(6, 16)):
            if random.random() < 0.3:
                await self._change(process, dibs, function, random)
            else:
                task = process.spawn(self._read(process, function, random))
                try:
                    if random.random() < 0.08:
                        await cancelled_after(task, random.random() * 0.3)
                    await task
                except asyncio.CancelledError:
                    self.world.counts["cancelled"] += 1
            await asyncio.sleep(random.random() * 0.3)

    # ---- reading

    async def _read(self, process: Process, function: Any, random: Random) -> None:
        began_at, awake, is_out = CLOCK.now, process.awake, process in self.outages
        versions = await self.ask(function, random)
        self.world.counts["reads"] += 1
        for item, version in versions.items():
            # In an outage a process knows of no invalidation; it loads directly, once for all.
            if not is_out:
                self.registers[item].read(version, began_at, process, self.slack)
        self.within(process, awake, 3 * ANSWERED + 4 * _LONGEST_LOAD, "a read")

    async def ask(self, function: Any, random: Random) -> dict[int, int]:
        """One call."""
        item = random.choice(self.items)
        return {item: await function(item)}

    # ---- changing

    async def _change(
        self, process: Process, dibs: AsyncDibs, function: Any, random: Random
    ) -> None:
        item, way = random.choice(self.items), random.choice(self.ways)
        register = self.registers[item]
        version, began_at, awake = register.change(), CLOCK.now, process.awake
        self.world.note("change", str(item), version, way, process.name)
        try:
            is_confirmed = await self.announce(dibs, function, item, version, way)
        except Unavailable:
            is_confirmed = False
        register.announced(version)
        self.world.counts[f"{way} {is_confirmed}"] += 1
        if way != "refresh":
            self.within(process, awake, ANSWERED, way)
        if is_confirmed:
            self.world.note("confirmed", str(item), version)
            register.confirmed(version, began_at)

    async def announce(
        self, dibs: AsyncDibs, function: Any, item: int, version: int, way: str
    ) -> bool:
        """Have readers get the new version."""
        if way == "set":
            self.registers[item].sets(version)
            return await function.set(item, value=version)
        if way == "refresh":
            await function.refresh(item)
            return False  # it may have joined a load that began before
        if self.options["tags"] and version % 2:
            return await dibs.invalidate_tag(f"group:{item}")
        return await function.invalidate(item)

    async def settled(self) -> None:
        await asyncio.sleep(self.options["lock_ttl"])
        for key, value in self.leftovers().items():
            if key.startswith(b"lock:"):
                self.world.violate(f"{key!r} is left behind: {value!r}")


class CachedMany(Cached):
    """The same with a function of many items."""

    name = "cached_many"
    items = (1, 2, 3)

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.ways = ("invalidate",)

    def make_function(self, process: Process, dibs: AsyncDibs) -> Any:
        random = Random(f"{self.world.seed}/{process.name}/loads")

        @dibs.cached_many("value:{item}", **self.options)
        async def values(items: list[int]) -> dict[int, int]:
            return await self.load(items, random)

        return values

    async def ask(self, function: Any, random: Random) -> dict[int, int]:
        return await function(random.sample(self.items, random.randrange(1, 4)))

    async def announce(
        self, dibs: AsyncDibs, function: Any, item: int, version: int, way: str
    ) -> bool:
        if self.options["tags"] and version % 2:
            return await dibs.invalidate_tag(f"group:{item}")
        return await function.invalidate([item])
