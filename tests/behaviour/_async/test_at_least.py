"""What `at_least=` promises, on every engine."""

import time

import pytest

from dibs import AsyncDibs, Busy, Event, UsageError
from dibs.testing import FaultProxy, Server

from .._tasks import Background, eventually, sleep


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
