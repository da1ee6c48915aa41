"""Cancelled at every possible await: no key is left behind, and no task."""

import asyncio
import contextlib
import gc
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import redis.asyncio

from dibs import AsyncDibs, LeaseLost, Unavailable
from dibs._core.capabilities import Negotiation
from dibs._core.connection import Limits
from dibs._transport.handshake import open_async
from dibs._transport.multiplexed import AsyncConnection
from dibs._transport.targets import parse_target
from dibs.testing import Certificates, FaultProxy, Server, aeventually

from .cancelling import MOST_STEPS, Scenario, cancelled_after, cancelled_at, run_cancelled_at


async def acquire_and_release(dibs: AsyncDibs) -> None:
    async with dibs.hold("user:1", ttl=60):
        await asyncio.sleep(0)


async def fenced(dibs: AsyncDibs) -> None:
    async with dibs.hold("user:1", ttl=60, fence=True):
        pass


async def renewed(dibs: AsyncDibs) -> None:
    # Long enough not to be lost on a busy machine, short enough to be renewed inside.
    async with dibs.hold("user:1", ttl=0.6, renew=True):
        await asyncio.sleep(0.25)


async def extended(dibs: AsyncDibs) -> None:
    async with dibs.hold("user:1", ttl=60) as lease:
        await lease.extend(50)


async def waiting_here(dibs: AsyncDibs) -> None:
    async def other() -> None:
        async with dibs.hold("user:1", ttl=60, wait=10):
            await asyncio.sleep(0.005)

    task = asyncio.ensure_future(other())
    try:
        async with dibs.hold("user:1", ttl=60, wait=10):
            await asyncio.sleep(0.005)
    finally:
        task.cancel()
        await asyncio.wait([task])


async def claimed(dibs: AsyncDibs) -> None:
    async with dibs.claim("user:1", window=60):
        await asyncio.sleep(0)


async def claim_waiting_here(dibs: AsyncDibs) -> None:
    async def other() -> None:
        async with dibs.claim("user:1", window=60, wait=10):
            await asyncio.sleep(0.005)

    task = asyncio.ensure_future(other())
    try:
        async with dibs.claim("user:1", window=60, wait=10):
            await asyncio.sleep(0.005)
    finally:
        task.cancel()
        await asyncio.wait([task])


async def kept_a_moment(dibs: AsyncDibs) -> None:
    async with dibs.hold("user:1", ttl=60, at_least=0.05):
        await asyncio.sleep(0)


async def limited(dibs: AsyncDibs) -> None:
    # Its key must be free for a lease without a limit afterwards.
    async with dibs.hold("user:1", ttl=60, limit=2, fence=True):
        async with dibs.hold("user:1", ttl=60, limit=2) as lease:
            await lease.extend(50)


SCENARIOS = [
    acquire_and_release, fenced, renewed, extended, waiting_here, claimed, claim_waiting_here,
    kept_a_moment,
]  # fmt: skip


async def nothing_is_left(server: Server) -> None:
    await aeventually(lambda: not server.client().exists("user:1"))


@pytest.mark.parametrize("warm", [False, True], ids=["connecting", "connected"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_a_hold_is_cancelled_at_every_suspension(
    valkey: Server, scenario: Scenario, warm: bool
) -> None:
    """At the k-th suspension, for every k: CancelledError reaches the caller, no key stays."""
    for step in range(MOST_STEPS):
        async with AsyncDibs(valkey.url, budget=5) as dibs:
            if warm:
                await dibs.peek("warm:up")
            if not await run_cancelled_at(step, scenario(dibs)):
                assert step > 0
                return
            # The same object works at once afterwards.
            async with dibs.hold("user:1", ttl=60, wait=5):
                pass
        await nothing_is_left(valkey)
    pytest.fail("there was no end to the suspensions")


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_a_hold_is_cancelled_after_every_tick(valkey: Server, scenario: Scenario) -> None:
    """From outside, after k loop ticks: replies may be there already, and not yet seen."""
    for ticks in range(40):
        async with AsyncDibs(valkey.url, budget=5) as dibs:
            await dibs.peek("warm:up")
            await cancelled_after(ticks, scenario(dibs))
        await nothing_is_left(valkey)


@pytest.mark.parametrize("way", [run_cancelled_at, cancelled_after])
async def test_a_permit_is_cancelled_at_every_moment(valkey: Server, way: Any) -> None:
    """At every suspension, and after every tick: no permit is left behind."""
    for step in range(30):
        async with AsyncDibs(valkey.url, budget=5) as dibs:
            await dibs.peek("warm:up")
            await way(step, limited(dibs))
            await nothing_is_left(valkey)


async def test_a_waiter_elsewhere_is_cancelled_and_leaves_the_holder_alone(valkey: Server) -> None:
    """Waiting for another holder's key, cancelled at every suspension: the key stays theirs."""
    async with AsyncDibs(valkey.url, budget=5) as other, other.hold("user:1", ttl=60) as lease:
        for step in range(8):
            async with AsyncDibs(valkey.url, budget=5) as dibs:

                async def body(step: int = step, dibs: AsyncDibs = dibs) -> None:
                    await cancelled_at(step, dibs.try_hold("user:1", ttl=60, wait=0.2))

                task = asyncio.ensure_future(body())
                await asyncio.wait([task])
            assert valkey.client().get("user:1") == lease.token.encode()


async def test_cancelled_while_the_reply_is_lost(valkey: Server) -> None:
    """Cancelled, and then the line breaks: what must be delivered is delivered on the next one."""
    for step in (1, 2, 3):
        with FaultProxy(valkey.port) as proxy:
            async with AsyncDibs(proxy.url, budget=5) as dibs:
                await dibs.peek("warm:up")
                proxy.delay(replies=0.05)
                task = asyncio.ensure_future(acquire_and_release(dibs))
                await asyncio.sleep(0.02 * step)
                task.cancel()
                proxy.cut()
                await asyncio.wait([task])
                proxy.heal()
                await nothing_is_left(valkey)


async def test_a_lost_lease_cancels_its_body_and_nothing_else(own_server: Server) -> None:
    """Renewal fails past the deadline: the body is cancelled, LeaseLost raised, the task lives."""
    async with AsyncDibs(own_server.url) as dibs:
        with pytest.raises(LeaseLost):
            async with dibs.hold("user:1", ttl=0.5, renew=True) as lease:
                own_server.freeze()
                await asyncio.sleep(30)
        assert lease.lost
        task = asyncio.current_task()
        assert task is not None and task.cancelling() == 0
        await asyncio.sleep(0)
        own_server.thaw()


async def test_a_lost_lease_and_a_body_that_ends_by_itself(own_server: Server) -> None:
    """The body ends in the moment the lease is lost: LeaseLost, and no stray cancellation later."""
    async with AsyncDibs(own_server.url) as dibs:
        with pytest.raises(LeaseLost):
            async with dibs.hold("user:1", ttl=0.3, renew=True, max_hold=0.3) as lease:
                while not lease.lost:
                    # Never awaits: the cancellation cannot be delivered inside the body.
                    pass
                dibs._leases.lose(lease._state, "ended by the test")
        for _ in range(3):
            await asyncio.sleep(0)


@pytest.mark.parametrize("way", ["ended", "collected"])
async def test_a_block_that_was_entered_by_a_task_that_has_ended(
    own_server: Server, way: str
) -> None:
    """Nobody can be cancelled: its end raises LeaseLost, in whichever task that is."""
    async with AsyncDibs(own_server.url, budget=1) as dibs:
        stack = contextlib.AsyncExitStack()
        lease = None

        async def enter() -> None:
            nonlocal lease
            lease = await stack.enter_async_context(dibs.hold("user:1", ttl=0.3, renew=True))

        task: Any = asyncio.ensure_future(enter())
        await task
        if way == "collected":
            del task
            gc.collect()
        own_server.client().set("user:1", "somebody else")
        assert lease is not None
        await aeventually(lambda: lease.lost)
        with pytest.raises(LeaseLost):
            await stack.aclose()
        current = asyncio.current_task()
        assert current is not None and not current.cancelling()
    assert own_server.client().get("user:1") == b"somebody else"


async def test_a_foreign_cancellation_goes_first(own_server: Server) -> None:
    """Cancelled from outside while the lease is lost as well: it stays a cancellation."""
    async with AsyncDibs(own_server.url) as dibs:

        async def body() -> None:
            async with dibs.hold("user:1", ttl=60, renew=True) as lease:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                dibs._leases.lose(lease._state, "ended by the test")
                await asyncio.sleep(30)

        task = asyncio.ensure_future(body())
        await asyncio.wait([task])
        assert task.cancelled()


@pytest.mark.parametrize("ending", ["returns", "raises"])
async def test_a_cancellation_and_a_loss_that_meet_at_the_end(valkey: Server, ending: str) -> None:
    """Both come while the body ends by itself, without another await: the cancellation arrives."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        after = False

        async def body() -> None:
            nonlocal after
            task = asyncio.current_task()
            assert task is not None
            async with dibs.hold("user:1", ttl=60, renew=True) as lease:
                task.cancel()
                dibs._leases.lose(lease._state, "ended by the test")
                if ending == "raises":
                    raise LookupError
            after = True

        task = asyncio.ensure_future(body())
        await asyncio.wait([task])
        assert task.cancelled() and not after
        await nothing_is_left(valkey)


async def test_two_lost_leases_around_one_body(valkey: Server) -> None:
    """Both are lost in one moment: LeaseLost, and the task is not cancelled afterwards."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        with pytest.raises(LeaseLost):
            async with dibs.hold("user:1", ttl=60, renew=True) as outer:
                async with dibs.hold("user:2", ttl=60, renew=True) as inner:
                    dibs._leases.lose(inner._state, "ended by the test")
                    dibs._leases.lose(outer._state, "ended by the test")
        task = asyncio.current_task()
        assert task is not None and task.cancelling() == 0
        await asyncio.sleep(0)


async def test_a_repeated_acquire_whose_caller_is_cancelled(valkey: Server) -> None:
    """The second connection takes the key: it is released, and the first copy takes nothing."""
    with FaultProxy(valkey.port) as proxy:
        async with AsyncDibs(proxy.url, budget=4) as dibs:
            await dibs.peek("warm:up")
            proxy.hold_requests(match=b"user:1")
            task = asyncio.ensure_future(dibs.try_hold("user:1", ttl=60))
            await aeventually(lambda: proxy.triggered == 1)
            proxy.delay(replies=0.15)
            # On the second connection, after half the budget; its reply is still on its way.
            await aeventually(lambda: valkey.client().exists("user:1") == 1, within=90)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            await nothing_is_left(valkey)
            proxy.deliver()
            for _ in range(3):
                valkey.client().ping()
            assert valkey.keys() == []


def test_an_opening_over_tls_that_is_cancelled_leaves_no_transport(
    valkey: Server, tmp_path: Path
) -> None:
    """pytest fails a test that leaves one to the garbage collector, which closes it late."""

    async def open_and_close(place: Any) -> None:
        opened = await open_async(
            place, Negotiation(), Limits.of(5), lambda each: AsyncConnection(each, Mock(), Mock())
        )
        opened.abort()

    async def cancel_at(step: int, place: Any) -> bool:
        with contextlib.suppress(asyncio.CancelledError):
            return await asyncio.ensure_future(cancelled_at(step, open_and_close(place)))
        return True

    with FaultProxy(valkey.port, tls=Certificates(tmp_path)) as line:
        place = parse_target(line.url, redis.asyncio)
        steps = 0
        while asyncio.run(cancel_at(steps, place)) and steps < MOST_STEPS:
            gc.collect()
            steps += 1
    assert 3 < steps < MOST_STEPS


async def test_timeouts_around_a_hold_work(valkey: Server) -> None:
    """asyncio.timeout() around a waiting hold: TimeoutError, and no key."""
    async with AsyncDibs(valkey.url, budget=5) as one, AsyncDibs(valkey.url, budget=5) as two:
        async with one.hold("user:1", ttl=60):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05), two.hold("user:1", ttl=60, wait=30):
                    pytest.fail("held twice")
        async with two.hold("user:1", ttl=5):
            pass


async def test_a_caller_that_tries_and_tries_does_not_starve_the_others(own_server: Server) -> None:
    """An outage is answered at once, but others get their turn in between."""
    async with AsyncDibs(own_server.url, budget=0.1, on_outage="closed") as dibs:
        own_server.kill()
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.ensure_future(other())
        for _ in range(100):
            with contextlib.suppress(Unavailable):
                await dibs.try_hold("user:1", ttl=5)
        task.cancel()
        assert turns > 50


def test_a_dibs_may_live_through_several_event_loops(valkey: Server) -> None:
    """asyncio.run() again and again with one AsyncDibs: it reconnects, renewals included."""
    dibs = AsyncDibs(valkey.url, budget=5)

    async def work() -> bool:
        async with dibs.hold("user:1", ttl=1.5, renew=True) as lease:
            await asyncio.sleep(2)
            return lease.lost

    async def last() -> bool:
        lost = await work()
        await dibs.aclose()
        return lost

    async def first() -> bool:
        lost = await work()
        dibs._store.transport.reconnect()  # its loop ends: leave no open transport behind
        await asyncio.sleep(0.05)
        return lost

    assert asyncio.run(first()) is False
    assert asyncio.run(first()) is False
    assert asyncio.run(last()) is False
