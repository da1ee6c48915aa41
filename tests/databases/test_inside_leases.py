"""Leases inside a transaction: lost ones, savepoints, tasks that outlive it, and `until`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import sessionmaker

from dibs import AsyncDibs, Busy, Dibs, LeaseLost, UsageError
from dibs.testing import Server, eventually
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
def begin(database: Database) -> Iterator[Any]:
    engine = create_engine(database.url())
    yield sessionmaker(engine).begin
    engine.dispose()


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


def test_a_savepoint_that_is_rolled_back_takes_what_is_in_it_along(
    dibs: Dibs, valkey: Server, database: Database, begin: Any
) -> None:
    """The rest waits for the transaction around it."""
    called: list[str] = []

    @dibs.once("inner:{key}", **DONE)
    def reserve(key: str) -> str:
        return "reserved"

    @dibs.once("outer:{key}", within=begin, **DONE)
    def order(session: Any, key: str) -> int:
        with contextlib.suppress(KeyError), session.begin_nested():
            reserve("undone")
            dibs.after_commit(lambda: called.append("undone"))
            raise KeyError
        with session.begin_nested():
            reserve("done")
            dibs.after_commit(lambda: called.append("done"))
        eventually(lambda: not valkey.client().exists("inner:undone"))
        assert valkey.client().exists("inner:done") and not called
        return 7

    order("k")
    assert called == ["done"]
    assert valkey.client().get("inner:done").startswith(b"dibs1 done")
    assert not valkey.client().exists("inner:undone")


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
