"""One AsyncDibs in one event loop after another, as the workers of job queues use it.

A closed loop drops its tasks silently: unlike with `asyncio.run`, they are not cancelled, so their
cleanup does not run.
"""

import asyncio
import functools
import gc
import logging
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import pytest

from dibs import AsyncDibs, Event, UsageError
from dibs.testing import FaultProxy, Server, aeventually
from tests import two_loops


@pytest.fixture(autouse=True)
def loops_are_cut_off() -> Iterator[None]:
    """Transports and tasks of a closed loop complain when they are collected; that is the point."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        yield
        gc.collect()


def in_a_loop(work: Callable[[], Awaitable[Any]]) -> Any:
    """Run *work* in its own loop, which is then closed, even if other tasks run in it."""
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda loop, context: None)
    try:
        return loop.run_until_complete(work())
    finally:
        loop.close()


def test_a_hold_is_renewed_in_the_next_loop(valkey: Server) -> None:
    """The renewer of the first loop is gone: the second loop has its own."""
    dibs = AsyncDibs(valkey.url, budget=5)

    async def first() -> None:
        async with dibs.hold("user:1", ttl=30, renew=True):
            await asyncio.sleep(0.05)

    async def second() -> tuple[bool, bool]:
        async with dibs.hold("user:1", ttl=0.6, renew=True) as lease:
            await asyncio.sleep(1.2)
            taken = valkey.keys() == ["user:1"]
            lost = lease.lost
        await dibs.aclose()
        return lost, taken

    in_a_loop(first)
    assert in_a_loop(second) == (False, True)


def test_a_claim_is_renewed_in_the_next_loop(valkey: Server) -> None:
    """The second job of a worker takes longer than its lease: no other caller gets it."""
    dibs = AsyncDibs(valkey.url, budget=5)

    @dibs.once("job:{number}", window=60, lease=0.6)
    async def job(number: int) -> bool:
        await asyncio.sleep(1.2)
        return valkey.keys() == [f"job:{number}"]

    async def last() -> bool:
        kept = await job(3)
        await dibs.aclose()
        return kept

    assert in_a_loop(lambda: job(1)) is True
    assert in_a_loop(lambda: job(2)) is True
    assert in_a_loop(last) is True


def test_a_lease_that_was_cut_off_with_its_loop(valkey: Server) -> None:
    """Its task will never go on: the next loop works, and what was cut off runs out."""
    dibs = AsyncDibs(valkey.url, budget=5)

    async def hang() -> None:
        async with dibs.hold("user:1", ttl=0.6, renew=True):
            await asyncio.sleep(600)

    async def first() -> None:
        task = asyncio.ensure_future(hang())
        await asyncio.sleep(0.1)
        assert not task.done()

    async def second() -> bool:
        async with dibs.hold("user:2", ttl=0.6, renew=True) as lease:
            await asyncio.sleep(1.5)
            kept = not lease.lost
        async with dibs.hold("user:1", ttl=5, wait=5):
            pass
        await dibs.aclose()
        return kept

    in_a_loop(first)
    gc.collect()
    assert in_a_loop(second) is True


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_lock_of_a_load_that_was_cut_off_is_given_back(valkey: Server) -> None:
    """By the first load of the next loop; and loads of one loop leave each other alone."""
    events: list[Event] = []
    dibs = AsyncDibs(valkey.url, budget=5, listeners=[events.append])
    begun: list[str] = []

    @dibs.cached("menu:{name}", ttl=60, lock_ttl=600)
    async def menu(name: str) -> str:
        begun.append(name)
        await asyncio.sleep(600 if name == "a" else 0)
        return name

    async def first() -> None:
        waiting.append(asyncio.ensure_future(menu("a")))
        await aeventually(lambda: begun == ["a"])
        await menu("b")

    async def second() -> list[str]:
        await menu("c")
        keys = valkey.keys()
        await dibs.aclose()
        return sorted(keys)

    waiting: list[asyncio.Task[str]] = []
    in_a_loop(first)
    left = set(valkey.keys()) - {"menu:b"}
    assert left, "the load is under way"
    assert in_a_loop(second) == ["menu:b", "menu:c"]
    assert "lost" not in [event.kind for event in events]


def test_waiters_that_were_cut_off_do_not_stand_in_the_way(valkey: Server) -> None:
    """They are first in the queue for ever; who waits in the next loop is served all the same."""
    dibs = AsyncDibs(valkey.url, budget=5)
    waiters: list[asyncio.Task[Any]] = []

    async def first() -> None:
        assert await dibs.try_hold("user:1", ttl=1) is not None
        for _ in range(3):
            waiters.append(asyncio.ensure_future(dibs.try_hold("user:1", ttl=5, wait=600)))
        await asyncio.sleep(0.1)

    async def second() -> bool:
        lease = await dibs.try_hold("user:1", ttl=5, wait=10)
        released = lease is not None and await lease.release()
        await dibs.aclose()
        return released

    in_a_loop(first)
    assert in_a_loop(second) is True
    assert not any(waiter.done() for waiter in waiters)


def test_an_outage_that_spans_loops_is_logged_once(
    own_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """It begins in one loop, goes on in the next and ends in the third: two lines."""
    caplog.set_level(logging.INFO, "dibs")
    dibs = AsyncDibs(own_server.url, budget=0.2, connect=0.5)

    async def use() -> bool:
        async with dibs.hold("user:1", ttl=5) as lease:
            return lease.guarded

    async def last() -> bool:
        guarded = await use()
        await dibs.aclose()
        return guarded

    assert in_a_loop(use)
    own_server.freeze()
    assert not in_a_loop(use)
    assert not in_a_loop(use)
    own_server.thaw()
    assert in_a_loop(last)
    said = [record.levelname for record in caplog.records if record.name == "dibs"]
    assert said == ["WARNING", "INFO"]


def test_requests_that_were_cut_off_do_not_disturb_the_next_loop(proxy: FaultProxy) -> None:
    """They wait for replies on a connection of the closed loop; the first call goes through."""
    dibs = AsyncDibs(proxy.url, budget=5)
    waiting: list[asyncio.Task[Any]] = []

    async def first() -> None:
        await dibs.peek("user:1")
        proxy.stall(replies=True)
        waiting.append(asyncio.ensure_future(dibs.peek("user:1")))
        await asyncio.sleep(0.05)

    async def second() -> bool:
        free = await dibs.peek("user:1") is None
        await dibs.aclose()
        return free

    in_a_loop(first)
    proxy.heal()
    assert in_a_loop(second) is True


def test_a_coroutine_that_is_not_run_by_asyncio() -> None:
    """Trio, or a custom loop: the error names what is missing."""
    dibs = AsyncDibs("redis://127.0.0.1:1")

    async def load() -> int:
        return 1

    works: list[Coroutine[Any, Any, Any]] = [
        dibs.try_hold("user:1", ttl=5),
        dibs.claim("order:1", window=5).__aenter__(),
        dibs.get_or_load("menu:1", load, ttl=5),
    ]
    for work in works:
        with pytest.raises(UsageError, match="asyncio"):
            work.send(None)


def test_closing_in_another_loop_than_it_was_used_in(valkey: Server) -> None:
    """close() has no task to wait for, and logs nothing."""
    dibs = AsyncDibs(valkey.url, budget=5)
    kept: list[Any] = []

    async def first() -> None:
        hold = dibs.hold("user:1", ttl=30, renew=True)
        kept.append(hold)
        kept.append(await hold.__aenter__())
        await asyncio.sleep(0.05)

    in_a_loop(first)
    in_a_loop(dibs.aclose)


def test_an_outage_that_outlives_its_loop_ends_in_the_log(
    own_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """One WARNING and one INFO for each outage, in whichever loop it ends."""
    caplog.set_level(logging.INFO, logger="dibs")
    dibs = AsyncDibs(own_server.url)

    async def is_guarded() -> bool:
        async with dibs.hold("user:1", ttl=5) as lease:
            return lease.guarded

    found = [in_a_loop(is_guarded)]
    for _ in range(2):
        own_server.kill()
        found += [in_a_loop(is_guarded), in_a_loop(is_guarded)]
        own_server.restart()
        found += [in_a_loop(is_guarded)]
    assert found == [True, *[False, False, True] * 2]
    levels = [record.levelname for record in caplog.records if record.name == "dibs"]
    assert levels == ["WARNING", "INFO"] * 2
    assert [record.args[2] for record in caplog.records if record.levelname == "INFO"] == [2, 2]


@pytest.mark.parametrize("tls", [False, True])
def test_a_loop_that_is_closed_while_a_connection_is_opened(
    start_server: Callable[..., Server], tls: bool
) -> None:
    """At any step: nothing is left that complains, and the next loop has a connection."""
    server = start_server("redis7", tls=tls)
    for steps in range(0, 40, 3):
        dibs = AsyncDibs(server.tls_url if tls else server.url, budget=5)

        async def cut_off(steps: int, dibs: AsyncDibs) -> None:
            task = asyncio.ensure_future(dibs.try_hold("user:1", ttl=5))
            for _ in range(steps):
                await asyncio.sleep(0.0005)
            del task

        async def last(dibs: AsyncDibs) -> bool:
            async with dibs:
                lease = await dibs.try_hold("user:2", ttl=5)
                return lease is not None and lease.guarded and await lease.release()

        in_a_loop(functools.partial(cut_off, steps, dibs))
        gc.collect()
        assert in_a_loop(functools.partial(last, dibs)) is True
        del dibs
        gc.collect()


@pytest.mark.parametrize("verb", two_loops.VERBS)
def test_two_loops_at_the_same_moment(valkey: Server, verb: str) -> None:
    """One gets its result, the other one its own or a UsageError: nobody is blocked."""
    assert two_loops.broken(two_loops.outcomes_of(valkey.url, verb, rounds=10)) == []
