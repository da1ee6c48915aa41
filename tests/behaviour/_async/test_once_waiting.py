"""What `wait=` and `duplicate=` promise on `once` and `claim`, on every engine."""

import time
from typing import Any

import pytest

from dibs import AsyncDibs, Duplicate, Event, Mismatch, UsageError
from dibs._async import waiters
from dibs.testing import Server

from .._tasks import Background, eventually, sleep


async def _second(dibs: AsyncDibs, **options: Any) -> str:
    async with dibs.claim("order:1", window=60, **options) as claim:
        if claim.replayed:
            return f"replayed {claim.result}"
        return claim.complete("done by the second")


def _waits(dibs: AsyncDibs) -> bool:
    return b"order:1" in dibs._leases.waiters.queues


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "elsewhere"])
async def test_a_duplicate_waits_for_the_result(
    server: Server, elsewhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """replay: it gets the result of the first one, woken by its end and not by a timer."""
    monkeypatch.setattr(waiters, "_LOOK_AGAIN", 3600.0)
    events: list[Event] = []
    async with (
        AsyncDibs(server.url, budget=5, listeners=[events.append]) as one,
        AsyncDibs(server.url, budget=5, listeners=[events.append]) as other,
    ):
        two = other if elsewhere else one
        async with one.claim("order:1", window=60, after="replay", lease=30) as claim:
            waiter = Background(lambda: _second(two, after="replay", wait=60))
            await eventually(lambda: _waits(two))
            await sleep(0.1)
            claim.complete("order 17")
        assert await waiter.result() == "replayed order 17"
    replayed = next(event for event in events if event.kind == "replayed")
    assert replayed.waited is not None and replayed.waited >= 0.1


async def test_a_duplicate_that_waits_from_now_on_sees_that_it_is_done(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended after the duplicate had asked, and before the server was to tell it of changes."""
    register = waiters.AsyncWaiters._register
    monkeypatch.setattr(waiters, "_LOOK_AGAIN", 3600.0)
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        async with one.claim("order:1", window=60, after="replay", lease=30) as claim:

            async def register_late(*args: Any) -> Any:
                claim.complete("order 17")
                await claim.finish()
                return await register(*args)

            monkeypatch.setattr(waiters.AsyncWaiters, "_register", register_late)
            assert await _second(two, after="replay", wait=10) == "replayed order 17"


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "elsewhere"])
@pytest.mark.parametrize("end", ["fails", "releases"])
async def test_a_duplicate_takes_over_if_nothing_was_left(
    server: Server, elsewhere: bool, end: str
) -> None:
    """The first one fails, or leaves nothing behind: the duplicate does it."""
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as other:
        two = other if elsewhere else one
        first = one.claim("order:1", window=60, after="replay", lease=30)
        claim = await first.__aenter__()
        waiter = Background(lambda: _second(two, after="replay", wait=15))
        await eventually(lambda: _waits(two))
        if end == "fails":
            assert await claim.fail()
        else:
            claim.release()
            assert await claim.finish()
        assert await waiter.result() == "done by the second"
        assert await _second(two, after="replay") == "replayed done by the second"


async def test_a_duplicate_takes_over_when_the_first_one_died(server: Server) -> None:
    """Its lease expires without a notification: the timer wakes the waiter."""
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        claim = await one.claim("order:1", window=60, lease=1).__aenter__()
        claim.leak("dropped")
        assert await _second(two, wait=15) == "done by the second"


async def test_a_duplicate_waits_no_longer_than_it_may(server: Server) -> None:
    """The first one runs on: Duplicate, running, then and not earlier."""
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        async with one.claim("order:1", window=60, lease=30):
            for dibs in (one, two):
                since = time.monotonic()
                with pytest.raises(Duplicate) as caught:
                    await _second(dibs, wait=0.3, message="one moment, please")
                assert 0.25 < time.monotonic() - since < 25, "the first one's lease ends after 30 s"
                assert caught.value.state == "running" and 0 < caught.value.retry_after <= 30
                assert str(caught.value) == "one moment, please"


async def test_what_is_done_is_not_waited_for(server: Server) -> None:
    """Done and not replayed, or another payload: an error at once, however long `wait` is."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        async with dibs.claim("order:1", window=60, after="hold"):
            pass
        since = time.monotonic()
        with pytest.raises(Duplicate) as caught:
            await _second(dibs, wait=60)
        assert caught.value.state == "done"
        async with dibs.claim("order:2", window=60, payload={"a": 1}):
            with pytest.raises(Mismatch):
                async with dibs.claim("order:2", window=60, payload={"a": 2}, wait=60):
                    pytest.fail("claimed twice")
        assert time.monotonic() - since < 20


async def test_a_duplicate_that_waits_is_told_when_it_is_held(server: Server) -> None:
    """after="hold": the end of the first one is the answer, done; the window is not waited for."""
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        async with one.claim("order:1", window=600, after="hold", lease=30):
            waiter = Background(lambda: _second(two, after="hold", wait=15))
            await eventually(lambda: _waits(two))
        with pytest.raises(Duplicate) as caught:
            await waiter.result()
        assert caught.value.state == "done" and caught.value.retry_after > 500


async def test_many_calls_one_execution(server: Server) -> None:
    """Thirty equal calls of a decorated function, in two processes: one does it, all get it."""
    calls = 0
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:

        async def pay(key: str) -> dict[str, int]:
            nonlocal calls
            calls += 1
            await sleep(0.2)
            return {"payment": calls}

        options: dict[str, Any] = {"window": 60, "after": "replay", "wait": 15}
        wrapped = [dibs.once("payment:{key}", **options)(pay) for dibs in (one, two)]
        waiters = [Background(wrapped[number % 2], "k-1") for number in range(30)]
        for waiter in waiters:
            assert await waiter.result() == {"payment": 1}
        assert calls == 1


async def test_a_duplicate_is_answered_by_a_function(server: Server) -> None:
    """duplicate=: it gets the error, and its result is the result of the call."""
    async with AsyncDibs(server.url, budget=5) as dibs:

        async def later(error: Duplicate) -> str:
            return f"later: {error.state}"

        @dibs.once("order:{key}", window=60, after="hold", duplicate=lambda error: error.state)
        async def order(key: str) -> str:
            return "ordered"

        @dibs.once("order:{key}", window=60, after="hold", duplicate=later, wait=0.1)
        async def order_later(key: str) -> str:
            return "ordered"

        assert [await order("1") for _ in range(2)] == ["ordered", "done"]
        assert await order_later("1") == "later: done"
        async with dibs.claim("order:2", window=60):
            assert await order("2") == "running"
            assert await order_later("2") == "later: running"


async def test_only_a_duplicate_of_this_call_is_answered(server: Server) -> None:
    """A Mismatch, and a Duplicate that the function itself raises, reach the caller."""
    async with AsyncDibs(server.url, budget=5) as dibs:

        @dibs.once("order:{key}", window=60, payload=["n"], duplicate=lambda error: "answered")
        async def order(key: str, n: int) -> str:
            if n == 7:
                raise Duplicate("inner", 1.0, "done")
            async with dibs.claim(f"order:{key}", window=60):
                return "unreachable"

        with pytest.raises(Duplicate):
            await order("1", 7)
        with pytest.raises(Duplicate):
            await order("1", 1)
        async with dibs.claim("order:2", window=60, payload={"n": 1}):
            with pytest.raises(Mismatch):
                await order("2", 2)
        assert server.keys() == []


async def test_waiting_through_an_outage(own_server: Server) -> None:
    """The store goes away while a duplicate waits: the policy decides, before the wait is over."""
    async with AsyncDibs(own_server.url, budget=0.3) as one:
        async with AsyncDibs(own_server.url, budget=0.3) as two:
            claim = await one.claim("order:1", window=60, lease=30).__aenter__()
            waiter = Background(lambda: _second(two, wait=60))
            await eventually(lambda: _waits(two))
            own_server.kill()
            assert await waiter.result() == "done by the second"
            claim.leak("dropped")


async def test_the_wait_of_a_duplicate_is_checked() -> None:
    """A negative or senseless wait: UsageError, when it is written."""
    async with AsyncDibs("redis://127.0.0.1:1") as dibs:
        with pytest.raises(UsageError, match="wait"):
            dibs.claim("order:1", window=60, wait=-1)
        with pytest.raises(UsageError, match="wait"):
            dibs.once("order:{key}", window=60, wait=float("nan"))
