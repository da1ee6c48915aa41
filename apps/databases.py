"""SQLite or PostgreSQL, as the menu and the orders use them: connections that threads share."""

from datetime import UTC, datetime
from typing import Any

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
)
from sqlalchemy.exc import ArgumentError

_LOCK_WAIT = 30.0
"""How long a writer of SQLite waits for another one, in seconds."""
_CONNECT_WAIT = 5
"""How long PostgreSQL may take to accept a connection, in seconds."""


def open_engine(url: str, *, example: str) -> Engine:
    """Where connections come from; nothing connects yet.

    ValueError: the URL is none of SQLite or PostgreSQL; *example* is one that would do.
    """
    parsed = _parsed(url, example)
    if parsed.drivername != "sqlite":
        arguments = {"connect_timeout": _CONNECT_WAIT}
        return create_engine(parsed, pool_pre_ping=True, connect_args=arguments)
    arguments = {"timeout": _LOCK_WAIT, "check_same_thread": False}
    # A database in memory belongs to its connection, so there must be one, for all threads.
    in_memory = parsed.database in (None, "", ":memory:")
    only_one = {"pool_size": 1, "max_overflow": 0} if in_memory else {}
    engine = create_engine(parsed, poolclass=QueuePool, connect_args=arguments, **only_one)
    event.listen(engine, "connect", _on_connect)
    event.listen(engine, "begin", _on_begin)
    return engine


def writing(engine: Engine) -> Engine:
    """The same, for transactions that write.

    SQLite locks for them when they begin, not at the first write: two that have both read could
    not both go on.
    """
    return engine.execution_options(begin="BEGIN IMMEDIATE")


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
