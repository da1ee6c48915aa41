"""Redis gets *done* only after an outermost commit; else it would replay what is not stored."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import create_engine, event, text
from sqlalchemy.exc import OperationalError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from dibs import AsyncDibs, Dibs, Duplicate, Event
from dibs.testing import Server, aeventually, eventually
from tests.databases.conftest import new_world
from tests.databases.worlds import AsyncSessionWorld, Database, DjangoWorld

NewDatabase = Callable[[str], Database]
DONE: dict[str, Any] = {"window": 60, "after": "replay"}
INSERT = text("INSERT INTO orders VALUES ('c7', 1)")


@pytest.fixture
def dibs(valkey: Server) -> Iterator[Dibs]:
    with Dibs(valkey.url) as dibs:
        yield dibs


@pytest.fixture
def database(new_database: NewDatabase) -> Database:
    return new_database("postgresql")


@pytest.fixture
def engine(database: Database, dibs: Dibs) -> Iterator[Any]:
    """With the table."""
    engine = create_engine(database.url())

    @dibs.once("first:{key}", within=engine.begin, **DONE)
    def first(connection: Any, key: str) -> None: ...

    first("x")
    yield engine
    engine.dispose()


def state(valkey: Server) -> str:
    """What Redis has: free, running or done."""
    value = valkey.client().get("order:c7")
    if value is None:
        return "free"
    return "done" if value.startswith(b"dibs1 done") else "running"


def orders(database: Database) -> int:
    return database.ask("SELECT count(*) FROM orders")[0][0]


def records(database: Database) -> int:
    return database.ask("SELECT count(*) FROM dibs_done WHERE key = 'order:c7'")[0][0]


def once_in(dibs: Dibs, within: Any) -> Any:
    @dibs.once("order:{customer}", within=within, **DONE)
    def place(session: Any, customer: str) -> int:
        session.execute(INSERT)
        return 7

    return place


# ---- Django


@pytest.fixture
def django(new_database: NewDatabase) -> Iterator[DjangoWorld]:
    world = new_world("django/postgresql", new_database)
    assert isinstance(world, DjangoWorld)
    yield world
    world.connection.close()


@pytest.mark.parametrize("savepoint", [False, True], ids=["outer", "savepoint"])
def test_an_outer_atomic_that_rolls_back_frees_the_key(
    dibs: Dibs, valkey: Server, django: DjangoWorld, savepoint: bool
) -> None:
    """Told at the end of the inner one, Redis would replay an order that does not exist."""
    place = dibs.once("order:{customer}", within=django.begin, **DONE)(django.place())
    place("c0")  # creates the table
    with contextlib.suppress(KeyError), contextlib.ExitStack() as outer:
        if savepoint:
            outer.enter_context(django.begin())  # commits
        with contextlib.suppress(KeyError), django.begin():
            assert place("c7") == {"order": 2}
            assert state(valkey) == "running"
            raise KeyError("the caller rolls back")
    eventually(lambda: state(valkey) == "free")
    assert django.orders() == ["c0"]
    assert place("c7") == {"order": 3}
    assert state(valkey) == "done"
    assert django.orders() == ["c0", "c7"]


def test_an_outer_atomic_that_commits_makes_it_done(
    dibs: Dibs, valkey: Server, django: DjangoWorld
) -> None:
    """As with ATOMIC_REQUESTS: while it is open, duplicates see that it runs."""
    place = dibs.once("order:{customer}", within=django.begin, **DONE)(django.place())
    place("c0")
    with django.begin():
        place("c7")
        with pytest.raises(Duplicate) as caught:
            place("c7")
        assert caught.value.state == "running"
    eventually(lambda: state(valkey) == "done")
    assert place("c7") == {"order": 2}


def test_a_claim_is_recorded_in_djangos_open_transaction(
    dibs: Dibs, valkey: Server, django: DjangoWorld
) -> None:
    """Nothing is handed over; `using` names the database."""
    dibs.once("order:{customer}", within=django.begin, **DONE)(django.place())("c0")
    for times in (1, 2):
        with dibs.claim("order:c7", **DONE) as claim, django.begin():
            with claim.within(using=django.alias) as done:
                if done.replayed:
                    assert done.result == "placed"
                else:
                    django.insert(None, "c7", 1)
                    claim.complete("placed")
        assert state(valkey) == "done"
        assert django.orders() == ["c0", "c7"], times
        valkey.flush()


# ---- claim.within(session)


@pytest.mark.parametrize("inside", [True, False], ids=["claim around", "claim inside"])
@pytest.mark.parametrize("end", ["commit", "rollback", "close"])
def test_a_claim_waits_for_the_end_of_the_callers_session(
    dibs: Dibs, valkey: Server, engine: Any, database: Database, inside: bool, end: str
) -> None:
    """Committed: done. Rolled back, or closed without a commit: free. Before: running."""
    with Session(engine) as session:
        with dibs.claim("order:c7", **DONE) as claim:
            with claim.within(session) as done:
                assert not done.replayed
                session.execute(INSERT)
                claim.complete(7)
            assert state(valkey) == "running"
            if inside:
                getattr(session, end)()
        if not inside:
            assert state(valkey) == "running"
            getattr(session, end)()
    expected = "done" if end == "commit" else "free"
    eventually(lambda: state(valkey) == expected)
    assert orders(database) == records(database) == (end == "commit")
    valkey.flush()
    with dibs.claim("order:c7", **DONE) as claim, Session(engine) as session, session.begin():
        with claim.within(session) as done:
            assert done.replayed is (end == "commit")
            assert claim.replayed is done.replayed
            if done.replayed:
                assert done.result == claim.result == 7
    assert state(valkey) == "done"


def test_a_savepoint_that_is_rolled_back_takes_the_record_along(
    dibs: Dibs, valkey: Server, engine: Any, database: Database
) -> None:
    """Also if the transaction around it commits."""
    with Session(engine) as session, session.begin():
        with contextlib.suppress(KeyError), session.begin_nested():
            with dibs.claim("order:c7", **DONE) as claim:
                with claim.within(session):
                    session.execute(INSERT)
            assert state(valkey) == "running"
            raise KeyError("rolls back")
        eventually(lambda: state(valkey) == "free")
    assert state(valkey) == "free"
    assert records(database) == 0


def test_a_savepoint_that_is_released_waits_for_the_outermost_commit(
    dibs: Dibs, valkey: Server, engine: Any
) -> None:
    """Its release is no commit."""
    with Session(engine) as session, session.begin():
        with session.begin_nested():
            with dibs.claim("order:c7", **DONE) as claim:
                with claim.within(session):
                    session.execute(INSERT)
        assert state(valkey) == "running"
    eventually(lambda: state(valkey) == "done")


def test_what_has_failed_is_not_recorded_though_the_caller_commits(
    dibs: Dibs, valkey: Server, engine: Any, database: Database
) -> None:
    """An exception that the caller catches must not burn the key."""
    with Session(engine) as session, session.begin():
        with dibs.claim("order:c7", **DONE) as claim:
            with contextlib.suppress(KeyError), claim.within(session):
                raise KeyError("no stock")
    assert records(database) == 0
    assert state(valkey) == "free"


def test_a_claim_that_is_released_leaves_no_record_and_its_rows_commit(
    dibs: Dibs, valkey: Server, engine: Any, database: Database
) -> None:
    """An answer that says "later" is not final."""
    with dibs.claim("order:c7", **DONE) as claim:
        with Session(engine) as session, session.begin(), claim.within(session):
            session.execute(INSERT)
            claim.release()
    assert (orders(database), records(database), state(valkey)) == (1, 0, "free")


def test_where_nobody_says_how_a_transaction_ends_redis_hears_nothing(
    dibs: Dibs, valkey: Server, engine: Any, database: Database
) -> None:
    """A connection of SQLAlchemy or of a driver: the table answers, and fills Redis."""
    with engine.begin() as connection:
        with dibs.claim("order:c7", **DONE) as claim, claim.within(connection):
            connection.execute(INSERT)
            claim.complete(7)
        assert state(valkey) == "free"
    assert state(valkey) == "free"
    place = once_in(dibs, engine.begin)
    assert place("c7") == 7
    assert state(valkey) == "done"
    assert orders(database) == 1


def test_a_transaction_that_is_opened_inside_another_one_says_nothing(
    dibs: Dibs, valkey: Server, engine: Any, database: Database
) -> None:
    """`begin_nested` is no commit either; a session says later how it ends."""

    def place(transaction: Any, customer: str) -> int:
        (getattr(transaction, "session", None) or transaction.connection).execute(INSERT)
        return 7

    with engine.begin() as connection:
        dibs.once("order:{customer}", within=connection.begin_nested, **DONE)(place)("c7")
        assert state(valkey) == "free"
        connection.rollback()
    assert orders(database) == 0
    with Session(engine) as session, session.begin():
        dibs.once("order:{customer}", within=session.begin_nested, **DONE)(place)("c7")
        assert state(valkey) == "running"
    eventually(lambda: state(valkey) == "done")
    assert orders(database) == 1


@pytest.mark.parametrize("how", ["claim.within", "once"])
@pytest.mark.parametrize("mode", ["conditional_savepoint", "create_savepoint", "rollback_only"])
def test_a_session_in_the_transaction_of_a_connection_says_nothing(
    dibs: Dibs, valkey: Server, engine: Any, database: Database, how: str, mode: Any
) -> None:
    """Its commit is none: the connection's rolls the work back, and Redis must not say done."""
    with engine.connect() as connection, connection.begin() as outer:
        sessions = sessionmaker(connection, join_transaction_mode=mode)
        if how == "once":
            assert once_in(dibs, sessions.begin)("c7") == 7
        else:
            with sessions() as session:
                with dibs.claim("order:c7", **DONE) as claim, claim.within(session):
                    session.execute(INSERT)
                    claim.complete(7)
                session.commit()
        outer.rollback()
    assert (orders(database), records(database), state(valkey)) == (0, 0, "free")
    assert once_in(dibs, sessionmaker(engine).begin)("c7") == 7
    assert orders(database) == 1


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_duplicate_in_the_same_transaction_is_no_commit(
    dibs: Dibs, valkey: Server, engine: Any, database: Database, end: str
) -> None:
    """As two lines of a batch with the same key, which is rolled back: Redis must not say done."""
    with engine.connect() as connection:
        for is_duplicate in (False, True):
            with dibs.claim("order:c7", **DONE) as claim, claim.within(connection) as done:
                assert done.replayed is is_duplicate
                if not done.replayed:
                    connection.execute(INSERT)
                    claim.complete(7)
        getattr(connection, end)()
    assert (orders(database), state(valkey)) == (end == "commit", "free")
    assert once_in(dibs, engine.begin)("c7") == 7
    assert orders(database) == 1


def test_a_duplicate_in_a_savepoint_of_the_same_transaction_is_no_commit(
    dibs: Dibs, valkey: Server, engine: Any, database: Database
) -> None:
    """The same with `within=`, which opens a savepoint there."""
    with engine.connect() as connection, connection.begin() as outer:

        @dibs.once("order:{customer}", within=connection.begin_nested, **DONE)
        def place(transaction: Any, customer: str) -> int:
            connection.execute(INSERT)
            return 7

        assert place("c7") == place("c7") == 7
        outer.rollback()
    assert (orders(database), state(valkey)) == (0, "free")


def test_a_session_that_serves_many_claims_is_listened_to_once(dibs: Dibs, engine: Any) -> None:
    """A scoped session lives as long as its thread."""
    session = scoped_session(sessionmaker(engine))
    counts: list[int] = []
    for number in range(3):
        with dibs.claim(f"order:{number}", **DONE) as claim:
            with claim.within(session):
                pass
            session.commit()
        counts.append(len(session().dispatch.after_commit))
    session.remove()
    assert counts == [1, 1, 1]


async def test_a_claim_for_asyncio_waits_for_the_session_too(
    valkey: Server, new_database: NewDatabase
) -> None:
    """The commit happens in a greenlet; a task tells Redis."""
    world = new_world("async-session/postgresql", new_database)
    assert isinstance(world, AsyncSessionWorld)
    async with AsyncDibs(valkey.url) as dibs:
        await world.placing(dibs)("c0")
        for end in ("rollback", "commit"):
            async with AsyncSession(world.engine) as session:
                async with dibs.claim("order:c7", **DONE) as claim:
                    async with claim.within(session):
                        await session.execute(INSERT)
                        claim.complete(7)
                assert state(valkey) == "running"
                await getattr(session, end)()
            expected = "done" if end == "commit" else "free"
            await aeventually(lambda expected=expected: state(valkey) == expected)
    await world.close()
    assert world.orders() == ["c0", "c7"]


# ---- many claims in one transaction

MANY = 200


def done_in(valkey: Server, prefix: str) -> int:
    """How many keys Redis has as done."""
    client = valkey.client()
    keys = list(client.scan_iter(f"{prefix}*"))
    return sum(value.startswith(b"dibs1 done") for value in client.mget(keys) if value)


def claim_many(dibs: Dibs, session: Any, using: str | None = None) -> None:
    for number in range(MANY):
        with dibs.claim(f"many:{number}", **DONE) as claim:
            with claim.within(session, using=using):
                claim.complete(number)


def test_redis_hears_of_every_claim_that_a_session_commits(
    dibs: Dibs, valkey: Server, engine: Any
) -> None:
    """However many they are, and though only the session knows them by then."""
    with Session(engine) as session:
        claim_many(dibs, session)
        session.commit()
    eventually(lambda: done_in(valkey, "many:") == MANY)


def test_redis_hears_of_every_claim_that_django_commits(
    dibs: Dibs, valkey: Server, django: DjangoWorld
) -> None:
    """The same, by the callbacks of Django."""
    dibs.once("first", within=django.begin, **DONE)(lambda: None)()
    with django.begin():
        claim_many(dibs, None, django.alias)
    eventually(lambda: done_in(valkey, "many:") == MANY)


@pytest.mark.parametrize("end", ["rollback", "close"])
def test_every_claim_of_a_session_that_is_rolled_back_is_free(
    dibs: Dibs, valkey: Server, engine: Any, end: str
) -> None:
    """None of them stays claimed."""
    with Session(engine) as session:
        claim_many(dibs, session)
        getattr(session, end)()
    eventually(lambda: not list(valkey.client().scan_iter("many:*")))


def test_without_a_thread_to_be_had_redis_hears_of_every_claim(
    dibs: Dibs, valkey: Server, engine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of the process, or at the limit of the system: then the commit takes longer."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with Session(engine) as session:
        claim_many(dibs, session)
        monkeypatch.setattr(threading.Thread, "start", refuse)
        session.commit()
        monkeypatch.undo()
    assert done_in(valkey, "many:") == MANY


def test_closing_waits_until_redis_has_heard(valkey: Server, engine: Any) -> None:
    """A program that ends after its commit leaves no claim behind."""
    with Dibs(valkey.url) as dibs, Session(engine) as session:
        claim_many(dibs, session)
        session.commit()
    assert done_in(valkey, "many:") == MANY


async def test_redis_hears_of_every_claim_that_a_session_for_asyncio_commits(
    valkey: Server, new_database: NewDatabase
) -> None:
    """Also if the client is closed at once."""
    world = new_world("async-session/postgresql", new_database)
    async with AsyncDibs(valkey.url) as dibs:
        await world.placing(dibs)("c0")
        async with AsyncSession(world.engine) as session:
            for number in range(MANY):
                async with dibs.claim(f"many:{number}", **DONE) as claim:
                    async with claim.within(session):
                        claim.complete(number)
            await session.commit()
    await world.close()
    assert done_in(valkey, "many:") == MANY


# ---- the commit itself


def test_a_commit_whose_reply_was_lost_is_looked_up(
    dibs: Dibs, valkey: Server, engine: Any, database: Database
) -> None:
    """The caller gets the result, not an error about what was done."""

    @contextlib.contextmanager
    def losing() -> Iterator[Any]:
        with engine.begin() as connection:
            yield connection
        if lost:
            lost.pop()
            raise OperationalError("COMMIT", {}, ConnectionError("server closed the connection"))

    lost = [True]
    assert once_in(dibs, losing)("c7") == 7
    assert state(valkey) == "done"
    assert orders(database) == 1


def test_a_commit_that_failed_is_an_error_and_nothing_is_burnt(
    dibs: Dibs, valkey: Server, engine: Any, database: Database
) -> None:
    """The error of the driver; the next submission runs."""
    failures = [OperationalError("COMMIT", {}, ConnectionError("closed"))]

    @contextlib.contextmanager
    def failing() -> Iterator[Any]:
        with engine.begin() as connection:
            yield connection
            if failures:
                raise failures.pop()

    place = once_in(dibs, failing)
    with pytest.raises(OperationalError):
        place("c7")
    assert (orders(database), state(valkey)) == (0, "free")
    assert place("c7") == 7
    assert orders(database) == 1


def test_a_deferred_constraint_that_fails_at_the_commit_is_an_error(
    dibs: Dibs, valkey: Server, engine: Any, database: Database
) -> None:
    """Row and record are gone, the key is free."""
    database.ask("CREATE TABLE shops (id int PRIMARY KEY)")
    reference = "int REFERENCES shops DEFERRABLE INITIALLY DEFERRED"
    database.ask(f"ALTER TABLE orders ADD COLUMN shop {reference} DEFAULT 1")
    place = once_in(dibs, sessionmaker(engine).begin)
    with pytest.raises(Exception, match="foreign key"):
        place("c7")
    assert (orders(database), records(database), state(valkey)) == (0, 0, "free")


def test_redis_that_cannot_be_told_costs_nothing_but_a_look(
    own_server: Server, engine: Any, database: Database
) -> None:
    """It is out when the commit has happened: no error, and the next one is answered."""
    with Dibs(own_server.url) as dibs:

        def place(session: Any, customer: str) -> int:
            session.execute(INSERT)
            own_server.kill()
            return 7

        decorated = dibs.once("order:{customer}", within=engine.begin, **DONE)(place)
        assert decorated("c7") == 7
        assert decorated("c7") == 7
        own_server.restart()
        assert decorated("c7") == 7
    assert orders(database) == 1


def test_a_lost_lease_changes_nothing(
    dibs: Dibs, valkey: Server, engine: Any, database: Database, caplog: Any
) -> None:
    """The database decides; Redis keeps what another has put there, with a `late` event."""
    events: list[Event] = []
    with Dibs(valkey.url, listeners=[events.append]) as other:

        def place(session: Any, customer: str) -> int:
            session.execute(INSERT)
            valkey.client().set("order:c7", "another")
            return 7

        decorated = other.once("order:{customer}", within=engine.begin, **DONE)(place)
        with caplog.at_level(logging.WARNING, "dibs"):
            assert decorated("c7") == 7
    assert [event.kind for event in events if event.kind in ("late", "lost")][-1:] == ["late"]
    assert valkey.client().get("order:c7") == b"another"
    assert "done twice" not in caplog.text
    valkey.flush()
    assert once_in(dibs, engine.begin)("c7") == 7
    assert orders(database) == 1


def test_a_duplicate_that_redis_answers_touches_no_connection(
    dibs: Dibs, engine: Any, database: Database
) -> None:
    """Three statements for the first call, its own one included; none for a duplicate."""
    statements: list[str] = []
    checkouts: list[object] = []
    event.listen(engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    event.listen(engine, "checkout", lambda *args: checkouts.append(args))
    place = once_in(dibs, engine.begin)
    place("c7")
    assert (len(statements), len(checkouts)) == (3, 1)
    assert [place("c7") for _ in range(5)] == [7] * 5
    assert (len(statements), len(checkouts)) == (3, 1)


def test_events_say_that_the_table_has_answered(valkey: Server, engine: Any) -> None:
    """`source`, on replayed and duplicate."""
    events: list[Event] = []
    with Dibs(valkey.url, listeners=[events.append]) as dibs:
        place = once_in(dibs, engine.begin)
        place("c7")
        place("c7")
        valkey.flush()
        place("c7")
    found = [(event.kind, event.source) for event in events if event.kind == "replayed"]
    assert found == [("replayed", None), ("replayed", "table")]
