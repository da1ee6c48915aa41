# Generated from tests/behaviour/_async/test_cached_local.py by unasync.py – do not edit.
"""The local memory of `cached`: never older than the store."""

from collections.abc import Callable
from time import sleep as pause

from dibs import Dibs, Event
from dibs.testing import Server

from .._threads import eventually, sleep
from ..events import kinds
from .loaders import Loader


def test_local_memory_is_kept_true_by_the_server(server: Server) -> None:
    """local=True: no command at all for a hit; any change elsewhere is seen at once."""
    events: list[Event] = []
    loader = Loader()
    with (
        Dibs(server.url, budget=5, listeners=[events.append]) as one,
        Dibs(server.url, budget=5) as two,
    ):
        here = one.cached("menu:{name}", ttl=60, local=True)(loader.load)
        there = two.cached("menu:{name}", ttl=60)(loader.load)

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
    loader = Loader()
    with Dibs(server.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=0.4, local=True)(loader.load)
        first = (menu("a"))["load"]
        menu("a")
        sleep(0.6)
        assert (menu("a"))["load"] > first


def test_more_values_in_memory_than_the_server_keeps_track_of(
    start_server: Callable[..., Server],
) -> None:
    """The server forgets keys, and says so: they are read again when they are wanted, not before.

    No value is older than the store, and each read costs a few commands at most.
    """
    server = start_server("valkey", config=("--tracking-table-max-keys", "5"))
    names = [f"n{number}" for number in range(40)]
    loader = Loader()
    with Dibs(server.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=600, local=True)(loader.load)
        for name in names:
            menu(name)
        before = server.commands()
        for _ in range(5):
            for name in names:
                assert (menu(name))["load"] >= 1
        reads = 5 * len(names)
        assert server.commands() - before <= 4 * reads
        loads = {name: (menu(name))["load"] for name in names}
        server.client().delete(*[f"menu:{name}" for name in names])

        def sees_every_change() -> bool:
            return all([(menu(name))["load"] > loads[name] for name in names])

        eventually(sees_every_change, within=90)
        before = server.commands()
        sleep(0.5)
        assert server.commands() - before <= 5, "nobody asks for what nobody reads"


def test_the_first_call_after_a_pause_gets_no_old_value(server: Server) -> None:
    """The process did not run, or its loop was blocked, when the notification came."""
    events: list[Event] = []
    loader = Loader()
    with Dibs(server.url, budget=5, listeners=[events.append]) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60, local=True)(loader.load)

        def remembered() -> bool:
            events.clear()
            menu("a")
            return kinds(events) == ["local_hit"]

        eventually(remembered)
        loads = (menu("a"))["load"]
        server.client().delete("menu:a")
        pause(0.6)  # nothing else runs in this loop
        assert (menu("a"))["load"] == loads + 1
