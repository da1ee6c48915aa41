"""What the behaviour tests need of asyncio. `_threads.py` has the same names."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import redis.asyncio as redis

from dibs.testing import aeventually as eventually

__all__ = ["Background", "Interrupt", "eventually", "redis", "sleep"]

sleep = asyncio.sleep
Interrupt = asyncio.CancelledError
"""What a function may raise that is no Exception, because of something else that it waited for."""


class Background:
    """A call that runs in the background of a test."""

    def __init__(self, work: Callable[..., Coroutine[Any, Any, Any]], *args: Any) -> None:
        self._task = asyncio.get_running_loop().create_task(work(*args))

    async def result(self) -> Any:
        """What it returned, or raises what it raised."""
        async with asyncio.timeout(20):
            return await self._task
