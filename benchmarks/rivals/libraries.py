"""The documented calls of each library, behind the same four names: lock, once, cached, throttle.

Runs in the library's own environment, so only the standard library is imported at the top.
Everything is at its default, unless `setting` says otherwise. A library whose calls are plain
functions is called in threads, the others in the event loop.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from typing import Any

TTL = 10
"""Of a lock, where the library asks for it: seconds."""
WINDOW = 60
"""For which results and values are kept, where the library asks for it."""


class Library:
    """One library with one setting, at one server."""

    is_async = False

    def __init__(self, url: str, setting: str) -> None:
        self.url = url
        self.setting = setting

    async def open(self) -> None:
        """Connect."""


class Refused(Exception):
    """A call that the library refused by its return value; `retry_after` if it said so."""

    def __init__(self, retry_after: float | None = None) -> None:
        super().__init__("refused")
        self.retry_after = retry_after


def sentinel_of(url: str) -> tuple[str, int] | None:
    """Return host and port of the sentinel that a URL names."""
    if not url.startswith("redis+sentinel://"):
        return None
    host, _, port = url.split("/")[2].partition(":")
    return host, int(port)


def client(url: str, **options: Any) -> Any:
    """Return redis-py's client."""
    import redis
    from redis.sentinel import Sentinel

    if (address := sentinel_of(url)) is not None:
        return Sentinel([address]).master_for("main", **options)
    return redis.Redis.from_url(url, **options)


def async_client(url: str, **options: Any) -> Any:
    """Return redis-py's client for asyncio."""
    import redis.asyncio as redis
    from redis.asyncio.sentinel import Sentinel

    if (address := sentinel_of(url)) is not None:
        return Sentinel([address]).master_for("main", **options)
    return redis.Redis.from_url(url, **options)


class Dibs(Library):
    """`closed`: on_outage; `within`: the record is a row beside the work; the others: rates."""

    async def open(self) -> None:
        from dibs import Dibs

        self.dibs = Dibs(self.url, on_outage="closed" if self.setting == "closed" else "open")

    def lock(self, key: str) -> Any:
        return self.dibs.hold(key, ttl=TTL, renew=True)

    def once(self, key: str, work: Callable[[], str]) -> str:
        with self.dibs.claim(key, window=WINDOW, after="replay") as claim:
            return claim.result if claim.replayed else claim.complete(work())

    def cached(self, key: str, load: Callable[[], str]) -> str:
        return self.dibs.get_or_load(key, load, ttl=WINDOW, load_timeout=60)

    def throttle(self, key: str, limit: int) -> None:
        settings: dict[str, Any] = {"even": {"burst": 1}, "exact": {"exact": True}}
        more = settings.get(self.setting, {})
        self.dibs.throttle(key, limit=limit, per=1, **more)

    def order(self, key: str, database: str, reach: Callable[[str], None]) -> str:
        """Insert an order; `reach` is told when it is before and after its commit."""
        from sqlalchemy import create_engine, event, text
        from sqlalchemy.orm import Session, sessionmaker

        sessions = sessionmaker(create_engine(f"sqlite:///{database}"))
        placed: list[str] = []
        # dibs commits other transactions too: it makes its table.
        event.listen(sessions, "after_commit", lambda session: placed and reach("after"))

        @self.dibs.once("order:{key}", window=WINDOW, after="replay", within=sessions.begin)
        def place(session: Session, key: str) -> str:
            session.execute(text("insert into orders (name) values (:key)"), {"key": key})
            session.flush()
            reach("before")
            placed.append(key)
            return "paid"

        return place(key=key)


class Dbos(Library):
    """A workflow with one transaction, in SQLite."""

    def order(self, key: str, database: str, reach: Callable[[str], None]) -> str:
        from dbos import DBOS, SetWorkflowID, SQLAlchemyDatasource
        from sqlalchemy import text

        url = f"sqlite:///{database}"
        source = SQLAlchemyDatasource.create(url)
        DBOS(
            config={
                "name": "shop",
                "system_database_url": f"{url}.workflows",
                "run_admin_server": False,
            }
        )

        def insert(key: str) -> str:
            session = source.sql_session()
            session.execute(text("insert into orders (name) values (:key)"), {"key": key})
            session.flush()
            reach("before")
            return "paid"

        @DBOS.workflow()
        def place(key: str) -> str:
            result = source.run_tx_step(None, insert, key)
            reach("after")
            return result

        DBOS.launch()
        with SetWorkflowID(f"order:{key}"):
            return place(key)


class RedisPy(Library):
    """`impatient`: a client that waits for a quarter of a second and repeats nothing."""

    async def open(self) -> None:
        options: dict[str, Any] = {}
        if self.setting == "impatient":
            from redis.backoff import NoBackoff
            from redis.retry import Retry

            options = {"socket_timeout": 0.25, "retry": Retry(NoBackoff(), 0)}
        self.client = client(self.url, **options)

    def lock(self, key: str) -> Any:
        return self.client.lock(key, timeout=TTL, blocking=False)


class PythonRedisLock(Library):
    """`renewed`: with an end, and with its thread that renews it."""

    async def open(self) -> None:
        self.client = client(self.url)

    def lock(self, key: str) -> Any:
        from redis_lock import Lock

        options = {"expire": TTL, "auto_renewal": True} if self.setting == "renewed" else {}
        lock = Lock(self.client, key, **options)

        class Taken:
            def __enter__(self) -> None:
                if not lock.acquire(blocking=False):
                    raise Refused

            def __exit__(self, *_: object) -> None:
                lock.release()

        return Taken()


class Cashews(Library):
    """`lock`: the cache with `lock=True`; `raise`: errors of the client are raised."""

    is_async = True

    async def open(self) -> None:
        from cashews import Cache

        self.cache = Cache()
        self.cache.setup(self.url, suppress=self.setting != "raise")
        await self.cache.init()
        self._read: Any = None

    def lock(self, key: str) -> Any:
        cache = self.cache

        class Taken:
            async def __aenter__(self) -> None:
                self.value = os.urandom(8).hex()
                if not await cache.set_lock(key, self.value, expire=TTL):
                    raise Refused

            async def __aexit__(self, *_: object) -> None:
                await cache.unlock(key, self.value)

        return Taken()

    async def cached(self, key: str, load: Callable[[], str]) -> str:
        if self._read is None:

            @self.cache(ttl=WINDOW, key="value:{key}", lock=self.setting == "lock")
            async def read(key: str) -> str:
                return await asyncio.to_thread(load)

            self._read = read
        return await self._read(key)

    async def throttle(self, key: str, limit: int) -> None:
        from cashews import RateLimitError

        @self.cache.slice_rate_limit(limit=limit, period=1, key="calls:{key}")
        async def call(key: str) -> None: ...

        try:
            await call(key)
        except RateLimitError:
            raise Refused from None


class Idemkit(Library):
    """`lease`: of ten seconds, in place of thirty."""

    async def open(self) -> None:
        import logging

        from idemkit import RedisBackend

        logging.disable(logging.WARNING)
        self.backend = RedisBackend.from_url(self.url)

    def once(self, key: str, work: Callable[[], str]) -> str:
        from idemkit import MethodConfig, idempotent_sync

        more = {"lease_ttl_seconds": 10} if self.setting == "lease" else {}
        config = MethodConfig(key_fields=["key"], wait_timeout_seconds=0.001, **more)
        guarded = idempotent_sync(backend=self.backend, config=config)(lambda *, key: work())
        return guarded(key=key)


class RedisInfra(Library):
    """`patient`: its cache waits as long as the load may take."""

    async def open(self) -> None:
        from redis_infra import Cache, Idempotency, RedisConfig, RedisLock, redis_client

        sentinel = sentinel_of(self.url)
        made = client(self.url) if sentinel else redis_client(RedisConfig(url=self.url))
        self.client, self.locks = made, RedisLock(made)
        self.idempotency, self.cache = Idempotency(made), Cache(made)

    def lock(self, key: str) -> Any:
        return self.locks.acquire(key, blocking=False)

    def once(self, key: str, work: Callable[[], str]) -> str:
        return self.idempotency.execute(key, work)

    def cached(self, key: str, load: Callable[[], str]) -> str:
        more = {"lock_ttl": 60, "tries": 1200} if self.setting == "patient" else {}
        return self.cache.get_or_set(key, load, ttl=WINDOW, stampede=True, **more)

    def throttle(self, key: str, limit: int) -> None:
        from redis_infra import RateLimiter

        result = RateLimiter(self.client, limit=limit, window=1).allow(key)
        if not result.allowed:
            raise Refused(result.retry_after)


class ExactlyOnce(Library):
    """`probed`: a function looks whether the effect has happened, once the lease is over."""

    async def open(self) -> None:
        from exactly_once import Store

        if sentinel_of(self.url) is None:
            self.store = Store.redis(self.url)

    def once(self, key: str, work: Callable[[], str]) -> str:
        from exactly_once import ProbeResult, Verdict, check_then_decide, once

        more: dict[str, Any] = {}
        if self.setting == "probed":
            seen = ProbeResult(Verdict.COMMITTED, "paid")
            more = {"policy": check_then_decide(lambda key: seen), "lease_ttl": 10.0}
        return once(self.store, key=lambda: key, **more)(work)()


class Deduplex(Library):
    """`wait`: a duplicate waits; `ttl`: of ten seconds in place of a day."""

    async def open(self) -> None:
        from deduplex import Guard
        from deduplex.store.redis_store import RedisStore

        more: dict[str, Any] = {"on_race": "wait"} if self.setting == "wait" else {}
        self.guard = Guard(store=RedisStore(client(self.url)), **more)

    def once(self, key: str, work: Callable[[], str]) -> str:
        return self.guard.execute(key, work)


class Powertools(Library):
    """A Lambda function that ends after fifteen seconds, as its context says."""

    async def open(self) -> None:
        import warnings

        os.environ |= {"POWERTOOLS_SERVICE_NAME": "shop", "AWS_LAMBDA_FUNCTION_NAME": "pay"}
        warnings.simplefilter("ignore")
        from aws_lambda_powertools.utilities.idempotency.persistence.cache import (
            CachePersistenceLayer,
        )

        self.records = CachePersistenceLayer(client=client(self.url))

    def once(self, key: str, work: Callable[[], str]) -> str:
        from aws_lambda_powertools.utilities.idempotency import (
            IdempotencyConfig,
            idempotent_function,
        )

        ends = time.monotonic() + 15

        class Context:
            def get_remaining_time_in_millis(self) -> int:
                return max(0, round((ends - time.monotonic()) * 1000))

        config = IdempotencyConfig()
        config.register_lambda_context(Context())  # type: ignore[arg-type]

        def pay(key: str) -> str:
            return work()

        guarded = idempotent_function(
            pay, data_keyword_argument="key", persistence_store=self.records, config=config
        )
        return guarded(key=key)


class CacheFence(Library):
    """`patient`: waits and locks as long as the load may take."""

    is_async = True

    async def open(self) -> None:
        from cachefence import CacheFence
        from redis.asyncio import BlockingConnectionPool, Redis

        more = {"lock_timeout": 60, "wait_for_lock": 60} if self.setting == "patient" else {}
        if sentinel_of(self.url):
            made = async_client(self.url)
        else:  # its README asks for a pool that blocks
            pool = BlockingConnectionPool.from_url(self.url, max_connections=30, timeout=15)
            made = Redis(connection_pool=pool)
        self.cache = CacheFence(made, **more)

    async def cached(self, key: str, load: Callable[[], str]) -> str:
        return await self.cache.get_or_set(
            key=key, ttl=WINDOW, recompute=lambda: asyncio.to_thread(load)
        )


class Flightlock(Library):
    async def open(self) -> None:
        from flightlock.backends.redis import RedisBackend

        self.backend = RedisBackend(client=client(self.url))
        self.guard = threading.Lock()
        self._read: Any = None

    def cached(self, key: str, load: Callable[[], str]) -> str:
        from flightlock import cached

        with self.guard:
            if self._read is None:

                @cached(ttl=WINDOW, backend=self.backend)
                def read(key: str) -> str:
                    return load()

                self._read = read
        return self._read(key)


class ThrottledPy(Library):
    """`sliding`: a sliding window in place of the token bucket."""

    async def open(self) -> None:
        from throttled import store

        self.store = store.RedisStore(server=self.url)
        self.limits: dict[str, Any] = {}

    def throttle(self, key: str, limit: int) -> None:
        from throttled import RateLimiterType, Throttled

        if key not in self.limits:
            kind = RateLimiterType.SLIDING_WINDOW.value if self.setting == "sliding" else None
            quota = f"{limit}/s" if kind else f"{limit}/s burst {limit}"
            self.limits[key] = Throttled(using=kind, quota=quota, store=self.store)
        result = self.limits[key].limit(key)
        if result.limited:
            raise Refused(result.state.retry_after)


class Grelmicro(Library):
    """`short`: a lease of ten seconds; `sliding`: the other of its rate limits."""

    is_async = True

    async def open(self) -> None:
        from grelmicro import Grelmicro
        from grelmicro.cache import Cache, TTLCache
        from grelmicro.coordination import Coordination
        from grelmicro.idempotency import Idempotency
        from grelmicro.providers.redis import RedisProvider

        redis = RedisProvider(self.url)
        self.micro = Grelmicro(uses=[redis, Cache(redis), Coordination(redis)])
        await self.micro.__aenter__()
        self.idempotency: Any = Idempotency("pay", ttl=WINDOW)
        self.values: Any = TTLCache(ttl=WINDOW)
        self.limit: Any = None
        self._read: Any = None

    def lock(self, key: str) -> Any:
        from grelmicro.coordination import Lock

        lock = Lock(key, **({"lease_duration": TTL} if self.setting == "short" else {}))

        class Taken:
            async def __aenter__(self) -> None:
                await lock.acquire_nowait()

            async def __aexit__(self, *_: object) -> None:
                await lock.release()

        return Taken()

    async def once(self, key: str, work: Callable[[], str]) -> str:
        async with self.idempotency(key, max_wait=0.2) as operation:
            if operation.replayed:
                return operation.result()
            result = await asyncio.to_thread(work)
            operation.store(result)
            return result

    async def cached(self, key: str, load: Callable[[], str]) -> str:
        if self._read is None:
            from grelmicro.cache import cached

            @cached(self.values, key_template="value:{key}", lock="cluster")
            async def read(key: str) -> str:
                return await asyncio.to_thread(load)

            self._read = read
        return await self._read(key)

    async def throttle(self, key: str, limit: int) -> None:
        from grelmicro.resilience import RateLimiter

        if self.limit is None:
            self.limit = (
                RateLimiter.sliding_window("calls", limit=limit, window=1)
                if self.setting == "sliding"
                else RateLimiter.token_bucket("calls", capacity=limit, refill_rate=limit)
            )
        result = await self.limit.acquire(key=key)
        if not result.allowed:
            raise Refused(result.retry_after)


LIBRARIES: dict[str, type[Library]] = {
    "dibs": Dibs,
    "redis-py": RedisPy,
    "python-redis-lock": PythonRedisLock,
    "cashews": Cashews,
    "idemkit": Idemkit,
    "redis-infra": RedisInfra,
    "exactly-once": ExactlyOnce,
    "deduplex": Deduplex,
    "powertools": Powertools,
    "cachefence": CacheFence,
    "flightlock": Flightlock,
    "throttled-py": ThrottledPy,
    "grelmicro": Grelmicro,
    "dbos": Dbos,
}
