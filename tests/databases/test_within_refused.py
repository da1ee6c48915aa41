"""What cannot be exactly once is a UsageError, where it can be seen before anything is written."""

from __future__ import annotations

import contextlib
import functools
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from dibs import AsyncDibs, Dibs, Duplicate, UsageError
from dibs._core.done_table import DIALECTS
from dibs.testing import Server
from tests.apps.postgres import Postgres
from tests.databases.conftest import new_world
from tests.databases.worlds import EVERY_WORLD, Database, DjangoWorld, World

NewDatabase = Callable[[str], Database]
DONE: dict[str, Any] = {"window": 60, "after": "replay"}


@pytest.fixture
def dibs(valkey: Server) -> Iterator[Dibs]:
    with Dibs(valkey.url) as dibs:
        yield dibs


@pytest.fixture
def database(new_database: NewDatabase) -> Database:
    return new_database("sqlite")


@pytest.fixture
def engine(database: Database) -> Iterator[Any]:
    engine = create_engine(database.url())
    yield engine
    engine.dispose()


def add(session: Any, customer: str) -> None:
    session.execute(text("INSERT INTO orders VALUES (:customer, 1)"), {"customer": customer})


def called(dibs: Dibs, within: Any, function: Callable[..., Any] = add, **options: Any) -> Any:
    return dibs.once("order:{customer}", within=within, **DONE | options)(function)("c7")


def assert_nothing_in(database: Database) -> None:
    assert database.ask("SELECT * FROM orders") == []
    with contextlib.suppress(sqlite3.OperationalError):  # no such table
        assert database.ask("SELECT * FROM dibs_done") == []


# ---- a transaction that would never commit


@pytest.mark.parametrize("which", ["a session", "a sessionmaker", "engine.connect"])
def test_what_opens_no_transaction_is_refused(
    dibs: Dibs, engine: Any, database: Database, which: str
) -> None:
    """Both would roll back silently, and Redis would say done."""
    openers: dict[str, Any] = {
        "a session": functools.partial(Session, engine),
        "a sessionmaker": sessionmaker(engine),
        "engine.connect": engine.connect,
    }
    with pytest.raises(UsageError, match=r"would never commit.*write within=.*begin"):
        called(dibs, openers[which])
    assert_nothing_in(database)
    assert dibs.peek("order:c7") is None


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
@pytest.mark.parametrize("where", ["engine", "options"])
def test_autocommit_is_refused(
    dibs: Dibs, new_database: NewDatabase, kind: str, where: str
) -> None:
    """The record would commit before the work."""
    database = new_database(kind)
    options = {"isolation_level": "AUTOCOMMIT"}
    engine = create_engine(database.url(), **options if where == "engine" else {})
    chosen = engine if where == "engine" else engine.execution_options(**options)
    for within in (chosen.begin, sessionmaker(chosen).begin):
        with pytest.raises(UsageError, match="autocommit"):
            called(dibs, within)
    assert database.ask("SELECT * FROM orders") == []
    engine.dispose()


def test_a_begin_that_a_listener_sends_is_no_autocommit(dibs: Dibs, database: Database) -> None:
    """SQLAlchemy's recipe for savepoints in SQLite: isolation_level=None, and BEGIN."""
    from sqlalchemy import event

    engine = create_engine(database.url())
    event.listen(engine, "connect", lambda raw, _: setattr(raw, "isolation_level", None))
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    called(dibs, engine.begin)
    assert database.ask("SELECT customer FROM orders") == [("c7",)]
    engine.dispose()


def test_psycopg_in_autocommit_needs_a_transaction_block(
    dibs: Dibs, new_database: NewDatabase
) -> None:
    """With `transaction()` it is one."""
    import psycopg

    database = new_database("postgresql")

    def insert(connection: Any, customer: str) -> None:
        connection.execute("INSERT INTO orders VALUES (%s, 1)", (customer,))

    def inside(transaction: Any, customer: str) -> None:
        insert(transaction.connection, customer)

    with psycopg.connect(database.facts, autocommit=True) as connection:
        with pytest.raises(UsageError, match="autocommit"):
            called(dibs, lambda: contextlib.nullcontext(connection), insert)
        assert database.ask("SELECT * FROM orders") == []
        called(dibs, connection.transaction, inside)
    assert database.ask("SELECT customer FROM orders") == [("c7",)]
    assert dibs.peek("order:c7") is not None


def test_sqlite3_without_implicit_transactions_is_refused(dibs: Dibs, database: Database) -> None:
    """isolation_level=None, and no BEGIN."""
    connection = sqlite3.connect(database.facts, isolation_level=None)
    with contextlib.closing(connection), pytest.raises(UsageError, match="autocommit"):
        called(dibs, lambda: connection, lambda session, customer: None)
    assert_nothing_in(database)


def test_a_context_manager_that_does_not_commit_is_found_out(
    dibs: Dibs, engine: Any, database: Database
) -> None:
    """After the work, because it cannot be known before; nothing was stored, and Redis has no
    record."""

    @contextlib.contextmanager
    def connection() -> Iterator[Any]:
        with engine.connect() as connection, connection.begin() as transaction:
            yield connection
            transaction.rollback()

    @contextlib.contextmanager
    def session() -> Iterator[Any]:
        with Session(engine) as session:
            session.begin()
            yield session

    for within in (connection, session):
        with pytest.raises(UsageError, match="ended without a commit"):
            called(dibs, within)
        assert_nothing_in(database)
        assert dibs.peek("order:c7") is None


@pytest.mark.parametrize("driver", ["sqlalchemy", "sqlite3"])
def test_a_context_manager_that_swallows_exceptions_hides_none_of_dibs(
    dibs: Dibs, valkey: Server, engine: Any, database: Database, driver: str
) -> None:
    """The table is created all the same, a duplicate gets its result, and a failure shows."""

    @contextlib.contextmanager
    def transaction() -> Iterator[Any]:
        raw = sqlite3.connect(str(engine.url.database)) if driver == "sqlite3" else None
        opened: Any = raw or Session(engine, autobegin=True)
        try:
            if raw is None:
                opened.begin()
            yield opened
            opened.commit()
        except Exception:
            opened.rollback()
        finally:
            opened.close()

    @dibs.once("order:{customer}", within=transaction, **DONE)
    def place(session: Any, customer: str) -> str:
        sql = f"INSERT INTO orders VALUES ('{customer}', 1)"
        session.execute(sql if driver == "sqlite3" else text(sql))
        if customer == "poor":
            raise KeyError(customer)
        return customer

    assert place("c7") == "c7"
    valkey.flush()
    assert place("c7") == "c7"
    with pytest.raises(UsageError, match="without a commit") as refusal:
        place("poor")
    assert isinstance(refusal.value.__cause__, KeyError)
    assert database.ask("SELECT customer FROM orders") == [("c7",)]


@pytest.mark.parametrize("driver", ["sqlite3", "psycopg"])
def test_a_driver_that_tells_nothing_is_looked_after_once(
    dibs: Dibs, valkey: Server, new_database: NewDatabase, driver: str
) -> None:
    """The first commit is proved by a look from another transaction."""
    import psycopg

    database = new_database("sqlite" if driver == "sqlite3" else "postgresql")
    connect: Any = sqlite3.connect if driver == "sqlite3" else psycopg.connect

    @contextlib.contextmanager
    def forgetful() -> Iterator[Any]:
        with contextlib.closing(connect(database.facts)) as connection:
            yield connection

    @contextlib.contextmanager
    def committing() -> Iterator[Any]:
        with contextlib.closing(connect(database.facts)) as connection, connection:
            yield connection

    def insert(connection: Any, customer: str) -> None:
        connection.execute(f"INSERT INTO orders VALUES ('{customer}', 1)")

    called(dibs, committing, lambda connection, customer: None)  # creates the table
    database.ask("DELETE FROM dibs_done")
    valkey.flush()
    with pytest.raises(UsageError, match="ended without a commit"):
        called(dibs, forgetful, insert)
    assert database.ask("SELECT * FROM orders") == []
    assert dibs.peek("order:c7") is None


# ---- the work ends the transaction itself


@pytest.mark.parametrize(
    "name", ["session/sqlite", "session/postgresql", "engine/sqlite", "sqlite3/sqlite",
             "psycopg/postgresql", "engine/mariadb", "session/mariadb"],
)  # fmt: skip
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_work_that_ends_its_transaction_is_refused(
    dibs: Dibs, new_database: NewDatabase, name: str, end: str
) -> None:
    """Rolled back: nothing is kept. Committed: it never runs again, and there is no result."""
    world = new_world(name, new_database)

    def work(session: Any, customer: str) -> dict[str, int]:
        world.insert(session, customer, 1)
        if end == "rollback":
            session.rollback()
        else:
            session.commit()
        return {}

    with pytest.raises(UsageError, match="committed or rolled back before its end"):
        called(dibs, world.begin, work)
    kept = end == "commit"
    assert world.orders() == ["c7"] * kept
    assert world.records() == kept
    assert dibs.peek("order:c7") is None
    if kept:
        with pytest.raises(Duplicate) as caught:
            called(dibs, world.begin, work)
        assert caught.value.state == "done"
    closed(world)


def closed(world: World) -> None:
    import asyncio

    asyncio.run(world.close())


# ---- where it may not write


READ_ONLY: dict[str, dict[str, Any]] = {
    "postgresql": {"options": "-c default_transaction_read_only=on"},
    "mariadb": {"init_command": "SET SESSION TRANSACTION READ ONLY"},
    "sqlite": {},
}


@pytest.mark.parametrize("kind", READ_ONLY)
@pytest.mark.parametrize("table", ["with the table", "without"])
def test_a_read_only_transaction_is_refused(
    dibs: Dibs, new_database: NewDatabase, kind: str, table: str
) -> None:
    """By the setting of a session, or of a file."""
    database = new_database(kind)
    if table == "with the table":
        for statement in DIALECTS[kind].create:
            database.ask(statement)
    url = database.url()
    if kind == "sqlite":
        url = f"sqlite:///file:{database.facts}?mode=ro&uri=true"
    engine = create_engine(url, connect_args=READ_ONLY[kind])
    with pytest.raises(UsageError, match="read-only"):
        called(dibs, engine.begin)
    engine.dispose()
    assert database.ask("SELECT * FROM orders") == []


def test_a_replica_is_refused(dibs: Dibs, new_database: NewDatabase, postgres: Postgres) -> None:
    """A real one, that follows its primary."""
    database = new_database("postgresql")
    for statement in DIALECTS["postgresql"].create:
        database.ask(statement)
    replica = postgres.replica()
    try:
        replica.start()
        name = database.facts.partition("@/")[2].partition("?")[0]
        url = replica.url(name).replace("postgresql://", "postgresql+psycopg://")
        engine = create_engine(url)
        with pytest.raises(UsageError, match="open one on the primary"):
            called(dibs, engine.begin)
        engine.dispose()
    finally:
        replica.close()


def test_django_outside_of_atomic_is_refused(dibs: Dibs, new_database: NewDatabase) -> None:
    """There it commits each statement."""
    world = new_world("django/sqlite", new_database)
    assert isinstance(world, DjangoWorld)
    with dibs.claim("order:c7", **DONE) as claim:
        with pytest.raises(UsageError, match="autocommit"), claim.within(using=world.alias):
            raise AssertionError("not reached")
    world.connection.close()


async def test_asyncpg_outside_of_a_transaction_is_refused(
    valkey: Server, new_database: NewDatabase
) -> None:
    """A connection of the caller commits each statement there."""
    import asyncpg

    connection = await asyncpg.connect(new_database("postgresql").facts)
    async with AsyncDibs(valkey.url) as dibs, dibs.claim("order:c7", **DONE) as claim:
        with pytest.raises(UsageError, match="autocommit"):
            async with claim.within(connection):
                raise AssertionError("not reached")
    await connection.close()


def test_without_the_right_to_create_the_table_the_error_has_its_ddl(
    dibs: Dibs, new_database: NewDatabase
) -> None:
    """What a migration has to execute."""
    database = new_database("postgresql")
    database.ask("DROP ROLE IF EXISTS clerk")
    database.ask("CREATE ROLE clerk LOGIN")
    database.ask("GRANT INSERT ON orders TO clerk")
    engine = create_engine(database.url().replace("postgres@", "clerk@"))
    with pytest.raises(UsageError, match="may not create it") as caught:
        called(dibs, engine.begin)
    for statement in str(caught.value).partition("\n")[2].split(";"):
        if statement.strip():
            database.ask(statement)
    database.ask("GRANT ALL ON dibs_done TO clerk")
    called(dibs, engine.begin)
    assert database.ask("SELECT customer FROM orders") == [("c7",)]
    engine.dispose()
    database.ask("DROP OWNED BY clerk")
    database.ask("DROP ROLE clerk")


def test_in_a_transaction_of_the_caller_no_table_is_created(
    dibs: Dibs, engine: Any, database: Database
) -> None:
    """DDL would end it on some databases."""
    with dibs.claim("order:c7", **DONE) as claim, Session(engine) as session:
        with pytest.raises(UsageError, match="create it by a migration"):
            with claim.within(session):
                pass
    assert_nothing_in(database)


# ---- what is seen when it is written down


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"after": "release"}, 'write after="replay"'),
        ({"on_error": "hold"}, "rolls back what failed"),
        ({"within": 17}, "must be called"),
        ({"retry": -1}, "retry must be"),
        ({"within": None, "retry": 1}, "needs within="),
    ],
    ids=str,
)
def test_options_that_do_not_go_together_are_refused(
    dibs: Dibs, engine: Any, options: dict[str, Any], words: str
) -> None:
    """Where the function is decorated, not when it is called."""
    with pytest.raises(UsageError, match=words):
        dibs.once("order:{customer}", **{**DONE, "within": engine.begin, **options})


def test_a_function_without_a_place_for_the_transaction_is_refused(dibs: Dibs, engine: Any) -> None:
    """A method has self there; and the fields of a template are those that callers pass."""
    with pytest.raises(UsageError, match=r"without \(\)"):
        dibs.once("order:{customer}", within=engine.begin(), **DONE)
    decorate = dibs.once("order:{customer}", within=engine.begin, **DONE)
    with pytest.raises(UsageError, match="there is none"):
        decorate(lambda: None)
    with pytest.raises(UsageError, match="decorate a function"):

        class Shop:
            @decorate
            def place(self, session: Any, customer: str) -> None: ...

    with pytest.raises(UsageError, match="no parameter 'session'"):
        dibs.once("order:{session}", within=engine.begin, **DONE)(add)


def test_the_signature_is_that_which_callers_see(dibs: Dibs, engine: Any) -> None:
    """FastAPI, Click and others read it."""
    import inspect

    place = dibs.once("order:{customer}", within=engine.begin, **DONE)(add)
    assert list(inspect.signature(place).parameters) == ["customer"]


async def test_the_other_half_is_refused(valkey: Server, database: Database, engine: Any) -> None:
    """A transaction for threads with AsyncDibs, and one for asyncio with Dibs."""
    async_engine = create_async_engine(database.url(is_async=True))
    async with AsyncDibs(valkey.url) as async_dibs:

        @async_dibs.once("order:{customer}", within=engine.begin, **DONE)
        async def place(session: Any, customer: str) -> None: ...

        with pytest.raises(UsageError, match="an async function needs a transaction for asyncio"):
            await place("c7")
        async with async_dibs.claim("order:c7", **DONE) as claim:
            with engine.connect() as connection, pytest.raises(UsageError, match="asyncio"):
                claim.within(connection)
    with Dibs(valkey.url) as dibs, pytest.raises(UsageError, match="one for threads"):
        called(dibs, async_engine.begin)
    await async_engine.dispose()
    assert_nothing_in(database)


def test_an_unknown_transaction_is_refused(dibs: Dibs) -> None:
    """Before the function is called."""
    with pytest.raises(UsageError, match="takes those of SQLAlchemy, psycopg, asyncpg"):
        called(dibs, lambda: contextlib.nullcontext(object()))


def test_a_session_with_several_databases_is_refused(dibs: Dibs, engine: Any) -> None:
    """The record can be in one of them only."""
    with pytest.raises(UsageError, match="several databases"):
        called(dibs, sessionmaker(binds={}).begin)


def test_djangos_atomic_has_to_be_recognised(dibs: Dibs, new_database: NewDatabase) -> None:
    """Behind a lambda it is not visible that there will be no first argument."""
    world = new_world("django/sqlite", new_database)
    assert isinstance(world, DjangoWorld)
    opener = world.begin
    with pytest.raises(UsageError, match=r"dibs\.integrations\.django\.atomic"):
        called(dibs, lambda: opener(), lambda session, customer: None)
    with dibs.claim("order:c8", **DONE) as claim:
        with pytest.raises(UsageError, match=r"outside of transaction\.atomic"):
            with claim.within(using=world.alias):
                pass
    world.connection.close()
    assert_nothing_in(world.database)


def test_a_claim_is_recorded_once(dibs: Dibs, engine: Any) -> None:
    """Not twice, not as a replay, not after its end."""
    called(dibs, engine.begin)
    with dibs.claim("order:c8", **DONE) as claim, engine.begin() as connection:
        with claim.within(connection) as done:
            assert not done.replayed
            with pytest.raises(UsageError, match="no result yet"):
                _ = done.result
            claim.complete(8)
        with pytest.raises(UsageError, match="recorded already"):
            claim.within(connection)
    with pytest.raises(UsageError, match="has ended"):
        claim.within(None)
    with dibs.claim("order:c7", **DONE) as claim, pytest.raises(UsageError, match="a replay"):
        claim.within(None)


# ---- one writer


SQLITE_WORLDS = [name for name in EVERY_WORLD if name.endswith("/sqlite")]


@pytest.mark.parametrize("name", [each for each in SQLITE_WORLDS if "django" not in each])
@pytest.mark.parametrize("path", ["the same", "a link"])
async def test_a_transaction_that_would_wait_for_the_one_around_it_is_refused(
    valkey: Server, new_database: NewDatabase, tmp_path: Path, name: str, path: str
) -> None:
    """SQLite has one writer: the inner one would wait for the end of the outer one. That is seen
    before it waits, also with another engine, and by another path to the file."""
    outer = new_world(name, new_database)
    link = tmp_path / "link.db"
    link.symlink_to(outer.database.facts)
    inner = type(outer)(Database("sqlite", str(link), outer.ask, is_new=False))
    if path == "the same":
        inner = outer
    dibs = outer.dibs(valkey.url)
    within = dibs.once("inner", **DONE, within=inner.begin)(inner.nothing)

    def call_inner(session: Any) -> Any:
        return within()

    with pytest.raises(UsageError, match="wait for the one around it"):
        await outer.placing(dibs, call_inner)("c7")
    assert (outer.orders(), outer.records()) == ([], 0)
    await outer.awaited(within)()  # alone, it runs
    assert outer.records() == 1
    await outer.closed(dibs)
    await outer.close()
    await inner.close()


@pytest.mark.parametrize("after", ["in the block", "after the block"])
def test_a_claim_in_an_open_transaction_is_around_others(
    dibs: Dibs, new_database: NewDatabase, after: str
) -> None:
    """From the first statement of its record until the transaction has ended."""
    engine = create_engine(new_database("sqlite").url())

    @dibs.once("inner", within=engine.begin, **DONE)
    def inner(connection: Any) -> int:
        return 1

    dibs.once("first", within=engine.begin, **DONE)(lambda connection: 1)()
    with Session(engine) as session, dibs.claim("outer", **DONE) as claim:
        with claim.within(session):
            if after == "in the block":
                with pytest.raises(UsageError, match="wait for the one around it"):
                    inner()
        if after == "after the block":
            with pytest.raises(UsageError, match="wait for the one around it"):
                inner()
        session.commit()
        assert inner() == 1
    engine.dispose()


def test_what_does_not_wait_for_itself_is_not_refused(dibs: Dibs, tmp_path: Path) -> None:
    """Another file; a savepoint of the same connection; a transaction in another thread, which
    waits until this one has ended."""
    one, two = (create_engine(f"sqlite:///{tmp_path}/{name}.db") for name in ("one", "two"))
    opened = sqlite3.connect(tmp_path / "three.db")

    @contextlib.contextmanager
    def block() -> Iterator[sqlite3.Connection]:
        is_outermost = not opened.in_transaction
        yield opened
        if is_outermost:
            opened.commit()

    def nested(outer: Any, inner: Any, call: Any) -> Any:
        within = dibs.once("in:{of}", **DONE, within=inner)(lambda connection, of: of)
        return dibs.once("out:{of}", **DONE, within=outer)(lambda connection, of: call(within, of))

    assert nested(one.begin, two.begin, lambda within, of: within(of))("file") == "file"
    assert nested(block, block, lambda within, of: within(of))("savepoint") == "savepoint"
    started: list[Any] = []
    with ThreadPoolExecutor() as pool:
        nested(one.begin, one.begin, lambda *call: started.append(pool.submit(*call)))("thread")
    assert started[0].result() == "thread"
    opened.close()
    one.dispose()
    two.dispose()


def test_django_on_one_connection_nests_and_on_two_it_is_refused(
    dibs: Dibs, new_database: NewDatabase
) -> None:
    """Two aliases of one file are two connections."""
    outer = new_world("django/sqlite", new_database)
    other = DjangoWorld(Database("sqlite", outer.database.facts, outer.ask, is_new=False))
    assert isinstance(outer, DjangoWorld)
    same = dibs.once("same", **DONE, within=outer.begin)(lambda: 1)
    another = dibs.once("another", **DONE, within=other.begin)(lambda: 1)
    assert dibs.once("outer", **DONE, within=outer.begin)(lambda: same())() == 1
    with pytest.raises(UsageError, match="wait for the one around it"):
        dibs.once("outer2", **DONE, within=outer.begin)(lambda: another())()
    outer.connection.close()
    other.connection.close()
