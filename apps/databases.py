"""SQLite or PostgreSQL, as the menu and the orders use them: connections that threads share."""

import asyncio
import contextlib
import math
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol, TypeVar

from sqlalchemy import (
    URL,
    Connection,
    DateTime,
    Dialect,
    Engine,
    QueuePool,
    TypeDecorator,
    create_engine,
    event,
    make_url,
    text,
)
from sqlalchemy.exc import ArgumentError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from .deadlines import run_within

THREADS = 10
"""How many calls may run at once; the database has a connection for each of them."""
STARTING = 60.0
"""Seconds that creating the tables may take: other processes may be doing it first."""
_LOCK_WAIT = 30.0
"""How long a writer of SQLite waits for another one, in seconds."""
T = TypeVar("T")


class Timeouts(NamedTuple):
    """How long a caller waits for the database, in seconds; then it counts as down."""

    statement: float = 5.0
    """For PostgreSQL's answers to one call, all its statements together."""
    pool: float = 2.0
    """For a free thread and connection."""
    connect: float = 2.0
    """For a connection to be accepted; whole seconds, at least 2."""

    @classmethod
    def read(cls, read: Callable[[str], str]) -> "Timeouts":
        """Read DATABASE_STATEMENT_SECONDS, _POOL_SECONDS and _CONNECT_SECONDS.

        ValueError: one is not a number of seconds.
        """
        default = cls()
        return cls(
            _seconds(read, "DATABASE_STATEMENT_SECONDS", default.statement),
            _seconds(read, "DATABASE_POOL_SECONDS", default.pool),
            _seconds(read, "DATABASE_CONNECT_SECONDS", default.connect),
        )


USUAL = Timeouts()


def _seconds(read: Callable[[str], str], name: str, default: float) -> float:
    text = read(name)
    try:
        value = float(text) if text else default
    except ValueError:
        value = math.nan
    if not 0 < value < 3600:
        raise ValueError(f"{name} must be a number of seconds, more than 0 and less than 3600.")
    return value


def open_engine(url: str, *, example: str, timeouts: Timeouts = USUAL) -> Engine:
    """Where connections come from; nothing connects yet.

    ValueError: the URL is none of SQLite or PostgreSQL; *example* is one that would do.
    """
    parsed = _parsed(url, example)
    if parsed.drivername != "sqlite":
        return _open_postgresql(parsed, timeouts)
    arguments = {"timeout": _LOCK_WAIT, "check_same_thread": False}
    # A database in memory belongs to its connection, so there must be one, for all threads.
    in_memory = parsed.database in (None, "", ":memory:")
    only_one = {"pool_size": 1, "max_overflow": 0} if in_memory else {"pool_timeout": timeouts.pool}
    engine = create_engine(parsed, poolclass=QueuePool, connect_args=arguments, **only_one)
    event.listen(engine, "connect", _on_connect)
    event.listen(engine, "begin", _on_begin)
    return engine


def _open_postgresql(url: URL, timeouts: Timeouts) -> Engine:
    """A server that is slow ends a statement itself; one that hangs is left by our own clock."""
    # Only where it is used: SQLite needs no driver.
    from .postgresql import opening

    arguments = {
        "connect_timeout": max(round(timeouts.connect), 2),
        "options": f"-c statement_timeout={max(round(timeouts.statement * 1000), 1)}",
    }
    engine = create_engine(
        url, pool_pre_ping=True, pool_timeout=timeouts.pool, connect_args=arguments
    )
    event.listen(engine, "do_connect", opening(timeouts.statement))
    return engine


def writing(engine: Engine) -> Engine:
    """The same, for transactions that write.

    SQLite locks for them when they begin, not at the first write: two that have both read could
    not both go on.
    """
    return engine.execution_options(begin="BEGIN IMMEDIATE")


def wait_for_start(connection: Connection, key: int) -> None:
    """Wait until no other process is creating the tables. SQLite has locked already."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SET LOCAL statement_timeout = {round(STARTING * 1000)}"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})


def _parsed(url: str, example: str) -> URL:
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise ValueError(f"DATABASE_URL must be a URL, such as {example}.") from None
    scheme = parsed.drivername.partition("+")[0]
    if scheme not in ("sqlite", "postgresql", "postgres"):
        raise ValueError(f"DATABASE_URL must begin with sqlite or postgresql, not {scheme!r}.")
    return parsed.set(drivername="sqlite" if scheme == "sqlite" else "postgresql+psycopg")


def _on_connect(connection: Any, record: object) -> None:
    connection.isolation_level = None  # else the driver begins on its own, and too late
    connection.execute("PRAGMA foreign_keys = ON")


def _on_begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))


# ---- threads


class Database(Protocol):
    """What the threads call."""

    prepare: Callable[..., None]
    """Creates the tables."""

    def close(self) -> None:
        """Close all connections."""
        ...


class Threads:
    """The threads that call a database: as many as it has connections."""

    @classmethod
    async def open(
        cls, name: str, database: Database, timeouts: Timeouts, *prepared_with: Any
    ) -> "Threads":
        """Prepare *database* and open its threads; if that fails, it is closed."""
        threads = cls(name, database, timeouts)
        try:
            await threads.ask(database.prepare, *prepared_with, longest=STARTING)
        except BaseException:
            threads._close()
            raise
        return threads

    def __init__(self, name: str, database: Database, timeouts: Timeouts) -> None:
        self._database = database
        self._timeouts = timeouts
        self._workers = ThreadPoolExecutor(THREADS, name)
        self._turns = asyncio.Semaphore(THREADS)

    async def ask(self, call: Callable[..., T], *arguments: Any, longest: float | None = None) -> T:
        """Run *call* in a thread and return its result; it may take *longest* seconds.

        PoolTimeout: all threads were busy for too long. OperationalError: the database did not
        answer.
        """
        try:
            async with asyncio.timeout(self._timeouts.pool):
                await self._turns.acquire()
        except TimeoutError:
            raise PoolTimeout("no thread was free in time") from None
        work = self._workers.submit(
            run_within, longest or self._timeouts.statement, call, *arguments
        )
        # Not when the caller is cancelled: its thread may still be running then.
        work.add_done_callback(self._next(asyncio.get_running_loop()))
        return await asyncio.wrap_future(work)

    async def aclose(self) -> None:
        """Wait for calls under way, then close the database."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        # Threads first: a cancelled request leaves one behind that still has a connection.
        self._workers.shutdown()
        self._database.close()

    def _next(self, loop: asyncio.AbstractEventLoop) -> Callable[[Future[Any]], None]:
        def release(work: Future[Any]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits
                loop.call_soon_threadsafe(self._turns.release)

        return release


# ---- columns


class Moment(TypeDecorator[datetime]):
    """A point in time, in UTC on both sides: SQLite forgets the offset."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return value and value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None or value.tzinfo is not None:
            return value and value.astimezone(UTC)
        return value.replace(tzinfo=UTC)
