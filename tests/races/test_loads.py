"""Loads that hang, wait for themselves, or lose their loop or callers; reads that are shared."""

import asyncio
import gc
import threading
import time
from collections.abc import Callable
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import pytest

from dibs import AsyncDibs, Dibs, Event, UsageError
from dibs.testing import Child, FaultProxy, Server, aeventually, eventually

Spawn = Callable[..., Child]


class Background(threading.Thread):
    """A call on a daemon thread, so that one that hangs does not block the tests."""

    def __init__(self, work: Callable[..., Any], *args: Any) -> None:
        super().__init__(daemon=True)
        self.work, self.args = work, args
        self.outcome: Any = None
        self.start()

    def run(self) -> None:
        try:
            self.outcome = self.work(*self.args)
        except BaseException as error:
            self.outcome = error

    def result(self) -> Any:
        self.join(20)
        assert not self.is_alive()
        return self.outcome


def living(name: str) -> int:
    """How many objects of the class with this name there are."""
    gc.collect()
    return sum(type(each).__name__ == name for each in gc.get_objects())


# ---- event loops


def load_in_two_loops(url: str, stale: bool) -> dict[str, object]:
    import asyncio
    import time

    from dibs import AsyncDibs
    from dibs.testing import aeventually

    dibs = AsyncDibs(url, budget=5)
    loads, hanging, begun = 0, 2 if stale else 1, []

    @dibs.cached("menu:{name}", ttl=0.1 if stale else 60, stale=0.4 if stale else 0, lock_ttl=60)
    async def menu(name: str) -> int:
        nonlocal loads
        loads += 1
        if loads == hanging:
            await asyncio.sleep(600)
        return loads

    async def begin() -> None:
        if stale:
            await menu("a")
            await asyncio.sleep(0.2)
        begun.append(asyncio.ensure_future(menu("a")))
        await aeventually(lambda: loads == hanging)
        await asyncio.sleep(0.6)

    async def go_on() -> dict[str, object]:
        since = time.monotonic()
        value = await menu("a")
        return {"value": value, "loads": loads, "took": time.monotonic() - since}

    said = None
    for work in (begin, go_on):
        loop = asyncio.new_event_loop()
        said = loop.run_until_complete(work())
        loop.close()
    assert said is not None
    return said


@pytest.mark.parametrize("stale", [False, True])
def test_a_load_that_was_cut_off_with_its_loop_does_not_hang_later_callers(
    valkey: Server, spawn: Spawn, stale: bool
) -> None:
    """new_event_loop, run_until_complete, close: the next loop loads, before the lock would end."""
    said = spawn(load_in_two_loops, valkey.url, stale).result()
    assert said["value"] == said["loads"] == (3 if stale else 2)
    assert said["took"] < 50
    assert valkey.keys() in ([], ["menu:a"])


def read_in_two_loops(url: str) -> dict[str, object]:
    import asyncio

    from dibs import AsyncDibs

    dibs = AsyncDibs(url, budget=5)
    begun: list[object] = []

    @dibs.cached("menu:{name}", ttl=60)
    async def menu(name: str) -> str:
        return name

    async def begin() -> None:
        await menu("a")
        await menu("a")
        begun.extend(asyncio.ensure_future(menu("a")) for _ in range(2))
        await asyncio.sleep(0)

    async def go_on() -> dict[str, object]:
        async with asyncio.timeout(5):
            return {"value": await menu("a")}

    said = None
    for work in (begin, go_on):
        loop = asyncio.new_event_loop()
        said = loop.run_until_complete(work())
        loop.close()
    assert said is not None
    return said


def test_a_read_that_was_cut_off_with_its_loop_does_not_hang_later_callers(
    valkey: Server, spawn: Spawn
) -> None:
    """The same for tasks that share one read."""
    assert spawn(read_in_two_loops, valkey.url).result(within=90) == {"value": "a"}


# ---- what stays behind


async def test_nothing_stays_of_a_flight_whose_first_caller_left(valkey: Server) -> None:
    """Who began it is cancelled, another one stays: the flight is forgotten in the end."""
    go = asyncio.Event()

    async def load() -> list[int]:
        await go.wait()
        return [1]

    async with AsyncDibs(valkey.url, budget=10) as dibs:
        before = living("Flight")
        for number in range(20):
            go.clear()
            key = f"menu:{number}"
            first = asyncio.ensure_future(dibs.get_or_load(key, load, ttl=60))
            await asyncio.sleep(0.01)
            second = asyncio.ensure_future(dibs.get_or_load(key, load, ttl=60))
            await asyncio.sleep(0)
            first.cancel()
            await asyncio.wait([first])
            go.set()
            assert await second == [1]
        first = second = None  # type: ignore[assignment]
        assert living("Flight") == before


async def test_nothing_stays_of_values_in_memory_that_changed(valkey: Server) -> None:
    """local: many invalidations of one key, many deleted keys: no callback stays behind."""
    async with AsyncDibs(valkey.url, budget=10) as dibs:

        @dibs.cached("menu:{name}", ttl=60, local=True)
        async def menu(name: str) -> str:
            return name

        async def change(names: list[str]) -> None:
            for name in names:
                await menu(name)
                await menu(name)
                await menu.invalidate(name)

        await change(["a"] * 5)
        before = callbacks()
        await change(["a"] * 300)
        assert callbacks() - before < 30  # not one for each
        await change([str(number) for number in range(300)])
        await aeventually(lambda: callbacks() - before < 30)


async def test_nobody_listens_for_values_that_are_not_kept(valkey: Server) -> None:
    """Not stored in memory, because they are stale; or no longer, because the wait was over."""
    is_loading = asyncio.Event()

    async def load() -> int:
        return 1

    async def never() -> int:
        is_loading.set()
        await asyncio.Event().wait()
        return 2

    async with (
        AsyncDibs(valkey.url, budget=10) as one,
        AsyncDibs(valkey.url, budget=10) as two,
    ):
        stale: Any = {"ttl": 0.05, "stale": 600, "lock_ttl": 600, "local": 60}
        await one.get_or_load("old", load, **stale)
        await asyncio.sleep(0.1)
        assert await two.get_or_load("old", never, **stale) == 1
        await is_loading.wait()
        loading = asyncio.ensure_future(two.get_or_load("new", never, ttl=60, lock_ttl=600))
        await aeventually(lambda: "lock:{new}" in valkey.keys())

        async def read() -> tuple[int, int]:
            assert await one.get_or_load("old", load, **stale) == 1
            assert await one.get_or_load("new", load, ttl=60, wait=0.05) == 1
            return living("_Forget"), living("Signal")

        before = await read()
        for _ in range(10):
            after = await read()
        assert all(now - then < 5 for now, then in zip(after, before, strict=True))
        loading.cancel()
        await asyncio.wait([loading])


def callbacks() -> int:
    """How many functions, methods and partials there are.

    Other objects are not counted: a process that was stopped logs what took so long.
    """
    gc.collect()
    kinds = {FunctionType, MethodType, partial}
    # isinstance would ask lazy objects of others for their class.
    return sum(type(thing) in kinds for thing in gc.get_objects())


# ---- reads that are shared


async def test_a_read_that_was_sent_before_a_delete_is_not_shared_with_who_comes_after(
    valkey: Server, proxy: FaultProxy
) -> None:
    """The answer is on its way when the value is deleted: only those who asked before get it."""
    version = 1

    async with AsyncDibs(proxy.url, budget=10) as here, AsyncDibs(valkey.url, budget=10) as there:

        @here.cached("menu:{name}", ttl=60)
        async def menu(name: str) -> int:
            return version

        deleting = there.cached("menu:{name}", ttl=60)(menu.__wrapped__)  # type: ignore[attr-defined]
        assert await menu("a") == await menu("a") == 1
        proxy.delay(replies=0.5)
        before = valkey.commands("get")
        early = asyncio.ensure_future(menu("a"))
        await aeventually(lambda: valkey.commands("get") > before)
        version = 2
        assert await deleting.invalidate("a")
        late = asyncio.ensure_future(menu("a"))
        assert await early == 1
        assert await late == 2


async def test_tasks_that_read_in_step_ask_once_for_all(valkey: Server) -> None:
    """Twenty tasks, fifty reads each: one or two reads for each round, never one for each task."""
    async with AsyncDibs(valkey.url, budget=10) as dibs:

        @dibs.cached("menu:{name}", ttl=60)
        async def menu(name: str) -> int:
            return 1

        async def read() -> None:
            for _ in range(50):
                assert await menu("a") == 1

        await menu("a")
        before = valkey.commands("get")
        await asyncio.gather(*[read() for _ in range(20)])
        assert valkey.commands("get") - before < 200


async def test_a_first_read_that_was_sent_before_a_delete_is_not_shared_either(
    valkey: Server, proxy: FaultProxy
) -> None:
    """The same for the first read of a process, which asks whether it may load."""
    version = 1

    async def load() -> int:
        return version

    async with AsyncDibs(proxy.url, budget=10) as here, AsyncDibs(valkey.url, budget=10) as there:
        assert await there.get_or_load("menu:a", load, ttl=60) == 1
        await here.get_or_load("menu:warm", load, ttl=60)
        proxy.delay(replies=0.5)
        before = valkey.commands("evalsha")
        early = asyncio.ensure_future(here.get_or_load("menu:a", load, ttl=60))
        await aeventually(lambda: valkey.commands("evalsha") > before)
        version = 2
        valkey.client().delete("menu:a")
        late = asyncio.ensure_future(here.get_or_load("menu:a", load, ttl=60))
        assert await early == 1
        assert await late == 2


# ---- loads that hang


def reads_in_threads(url: str) -> None:
    """Print a value in memory whenever a line comes."""
    from dibs import Dibs

    with Dibs(url, budget=5) as dibs:
        read = dibs.cached("value:{name}", ttl=60, local=True)(lambda name: "loaded")
        read("a")
        while input() != "end":
            print(read("a"), flush=True)


async def reads_in_tasks(url: str) -> None:
    """The same in a loop that is blocked meanwhile."""
    from dibs import AsyncDibs

    async with AsyncDibs(url, budget=5) as dibs:

        @dibs.cached("value:{name}", ttl=60, local=True)
        async def read(name: str) -> str:
            return "loaded"

        await read("a")
        while input() != "end":
            print(await read("a"), flush=True)


@pytest.mark.parametrize("reads", [reads_in_threads, reads_in_tasks])
def test_a_process_that_was_stopped_reads_nothing_old_from_memory(
    valkey: Server, spawn: Spawn, reads: Callable[..., Any]
) -> None:
    """The change was reported while it was stopped, and it has not read that yet."""
    reader = spawn(reads, valkey.url)
    reader.tell()
    assert reader.line(within=60) == "loaded"
    with Dibs(valkey.url, budget=5) as dibs:
        write = dibs.cached("value:{name}", ttl=60)(lambda name: "loaded")
        for number in range(6):
            reader.tell()
            reader.line()  # in memory
            reader.freeze()
            write.set("a", value=f"changed {number}")
            reader.tell()
            time.sleep(0.6)  # a shorter pause is not noticed
            reader.thaw()
            assert reader.line() == f"changed {number}"
    reader.tell("end")


def test_a_load_that_hangs_in_a_thread_does_not_block_its_key(valkey: Server) -> None:
    """Waiters get TimeoutError after load_timeout; the next caller starts a new load."""
    hanging, loads = threading.Event(), 0

    with Dibs(valkey.url, budget=10) as dibs:

        @dibs.cached("menu:{name}", ttl=60, load_timeout=0.4, lock_ttl=0.4)
        def menu(name: str) -> int:
            nonlocal loads
            loads += 1
            mine = loads
            if mine == 1:
                hanging.wait(30)
            return mine

        leader = Background(menu, "a")
        eventually(lambda: loads == 1)
        waiting = [Background(menu, "a") for _ in range(3)]
        for each in waiting:
            assert isinstance(each.result(), TimeoutError) or each.outcome == 2
        assert menu("a") == 2
        assert menu("a") == 2
        hanging.set()
        assert leader.result() == 1
        assert menu("a") == loads == 2


def test_a_refresh_that_hangs_in_a_thread_does_not_end_all_refreshing(valkey: Server) -> None:
    """After load_timeout another one is tried, while the old value is served."""
    hanging, loads = threading.Event(), 0

    with Dibs(valkey.url, budget=10) as dibs:

        @dibs.cached("menu:{name}", ttl=0.2, stale=60, load_timeout=0.3, lock_ttl=1)
        def menu(name: str) -> int:
            nonlocal loads
            loads += 1
            mine = loads
            if mine == 2:
                hanging.wait(30)
            return mine

        assert menu("a") == 1
        eventually(lambda: menu("a") >= 3)
        hanging.set()


@pytest.mark.parametrize("through", ["itself", "another"])
def test_a_thread_that_loads_what_it_needs_to_load_gets_an_error(
    valkey: Server, through: str
) -> None:
    """A cached function that asks for its own value, directly or not: UsageError, at once."""
    with Dibs(valkey.url, budget=10) as dibs:

        @dibs.cached("one:{name}", ttl=60)
        def one(name: str) -> int:
            return one(name) if through == "itself" else two(name)

        @dibs.cached("two:{name}", ttl=60)
        def two(name: str) -> int:
            return one(name)

        error = Background(one, "a").result()
        assert isinstance(error, UsageError) and "requests the value itself" in str(error)
        eventually(lambda: valkey.keys() == [])


@pytest.mark.parametrize("through", ["itself", "another"])
async def test_a_task_that_loads_what_it_needs_to_load_gets_an_error(
    valkey: Server, through: str
) -> None:
    """The same for tasks."""
    async with AsyncDibs(valkey.url, budget=10) as dibs:

        @dibs.cached("one:{name}", ttl=60)
        async def one(name: str) -> int:
            return await (one(name) if through == "itself" else two(name))

        @dibs.cached("two:{name}", ttl=60)
        async def two(name: str) -> int:
            return await one(name)

        async with asyncio.timeout(5):
            with pytest.raises(UsageError, match="requests the value itself"):
                await one("a")
        await aeventually(lambda: valkey.keys() == [])


def test_two_threads_whose_loads_need_each_other_get_an_error(valkey: Server) -> None:
    """One loads A and needs B, the other loads B and needs A: neither waits for ever."""
    both = threading.Barrier(2)

    with Dibs(valkey.url, budget=10) as dibs:

        @dibs.cached("one:{name}", ttl=60)
        def one(name: str) -> int:
            both.wait(10)
            return two(name)

        @dibs.cached("two:{name}", ttl=60)
        def two(name: str) -> int:
            both.wait(10)
            return one(name)

        outcomes = [each.result() for each in [Background(one, "a"), Background(two, "a")]]
        assert all(isinstance(outcome, UsageError) for outcome in outcomes)


async def test_loads_that_need_the_same_value_are_no_circle(valkey: Server) -> None:
    """Two values that need a third one, at the same time: one load of each."""
    loads: list[str] = []

    async with AsyncDibs(valkey.url, budget=10) as dibs:

        @dibs.cached("part:{name}", ttl=60)
        async def part(name: str) -> str:
            loads.append(name)
            await asyncio.sleep(0.1)
            return name

        @dibs.cached("whole:{name}", ttl=60)
        async def whole(name: str) -> str:
            loads.append(name)
            return name + await part("c")

        assert await asyncio.gather(whole("a"), whole("b"), whole("a")) == ["ac", "bc", "ac"]
        assert sorted(loads) == ["a", "b", "c"]


# ---- refreshing behind the readers


def test_stale_reads_in_threads_cost_no_thread_and_no_script_each(valkey: Server) -> None:
    """One refresh under way, here or elsewhere: a thousand reads, a thousand GETs, no more."""
    go, loads = threading.Event(), 0

    with Dibs(valkey.url, budget=10) as dibs, Dibs(valkey.url, budget=10) as other:

        def load(name: str) -> int:
            nonlocal loads
            loads += 1
            if loads > 1:
                go.wait(20)
            return loads

        menus = [each.cached("menu:{name}", ttl=0.2, stale=60)(load) for each in (dibs, other)]
        assert [menu("a") for menu in menus] == [1, 1]
        threading.Event().wait(0.3)
        scripts = valkey.commands("evalsha")
        for _ in range(1000):
            assert [menu("a") for menu in menus] == [1, 1]
        threads = [each for each in threading.enumerate() if each.name == "dibs task"]
        assert valkey.commands("evalsha") - scripts <= 100
        assert len(threads) <= 2
        go.set()
        eventually(lambda: loads == 2 and [menu("a") for menu in menus] == [2, 2])


def test_too_many_refreshes_at_once_are_reported(valkey: Server) -> None:
    """A loader that hangs for a hundred keys: a bounded number of threads, and an event."""
    events: list[Event] = []
    go, is_slow = threading.Event(), False

    def load(name: str) -> str:
        if is_slow:
            go.wait(20)
        return name

    with Dibs(valkey.url, budget=10, listeners=[events.append]) as dibs:
        menu = dibs.cached("menu:{name}", ttl=0.2, stale=60)(load)
        for number in range(100):
            menu(str(number))
        threading.Event().wait(0.3)
        is_slow = True
        for number in range(100):
            assert menu(str(number)) == str(number)
        assert sum(each.name == "dibs task" for each in threading.enumerate()) <= 64
        assert "too many concurrent refreshes" in str([event.detail for event in events])
        go.set()
        eventually(lambda: not any(each.name == "dibs task" for each in threading.enumerate()))
