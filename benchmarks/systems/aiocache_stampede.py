"""aiocache's ``cached_stampede`` on Redis, with JSON and the lease the others have."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiocache import Cache, cached_stampede
from aiocache.serializers import JsonSerializer

from . import KEPT, LOCK_TTL


class Tasks:
    def __init__(self, port: int) -> None:
        self._port = port
        self._decorators: list[cached_stampede] = []

    @classmethod
    async def open(cls, port: int, callers: int) -> Tasks:
        return cls(port)

    def cached(self, load: Callable[[str], Awaitable[Any]]) -> Callable[[str], Awaitable[Any]]:
        decorator = cached_stampede(
            lease=LOCK_TTL,
            ttl=KEPT,
            key_builder=lambda _, name: f"aiocache:{name}",
            cache=Cache.REDIS,
            serializer=JsonSerializer(),
            port=self._port,
        )
        self._decorators.append(decorator)

        @decorator
        async def read(name: str) -> Any:
            return await load(name)

        return read

    async def aclose(self) -> None:
        for decorator in self._decorators:
            await decorator.cache.close()
