"""Read by pyright, never run: what users write must type-check as they expect."""

import math
from datetime import timedelta
from typing import Any, assert_type

import redis
import redis.asyncio

from dibs import (
    AsyncClaim,
    AsyncDibs,
    AsyncLease,
    Busy,
    Claim,
    Dibs,
    Event,
    Holding,
    Lease,
    __version__,
)

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
        token = await lease.detach(ttl=60)
        assert_type(token, str)
    assert_type(await adibs.try_hold("a:1", ttl=5), AsyncLease | None)
    async with adibs.hold("a:1", ttl=5, token=token):
        pass
    async with adibs.hold("a:2", ttl=5, limit=3) as lease:
        assert_type(lease, AsyncLease)
    holding = await adibs.peek("a:1")
    if holding is not None:
        assert_type(holding.remaining, float)

    async with adibs.leader("indexer", ttl=15, wait=3) as leader:
        assert_type(leader, AsyncLease)

    @adibs.scheduled("0 3 * * *", key="nightly", timezone="Asia/Taipei", missed="skip")
    async def nightly() -> int:
        return 1

    @adibs.scheduled(every=timedelta(minutes=5), key="often", at_least=60)
    async def often() -> None: ...

    assert_type(await nightly(), int)
    async with adibs.scheduler(drain=30) as scheduler:
        scheduler.look()

    @adibs.exclusive("a:{user_id}", ttl=5, busy=lambda error: None)
    async def work(user_id: str, *, times: int = 1) -> int:
        return times

    assert_type(await work("u", times=2), int)

    @adibs.once("o:{user_id}", window=10, after="replay", payload=["items"], message="…")
    async def order(user_id: str, items: list[str]) -> int:
        return len(items)

    assert_type(await order("u", ["a"]), int)
    async with adibs.claim("o:1", window=10, after="replay", payload={"a": 1}) as claim:
        assert_type(claim.replayed, bool)
        assert_type(claim.complete(17), Any)
    async with adibs.claim("o:2", window=10, note="job-17", token=None) as claim:
        assert_type(claim.note, str | None)
        assert_type(await claim.set_note("job-18"), bool)
        assert_type(await claim.detach(ttl=60), str)
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


def options() -> None:
    with dibs.hold("a:1", ttl=5, at_least=1, on_late="raise", renew=True):
        pass
    assert_type(dibs.try_hold("a:1", ttl=5, at_least=timedelta(seconds=1)), Lease | None)

    @dibs.once("o:{n}", window=5, wait=1, duplicate=lambda error: error.retry_after)
    def work(n: int) -> float:
        return 1.0

    assert_type(work(1), float)
    with dibs.claim("o:1", window=5, wait=1) as claim:
        assert_type(claim.guarded, bool)


def annotations(claim: Claim, holding: Holding | None) -> str:
    """What users write in their own signatures."""
    assert_type(dibs.peek("a:1"), Holding | None)
    with dibs.claim("a:1", window=5) as own:
        assert_type(own, Claim)
    return __version__


async def asynchronous_annotations(adibs: AsyncDibs, claim: AsyncClaim) -> None:
    async with adibs.claim("a:1", window=5) as own:
        assert_type(own, AsyncClaim)


class Order:
    """What a claim returns."""


def refused(error: Busy, user: str) -> str:
    return f"{user}: {error}"


def placed(key: str) -> Order:
    """The first example of every page: nothing in it is Any."""
    with dibs.claim(key, window=10, after="replay", type=Order) as claim:
        assert_type(claim, Claim[Order])
        if claim.replayed:
            return claim.result
        return claim.complete(Order())


async def placed_async(adibs: AsyncDibs, key: str) -> list[int]:
    async with adibs.claim(key, window=10, after="replay", type=list[int]) as claim:
        assert_type(claim.result, list[int])
        return claim.result


@dibs.cached("count:{user}", ttl=5)
def count(user: str) -> int:
    return len(user)


@dibs.exclusive("chat:{user}", ttl=5, busy=refused, wait=math.inf)
def chat(user: str) -> str:
    return user


def stored() -> int:
    found = count.peek("ann")
    assert_type(found.value if found is not None else 0, int)
    return 0 if found is None else found.value
