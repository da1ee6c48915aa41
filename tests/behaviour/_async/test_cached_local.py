"""The local memory of `cached`: never older than the store."""

from collections.abc import Callable
from time import sleep as pause

from dibs import AsyncDibs, Event
from dibs.testing import Server

from .._tasks import eventually, sleep
from ..events import kinds
from .loaders import Loader


async def test_local_memory_is_kept_true_by_the_server(server: Server) -> None:
    """local=True: no command at all for a hit; any change elsewhere is seen at once."""
    events: list[Event] = []
    loader = Loader()
    async with (
        AsyncDibs(server.url, budget=5, listeners=[events.append]) as one,
        AsyncDibs(server.url, budget=5) as two,
    ):
        here = one.cached("menu:{name}", ttl=60, local=True)(loader.load)
        there = two.cached("menu:{name}", ttl=60)(loader.load)

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
    loader = Loader()
    async with AsyncDibs(server.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=0.4, local=True)(loader.load)
        first = (await menu("a"))["load"]
        await menu("a")
        await sleep(0.6)
        assert (await menu("a"))["load"] > first


async def test_more_values_in_memory_than_the_server_keeps_track_of(
    start_server: Callable[..., Server],
) -> None:
    """The server forgets keys, and says so: they are read again when they are wanted, not before.

    No value is older than the store, and each read costs a few commands at most.
    """
    server = start_server("valkey", config=("--tracking-table-max-keys", "5"))
    names = [f"n{number}" for number in range(40)]
    loader = Loader()
    async with AsyncDibs(server.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=600, local=True)(loader.load)
        for name in names:
            await menu(name)
        before = server.commands()
        for _ in range(5):
            for name in names:
                assert (await menu(name))["load"] >= 1
        reads = 5 * len(names)
        assert server.commands() - before <= 4 * reads
        loads = {name: (await menu(name))["load"] for name in names}
        server.client().delete(*[f"menu:{name}" for name in names])

        async def sees_every_change() -> bool:
            return all([(await menu(name))["load"] > loads[name] for name in names])

        await eventually(sees_every_change, within=90)
        before = server.commands()
        await sleep(0.5)
        assert server.commands() - before <= 5, "nobody asks for what nobody reads"


async def test_the_first_call_after_a_pause_gets_no_old_value(server: Server) -> None:
    """The process did not run, or its loop was blocked, when the notification came."""
    events: list[Event] = []
    loader = Loader()
    async with AsyncDibs(server.url, budget=5, listeners=[events.append]) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60, local=True)(loader.load)

        async def remembered() -> bool:
            events.clear()
            await menu("a")
            return kinds(events) == ["local_hit"]

        await eventually(remembered)
        loads = (await menu("a"))["load"]
        server.client().delete("menu:a")
        pause(0.6)  # nothing else runs in this loop
        assert (await menu("a"))["load"] == loads + 1
