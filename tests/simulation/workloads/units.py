"""Verbs inside of transactions: what others can see of work is true only if it was committed."""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from random import Random
from typing import Any, NamedTuple

from dibs import AsyncDibs, Busy, Duplicate, LeaseLost, Unavailable
from dibs._async import cache, cache_values, claim, unit_of_work
from dibs._async import hold as leases
from dibs._async.hold import AsyncLease
from dibs._core import unit_of_work as unit
from dibs.claims import current_claims
from dibs.events import Event

from ..database import CommitFailed, Connection, ConnectionLost, Database
from ..faults import LATE, USUAL
from ..system import CLOCK, Process
from ..world import World
from .base import Workload, cancelled_after

_WINDOW = 600.0
_MOST = 60.0
"""Seconds in which work has ended whose caller has left."""
_HERE: ContextVar[tuple[Connection, ...]] = ContextVar("transactions", default=())
"""The transactions that this task has open, the innermost last."""
_EXPECTED = (Busy, Duplicate, Unavailable, LeaseLost, CommitFailed, ConnectionLost)


class WorkFailed(Exception):
    """What a body raises."""


class Held(NamedTuple):
    """A lease that guards what a transaction does."""

    lease: AsyncLease
    process: Process
    connection: Connection | None
    """None: it was held outside of every transaction."""
    since: float


class Inner:
    """One run of a submission whose record is in Redis, and whose work is in a transaction."""

    def __init__(self, connection: Connection, claim: Any) -> None:
        self.connection = connection
        self.claim = claim
        self.began_at = CLOCK.now
        self.is_kept = False
        """It is known that Redis has its end."""
        self.is_undone = False
        """Its savepoint was rolled back."""


class Row(NamedTuple):
    """A version of a cached row."""

    number: int
    connection: Connection | None


class Change(NamedTuple):
    """A version that was committed, and whose invalidation has ended."""

    commit: int
    ended_at: float


class Units(Workload):
    """Orders, each in a transaction, in which verbs are nested at random."""

    name = "units"
    kinds = (*USUAL, *LATE, "kill", "restart", "failover")
    verbs: tuple[str, ...] = (
        "hold", "once", "cached", "change", "after_commit", "own", "fail", "savepoint"
    )  # fmt: skip

    def __init__(self, world: World) -> None:
        super().__init__(world)
        draw = self.random
        tells = draw.choice(("end", "events", "nothing"))
        self.database = Database(world, tells, is_well=not world.plan.faults)
        self.orders: dict[str, Any] = {
            "window": _WINDOW, "after": "replay", "within": self.database.begin,
            "lease": draw.choice((0.6, 1.0, 2.5)), "wait": draw.choice((0, 0.5, 3.0)),
        }  # fmt: skip
        self.inners: dict[str, Any] = {
            "window": _WINDOW, "after": "replay", "lease": draw.choice((0.6, 2.5)),
            "wait": draw.choice((0, 1.0)),
        }  # fmt: skip
        self.cached: dict[str, Any] = {
            "ttl": draw.choice((0.3, 60.0)), "local": draw.choice((0.0, 0.0, 1.0)),
        }  # fmt: skip
        self.holds: dict[str, Any] = {
            "ttl": draw.choice((1.0, 30.0)), "renew": draw.random() < 0.6,
            "wait": draw.choice((0, 0.4)), "on_late": "raise",
        }  # fmt: skip
        self.functions: dict[Process, Any] = {}
        self.works: dict[str, list[Connection]] = {}
        """The transactions of each order."""
        self.held: dict[str, list[Held]] = {}
        self.runs: dict[str, list[Inner]] = {}
        self.changes: dict[int, list[Change]] = {}
        self.waiting: list[Connection] = []
        """Those with which a function waits for the commit; each is called once."""
        self.called: Counter[int] = Counter()
        self.outages: Counter[Process] = Counter()
        self._writers: list[Connection] = []
        """Who has written each version of a cached row."""
        self._undone: set[int] = set()
        """Versions whose savepoint was rolled back."""
        self._inside: set[tuple[Connection, str]] = set()
        """Who is in the block of a lease: it is not re-entrant."""

    def make_client(self, process: Process) -> AsyncDibs:
        url, listeners = self.world.topology.url, self.listeners(process)
        dibs = AsyncDibs(url, on_outage="closed", listeners=listeners)

        @dibs.once("order:{key}", ignore=["random"], **self.orders)
        async def order(connection: Connection, key: str, random: Random) -> dict[str, Any]:
            return await self._order(process, dibs, connection, key, random)

        @dibs.once("own:{key}", ignore=["random"], **self.orders)
        async def own(connection: Connection, key: str, random: Random) -> dict[str, Any]:
            return await self._order(process, dibs, connection, f"own {key}", random)

        @dibs.once("inner:{key}", **self.inners)
        async def inner(key: str) -> dict[str, Any]:
            return await self._inner(key)

        @dibs.cached("value:{item}", **self.cached)
        async def value(item: int) -> int:
            return await self._load(item)

        self.functions[process] = {"order": order, "own": own, "inner": inner, "value": value}
        return dibs

    def listeners(self, process: Process) -> list[Callable[[Event], object]]:
        def count(event: Event) -> None:
            self.outages[process] += 1

        count.kinds = frozenset({"outage", "leaked", "late", "lost"})  # type: ignore[attr-defined]
        return [*super().listeners(process), count]

    # ---- what callers do

    async def actor(self, process: Process, dibs: AsyncDibs, random: Random) -> None:
        for _ in range(random.randrange(4, 9)):
            way = random.choice((self._submit, self._submit, self._look))
            task = process.spawn(way(process, dibs, random))
            try:
                if random.random() < 0.12:
                    await cancelled_after(task, random.random() * 0.6)
                await task
            except (*_EXPECTED, WorkFailed) as error:
                self.world.counts[type(error).__name__] += 1
            except asyncio.CancelledError:
                self.world.counts["cancelled"] += 1
            await asyncio.sleep(random.random() * 0.3)

    async def _submit(self, process: Process, dibs: AsyncDibs, random: Random) -> None:
        """Send an order: the answer is that of a transaction that has committed."""
        key = f"o{random.randrange(12)}"
        before = self.outages[process]
        result = await self.functions[process]["order"](key, Random(random.random()))
        self.world.counts["answered"] += 1
        connection = self._numbered(result["transaction"])
        if connection.state != "committed":
            self.world.violate(f"{key}: answered by {connection}, which is {connection.state}")
        if before == self.outages[process]:
            self._ended_well(connection)

    def _ended_well(self, connection: Connection) -> None:
        """Its process has told of all that waited for it, if it is the caller's own."""
        for item, row in connection.rows.items():
            if isinstance(row, Row) and row.connection is connection and connection.is_sure:
                change = Change(connection.commit_number, CLOCK.now)
                self.changes.setdefault(int(item[2:]), []).append(change)

    async def _look(self, process: Process, dibs: AsyncDibs, random: Random) -> None:
        """See what others may see: a lease that is free, a cached value."""
        if random.random() < 0.5:
            await self._read(process, random)
            return
        key = f"a{random.randrange(2)}"
        async with dibs.hold(key, **self.holds) as lease:
            entry = self._enter(key, lease, process, None)
            try:
                await asyncio.sleep(random.choice((0.001, 0.1)))
            finally:
                self.held[key].remove(entry)

    # ---- what is done in a transaction

    async def _order(
        self, process: Process, dibs: AsyncDibs, connection: Connection, key: str, random: Random
    ) -> dict[str, Any]:
        self.works.setdefault(key, []).append(connection)
        token = _HERE.set((*_HERE.get(), connection))
        try:
            await connection.write(f"order {key}", connection.number)
            await self._steps(process, dibs, connection, random, 0)
        finally:
            _HERE.reset(token)
        return {"transaction": connection.number}

    async def _steps(
        self, process: Process, dibs: AsyncDibs, connection: Connection, random: Random, depth: int
    ) -> None:
        for _ in range(random.randrange(1, 4)):
            verb = random.choice(self.verbs)
            self.world.counts[verb] += 1
            match verb:
                case "hold":
                    await self._hold(process, dibs, connection, random, depth)
                case "once":
                    await self._call_inner(process, connection, random)
                case "cached":
                    await self._read(process, random)
                case "change":
                    await self._change(process, connection, random)
                case "after_commit":
                    await dibs.after_commit(self._called(connection))
                    self.waiting.append(connection)
                case "savepoint" if depth < 2 and self.database.tells == "events":
                    await self._savepoint(process, dibs, connection, random, depth)
                case "own" if depth < 1:
                    await self._call_own(process, random)
                case "fail" if random.random() < 0.4:
                    raise WorkFailed
                case _:
                    await asyncio.sleep(random.choice((0.001, 0.1, 0.7)))

    async def _savepoint(
        self, process: Process, dibs: AsyncDibs, connection: Connection, random: Random, depth: int
    ) -> None:
        """Some steps in a savepoint, which may be rolled back."""
        waiting, versions = self.waiting.count(connection), len(self._writers)
        runs = {key: len(each) for key, each in self.runs.items()}
        try:
            async with connection.savepoint():
                await self._steps(process, dibs, connection, random, depth + 1)
                if random.random() < 0.5:
                    raise WorkFailed
        except BaseException as error:
            for _ in range(self.waiting.count(connection) - waiting):
                self.waiting.remove(connection)
            for number, writer in enumerate(self._writers[versions:], versions + 1):
                if writer is connection:
                    self._undone.add(number)
            for key, each in self.runs.items():
                for run in each[runs.get(key, 0) :]:
                    run.is_undone = run.is_undone or run.connection is connection
            if not isinstance(error, WorkFailed):
                raise

    def _called(self, connection: Connection) -> Callable[[], None]:
        def called() -> None:
            self.called[connection.number] += 1
            if connection.state != "committed":
                self.world.violate(f"after_commit was called for {connection}: {connection.state}")

        return called

    async def _hold(
        self, process: Process, dibs: AsyncDibs, connection: Connection, random: Random, depth: int
    ) -> None:
        key = f"a{random.randrange(2)}"
        if (connection, key) in self._inside:
            return
        try:
            async with dibs.hold(key, **self.holds) as lease:
                self._enter(key, lease, process, connection)
                self._inside.add((connection, key))
                try:
                    await connection.write(key, connection.number)
                    if depth < 2:
                        await self._steps(process, dibs, connection, random, depth + 1)
                finally:
                    self._inside.discard((connection, key))
        except Busy:
            if random.random() < 0.5:
                raise

    def _enter(
        self, key: str, lease: AsyncLease, process: Process, connection: Connection | None
    ) -> Held:
        """A lease was granted: what it guards must be decided in all transactions before."""
        entry = Held(lease, process, connection, CLOCK.now)
        self.world.note("holds", key, process.name, str(connection))
        entries = self.held.setdefault(key, [])
        # A lease that is taken again in its transaction is continued by a new one.
        newest = {each.connection or id(each): each for each in entries}
        for other in newest.values():
            if self._is_undecided(other) and not self._is_own(other.connection, connection):
                self.world.violate(
                    f"{key}: {process} has it, and {other.connection or other.process}, which has"
                    " changed it, is not decided"
                )
        entries.append(entry)
        return entry

    def _is_undecided(self, held: Held) -> bool:
        if held.process.is_dead or self.world.has_lost(held.since):
            return False
        lease = held.lease._state
        # One that ended too late ends its transaction, which is not there yet.
        if lease.is_lost or CLOCK.now >= lease.deadline or not lease.guarded:
            return False
        return held.connection is None or held.connection.is_open

    def _is_own(self, one: Connection | None, other: Connection | None) -> bool:
        """Whether both are transactions of one caller, one inside of the other."""
        here = _HERE.get()
        return one is not None and (one is other or one in here)

    # ---- an inner submission, whose record is in Redis

    async def _call_inner(self, process: Process, connection: Connection, random: Random) -> None:
        key, before = f"i{random.randrange(3)}", self.outages[process]
        try:
            result = await self.functions[process]["inner"](key)
        except Duplicate:
            if random.random() < 0.5:
                raise
            return
        run = self.runs[key][result["run"]]
        if run.connection is connection:
            run.is_kept = before == self.outages[process]
        if run.is_undone:
            self.world.violate(f"{key}: {process} gets the result of a savepoint that was undone")
        elif run.connection is connection:
            return
        elif not self._is_own(run.connection, connection) and run.connection.state != "committed":
            state = run.connection.state
            self.world.violate(f"{key}: {process} gets the result of {run.connection}: {state}")

    async def _inner(self, key: str) -> dict[str, Any]:
        connection = _HERE.get()[-1]
        run = Inner(connection, current_claims()[-1])
        runs = self.runs.setdefault(key, [])
        self.world.note("runs", key, len(runs), str(connection))
        for other in runs:
            self._compare(key, run, other)
        runs.append(run)
        await connection.write(f"inner {key}", connection.number)
        await asyncio.sleep(0.05)
        return {"run": runs.index(run)}

    def _compare(self, key: str, run: Inner, other: Inner) -> None:
        process = other.connection.process
        if self.world.has_lost(other.began_at) or other.claim.lost or not other.claim.guarded:
            return
        if other.connection.is_open and not self._is_own(other.connection, run.connection):
            self.world.violate(f"{key}: {run.connection} runs it, and {other.connection} is open")
        is_told = other.is_kept and other.connection.is_sure and not process.is_dead
        is_told = is_told and not other.is_undone
        if self._may_be_unknown:
            return
        if is_told and other.connection.state == "committed" and not self.outages[process]:
            self.world.violate(f"{key}: {run.connection} runs it again: {other.connection} had")

    # ---- a transaction of its own

    async def _call_own(self, process: Process, random: Random) -> None:
        key = f"c{random.randrange(3)}"
        try:
            result = await self.functions[process]["own"](key, Random(random.random()))
        except (Busy, Duplicate, CommitFailed, WorkFailed):
            return
        connection = self._numbered(result["transaction"])
        if connection.state != "committed":
            self.world.violate(f"own {key}: answered by {connection}: {connection.state}")

    # ---- cached rows

    async def _load(self, item: int) -> int:
        here = _HERE.get()
        key = f"v:{item}"
        if here:
            row = await here[-1].read(key)
        else:
            await asyncio.sleep(0.02)
            row = self.database.rows.get(key)
        return row.number if isinstance(row, Row) else 0

    async def _change(self, process: Process, connection: Connection, random: Random) -> None:
        item = random.randrange(2)
        self._writers.append(connection)
        number = len(self._writers)
        self.world.note("change", item, number, str(connection))
        await connection.write(f"v:{item}", Row(number, connection))
        if random.random() < 0.3:
            await self._read(process, random)
        await self.functions[process]["value"].invalidate(item)

    async def _read(self, process: Process, random: Random) -> None:
        item, began_at, outages = random.randrange(2), CLOCK.now, self.outages[process]
        number = await self.functions[process]["value"](item)
        self.world.note("read", item, number, process.name)
        writer = self._writers[number - 1] if number else None
        if number in self._undone:
            self.world.violate(f"value {item}: {process} reads {number}, which was undone")
        if writer is not None and writer.state != "committed" and writer not in _HERE.get():
            self.world.violate(
                f"value {item}: {process} reads {number} of {writer}, which is {writer.state}"
            )
        if outages != self.outages[process] or self.outages.total() or _HERE.get():
            return
        slack = self.cached["local"] + 0.3 if self.cached["local"] else 0.0
        for change in self.changes.get(item, ()):
            # A replica that took over may not have had the invalidation.
            is_undone = any(since - 1 <= change.ended_at for since, _ in self.world.losses if since)
            is_before = change.ended_at < began_at - slack and not is_undone
            if is_before and change.commit > getattr(writer, "commit_number", 0):
                age = CLOCK.now - change.ended_at
                self.world.violate(f"value {item}: {process} reads {number}, {age:.2f} s old")

    # ---- the end

    @property
    def _may_be_unknown(self) -> bool:
        """Whether the table had to be asked for the end of a transaction, and may not have said."""
        return self.database.tells == "nothing" and self.database.lost > 0

    def _numbered(self, number: int) -> Connection:
        return self.database.connections[number - 1]

    async def settled(self) -> None:
        """Nothing is open; every order was committed once at most; what waited was told."""
        until = CLOCK.now + _MOST
        while left := [each for each in self.database.connections if each.is_open]:
            if CLOCK.now > until:
                self.world.violate(f"{left[0]} does not end")
                return
            await asyncio.sleep(0.2)
        await asyncio.sleep(3.0)
        for key, connections in self.works.items():
            committed = [each for each in connections if each.state == "committed"]
            if len(committed) > 1:
                self.world.violate(f"{key}: {committed[0]} and {committed[1]} have committed")
        for connection in self.waiting:
            is_told = connection.is_sure and not connection.process.is_dead
            wanted = self.waiting.count(connection) if connection.state == "committed" else 0
            if self._may_be_unknown:
                wanted = min(wanted, self.called[connection.number])
            if is_told and self.called[connection.number] != wanted:
                times = self.called[connection.number]
                self.world.violate(f"after_commit of {connection}: {times} of {wanted} were called")
        for key, value in self.leftovers().items():
            if not key.startswith((b"value:", b"lock:")) and not value.startswith(b"dibs1 done"):
                self.world.violate(f"{key!r} is left behind: {value!r}")


class FaultyUnits(Units):
    """Wrong on purpose, in one of the ways of `FAULTS`."""

    name = "faulty"
    fault = "early leases"

    async def main(self) -> None:
        place, name, wrong = FAULTS[self.fault]
        right = getattr(place, name)
        setattr(place, name, wrong)
        try:
            await super().main()
        finally:
            setattr(place, name, right)


async def _do_nothing(*_: Any) -> None: ...


_effects = unit.Unit.effects


def _without_leases(self: Any) -> list[Any]:
    return [each for each in _effects(self) if not isinstance(each, unit_of_work.AsyncRelease)]


def _as_if_committed(self: Any, outcome: str) -> None:
    self.outcome = self.outcome or "committed"


def _dropped(self: Any, unit: Any) -> None:
    if unit.take_back(self):
        self.carry_out_later("rolled_back")


FAULTS: dict[str, tuple[Any, str, Any]] = {
    "early leases": (leases, "wait_for_unit", lambda *_: False),
    "early claims": (claim, "unit_of_claim", lambda *_: None),
    "early values": (cache_values.AsyncWriter, "_waiting", lambda _, unit, result, *more: result),
    "early functions": (unit.Unit, "call", lambda self, effect: effect.carry_out_later("committed")
                        or True),
    "lost releases": (unit.Unit, "effects", _without_leases),
    "lost functions": (unit_of_work, "carry_out", _do_nothing),
    "effects of rollbacks": (unit.Unit, "decide", _as_if_committed),
    "one deletion": (cache.AsyncCache, "_again", lambda *_, **__: None),
    "early in savepoints": (unit_of_work.AsyncRelease, "undo", _dropped),
    "no savepoints": (unit_of_work.AsyncEffect, "undo", lambda *_: None),
    "no savepoints of claims": (unit_of_work.AsyncEnding, "undo", lambda *_: None),
}  # fmt: skip
"""What is replaced, and by what."""


def faulty(fault: str) -> type[Units]:
    return type("Faulty", (FaultyUnits,), {"name": fault, "fault": fault})
