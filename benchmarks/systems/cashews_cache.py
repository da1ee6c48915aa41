"""cashews on Redis at its defaults (pickled values): plain, with its lock, and client-side."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Self

from cashews import Cache

from . import KEPT


class Tasks:
    """``@cache(ttl=…)``: callers of one key in one process share a task, processes do not."""

    client_side = False
    lock = False

    def __init__(self, cache: Cache) -> None:
        self.cache = cache

    @classmethod
    async def open(cls, port: int, callers: int) -> Self:
        cache = Cache()
        cache.setup(f"redis://127.0.0.1:{port}", client_side=cls.client_side)
        await cache.init()
        return cls(cache)

    def cached(self, load: Callable[[str], Awaitable[Any]]) -> Callable[[str], Awaitable[Any]]:
        @self.cache(ttl=KEPT, key=f"{type(self).__name__}:{{name}}", lock=self.lock)
        async def read(name: str) -> Any:
            return await load(name)

        return read

    def many(
        self, load: Callable[[list[str]], Awaitable[Any]]
    ) -> Callable[[list[str]], Awaitable[Any]]:
        """As its documentation has it: no decorator, no lock, no shared load."""

        async def read(names: list[str]) -> dict[str, Any]:
            found = await self.cache.get_many(*[f"cashews:{name}" for name in names])
            values = dict(zip(names, found, strict=True))
            missing = [name for name in names if values[name] is None]
            if missing:
                loaded = await load(missing)
                kept = {f"cashews:{name}": value for name, value in loaded.items()}
                await self.cache.set_many(kept, expire=KEPT)
                values |= loaded
            return values

        return read

    async def aclose(self) -> None:
        await self.cache.close()


class LockTasks(Tasks):
    """``lock=True``: one caller of all processes loads, the others poll the lock."""

    lock = True


class LocalTasks(Tasks):
    """``client_side=True``: values in memory too, kept true by the server's invalidations."""

    client_side = True
