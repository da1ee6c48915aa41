"""How long a cached value counts, and how it is refreshed before and after its end."""

import pytest

from dibs import AsyncDibs, Event
from dibs.testing import Server

from .._tasks import Background, eventually, sleep
from ..events import kinds
from .loaders import Loader


async def test_a_value_expires(server: Server) -> None:
    """After its ttl it is loaded again."""
    loader = Loader()
    async with AsyncDibs(server.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=0.2)(loader.load)
        assert (await menu("a"))["load"] == 1
        await sleep(0.3)
        assert (await menu("a"))["load"] == 2


async def test_jitter_and_its_floor(server: Server) -> None:
    """ttl ± jitter on every write, never below min_ttl."""
    loader = Loader()
    async with AsyncDibs(server.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=180, jitter=0.2)(loader.load)
        low = dibs.cached("low:{name}", ttl=10, jitter=0.2, min_ttl=60)(loader.load)
        lives: list[int] = []
        for number in range(30):
            await menu(str(number))
            lives.append(server.client().pttl(f"menu:{number}"))
        assert all(143_000 < life <= 216_000 for life in lives)
        assert max(lives) - min(lives) > 10_000
        await low("a")
        assert 59_000 < server.client().pttl("low:a") <= 60_050


async def test_refresh_loads_now(server: Server) -> None:
    """refresh(): a new load, and other callers read the old value meanwhile."""
    loader = Loader()
    async with AsyncDibs(server.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60)(loader.load)
        assert (await menu("a"))["load"] == 1
        loader.seconds = 1.5
        refreshing = Background(menu.refresh, "a")
        await eventually(lambda: loader.loads == 2)
        async with AsyncDibs(server.url, budget=5) as other:
            reader = other.cached("menu:{name}", ttl=60)(loader.load)
            assert (await reader("a"))["load"] == 1
        assert (await refreshing.result())["load"] == 2
        assert (await menu("a"))["load"] == 2


async def test_stale_is_served_while_one_refreshes(server: Server) -> None:
    """Past its ttl, within stale: the old value at once; one load behind it."""
    events: list[Event] = []
    loader = Loader()
    async with AsyncDibs(server.url, budget=5, listeners=[events.append]) as dibs:
        menu = dibs.cached("menu:{name}", ttl=0.3, stale=30)(loader.load)
        assert (await menu("a"))["load"] == 1
        await sleep(0.4)
        loader.busy = True
        for _ in range(5):
            assert (await menu("a"))["load"] == 1
        await eventually(lambda: loader.loads == 2)
        loader.busy = False

        async def is_new() -> bool:
            return (await menu("a"))["load"] >= 2

        await eventually(is_new)
        assert "stale" in kinds(events)


async def test_everybody_who_gets_an_old_value_is_counted_as_stale(valkey: Server) -> None:
    """Also callers that joined the reader: they waited for no load."""
    events: list[Event] = []
    loader = Loader()
    async with AsyncDibs(valkey.url, budget=5, listeners=[events.append]) as dibs:
        menu = dibs.cached("menu:{name}", ttl=0.3, stale=60)(loader.load)
        await menu("a")
        await sleep(0.4)
        events.clear()
        loader.busy = True
        callers = [Background(menu, "a") for _ in range(10)]
        for caller in callers:
            assert (await caller.result())["load"] == 1
        loader.busy = False
        assert kinds(events).count("stale") == 10
        assert "waited" not in kinds(events)


async def test_everybody_who_gets_a_fresh_value_is_counted_as_a_hit(valkey: Server) -> None:
    """Also those who joined the first read of this process: they waited for no load."""
    events: list[Event] = []
    loader = Loader()
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        await dibs.cached("menu:{name}", ttl=60)(loader.load)("a")
    async with AsyncDibs(valkey.url, budget=5, listeners=[events.append]) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60)(loader.load)
        callers = [Background(menu, "a") for _ in range(10)]
        for caller in callers:
            await caller.result()
        assert kinds(events) == ["hit"] * 10


async def test_stale_is_served_while_loads_fail(server: Server) -> None:
    """stale-if-error: the loader fails, the old value is served on."""
    loader = Loader()
    async with AsyncDibs(server.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=0.1, stale=30)(loader.load)
        assert (await menu("a"))["load"] == 1
        loader.error = RuntimeError("loader closed")
        await sleep(0.2)
        for _ in range(5):
            assert (await menu("a"))["load"] == 1
            await sleep(0.02)
        assert loader.loads > 1


async def test_a_value_is_refreshed_early_in_the_background(server: Server) -> None:
    """early: refreshed before the end, in the background; no reader waits for it."""
    loader = Loader(0.05)
    async with AsyncDibs(server.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60, early=2000)(loader.load)
        await menu("a")
        for _ in range(100):  # with early=2000 and a load of 50 ms, every other one at least
            await menu("a")
        await eventually(lambda: loader.loads >= 2)


async def test_a_refresh_and_readers_do_not_mix(server: Server) -> None:
    """Readers here read the old value during a refresh; a refresh never returns an old one."""
    loader = Loader()
    async with AsyncDibs(server.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60)(loader.load)
        assert (await menu("a"))["load"] == 1
        loader.busy = True
        refreshing = Background(menu.refresh, "a")
        await eventually(lambda: loader.loads == 2)
        assert (await menu("a"))["load"] == 1
        loader.busy = False
        assert (await refreshing.result())["load"] == 2
    async with AsyncDibs(server.url, budget=5) as fresh:
        menu = fresh.cached("menu:{name}", ttl=60)(loader.load)
        reader, refreshing = Background(menu, "a"), Background(menu.refresh, "a")
        assert (await refreshing.result())["load"] == 3
        assert (await reader.result())["load"] in (2, 3)


async def test_a_refresh_is_stored_though_the_old_value_ended(server: Server) -> None:
    """The old value ends during its refresh, by itself: the result is kept, one load is enough."""
    events: list[Event] = []
    loader = Loader()
    async with AsyncDibs(server.url, budget=5, listeners=[events.append]) as dibs:
        menu = dibs.cached("menu:{name}", ttl=0.3, stale=1)(loader.load)
        assert (await menu("a"))["load"] == 1
        await sleep(0.4)
        loader.busy = True
        for _ in range(3):
            assert (await menu("a"))["load"] == 1
        await sleep(1.1)
        loader.busy = False
        assert (await menu("a"))["load"] == 2
        assert loader.loads == 2
        assert "rejected_write" not in kinds(events)


async def test_an_ending_value_is_put_back_if_its_refresh_fails(server: Server) -> None:
    """refresh() of a value near its end fails: the value stays as before, and expires in time."""
    loader = Loader()
    async with AsyncDibs(server.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=1.5)(loader.load)
        assert (await menu("a"))["load"] == 1
        before = server.client().get("menu:a")
        loader.error = RuntimeError("loader closed")
        with pytest.raises(RuntimeError):
            await menu.refresh("a")
        await eventually(lambda: server.keys() == ["menu:a"])
        assert server.client().get("menu:a") == before
        assert 0 < server.client().pttl("menu:a") <= 1500
        assert (await menu("a"))["load"] == 1


async def test_readers_see_an_ending_value_during_its_refresh(server: Server) -> None:
    """Without `stale` too: the value is read here and elsewhere until it ends."""
    loader = Loader()
    async with AsyncDibs(server.url, budget=5) as dibs, AsyncDibs(server.url, budget=5) as other:
        menu = dibs.cached("menu:{name}", ttl=10)(loader.load)
        there = other.cached("menu:{name}", ttl=10)(loader.load)
        assert (await menu("a"))["load"] == 1
        loader.seconds = 1
        refreshing = Background(menu.refresh, "a")
        await eventually(lambda: loader.loads == 2)
        assert (await menu("a"))["load"] == (await there("a"))["load"] == 1
        assert (await refreshing.result())["load"] == 2
        assert (await menu("a"))["load"] == (await there("a"))["load"] == 2
        assert loader.loads == 2
