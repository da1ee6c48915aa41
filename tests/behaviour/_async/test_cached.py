"""What `cached` promises, on every engine."""

import time
from dataclasses import dataclass
from typing import Any

import pytest

from dibs import AsyncDibs, Event, Unavailable, UsageError
from dibs.testing import Server

from .._tasks import Beside, eventually, sleep


@dataclass
class Dish:
    name: str
    price: int


class Kitchen:
    """A slow loader that counts."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.loads = 0
        self.seconds = seconds
        self.error: Exception | None = None

    async def cook(self, name: str) -> dict[str, Any]:
        self.loads += 1
        mine = self.loads
        await sleep(self.seconds)
        if self.error is not None:
            raise self.error
        return {"name": name, "load": mine}


def kinds(events: list[Event]) -> list[str]:
    return [event.kind for event in events]


async def test_a_hit_costs_one_command_and_no_load(server: Server) -> None:
    """Loaded once; from then on one GET a call."""
    kitchen = Kitchen()
    async with AsyncDibs(server.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60)(kitchen.cook)
        assert await menu("a") == {"name": "a", "load": 1}
        before = server.commands()
        for _ in range(5):
            assert await menu("a") == {"name": "a", "load": 1}
        assert server.commands("get") and server.commands() - before == 5
        assert await menu("b") == {"name": "b", "load": 2}
        assert sorted(server.keys()) == ["menu:a", "menu:b"]


async def test_a_value_is_found_by_other_processes(server: Server) -> None:
    """Another Dibs reads what the first one loaded."""
    one, two = Kitchen(), Kitchen()
    async with AsyncDibs(server.url, budget=5) as here, AsyncDibs(server.url, budget=5) as there:
        assert await here.cached("menu:{name}", ttl=60)(one.cook)("a")
        assert await there.cached("menu:{name}", ttl=60)(two.cook)("a") == {"name": "a", "load": 1}
        assert two.loads == 0


async def test_many_callers_one_load(server: Server) -> None:
    """Two processes, forty callers, one cold key: one load, and everybody has it."""
    kitchen = Kitchen(0.3)
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        menus = [dibs.cached("menu:{name}", ttl=60)(kitchen.cook) for dibs in (one, two)]
        callers = [Beside(menus[number % 2], "a") for number in range(40)]
        assert [await caller.result() for caller in callers] == [{"name": "a", "load": 1}] * 40
        assert kitchen.loads == 1


async def test_a_load_longer_than_its_lock_is_still_one(server: Server) -> None:
    """The leader is slower than lock_ttl: its lock is kept alive."""
    kitchen = Kitchen(1.5)
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        menus = [
            dibs.cached("menu:{name}", ttl=60, lock_ttl=0.5)(kitchen.cook) for dibs in (one, two)
        ]
        callers = [Beside(menus[number % 2], "a") for number in range(6)]
        for caller in callers:
            assert await caller.result() == {"name": "a", "load": 1}
        assert kitchen.loads == 1


async def test_a_value_expires(server: Server) -> None:
    """After its ttl it is loaded again."""
    kitchen = Kitchen()
    async with AsyncDibs(server.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=0.2)(kitchen.cook)
        assert (await menu("a"))["load"] == 1
        await sleep(0.3)
        assert (await menu("a"))["load"] == 2


async def test_jitter_and_its_floor(server: Server) -> None:
    """ttl ± jitter on every write, never below min_ttl."""
    kitchen = Kitchen()
    async with AsyncDibs(server.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=180, jitter=0.2)(kitchen.cook)
        low = dibs.cached("low:{name}", ttl=10, jitter=0.2, min_ttl=60)(kitchen.cook)
        lives: list[int] = []
        for number in range(30):
            await menu(str(number))
            lives.append(server.client().pttl(f"menu:{number}"))
        assert all(143_000 < life <= 216_000 for life in lives)
        assert max(lives) - min(lives) > 10_000
        await low("a")
        assert 59_000 < server.client().pttl("low:a") <= 60_000


async def test_invalidate_makes_later_readers_load(server: Server) -> None:
    """invalidate(): gone for all processes."""
    kitchen = Kitchen()
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        here = one.cached("menu:{name}", ttl=60)(kitchen.cook)
        there = two.cached("menu:{name}", ttl=60)(kitchen.cook)
        assert (await here("a"))["load"] == (await there("a"))["load"] == 1
        assert await here.invalidate("a") is True
        assert (await there("a"))["load"] == 2
        assert (await here("a"))["load"] == 2


@pytest.mark.parametrize("how", ["invalidate here", "invalidate there", "DEL by anybody"])
async def test_what_was_loaded_before_a_delete_is_not_stored(server: Server, how: str) -> None:
    """Deleted during the load: those who asked before get it, later readers get fresh data."""
    events: list[Event] = []
    kitchen = Kitchen(0.4)
    async with (
        AsyncDibs(server.url, budget=5, listeners=[events.append]) as one,
        AsyncDibs(server.url, budget=5) as two,
    ):
        here = one.cached("menu:{name}", ttl=60)(kitchen.cook)
        there = two.cached("menu:{name}", ttl=60)(kitchen.cook)
        early = Beside(here, "a")
        await eventually(lambda: kitchen.loads == 1)
        if how == "invalidate here":
            await here.invalidate("a")
        elif how == "invalidate there":
            await there.invalidate("a")
        else:
            server.client().delete("menu:a")
        await sleep(0.1)
        late = [Beside(here, "a"), Beside(there, "a")]
        assert (await early.result())["load"] == 1
        for reader in late:
            assert (await reader.result())["load"] == 2
        assert (await here("a"))["load"] == 2
        assert "rejected_write" in kinds(events)
        assert kitchen.loads == 2


async def test_refresh_loads_now(server: Server) -> None:
    """refresh(): a new load, and everybody reads the old value meanwhile."""
    kitchen = Kitchen()
    async with AsyncDibs(server.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60)(kitchen.cook)
        assert (await menu("a"))["load"] == 1
        kitchen.seconds = 0.4
        refreshing = Beside(menu.refresh, "a")
        await eventually(lambda: kitchen.loads == 2)
        async with AsyncDibs(server.url, budget=5) as other:
            reader = other.cached("menu:{name}", ttl=60)(kitchen.cook)
            assert (await reader("a"))["load"] == 1
        assert (await refreshing.result())["load"] == 2
        assert (await menu("a"))["load"] == 2


async def test_stale_is_served_while_one_refreshes(server: Server) -> None:
    """Past its ttl, within stale: the old value at once; one load behind it."""
    events: list[Event] = []
    kitchen = Kitchen()
    async with AsyncDibs(server.url, budget=5, listeners=[events.append]) as dibs:
        menu = dibs.cached("menu:{name}", ttl=0.3, stale=30)(kitchen.cook)
        assert (await menu("a"))["load"] == 1
        await sleep(0.4)
        kitchen.seconds = 1.5
        since = time.monotonic()
        for _ in range(5):
            assert (await menu("a"))["load"] == 1
        assert time.monotonic() - since < 1.5
        await eventually(lambda: kitchen.loads == 2)

        async def is_new() -> bool:
            return (await menu("a"))["load"] >= 2

        await eventually(is_new)
        assert "stale" in kinds(events)


async def test_stale_is_served_while_loads_fail(server: Server) -> None:
    """stale-if-error: the loader fails, the old value is served on."""
    kitchen = Kitchen()
    async with AsyncDibs(server.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=0.1, stale=30)(kitchen.cook)
        assert (await menu("a"))["load"] == 1
        kitchen.error = RuntimeError("kitchen closed")
        await sleep(0.2)
        for _ in range(5):
            assert (await menu("a"))["load"] == 1
            await sleep(0.02)
        assert kitchen.loads > 1


async def test_early_refresh(server: Server) -> None:
    """early: refreshed before the end, behind the readers; nobody waits for it."""
    kitchen = Kitchen(0.05)
    async with AsyncDibs(server.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=1.0, early=10)(kitchen.cook)
        await menu("a")
        deadline = time.monotonic() + 0.9
        while kitchen.loads < 2 and time.monotonic() < deadline:
            await menu("a")
            await sleep(0.01)
        assert kitchen.loads >= 2, "with early=10 and a load of 50 ms it is all but certain"


async def test_a_failed_load_is_everybodys_error_and_nobodys_value(server: Server) -> None:
    """The loader raises: that exception reaches all who wait here; the next call loads again."""
    kitchen = Kitchen(0.2)
    kitchen.error = RuntimeError("kitchen closed")
    async with AsyncDibs(server.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60)(kitchen.cook)
        callers = [Beside(menu, "a") for _ in range(5)]
        for caller in callers:
            with pytest.raises(RuntimeError, match="kitchen closed"):
                await caller.result()
        assert kitchen.loads == 1
        await eventually(lambda: server.keys() == [])
        kitchen.error = None
        assert (await menu("a"))["load"] == 2


async def test_a_failure_may_be_remembered(server: Server) -> None:
    """negative_ttl: no further load until it is over; others are told that it failed."""
    kitchen = Kitchen()
    kitchen.error = RuntimeError("kitchen closed")
    async with AsyncDibs(server.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60, negative_ttl=0.5)(kitchen.cook)
        with pytest.raises(RuntimeError):
            await menu("a")
        with pytest.raises(Unavailable, match="RuntimeError"):
            await menu("a")
        assert kitchen.loads == 1
        kitchen.error = None
        await sleep(0.6)
        assert (await menu("a"))["load"] == 2


async def test_none_is_a_value(server: Server) -> None:
    """A loader that returns None is not asked again."""
    loads = 0

    async def find(name: str) -> None:
        nonlocal loads
        loads += 1

    async with AsyncDibs(server.url, budget=5) as dibs:
        cached = dibs.cached("user:{name}", ttl=60)(find)
        for _ in range(3):
            assert await cached("nobody") is None
        assert loads == 1


@pytest.mark.parametrize(
    "junk",
    [b"", b"junk", b'{"name":"a"}', b"\x80\x04K\x01.", b"dibs0 json - 1 1\n{}",
     b"dibs1 json - 1 1\n{", b"dibs1 json - x y\n{}", b"dibs1 pickle - 1 1\nx",
     b"dibs1 json deadbeef 1 1\n{}"],
)  # fmt: skip
async def test_bytes_that_cannot_be_read_are_a_counted_miss(valkey: Server, junk: bytes) -> None:
    """Old versions, other codecs, other schemas, foreign bytes: a miss, a `poison` event."""
    events: list[Event] = []
    kitchen = Kitchen()
    async with AsyncDibs(valkey.url, budget=5, listeners=[events.append]) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60)(kitchen.cook)
        valkey.client().set("menu:a", junk, ex=60)
        assert (await menu("a"))["load"] == 1
        assert (await menu("a"))["load"] == 1
        assert "poison" in kinds(events)


async def test_a_key_of_another_type_is_a_mistake(valkey: Server) -> None:
    """The key holds a list: a UsageError that says so."""
    valkey.client().rpush("menu:a", "x")
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        with pytest.raises(UsageError, match="another type"):
            await dibs.cached("menu:{name}", ttl=60)(Kitchen().cook)("a")


async def test_types_come_back_as_they_went(valkey: Server) -> None:
    """The return annotation, or type=: dataclasses go in and come out."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:

        @dibs.cached("dishes:{name}", ttl=60)
        async def dishes(name: str) -> list[Dish]:
            return [Dish(name, 120)]

        assert await dishes("noodles") == [Dish("noodles", 120)]
        assert await dishes("noodles") == [Dish("noodles", 120)]
        raw = valkey.client().get("dishes:noodles")
        assert isinstance(raw, bytes) and b'[{"name":"noodles","price":120}]' in raw


async def test_get_or_load(server: Server) -> None:
    """Without a decorator: a key, a loader, a ttl."""
    kitchen = Kitchen()

    async def load() -> dict[str, Any]:
        return await kitchen.cook("a")

    async with AsyncDibs(server.url, budget=5) as dibs:
        for _ in range(3):
            assert (await dibs.get_or_load("menu:a", load, ttl=60))["load"] == 1


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


async def test_an_outage_loads_directly(own_server: Server) -> None:
    """The store is out: the loader is asked, one at a time for each key; nothing is stored."""
    events: list[Event] = []
    kitchen = Kitchen(0.3)
    async with AsyncDibs(own_server.url, budget=0.5, listeners=[events.append]) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60, local=True)(kitchen.cook)
        await menu("a")
        own_server.freeze()
        since = time.monotonic()
        callers = [Beside(menu, "b") for _ in range(10)]
        for caller in callers:
            assert (await caller.result())["name"] == "b"
        assert time.monotonic() - since < 10 * 0.3, "ten callers do not load one after the other"
        assert kitchen.loads == 2
        assert "degraded" in kinds(events) and "outage" in kinds(events)
        own_server.thaw()
        await eventually(lambda: "recovered" in kinds(events))
        closed = dibs.cached("other:{name}", ttl=60, on_outage="closed")(kitchen.cook)
        assert await closed("c")
        own_server.freeze()
        with pytest.raises(Unavailable):
            await closed("d")
        own_server.thaw()


async def test_invalidated_during_an_outage_is_deleted_later(own_server: Server) -> None:
    """The store is out: False, and it is deleted when the store is back."""
    events: list[Event] = []
    async with AsyncDibs(own_server.url, budget=0.5, listeners=[events.append]) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60)(Kitchen().cook)
        await menu("a")
        own_server.freeze()
        assert await menu.invalidate("a") is False
        own_server.thaw()
        await eventually(lambda: "recovered" in kinds(events))
        await eventually(lambda: own_server.keys() == [])


async def test_a_followers_patience_ends(server: Server) -> None:
    """wait: the follower loads for itself, one for its process, and does not store."""
    slow, quick = Kitchen(1.5), Kitchen()
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        leader = Beside(one.cached("menu:{name}", ttl=60)(slow.cook), "a")
        await eventually(lambda: slow.loads == 1)
        follower = two.cached("menu:{name}", ttl=60, wait=0.3)(quick.cook)
        callers = [Beside(follower, "a") for _ in range(5)]
        since = time.monotonic()
        for caller in callers:
            assert (await caller.result())["load"] == 1
        assert time.monotonic() - since < 1.2
        assert quick.loads == 1
        await leader.result()
        assert slow.loads == 1


async def test_methods_can_be_cached(valkey: Server) -> None:
    """`self` is an argument like any other."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:

        class Store:
            def __init__(self, city: str) -> None:
                self.city = city
                self.loads = 0

            @dibs.cached("store:{self.city}:{item}", ttl=60)
            async def find(self, item: str) -> str:
                self.loads += 1
                return f"{item} in {self.city}"

        taipei, tainan = Store("taipei"), Store("tainan")
        for _ in range(2):
            assert await taipei.find("tea") == "tea in taipei"
            assert await tainan.find("tea") == "tea in tainan"
        assert (taipei.loads, tainan.loads) == (1, 1)
        assert await taipei.find.invalidate("tea")
        assert await taipei.find("tea") and taipei.loads == 2


async def test_mistakes_are_told_when_decorating() -> None:
    """Options that make no sense: UsageError before any call."""
    async with AsyncDibs("redis://127.0.0.1:1") as dibs:
        for options in (
            {"ttl": 0},
            {"ttl": 60, "jitter": 1},
            {"ttl": 60, "jitter": -0.1},
            {"ttl": 60, "early": -1},
            {"ttl": 60, "lock_ttl": 0},
            {"ttl": 60, "stale": -1},
            {"ttl": 60, "codec": "yaml"},
            {"ttl": 60, "codec": "json+brotli"},
            {"ttl": 60, "codec": object()},
            {"ttl": 60, "on_outage": "maybe"},
        ):
            with pytest.raises(UsageError):
                dibs.cached("menu:{name}", **options)  # type: ignore[arg-type]
        with pytest.raises(UsageError):
            dibs.cached("menu:{nobody}", ttl=60)(Kitchen().cook)


async def test_a_value_that_cannot_be_written_is_a_mistake(valkey: Server) -> None:
    """A set is not JSON: a UsageError that names the fix, and nothing is left behind."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:

        async def load() -> Any:
            return {1, 2}

        with pytest.raises(UsageError, match="type= or codec="):
            await dibs.get_or_load("menu:a", load, ttl=60)
        await eventually(lambda: valkey.keys() == [])


@pytest.mark.parametrize("codec", ["pickle", "json+zlib", "pickle+zlib"])
async def test_other_codecs_by_name(valkey: Server, codec: str) -> None:
    """Pickle only where asked for by name; compression where asked for."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        value = {"a": [1, 2.5, None, "ü" * 500]}

        async def load() -> Any:
            return value

        for _ in range(2):
            assert await dibs.get_or_load("menu:a", load, ttl=60, codec=codec) == value


async def test_a_refresh_and_readers_do_not_mix(server: Server) -> None:
    """Readers here read the old value during a refresh; a refresh never returns an old one."""
    kitchen = Kitchen()
    async with AsyncDibs(server.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60)(kitchen.cook)
        assert (await menu("a"))["load"] == 1
        kitchen.seconds = 0.5
        refreshing = Beside(menu.refresh, "a")
        await eventually(lambda: kitchen.loads == 2)
        since = time.monotonic()
        assert (await menu("a"))["load"] == 1
        assert time.monotonic() - since < 0.4
        assert (await refreshing.result())["load"] == 2
    async with AsyncDibs(server.url, budget=5) as fresh:
        menu = fresh.cached("menu:{name}", ttl=60)(kitchen.cook)
        reader, refreshing = Beside(menu, "a"), Beside(menu.refresh, "a")
        assert (await refreshing.result())["load"] == 3
        assert (await reader.result())["load"] in (2, 3)


async def test_a_failing_loader_is_not_asked_for_every_stale_read(server: Server) -> None:
    """Stale, and every refresh fails at once: one try in a lock's time, not one a read."""
    events: list[Event] = []
    kitchen = Kitchen()
    async with AsyncDibs(server.url, budget=5, listeners=[events.append]) as dibs:
        menu = dibs.cached("menu:{name}", ttl=0.1, stale=30, lock_ttl=2)(kitchen.cook)
        await menu("a")
        await sleep(0.2)
        kitchen.error = RuntimeError("kitchen closed")
        since = time.monotonic()
        for _ in range(50):
            assert (await menu("a"))["load"] == 1
            await sleep(0.01)
        assert kitchen.loads <= 3 + (time.monotonic() - since) // 2
        causes = [(event.cause, event.detail) for event in events if event.kind == "degraded"]
        assert causes[:1] == [("load_failed", "the load failed: RuntimeError")]


async def test_a_remembered_failure_ends_in_time_also_with_stale(server: Server) -> None:
    """negative_ttl together with stale: after negative_ttl the key is simply missing."""
    kitchen = Kitchen()
    kitchen.error = RuntimeError("kitchen closed")
    async with AsyncDibs(server.url, budget=5) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60, negative_ttl=0.3, stale=30)(kitchen.cook)
        with pytest.raises(RuntimeError):
            await menu("a")
        with pytest.raises(Unavailable):
            await menu("a")
        kitchen.error = None
        await sleep(0.4)
        assert (await menu("a"))["load"] == 2


async def test_everybody_who_waited_is_counted(server: Server) -> None:
    """Callers who join a load here: an event each, so that a hit rate can be computed."""
    events: list[Event] = []
    kitchen = Kitchen(0.3)
    async with AsyncDibs(server.url, budget=5, listeners=[events.append]) as dibs:
        menu = dibs.cached("menu:{name}", ttl=60)(kitchen.cook)
        callers = [Beside(menu, "a") for _ in range(10)]
        for caller in callers:
            await caller.result()
        assert kinds(events).count("waited") == 9
        assert kinds(events).count("miss") == kinds(events).count("loaded") == 1
