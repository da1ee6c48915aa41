# Generated from tests/behaviour/_async/test_cached_many.py by unasync.py – do not edit.
"""What `cached_many` promises: one read, one load for the items that are missing."""

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


def test_the_load_gets_the_missing_items_in_one_call(server: Server) -> None:
    """Stored values are read in one go; the function is called once, for the missing items."""
    loader = BatchLoader()
    with Dibs(server.url, budget=5) as dibs:
        menus = dibs.cached_many("menu:{name}", ttl=60)(loader.load)
        assert menus(["a", "b"]) == {"a": "a1", "b": "b1"}
        assert menus(["a", "c", "b", "d"]) == {"a": "a1", "c": "c2", "b": "b1", "d": "d2"}
        assert loader.calls == [["a", "b"], ["c", "d"]]


def test_values_are_those_of_the_same_key_elsewhere(valkey: Server) -> None:
    """One key, one value: a function for one item and a function for many share it."""
    loader, batch = Loader(), BatchLoader()
    with Dibs(valkey.url, budget=5) as dibs:
        menus = dibs.cached_many("menu:{name}", ttl=60)(batch.load)
        menu = dibs.cached("menu:{name}", ttl=60)(loader.load)
        menus(["a"])
        assert menu("a") == "a1"
        menu("b")
        assert (menus(["b"]))["b"] == {"name": "b", "load": 1}
        assert batch.calls == [["a"]]
        assert menu.invalidate("a")
        assert menus(["a"]) == {"a": "a2"}
        assert menus.invalidate(["a", "b"])
        assert valkey.keys() == []


def test_items_come_back_in_order_and_once(valkey: Server) -> None:
    """Equal items are requested once; an empty call makes no request."""
    loader = BatchLoader()
    with Dibs(valkey.url, budget=5) as dibs:
        menus = dibs.cached_many("menu:{name}", ttl=60)(loader.load)
        assert list(menus(["c", "a", "c", "b", "a"])) == ["c", "a", "b"]
        assert list(menus(["b", "a", "c"])) == ["b", "a", "c"]
        before = valkey.commands()
        assert menus([]) == {}
        assert menus(iter(["a"])) == {"a": "a1"}
        assert loader.calls == [["c", "a", "b"]]
        assert valkey.commands() - before <= 2


def test_other_arguments_are_part_of_the_key(valkey: Server) -> None:
    """One field is the item; the others are filled from the call, also in a method."""

    class Shop:
        def __init__(self, city: str) -> None:
            self.city = city

        def prices(self, items: list[str], currency: str = "TWD") -> dict[str, str]:
            return {item: f"{self.city} {item} {currency}" for item in items}

    with Dibs(valkey.url, budget=5) as dibs:
        Shop.prices = dibs.cached_many(  # type: ignore[method-assign, assignment]
            "price:{self.city}:{currency}:{item}", ttl=60
        )(Shop.prices)
        assert Shop("tainan").prices(["tea"]) == {"tea": "tainan tea TWD"}
        assert Shop("taipei").prices(items=["tea"], currency="EUR") == {
            "tea": "taipei tea EUR"
        }
        assert sorted(valkey.keys()) == ["price:tainan:TWD:tea", "price:taipei:EUR:tea"]


def test_an_item_without_a_value_is_left_out(valkey: Server) -> None:
    """It is asked for again the next time, or after `negative_ttl`; None is a value."""
    loader = BatchLoader()
    loader.sold_out = {"b"}
    with Dibs(valkey.url, budget=5) as dibs:
        menus = dibs.cached_many("menu:{name}", ttl=60)(loader.load)
        spared = dibs.cached_many("spared:{name}", ttl=60, negative_ttl=60)(loader.load)
        for _ in range(2):
            assert menus(["a", "b"]) == {"a": "a1"}
        assert loader.calls == [["a", "b"], ["b"]]
        for _ in range(2):
            assert spared(["a", "b"]) == {"a": "a3"}
        assert loader.calls == [["a", "b"], ["b"], ["a", "b"]]
        eventually(lambda: "lock:{menu:b}" not in valkey.keys())

        def nothing(names: list[str]) -> dict[str, None]:
            return dict.fromkeys(names)

        assert dibs.cached_many("n:{name}", ttl=60)(nothing)(["a"]) == {"a": None}


def test_a_load_of_many_that_fails_is_the_error_of_all(valkey: Server) -> None:
    """What was there before is not the answer; no lock is left; the next call tries again."""
    loader = BatchLoader()
    with Dibs(valkey.url, budget=5) as dibs:
        menus = dibs.cached_many("menu:{name}", ttl=60)(loader.load)
        menus(["a"])
        loader.error = RuntimeError("closed")
        with pytest.raises(RuntimeError, match="closed"):
            menus(["a", "b", "c"])
        eventually(lambda: valkey.keys() == ["menu:a"])
        loader.error = None
        assert menus(["a", "b", "c"]) == {"a": "a1", "b": "b3", "c": "c3"}


def test_many_values_that_failed_are_remembered_as_failed(valkey: Server) -> None:
    """negative_ttl: the next call gets the error, without a load."""
    loader = BatchLoader()
    loader.error = RuntimeError("closed")
    with Dibs(valkey.url, budget=5) as dibs:
        menus = dibs.cached_many("menu:{name}", ttl=60, negative_ttl=60)(loader.load)
        with pytest.raises(RuntimeError):
            menus(["a", "b"])
        with pytest.raises(Unavailable, match="RuntimeError"):
            menus(["b", "c"])
        assert len(loader.calls) == 2, "c was not there; b was not asked for again"
        assert loader.calls[1] == ["c"]


def test_an_error_of_the_loader_is_not_taken_for_a_missing_item(valkey: Server) -> None:
    """For any name of its class: a remembered failure is raised, not left out."""
    loader = BatchLoader()
    loader.error = type("Absent", (Exception,), {})("closed")
    with Dibs(valkey.url, budget=5) as dibs:
        menus = dibs.cached_many("menu:{name}", ttl=60, negative_ttl=60)(loader.load)
        with pytest.raises(Exception, match="closed"):
            menus(["a"])
        with pytest.raises(Unavailable, match="Absent"):
            menus(["a"])


@pytest.mark.parametrize("kind", [KeyError, LookupError, Exception])
def test_a_missing_item_is_remembered_as_a_key_error(
    valkey: Server, kind: type[Exception]
) -> None:
    """A reader of that item alone gets a plain Unavailable, of which KeyError is the failure."""
    loader, batch = Loader(), BatchLoader()
    batch.sold_out = {"b"}
    with Dibs(valkey.url, budget=5) as dibs:
        menus = dibs.cached_many("menu:{name}", ttl=60, negative_ttl={kind: 60})(batch.load)
        menu = dibs.cached("menu:{name}", ttl=60)(loader.load)
        for _ in range(2):
            assert menus(["a", "b"]) == {"a": "a1"}
        assert batch.calls == [["a", "b"]]
        with pytest.raises(Unavailable) as failed:
            menu("b")
        assert type(failed.value) is Unavailable
        assert (failed.value.failure, loader.loads) == ("KeyError", 0)


def test_a_failure_of_one_item_is_the_error_of_the_call(valkey: Server) -> None:
    """A result without it would say that it does not exist; the others are stored."""
    loader, batch = Loader(), BatchLoader()
    loader.error = RuntimeError("closed")
    with Dibs(valkey.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60, negative_ttl=60)(loader.load)
        menus = dibs.cached_many("menu:{name}", ttl=60)(batch.load)
        with pytest.raises(RuntimeError):
            menu("b")
        with pytest.raises(Unavailable) as failed:
            menus(["a", "b", "c"])
        assert failed.value.failure == "RuntimeError"
        assert menus(["a", "c"]) == {"a": "a1", "c": "c1"}
        assert batch.calls == [["a", "c"]]


def test_who_joins_a_load_of_many_that_returns_nothing_gets_a_plain_error(
    valkey: Server,
) -> None:
    """Unavailable, as for a failure that is remembered (which a late thread meets)."""
    loader, batch = Loader(), BatchLoader()
    batch.sold_out, batch.is_busy = {"b"}, True
    with Dibs(valkey.url, budget=5) as dibs:
        menus = dibs.cached_many("menu:{name}", ttl=60, negative_ttl=60)(batch.load)
        menu = dibs.cached("menu:{name}", ttl=60)(loader.load)
        many = Background(menus, ["a", "b"])
        eventually(lambda: batch.calls == [["a", "b"]])
        one = Background(menu, "b")
        sleep(0.1)
        batch.is_busy = False
        assert many.result() == {"a": "a1"}
        with pytest.raises(Unavailable) as failed:
            one.result()
        assert type(failed.value) is Unavailable
        assert (failed.value.failure, loader.loads) == ("KeyError", 0)


def test_a_loader_that_meets_a_missing_item_has_failed(valkey: Server) -> None:
    """The loader of many asks for another value, of which there is none: an error, no gap."""
    batch = BatchLoader()
    batch.sold_out = {"b"}
    with Dibs(valkey.url, budget=5) as dibs:
        menus = dibs.cached_many("menu:{name}", ttl=60, negative_ttl=60)(batch.load)
        menu = dibs.cached("menu:{name}", ttl=60)(Loader().load)

        def dishes(names: list[str]) -> dict[str, str]:
            return {name: str(menu(name)) for name in names}

        assert menus(["b"]) == {}
        with pytest.raises(Unavailable):
            dibs.cached_many("dish:{name}", ttl=60)(dishes)(["b"])


def test_what_cannot_be_kept_does_not_affect_other_keys(valkey: Server) -> None:
    """One value that JSON cannot hold is a UsageError; the others are stored all the same."""

    def load(names: list[str]) -> dict[str, Any]:
        return {name: {1, 2} if name == "b" else name for name in names}

    with Dibs(valkey.url, budget=5) as dibs:
        menus = dibs.cached_many("menu:{name}", ttl=60)(load)
        with pytest.raises(UsageError, match="type= or codec="):
            menus(["a", "b", "c"])
        eventually(lambda: sorted(valkey.keys()) == ["menu:a", "menu:c"])


def test_a_key_that_another_process_loads_is_waited_for(server: Server) -> None:
    """Each key is loaded once, for callers of one key and of many."""
    slow, loader = BatchLoader(0.5), BatchLoader()
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        there = one.cached_many("menu:{name}", ttl=60)(slow.load)
        here = two.cached_many("menu:{name}", ttl=60)(loader.load)
        first = Background(there, ["a", "b"])
        eventually(lambda: slow.calls == [["a", "b"]])
        assert here(["b", "c"]) == {"b": "b1", "c": "c1"}
        assert loader.calls == [["c"]]
        assert first.result() == {"a": "a1", "b": "b1"}


def test_callers_in_one_process_share_a_load_of_many(valkey: Server) -> None:
    """Overlapping lists, and single calls: each key is loaded once."""
    batch, loader = BatchLoader(0.4), Loader()
    with Dibs(valkey.url, budget=5) as dibs:
        menus = dibs.cached_many("menu:{name}", ttl=60)(batch.load)
        menu = dibs.cached("menu:{name}", ttl=60)(loader.load)
        first = Background(menus, ["a", "b"])
        eventually(lambda: batch.calls == [["a", "b"]])
        alone, second = Background(menu, "a"), Background(menus, ["b", "c"])
        assert first.result() == {"a": "a1", "b": "b1"}
        assert alone.result() == "a1"
        assert second.result() == {"b": "b1", "c": "c2"}
        assert loader.loads == 0
        assert batch.calls == [["a", "b"], ["c"]]


def test_whoever_loads_one_of_many_may_die(valkey: Server) -> None:
    """Its lock runs out; then one of those who wait loads that one, alone."""
    loader = BatchLoader()
    client = valkey.client()
    client.set("menu:a", b"dibs1 ~ dead", px=60_000)
    client.set("lock:{menu:a}", b"dead", px=60_000)
    with Dibs(valkey.url, budget=5) as dibs:
        menus = dibs.cached_many("menu:{name}", ttl=60, wait=60)(loader.load)
        both = Background(menus, ["a", "b"])
        eventually(lambda: loader.calls == [["b"]])
        client.pexpire("lock:{menu:a}", 1)
        assert both.result() == {"a": "a2", "b": "b1"}
        assert loader.calls == [["b"], ["a"]]


@pytest.mark.parametrize("how", ["invalidate", "DEL"])
def test_one_of_many_that_is_deleted_during_the_load_is_not_stored(
    valkey: Server, how: str
) -> None:
    """Who began the load gets its result; who comes later gets fresh data; the others are kept."""
    events: list[Event] = []
    loader = BatchLoader()
    loader.is_busy = True
    with Dibs(valkey.url, budget=5, listeners=[events.append]) as dibs:
        menus = dibs.cached_many("menu:{name}", ttl=60)(loader.load)
        first = Background(menus, ["a", "b"])
        eventually(lambda: len(loader.calls) == 1)
        if how == "invalidate":
            menus.invalidate(["a"])
        else:
            valkey.client().delete("menu:a")
            sleep(0.1)
        later = Background(menus, ["a", "b"])
        loader.is_busy = False
        assert first.result() == {"a": "a1", "b": "b1"}
        assert later.result() == {"a": "a2", "b": "b1"}
        assert menus(["a", "b"]) == {"a": "a2", "b": "b1"}
        assert kinds(events).count("rejected_write") == 1


def test_stale_values_of_many_are_refreshed_by_one_load(valkey: Server) -> None:
    """Served at once; loaded again behind the caller, all of them in one call."""
    loader = BatchLoader()
    with Dibs(valkey.url, budget=5) as dibs:
        menus = dibs.cached_many("menu:{name}", ttl=0.2, stale=60)(loader.load)
        menus(["a", "b"])
        sleep(0.3)
        assert menus(["a", "b"]) == {"a": "a1", "b": "b1"}
        eventually(lambda: len(loader.calls) == 2)
        assert loader.calls[1] == ["a", "b"]

        def is_fresh() -> bool:
            return (menus(["a"]))["a"] != "a1"

        eventually(is_fresh)


def test_many_values_in_memory_cost_no_command(server: Server) -> None:
    """local=True: remembered after one read, and forgotten when one of them changes."""
    events: list[Event] = []
    loader = BatchLoader()
    with Dibs(server.url, budget=5, listeners=[events.append]) as dibs:
        menus = dibs.cached_many("menu:{name}", ttl=60, local=True)(loader.load)
        menus(["a", "b", "c"])

        def is_remembered() -> bool:
            events.clear()
            menus(["a", "b", "c"])
            return kinds(events) == ["local_hit"] * 3

        eventually(is_remembered)
        before = server.commands()
        menus(["a", "b", "c"])
        assert server.commands() == before
        server.client().delete("menu:b")

        def sees_the_change() -> bool:
            return menus(["a", "b", "c"]) == {"a": "a1", "b": "b2", "c": "c1"}

        eventually(sees_the_change)
        assert loader.calls == [["a", "b", "c"], ["b"]]


def test_many_values_in_an_outage_are_loaded_by_one_call(own_server: Server) -> None:
    """The policy: directly, in one call, and nothing is stored; or Unavailable."""
    events: list[Event] = []
    loader = BatchLoader()
    with Dibs(own_server.url, budget=0.5, listeners=[events.append]) as dibs:
        menus = dibs.cached_many("menu:{name}", ttl=60)(loader.load)
        closed = dibs.cached_many("menu:{name}", ttl=60, on_outage="closed")(loader.load)
        menus(["a"])
        own_server.freeze()
        assert menus(["a", "b"]) == {"a": "a2", "b": "b2"}
        assert loader.calls == [["a"], ["a", "b"]]
        with pytest.raises(Unavailable):
            closed(["a", "b"])
        assert "degraded" in kinds(events)
        own_server.thaw()
        eventually(lambda: "recovered" in kinds(events))
        eventually(lambda: own_server.keys() == ["menu:a"])


def test_a_key_of_many_that_is_held_is_a_mistake(valkey: Server) -> None:
    """A lease is not touched, and the other keys are not left locked."""
    loader = BatchLoader()
    with Dibs(valkey.url, budget=5) as dibs:
        menus = dibs.cached_many("menu:{name}", ttl=60)(loader.load)
        with dibs.hold("menu:b", ttl=60):
            with pytest.raises(UsageError, match="lease"):
                menus(["a", "b"])
            assert "lock:{menu:b}" not in valkey.keys()
        assert menus(["a", "b"]) == {"a": "a1", "b": "b2"}


def test_a_load_of_many_that_asks_for_itself_is_a_mistake(valkey: Server) -> None:
    """A deadlock is an error at once, alone or among many."""
    with Dibs(valkey.url, budget=5) as dibs:

        def load(names: list[str]) -> dict[str, Any]:
            return menus([*names, "b"])

        menus = dibs.cached_many("menu:{name}", ttl=60)(load)
        with pytest.raises(UsageError, match="deadlock"):
            menus(["a"])


def test_many_values_on_a_cluster(start_server: StartServer) -> None:
    """Keys in all slots: one write to each node, and the same promises."""
    servers = start_cluster(start_server)
    url = "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in servers)
    loader = BatchLoader()
    names = [str(number) for number in range(30)]
    with Dibs(url, budget=5, on_outage="closed") as dibs:
        menus = dibs.cached_many("menu:{name}", ttl=60, stale=60)(loader.load)
        expected = {name: f"{name}1" for name in names}
        assert menus(names[:20]) == dict(list(expected.items())[:20])
        found = menus(names)
        assert found == {name: f"{name}{1 if int(name) < 20 else 2}" for name in names}
        assert loader.calls == [names[:20], names[20:]]
        assert all(len(server.keys()) > 3 for server in servers)


@pytest.mark.parametrize(
    ("template", "said"),
    [("menu:{names}", "one item"), ("menu", "exactly one"), ("menu:{a}:{b}", "exactly one")],
)
def test_a_template_of_many_needs_one_field_for_the_item(template: str, said: str) -> None:
    """An error when the function is decorated."""
    with Dibs("redis://127.0.0.1:1") as dibs:
        with pytest.raises(UsageError, match=said):
            dibs.cached_many(template, ttl=60)(BatchLoader().load)


def test_what_is_no_list_or_no_dict_is_a_mistake(valkey: Server) -> None:
    """A string is not a list of items; a list is not a dict of values."""

    def load(names: list[str]) -> Any:
        return names

    with Dibs(valkey.url, budget=5) as dibs:
        menus = dibs.cached_many("menu:{name}", ttl=60)(load)
        with pytest.raises(UsageError, match="list of items"):
            menus("abc")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="dict"):
            menus(["a"])
        eventually(lambda: valkey.keys() == [])


def test_a_load_of_many_may_change_its_list(valkey: Server) -> None:
    """The list is the function's own: each value is stored for its item all the same."""

    def load(names: list[str]) -> dict[str, str]:
        names.sort()
        found = {name: f"menu of {name}" for name in names}
        names.pop()
        return found

    with Dibs(valkey.url, budget=5) as dibs:
        menus = dibs.cached_many("menu:{name}", ttl=60)(load)
        expected = {name: f"menu of {name}" for name in ("c", "a", "b")}
        assert menus(["c", "a", "b"]) == expected
        assert menus(["c", "a", "b"]) == expected
    with Dibs("redis://127.0.0.1:1") as out:
        assert out.cached_many("menu:{name}", ttl=60)(load)(["c", "a", "b"]) == expected


def test_bytes_that_somebody_else_replaces_are_waited_for(valkey: Server) -> None:
    """One of many cannot be read, and another process loads it: no question after the other."""
    loader, batch = Loader(), BatchLoader()
    with Dibs(valkey.url, budget=5) as one, Dibs(valkey.url, budget=5) as two:
        menu = one.cached("menu:{name}", ttl=60, lock_ttl=60)(loader.load)
        menus = two.cached_many("menu:{name}", ttl=60, wait=60)(batch.load)
        valkey.client().set("menu:a", b"what is this?", ex=3600)
        loader.busy = True
        first = Background(menu, "a")
        eventually(lambda: loader.loads == 1)
        other = Background(menus, ["a", "b"])
        eventually(lambda: batch.calls == [["b"]])
        before = valkey.commands()
        sleep(0.3)  # longer on a busy machine; one question after the other is thousands
        assert valkey.commands() - before < 200
        loader.busy = False
        assert (first.result())["load"] == 1
        assert other.result() == {"a": {"name": "a", "load": 1}, "b": "b1"}


@pytest.mark.parametrize("policy", ["open", "closed"])
def test_many_values_invalidated_in_an_outage_are_all_deleted_later(
    own_server: Server, policy: Any
) -> None:
    """Also where the first one raises."""
    loader = BatchLoader()
    with Dibs(own_server.url, budget=0.5, on_outage=policy) as dibs:
        menus = dibs.cached_many("menu:{name}", ttl=60)(loader.load)
        menus(["a", "b", "c"])
        own_server.freeze()
        if policy == "closed":
            with pytest.raises(Unavailable):
                menus.invalidate(["a", "b", "c"])
        else:
            assert menus.invalidate(["a", "b", "c"]) is False
        own_server.thaw()
        eventually(lambda: own_server.keys() == [])


def test_one_of_many_that_cannot_be_invalidated_leaves_the_others_deleted(
    valkey: Server,
) -> None:
    """A lease is not touched; the error comes after the others were deleted."""
    with Dibs(valkey.url, budget=5) as dibs:
        menus = dibs.cached_many("menu:{name}", ttl=60)(BatchLoader().load)
        menus(["b", "c"])
        with dibs.hold("menu:a", ttl=60):
            with pytest.raises(UsageError, match="lease"):
                menus.invalidate(["a", "b", "c"])
            assert valkey.keys() == ["menu:a"]


@pytest.mark.parametrize("resp", [2, 3])
def test_an_old_value_that_was_deleted_is_not_served_to_those_who_come_later(
    start_server: StartServer, resp: int
) -> None:
    """The load of many fails: only callers from before the delete get the old value."""
    config = ("--rename-command", "HELLO", "") if resp == 2 else ()
    url, loader = start_server("valkey", config=config).url, BatchLoader()
    with Dibs(url, budget=5) as dibs, Dibs(url, budget=5) as other:
        menus = dibs.cached_many("menu:{name}", ttl=0.2, stale=60, stale_after=None)(loader.load)
        menus(["a"])
        sleep(0.3)
        loader.error, loader.is_busy = RuntimeError("closed"), True
        first = Background(menus, ["a"])
        eventually(lambda: len(loader.calls) == 2)
        other.invalidate("menu:a")
        later = Background(menus, ["a"])
        sleep(0.1)
        loader.is_busy = False
        assert first.result() == {"a": "a1"}
        with pytest.raises(RuntimeError, match="closed"):
            later.result()


def test_a_script_is_sent_once_for_many_items(valkey: Server) -> None:
    """A server that has forgotten the scripts gets each of them once, not with every item."""
    client, names = valkey.client(), [str(number) for number in range(50)]
    with Dibs(valkey.url, budget=5) as dibs:
        menus = dibs.cached_many("menu:{name}", ttl=60)(BatchLoader().load)
        menus(names)
        known = _bytes_for(menus, names, client)
        client.script_flush()
        # The requests again, and each script; with every item it would be four times as much.
        assert _bytes_for(menus, names, client) < 2.5 * known


def _bytes_for(menus: Any, names: list[str], client: Any) -> int:
    """How many bytes the server receives for a load of all of them."""
    menus.invalidate(names)
    before = client.info("stats")["total_net_input_bytes"]
    menus(names)
    return client.info("stats")["total_net_input_bytes"] - before
