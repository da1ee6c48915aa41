"""Callers of `once` functions that are cancelled: the work goes on, is recorded, and is not done
twice."""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from types import FrameType
from typing import Any, Literal

import anyio
import pytest

from dibs import AsyncDibs, Dibs, Duplicate, Event, LeaseLost, UsageError
from dibs._async import client
from dibs.claims import clear_current_claims, current_claims, open_claims
from dibs.testing import Server, aeventually, eventually

from .cancelling import cancelled_after, run_cancelled_at

After = Literal["release", "hold", "replay"]
Way = Callable[[Coroutine[Any, Any, str], asyncio.Event], Coroutine[Any, Any, str]]


class Order:
    """A `once` function that begins, waits until it may end, and counts both."""

    def __init__(self, dibs: AsyncDibs, **options: Any) -> None:
        self.began = asyncio.Event()
        self.may_end = asyncio.Event()
        self.charged: list[str] = []
        self.confirmed: list[str] = []
        options = {"window": 60, "after": "replay", "wait": 30} | options

        @dibs.once("order:{cart}", **options)
        async def place(cart: str) -> str:
            self.charged.append(cart)
            self.began.set()
            await self.may_end.wait()
            self.confirmed.append(cart)
            return f"order for {cart}"

        self.place = place

    async def leave(self, cart: str = "c1") -> "asyncio.Task[str]":
        """A caller that is cancelled when the card was charged."""
        task = asyncio.ensure_future(self.place(cart))
        await self.began.wait()
        task.cancel()
        await asyncio.wait([task])
        return task


async def when(began: asyncio.Event, end: Callable[[], object]) -> None:
    """A time that is over before the work has begun would show nothing."""
    await began.wait()
    end()


async def by_timeout(call: Coroutine[Any, Any, str], began: asyncio.Event) -> str:
    async with asyncio.timeout(None) as limit:
        others = asyncio.ensure_future(when(began, lambda: limit.reschedule(0)))
        try:
            return await call
        finally:
            await others


async def by_wait_for(call: Coroutine[Any, Any, str], began: asyncio.Event) -> str:
    loop = asyncio.get_running_loop()
    time = loop.time
    async with asyncio.TaskGroup() as others:
        others.create_task(when(began, lambda: setattr(loop, "time", lambda: time() + 60)))
        return await asyncio.wait_for(call, 60)
    return "nothing"


async def by_move_on(call: Coroutine[Any, Any, str], began: asyncio.Event) -> str:
    async with asyncio.TaskGroup() as others:
        with anyio.CancelScope() as scope:
            others.create_task(when(began, scope.cancel))
            return await call
    return "nothing"


async def by_task_group(call: Coroutine[Any, Any, str], began: asyncio.Event) -> str:
    async def fail() -> None:
        await began.wait()
        raise ValueError

    with contextlib.suppress(ExceptionGroup):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(call)
            group.create_task(fail())
    return "nothing" if task.cancelled() else task.result()


@pytest.mark.parametrize("after", ["hold", "replay"])
@pytest.mark.parametrize("way", [by_timeout, by_wait_for, by_move_on, by_task_group])
async def test_the_work_of_a_cancelled_call_goes_on(valkey: Server, way: Way, after: After) -> None:
    """However its caller is cancelled, it runs to its end, once; a retry gets what came of it."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        order = Order(dibs, after=after)
        with contextlib.suppress(TimeoutError, ExceptionGroup):
            assert await way(order.place("c1"), order.began) == "nothing"
        assert order.charged == ["c1"] and not order.confirmed
        order.may_end.set()
        if after == "replay":
            assert await order.place("c1") == "order for c1"
        else:
            with pytest.raises(Duplicate) as refused:
                await order.place("c1")
            assert refused.value.state == "done"
        assert order.charged == order.confirmed == ["c1"]


@pytest.mark.parametrize(
    "options",
    [{"after": "release"}, {"on_cancel": "stop"}, {"after": "hold", "on_cancel": "stop"}],
    ids=["release", "replay-stop", "hold-stop"],
)
async def test_what_leaves_nothing_behind_or_is_to_be_stopped_is_cancelled(
    valkey: Server, options: Any
) -> None:
    """`on_error` says what a function leaves that was cancelled: by default nothing."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        order = Order(dibs, **options)
        assert (await order.leave()).cancelled()
        assert await dibs.peek("order:c1") is None
        order.may_end.set()
        assert await order.place("c1") == "order for c1"
    assert order.charged == ["c1", "c1"] and order.confirmed == ["c1"]


async def test_continue_can_be_asked_for(valkey: Server) -> None:
    """What leaves nothing behind goes on as well, if it is told to."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        order = Order(dibs, after="release", on_cancel="continue")
        assert (await order.leave()).cancelled()
        with pytest.raises(Duplicate):
            async with dibs.claim("order:c1", window=60):
                pass
        order.may_end.set()
        await aeventually(lambda: order.confirmed == ["c1"])


def test_another_answer_to_a_cancellation_is_refused() -> None:
    """A mistake is told when the function is decorated, with both halves."""
    for dibs in (AsyncDibs("redis://127.0.0.1:1"), Dibs("redis://127.0.0.1:1")):
        with pytest.raises(UsageError, match='on_cancel must be "continue" or "stop"'):
            dibs.once("order:{cart}", window=60, on_cancel="shield")  # type: ignore[arg-type]


@pytest.mark.parametrize("way", [run_cancelled_at, cancelled_after])
async def test_cancelled_at_every_moment(valkey: Server, way: Any) -> None:
    """A call that has begun the work ends it; one that has not leaves the key free."""
    for step in range(25):
        async with AsyncDibs(valkey.url, budget=5) as dibs:
            ran: list[str] = []

            @dibs.once("order:{cart}", window=60, lease=60, after="replay")
            async def place(cart: str, ran: list[str] = ran) -> str:
                ran.append(cart)
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                return f"order for {cart}"

            async def call(place: Any = place) -> None:
                await place("c1")

            await dibs.peek("warm:up")
            await way(step, call())
            value: bytes | None = None

            def is_settled() -> bool:
                nonlocal value
                value = valkey.client().get("order:c1")
                return value is None or value.startswith(b"dibs1 done")

            await aeventually(is_settled)
            assert (value is not None) == bool(ran)
        assert open_claims() == 0
        valkey.client().flushall()


async def test_closing_waits_for_work_whose_caller_has_left(valkey: Server) -> None:
    """Its end is recorded before the client closes."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        order = Order(dibs)
        await order.leave()
        asyncio.get_running_loop().call_later(0.05, order.may_end.set)
    assert order.confirmed == ["c1"]
    assert b"order for c1" in (valkey.client().get("order:c1") or b"")


async def test_closing_does_not_wait_for_ever(
    valkey: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What does not end in time is cancelled, released, and reported."""
    monkeypatch.setattr(client, "_DRAIN", 0.05)
    events: list[Event] = []
    async with AsyncDibs(valkey.url, budget=5, listeners=[events.append]) as dibs:
        await Order(dibs).leave()
    assert valkey.client().get("order:c1") is None
    assert [(each.name, each.cause) for each in events if each.kind == "failed"] == [
        ("order:{cart}", "stopped")
    ]
    [line] = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "order:{cart}" in line.message and "c1" not in line.message


async def test_closing_inside_of_such_work_does_not_wait_for_itself(valkey: Server) -> None:
    """A function that closes its own client comes to its end."""
    dibs, began, ended = AsyncDibs(valkey.url, budget=5), asyncio.Event(), asyncio.Event()

    @dibs.once("order:{cart}", window=60, lease=1, after="replay")
    async def place(cart: str) -> None:
        began.set()
        await asyncio.sleep(0.01)
        await dibs.aclose()
        ended.set()

    task = asyncio.ensure_future(place("c1"))
    await began.wait()
    task.cancel()
    await asyncio.wait_for(ended.wait(), 5)


async def test_a_failure_that_no_caller_gets_is_reported(
    valkey: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged with its traceback, an event says so, and `on_error` is followed."""
    events: list[Event] = []
    async with AsyncDibs(valkey.url, budget=5, listeners=[events.append]) as dibs:
        began, may_fail = asyncio.Event(), asyncio.Event()

        @dibs.once("order:{cart}", window=60, after="replay", on_error="hold")
        async def place(cart: str) -> None:
            began.set()
            await may_fail.wait()
            raise ValueError("the bank said no")

        task = asyncio.ensure_future(place("c1"))
        await began.wait()
        task.cancel()
        await asyncio.wait([task])
        may_fail.set()
        await aeventually(lambda: any(each.kind == "failed" for each in events))
        with pytest.raises(Duplicate) as refused:
            await place("c1")
        assert refused.value.state == "done"
    [line] = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert line.exc_info is not None and isinstance(line.exc_info[1], ValueError)


async def test_a_lost_lease_stops_what_is_inside(own_server: Server) -> None:
    """A body whose lease is lost must not write: also the `once` function that it calls ends."""
    async with AsyncDibs(own_server.url, budget=5) as dibs:
        order = Order(dibs)

        async def steal() -> None:
            await order.began.wait()
            own_server.client().set("account:1", "somebody else")

        thief = asyncio.ensure_future(steal())
        with pytest.raises(LeaseLost):
            async with dibs.hold("account:1", ttl=0.3, renew=True):
                await order.place("c1")
        await thief
        order.may_end.set()
        assert not order.confirmed and await dibs.peek("order:c1") is None


async def test_the_callers_own_claims_are_not_those_of_the_work(valkey: Server) -> None:
    """The end of a request, after a time-out, does not give up the claim of work that goes on."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        order = Order(dibs)

        async def request() -> None:
            try:
                await by_timeout(order.place("c1"), order.began)
            except TimeoutError:
                assert current_claims() == () and clear_current_claims() == 0
                raise

        with pytest.raises(TimeoutError):
            await request()
        assert open_claims() == 1
        order.may_end.set()
        assert await order.place("c1") == "order for c1" and order.charged == ["c1"]


_bound: ContextVar[str] = ContextVar("bound", default="nothing")


async def test_context_variables_pass_in_and_out(valkey: Server) -> None:
    """A function sees what its caller has set; what it sets is seen by its caller."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:

        @dibs.once("order:{cart}", window=60, after="replay")
        async def place(cart: str) -> str:
            seen = _bound.get()
            _bound.set(cart)
            return seen

        _bound.set("by the caller")
        assert await place("c1") == "by the caller"
        assert _bound.get() == "c1"


async def test_what_a_function_raises_reaches_its_caller(valkey: Server) -> None:
    """Also a cancellation of its own, which does not look like one of the caller."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:

        @dibs.once("order:{cart}", window=60, after="replay")
        async def place(cart: str) -> None:
            raise KeyError(cart) if cart == "c1" else asyncio.CancelledError

        with pytest.raises(KeyError, match="c1"):
            await place("c1")
        with pytest.raises(asyncio.CancelledError):
            await place("c2")
        task = asyncio.current_task()
        assert task is not None and not task.cancelling()
        assert valkey.keys() == []


async def test_a_waiting_duplicate_that_is_cancelled_takes_nothing(valkey: Server) -> None:
    """It has not begun: it stops, and the first call is not touched."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        order = Order(dibs)
        first = asyncio.ensure_future(order.place("c1"))
        await order.began.wait()
        for ticks in range(10):
            await cancelled_after(ticks, wait_for_it(order))
        order.may_end.set()
        assert await first == "order for c1" and order.charged == ["c1"]


async def wait_for_it(order: Order) -> None:
    await order.place("c1")


@pytest.mark.parametrize("on_error", ["release", "hold"])
def test_a_signal_handler_that_raises_ends_the_function(
    valkey: Server, on_error: Literal["release", "hold"]
) -> None:
    """With threads nothing goes on: what the handler raises is raised in the function, and
    `on_error` says what that leaves behind."""
    charged: list[str] = []
    with Dibs(valkey.url, budget=5) as dibs:

        @dibs.once("order:{cart}", window=60, after="replay", on_error=on_error)
        def place(cart: str) -> str:
            charged.append(cart)
            if len(charged) == 1:
                signal.raise_signal(signal.SIGALRM)
            return f"order for {cart}"

        def time_out(number: int, frame: FrameType | None) -> None:
            raise TimeoutError("the job takes too long")

        before = signal.signal(signal.SIGALRM, time_out)
        try:
            with pytest.raises(TimeoutError, match="too long"):
                place("c1")
        finally:
            signal.signal(signal.SIGALRM, before)
        if on_error == "release":
            assert place("c1") == "order for c1" and charged == ["c1", "c1"]
        else:
            with pytest.raises(Duplicate):
                place("c1")
            assert charged == ["c1"]


async def test_many_callers_are_cancelled_at_once(valkey: Server) -> None:
    """A hundred orders whose agent gives up: each is charged once, each retry gets its result."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        order = Order(dibs)
        carts = [f"c{number}" for number in range(100)]
        callers = asyncio.gather(*[order.place(cart) for cart in carts])
        await aeventually(lambda: len(order.charged) == len(carts))
        callers.cancel()
        with pytest.raises(asyncio.CancelledError):
            await callers
        order.may_end.set()
        results = await asyncio.gather(*[order.place(cart) for cart in carts])
        assert results == [f"order for {cart}" for cart in carts]
        assert sorted(order.charged) == sorted(order.confirmed) == sorted(carts)


def test_a_program_that_ends_at_once_does_not_hang(valkey: Server) -> None:
    """`asyncio.run` cancels every task: those of calls, too, also before they have started."""
    for ticks in range(12):
        charged: list[str] = []

        async def main(ticks: int = ticks, charged: list[str] = charged) -> None:
            async with AsyncDibs(valkey.url, budget=5) as dibs:
                await dibs.peek("warm:up")

                @dibs.once("order:{cart}", window=60, lease=60, after="replay")
                async def place(cart: str) -> None:
                    charged.append(cart)
                    await asyncio.sleep(60)

                calling = asyncio.ensure_future(place("c1"))
                for _ in range(ticks):
                    await asyncio.sleep(0)
                for task in asyncio.all_tasks() - {asyncio.current_task()}:
                    if not task.get_name().startswith("dibs ") or "once" in task.get_name():
                        task.cancel()
                assert not (await asyncio.wait([calling], timeout=20))[1]

        asyncio.run(main())
        eventually(lambda: valkey.client().get("order:c1") is None)
