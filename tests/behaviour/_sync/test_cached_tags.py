# Generated from tests/behaviour/_async/test_cached_tags.py by unasync.py – do not edit.
"""Tags: one command makes every value that has one outdated, and nothing brings it back."""

from collections.abc import Callable
from typing import Any

import pytest

from dibs import Dibs, Event, Unavailable, UsageError
from dibs.testing import Server
from tests.topologies import start_cluster

from .._threads import Background, eventually, sleep
from ..events import kinds
from .loaders import BatchLoader, Loader

StartServer = Callable[..., Server]


def test_invalidating_a_tag_outdates_every_value_that_has_it(server: Server) -> None:
    """In all processes; values with other tags stay."""
    loader = Loader()
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        tags = ["city:{city}", "all"]
        here = one.cached("menu:{city}:{name}", ttl=60, tags=tags)(loader.load_in)
        there = two.cached("menu:{city}:{name}", ttl=60, tags=tags)(loader.load_in)
        for city in ("taipei", "tainan"):
            for name in ("a", "b"):
                here(city, name)
        assert two.invalidate_tag("city:taipei") is True
        assert (here("tainan", "a"))["load"] == 3
        assert (there("taipei", "a"))["load"] == 5
        assert (here("taipei", "b"))["load"] == 6
        assert (there("taipei", "a"))["load"] == (here("taipei", "a"))["load"] == 5
        assert one.invalidate_tag("all")
        assert (there("tainan", "a"))["load"] == 7
        assert loader.loads == 7


def test_a_tag_costs_one_key_and_one_command(valkey: Server) -> None:
    """However many values have it: one key for the tag, one script to invalidate it."""
    loader = BatchLoader()
    with Dibs(valkey.url, budget=5) as dibs:
        menus = dibs.cached_many("menu:{name}", ttl=60, tags=["menus"])(loader.load)
        names = [str(number) for number in range(50)]
        menus(names)
        assert len(valkey.keys()) == 51
        before = valkey.commands()
        dibs.invalidate_tag("menus")
        assert valkey.commands() - before <= 4
        assert menus(names) == {name: f"{name}2" for name in names}
        assert len(loader.calls) == 2


def test_a_hit_with_tags_is_one_round_trip(valkey: Server) -> None:
    """The value and the versions of its tags are asked for in one write."""
    with Dibs(valkey.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60, tags=["a", "b"])(Loader().load)
        menu("x")
        menu("x")
        before = valkey.commands()
        menu("x")
        assert valkey.commands() - before <= 4


@pytest.mark.parametrize("resp", [2, 3])
def test_a_tag_invalidated_during_a_load_makes_its_result_outdated(
    start_server: StartServer, resp: int
) -> None:
    """Who began the load gets it; who comes after the tag was invalidated gets fresh data."""
    config = ("--rename-command", "HELLO", "") if resp == 2 else ()
    server = start_server("valkey", config=config)
    loader = Loader(0.6)
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        here = one.cached("menu:{name}", ttl=60, tags=["menus"])(loader.load)
        early = Background(here, "a")
        eventually(lambda: loader.loads == 1)
        sleep(0.1)
        assert two.invalidate_tag("menus")
        sleep(0.1 if resp == 3 else 0)
        loader.seconds = 0
        assert (here("a"))["load"] == 2
        assert (early.result())["load"] == 1
        assert (here("a"))["load"] == 2
        assert loader.loads == 2


def test_a_tag_whose_key_is_lost_brings_nothing_back(server: Server) -> None:
    """Evicted, expired or deleted: values with it are outdated, for good."""
    loader = Loader()
    with Dibs(server.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60, stale=60, tags=["menus"])(loader.load)
        other = dibs.cached("other:{name}", ttl=60, tags=["menus"])(Loader().load)
        menu("a")
        version = server.client().get("tag:menus")
        server.client().delete("tag:menus")
        other("b")
        assert server.client().get("tag:menus") not in (None, version)
        assert (menu("a"))["load"] == 2
        assert server.client().pttl("tag:menus") > 3_600_000


def test_a_tagged_value_in_memory_is_forgotten_with_its_tag(server: Server) -> None:
    """local=True: the tag is tracked as the value is; here at once, elsewhere with the push."""
    events: list[Event] = []
    loader = Loader()
    with (
        Dibs(server.url, budget=5, listeners=[events.append]) as one,
        Dibs(server.url, budget=5) as two,
    ):
        here = one.cached("menu:{name}", ttl=60, local=True, tags=["menus"])(loader.load)

        def remembered() -> bool:
            events.clear()
            here("a")
            return kinds(events) == ["local_hit"]

        eventually(remembered)
        assert one.invalidate_tag("menus")
        assert (here("a"))["load"] == 2
        eventually(remembered)
        assert two.invalidate_tag("menus")

        def sees_it() -> bool:
            return (here("a"))["load"] == 3

        eventually(sees_it)


def test_many_callers_of_an_outdated_value_share_one_load(valkey: Server) -> None:
    """Also in several processes; and after a failed load no caller keeps waiting."""
    loader = Loader()
    with Dibs(valkey.url, budget=5) as one, Dibs(valkey.url, budget=5) as two:
        here = one.cached("menu:{name}", ttl=60, tags=["menus"])(loader.load)
        there = two.cached("menu:{name}", ttl=60, tags=["menus"])(loader.load)
        here("a")
        there("a")
        one.invalidate_tag("menus")
        loader.seconds = 0.3
        callers = [Background(each, "a") for each in (here, there) for _ in range(5)]
        assert {(caller.result())["load"] for caller in callers} == {2}


def test_a_tag_invalidated_after_a_failure_is_loaded_at_once(valkey: Server) -> None:
    """There is no new attempt for a while, but only as long as there is an old value to serve."""
    loader = Loader()
    with Dibs(valkey.url, budget=5) as dibs:
        how: dict[str, float] = {"ttl": 0.2, "stale": 60, "lock_ttl": 60}
        menu = dibs.cached("menu:{name}", tags=["menus"], **how)(loader.load)  # type: ignore[arg-type]
        menu("a")
        sleep(0.3)
        loader.error = RuntimeError("closed")
        assert (menu("a"))["load"] == 1
        eventually(lambda: valkey.client().get("lock:{menu:a}") == b"!")
        loader.error = None
        dibs.invalidate_tag("menus")
        assert (menu("a"))["load"] == 3


def test_tags_with_set_peek_and_remembered_failures(valkey: Server) -> None:
    """They are outdated like any other value."""
    loader = Loader()
    with Dibs(valkey.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60, negative_ttl=60, tags=["menus"])(loader.load)
        menu.set("a", value={"name": "a", "load": 0})
        assert (menu("a"))["load"] == 0
        dibs.invalidate_tag("menus")
        assert menu.peek("a") is None
        loader.error = RuntimeError("closed")
        with pytest.raises(RuntimeError):
            menu("a")
        loader.error = None
        dibs.invalidate_tag("menus")
        assert (menu("a"))["load"] == 2


def test_tags_on_a_cluster(start_server: StartServer) -> None:
    """Tags are in their own slots, and the promises are the same."""
    servers = start_cluster(start_server)
    url = "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in servers)
    loader = Loader()
    with Dibs(url, budget=5, on_outage="closed") as dibs:
        tags = ["city:{city}", "all"]
        menu = dibs.cached("menu:{city}:{name}", ttl=60, tags=tags)(loader.load_in)
        for name in ("a", "b", "c"):
            menu("taipei", name)
            menu("taipei", name)
        assert loader.loads == 3
        assert dibs.invalidate_tag("city:taipei")
        assert [(menu("taipei", name))["load"] for name in ("a", "b", "c")] == [4, 5, 6]


def test_a_tag_invalidated_in_an_outage_is_invalidated_later(own_server: Server) -> None:
    """False, and it is done when the store is back."""
    events: list[Event] = []
    loader = Loader()
    with Dibs(own_server.url, budget=0.5, listeners=[events.append]) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60, tags=["menus"])(loader.load)
        menu("a")
        own_server.freeze()
        assert dibs.invalidate_tag("menus") is False
        own_server.thaw()
        eventually(lambda: "recovered" in kinds(events))
        eventually(lambda: own_server.keys() == ["menu:a"])
        assert (menu("a"))["load"] == 2


def test_a_tag_from_an_argument_that_is_not_in_the_key(valkey: Server) -> None:
    """The tags of a value are those of the call that loaded it."""
    loader = Loader()
    with Dibs(valkey.url, namespace="shop:", budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60, tags=["city:{city}"])(loader.load_in)
        assert (menu("taipei", "a"))["load"] == 1
        assert (menu("taipei", "a"))["load"] == 1
        assert (menu("tainan", "a"))["load"] == 2, "its tags are others"
        assert "shop:tag:city:taipei" in valkey.keys()

        def load() -> int:
            return 1

        dibs.get_or_load("x", load, ttl=60, tags=["x:1"])
        assert "shop:tag:x:1" in valkey.keys()


def test_odd_tags_are_mistakes(valkey: Server) -> None:
    """Raised before any command."""
    with Dibs("redis://127.0.0.1:1") as dibs:
        with pytest.raises(UsageError, match="list of strings"):
            dibs.cached("menu:{name}", ttl=60, tags="menus")
        with pytest.raises(UsageError, match="non-empty"):
            dibs.cached("menu:{name}", ttl=60, tags=["", "a"])
        with pytest.raises(UsageError, match="no parameter 'x'"):
            dibs.cached("menu:{name}", ttl=60, tags=["a:{x}"])(Loader().load)
        with pytest.raises(UsageError, match="non-empty"):
            dibs.invalidate_tag("")


def test_a_failure_is_remembered_where_a_tag_took_the_old_value_away(valkey: Server) -> None:
    """There is nothing better to serve, so the loader is spared."""
    loader = Loader()
    with Dibs(valkey.url, budget=5) as dibs:
        how: Any = {"ttl": 0.2, "stale": 60, "negative_ttl": 60, "tags": ["menus"]}
        menu = dibs.cached("menu:{name}", **how)(loader.load)
        menu("a")
        sleep(0.3)
        dibs.invalidate_tag("menus")
        loader.error = RuntimeError("closed")
        with pytest.raises(RuntimeError):
            menu("a")
        with pytest.raises(Unavailable, match="RuntimeError"):
            menu("a")
        assert loader.loads == 2


def test_the_key_of_a_tag_that_is_something_else_is_a_mistake(valkey: Server) -> None:
    """A lease or another program's key is not touched, and the caller gets an error."""
    with Dibs(valkey.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60, tags=["{name}"])(Loader().load)
        client = valkey.client()
        client.set("tag:value", b"dibs1 json - 1.000 0.1\n{}", px=60_000)
        client.hset("tag:hash", "a", "b")
        client.pexpire("tag:hash", 60_000)
        with dibs.hold("tag:lease", ttl=60):
            for name in ("lease", "value", "hash"):
                with pytest.raises(UsageError, match="tag"):
                    menu(name)
                with pytest.raises(UsageError, match="tag"):
                    menu.set(name, value={})
                if name != "value":
                    with pytest.raises(UsageError, match=r"tag|type"):
                        dibs.invalidate_tag(name)
                assert 0 < client.pttl(f"tag:{name}") <= 60_050
        eventually(lambda: sorted(valkey.keys()) == ["tag:hash", "tag:value"])
