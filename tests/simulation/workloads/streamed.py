"""streamed: a follower gets the beginning of one run, or is told; one whole run is stored."""

import asyncio
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import Any, NamedTuple

from dibs import AsyncDibs, Interrupted, Unavailable
from dibs._core.stream import ItemParser, read_record
from dibs.events import Event

from ..faults import LATE, USUAL
from ..system import CLOCK, Process
from ..world import World
from .base import BUDGET, Workload, cancelled_after

Item = tuple[int, int]
"""The number of the attempt that yielded it, and its own."""


class Failed(Exception):
    """What a generator raises."""


class Attempt:
    """One call of the generator: what it was given, and what it has yielded."""

    def __init__(self, number: int, stream: int, so_far: list[Item]) -> None:
        self.number = number
        self.stream = stream
        self.items = list(so_far)
        self.began_at = CLOCK.now
        self.is_complete = False


class Change(NamedTuple):
    """An invalidation that was confirmed."""

    began_at: float
    ended_at: float


class Streamed(Workload):
    """Readers of two streams who come, leave and come again; both are invalidated now and then."""

    name = "streamed"
    kinds = (*USUAL, *LATE, "kill", "restart", "failover", "clock")
    streams = (1, 2)
    most = 20_000

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.options: dict[str, Any] = {
            "ttl": self.random.choice((0.5, 3.0, 60.0)),
            "lease": self.random.choice((1.0, 3.0)),
            "stall": self.random.choice((0.5, 5.0)),
            "on_restart": self.random.choice(("raise", "restart", "resume")),
            "most": self.random.choice((60, self.most, self.most)),
        }
        self.counts = self.random.choice(((1, 3), (10, 40), (5, 200)))
        self.lengths = self.random.choice(((0.01, 0.1), (0.5, 2.0), (0.1, 6.0)))
        self.failing = self.random.choice((0.0, 0.0, 0.3))
        self.attempts = list[Attempt]()
        self.changes: dict[int, list[Change]] = {stream: [] for stream in self.streams}
        self.out_at: dict[Process, float] = {}
        """When each process last had an outage; in one it knows of no invalidation."""
        self.functions: dict[Process, Any] = {}

    def make_client(self, process: Process) -> AsyncDibs:
        url, listeners = self.world.topology.url, self.listeners(process)
        dibs = AsyncDibs(url, on_outage="open", listeners=listeners)
        random = Random(f"{self.world.seed}/{process.name}/runs")

        if self.options["on_restart"] == "resume":

            @dibs.streamed("stream:{stream}", **self.options)
            async def numbers(stream: int, so_far: Any = ()) -> AsyncIterator[Item]:
                async for item in self.run(stream, [tuple(each) for each in so_far], random):
                    yield item

        else:

            @dibs.streamed("stream:{stream}", **self.options)
            async def numbers(stream: int) -> AsyncIterator[Item]:
                async for item in self.run(stream, [], random):
                    yield item

        self.functions[process] = numbers
        return dibs

    def listeners(self, process: Process) -> list[Callable[[Event], object]]:
        def learn(event: Event) -> None:
            self.out_at[process] = CLOCK.now

        learn.kinds = frozenset({"outage", "recovered"})  # type: ignore[attr-defined]
        return [*super().listeners(process), learn]

    async def run(self, stream: int, so_far: list[Item], random: Random) -> AsyncIterator[Item]:
        """Yield some items, slowly; or raise in the middle."""
        attempt = Attempt(len(self.attempts), stream, so_far)
        self.attempts.append(attempt)
        self.world.counts["continued" if so_far else "runs"] += 1
        self.world.note("run", attempt.number, stream, len(so_far))
        count = random.randint(*self.counts)
        pause = random.choice(self.lengths) / count
        fails_at = random.randrange(count) if random.random() < self.failing else -1
        for number in range(count):
            await asyncio.sleep(2 * pause * random.random())
            if number == fails_at:
                raise Failed
            item = (attempt.number, len(attempt.items))
            attempt.items.append(item)
            yield item
        attempt.is_complete = True

    # ---- reading

    async def actor(self, process: Process, dibs: AsyncDibs, random: Random) -> None:
        function = self.functions[process]
        for _ in range(random.randrange(3, 8)):
            stream = random.choice(self.streams)
            if random.random() < 0.2:
                await self._invalidate(function, stream)
            else:
                task = process.spawn(self._read(process, function, stream, random))
                try:
                    if random.random() < 0.2:
                        await cancelled_after(task, random.random())
                    await task
                except asyncio.CancelledError:
                    self.world.counts["cancelled"] += 1
            await asyncio.sleep(random.random() * 0.5)

    async def _invalidate(self, function: Any, stream: int) -> None:
        began_at = CLOCK.now
        if await function.invalidate(stream):
            self.world.note("invalidated", stream)
            self.changes[stream].append(Change(began_at, CLOCK.now))

    async def _read(self, process: Process, function: Any, stream: int, random: Random) -> None:
        began_at = CLOCK.now
        most = random.choice((2, 10_000, 10_000, 10_000))
        items, end = list[Item](), "left"
        reading = function(stream)
        while len(items) < most:
            try:
                item = await anext(reading)
            except StopAsyncIteration:
                end = "whole"
                break
            except (Interrupted, Unavailable, Failed) as error:
                end = type(error).__name__
                break
            if isinstance(item, Interrupted):
                self._check(stream, items, "Interrupted")
                items = []
                continue
            items.append((int(item[0]), int(item[1])))
        await reading.aclose()
        self.world.counts[f"read {end}"] += 1
        attempt = self._check(stream, items, end)
        if attempt is not None and items and self.out_at.get(process, 0.0) < began_at - BUDGET:
            self._check_age(attempt, began_at, process)

    def _check(self, stream: int, items: list[Item], end: str) -> Attempt | None:
        """What a reader has is the beginning of one run, or the whole of it."""
        self.world.note("read", stream, len(items), end)
        for attempt in self.attempts:
            is_whole = attempt.is_complete and attempt.items == items
            is_beginning = attempt.stream == stream and attempt.items[: len(items)] == items
            if is_beginning and (end != "whole" or is_whole):
                return attempt
        if items or end == "whole":
            self.world.violate(f"stream {stream}: {items} is not of one run ({end})")
        return None

    def _check_age(self, attempt: Attempt, began_at: float, process: Process) -> None:
        """A caller who comes after an invalidation does not get a run from before it."""
        first = self.attempts[attempt.items[0][0]] if attempt.items else attempt
        for change in self.changes[attempt.stream]:
            is_older = change.ended_at < began_at and first.began_at < change.began_at
            if is_older and not self._is_undone(change):
                age = CLOCK.now - change.ended_at
                self.world.violate(
                    f"stream {attempt.stream}: {process} reads run {first.number}, {age:.2f} s"
                    " after it was invalidated"
                )

    def _is_undone(self, change: Change) -> bool:
        """Whether a replica has taken over that did not have it."""
        losses = [loss for loss in self.world.losses if loss[0]]
        return any(since - 1 <= change.ended_at and change.began_at <= at for since, at in losses)

    # ---- the end

    async def _close(self, process: Process, dibs: AsyncDibs) -> None:
        """Closing waits for runs; all of them have ended by now."""
        await asyncio.sleep(20)
        await super()._close(process, dibs)

    async def settled(self) -> None:
        """What is stored as whole is one whole run, and what is under way comes to its end."""
        for server in self.world.topology.masters:
            server.keys.sweep()
            for key, value in server.keys.values.items():
                record = read_record(value) if isinstance(value, bytes) else None
                if record is not None and record.is_over:
                    stored = server.keys.values.get(b"stream:{%b}:%b" % (key, record.run), b"")
                    self._check_stored(key, stored, record.items)

    def _check_stored(self, key: bytes, stored: Any, count: int) -> None:
        parser = ItemParser()
        items = [_item(payload) for payload in parser.feed(bytes(stored)[56:])]
        whole = [attempt.items for attempt in self.attempts if attempt.is_complete]
        is_whole = items in whole and len(items) == count and parser.ending == ("done", "")
        if stored and not is_whole:  # where it is gone, the next caller sees that
            self.world.violate(f"{key!r}: what is stored is no whole run: {stored!r}")


def _item(payload: bytes) -> Item:
    attempt, _, number = payload.strip(b"[]").partition(b",")
    return int(attempt), int(number)
