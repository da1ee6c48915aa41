"""The seed's algorithm, word for word: who gets the lock loads; who does not sleeps for 80 ms,
looks once more, and then loads as well."""

from __future__ import annotations

import asyncio
import json
import random
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

import redis.asyncio

from . import KEPT, LOCK_TTL
from .redis_py import SPARE_CONNECTIONS

LOOK_AGAIN = 0.08
RELEASE = """
if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end
return 0
"""


class Tasks:
    def __init__(self, port: int, callers: int) -> None:
        self.client = redis.asyncio.Redis(port=port, max_connections=callers + SPARE_CONNECTIONS)
        self._release = self.client.register_script(RELEASE)

    @classmethod
    async def open(cls, port: int, callers: int) -> Tasks:
        return cls(port, callers)

    def cached(self, load: Callable[[str], Awaitable[Any]]) -> Callable[[str], Awaitable[Any]]:
        async def load_and_store(name: str) -> Any:
            value = await load(name)
            kept = round(KEPT * random.uniform(0.8, 1.2))
            await self.client.set(f"menu:{name}", json.dumps(value), ex=kept)
            return value

        async def read(name: str) -> Any:
            if (found := await self._find(name)) is not None:
                return found
            lock, token = f"lock:menu:{name}", str(uuid.uuid4())
            if not await self.client.set(lock, token, nx=True, ex=LOCK_TTL):
                await asyncio.sleep(LOOK_AGAIN)
                found = await self._find(name)
                return await load_and_store(name) if found is None else found
            try:
                found = await self._find(name)
                return await load_and_store(name) if found is None else found
            finally:
                await self._release(keys=[lock], args=[token])

        return read

    async def _find(self, name: str) -> Any:
        found = await self.client.get(f"menu:{name}")
        return None if found is None else json.loads(found)

    async def aclose(self) -> None:
        await self.client.aclose()
