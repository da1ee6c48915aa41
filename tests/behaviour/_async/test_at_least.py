"""What `at_least=` promises, on every engine."""

import time
from typing import Any

import pytest

from dibs import AsyncDibs, Busy, Event, UsageError
from dibs.testing import FaultProxy, Server

from .._tasks import Background, eventually, sleep


async def test_busy_says_whether_the_key_is_held_or_cooling(server: Server) -> None:
    """state is "held" while the block runs, and "cooling" once it has ended and at_least keeps the
    key: here, elsewhere, for a waiter whose time is over, and for peek()."""
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:

        async def state(dibs: AsyncDibs, wait: float = 0) -> tuple[str, str | None]:
            with pytest.raises(Busy) as caught:
                async with dibs.hold("user:1", ttl=5, wait=wait):
                    pytest.fail("held twice")
            assert "cooling" not in str(caught.value)
            assert ("released" in str(caught.value)) == (caught.value.state == "cooling")
            return caught.value.state, caught.value.holder

        here = one._leases.identity.holder
        async with one.hold("user:1", ttl=60, at_least=60):
            assert [await state(dibs) for dibs in (one, two)] == [("held", here)] * 2
            holding = await two.peek("user:1")
            assert holding is not None and holding.state == "held"
            waiter = Background(state, two, 20.0)
            await eventually(lambda: b"user:1" in two._leases.waiters.queues)
        assert [await state(dibs) for dibs in (one, two)] == [("cooling", here)] * 2
        assert await state(two, 0.01) == ("cooling", here)
        holding = await two.peek("user:1")
        assert holding is not None and holding.state == "cooling" and holding.holder == here
        await two.aclose()
        with pytest.raises(UsageError):
            await waiter.result()


async def test_a_permit_that_cools_says_so(server: Server) -> None:
    """With limit=, state is that of the permit that is free first."""
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        options: dict[str, Any] = {"ttl": 60, "limit": 1}
        for dibs in (one, two):
            with pytest.raises(Busy) as caught:
                async with one.hold("user:1", at_least=30, **options):
                    async with dibs.hold("user:1", **options):
                        pytest.fail("held twice")
            assert caught.value.state == "held"
            with pytest.raises(Busy) as caught:
                async with dibs.hold("user:1", **options):
                    pytest.fail("held twice")
            assert caught.value.state == "cooling" and caught.value.retry_after <= 30
            assert caught.value.holder == one._leases.identity.holder
            server.client().delete("user:1")


async def test_a_release_that_is_sent_twice_cools_once(valkey: Server, proxy: FaultProxy) -> None:
    """Its reply was lost, and it was repeated: it is released all the same."""
    events: list[Event] = []
    async with AsyncDibs(proxy.url, listeners=[events.append]) as dibs:
        lease = await dibs.try_hold("user:1", ttl=60, at_least=60)
        assert lease is not None
        proxy.swallow_replies()
        assert await lease.release()
        assert await dibs.try_hold("user:1", ttl=60) is None
    assert [event.kind for event in events] == ["acquired", "released", "busy"]


async def test_a_key_that_is_released_early_stays_taken(server: Server) -> None:
    """release() returns True at once, but the key stays taken, here and elsewhere, until at_least
    ends."""
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        lease = await one.try_hold("user:1", ttl=60, at_least=2)
        assert lease is not None
        assert await lease.release() is True
        assert lease.lost and lease.remaining == 0.0
        for dibs in (one, two):
            with pytest.raises(Busy) as caught:
                async with dibs.hold("user:1", ttl=5):
                    pytest.fail("held twice")
            assert 0 < caught.value.retry_after <= 2
            assert caught.value.holder == one._leases.identity.holder
        assert 0 < server.client().pttl("user:1") <= 2050
        holding = await one.peek("user:1")
        assert holding is not None and holding.remaining <= 2
        await eventually(lambda: server.keys() == [])
        async with one.hold("user:1", ttl=5):
            pass


async def test_a_release_with_at_least_is_one_round_trip(server: Server) -> None:
    """The release shortens the ttl instead of deleting; refusals here need no request."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        async with dibs.hold("warm:up", ttl=5, at_least=0.001):
            pass
        lease = await dibs.try_hold("user:1", ttl=60, at_least=30)
        assert lease is not None
        before = server.commands()
        assert await lease.release()
        # A script counts the commands it runs, too: EVAL, GET, PEXPIRE.
        assert server.commands() - before <= 3
        before = server.commands()
        assert await dibs.try_hold("user:1", ttl=5) is None
        assert server.commands() == before


async def test_a_block_that_outlasts_at_least_gives_its_key_back(server: Server) -> None:
    """Longer than at_least: released as ever."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        async with dibs.hold("user:1", ttl=60, at_least=0.05):
            await sleep(0.1)
        assert server.keys() == []


async def test_a_body_that_raises_keeps_its_key_as_long(server: Server) -> None:
    """The key stays taken, also if the body raises."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        with pytest.raises(LookupError):
            async with dibs.hold("user:1", ttl=60, at_least=30):
                raise LookupError
        assert 20_000 < server.client().pttl("user:1") <= 30_050


async def test_with_renewal_it_is_counted_from_the_acquire(server: Server) -> None:
    """A renewed lease is cut to what is left of at_least, not of its last renewal."""
    async with AsyncDibs(server.url, budget=5) as dibs:
        async with dibs.hold("user:1", ttl=30, renew=True, at_least=20) as lease:
            assert await lease.extend(60)
        assert 10_000 < server.client().pttl("user:1") <= 20_050
        assert await dibs.try_hold("user:1", ttl=5) is None


async def test_waiters_get_it_when_at_least_is_over(server: Server) -> None:
    """The release wakes them, they see how long it takes still, and come back in time."""
    async with AsyncDibs(server.url, budget=5) as one, AsyncDibs(server.url, budget=5) as two:
        lease = await one.try_hold("user:1", ttl=30, at_least=1)
        assert lease is not None
        since = time.monotonic()

        async def wait(dibs: AsyncDibs) -> float:
            async with dibs.hold("user:1", ttl=5, wait=15):
                return time.monotonic() - since

        waiters = [Background(wait, dibs) for dibs in (one, two)]
        await sleep(0.1)
        await lease.release()
        for waiter in waiters:
            assert 0.9 < await waiter.result() < 5, "not before, and not when the ttl ends"


async def test_a_decorated_function_keeps_its_key(server: Server) -> None:
    """exclusive(at_least=…): the next tap is refused though the answer was quick."""
    async with AsyncDibs(server.url, budget=5) as dibs:

        @dibs.exclusive("tap:{user_id}", ttl=30, at_least=20, busy=lambda error: "wait")
        async def answer(user_id: str) -> str:
            return "sunny"

        assert [await answer("a") for _ in range(3)] == ["sunny", "wait", "wait"]
        assert await answer("b") == "sunny"


async def test_a_lease_that_was_lost_keeps_nothing(server: Server) -> None:
    """Another holder's key is not touched by a late release with at_least."""
    events: list[Event] = []
    async with AsyncDibs(server.url, budget=5, listeners=[events.append]) as dibs:
        lease = await dibs.try_hold("user:1", ttl=60, at_least=30)
        assert lease is not None
        server.client().set("user:1", "another", px=50_000)
        assert await lease.release() is False
        assert server.client().get("user:1") == b"another"
        assert server.client().pttl("user:1") > 40_000
    assert [event.kind for event in events] == ["acquired", "late"]


async def test_a_slow_reply_does_not_shorten_it(valkey: Server, proxy: FaultProxy) -> None:
    """It counts from the moment the caller has the key, not from the request for it."""
    async with AsyncDibs(proxy.url, budget=5) as dibs:
        await dibs.peek("warm:up")
        proxy.delay(replies=1.0)
        lease = await dibs.try_hold("user:1", ttl=60, at_least=60)
        assert lease is not None
        proxy.delay()
        assert await lease.release()
        assert valkey.client().pttl("user:1") > 59_300


async def test_at_least_is_checked(server: Server) -> None:
    """Not longer than the ttl, not negative: UsageError, before anything is sent."""
    async with AsyncDibs(server.url) as dibs:
        with pytest.raises(UsageError, match="at_least"):
            dibs.hold("user:1", ttl=5, at_least=6)
        with pytest.raises(UsageError, match="at_least"):
            await dibs.try_hold("user:1", ttl=5, at_least=-1)
        with pytest.raises(UsageError, match="at_least"):
            dibs.exclusive("user:{id}", ttl=5, at_least=5.1)
        async with dibs.hold("user:1", ttl=5, at_least=5):
            pass
