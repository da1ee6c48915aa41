# Generated from tests/behaviour/_async/test_cached_failures.py by unasync.py – do not edit.
"""What readers of `cached` get when a load fails, or the store does not answer."""

import time

import pytest

from dibs import Dibs, Event, Unavailable
from dibs.testing import Server

from .._threads import Background, eventually, sleep
from ..events import kinds
from .loaders import Loader


def test_a_failed_load_is_everybodys_error_and_nobodys_value(server: Server) -> None:
    """The loader raises: that exception reaches all who wait here; the next call loads again."""
    loader = Loader(0.2)
    loader.error = RuntimeError("loader closed")
    with Dibs(server.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60)(loader.load)
        callers = [Background(menu, "a") for _ in range(5)]
        for caller in callers:
            with pytest.raises(RuntimeError, match="loader closed"):
                caller.result()
        assert loader.loads == 1
        eventually(lambda: server.keys() == [])
        loader.error = None
        assert (menu("a"))["load"] == 2


def test_a_failure_may_be_remembered(server: Server) -> None:
    """negative_ttl: no further load until it is over; others get the error."""
    loader = Loader()
    loader.error = RuntimeError("loader closed")
    with Dibs(server.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60, negative_ttl=0.5)(loader.load)
        with pytest.raises(RuntimeError):
            menu("a")
        with pytest.raises(Unavailable, match="RuntimeError"):
            menu("a")
        assert loader.loads == 1
        loader.error = None
        sleep(0.6)
        assert (menu("a"))["load"] == 2


def test_a_remembered_failure_says_which_exception_it_was(valkey: Server) -> None:
    """`failure` is the name of its type: later callers can tell "not found" from an outage."""
    loader = Loader()
    loader.error = KeyError("no such menu")
    with Dibs(valkey.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60, negative_ttl={KeyError: 30})(loader.load)
        with pytest.raises(KeyError):
            menu("a")
        with pytest.raises(Unavailable) as failed:
            menu("a")
        assert (failed.value.failure, failed.value.cause) == ("KeyError", "load_failed")
    with Dibs("redis://127.0.0.1:1", on_outage="closed") as out:
        with pytest.raises(Unavailable) as outage:
            out.cached("menu:{name}", ttl=60)(loader.load)("a")
        assert outage.value.failure is None


def test_an_outage_loads_directly(own_server: Server) -> None:
    """The store is out: the loader is asked, one at a time for each key; nothing is stored."""
    events: list[Event] = []
    loader = Loader()
    with Dibs(own_server.url, budget=0.5, listeners=[events.append]) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60, local=True)(loader.load)
        menu("a")
        own_server.freeze()
        loader.busy = True
        callers = [Background(menu, "b") for _ in range(10)]
        eventually(lambda: loader.loads == 2)
        sleep(1)  # the budgets of all of them end
        loader.busy = False
        for caller in callers:
            assert (caller.result())["name"] == "b"
        assert loader.loads == 2, "ten callers do not load one after the other"
        assert "degraded" in kinds(events) and "outage" in kinds(events)
        own_server.thaw()
        eventually(lambda: "recovered" in kinds(events))
        closed = dibs.cached("other:{name}", ttl=60, on_outage="closed")(loader.load)
        assert closed("c")
        own_server.freeze()
        with pytest.raises(Unavailable):
            closed("d")
        own_server.thaw()


def test_a_failing_loader_is_not_asked_for_every_stale_read(server: Server) -> None:
    """Stale, and every refresh fails at once: one try in a lock's time, not one a read."""
    events: list[Event] = []
    loader = Loader()
    with Dibs(server.url, budget=5, listeners=[events.append]) as dibs:
        menu = dibs.cached("menu:{name}", ttl=0.1, stale=30, lock_ttl=2)(loader.load)
        menu("a")
        sleep(0.2)
        loader.error = RuntimeError("loader closed")
        since = time.monotonic()
        for _ in range(50):
            assert (menu("a"))["load"] == 1
            sleep(0.01)
        assert loader.loads <= 3 + (time.monotonic() - since) // 2
        causes = [(event.cause, event.detail) for event in events if event.kind == "degraded"]
        assert causes[:1] == [("load_failed", "the load failed: RuntimeError")]


def test_a_refresh_that_was_refused_is_tried_again_after_the_time_of_a_lock(
    server: Server,
) -> None:
    """Not only when the load, which did not begin, would have had to end."""
    loader = Loader()
    with Dibs(server.url, budget=5) as dibs:
        times = {"ttl": 0.1, "stale": 600, "local": 60, "lock_ttl": 0.5, "load_timeout": 600}
        read = dibs.cached("menu:{name}", **times)(loader.load)
        read("a")
        server.client().rpush("lock:{menu:a}", "of another program")
        sleep(0.2)
        assert (read("a"))["load"] == 1
        sleep(0.1)
        server.client().delete("lock:{menu:a}")
        for _ in range(100):
            if (read("a"))["load"] > 1:
                break
            sleep(0.1)
        assert loader.loads > 1


def test_a_remembered_failure_ends_in_time_also_with_stale(server: Server) -> None:
    """negative_ttl together with stale: after negative_ttl the key is simply missing."""
    loader = Loader()
    loader.error = RuntimeError("loader closed")
    with Dibs(server.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60, negative_ttl=0.3, stale=30)(loader.load)
        with pytest.raises(RuntimeError):
            menu("a")
        with pytest.raises(Unavailable):
            menu("a")
        loader.error = None
        sleep(0.4)
        assert (menu("a"))["load"] == 2


def test_a_failure_that_is_over_ends_during_the_next_load(server: Server) -> None:
    """negative_ttl with stale: the remembered failure runs out while it is loaded: one load."""
    events: list[Event] = []
    loader = Loader()
    loader.error = RuntimeError("loader closed")
    with Dibs(server.url, budget=5, listeners=[events.append]) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60, negative_ttl=0.1, stale=0.4)(loader.load)
        with pytest.raises(RuntimeError):
            menu("a")
        sleep(0.15)
        loader.error, loader.seconds = None, 0.7
        assert (menu("a"))["load"] == 2
        assert (menu("a"))["load"] == 2
        assert loader.loads == 2
        assert "rejected_write" not in kinds(events)
