"""A coroutine that is not awaited is no lease."""

import asyncio

import pytest

from dibs import AsyncDibs, UsageError
from dibs.testing import Server


async def test_a_forgotten_await_is_loud(valkey: Server) -> None:
    """`if dibs.try_hold(…)` would go on unguarded; tasks, gather and time-outs work as before."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        lease = await dibs.try_hold("a:1", ttl=5)
        assert lease is not None
        for forgotten in (dibs.try_hold("a:2", ttl=5), dibs.peek("a:1"), lease.extend(5)):
            with pytest.raises(UsageError, match="await"):
                assert forgotten
            forgotten.close()
        task = asyncio.create_task(dibs.try_hold("a:2", ttl=5))
        assert await task is not None
        both = await asyncio.gather(dibs.try_hold("a:3", ttl=5), dibs.peek("a:1"))
        assert None not in both
        assert await asyncio.wait_for(dibs.try_hold("a:3", ttl=5), 5) is None
        with pytest.warns(RuntimeWarning, match="never awaited"):
            dibs.try_hold("a:9", ttl=5)  # type: ignore[unused-coroutine]
