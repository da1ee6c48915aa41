"""What all workloads have: processes with clients, actors, an end after which all must be well."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, ClassVar

from dibs import AsyncDibs, DibsError
from dibs._core.connection import DEFAULT_BUDGET
from dibs.events import Event

from ..faults import USUAL
from ..keyspace import Value
from ..system import CLOCK, Process
from ..world import World

BUDGET, CONNECT = 0.25, 2.0
"""The limits that clients have unless told otherwise."""
ANSWERED = CONNECT + 2 * BUDGET + 0.1
"""The longest time that a call may take beyond what it was told to wait: opening a connection, and
the server's silence before and after that. Simulated code takes no time."""
_MOST = 200.0
"""Seconds in which every actor must have ended."""
_GRACE = 2.0
"""Seconds after the last fault in which clients may still find out that all is well."""


class Workload:
    """Actors that use one verb, and what must be true of what they see."""

    name: ClassVar[str]
    kinds: ClassVar[tuple[str, ...]] = USUAL
    more_kinds: ClassVar[tuple[str, ...]] = ("clock", "full")
    """Those of seeds from `FIRST_WITH_MORE` on."""
    topology: ClassVar[str] = "single"
    processes: ClassVar[int] = 3
    actors: ClassVar[int] = 2
    """For each process."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = Random(f"{world.seed}/{self.name}")
        self.clients: dict[Process, AsyncDibs] = {}
        self._running: list[tuple[Process, asyncio.Task[Any]]] = []

    # ---- what a workload is

    async def actor(self, process: Process, dibs: AsyncDibs, random: Random) -> None:
        """What one caller does."""
        raise AssertionError("each has its own")

    async def settled(self) -> None:
        """All actors have ended, and all faults are over: check what is left."""

    def make_client(self, process: Process) -> AsyncDibs:
        """The client of *process*."""
        url = self.world.topology.url
        return AsyncDibs(url, on_outage="closed", listeners=self.listeners(process))

    def listeners(self, process: Process) -> list[Callable[[Event], object]]:
        """Who gets the events of *process*; without a trace, only what a workload needs is made."""
        if self.world.trace is None:
            return []
        return [lambda event: self.world.note("event", process.name, _summary(event))]

    # ---- running it

    async def main(self) -> None:
        """From the first process to the last check."""
        world = self.world
        for number in range(self.processes):
            self._begin(world.start_process(), number)
        world.replace = self._replace
        await world.faults()
        await self._all_ended()
        await asyncio.sleep(_GRACE)
        await self._in_each(self._probe)
        await self.settled()
        await self._in_each(self._close)
        self._check_end()

    def _begin(self, process: Process, place: int) -> None:
        process.place = place  # type: ignore[attr-defined]
        dibs = self.clients[process] = process.run(self.make_client, process)
        for each in range(self.actors):
            number = place * self.actors + each
            if number not in self.world.plan.absent:
                random = Random(f"{self.world.seed}/{process.name}/{each}")
                self._start(process, self.actor(process, dibs, random))

    def _replace(self, process: Process) -> None:
        self._begin(process, process.number % self.processes)

    def _start(self, process: Process, work: Coroutine[Any, Any, None]) -> None:
        self._running.append((process, process.spawn(work)))

    async def _all_ended(self) -> None:
        until = CLOCK.now + _MOST
        while left := [each for each in self._running if not self._has_ended(*each)]:
            if CLOCK.now > until:
                for process, task in left:
                    self.world.violate(f"{process.name} hangs: {_place_of(task)}")
                return
            await asyncio.sleep(0.2)

    def _has_ended(self, process: Process, task: "asyncio.Task[Any]") -> bool:
        if not task.done():
            return process.is_dead
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._running.remove((process, task))
            self.world.violate(f"{process.name}: {type(error).__name__}: {error}")
        return True

    async def _in_each(
        self, function: Callable[[Process, AsyncDibs], Coroutine[Any, Any, None]]
    ) -> None:
        self._running = []
        for process in self.world.living:
            self._start(process, function(process, self.clients[process]))
        await self._all_ended()

    async def _probe(self, process: Process, dibs: AsyncDibs) -> None:
        """All is well again: a free key is got at once, if need be on another connection."""
        since = CLOCK.now
        try:
            lease = await dibs.try_hold(f"probe:{process.name}", ttl=5)
            assert lease is not None
            await lease.release()
        except DibsError as error:
            self.world.violate(f"{process.name}: after all faults {type(error).__name__}: {error}")
        else:
            if not lease.guarded or CLOCK.now - since > DEFAULT_BUDGET:
                took = CLOCK.now - since
                self.world.violate(f"{process.name}: not well after all faults ({took:.2f} s)")

    async def _close(self, process: Process, dibs: AsyncDibs) -> None:
        since = CLOCK.now
        await dibs.aclose()
        if CLOCK.now - since > 1.0:
            self.world.violate(f"{process.name}: closing took {CLOCK.now - since:.2f} s")

    def _check_end(self) -> None:
        """Nothing is left running, and nothing connected."""
        world = self.world
        for process in world.living:
            for task in asyncio.all_tasks(world.loop):
                if task in process.tasks and not task.done():
                    world.violate(f"{process.name}: a task is left: {_place_of(task)}")
        for line in world.network.lines:
            if not line.process.is_dead and not line.transport.is_closing():
                world.violate(f"{line}: a connection is left open")

    # ---- for workloads

    def within(self, process: Process, since: float, most: float, what: str) -> None:
        """A call that began at *since* (`process.awake`) has ended: in time?"""
        took = process.awake - since
        # Each connection that the server closes while it is being opened has its own limit.
        closed = {at for at in self.world.network.ends if at >= CLOCK.now - took}
        if took > most + CONNECT * len(closed):
            self.world.violate(f"{process.name}: {what} answered after {took:.2f} s of {most:.2f}")

    def leftovers(self) -> dict[bytes, Any]:
        """The keys on the server that should be gone.

        Those of processes that were killed expire. None, if a replica without the last writes has
        taken over: it brings back what was released. None either, if clients may not have the
        server end a connection: then the page of guarantees excepts what arrives late on it.
        """
        if not self.world.plan.may_kill or any(since for since, _ in self.world.losses):
            return {}
        left = dict[bytes, Any]()
        for server in self.world.topology.masters:
            server.keys.sweep()
            left |= {key: self._left(value) for key, value in server.keys.values.items()}
        others = (b"fence:", b"fences:", b"probe:", b"waiting:")
        return {key: value for key, value in left.items() if value and not key.startswith(others)}

    def _left(self, value: Value) -> Value | None:
        now = self.world.server.keys.clock()
        if isinstance(value, dict):
            living = {each: at for each, at in value.items() if at > now and self._left(each)}
            return living or None
        dead = [each for each in self.world.processes if each.is_dead]
        return None if any(b"@%s:" % each.name.encode() in value for each in dead) else value


async def cancelled_after(task: "asyncio.Task[Any]", seconds: float) -> Any:
    """The result of *task*, which is cancelled after *seconds*. CancelledError: it was."""
    await asyncio.wait([task], timeout=seconds)
    task.cancel()
    return await task


def _summary(event: Event) -> str:
    cause = f" {event.cause.code}" if event.cause is not None else ""
    return f"{event.kind} {event.name}{cause}"


def _place_of(task: "asyncio.Task[Any]") -> str:
    frames = task.get_stack(limit=1)
    where = f" in {frames[0].f_code.co_qualname}:{frames[0].f_lineno}" if frames else ""
    return f"{task.get_name()}{where}"
