"""`within=` while processes die, stop and race, on several isolation levels."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.orm import Session

from dibs import Dibs, Duplicate
from dibs.testing import Child, Server, eventually
from tests.databases.worlds import Database

NewDatabase = Callable[[str], Database]
Spawn = Callable[..., Child]
DONE: dict[str, Any] = {"window": 60, "after": "replay"}
NO_REDIS = "redis://127.0.0.1:1"


@pytest.fixture(params=["postgresql", "sqlite"])
def database(request: pytest.FixtureRequest, new_database: NewDatabase) -> Database:
    return new_database(request.param)


@pytest.fixture
def engine(database: Database) -> Iterator[Any]:
    engine = create_engine(database.url())
    yield engine
    engine.dispose()


def placing(dibs: Dibs, engine: Any, **options: Any) -> Any:
    @dibs.once("order:{customer}", within=engine.begin, **DONE | options)
    def place(connection: Any, customer: str) -> str:
        values = {"customer": customer}
        connection.execute(text("INSERT INTO orders VALUES (:customer, 1)"), values)
        return f"by {os.getpid()}"

    return place


def orders(database: Database) -> list[tuple[str, int]]:
    return database.ask("SELECT customer, count(*) FROM orders GROUP BY customer ORDER BY 1")


# ---- a process dies

POINTS = ["claimed", "taken", "worked", "recorded", "committing", "committed"]


def die_at(point: str, database: str, redis: str) -> None:
    """Place an order, and be killed at *point*."""
    import contextlib
    import os
    import signal

    from sqlalchemy import create_engine, event, text

    from dibs import Dibs

    engine = create_engine(database)
    seen: list[str] = []

    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def executed(connection: object, cursor: object, sql: str, *_: object) -> None:
        if "dibs_done" in sql and not sql.startswith(("CREATE", "SELECT")):
            seen.append(sql)
        if point == "taken" and len(seen) == 1 and sql.startswith("INSERT INTO dibs_done"):
            die()
        if point == "recorded" and sql.startswith("UPDATE dibs_done"):
            die()

    event.listen(engine, "after_cursor_execute", executed)
    if point == "committing":
        event.listen(engine, "commit", lambda connection: die())

    @contextlib.contextmanager
    def begin():  # type: ignore[no-untyped-def]
        if point == "claimed":
            die()
        with engine.begin() as connection:
            yield connection
        if point == "committed":
            die()

    with Dibs(redis) as dibs:

        @dibs.once("order:{customer}", window=60, after="replay", lease=1, within=begin)
        def place(connection: object, customer: str) -> str:
            values = {"customer": customer}
            connection.execute(text("INSERT INTO orders VALUES (:customer, 1)"), values)
            if point == "worked":
                die()
            return "by the one that died"

        place("c7")


@pytest.mark.parametrize("point", POINTS)
def test_a_process_that_is_killed_leaves_one_order_or_none(
    point: str, valkey: Server, database: Database, engine: Any, spawn: Spawn
) -> None:
    """Wherever it dies, the next submission gets the order, and there is one."""
    with Dibs(valkey.url) as dibs:
        placing(dibs, engine)("c0")  # creates the table
        child = spawn(die_at, point, database.url(), valkey.url)
        with pytest.raises(AssertionError, match=r"ended with (-9|137)"):  # killed, not by us
            child.lines()
        place = placing(dibs, engine, wait=60)
        first = place("c7")
        assert (first == "by the one that died") is (point == "committed")
        valkey.flush()
        assert place("c7") == first
    assert orders(database) == [("c0", 1), ("c7", 1)]


def die_committed(database: str, redis: str) -> None:
    """Place an order, and be killed when it is committed and Redis has not heard of it."""
    import contextlib
    import os
    import signal

    from sqlalchemy import create_engine, text

    from dibs import Dibs

    engine = create_engine(database)

    @contextlib.contextmanager
    def begin():  # type: ignore[no-untyped-def]
        with engine.begin() as connection:
            yield connection
        os.kill(os.getpid(), signal.SIGKILL)

    with Dibs(redis) as dibs:

        @dibs.once("order:{customer}", window=60, after="replay", lease=30, within=begin)
        def place(connection: object, customer: str) -> str:
            values = {"customer": customer}
            connection.execute(text("INSERT INTO orders VALUES (:customer, 1)"), values)
            return "by the one that died"

        place("c7")


@contextlib.contextmanager
def connections(engine: Any) -> Iterator[list[str]]:
    """The statements that look into the table, and the transactions that were begun."""
    seen: list[str] = []

    def began(connection: object) -> None:
        seen.append("BEGIN")

    event.listen(engine, "begin", began)
    try:
        yield seen
    finally:
        event.remove(engine, "begin", began)


def test_the_table_answers_for_a_first_copy_that_seems_dead(
    valkey: Server, database: Database, engine: Any, spawn: Spawn
) -> None:
    """Committed, then killed: when a renewal is overdue, one query answers, and Redis knows the
    rest; before that no connection is touched."""
    with Dibs(valkey.url) as dibs, Dibs(valkey.url) as elsewhere:
        place = placing(dibs, engine, lease=30)
        place("c0")  # creates the table
        with pytest.raises(AssertionError, match=r"ended with (-9|137)"):
            spawn(die_committed, database.url(), valkey.url).lines()
        redis = valkey.client()
        redis.pexpire("order:c7", 25_000)  # renewed 5 s ago: it may be alive
        with connections(engine) as seen:
            with pytest.raises(Duplicate) as refused:
                place("c7")
            assert (refused.value.state, refused.value.source, seen) == ("running", "redis", [])
            redis.pexpire("order:c7", 19_500)  # 10.5 s ago
            assert place("c7") == "by the one that died"
            assert seen == ["BEGIN"]
            eventually(lambda: (redis.get("order:c7") or b"").startswith(b"dibs1 done"))
            again = placing(elsewhere, engine, lease=30)
            assert place("c7") == again("c7") == "by the one that died"
            assert seen == ["BEGIN"]
    assert orders(database) == [("c0", 1), ("c7", 1)]


def test_a_first_copy_that_has_died_without_a_commit_is_still_running(
    valkey: Server, database: Database, engine: Any, spawn: Spawn
) -> None:
    """The table knows nothing: refused as before, by Redis; each caller asks once."""
    with Dibs(valkey.url) as dibs:
        place = placing(dibs, engine, lease=30)
        place("c0")
        valkey.client().set("order:c7", b"5a1f-2c - 193310c1a40@web-1:4711", px=15_000)
        with connections(engine) as seen:
            with pytest.raises(Duplicate) as refused:
                placing(dibs, engine, lease=30, wait=0.5)("c7")
            assert (refused.value.state, refused.value.source) == ("running", "redis")
            assert seen == ["BEGIN"]
        assert (valkey.client().get("order:c7") or b"").startswith(b"5a1f-2c")


def test_a_record_of_another_claim_is_an_answer_but_not_its_end(
    valkey: Server, database: Database, engine: Any
) -> None:
    """The claim in Redis is not the one that was committed: nothing of it is touched."""
    with Dibs(valkey.url) as dibs:
        place = placing(dibs, engine, lease=30)
        first = place("c7")
        other = b"5a1f-2c - 193310c1a40@web-1:4711"
        valkey.client().set("order:c7", other, px=15_000)
        assert place("c7") == first
        assert dibs.peek("warm:up") is None  # what was posted has arrived
        assert valkey.client().get("order:c7") == other


def test_a_database_that_is_down_changes_nothing_for_a_duplicate(valkey: Server) -> None:
    """It cannot be asked: the duplicate is refused as running."""
    engine = create_engine("postgresql+psycopg://nobody@127.0.0.1:1/none")
    valkey.client().set("order:c7", b"5a1f-2c - 193310c1a40@web-1:4711", px=15_000)
    with Dibs(valkey.url) as dibs, pytest.raises(Duplicate) as refused:
        placing(dibs, engine, lease=30)("c7")
    assert (refused.value.state, refused.value.source) == ("running", "redis")


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_row_that_is_locked_is_not_waited_for(
    kind: str, valkey: Server, new_database: NewDatabase
) -> None:
    """Another transaction has the row: the question is a plain read."""
    engine = create_engine(new_database(kind).url())
    with Dibs(valkey.url) as dibs, engine.connect() as other:
        place = placing(dibs, engine, lease=30)
        first = place("c7")
        valkey.client().set("order:c7", b"5a1f-2c - 193310c1a40@web-1:4711", px=15_000)
        other.execute(text("SELECT token FROM dibs_done FOR UPDATE"))
        assert place("c7") == first
    engine.dispose()


async def test_many_duplicates_of_one_that_seems_dead_share_a_query(
    valkey: Server, new_database: NewDatabase
) -> None:
    """Fifty at once, one connection; those who wait are answered as well."""
    from sqlalchemy.ext.asyncio import create_async_engine

    from dibs import AsyncDibs

    database = new_database("postgresql")
    engine = create_async_engine(database.url(is_async=True))
    async with AsyncDibs(valkey.url) as dibs:

        def placed(**options: Any) -> Any:
            @dibs.once("order:{customer}", within=engine.begin, lease=30, **DONE | options)
            async def place(connection: Any, customer: str) -> str:
                return f"order of {customer}"

            return place

        await placed()("c7")
        [(token,)] = database.ask("SELECT token FROM dibs_done")
        running = token.encode() + b" - 193310c1a40@web-1:4711"
        for wait in (0, 20):
            valkey.client().set("order:c7", running, px=15_000)
            with connections(engine.sync_engine) as seen:
                place = placed(wait=wait)
                calls = [place("c7") for _ in range(50)]
                assert set(await asyncio.gather(*calls)) == {"order of c7"}
            assert seen == ["BEGIN"]
    await engine.dispose()


# ---- a process stops


def stop_inside(database: str, redis: str) -> None:
    """Place an order, and be stopped in the middle of it."""
    import os
    import signal

    from sqlalchemy import create_engine, text

    from dibs import Dibs

    engine = create_engine(database)
    with Dibs(redis) as dibs:

        @dibs.once("order:{customer}", window=60, after="replay", lease=1, within=engine.begin)
        def place(connection: object, customer: str) -> str:
            values = {"customer": customer}
            connection.execute(text("INSERT INTO orders VALUES (:customer, 1)"), values)
            print("stopping", flush=True)
            os.kill(os.getpid(), signal.SIGSTOP)
            return "by the one that was stopped"

        print(place("c7"), flush=True)


def test_a_process_that_was_stopped_beyond_its_lease_still_decides(
    valkey: Server, new_database: NewDatabase, spawn: Spawn
) -> None:
    """Its transaction is open: the others wait or are refused; it commits, and they get that."""
    database = new_database("postgresql")
    engine = create_engine(database.url())
    with Dibs(valkey.url) as dibs:
        placing(dibs, engine)("c0")
        child = spawn(stop_inside, database.url(), valkey.url)
        assert child.line() == "stopping"
        eventually(lambda: valkey.client().get("order:c7") is None, within=20)
        with pytest.raises(Duplicate) as caught:
            placing(dibs, engine)("c7")
        assert (caught.value.state, caught.value.source) == ("running", "table")
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(placing(dibs, engine, wait=60), "c7")
            eventually(lambda: valkey.client().get("order:c7") is not None)
            os.kill(child.pid, signal.SIGCONT)
            assert waiting.result() == "by the one that was stopped"
        assert child.line() == "by the one that was stopped"
    engine.dispose()
    assert orders(database) == [("c0", 1), ("c7", 1)]


# ---- isolation levels

LEVELS = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]


@pytest.mark.parametrize("level", LEVELS)
def test_clients_without_redis_place_each_order_once(level: str, new_database: NewDatabase) -> None:
    """Four processes' worth of clients, no Redis, the same six keys at once; no error is left."""
    database = new_database("postgresql")
    engine = create_engine(database.url(), isolation_level=level, pool_size=8)
    clients = [Dibs(NO_REDIS) for _ in range(4)]
    ran: list[str] = []
    retry = 20 if level == "SERIALIZABLE" else 0  # it ends any transaction that might conflict

    def place_in(dibs: Dibs) -> Any:
        @dibs.once("order:{customer}", within=engine.begin, wait=60, retry=retry, **DONE)
        def place(connection: Any, customer: str) -> str:
            ran.append(customer)
            values = {"customer": customer}
            connection.execute(text("INSERT INTO orders VALUES (:customer, 1)"), values)
            return f"{customer} {len(ran)}"

        return place

    keys = [f"c{number}" for number in range(6)]
    with ThreadPoolExecutor(8) as pool:
        calls = [pool.submit(place_in(each), key) for key in keys for each in clients]
        results = [(call.result(), key) for call, key in zip(calls, keys * 4, strict=True)]
    for each in clients:
        each.close()
    engine.dispose()
    assert retry or sorted(ran) == keys
    assert len({result for result, _ in results}) == len(keys)
    assert orders(database) == [(key, 1) for key in keys]


def test_a_snapshot_that_is_older_than_the_record_is_no_second_run(
    valkey: Server, new_database: NewDatabase
) -> None:
    """With REPEATABLE READ, a transaction that has read before does not see the record. It cannot
    take it either: the database refuses, and the caller begins again."""
    database = new_database("postgresql")
    engine = create_engine(database.url(), isolation_level="REPEATABLE READ")
    with Dibs(valkey.url) as dibs, Session(engine) as session:
        placing(dibs, engine)("c0")  # creates the table
        session.execute(text("SELECT count(*) FROM orders")).one()
        placing(dibs, engine)("c7")
        valkey.flush()
        with pytest.raises(Exception, match="could not serialize access"):
            with dibs.claim("order:c7", **DONE) as claim, claim.within(session):
                raise AssertionError("not reached")
        session.rollback()
        with dibs.claim("order:c7", **DONE) as claim, claim.within(session) as done:
            assert done.replayed
    engine.dispose()
    assert orders(database) == [("c0", 1), ("c7", 1)]


def test_a_serialization_failure_is_an_error_unless_retry_is_asked_for(
    new_database: NewDatabase, valkey: Server
) -> None:
    """It may have called a bank: the function runs again only where that was allowed."""
    database = new_database("postgresql")
    database.ask("CREATE TABLE stock (n int); INSERT INTO stock VALUES (10)")
    engine = create_engine(database.url(), isolation_level="REPEATABLE READ")
    ran: list[str] = []

    def sell(connection: Any, customer: str) -> int:
        ran.append(customer)
        connection.execute(text("SELECT n FROM stock")).one()
        if ran.count(customer) == 1:
            database.ask("UPDATE stock SET n = n - 1")  # meanwhile
        connection.execute(text("UPDATE stock SET n = n - 1"))
        return ran.count(customer)

    with Dibs(valkey.url) as dibs:
        decorate = dibs.once("sale:{customer}", within=engine.begin, **DONE)
        with pytest.raises(Exception, match="could not serialize access"):
            decorate(sell)("c1")
        retrying = dibs.once("sale:{customer}", within=engine.begin, retry=1, **DONE)
        assert retrying(sell)("c2") == 2
        valkey.flush()
        assert retrying(sell)("c2") == 2
    engine.dispose()
    assert ran == ["c1", "c2", "c2"]


def test_record_and_row_in_opposite_order_do_not_deadlock(new_database: NewDatabase) -> None:
    """One takes the row first and the key late, the other the key first: neither waits for the key.

    With an insert that waits, the database would end one of them as a deadlock.
    """
    database = new_database("postgresql")
    database.ask("CREATE TABLE stock (n int); INSERT INTO stock VALUES (10)")
    engine = create_engine(database.url())
    has_row, has_key = threading.Event(), threading.Event()
    sell = text("UPDATE stock SET n = n - 1")

    def row_first() -> str:
        with Dibs(NO_REDIS) as dibs, dibs.claim("order:c7", **DONE) as claim:
            with engine.begin() as connection:
                connection.execute(sell)
                has_row.set()
                assert has_key.wait(60)
                with pytest.raises(Duplicate) as caught, claim.within(connection):
                    pass
                return caught.value.state

    def key_first() -> str:
        with Dibs(NO_REDIS) as dibs, dibs.claim("order:c7", **DONE) as claim:
            with engine.begin() as connection, claim.within(connection):
                has_key.set()
                assert has_row.wait(60)
                connection.execute(sell)  # waits until the other one has ended
                return "committed"

    with Dibs(NO_REDIS) as dibs:
        placing(dibs, engine)("c0")
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(row_first), pool.submit(key_first)
        assert (first.result(), second.result()) == ("running", "committed")
    engine.dispose()
    assert database.ask("SELECT n FROM stock") == [(8,)]


def test_a_waiting_duplicate_holds_no_connection(new_database: NewDatabase) -> None:
    """A pool of two connections serves ten that wait, and the one that works."""
    database = new_database("postgresql")
    engine = create_engine(database.url(), pool_size=2, max_overflow=0, pool_timeout=60)
    begun, go_on = threading.Event(), threading.Event()
    clients = [Dibs(NO_REDIS) for _ in range(11)]

    def place_in(dibs: Dibs) -> Any:
        @dibs.once("order:{customer}", within=engine.begin, wait=60, **DONE)
        def place(connection: Any, customer: str) -> str:
            begun.set()
            assert go_on.wait(60)
            values = {"customer": customer}
            connection.execute(text("INSERT INTO orders VALUES (:customer, 1)"), values)
            return "one"

        return place

    with ThreadPoolExecutor(11) as pool:
        with Dibs(NO_REDIS) as dibs:
            placing(dibs, engine)("c0")
        first = pool.submit(place_in(clients[0]), "c7")
        assert begun.wait(60)
        others = [pool.submit(place_in(each), "c7") for each in clients[1:]]
        with Dibs(NO_REDIS) as dibs:
            assert placing(dibs, engine)("c8")  # another key is not in their way
        go_on.set()
        assert {each.result() for each in (first, *others)} == {"one"}
    for each in clients:
        each.close()
    engine.dispose()
    assert orders(database) == [("c0", 1), ("c7", 1), ("c8", 1)]


@pytest.mark.parametrize("on_cancel", ["continue", "stop"])
async def test_a_call_that_is_cancelled(
    valkey: Server, new_database: NewDatabase, on_cancel: Any
) -> None:
    """It goes on and commits, and a retry gets its result; or it is rolled back, and runs again."""
    from sqlalchemy.ext.asyncio import create_async_engine

    from dibs import AsyncDibs

    database = new_database("postgresql")
    engine = create_async_engine(database.url(is_async=True))
    begun, go_on, ran = asyncio.Event(), asyncio.Event(), 0
    async with AsyncDibs(valkey.url) as dibs:

        @dibs.once("order:{customer}", within=engine.begin, wait=30, on_cancel=on_cancel, **DONE)
        async def place(connection: Any, customer: str) -> str:
            nonlocal ran
            ran += 1
            values = {"customer": customer}
            await connection.execute(text("INSERT INTO orders VALUES (:customer, 1)"), values)
            begun.set()
            await go_on.wait()
            return f"run {ran}"

        task = asyncio.create_task(place("c7"))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert orders(database) == []
        go_on.set()
        assert await place("c7") == ("run 1" if on_cancel == "continue" else "run 2")
    await engine.dispose()
    assert orders(database) == [("c7", 1)]


async def test_a_call_inside_of_a_transaction_stops_with_its_caller(
    valkey: Server, new_database: NewDatabase
) -> None:
    """The outer one may give its connection back as soon as the inner one has ended."""
    from sqlalchemy.ext.asyncio import create_async_engine

    from dibs import AsyncDibs

    engine = create_async_engine(new_database("sqlite").url(is_async=True))
    async with AsyncDibs(valkey.url) as dibs:
        cancelled = False

        @dibs.once("stock:{customer}", ignore=["connection"], **DONE)
        async def reserve(customer: str, connection: Any) -> None:
            nonlocal cancelled
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled = True
                raise

        @dibs.once("order:{customer}", within=engine.begin, **DONE)
        async def place(connection: Any, customer: str) -> str:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await reserve(customer, connection=connection)
            assert cancelled
            return "without stock"

        assert await place("c7") == "without stock"
    await engine.dispose()
