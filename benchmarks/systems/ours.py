"""dibs, as its README uses it, but fail-closed.

Fail-open, its default, would count unguarded leases as pairs, and those are very fast.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from dibs import AsyncDibs, Busy, Dibs

from . import TTL

Result = TypeVar("Result")


class Threads:
    def __init__(self, port: int, callers: int) -> None:
        self.client = Dibs(f"redis://127.0.0.1:{port}", on_outage="closed")

    def pair_on(self, key: str) -> Callable[[], None]:
        hold = self.client.hold

        def pair() -> None:
            with hold(key, ttl=TTL):
                pass

        return pair

    def take(self, key: str, wait: float) -> Callable[[], object] | None:
        held = self.client.hold(key, ttl=TTL, wait=wait)
        try:
            held.__enter__()
        except Busy:
            return None
        return lambda: held.__exit__(None, None, None)

    def refused(self, key: str) -> bool:
        return self.client.try_hold(key, ttl=TTL) is None

    def served(self, key: str) -> bool:
        with self.client.hold(key, ttl=TTL, on_outage="open") as lease:
            return lease.guarded

    def close(self) -> None:
        self.client.close()


class LimitedThreads(Threads):
    def pair_on(self, key: str) -> Callable[[], None]:
        hold = self.client.hold

        def pair() -> None:
            with hold(key, ttl=TTL, limit=3):
                pass

        return pair


class Tasks:
    def __init__(self, port: int, callers: int) -> None:
        self.client = AsyncDibs(f"redis://127.0.0.1:{port}", on_outage="closed")

    @classmethod
    async def open(cls, port: int, callers: int) -> Tasks:
        return cls(port, callers)

    def pair_on(self, key: str) -> Callable[[], Awaitable[None]]:
        hold = self.client.hold

        async def pair() -> None:
            async with hold(key, ttl=TTL):
                pass

        return pair

    async def take(self, key: str, wait: float) -> Callable[[], Awaitable[object]] | None:
        held = self.client.hold(key, ttl=TTL, wait=wait)
        try:
            await held.__aenter__()
        except Busy:
            return None
        return lambda: held.__aexit__(None, None, None)

    async def refused(self, key: str) -> bool:
        return await self.client.try_hold(key, ttl=TTL) is None

    async def served(self, key: str) -> bool:
        async with self.client.hold(key, ttl=TTL, on_outage="open") as lease:
            return lease.guarded

    async def aclose(self) -> None:
        await self.client.aclose()


class LimitedTasks(Tasks):
    def pair_on(self, key: str) -> Callable[[], Awaitable[None]]:
        hold = self.client.hold

        async def pair() -> None:
            async with hold(key, ttl=TTL, limit=3):
                pass

        return pair


class RenewedTasks(Tasks):
    def pair_on(self, key: str) -> Callable[[], Awaitable[None]]:
        hold = self.client.hold

        async def pair() -> None:
            async with hold(key, ttl=TTL, renew=True):
                pass

        return pair


class UvloopTasks(Tasks):
    """The same in uvloop's event loop."""

    @staticmethod
    def run(work: Coroutine[Any, Any, Result]) -> Result:
        import uvloop

        return uvloop.run(work)
