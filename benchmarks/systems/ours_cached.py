"""dibs ``cached``, as its README uses it, but fail-closed: an outage must not pass for a hit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Self

from dibs import AsyncDibs, Dibs

from . import KEPT, LOCK_TTL


class Threads:
    local = False

    def __init__(self, port: int, callers: int) -> None:
        self.client = Dibs(f"redis://127.0.0.1:{port}", on_outage="closed")

    def cached(self, load: Callable[[str], Any]) -> Callable[[str], Any]:
        @self.client.cached("dibs:{name}", ttl=KEPT, lock_ttl=LOCK_TTL, local=self.local)
        def read(name: str) -> Any:
            return load(name)

        return read

    def many(self, load: Callable[[list[str]], Any]) -> Callable[[list[str]], Any]:
        @self.client.cached_many("many:{name}", ttl=KEPT, lock_ttl=LOCK_TTL)
        def read(names: list[str]) -> dict[str, Any]:
            return load(names)

        return read

    def close(self) -> None:
        self.client.close()


class LocalThreads(Threads):
    local = True


class Tasks:
    local = False

    def __init__(self, port: int) -> None:
        self.client = AsyncDibs(f"redis://127.0.0.1:{port}", on_outage="closed")

    @classmethod
    async def open(cls, port: int, callers: int) -> Self:
        return cls(port)

    def cached(self, load: Callable[[str], Awaitable[Any]]) -> Callable[[str], Awaitable[Any]]:
        @self.client.cached("dibs:{name}", ttl=KEPT, lock_ttl=LOCK_TTL, local=self.local)
        async def read(name: str) -> Any:
            return await load(name)

        return read

    def many(
        self, load: Callable[[list[str]], Awaitable[Any]]
    ) -> Callable[[list[str]], Awaitable[Any]]:
        @self.client.cached_many("many:{name}", ttl=KEPT, lock_ttl=LOCK_TTL)
        async def read(names: list[str]) -> dict[str, Any]:
            return await load(names)

        return read

    async def aclose(self) -> None:
        await self.client.aclose()


class OneByOneTasks(Tasks):
    """Without ``cached_many``: a call for each, all at once."""

    def many(
        self, load: Callable[[list[str]], Awaitable[Any]]
    ) -> Callable[[list[str]], Awaitable[Any]]:
        @self.client.cached("single:{name}", ttl=KEPT, lock_ttl=LOCK_TTL)
        async def one(name: str) -> Any:
            return (await load([name]))[name]

        async def read(names: list[str]) -> dict[str, Any]:
            found = await asyncio.gather(*[one(name) for name in names])
            return dict(zip(names, found, strict=True))

        return read


class LocalTasks(Tasks):
    local = True
