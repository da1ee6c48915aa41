# Generated from tests/behaviour/_async/test_cached_keep.py by unasync.py – do not edit.
"""Which results `cached` keeps, and for how long; which failures it remembers."""

from typing import Any

import pytest

from dibs import Dibs, Event, Unavailable, UsageError
from dibs.testing import Server

from .._threads import Background, eventually, sleep
from ..events import kinds
from .loaders import BatchLoader, Loader


def test_a_result_that_is_not_kept_is_loaded_again(server: Server) -> None:
    """keep= says no: callers who wait get it, nothing is stored, and no lock stays."""
    loader = Loader(0.2)
    with Dibs(server.url, budget=5) as dibs:
        odd = dibs.cached("menu:{name}", ttl=60, keep=lambda menu: menu["load"] > 1)(loader.load)
        callers = [Background(odd, "a") for _ in range(5)]
        assert {(caller.result())["load"] for caller in callers} == {1}
        eventually(lambda: server.keys() == [])
        assert (odd("a"))["load"] == 2
        assert (odd("a"))["load"] == 2


@pytest.mark.parametrize(
    ("said", "least", "most"), [(10, 9, 10), (True, 59, 60), (600.5, 590, 601)]
)
def test_a_result_has_a_ttl_of_its_own(
    valkey: Server, said: Any, least: float, most: float
) -> None:
    """keep= returns seconds for this one; True is the usual ttl; `stale` comes on top."""
    with Dibs(valkey.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60, min_ttl=30, keep=lambda _: said)(Loader().load)
        menu("a")
        assert least * 1000 < valkey.client().pttl("menu:a") <= most * 1000
        old = dibs.cached("o:{name}", ttl=60, stale=100, keep=lambda _: said)(Loader().load)
        old("a")
        assert (least + 100) * 1000 < valkey.client().pttl("o:a") <= (most + 100) * 1000


def test_a_result_that_is_not_kept_leaves_the_old_value(valkey: Server) -> None:
    """Stale and no new one to keep: it is served, and not loaded again for every read."""
    loader = Loader()
    with Dibs(valkey.url, budget=5) as dibs:
        menu = dibs.cached(
            "menu:{name}", ttl=0.2, stale=60, lock_ttl=60, keep=lambda m: m["load"] == 1
        )(loader.load)
        menu("a")
        sleep(0.3)
        assert (menu("a"))["load"] == 1
        eventually(lambda: loader.loads == 2)
        for _ in range(5):
            assert (menu("a"))["load"] == 1
            sleep(0.01)
        assert loader.loads == 2


def test_an_odd_answer_of_keep_is_an_error_of_the_load(valkey: Server) -> None:
    """A negative number, text, or an exception: nothing is stored."""
    with Dibs(valkey.url, budget=5) as dibs:
        for keep in (lambda _: -1, lambda _: "yes", lambda _: float("nan")):
            menu = dibs.cached("menu:{name}", ttl=60, keep=keep)(Loader().load)  # type: ignore[arg-type]
            with pytest.raises(UsageError, match="keep"):
                menu("a")
        broken = dibs.cached("menu:{name}", ttl=60, keep=lambda m: m["x"])(Loader().load)
        with pytest.raises(KeyError):
            broken("a")
        eventually(lambda: valkey.keys() == [])


def test_each_of_many_results_is_kept_or_not(valkey: Server) -> None:
    """keep= is asked for each value."""
    loader = BatchLoader()
    with Dibs(valkey.url, budget=5) as dibs:
        menus = dibs.cached_many("menu:{name}", ttl=60, keep=lambda m: m != "b1")(loader.load)
        assert menus(["a", "b"]) == {"a": "a1", "b": "b1"}
        assert menus(["a", "b"]) == {"a": "a1", "b": "b2"}


def test_failures_are_remembered_by_their_type(valkey: Server) -> None:
    """negative_ttl={type: seconds}: the first type that fits; others are not remembered."""
    loader = Loader()
    with Dibs(valkey.url, budget=5) as dibs:
        menu = dibs.cached(
            "menu:{name}", ttl=60, negative_ttl={KeyError: 0, LookupError: 30, OSError: 5}
        )(loader.load)
        for error, life in ((KeyError("x"), 0), (IndexError("x"), 30), (ValueError("x"), 0)):
            loader.error = error
            with pytest.raises(type(error)):
                menu("a")
            if life:
                assert life * 900 < valkey.client().pttl("menu:a") <= life * 1000
                with pytest.raises(Unavailable, match="IndexError"):
                    menu("a")
                menu.invalidate("a")
            eventually(lambda: valkey.keys() == [])
    with pytest.raises(UsageError, match="types of exceptions"):
        Dibs("redis://127.0.0.1:1").cached("x:{y}", ttl=1, negative_ttl={"KeyError": 1})  # type: ignore[dict-item]


def test_an_old_value_is_served_only_if_the_load_fails(server: Server) -> None:
    """stale_after=None: fresh data first, however long it takes; an old one for an error."""
    events: list[Event] = []
    loader = Loader()
    with Dibs(server.url, budget=5, listeners=[events.append]) as dibs:
        menu = dibs.cached("menu:{name}", ttl=0.2, stale=60, stale_after=None, lock_ttl=60)(
            loader.load
        )
        menu("a")
        sleep(0.3)
        loader.seconds = 0.3
        callers = [Background(menu, "a") for _ in range(5)]
        assert {(caller.result())["load"] for caller in callers} == {2}
        sleep(0.3)
        loader.error = RuntimeError("closed")
        assert (menu("a"))["load"] == 2
        assert loader.loads == 3
        assert (menu("a"))["load"] == 2
        assert loader.loads == 3, "a load that has just failed is not tried for every read"
        assert "stale" in kinds(events) and "degraded" in kinds(events)


def test_an_old_value_is_served_if_the_load_takes_too_long(valkey: Server) -> None:
    """stale_after=0.2: then the old one is returned, and the load continues in the background."""
    loader = Loader()
    with Dibs(valkey.url, budget=5) as one, Dibs(valkey.url, budget=5) as two:
        how: Any = {"ttl": 0.5, "stale": 60, "stale_after": 0.2, "keep": lambda _: 60}
        short = one.cached("menu:{name}", ttl=0.2, stale=60)(loader.load)
        here = one.cached("menu:{name}", **how)(loader.load)
        there = two.cached("menu:{name}", **how)(loader.load)
        short("a")
        sleep(0.3)
        loader.seconds = 1.5
        callers = [Background(here, "a"), Background(there, "a")]
        assert {(caller.result())["load"] for caller in callers} == {1}
        assert loader.loads == 2

        def is_fresh() -> bool:
            return (there("a"))["load"] == 2

        eventually(is_fresh)
        assert loader.loads == 2


def test_who_joins_a_load_does_not_wait_longer_for_it(valkey: Server) -> None:
    """stale_after counts from the call: the second caller is not made to wait twice."""
    loader = Loader()
    with Dibs(valkey.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=0.2, stale=60, stale_after=2)(loader.load)
        menu("a")
        sleep(0.3)
        loader.busy = True
        first = Background(menu, "a")
        sleep(1)
        answered: list[str] = []

        def ask(who: str) -> None:
            menu("a")
            answered.append(who)

        second = Background(ask, "second")
        assert (first.result())["load"] == 1
        eventually(lambda: answered == ["second"], within=1.9)
        loader.busy = False
        second.result()


def test_many_old_values_are_served_if_the_load_fails(valkey: Server) -> None:
    """stale_after=None among many: fresh ones first, the old ones instead of an error."""
    loader = BatchLoader()
    with Dibs(valkey.url, budget=5) as dibs:
        menus = dibs.cached_many("menu:{name}", ttl=0.2, stale=60, stale_after=None)(loader.load)
        menus(["a", "b"])
        sleep(0.3)
        assert menus(["a", "b"]) == {"a": "a2", "b": "b2"}
        sleep(0.3)
        loader.error = RuntimeError("closed")
        assert menus(["a", "b"]) == {"a": "a2", "b": "b2"}
        assert menus(["a", "b"]) == {"a": "a2", "b": "b2"}
        assert len(loader.calls) == 3
        with pytest.raises(UsageError, match="stale_after"):
            dibs.cached_many("menu:{name}", ttl=1, stale=60, stale_after=1)(loader.load)
    with pytest.raises(UsageError, match="needs stale"):
        dibs.cached("menu:{name}", ttl=1, stale_after=None)


def test_a_refresh_is_not_kept_from_loading_by_a_failure(valkey: Server) -> None:
    """A failed load lets others rest for a while; who asks for fresh data by name does not."""
    loader = Loader()
    with Dibs(valkey.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=0.2, stale=60, lock_ttl=30)(loader.load)
        menu("a")
        sleep(0.3)
        loader.error = RuntimeError("closed")
        assert (menu("a"))["load"] == 1
        eventually(lambda: valkey.client().get("lock:{menu:a}") == b"!")
        loader.error = None
        assert (menu.refresh("a"))["load"] == 3
