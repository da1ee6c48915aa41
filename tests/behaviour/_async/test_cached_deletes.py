"""What `cached` promises about deletes, leases under its keys, and how often it loads."""

from collections.abc import Callable
from typing import Any

import pytest
import redis

from dibs import AsyncDibs, Event, Unavailable, UsageError
from dibs.testing import FaultProxy, Server

from .._tasks import Beside, eventually, sleep

StartServer = Callable[..., Server]


class Kitchen:
    """A slow loader that counts."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.loads = 0
        self.seconds = seconds
        self.error: Exception | None = None

    async def cook(self, name: str) -> dict[str, Any]:
        self.loads += 1
        mine = self.loads
        await sleep(self.seconds)
        if self.error is not None:
            raise self.error
        return {"name": name, "load": mine}


def plain_client(server: Server) -> Any:
    """Also for a server without HELLO."""
    return redis.Redis(port=server.port, protocol=2)


def kinds(events: list[Event]) -> list[str]:
    return [event.kind for event in events]


# ---- leases and claims


@pytest.mark.parametrize("held_by", ["a lease", "a running claim", "a claim that is done"])
@pytest.mark.parametrize("stale", [0, 60])
async def test_a_key_that_is_held_is_refused_and_not_touched(
    server: Server, held_by: str, stale: float
) -> None:
    """A lease or a claim has the key: UsageError for every verb; its value and life stay."""
    kitchen = Kitchen()
    async with AsyncDibs(server.url, budget=5) as dibs, AsyncDibs(server.url, budget=5) as other:
        menu = other.cached("menu:{name}", ttl=60, stale=stale)(kitchen.cook)
        if held_by == "a lease":
            assert await dibs.try_hold("menu:a", ttl=30) is not None
        else:
            after = "replay" if held_by == "a claim that is done" else "hold"
            claiming = dibs.claim("menu:a", window=30, after=after, payload={"cart": 1})
            claim = await claiming.__aenter__()
            if held_by == "a claim that is done":
                claim.complete({"order": 17})
                await claiming.__aexit__(None, None, None)
        client = server.client()
        before = client.get("menu:a")
        for verb in (menu, menu.refresh, menu.invalidate):
            with pytest.raises(UsageError, match="holds this key"):
                await verb("a")
        assert client.get("menu:a") == before
        assert 0 < client.pttl("menu:a") <= 30_000
        assert kitchen.loads == 0
        assert server.keys() == ["menu:a"]


async def test_a_lease_that_was_taken_during_a_load_is_not_overwritten(server: Server) -> None:
    """The mark is deleted and the key held by a lease before the load ends: the lease stays."""
    kitchen = Kitchen(0.4)
    async with AsyncDibs(server.url, budget=5) as dibs, AsyncDibs(server.url, budget=5) as other:
        loading = Beside(dibs.cached("menu:{name}", ttl=60)(kitchen.cook), "a")
        await eventually(lambda: kitchen.loads == 1)
        server.client().delete("menu:a")
        lease = await other.try_hold("menu:a", ttl=30)
        assert lease is not None
        assert (await loading.result())["load"] == 1
        assert await lease.release() is True


# ---- deletes during a load


@pytest.mark.parametrize("how", ["DEL", "invalidate"])
async def test_a_delete_during_the_refresh_of_an_ending_value_counts(
    server: Server, how: str
) -> None:
    """The old value would have ended during the refresh anyway; it was deleted: nothing is kept."""
    events: list[Event] = []
    kitchen = Kitchen()
    async with AsyncDibs(server.url, budget=5, listeners=[events.append]) as dibs:
        menu = dibs.cached("menu:{name}", ttl=0.1, stale=0.5)(kitchen.cook)
        assert (await menu("a"))["load"] == 1
        await sleep(0.15)
        kitchen.seconds = 0.8
        assert (await menu("a"))["load"] == 1
        await eventually(lambda: kitchen.loads == 2)
        if how == "DEL":
            server.client().delete("menu:a")
        else:
            await menu.invalidate("a")
        await eventually(lambda: "rejected_write" in kinds(events))
        assert server.keys() == []


async def test_a_refresh_is_stored_though_the_old_value_ended(server: Server) -> None:
    """The old value ends during its refresh, by itself: the result is kept, one load is enough."""
    events: list[Event] = []
    kitchen = Kitchen()
    async with AsyncDibs(server.url, budget=5, listeners=[events.append]) as dibs:
        menu = dibs.cached("menu:{name}", ttl=0.3, stale=0.3)(kitchen.cook)
        assert (await menu("a"))["load"] == 1
        await sleep(0.4)
        kitchen.seconds = 0.8
        for _ in range(3):
            assert (await menu("a"))["load"] == 1
        await sleep(0.4)
        assert (await menu("a"))["load"] == 2
        assert kitchen.loads == 2
        assert "rejected_write" not in kinds(events)


async def test_an_ending_value_is_put_back_if_its_refresh_fails(server: Server) -> None:
    """refresh() of a value near its end fails: it is there as before, and ends in time."""
    kitchen = Kitchen()
    async with AsyncDibs(server.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=1.5)(kitchen.cook)
        assert (await menu("a"))["load"] == 1
        before = server.client().get("menu:a")
        kitchen.error = RuntimeError("kitchen closed")
        with pytest.raises(RuntimeError):
            await menu.refresh("a")
        await eventually(lambda: server.keys() == ["menu:a"])
        assert server.client().get("menu:a") == before
        assert 0 < server.client().pttl("menu:a") <= 1500
        assert (await menu("a"))["load"] == 1


async def test_readers_see_an_ending_value_during_its_refresh(server: Server) -> None:
    """Without `stale` too: the value is read here and elsewhere until it ends."""
    kitchen = Kitchen()
    async with AsyncDibs(server.url, budget=5) as dibs, AsyncDibs(server.url, budget=5) as other:
        menu = dibs.cached("menu:{name}", ttl=3)(kitchen.cook)
        there = other.cached("menu:{name}", ttl=3)(kitchen.cook)
        assert (await menu("a"))["load"] == 1
        kitchen.seconds = 0.5
        refreshing = Beside(menu.refresh, "a")
        await eventually(lambda: kitchen.loads == 2)
        assert (await menu("a"))["load"] == (await there("a"))["load"] == 1
        assert (await refreshing.result())["load"] == 2
        assert (await menu("a"))["load"] == (await there("a"))["load"] == 2
        assert kitchen.loads == 2


@pytest.mark.parametrize("resp", [2, 3])
@pytest.mark.parametrize("how", ["invalidate", "DEL"])
async def test_a_reader_who_comes_after_a_delete_elsewhere_gets_fresh_data(
    start_server: StartServer, resp: int, how: str
) -> None:
    """Also where the server cannot push: the value was loaded after the delete."""
    config = ("--rename-command", "HELLO", "") if resp == 2 else ()
    server = start_server("valkey", config=config)
    kitchen = Kitchen(1.2)
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        here = one.cached("menu:{name}", ttl=60, lock_ttl=1)(kitchen.cook)
        there = two.cached("menu:{name}", ttl=60, lock_ttl=1)(kitchen.cook)
        early = Beside(here, "a")
        await eventually(lambda: kitchen.loads == 1)
        await sleep(0.2)
        if how == "invalidate":
            assert await there.invalidate("a")
        else:
            plain_client(server).delete("menu:a", "lock:{menu:a}")
        await sleep(0.2 if resp == 3 else 0)
        kitchen.seconds = 0
        assert (await here("a"))["load"] == 2
        assert (await early.result())["load"] == 1
        assert (await here("a"))["load"] == 2
        assert kitchen.loads == 2


async def test_who_joined_a_load_that_was_deleted_meanwhile_gets_fresh_data(
    start_server: StartServer,
) -> None:
    """A caller joined after the load had begun: if the value was deleted, it asks once more."""
    server = start_server("valkey", config=("--rename-command", "HELLO", ""))
    kitchen = Kitchen(0.6)
    async with AsyncDibs(server.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60)(kitchen.cook)
        first = Beside(menu, "a")
        await eventually(lambda: kitchen.loads == 1)
        await sleep(0.1)
        second = Beside(menu, "a")
        await sleep(0.1)
        plain_client(server).delete("menu:a")
        kitchen.seconds = 0
        assert (await first.result())["load"] == 1
        assert (await second.result())["load"] == 2


@pytest.mark.parametrize("how", ["invalidate", "DEL"])
async def test_who_joins_a_load_of_ended_patience_after_a_delete_gets_fresh_data(
    server: Server, how: str
) -> None:
    """wait is over, and the process loads for itself: nobody who comes after a delete shares it."""
    slow, kitchen = Kitchen(2), Kitchen(0.6)
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        there = one.cached("menu:{name}", ttl=60)(slow.cook)
        here = two.cached("menu:{name}", ttl=60, wait=0.05)(kitchen.cook)
        leader = Beside(there, "a")
        await eventually(lambda: slow.loads == 1)
        first = Beside(here, "a")
        await eventually(lambda: kitchen.loads == 1)
        before = Beside(here, "a")
        await sleep(0.1)
        if how == "invalidate":
            assert await there.invalidate("a")
        else:
            plain_client(server).delete("menu:a")
        kitchen.seconds = 0
        assert (await here("a"))["load"] == 2
        assert (await first.result())["load"] == 1
        await before.result()
        await leader.result()


async def test_one_load_of_ended_patience_is_enough_while_nothing_is_deleted(
    server: Server,
) -> None:
    """Those who come while the process loads for itself share that load."""
    slow, kitchen = Kitchen(2), Kitchen(0.5)
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        leader = Beside(one.cached("menu:{name}", ttl=60)(slow.cook), "a")
        await eventually(lambda: slow.loads == 1)
        menu = two.cached("menu:{name}", ttl=60, wait=0.05)(kitchen.cook)
        first = Beside(menu, "a")
        await eventually(lambda: kitchen.loads == 1)
        later = [Beside(menu, "a") for _ in range(3)]
        for caller in [first, *later]:
            assert (await caller.result())["load"] == 1
        assert kitchen.loads == 1
        await leader.result()


async def test_a_load_that_lost_its_lock_leaves_no_mark(server: Server) -> None:
    """Its result is not stored; what stood for the load goes as well, and not in an hour."""
    kitchen = Kitchen(0.4)
    async with AsyncDibs(server.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60)(kitchen.cook)
        caller = Beside(menu, "a")
        await eventually(lambda: kitchen.loads == 1)
        plain_client(server).delete("lock:{menu:a}")
        assert (await caller.result())["load"] == 1
        await eventually(lambda: server.keys() == [])


async def test_invalidate_as_the_first_call_in_an_outage_is_delivered(
    proxy: FaultProxy, valkey: Server
) -> None:
    """The process has never reached the store: False, and it is deleted when the store is back."""
    proxy.refuse()
    async with AsyncDibs(proxy.url, budget=0.3) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60)(Kitchen().cook)
        valkey.client().set("menu:a", b"old", ex=60)
        assert await menu.invalidate("a") is False
        proxy.accept()
        await eventually(lambda: valkey.keys() == [])


# ---- one load


async def test_a_failure_that_is_over_ends_during_the_next_load(server: Server) -> None:
    """negative_ttl with stale: the remembered failure runs out while it is loaded: one load."""
    events: list[Event] = []
    kitchen = Kitchen()
    kitchen.error = RuntimeError("kitchen closed")
    async with AsyncDibs(server.url, budget=5, listeners=[events.append]) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60, negative_ttl=0.1, stale=0.4)(kitchen.cook)
        with pytest.raises(RuntimeError):
            await menu("a")
        with pytest.raises(Unavailable):
            await menu("a")
        await sleep(0.15)
        kitchen.error, kitchen.seconds = None, 0.7
        assert (await menu("a"))["load"] == 2
        assert (await menu("a"))["load"] == 2
        assert kitchen.loads == 2
        assert "rejected_write" not in kinds(events)


async def test_a_store_whose_reply_was_lost_is_not_told_as_rejected(
    proxy: FaultProxy, valkey: Server
) -> None:
    """The request is repeated; the value is there: no `rejected_write`, and the next call hits."""
    events: list[Event] = []
    kitchen = Kitchen()
    async with AsyncDibs(proxy.url, budget=5, listeners=[events.append]) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60)(kitchen.cook)
        await menu("warm")
        proxy.cut_after_request(match=b'{"name":"a"')
        assert (await menu("a"))["load"] == 2
        assert proxy.triggered == 1
        assert (await menu("a"))["load"] == 2
        assert "rejected_write" not in kinds(events)


# ---- methods


async def test_class_and_static_methods_can_be_cached(valkey: Server) -> None:
    """`cached` above `classmethod` or `staticmethod`: all verbs know the class."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:

        class Store:
            city = "taipei"
            loads = 0

            @dibs.cached("store:{cls.city}:{item}", ttl=60)
            @classmethod
            async def find(cls, item: str) -> str:
                Store.loads += 1
                return f"{item} in {cls.city}"

            @dibs.cached("price:{item}", ttl=60)
            @staticmethod
            async def price(item: str) -> int:
                return 35

        class Other(Store):
            city = "tainan"

        for _ in range(2):
            assert await Store.find("tea") == await Store().find("tea") == "tea in taipei"
            assert await Other.find("tea") == "tea in tainan"
            assert await Store.price("tea") == await Store().price("tea") == 35
        assert Store.loads == 2
        assert await Other.find.invalidate("tea")
        assert await Other.find("tea") and Store.loads == 3
        assert await Store.find.refresh("tea") and Store.loads == 4
        assert await Store.price.invalidate("tea")


async def test_a_class_method_above_cached(valkey: Server) -> None:
    """`classmethod` above `cached`: where the key does not need the class, invalidate finds it."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:

        class Store:
            loads = 0

            @classmethod
            @dibs.cached("store:{item}", ttl=60)
            async def find(cls, item: str) -> str:
                Store.loads += 1
                return item

        assert await Store.find("tea") == "tea"
        assert await Store.find.invalidate("tea")
        assert await Store.find("tea") == "tea" and Store.loads == 2


async def test_exclusive_and_once_above_cached(valkey: Server) -> None:
    """A cached function is a function: other decorators can be put above it."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        kitchen = Kitchen()
        menu = dibs.cached("menu:{name}", ttl=60)(kitchen.cook)
        held = dibs.exclusive("cook:{name}", ttl=5)(menu)
        submitted = dibs.once("order:{name}", window=5)(menu)
        assert await held("a") == await submitted("a") == {"name": "a", "load": 1}
