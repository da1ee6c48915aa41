"""A database: its transactions see their own writes, and others what was committed.

It knows what the statements of dibs for PostgreSQL mean, and executes no others. A process may be
killed at each statement; a COMMIT that was sent is carried out all the same. It may fail, and its
reply may be lost.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Literal, NamedTuple

from dibs import _databases
from dibs._core.done_table import DIALECTS, TableRows
from dibs._databases import CommitListener, End, Transaction

from .system import CLOCK, PROCESS, Process
from .world import World

Tells = Literal["end", "events", "nothing"]
"""How its driver says that a transaction has committed: when it is asked; by calling those who
listen; not at all, so that the table has to be asked."""

_SQL = DIALECTS["postgresql"]


class CommitFailed(Exception):
    """A constraint that is checked at the COMMIT."""


class ConnectionLost(Exception):
    """The reply to a statement has not come."""


class DoneRow(NamedTuple):
    """A row of `dibs_done`."""

    token: str
    fingerprint: str
    result: bytes | None
    until: float


class Connection:
    """One transaction, of one process."""

    def __init__(self, database: "Database", process: Process) -> None:
        self._database = database
        self.process = process
        self.number = database.next_number()
        self.state: Literal["open", "committed", "rolled_back"] = "open"
        self.is_committing = False
        self.is_sure = True
        """False: its process cannot know how it has ended."""
        self.rows: dict[str, Any] = {}
        self.done: dict[str, DoneRow | None] = {}
        self.listeners: list[CommitListener] = []
        self.savepoints: list[list[CommitListener]] = []
        """Those who listen in each savepoint that is open, the innermost last."""
        self._random = database.random_of(process)

    def __repr__(self) -> str:
        return f"transaction {self.number} of {self.process}"

    @property
    def is_open(self) -> bool:
        """Whether it may still commit. That of a process that was killed is rolled back."""
        if self.state == "open" and self.process.is_dead and not self.is_committing:
            self._end("rolled_back")
        return self.state == "open"

    # ---- statements

    async def _travel(self) -> None:
        """To the database and back; the process may be killed on the way."""
        database = self._database
        await asyncio.sleep(0.0005 + 0.002 * self._random.random())
        if self._random.random() < database.kills and len(database.world.living) > 1:
            database.world.kill(self.process)
            await asyncio.sleep(1000)

    async def read(self, key: str) -> Any:
        """The value of *key*, as this transaction sees it."""
        await self._travel()
        return self.rows.get(key, self._database.rows.get(key))

    async def write(self, key: str, value: Any) -> None:
        """Set the value of *key*."""
        await self._travel()
        self._must_be_open()
        self.rows[key] = value

    async def execute(self, sql: str, given: dict[str, Any]) -> TableRows:
        """A statement of dibs."""
        await self._travel()
        self._must_be_open()
        key = given.get("key", "")
        if sql == _SQL.take:
            return self._take(key, given)
        if sql == _SQL.look:
            row = self._found(key)
            if row is None:
                return []
            left = int((row.until - CLOCK.now) * 1000)
            return [(row.token, row.fingerprint, row.result, left)]
        if sql == _SQL.done:
            row = self.done[key]
            assert row is not None and row.token == given["token"]
            until = CLOCK.now + given["window"] / 1000
            self.done[key] = row._replace(result=given["result"], until=until)
            return [(str(self.number),)]
        if sql == _SQL.undo:
            self.done[key] = None
            return []
        assert sql == _SQL.prune, sql
        return []

    @asynccontextmanager
    async def savepoint(self) -> AsyncGenerator[None]:
        """A savepoint: what its block raises rolls it back."""
        rows, done = dict(self.rows), dict(self.done)
        self.savepoints.append([])
        try:
            await self._travel()
            yield
            await self._travel()
        except BaseException:
            self.rows, self.done = rows, done
            for listener in self.savepoints.pop():
                listener(False)
            raise
        outer = self.savepoints[-2] if len(self.savepoints) > 1 else self.listeners
        outer += self.savepoints.pop()

    def _take(self, key: str, given: dict[str, Any]) -> TableRows:
        owner = self._database.locks.get(key)
        if owner is not None and owner is not self and owner.is_open:
            return []
        self._database.locks[key] = self
        if self._found(key) is not None:
            return []
        until = CLOCK.now + given["window"] / 1000
        self.done[key] = DoneRow(given["token"], given["fingerprint"], None, until)
        return [(str(self.number),)]

    def _found(self, key: str) -> DoneRow | None:
        row = self.done.get(key, self._database.done.get(key))
        return None if row is None or row.until <= CLOCK.now else row

    def _must_be_open(self) -> None:
        if not self.is_open:
            raise ConnectionLost

    # ---- its end

    async def commit(self) -> None:
        """COMMIT. CommitFailed: it is rolled back. ConnectionLost: it is not known."""
        draw = self._random.random()
        self._must_be_open()
        fails = bool(self.rows) and draw < self._database.failures
        self.is_committing, self.is_sure = True, False
        self._database.world.later(0.002 * draw, self._end, "rolled_back" if fails else "committed")
        await self._travel()
        while self.state == "open":
            await asyncio.sleep(0.001)
        if draw > 1 - self._database.losses:
            self._database.lost += 1
            raise ConnectionLost
        self.is_sure = True
        if fails:
            raise CommitFailed
        self._tell()

    async def roll_back(self) -> None:
        """ROLLBACK; nothing, if it has ended."""
        if not self.is_committing:
            self._end("rolled_back")
        self._tell()

    def _end(self, state: Literal["committed", "rolled_back"]) -> None:
        if self.state != "open":
            return
        self.state, database = state, self._database
        database.world.note("transaction", self.number, self.process.name, state)
        if state == "committed":
            database.commits += 1
            self.commit_number = database.commits
            database.rows |= self.rows
            database.done |= {key: row for key, row in self.done.items() if row is not None}

    def _tell(self) -> None:
        listeners, self.listeners = self.listeners, []
        for listener in listeners:
            listener(self.is_sure and self.state == "committed")


class Database:
    """What was committed, and how often something goes wrong at it."""

    def __init__(self, world: World, tells: Tells, *, is_well: bool) -> None:
        self.world = world
        self.tells: Tells = tells
        random = Random(f"{world.seed}/database")
        self.kills = 0.0 if is_well else random.choice((0.0, 0.01, 0.04))
        """How many statements their process does not survive."""
        self.failures, self.losses = (0.0, 0.0) if is_well else (0.05, 0.03)
        """How many commits fail, and of how many the reply is lost."""
        self.rows: dict[str, Any] = {}
        self.done: dict[str, DoneRow] = {}
        self.locks: dict[str, Connection] = {}
        self.connections: list[Connection] = []
        self.commits = self.lost = 0
        """How many transactions have committed, and of how many the reply was lost."""
        self._randoms: dict[Process, Random] = {}

    def next_number(self) -> int:
        """The number of the next transaction."""
        return len(self.connections) + 1

    def random_of(self, process: Process) -> Random:
        """What is random for *process*."""
        seed = f"{self.world.seed}/{process.name}/database"
        return self._randoms.setdefault(process, Random(seed))

    @asynccontextmanager
    async def begin(self) -> AsyncGenerator[Connection]:
        """A transaction, which is committed at the end of the block."""
        connection = Connection(self, PROCESS.get())
        self.connections.append(connection)
        try:
            yield connection
        except BaseException:
            await connection.roll_back()
            raise
        try:
            await connection.commit()
        except BaseException:
            connection._tell()
            raise


class SimulatedTransaction(Transaction):
    """What dibs knows of a `Connection`."""

    kind = "asyncio"
    database = "postgresql"

    def __init__(self, value: Connection) -> None:
        super().__init__(value)
        self._tells: Tells = value._database.tells

    async def start(self) -> None:
        await asyncio.sleep(0)

    async def execute(self, sql: str, parameters: dict[str, Any]) -> TableRows:
        return await self.value.execute(sql, parameters)

    @property
    def driver(self) -> Any:
        return self.value

    @property
    def end(self) -> End:
        if self.value.state == "open":
            return "open"
        is_told = self._tells != "nothing" and self.value.is_sure
        return self.value.state if is_told else "unknown"

    def on_end(self, outcome: CommitListener) -> bool:
        if self._tells != "events":
            return False
        savepoints = self.value.savepoints
        (savepoints[-1] if savepoints else self.value.listeners).append(outcome)
        return True

    @property
    def is_in_savepoint(self) -> bool:
        return bool(self.value.savepoints)


_databases._CLASSES["tests", "Connection"] = SimulatedTransaction
