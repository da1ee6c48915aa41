"""A coroutine that is not awaited is no lease."""

import asyncio

import pytest

from dibs import AsyncDibs, UsageError
from dibs.testing import Server


async def load(branch: str) -> str:
    return branch


async def test_a_forgotten_await_is_loud(valkey: Server) -> None:
    """`if dibs.try_hold(…)` would go on unguarded; tasks, gather and time-outs work as before."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        lease = await dibs.try_hold("a:1", ttl=5)
        assert lease is not None
        menu = dibs.cached("menu:{branch}", ttl=60)(load)
        claim = await dibs.claim("order:1", window=5).__aenter__()
        for forgotten in (
            dibs.try_hold("a:2", ttl=5),
            dibs.peek("a:1"),
            dibs.invalidate("menu:b1"),
            dibs.invalidate_tag("menus"),
            dibs.throttle("sms", limit=1, per=60),
            lease.extend(5),
            lease.release(),
            claim.finish(),
            menu.invalidate("b1"),
            menu.peek("b1"),
            menu.set("b1", value="tea"),
        ):
            with pytest.raises(UsageError, match="await"):
                assert forgotten
            forgotten.close()
        assert await claim.finish()
        task = asyncio.create_task(dibs.try_hold("a:2", ttl=5))
        assert await task is not None
        both = await asyncio.gather(dibs.try_hold("a:3", ttl=5), dibs.peek("a:1"))
        assert None not in both
        assert await asyncio.wait_for(dibs.try_hold("a:3", ttl=5), 5) is None
        with pytest.warns(RuntimeWarning, match="never awaited"):
            dibs.try_hold("a:9", ttl=5)  # type: ignore[unused-coroutine]
