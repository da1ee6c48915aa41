"""What `cached` promises about deletes: who comes after one gets fresh data."""

from collections.abc import Callable
from typing import Any

import pytest
import redis

from dibs import AsyncDibs, Event
from dibs.testing import FaultProxy, Server

from .._tasks import Background, eventually, sleep
from ..events import kinds
from .loaders import Loader

StartServer = Callable[..., Server]


def plain_client(server: Server) -> Any:
    """Also for a server without HELLO."""
    return redis.Redis(port=server.port, protocol=2)


@pytest.mark.parametrize("how", ["DEL", "invalidate"])
async def test_a_delete_during_the_refresh_of_an_ending_value_counts(
    server: Server, how: str
) -> None:
    """The old value would have ended during the refresh anyway; it was deleted: nothing is kept."""
    events: list[Event] = []
    loader = Loader()
    async with AsyncDibs(server.url, budget=5, listeners=[events.append]) as dibs:
        menu = dibs.cached("menu:{name}", ttl=0.1, stale=0.5)(loader.load)
        assert (await menu("a"))["load"] == 1
        await sleep(0.15)
        loader.seconds = 0.8
        assert (await menu("a"))["load"] == 1
        await eventually(lambda: loader.loads == 2)
        if how == "DEL":
            server.client().delete("menu:a")
        else:
            await menu.invalidate("a")
        await eventually(lambda: "rejected_write" in kinds(events))
        assert server.keys() == []


@pytest.mark.parametrize("resp", [2, 3])
@pytest.mark.parametrize("how", ["invalidate", "DEL", "tag"])
async def test_a_reader_who_comes_after_a_delete_elsewhere_gets_fresh_data(
    start_server: StartServer, resp: int, how: str
) -> None:
    """Also where the server cannot push: the value was loaded after the delete."""
    config = ("--rename-command", "HELLO", "") if resp == 2 else ()
    server = start_server("valkey", config=config)
    loader = Loader(1.2)
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        here = one.cached("menu:{name}", ttl=60, lock_ttl=1, tags=("all",))(loader.load)
        there = two.cached("menu:{name}", ttl=60, lock_ttl=1, tags=("all",))(loader.load)
        early = Background(here, "a")
        await eventually(lambda: loader.loads == 1)
        await sleep(0.2)
        if how == "invalidate":
            assert await there.invalidate("a")
        elif how == "tag":
            assert await two.invalidate_tag("all")
        else:
            plain_client(server).delete("menu:a", "lock:{menu:a}")
        await sleep(0.2 if resp == 3 else 0)
        loader.seconds = 0
        assert (await here("a"))["load"] == 2
        assert (await early.result())["load"] == 1
        assert (await here("a"))["load"] == 2
        assert loader.loads == 2


@pytest.mark.parametrize("is_kept", [True, False])
@pytest.mark.parametrize("tags", [(), ("all", "menus")])
async def test_callers_share_a_load_where_the_server_cannot_push(
    start_server: StartServer, tags: tuple[str, ...], is_kept: bool
) -> None:
    """While nothing is deleted, and no tag invalidated; also if its result is not stored."""
    server = start_server("valkey", config=("--rename-command", "HELLO", ""))
    loader = Loader()
    loader.busy = True
    async with AsyncDibs(server.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60, tags=tags, keep=lambda _: is_kept)(loader.load)
        callers = [Background(menu, "a")]
        await eventually(lambda: loader.loads == 1)
        for _ in range(2):
            await sleep(0.1)
            callers.append(Background(menu, "a"))
        await sleep(0.1)
        loader.busy = False
        for caller in callers:
            assert (await caller.result())["load"] == 1
        assert loader.loads == 1


async def test_who_joined_a_load_that_was_deleted_meanwhile_gets_fresh_data(
    start_server: StartServer,
) -> None:
    """A caller joined after the load had begun: if the value was deleted, it asks once more."""
    server = start_server("valkey", config=("--rename-command", "HELLO", ""))
    loader = Loader()
    loader.busy = True
    async with AsyncDibs(server.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60)(loader.load)
        first = Background(menu, "a")
        await eventually(lambda: loader.loads == 1)
        await sleep(0.1)
        second = Background(menu, "a")
        await sleep(0.1)
        plain_client(server).delete("menu:a")
        loader.busy = False
        assert (await first.result())["load"] == 1
        assert (await second.result())["load"] == 2


@pytest.mark.parametrize("how", ["invalidate", "DEL"])
async def test_who_joins_an_unguarded_load_after_a_delete_gets_fresh_data(
    server: Server, how: str
) -> None:
    """wait is over, and the process loads for itself: callers after a delete do not share that
    load."""
    slow, loader = Loader(2), Loader(0.6)
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        there = one.cached("menu:{name}", ttl=60)(slow.load)
        here = two.cached("menu:{name}", ttl=60, wait=0.05)(loader.load)
        leader = Background(there, "a")
        await eventually(lambda: slow.loads == 1)
        first = Background(here, "a")
        await eventually(lambda: loader.loads == 1)
        before = Background(here, "a")
        await sleep(0.1)
        if how == "invalidate":
            assert await there.invalidate("a")
        else:
            plain_client(server).delete("menu:a")
        loader.seconds = 0
        assert (await here("a"))["load"] > 1
        assert (await first.result())["load"] == 1
        await before.result()
        await leader.result()


async def test_callers_share_an_unguarded_load_while_nothing_is_deleted(
    server: Server,
) -> None:
    """Those who come while the process loads for itself share that load."""
    slow, loader = Loader(2), Loader(0.5)
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        leader = Background(one.cached("menu:{name}", ttl=60)(slow.load), "a")
        await eventually(lambda: slow.loads == 1)
        menu = two.cached("menu:{name}", ttl=60, wait=0.05)(loader.load)
        first = Background(menu, "a")
        await eventually(lambda: loader.loads == 1)
        later = [Background(menu, "a") for _ in range(3)]
        for caller in [first, *later]:
            assert (await caller.result())["load"] == 1
        assert loader.loads == 1
        await leader.result()


async def test_a_load_that_lost_its_lock_leaves_no_mark(server: Server) -> None:
    """Its result is not stored; what stood for the load goes as well, and not in an hour."""
    loader = Loader(0.4)
    async with AsyncDibs(server.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60)(loader.load)
        caller = Background(menu, "a")
        await eventually(lambda: loader.loads == 1)
        plain_client(server).delete("lock:{menu:a}")
        assert (await caller.result())["load"] == 1
        await eventually(lambda: server.keys() == [])


async def test_invalidate_as_the_first_call_in_an_outage_is_delivered(
    proxy: FaultProxy, valkey: Server
) -> None:
    """The process has never reached the store: False, and it is deleted when the store is back."""
    proxy.refuse()
    async with AsyncDibs(proxy.url, budget=0.3) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60)(Loader().load)
        valkey.client().set("menu:a", b"old", ex=60)
        assert await menu.invalidate("a") is False
        proxy.accept()
        await eventually(lambda: valkey.keys() == [])


async def test_a_store_whose_reply_was_lost_is_not_told_as_rejected(
    proxy: FaultProxy, valkey: Server
) -> None:
    """The request is repeated, and the value is stored: no `rejected_write`, and the next call
    hits."""
    events: list[Event] = []
    loader = Loader()
    async with AsyncDibs(proxy.url, budget=5, listeners=[events.append]) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60)(loader.load)
        await menu("warm")
        proxy.cut_after_request(match=b'{"name":"a"')
        assert (await menu("a"))["load"] == 2
        assert proxy.triggered == 1
        assert (await menu("a"))["load"] == 2
        assert "rejected_write" not in kinds(events)


async def test_invalidate_makes_later_readers_load(server: Server) -> None:
    """invalidate(): gone for all processes."""
    loader = Loader()
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        here = one.cached("menu:{name}", ttl=60)(loader.load)
        there = two.cached("menu:{name}", ttl=60)(loader.load)
        assert (await here("a"))["load"] == (await there("a"))["load"] == 1
        assert await here.invalidate("a") is True
        assert (await there("a"))["load"] == 2
        assert (await here("a"))["load"] == 2


@pytest.mark.parametrize("how", ["invalidate here", "invalidate there", "DEL by anybody"])
async def test_what_was_loaded_before_a_delete_is_not_stored(server: Server, how: str) -> None:
    """Deleted during the load: those who asked before get it, later readers get fresh data."""
    events: list[Event] = []
    loader = Loader()
    loader.busy = True
    async with (
        AsyncDibs(server.url, budget=5, listeners=[events.append]) as one,
        AsyncDibs(server.url, budget=5) as two,
    ):
        here = one.cached("menu:{name}", ttl=60)(loader.load)
        there = two.cached("menu:{name}", ttl=60)(loader.load)
        early = Background(here, "a")
        await eventually(lambda: loader.loads == 1)
        if how == "invalidate here":
            await here.invalidate("a")
        elif how == "invalidate there":
            await there.invalidate("a")
        else:
            server.client().delete("menu:a")
        await sleep(0.1)
        late = [Background(here, "a"), Background(there, "a")]
        await sleep(0.1)
        loader.busy = False
        assert (await early.result())["load"] == 1
        for reader in late:
            assert (await reader.result())["load"] == 2
        assert (await here("a"))["load"] == 2
        assert "rejected_write" in kinds(events)
        assert loader.loads == 2


async def test_invalidated_during_an_outage_is_deleted_later(own_server: Server) -> None:
    """The store is out: False, and it is deleted when the store is back."""
    events: list[Event] = []
    async with AsyncDibs(own_server.url, budget=0.5, listeners=[events.append]) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60)(Loader().load)
        await menu("a")
        own_server.freeze()
        assert await menu.invalidate("a") is False
        own_server.thaw()
        await eventually(lambda: "recovered" in kinds(events))
        await eventually(lambda: own_server.keys() == [])
