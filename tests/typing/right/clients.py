"""Programs that make, wrap and close clients, which every checker must accept."""

import logging
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Literal, TypedDict, assert_type

import redis
import redis.asyncio
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.sentinel import Sentinel

import dibs as library
from dibs import AsyncDibs, Dibs, Event, Lease


# ---- everything that a client is made of
def clients() -> list[Dibs]:
    return [
        Dibs("redis://localhost"),
        Dibs("rediss://localhost:6380/3?ssl_cert_reqs=none", namespace="a:", budget=0.1),
        Dibs(redis.Redis(), on_outage="closed", connect=2),
        Dibs(redis.RedisCluster("localhost")),
        Dibs(Sentinel([("localhost", 26379)]).master_for("main")),
        Dibs("embedded://"),
    ]


async def async_clients() -> list[AsyncDibs]:
    return [
        AsyncDibs(redis.asyncio.Redis()),
        AsyncDibs(AsyncSentinel([("localhost", 26379)]).master_for("main")),
        AsyncDibs("redis+sentinel://localhost:26379/main"),
    ]


# ---- a client for the length of a block
def peek(url: str) -> float | None:
    with Dibs(url, namespace="a:") as client:
        assert_type(client, Dibs)
        holding = client.peek("key")
        return holding.remaining if holding else None


# ---- a subclass is itself in its block
class Shop(Dibs):
    def sell(self, seat: str) -> Lease | None:
        return self.try_hold(f"seat:{seat}", ttl=5)


class AsyncShop(AsyncDibs):
    async def sell(self, seat: str) -> bool:
        return await self.try_hold(f"seat:{seat}", ttl=5) is not None


async def use_shop(url: str) -> None:
    with Shop(url) as shop:
        assert_type(shop.sell("a1"), Lease | None)
    async with AsyncShop(url) as async_shop:
        assert_type(await async_shop.sell("a1"), bool)


# ---- the client is called as the module is, and has its errors
dibs = Dibs("redis://localhost")


def hold_or_not(key: str) -> bool:
    try:
        with dibs.hold(key, ttl=5):
            return True
    except dibs.Busy as busy:
        assert_type(busy.retry_after, float)
    except (dibs.Unavailable, dibs.LeaseLost):
        pass
    return False


# ---- the module, and its names
def version() -> str:
    try:
        library.Dibs("redis://localhost").close()
    except library.UsageError as error:
        return str(error)
    return library.__version__


# ---- options from a typed dictionary
class Waiting(TypedDict, total=False):
    wait: float
    on_outage: Literal["open", "closed"]


PATIENT: Waiting = {"wait": 3, "on_outage": "closed"}


def wait_for(key: str) -> str:
    with dibs.hold(key, ttl=5, **PATIENT) as lease:
        return lease.token


# ---- one option that comes from a setting
def by_setting(key: str, *, wait: float | None, closed: bool) -> None:
    policy: Literal["open", "closed"] = "closed" if closed else "open"
    with dibs.hold(key, ttl=5, wait=wait or 0, on_outage=policy):
        pass


# ---- a listener that is a function, and one that is an object
class Counting:
    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def __call__(self, event: Event) -> None:
        self.counts[event.name] = self.counts.get(event.name, 0) + 1


def log(event: Event) -> None:
    logging.getLogger("shop").info("%s %s", event.name, event.kind)


listening = Dibs("redis://localhost", listeners=[log, Counting()])


# ---- a client that is part of a service
class Service:
    def __init__(self, client: Dibs) -> None:
        self._client = client

    def __enter__(self) -> "Service":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._client.close()


# ---- a fixture of one's own
def fixture() -> Iterator[Dibs]:
    with Dibs("embedded://") as client:
        yield client


def anything(value: Any) -> None:
    """What is Any stays Any."""
    with dibs.hold(value, ttl=value, wait=value):
        pass
