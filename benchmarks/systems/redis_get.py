"""The floor of every cache in Python: redis-py's ``GET`` and ``json.loads``, as one writes it.

A miss is loaded and stored without any protection.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import redis
import redis.asyncio

from . import KEPT
from .redis_py import SPARE_CONNECTIONS


class Threads:
    def __init__(self, port: int, callers: int) -> None:
        self.client = redis.Redis(port=port, max_connections=callers + SPARE_CONNECTIONS)

    def cached(self, load: Callable[[str], Any]) -> Callable[[str], Any]:
        client = self.client

        def read(name: str) -> Any:
            key = f"get:{name}"
            found = client.get(key)
            if found is not None:
                return json.loads(found)
            value = load(name)
            client.setex(key, KEPT, json.dumps(value))
            return value

        return read

    def close(self) -> None:
        self.client.close()


class Tasks:
    def __init__(self, port: int, callers: int) -> None:
        self.client = redis.asyncio.Redis(port=port, max_connections=callers + SPARE_CONNECTIONS)

    @classmethod
    async def open(cls, port: int, callers: int) -> Tasks:
        return cls(port, callers)

    def cached(self, load: Callable[[str], Awaitable[Any]]) -> Callable[[str], Awaitable[Any]]:
        client = self.client

        async def read(name: str) -> Any:
            key = f"get:{name}"
            found = await client.get(key)
            if found is not None:
                return json.loads(found)
            value = await load(name)
            await client.setex(key, KEPT, json.dumps(value))
            return value

        return read

    async def aclose(self) -> None:
        await self.client.aclose()
