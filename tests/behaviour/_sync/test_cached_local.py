# Generated from tests/behaviour/_async/test_cached_local.py by unasync.py – do not edit.
"""The local memory of `cached`: never older than the store."""

from dibs import Dibs, Event
from dibs.testing import Server

from .._threads import eventually, sleep
from ..events import kinds
from .kitchen import Kitchen


def test_local_memory_is_kept_true_by_the_server(server: Server) -> None:
    """local=True: no command at all for a hit; any change elsewhere is seen at once."""
    events: list[Event] = []
    kitchen = Kitchen()
    with (
        Dibs(server.url, budget=5, listeners=[events.append]) as one,
        Dibs(server.url, budget=5) as two,
    ):
        here = one.cached("menu:{name}", ttl=60, local=True)(kitchen.cook)
        there = two.cached("menu:{name}", ttl=60)(kitchen.cook)

        def remembered() -> bool:
            events.clear()
            here("a")
            return kinds(events) == ["local_hit"]

        eventually(remembered)
        before = server.commands()
        for _ in range(10):
            here("a")
        assert server.commands() == before
        there.invalidate("a")

        def sees_the_change() -> bool:
            return (here("a"))["load"] == 2

        eventually(sees_the_change)
        eventually(remembered)
        server.client().set("menu:a", b"junk", ex=60)

        def sees_the_junk() -> bool:
            return (here("a"))["load"] == 3

        eventually(sees_the_junk)


def test_local_memory_ends_with_the_value(server: Server) -> None:
    """A value that expires in the store is not served from memory."""
    kitchen = Kitchen()
    with Dibs(server.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=0.4, local=True)(kitchen.cook)
        first = (menu("a"))["load"]
        menu("a")
        sleep(0.6)
        assert (menu("a"))["load"] > first
