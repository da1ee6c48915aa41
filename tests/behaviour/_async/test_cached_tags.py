"""Tags: one command makes every value that has one outdated, and nothing brings it back."""

from collections.abc import Callable
from typing import Any

import pytest

from dibs import AsyncDibs, Event, Unavailable, UsageError
from dibs.testing import Server
from tests.topologies import start_cluster

from .._tasks import Background, eventually, sleep
from ..events import kinds
from .loaders import BatchLoader, Loader

StartServer = Callable[..., Server]


async def test_invalidating_a_tag_outdates_every_value_that_has_it(server: Server) -> None:
    """In all processes; values with other tags stay."""
    loader = Loader()
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        tags = ["city:{city}", "all"]
        here = one.cached("menu:{city}:{name}", ttl=60, tags=tags)(loader.load_in)
        there = two.cached("menu:{city}:{name}", ttl=60, tags=tags)(loader.load_in)
        for city in ("taipei", "tainan"):
            for name in ("a", "b"):
                await here(city, name)
        assert await two.invalidate_tag("city:taipei") is True
        assert (await here("tainan", "a"))["load"] == 3
        assert (await there("taipei", "a"))["load"] == 5
        assert (await here("taipei", "b"))["load"] == 6
        assert (await there("taipei", "a"))["load"] == (await here("taipei", "a"))["load"] == 5
        assert await one.invalidate_tag("all")
        assert (await there("tainan", "a"))["load"] == 7
        assert loader.loads == 7


async def test_a_tag_costs_one_key_and_one_command(valkey: Server) -> None:
    """However many values have it: one key for the tag, one script to invalidate it."""
    loader = BatchLoader()
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        menus = dibs.cached_many("menu:{name}", ttl=60, tags=["menus"])(loader.load)
        names = [str(number) for number in range(50)]
        await menus(names)
        assert len(valkey.keys()) == 51
        before = valkey.commands()
        await dibs.invalidate_tag("menus")
        assert valkey.commands() - before <= 4
        assert await menus(names) == {name: f"{name}2" for name in names}
        assert len(loader.calls) == 2


async def test_a_hit_with_tags_is_one_round_trip(valkey: Server) -> None:
    """The value and the versions of its tags are asked for in one write."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60, tags=["a", "b"])(Loader().load)
        await menu("x")
        await menu("x")
        before = valkey.commands()
        await menu("x")
        assert valkey.commands() - before <= 4


@pytest.mark.parametrize("resp", [2, 3])
async def test_a_tag_invalidated_during_a_load_makes_its_result_outdated(
    start_server: StartServer, resp: int
) -> None:
    """Who began the load gets it; who comes after the tag was invalidated gets fresh data."""
    config = ("--rename-command", "HELLO", "") if resp == 2 else ()
    server = start_server("valkey", config=config)
    loader = Loader(0.6)
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        here = one.cached("menu:{name}", ttl=60, tags=["menus"])(loader.load)
        early = Background(here, "a")
        await eventually(lambda: loader.loads == 1)
        await sleep(0.1)
        assert await two.invalidate_tag("menus")
        await sleep(0.1 if resp == 3 else 0)
        loader.seconds = 0
        assert (await here("a"))["load"] == 2
        assert (await early.result())["load"] == 1
        assert (await here("a"))["load"] == 2
        assert loader.loads == 2


async def test_a_tag_whose_key_is_lost_brings_nothing_back(server: Server) -> None:
    """Evicted, expired or deleted: values with it are outdated, for good."""
    loader = Loader()
    async with AsyncDibs(server.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60, stale=60, tags=["menus"])(loader.load)
        other = dibs.cached("other:{name}", ttl=60, tags=["menus"])(Loader().load)
        await menu("a")
        version = server.client().get("tag:menus")
        server.client().delete("tag:menus")
        await other("b")
        assert server.client().get("tag:menus") not in (None, version)
        assert (await menu("a"))["load"] == 2
        assert server.client().pttl("tag:menus") > 3_600_000


async def test_a_tagged_value_in_memory_is_forgotten_with_its_tag(server: Server) -> None:
    """local=True: the tag is tracked as the value is; here at once, elsewhere with the push."""
    events: list[Event] = []
    loader = Loader()
    async with (
        AsyncDibs(server.url, budget=5, listeners=[events.append]) as one,
        AsyncDibs(server.url, budget=5) as two,
    ):
        here = one.cached("menu:{name}", ttl=60, local=True, tags=["menus"])(loader.load)

        async def remembered() -> bool:
            events.clear()
            await here("a")
            return kinds(events) == ["local_hit"]

        await eventually(remembered)
        assert await one.invalidate_tag("menus")
        assert (await here("a"))["load"] == 2
        await eventually(remembered)
        assert await two.invalidate_tag("menus")

        async def sees_it() -> bool:
            return (await here("a"))["load"] == 3

        await eventually(sees_it)


async def test_many_callers_of_an_outdated_value_share_one_load(valkey: Server) -> None:
    """Also in several processes; and after a failed load no caller keeps waiting."""
    loader = Loader()
    async with AsyncDibs(valkey.url, budget=5) as one, AsyncDibs(valkey.url, budget=5) as two:
        here = one.cached("menu:{name}", ttl=60, tags=["menus"])(loader.load)
        there = two.cached("menu:{name}", ttl=60, tags=["menus"])(loader.load)
        await here("a")
        await there("a")
        await one.invalidate_tag("menus")
        loader.seconds = 0.3
        callers = [Background(each, "a") for each in (here, there) for _ in range(5)]
        assert {(await caller.result())["load"] for caller in callers} == {2}


async def test_a_tag_invalidated_after_a_failure_is_loaded_at_once(valkey: Server) -> None:
    """There is no new attempt for a while, but only as long as there is an old value to serve."""
    loader = Loader()
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        how: dict[str, float] = {"ttl": 0.2, "stale": 60, "lock_ttl": 60}
        menu = dibs.cached("menu:{name}", tags=["menus"], **how)(loader.load)  # type: ignore[arg-type]
        await menu("a")
        await sleep(0.3)
        loader.error = RuntimeError("closed")
        assert (await menu("a"))["load"] == 1
        await eventually(lambda: valkey.client().get("lock:{menu:a}") == b"!")
        loader.error = None
        await dibs.invalidate_tag("menus")
        assert (await menu("a"))["load"] == 3


async def test_tags_with_set_peek_and_remembered_failures(valkey: Server) -> None:
    """They are outdated like any other value."""
    loader = Loader()
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60, negative_ttl=60, tags=["menus"])(loader.load)
        await menu.set("a", value={"name": "a", "load": 0})
        assert (await menu("a"))["load"] == 0
        await dibs.invalidate_tag("menus")
        assert await menu.peek("a") is None
        loader.error = RuntimeError("closed")
        with pytest.raises(RuntimeError):
            await menu("a")
        loader.error = None
        await dibs.invalidate_tag("menus")
        assert (await menu("a"))["load"] == 2


async def test_tags_on_a_cluster(start_server: StartServer) -> None:
    """Tags are in their own slots, and the promises are the same."""
    servers = start_cluster(start_server)
    url = "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in servers)
    loader = Loader()
    async with AsyncDibs(url, budget=5, on_outage="closed") as dibs:
        tags = ["city:{city}", "all"]
        menu = dibs.cached("menu:{city}:{name}", ttl=60, tags=tags)(loader.load_in)
        for name in ("a", "b", "c"):
            await menu("taipei", name)
            await menu("taipei", name)
        assert loader.loads == 3
        assert await dibs.invalidate_tag("city:taipei")
        assert [(await menu("taipei", name))["load"] for name in ("a", "b", "c")] == [4, 5, 6]


async def test_a_tag_invalidated_in_an_outage_is_invalidated_later(own_server: Server) -> None:
    """False, and it is done when the store is back."""
    events: list[Event] = []
    loader = Loader()
    async with AsyncDibs(own_server.url, budget=0.5, listeners=[events.append]) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60, tags=["menus"])(loader.load)
        await menu("a")
        own_server.freeze()
        assert await dibs.invalidate_tag("menus") is False
        own_server.thaw()
        await eventually(lambda: "recovered" in kinds(events))
        await eventually(lambda: own_server.keys() == ["menu:a"])
        assert (await menu("a"))["load"] == 2


async def test_a_tag_from_an_argument_that_is_not_in_the_key(valkey: Server) -> None:
    """The tags of a value are those of the call that loaded it."""
    loader = Loader()
    async with AsyncDibs(valkey.url, namespace="shop:", budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60, tags=["city:{city}"])(loader.load_in)
        assert (await menu("taipei", "a"))["load"] == 1
        assert (await menu("taipei", "a"))["load"] == 1
        assert (await menu("tainan", "a"))["load"] == 2, "its tags are others"
        assert "shop:tag:city:taipei" in valkey.keys()

        async def load() -> int:
            return 1

        await dibs.get_or_load("x", load, ttl=60, tags=["x:1"])
        assert "shop:tag:x:1" in valkey.keys()


async def test_odd_tags_are_mistakes(valkey: Server) -> None:
    """Raised before any command."""
    async with AsyncDibs("redis://127.0.0.1:1") as dibs:
        with pytest.raises(UsageError, match="list of strings"):
            dibs.cached("menu:{name}", ttl=60, tags="menus")
        with pytest.raises(UsageError, match="non-empty"):
            dibs.cached("menu:{name}", ttl=60, tags=["", "a"])
        with pytest.raises(UsageError, match="no parameter 'x'"):
            dibs.cached("menu:{name}", ttl=60, tags=["a:{x}"])(Loader().load)
        with pytest.raises(UsageError, match="non-empty"):
            await dibs.invalidate_tag("")


async def test_a_failure_is_remembered_where_a_tag_took_the_old_value_away(valkey: Server) -> None:
    """There is nothing better to serve, so the loader is spared."""
    loader = Loader()
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        how: Any = {"ttl": 0.2, "stale": 60, "negative_ttl": 60, "tags": ["menus"]}
        menu = dibs.cached("menu:{name}", **how)(loader.load)
        await menu("a")
        await sleep(0.3)
        await dibs.invalidate_tag("menus")
        loader.error = RuntimeError("closed")
        with pytest.raises(RuntimeError):
            await menu("a")
        with pytest.raises(Unavailable, match="RuntimeError"):
            await menu("a")
        assert loader.loads == 2


async def test_the_key_of_a_tag_that_is_something_else_is_a_mistake(valkey: Server) -> None:
    """A lease or another program's key is not touched, and the caller gets an error."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60, tags=["{name}"])(Loader().load)
        client = valkey.client()
        client.set("tag:value", b"dibs1 json - 1.000 0.1\n{}", px=60_000)
        client.hset("tag:hash", "a", "b")
        client.pexpire("tag:hash", 60_000)
        async with dibs.hold("tag:lease", ttl=60):
            for name in ("lease", "value", "hash"):
                with pytest.raises(UsageError, match="tag"):
                    await menu(name)
                with pytest.raises(UsageError, match="tag"):
                    await menu.set(name, value={})
                if name != "value":
                    with pytest.raises(UsageError, match=r"tag|type"):
                        await dibs.invalidate_tag(name)
                assert 0 < client.pttl(f"tag:{name}") <= 60_050
        await eventually(lambda: sorted(valkey.keys()) == ["tag:hash", "tag:value"])
