"""What `cached` promises: one load, and one command for a hit, on every engine."""

from typing import Any

from dibs import AsyncDibs, Event
from dibs.testing import Server

from .._tasks import Background, eventually
from ..events import kinds
from .loaders import Loader


async def test_a_hit_costs_one_command_and_no_load(server: Server) -> None:
    """Loaded once; from then on one GET a call."""
    loader = Loader()
    async with AsyncDibs(server.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60)(loader.load)
        assert await menu("a") == {"name": "a", "load": 1}
        before = server.commands()
        for _ in range(5):
            assert await menu("a") == {"name": "a", "load": 1}
        assert server.commands("get") and server.commands() - before == 5
        assert await menu("b") == {"name": "b", "load": 2}
        assert sorted(server.keys()) == ["menu:a", "menu:b"]


async def test_a_value_is_found_by_other_processes(server: Server) -> None:
    """Another Dibs reads what the first one loaded."""
    one, two = Loader(), Loader()
    async with AsyncDibs(server.url, budget=5) as here, AsyncDibs(server.url, budget=5) as there:
        assert await here.cached("menu:{name}", ttl=60)(one.load)("a")
        assert await there.cached("menu:{name}", ttl=60)(two.load)("a") == {"name": "a", "load": 1}
        assert two.loads == 0


async def test_many_callers_one_load(server: Server) -> None:
    """Two processes, forty callers, one cold key: one load, and all of them get its value."""
    loader = Loader(0.3)
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        menus = [dibs.cached("menu:{name}", ttl=60)(loader.load) for dibs in (one, two)]
        callers = [Background(menus[number % 2], "a") for number in range(40)]
        assert [await caller.result() for caller in callers] == [{"name": "a", "load": 1}] * 40
        assert loader.loads == 1


async def test_a_load_longer_than_its_lock_is_still_one(server: Server) -> None:
    """The leader is slower than lock_ttl: its lock is kept alive."""
    loader = Loader(2.2)
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        menus = [dibs.cached("menu:{name}", ttl=60, lock_ttl=1)(loader.load) for dibs in (one, two)]
        callers = [Background(menus[number % 2], "a") for number in range(6)]
        for caller in callers:
            assert await caller.result() == {"name": "a", "load": 1}
        assert loader.loads == 1


async def test_get_or_load_needs_no_decorator(server: Server) -> None:
    """Without a decorator: a key, a loader, a ttl."""
    loader = Loader()

    async def load() -> dict[str, Any]:
        return await loader.load("a")

    async with AsyncDibs(server.url, budget=5) as dibs:
        for _ in range(3):
            assert (await dibs.get_or_load("menu:a", load, ttl=60))["load"] == 1


async def test_a_follower_loads_for_itself_when_its_wait_is_over(server: Server) -> None:
    """wait: the follower loads for itself, one for its process, and does not store."""
    slow, quick = Loader(), Loader()
    slow.busy = True
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        leader = Background(one.cached("menu:{name}", ttl=60)(slow.load), "a")
        await eventually(lambda: slow.loads == 1)
        follower = two.cached("menu:{name}", ttl=60, wait=0.3)(quick.load)
        callers = [Background(follower, "a") for _ in range(5)]
        for caller in callers:
            assert (await caller.result())["load"] == 1
        assert quick.loads == 1
        slow.busy = False
        await leader.result()
        assert slow.loads == 1


async def test_everybody_who_waited_is_counted(server: Server) -> None:
    """Callers who join a load here: an event each, so that a hit rate can be computed."""
    events: list[Event] = []
    loader = Loader(0.3)
    async with AsyncDibs(server.url, budget=5, listeners=[events.append]) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60)(loader.load)
        callers = [Background(menu, "a") for _ in range(10)]
        for caller in callers:
            await caller.result()
        assert kinds(events).count("waited") == 9
        assert kinds(events).count("miss") == kinds(events).count("loaded") == 1
