"""Leases inside a transaction: lost ones, tasks that outlive it, forks, and `until`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import sessionmaker

from dibs import AsyncDibs, Busy, Dibs, LeaseLost, UsageError
from dibs.testing import Child, Server
from tests.databases.worlds import AsyncSessionWorld, Database

NewDatabase = Callable[[str], Database]
DONE: dict[str, Any] = {"window": 60, "after": "replay"}
INSERT = text("INSERT INTO orders VALUES ('c7', 1)")


@pytest.fixture
def dibs(valkey: Server) -> Iterator[Dibs]:
    with Dibs(valkey.url) as dibs:
        yield dibs


@pytest.fixture
def database(new_database: NewDatabase) -> Database:
    return new_database("sqlite")


@pytest.fixture
def sessions(database: Database) -> Iterator[Any]:
    engine = create_engine(database.url())
    yield sessionmaker(engine)
    engine.dispose()


@pytest.fixture
def begin(sessions: Any) -> Any:
    return sessions.begin


def orders(database: Database) -> int:
    return len(database.ask("SELECT 1 FROM orders"))


@pytest.mark.parametrize("on_late", [None, "raise", "ignore"])
def test_a_lease_that_was_lost_keeps_its_transaction_from_the_commit(
    dibs: Dibs, valkey: Server, database: Database, begin: Any, on_late: Any
) -> None:
    """That is what it is for; `on_late="ignore"` is the other way."""

    @dibs.once("pay:{key}", within=begin, **DONE)
    def pay(session: Any, key: str) -> int:
        with dibs.hold("account:a", ttl=30, on_late=on_late):
            session.execute(INSERT)
        valkey.client().set("account:a", "of another")
        assert dibs.peek("account:a") is not None  # it sees that the lease is lost
        return 7

    if on_late == "ignore":
        assert pay("k") == 7
    else:
        with pytest.raises(LeaseLost):
            pay("k")
    assert orders(database) == (on_late == "ignore")
    assert valkey.client().get("account:a") == b"of another"


@pytest.mark.parametrize("on_late", [None, "ignore"])
@pytest.mark.parametrize("way", ["until", "claim"])
def test_a_lease_that_is_lost_after_its_block_keeps_a_given_session_from_the_commit(
    dibs: Dibs, valkey: Server, database: Database, sessions: Any, way: str, on_late: Any
) -> None:
    """A session of SQLAlchemy says when it will commit; that of a savepoint is no commit."""
    options: dict[str, Any] = {"ttl": 30, "on_late": on_late}
    dibs.once("first", within=sessions.begin, **DONE)(lambda session: None)()  # makes the table

    def work(session: Any) -> None:
        session.execute(INSERT)
        with session.begin_nested():
            more = {"until": session} if way == "until" else {}
            with dibs.hold("account:a", **options, **more):
                pass
        valkey.client().set("account:a", "of another")
        assert dibs.peek("account:a") is not None  # it sees that the lease is lost
        with session.begin_nested():
            pass

    with sessions() as session:
        if way == "until":
            work(session)
        else:
            with dibs.claim("k", **DONE) as claim, claim.within(session):
                work(session)
                claim.complete(7)
        with contextlib.nullcontext() if on_late else pytest.raises(LeaseLost):
            session.commit()
        session.rollback()
        session.execute(INSERT)
        session.commit()  # the next transaction of the session has nothing to do with it
    assert orders(database) == (2 if on_late else 1)


def test_others_are_refused_until_the_commit_and_a_block_may_end_before(
    dibs: Dibs, valkey: Server, begin: Any
) -> None:
    """`until="block"` is for what has nothing to do with the rows: a permit for a slow call."""

    @dibs.once("pay:{key}", within=begin, **DONE)
    def pay(session: Any, key: str) -> None:
        with dibs.hold("account:a", ttl=30):
            pass
        with dibs.hold("slow:call", ttl=30, limit=1, until="block"):
            assert valkey.client().exists("slow:call")
        assert not valkey.client().exists("slow:call")
        with Dibs(valkey.url) as other, pytest.raises(Busy):
            other.hold("account:a", ttl=30).__enter__()

    pay("k")
    assert dibs.peek("account:a") is None


async def test_a_task_that_outlives_the_transaction_ends_what_it_holds_at_once(
    valkey: Server, new_database: NewDatabase
) -> None:
    """And after_commit says that there is none."""
    world, tasks = AsyncSessionWorld(new_database("sqlite")), list[asyncio.Task[None]]()
    async with AsyncDibs(valkey.url) as dibs:
        is_over = asyncio.Event()

        async def later() -> None:
            async with dibs.hold("account:a", ttl=30):
                await is_over.wait()
            assert not valkey.client().exists("account:a")
            with pytest.raises(UsageError, match="after_commit"):
                await dibs.after_commit(lambda: None)

        @dibs.once("pay:{key}", within=world.begin, **DONE)
        async def pay(session: Any, key: str) -> None:
            tasks.append(asyncio.create_task(later()))
            await asyncio.sleep(0)

        await pay("k")
        is_over.set()
        await tasks[0]
    await world.close()


@pytest.mark.only_on("linux", "darwin")
@pytest.mark.usefixtures("real_interpreters")
def test_a_forked_child_is_in_no_transaction(valkey: Server, database: Database) -> None:
    """That of its parent never ends there: what the child holds is released at once."""
    with Child(fork_inside, valkey.url, database.url()) as child:
        assert child.result(within=60) == ["free", "UsageError"]


def fork_inside(url: str, path: str) -> list[str]:
    """What a child sees that is forked inside of a transaction."""
    import os

    from sqlalchemy import create_engine
    from sqlalchemy.orm import sessionmaker

    from dibs import Dibs, UsageError

    dibs, answers, begin = Dibs(url), os.pipe(), sessionmaker(create_engine(path)).begin

    @dibs.once("pay:{key}", window=60, after="replay", within=begin)
    def pay(session, key: str) -> list[str]:  # type: ignore[no-untyped-def]
        child = os.fork()
        if not child:
            try:
                with dibs.hold("account:a", ttl=30):
                    pass
                seen = ["held" if dibs.peek("account:a") else "free"]
                try:
                    dibs.after_commit(lambda: None)
                except UsageError:
                    seen.append("UsageError")
                os.write(answers[1], " ".join(seen).encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        return os.read(answers[0], 100).decode().split()

    return pay("k")


def test_until_takes_what_has_a_transaction(dibs: Dibs) -> None:
    """Anything else is refused before the key is taken."""
    for wrong in ("session", object(), 7):
        with pytest.raises(UsageError):
            dibs.hold("account:a", ttl=30, until=wrong)
    with pytest.raises(UsageError, match="block"):
        dibs.exclusive("account:a", ttl=30, until="session")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="after_commit"):
        dibs.after_commit(lambda: None)


def test_a_client_that_is_closed_inside_says_what_it_leaves_behind(
    dibs: Dibs, valkey: Server, begin: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Its lease cannot be released after the commit any more, and ends with its ttl."""

    @dibs.once("pay:{key}", within=begin, **DONE)
    def pay(session: Any, key: str) -> int:
        session.execute(INSERT)
        with Dibs(valkey.url) as other, other.hold("account:a", ttl=30):
            return 7

    assert pay("k") == 7
    assert 0 < valkey.client().pttl("account:a") <= 30_050
    assert ["closed inside" in each.getMessage() for each in caplog.records] == [True]


def test_several_keys_stay_held_until_the_commit(
    dibs: Dibs, valkey: Server, database: Database, begin: Any
) -> None:
    """And the same transaction takes them up again, beside others; a refusal changes nothing."""
    keys = ["account:a", "account:b"]

    @dibs.once("pay:{key}", within=begin, **DONE)
    def pay(session: Any, key: str) -> int:
        with dibs.hold_all(keys, ttl=30):
            session.execute(INSERT)
        held = [each for each in valkey.keys() if each.startswith("account:")]
        assert sorted(held) == keys
        valkey.client().set("account:c", "of another")
        with pytest.raises(Busy), dibs.hold_all([*keys, "account:c"], ttl=30):
            pytest.fail("held one that is taken")
        valkey.client().delete("account:c")
        with dibs.hold_all([*keys, "account:c"], ttl=30) as leases:
            assert not leases.lost
        held = [each for each in valkey.keys() if each.startswith("account:")]
        assert sorted(held) == [*keys, "account:c"]
        return 7

    assert pay("k") == 7 and orders(database) == 1
    assert [each for each in valkey.keys() if each.startswith("account:")] == []
