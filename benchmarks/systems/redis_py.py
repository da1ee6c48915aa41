"""redis-py's own ``Lock``, as its documentation uses it: an object for each acquisition.

The pool is large enough for every caller: at its default of 100 connections, 500 tasks raise
``MaxConnectionsError``. Everything else is the default.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import redis
import redis.asyncio

from . import TTL

SPARE_CONNECTIONS = 20
"""Connections beyond one for each caller."""


class Threads:
    def __init__(self, port: int, callers: int) -> None:
        self.client = redis.Redis(port=port, max_connections=callers + SPARE_CONNECTIONS)

    def pair_on(self, key: str) -> Callable[[], None]:
        def pair() -> None:
            lock = self.client.lock(key, timeout=TTL)
            if not lock.acquire(blocking=False):
                raise AssertionError(f"{key} was not free")
            lock.release()

        return pair

    def take(self, key: str, wait: float) -> Callable[[], object] | None:
        lock = self.client.lock(key, timeout=TTL, blocking=wait > 0, blocking_timeout=wait or None)
        return lock.release if lock.acquire() else None

    def refused(self, key: str) -> bool:
        return not self.client.lock(key, timeout=TTL).acquire(blocking=False)

    def served(self, key: str) -> bool:
        self.pair_on(key)()
        return True

    def close(self) -> None:
        self.client.close()


class Tasks:
    def __init__(self, port: int, callers: int) -> None:
        self.client = redis.asyncio.Redis(port=port, max_connections=callers + SPARE_CONNECTIONS)

    @classmethod
    async def open(cls, port: int, callers: int) -> Tasks:
        return cls(port, callers)

    def pair_on(self, key: str) -> Callable[[], Awaitable[None]]:
        async def pair() -> None:
            lock = self.client.lock(key, timeout=TTL)
            if not await lock.acquire(blocking=False):
                raise AssertionError(f"{key} was not free")
            await lock.release()

        return pair

    async def take(self, key: str, wait: float) -> Callable[[], Awaitable[object]] | None:
        lock = self.client.lock(key, timeout=TTL, blocking=wait > 0, blocking_timeout=wait or None)
        return lock.release if await lock.acquire() else None

    async def refused(self, key: str) -> bool:
        return not await self.client.lock(key, timeout=TTL).acquire(blocking=False)

    async def served(self, key: str) -> bool:
        await self.pair_on(key)()
        return True

    async def aclose(self) -> None:
        await self.client.aclose()
