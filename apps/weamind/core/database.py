"""One database for the bot, SQLite or PostgreSQL, and the way to its newest schema."""

from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from sqlalchemy import URL, Connection, Engine, QueuePool, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError

_MIGRATIONS = Path(__file__).parents[1] / "migrations"
_START_LOCK = 0x77656D64
"""The lock in PostgreSQL under which the schema is changed."""
_LOCK_WAIT = 5.0
"""How long a writer of SQLite waits for another process, in seconds."""
_START_WAIT = 30.0
"""… while it brings the schema up to date."""
_CONNECT_WAIT = 5
"""How long PostgreSQL may take to accept a connection, in seconds."""
_STATEMENT_WAIT_MS = 5000
"""How long PostgreSQL may take for one statement."""
CONNECTIONS = 4


def checked_url(text: str) -> str:
    """*text* itself. ValueError: it is not a URL of SQLite or PostgreSQL."""
    _url(text)
    return text


def open_engine(url: str) -> Engine:
    """Where connections come from; nothing connects yet. No error of it quotes a parameter."""
    parsed = _url(url)
    if parsed.drivername != "sqlite":
        arguments = {"connect_timeout": _CONNECT_WAIT}
        engine = create_engine(
            parsed,
            pool_pre_ping=True,
            pool_size=CONNECTIONS,
            pool_timeout=_CONNECT_WAIT,
            connect_args=arguments,
            hide_parameters=True,
        )
        event.listen(engine, "connect", _on_connect_postgresql)
        return engine
    # A database in memory belongs to its connection, so there must be one, for all threads.
    size = 1 if parsed.database in (None, "", ":memory:") else CONNECTIONS
    engine = create_engine(
        parsed,
        poolclass=QueuePool,
        pool_size=size,
        max_overflow=0,
        connect_args={"timeout": _LOCK_WAIT, "check_same_thread": False},
        hide_parameters=True,
    )
    event.listen(engine, "connect", _on_connect_sqlite)
    event.listen(engine, "begin", _on_begin_sqlite)
    return engine


def writing(engine: Engine) -> Engine:
    """The same, for transactions that write.

    SQLite locks for them when they begin, not at the first write: two that have both read could
    not both go on.
    """
    return engine.execution_options(begin="BEGIN IMMEDIATE")


def migrate(engine: Engine) -> None:
    """Bring the schema up to date.

    Any number of processes may do so at once: the first one does it.
    """
    with writing(engine).connect() as connection:
        if connection.dialect.name == "sqlite":
            _be_patient(connection, _START_WAIT)
        with connection.begin():
            _lock_schema(connection)
            config = Config()
            config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
        if connection.dialect.name == "sqlite":
            _be_patient(connection, _LOCK_WAIT)


def _lock_schema(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.execute(text("SET LOCAL statement_timeout = 0"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _START_LOCK})


def _be_patient(connection: Connection, wait: float) -> None:
    driver: Any = connection.connection.driver_connection
    driver.execute(f"PRAGMA busy_timeout = {int(wait * 1000)}")


def _url(text: str) -> URL:
    try:
        url = make_url(text)
    except ArgumentError:
        raise ValueError("must be a URL, such as sqlite:///weamind.db") from None
    scheme = url.drivername.partition("+")[0]
    if scheme not in ("sqlite", "postgresql", "postgres"):
        raise ValueError("must begin with sqlite or postgresql")
    return url.set(drivername="sqlite" if scheme == "sqlite" else "postgresql+psycopg")


def _on_connect_sqlite(connection: Any, record: object) -> None:
    connection.isolation_level = None  # else the driver begins on its own, and too late
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA journal_mode = WAL")  # readers and a writer side by side
    connection.execute("PRAGMA synchronous = NORMAL")


def _on_begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))


def _on_connect_postgresql(connection: Any, record: object) -> None:
    connection.execute(f"SET statement_timeout = {_STATEMENT_WAIT_MS}")
    connection.commit()
