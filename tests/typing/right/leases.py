"""Programs with leases that every checker must accept."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from datetime import timedelta
from typing import ParamSpec, Protocol, TypeVar, assert_type, overload

from dibs import AsyncDibs, AsyncLease, Busy, Dibs, DibsError, Lease, LeaseLost, Unavailable

P = ParamSpec("P")
T = TypeVar("T")
shop = Dibs("redis://localhost", namespace="shop:")
kitchen = AsyncDibs("redis://localhost", namespace="kitchen:")


# ---- a function that returns out of the block
def sell(seat: str) -> float:
    try:
        with shop.hold(f"seat:{seat}", ttl=timedelta(seconds=5), wait=0.5) as lease:
            assert_type(lease, Lease)
            return lease.remaining
    except Busy as busy:
        return busy.retry_after


# ---- a loop that stops when its lease is lost
def drain(rows: list[str]) -> int:
    done = 0
    with shop.hold("drain", ttl=5, renew=True, max_hold=60, on_late="raise") as lease:
        for _ in rows:
            lease.check()
            done += 1
            if lease.lost:
                break
    return done


# ---- a lease that may be None
async def cook(pot: str) -> str:
    lease = await kitchen.try_hold(f"pot:{pot}", ttl=5, fence=True)
    if lease is None:
        return "taken"
    assert_type(lease, AsyncLease)
    try:
        return f"{lease.fence} {lease.key}" if lease.fence is not None else "unguarded"
    finally:
        await lease.release()


# ---- a lease in a walrus
def polish(table: int) -> bool:
    if (lease := shop.try_hold(f"table:{table}", ttl=5)) is not None:
        return lease.release()
    return False


# ---- a lease that is handed to another process
async def hand_over(order: str) -> str:
    async with kitchen.hold(f"order:{order}", ttl=5) as lease:
        return await lease.detach(ttl=60)


async def take_over(order: str, token: str) -> bool:
    async with kitchen.hold(f"order:{order}", ttl=5, token=token) as lease:
        return await lease.extend(30)


# ---- several leases, as many as there are
def hold_all(keys: list[str]) -> list[Lease]:
    with ExitStack() as stack:
        return [stack.enter_context(shop.hold(key, ttl=5, limit=3)) for key in sorted(keys)]


async def hold_both(first: str, second: str) -> None:
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(kitchen.hold(first, ttl=5))
        await stack.enter_async_context(kitchen.hold(second, ttl=5))


# ---- a context manager of one's own
@contextmanager
def oven(number: int) -> Iterator[Lease]:
    with shop.hold(f"oven:{number}", ttl=30) as lease:
        yield lease


@asynccontextmanager
async def grill(number: int) -> AsyncIterator[AsyncLease]:
    async with kitchen.hold(f"grill:{number}", ttl=30) as lease:
        yield lease


def bake() -> float:
    with oven(1) as lease:
        return lease.remaining


# ---- exclusive functions keep their parameters
@shop.exclusive("count:{shelf}", ttl=5, wait=1)
def count(shelf: str, *, twice: bool = False) -> int:
    return len(shelf) * (2 if twice else 1)


@kitchen.exclusive("stir:{pot}", ttl=5, busy=lambda error: error.retry_after)
async def stir(pot: str, /, times: int = 1) -> float:
    return times / 2


async def use_exclusive() -> None:
    assert_type(count("a", twice=True), int)
    assert_type(await stir("a", times=2), float)


# ---- exclusive methods, of every kind
class Shelf:
    name = "a"

    @shop.exclusive("shelf:{self.name}", ttl=5)
    def tidy(self, rows: int) -> str:
        return self.name * rows

    @kitchen.exclusive("shelf:{self.name}", ttl=5)
    async def fill(self, rows: int) -> str:
        return self.name * rows

    @staticmethod
    @shop.exclusive("shelves:{city}", ttl=5)
    def number(city: str) -> int:
        return len(city)

    @classmethod
    @shop.exclusive("shelf-class:{city}", ttl=5)
    def build(cls, city: str) -> "Shelf":
        return cls() if city else Shelf()


async def use_shelf(shelf: Shelf) -> None:
    assert_type(shelf.tidy(2), str)
    assert_type(await shelf.fill(2), str)
    assert_type(Shelf.number("x"), int)
    assert_type(Shelf.build("x"), Shelf)


# ---- what stands in place of a refused call
def refuse(error: Busy, pot: str) -> str:
    return f"{pot}: in {error.retry_after:.0f} s"


@shop.exclusive("pot:{pot}", ttl=5, busy=refuse)
def scrub(pot: str) -> str:
    return pot


# ---- a decorator of one's own around one of dibs
def alone(name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            with shop.hold(name, ttl=5):
                return function(*args, **kwargs)

        return call

    return decorate


@alone("till")
def open_till(code: int) -> bytes:
    return bytes(code)


assert_type(open_till(3), bytes)


# ---- a protocol that a class with exclusive methods has
class Tidies(Protocol):
    def tidy(self, rows: int) -> str: ...


def tidy_all(shelves: list[Tidies]) -> list[str]:
    return [each.tidy(1) for each in shelves]


tidy_all([Shelf(), Shelf()])


# ---- overloads below a plain function that is exclusive
@overload
def weigh(what: str) -> float: ...
@overload
def weigh(what: list[str]) -> list[float]: ...
def weigh(what: str | list[str]) -> float | list[float]:
    with shop.hold("scales", ttl=5):
        return [len(each) / 2 for each in what] if isinstance(what, list) else len(what) / 2


assert_type(weigh("a"), float)
assert_type(weigh(["a"]), list[float])


# ---- many at once
async def cook_all(pots: list[str]) -> list[str]:
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(cook(pot)) for pot in pots]
    first = await asyncio.wait_for(kitchen.peek("pot:a"), 1)
    return [task.result() for task in tasks] + ([] if first is None else [first.holder or ""])


# ---- every error in one place
def explain(error: DibsError) -> str:
    match error:
        case Busy(state="throttled", retry_after=after):
            return f"later: {after}"
        case Busy(holder=str(holder)):
            return holder
        case LeaseLost(fence=fence):
            return str(fence)
        case Unavailable() as outage:
            return outage.cause
        case _:
            return str(error)
