"""Awaits that are missing or too many, wrong statements, and results of another type."""

from dibs import AsyncClaim, AsyncDibs, AsyncLease, Busy, Claim, Dibs, Duplicate, Event, Lease

shop = Dibs("redis://localhost")
kitchen = AsyncDibs("redis://localhost")


async def statements() -> None:
    with kitchen.hold("pot", ttl=5):  # wrong: `async with`
        pass
    async with shop.hold("pot", ttl=5):  # wrong: `with`
        pass
    with kitchen.claim("pot", window=5):  # wrong: `async with`
        pass
    async with shop.claim("pot", window=5):  # wrong: `with`
        pass
    with kitchen.leader("pot"):  # wrong: `async with`
        pass
    async with shop.scheduler():  # wrong: `with`
        pass
    with AsyncDibs("redis://localhost"):  # wrong: `async with`
        pass
    async with Dibs("redis://localhost"):  # wrong: `with`
        pass
    with shop.try_hold("pot", ttl=5):  # wrong: a lease or None
        pass
    await shop.hold("pot", ttl=5)  # wrong: nothing to await
    await kitchen.hold("pot", ttl=5)  # wrong: `async with`
    with shop.peek("pot"):  # wrong: a fact, not a lease
        pass
    with shop.throttle("sms", limit=5, per=1):  # wrong: it is counted already
        pass


async def awaits() -> None:
    if kitchen.try_hold("pot", ttl=5) is None:  # wrong: await; unseen by all
        return
    kitchen.try_hold("pot", ttl=5).release()  # wrong: await
    print(kitchen.peek("pot").remaining)  # wrong: await
    await shop.peek("pot")  # wrong: nothing to await
    await shop.try_hold("pot", ttl=5)  # wrong: nothing to await
    await shop.invalidate("menu")  # wrong: nothing to await
    await shop.close()  # wrong: nothing to await
    await kitchen.close()  # wrong: `aclose`
    kitchen.aclose()  # wrong: await; unseen by basedpyright, ty
    print(kitchen.throttle("sms", limit=5, per=1).left)  # wrong: await
    await kitchen.cached("menu", ttl=60)  # wrong: a decorator
    async with kitchen.hold("pot", ttl=5) as lease:
        left: float = await lease.remaining  # wrong: a number
        given: str = lease.detach(ttl=5)  # wrong: await
        is_longer: bool = lease.extend(5)  # wrong: await
        await lease.check()  # wrong: nothing to await
        await lease.extend()  # wrong: for how long?
        print(left, given, is_longer)


def results() -> None:
    with shop.hold("pot", ttl=5) as lease:
        lease.renew()  # wrong: `extend`
        lease.acquire()  # wrong: it is held
        lease.fence + 1  # wrong: may be None
        lease.lost()  # wrong: no call
        lease.key = "other"  # wrong: read only
        lease.remaining = 3  # wrong: read only
        print(lease.ttl)  # wrong: `remaining`
        text: int = lease.token  # wrong: text
        print(text)
    shop.try_hold("pot", ttl=5).release()  # wrong: may be None
    print(shop.peek("pot").holder)  # wrong: may be None
    asynchronous: AsyncLease | None = shop.try_hold("pot", ttl=5)  # wrong: a Lease
    print(asynchronous)
    shop.hold("pot", ttl=5).release()  # wrong: not entered
    shop.lock("pot", ttl=5)  # wrong: `hold`


def takes_lease(lease: Lease) -> None:
    print(lease)


async def passed_on() -> None:
    takes_lease(shop.hold("pot", ttl=5))  # wrong: not entered
    takes_lease(shop.try_hold("pot", ttl=5))  # wrong: may be None
    async with kitchen.hold("pot", ttl=5) as lease:
        takes_lease(lease)  # wrong: an AsyncLease


def claims() -> None:
    with shop.claim("order", window=60, after="replay", type=int) as claim:
        claim.complete("done")  # wrong: an int
        text: str = claim.result  # wrong: an int
        claim.replayed()  # wrong: no call
        claim.complete()  # wrong: what?
        claim.set_note(17)  # wrong: text
        other: Claim[str] = claim  # wrong: of an int
        asynchronous: AsyncClaim[int] = claim  # wrong: a Claim
        print(text, other, asynchronous)


async def async_claims() -> int:
    async with kitchen.claim("order", window=60, type=int) as claim:
        claim.set_note("a").upper()  # wrong: await
        await claim.complete(3)  # wrong: nothing to await
        return await claim.result  # wrong: nothing to await


def errors() -> None:
    try:
        shop.peek("pot")
    except Busy as busy:
        print(busy.retry_after.seconds)  # wrong: a float
        busy.holder.split(":")  # wrong: may be None
        busy.state = "later"  # wrong: no such state
    except Duplicate as duplicate:
        print(duplicate.state == "busy")  # wrong: "running" or "done"; unseen by all
        duplicate.message.upper()  # wrong: may be None
        print(duplicate.result)  # wrong: it has none
    raise Busy()  # wrong: of which key?


def listener(event: Event) -> None:
    print(event.retry_after.real)  # wrong: may be None
    event.name = "other"  # wrong: read only
    print(event.text)  # wrong: no such field
