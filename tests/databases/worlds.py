"""A database, a driver, a half of dibs: what every situation of `within` is tried in.

A world has a table `orders` and a function `place`, which adds a row to it and is called through
`once(within=…)`. Functions of a world for threads run in threads, so that several run at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from dibs import AsyncDibs, Dibs

ORDERS = "CREATE TABLE orders (customer varchar(300), amount integer)"
INSERT = "INSERT INTO orders VALUES (:customer, :amount)"


class World:
    """One driver on one database."""

    is_async = False
    hands_over = True

    def __init__(self, database: Any) -> None:
        self.database = database
        self.calls = itertools.count(1)
        self.called = 0

    @property
    def begin(self) -> Any:
        """What `within` takes."""
        raise AssertionError("each has its own")

    def insert(self, session: Any, customer: str, amount: int) -> Any:
        """The work."""
        raise AssertionError("each has its own")

    def execute(self, session: Any, sql: str) -> Any:
        """Any statement without parameters."""
        raise AssertionError("each has its own")

    async def close(self) -> None:
        """Release the connections."""

    # ---- dibs

    def dibs(self, target: Any, **options: Any) -> Any:
        """A client of its half."""
        return (AsyncDibs if self.is_async else Dibs)(target, **options)

    async def closed(self, dibs: Any) -> None:
        """Close a client."""
        await settled(dibs.aclose() if self.is_async else dibs.close())

    def decorated(self, dibs: Any, function: Callable[..., Any], **options: Any) -> Any:
        """*function* through `once(within=…)`, to be awaited in both halves."""
        chosen = {"window": 60, "after": "replay", "within": self.begin} | options
        template = chosen.pop("template", "order:{customer}")
        return self.awaited(dibs.once(template, **chosen)(function))

    def awaited(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """*function*; that of threads runs in a thread."""

        async def call(*args: Any, **kwargs: Any) -> Any:
            if self.is_async:
                return await function(*args, **kwargs)
            return await asyncio.to_thread(self.in_thread, function, args, kwargs)

        return call

    def in_thread(self, function: Any, args: Any, kwargs: Any) -> Any:
        return function(*args, **kwargs)

    def placing(self, dibs: Any, then: Callable[[Any], Any] | None = None, **options: Any) -> Any:
        """`place(customer, amount)`: adds an order. *then*: what else it does with the session."""
        return self.decorated(dibs, self.place(then), **options)

    def place(self, then: Callable[[Any], Any] | None = None) -> Callable[..., Any]:
        def count() -> dict[str, int]:
            self.called += 1
            return {"order": next(self.calls)}

        if self.is_async:

            async def aplace(session: Any, customer: str, amount: int = 1) -> dict[str, int]:
                made = count()
                await self.insert(session, customer, amount)
                if then is not None:
                    await settled(then(session))
                return made

            return aplace
        if self.hands_over:

            def place(session: Any, customer: str, amount: int = 1) -> dict[str, int]:
                made = count()
                self.insert(session, customer, amount)
                if then is not None:
                    then(session)
                return made

            return place

        def bare(customer: str, amount: int = 1) -> dict[str, int]:
            made = count()
            self.insert(None, customer, amount)
            if then is not None:
                then(None)
            return made

        return bare

    @property
    def nothing(self) -> Callable[..., Any]:
        """A function that does nothing."""

        async def anothing(session: Any) -> None: ...

        def nothing(session: Any) -> None: ...

        return anothing if self.is_async else nothing

    # ---- commits that fail

    def refuse_commits(self) -> None:
        """Of an order of ann the COMMIT fails, and not the INSERT: a deferred constraint."""
        if self.database.kind == "postgresql":
            self.ask("ALTER TABLE orders ADD UNIQUE (customer) DEFERRABLE INITIALLY DEFERRED")
            self.ask("INSERT INTO orders VALUES ('ann', 0)")
            return
        self.ask("CREATE TABLE shoppers (name varchar(300) PRIMARY KEY)")
        self.ask("DROP TABLE orders")
        known = "REFERENCES shoppers (name) DEFERRABLE INITIALLY DEFERRED"
        self.ask(f"CREATE TABLE orders (customer varchar(300) {known}, amount integer)")

    def allow_commits(self) -> None:
        """Another attempt succeeds."""
        is_taken = self.database.kind == "postgresql"
        self.ask("DELETE FROM orders" if is_taken else "INSERT INTO shoppers VALUES ('ann')")

    def paid(self) -> int:
        """How many orders were committed."""
        return len(self.ask("SELECT 1 FROM orders WHERE amount = 1"))

    # ---- looking at the database from outside

    def ask(self, sql: str) -> list[Any]:
        return self.database.ask(sql)

    def orders(self) -> list[str]:
        return sorted(customer for (customer,) in self.ask("SELECT customer FROM orders"))

    def records(self) -> int:
        """How many rows `dibs_done` has; 0 without a table."""
        try:
            return self.ask("SELECT count(*) FROM dibs_done")[0][0]
        except Exception:
            return 0


async def settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


# ---- databases


class Database:
    """An empty one, with a table of orders."""

    def __init__(
        self, kind: str, facts: Any, ask: Callable[[str], list[Any]], *, is_new: bool = True
    ) -> None:
        self.kind = kind
        self.facts = facts
        self.ask = ask
        if is_new:
            ask(ORDERS)

    def url(self, *, is_async: bool = False) -> str:
        """For SQLAlchemy."""
        if self.kind == "sqlite":
            return f"sqlite{'+aiosqlite' if is_async else ''}:///{self.facts}"
        if self.kind == "mariadb":
            server, name = self.facts
            return f"mariadb+pymysql://root@/{name}?unix_socket={server.socket}"
        return self.facts.replace("postgresql://", "postgresql+psycopg://")


def sqlite_database(path: str) -> Database:
    def ask(sql: str) -> list[Any]:
        with contextlib.closing(sqlite3.connect(path, timeout=20)) as connection, connection:
            return connection.execute(sql).fetchall()

    return Database("sqlite", path, ask)


# ---- SQLAlchemy


class SQLAlchemyWorld(World):
    """Engine and connections."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.engine = self.made()

    def made(self, **options: Any) -> Any:
        from sqlalchemy import create_engine

        return create_engine(self.database.url(), **options)

    @property
    def begin(self) -> Any:
        return self.engine.begin

    def insert(self, session: Any, customer: str, amount: int) -> Any:
        from sqlalchemy import text

        return session.execute(text(INSERT), {"customer": customer, "amount": amount})

    def execute(self, session: Any, sql: str) -> Any:
        from sqlalchemy import text

        return session.execute(text(sql))

    async def close(self) -> None:
        self.engine.dispose()


class SessionWorld(SQLAlchemyWorld):
    """Sessions."""

    @property
    def sessions(self) -> Any:
        from sqlalchemy.orm import sessionmaker

        return sessionmaker(self.engine)

    @property
    def begin(self) -> Any:
        return self.sessions.begin


class AsyncEngineWorld(SQLAlchemyWorld):
    """Engine and connections for asyncio."""

    is_async = True

    def made(self, **options: Any) -> Any:
        from sqlalchemy.ext.asyncio import create_async_engine

        return create_async_engine(self.database.url(is_async=True), **options)

    async def close(self) -> None:
        await self.engine.dispose()


class AsyncSessionWorld(AsyncEngineWorld):
    """Sessions for asyncio."""

    @property
    def sessions(self) -> Any:
        from sqlalchemy.ext.asyncio import async_sessionmaker

        return async_sessionmaker(self.engine)

    @property
    def begin(self) -> Any:
        return self.sessions.begin


# ---- drivers


class PsycopgWorld(World):
    """A pool of psycopg, with rows that are dicts."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        from psycopg.rows import dict_row
        from psycopg_pool import ConnectionPool

        options = {"row_factory": dict_row}
        self.pool = ConnectionPool(database.facts, max_size=10, kwargs=options, open=True)

    @property
    def begin(self) -> Any:
        return self.pool.connection

    def insert(self, session: Any, customer: str, amount: int) -> Any:
        return session.execute("INSERT INTO orders VALUES (%s, %s)", (customer, amount))

    def execute(self, session: Any, sql: str) -> Any:
        return session.execute(sql)

    async def close(self) -> None:
        self.pool.close()


class AsyncPsycopgWorld(PsycopgWorld):
    """The same for asyncio."""

    is_async = True

    def __init__(self, database: Database) -> None:
        World.__init__(self, database)
        from psycopg_pool import AsyncConnectionPool

        self.pool = AsyncConnectionPool(database.facts, max_size=10, open=False)

    @property
    def begin(self) -> Any:
        @contextlib.asynccontextmanager
        async def connection() -> AsyncIterator[Any]:
            await self.pool.open()
            async with self.pool.connection() as connection:
                yield connection

        return connection

    async def close(self) -> None:
        await self.pool.close()


class AsyncpgWorld(World):
    """A pool of asyncpg."""

    is_async = True

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.pool: Any = None

    @property
    def begin(self) -> Any:
        @contextlib.asynccontextmanager
        async def acquire() -> AsyncIterator[Any]:
            import asyncpg

            if self.pool is None:
                self.pool = await asyncpg.create_pool(self.database.facts, min_size=1, max_size=10)
            async with self.pool.acquire() as connection:
                yield connection

        return acquire

    def insert(self, session: Any, customer: str, amount: int) -> Any:
        return session.execute("INSERT INTO orders VALUES ($1, $2)", customer, amount)

    def execute(self, session: Any, sql: str) -> Any:
        return session.execute(sql)

    async def close(self) -> None:
        if self.pool is not None:
            await self.pool.close()


class SQLiteWorld(World):
    """sqlite3, a connection for each transaction."""

    @property
    def begin(self) -> Any:
        @contextlib.contextmanager
        def connection() -> Iterator[sqlite3.Connection]:
            opened = sqlite3.connect(self.database.facts, timeout=20)
            opened.row_factory = sqlite3.Row
            with contextlib.closing(opened), opened:
                yield opened

        return connection

    def insert(self, session: Any, customer: str, amount: int) -> Any:
        return session.execute("INSERT INTO orders VALUES (?, ?)", (customer, amount))

    def execute(self, session: Any, sql: str) -> Any:
        return session.execute(sql)


class DjangoWorld(World):
    """`transaction.atomic` on a database with its own alias."""

    hands_over = False
    numbers = itertools.count(1)

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        import django
        from django.conf import settings
        from django.db import connections

        if not settings.configured:
            settings.configure()
        django.setup()
        self.alias = f"world_{next(self.numbers)}"
        backend = {"sqlite": "sqlite3"}.get(database.kind, database.kind)
        options = {"ENGINE": f"django.db.backends.{backend}", "NAME": database.facts}
        if database.kind == "postgresql":
            from psycopg.conninfo import conninfo_to_dict

            found = conninfo_to_dict(database.facts)
            options |= {"NAME": found["dbname"], "USER": found["user"], "HOST": found["host"]}
        everything = {"default": {}, self.alias: options}
        connections.settings[self.alias] = connections.configure_settings(everything)[self.alias]

    @property
    def connection(self) -> Any:
        from django.db import connections

        return connections[self.alias]

    @property
    def begin(self) -> Any:
        from dibs.integrations.django import atomic

        return atomic(using=self.alias)

    def in_thread(self, function: Any, args: Any, kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        finally:
            self.connection.close()

    def insert(self, session: Any, customer: str, amount: int) -> Any:
        with self.connection.cursor() as cursor:
            cursor.execute("INSERT INTO orders VALUES (%s, %s)", [customer, amount])

    def execute(self, session: Any, sql: str) -> Any:
        with self.connection.cursor() as cursor:
            cursor.execute(sql)


WORLDS: dict[str, tuple[type[World], tuple[str, ...]]] = {
    "engine": (SQLAlchemyWorld, ("postgresql", "sqlite", "mariadb")),
    "session": (SessionWorld, ("postgresql", "sqlite", "mariadb")),
    "async-engine": (AsyncEngineWorld, ("postgresql", "sqlite")),
    "async-session": (AsyncSessionWorld, ("postgresql", "sqlite")),
    "psycopg": (PsycopgWorld, ("postgresql",)),
    "async-psycopg": (AsyncPsycopgWorld, ("postgresql",)),
    "asyncpg": (AsyncpgWorld, ("postgresql",)),
    "sqlite3": (SQLiteWorld, ("sqlite",)),
    "django": (DjangoWorld, ("postgresql", "sqlite")),
}
EVERY_WORLD = [f"{name}/{kind}" for name, (_, kinds) in WORLDS.items() for kind in kinds]
