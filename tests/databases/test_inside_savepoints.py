"""Savepoints inside a transaction: what is undone with one, and what waits for the outermost end.

Nobody else may have a key before that: rows that were written under it may be older than the
savepoint.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dibs import Busy, Dibs
from dibs.testing import Server, eventually
from tests.databases.conftest import new_world
from tests.databases.worlds import Database, DjangoWorld, World

DONE: dict[str, Any] = {"window": 60, "after": "replay"}


@pytest.fixture(params=["session/postgresql", "session/mariadb", "django/postgresql"])
def world(request: pytest.FixtureRequest, new_database: Callable[[str], Database]) -> Any:
    world = new_world(request.param, new_database)
    yield world
    if isinstance(world, DjangoWorld):
        world.connection.close()
    else:
        getattr(world, "engine").dispose()  # noqa: B009


@pytest.fixture
def dibs(valkey: Server) -> Iterator[Dibs]:
    with Dibs(valkey.url) as dibs:
        yield dibs


@pytest.fixture
def other(valkey: Server) -> Iterator[Dibs]:
    """Another process, as it were."""
    with Dibs(valkey.url) as dibs:
        yield dibs


class Order:
    """A transaction of `within=`, and savepoints in it."""

    def __init__(self, world: World, dibs: Dibs) -> None:
        self.world, self.dibs = world, dibs
        self.session: Any = None

    def run(self, work: Callable[[], object]) -> None:
        """Do *work* in a transaction that commits."""

        def handed(session: Any, key: str) -> None:
            self.session = session
            work()

        def bare(key: str) -> None:
            work()

        function: Any = handed if self.world.hands_over else bare
        self.dibs.once("order:{key}", within=self.world.begin, **DONE)(function)("k")

    @contextlib.contextmanager
    def undone(self) -> Iterator[None]:
        """A savepoint that is rolled back."""
        with contextlib.suppress(KeyError), self.savepoint():
            yield
            raise KeyError

    def savepoint(self) -> Any:
        return self.world.begin() if self.session is None else self.session.begin_nested()

    def insert(self) -> None:
        self.world.insert(self.session, "ann", 1)


@pytest.fixture
def order(world: World, dibs: Dibs) -> Order:
    return Order(world, dibs)


def elsewhere(work: Callable[[], Any]) -> Any:
    """What *work* returns in a thread that is in no transaction."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


def hold_in_blocks(order: Order) -> None:
    """A row for each item, in a savepoint, under the lease of one account."""
    with order.dibs.hold("key", ttl=30):
        order.insert()
    with order.undone(), order.dibs.hold("key", ttl=30):
        pass


def release_by_hand(order: Order) -> None:
    lease = order.dibs.try_hold("key", ttl=30)
    assert lease is not None
    order.insert()
    with order.undone():
        assert lease.release()


def claim_in_blocks(order: Order) -> None:
    """The same with claims that leave nothing."""
    with order.dibs.claim("key", window=60):
        order.insert()
    with order.undone(), order.dibs.claim("key", window=60):
        pass


def hold_in_a_savepoint_of_within(order: Order) -> None:
    with order.dibs.hold("key", ttl=30):
        order.insert()

    def bare() -> None:
        with order.dibs.hold("key", ttl=30):
            raise KeyError

    def handed(session: Any) -> None:
        bare()

    session = order.session
    savepoint: Any = order.world.begin if session is None else session.begin_nested
    function: Any = bare if session is None else handed
    with contextlib.suppress(KeyError):
        order.dibs.once("inner", within=savepoint, **DONE)(function)()


@pytest.mark.parametrize(
    "work", [hold_in_blocks, release_by_hand, claim_in_blocks, hold_in_a_savepoint_of_within]
)
def test_a_key_whose_work_is_older_than_the_savepoint_is_kept_until_the_commit(
    order: Order, other: Dibs, work: Callable[[Order], None]
) -> None:
    """Else the next holder reads what will be overwritten: rows that are not committed."""

    def held() -> None:
        work(order)
        with pytest.raises(Busy):  # a waiter is woken by the release
            other.hold("key", ttl=30, wait=0.3).__enter__()

    order.run(held)
    assert other.peek("key") is None
    assert order.world.orders() == ["ann"]


def test_what_was_done_in_a_savepoint_is_undone_with_it(
    order: Order, other: Dibs, valkey: Server
) -> None:
    """A claim ends as if it had raised, and a function is not called: when all is decided."""
    called: list[str] = []
    calls: list[str] = []

    @order.dibs.once("inner:{key}", **DONE)
    def reserve(key: str) -> str:
        calls.append(key)
        return "reserved"

    def work() -> None:
        with order.undone():
            reserve("undone")
            reserve("again")
            order.dibs.after_commit(lambda: called.append("undone"))
        with order.savepoint():
            reserve("done")
            reserve("again")  # its first call was undone
            order.dibs.after_commit(lambda: called.append("done"))
        assert not called

    order.run(work)
    assert calls == ["undone", "again", "done", "again"] and called == ["done"]
    assert not valkey.client().exists("inner:undone")
    assert valkey.client().get("inner:done").startswith(b"dibs1 done")
    assert valkey.client().get("inner:again").startswith(b"dibs1 done")


def test_values_of_a_savepoint_that_is_rolled_back_are_not_stored(
    order: Order, other: Dibs
) -> None:
    """And what was invalidated, or set, before it is not served any more: nor an older value that
    somebody has stored meanwhile.
    """
    value = {"loaded": "old"}
    cached = order.dibs.cached("{key}", ttl=60, type=str)(lambda key: value["loaded"])
    seen = other.cached("{key}", ttl=60, type=str)(lambda key: value["loaded"])

    def work() -> None:
        for key in ("invalidated", "set"):
            cached.invalidate(key) if key == "invalidated" else cached.set(key, value="new")
            assert elsewhere(lambda key=key: seen(key)) == "old"
            with order.undone():
                cached.set(key, value="undone")
                assert cached(key) == "undone"
            value["loaded"] = "new"
            assert cached(key) == "new"
            value["loaded"] = "old"
        with order.undone():
            value["loaded"] = "undone"
            assert cached("loaded") == "undone"
        value["loaded"] = "old"

    order.run(work)
    value["loaded"] = "new"
    assert eventually(lambda: seen("loaded") == "new")
    assert [seen(key) for key in ("invalidated", "set")] == ["new", "new"]
