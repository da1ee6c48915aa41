"""Read by pyright, never run: what users write must type-check as they expect."""

from datetime import timedelta
from typing import assert_type

import redis
import redis.asyncio

from dibs import AsyncDibs, AsyncLease, Busy, Dibs, Event, Holding, Lease

dibs = Dibs("redis://localhost", namespace="app:", budget=0.1, on_outage="closed")
from_client = Dibs(redis.Redis())


def listener(event: Event) -> None:
    assert_type(event.name, str)


async def asynchronous() -> None:
    adibs = AsyncDibs(redis.asyncio.Redis(), listeners=[listener])
    async with adibs.hold(
        "a:1", ttl=timedelta(seconds=5), wait=1, renew=True, max_hold=60
    ) as lease:
        assert_type(lease, AsyncLease)
        assert_type(await lease.extend(3), bool)
        assert_type(lease.remaining, float)
    assert_type(await adibs.try_hold("a:1", ttl=5), AsyncLease | None)
    assert_type(await adibs.peek("a:1"), Holding | None)

    @adibs.exclusive("a:{user_id}", ttl=5, busy=lambda error: None)
    async def work(user_id: str, *, times: int = 1) -> int:
        return times

    assert_type(await work("u", times=2), int)
    await adibs.aclose()


def threads() -> None:
    with dibs.hold("a:1", ttl=5, fence=True) as lease:
        assert_type(lease, Lease)
        assert_type(lease.fence, int | None)
        lease.check()
    assert_type(dibs.try_hold("a:1", ttl=5), Lease | None)

    @dibs.exclusive("a:{user_id}", ttl=5)
    def work(user_id: str) -> str:
        return user_id

    assert_type(work("u"), str)
    try:
        work("u")
    except Busy as error:
        assert_type(error.retry_after, float)
        assert_type(error.holder, str | None)
