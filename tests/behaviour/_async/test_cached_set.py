"""Values that are read without a load, set, or deleted by their key."""

import pytest

from dibs import AsyncDibs, Event, Unavailable, UsageError
from dibs.testing import Server

from .._tasks import Background, eventually, sleep
from ..events import kinds
from .loaders import Loader


async def test_peek_never_loads(valkey: Server) -> None:
    """None if there is no value; else the value, its age, and how long it stays fresh."""
    loader = Loader()
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60, stale=60)(loader.load)
        assert await menu.peek("a") is None
        assert loader.loads == 0
        value = await menu("a")
        found = await menu.peek("a")
        assert found is not None and found.value == value
        assert 0 <= found.age < 30 and 30 < found.remaining <= 60
        valkey.client().pexpire("menu:a", 10_000)
        found = await menu.peek("a")
        assert found is not None and found.remaining <= 0, "it is stale"
        assert loader.loads == 1


async def test_peek_during_a_load_and_at_what_is_no_value(valkey: Server) -> None:
    """A mark and foreign bytes are nothing; a lease is a mistake."""
    loader = Loader(0.3)
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60)(loader.load)
        caller = Background(menu, "a")
        await eventually(lambda: loader.loads == 1)
        assert await menu.peek("a") is None
        await caller.result()
        valkey.client().set("menu:b", b"junk")
        assert await menu.peek("b") is None
        async with dibs.hold("menu:c", ttl=60):
            with pytest.raises(UsageError, match="lease"):
                await menu.peek("c")


async def test_a_value_that_was_set_is_read_everywhere(server: Server) -> None:
    """As if it had been loaded: for the ttl, with its type, and without a load."""
    loader = Loader()
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        here = one.cached("menu:{name}", ttl=60)(loader.load)
        there = two.cached("menu:{name}", ttl=60, local=True)(loader.load)
        assert await here.set("a", value={"name": "a", "load": 0}) is True
        assert await here("a") == await there("a") == {"name": "a", "load": 0}
        assert 50_000 < server.client().pttl("menu:a") <= 60_050
        assert await here.set("a", value={"name": "a", "load": -1})

        async def sees_it() -> bool:
            return (await there("a"))["load"] == -1

        await eventually(sees_it)
        assert loader.loads == 0
        with pytest.raises(UsageError, match="JSON"):
            await here.set("a", value={1, 2})  # type: ignore[arg-type]


async def test_a_load_does_not_replace_what_was_set_meanwhile(server: Server) -> None:
    """A value that is set is newer than a load that began before: the later write wins."""
    events: list[Event] = []
    loader = Loader(1.5)
    async with (
        AsyncDibs(server.url, budget=5, listeners=[events.append]) as one,
        AsyncDibs(server.url, budget=5) as two,
    ):
        here = one.cached("menu:{name}", ttl=60)(loader.load)
        there = two.cached("menu:{name}", ttl=60)(loader.load)
        early = Background(here, "a")
        await eventually(lambda: loader.loads == 1)
        follower = Background(there, "a")
        await sleep(0.1)
        assert await there.set("a", value={"name": "a", "load": 100})
        assert (await there("a"))["load"] == 100
        assert (await follower.result())["load"] == 100
        assert (await early.result())["load"] == 1, "who began the load gets its result"
        assert (await here("a"))["load"] == 100
        assert "rejected_write" in kinds(events)


async def test_set_and_peek_in_an_outage(own_server: Server) -> None:
    """False and None; the old value is deleted when the store is back. Or Unavailable."""
    events: list[Event] = []
    async with AsyncDibs(own_server.url, budget=0.5, listeners=[events.append]) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60)(Loader().load)
        closed = dibs.cached("menu:{name}", ttl=60, on_outage="closed")(Loader().load)
        await menu("a")
        own_server.freeze()
        assert await menu.set("a", value={"name": "new", "load": 0}) is False
        assert await menu.peek("a") is None
        with pytest.raises(Unavailable):
            await closed.set("a", value={"name": "new", "load": 0})
        with pytest.raises(Unavailable):
            await closed.peek("a")
        own_server.thaw()
        await eventually(lambda: "recovered" in kinds(events))
        await eventually(lambda: own_server.keys() == [])


async def test_a_lease_is_not_set(valkey: Server) -> None:
    """Nor is a function with a parameter of that name."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60)(Loader().load)
        async with dibs.hold("menu:a", ttl=60) as lease:
            with pytest.raises(UsageError, match="lease"):
                await menu.set("a", value={})
            assert not lease.lost
        assert not await menu.peek("a")

        @dibs.cached("square:{value}", ttl=60)
        async def square(value: int) -> int:
            return value * value

        with pytest.raises(UsageError, match="named value"):
            await square.set(value=4)


async def test_a_value_is_deleted_by_its_key_alone(valkey: Server) -> None:
    """`dibs.invalidate`: in the namespace of the client, and a load under way is not stored."""
    loader = Loader()

    async def load() -> int:
        return (await loader.load("a"))["load"]

    async with AsyncDibs(valkey.url, namespace="shop:", budget=5) as dibs:
        assert await dibs.get_or_load("menu:a", load, ttl=60) == 1
        assert await dibs.invalidate("menu:a") is True
        assert valkey.keys() == []
        assert await dibs.get_or_load("menu:a", load, ttl=60) == 2
        assert await dibs.get_or_load("menu:b", load, ttl=60, lock_key="my:b") == 3
        assert await dibs.invalidate("menu:b", lock_key="my:b")
        assert valkey.keys() == ["shop:menu:a"]
        async with dibs.hold("job", ttl=60):
            with pytest.raises(UsageError, match="lease"):
                await dibs.invalidate("job")
        with pytest.raises(UsageError):
            await dibs.invalidate("")


async def test_a_key_that_is_deleted_during_its_load_is_loaded_again(valkey: Server) -> None:
    """As `invalidate` of the function does."""
    loader = Loader(0.4)
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60)(loader.load)
        early = Background(menu, "a")
        await eventually(lambda: loader.loads == 1)
        await sleep(0.1)
        assert await dibs.invalidate("menu:a")
        assert (await menu("a"))["load"] == 2
        assert (await early.result())["load"] == 1
