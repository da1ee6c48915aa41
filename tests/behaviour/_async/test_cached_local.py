"""The local memory of `cached`: never older than the store."""

from dibs import AsyncDibs, Event
from dibs.testing import Server

from .._tasks import eventually, sleep
from ..events import kinds
from .kitchen import Kitchen


async def test_local_memory_is_kept_true_by_the_server(server: Server) -> None:
    """local=True: no command at all for a hit; any change elsewhere is seen at once."""
    events: list[Event] = []
    kitchen = Kitchen()
    async with (
        AsyncDibs(server.url, budget=5, listeners=[events.append]) as one,
        AsyncDibs(server.url, budget=5) as two,
    ):
        here = one.cached("menu:{name}", ttl=60, local=True)(kitchen.cook)
        there = two.cached("menu:{name}", ttl=60)(kitchen.cook)

        async def remembered() -> bool:
            events.clear()
            await here("a")
            return kinds(events) == ["local_hit"]

        await eventually(remembered)
        before = server.commands()
        for _ in range(10):
            await here("a")
        assert server.commands() == before
        await there.invalidate("a")

        async def sees_the_change() -> bool:
            return (await here("a"))["load"] == 2

        await eventually(sees_the_change)
        await eventually(remembered)
        server.client().set("menu:a", b"junk", ex=60)

        async def sees_the_junk() -> bool:
            return (await here("a"))["load"] == 3

        await eventually(sees_the_junk)


async def test_local_memory_ends_with_the_value(server: Server) -> None:
    """A value that expires in the store is not served from memory."""
    kitchen = Kitchen()
    async with AsyncDibs(server.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=0.4, local=True)(kitchen.cook)
        first = (await menu("a"))["load"]
        await menu("a")
        await sleep(0.6)
        assert (await menu("a"))["load"] > first
