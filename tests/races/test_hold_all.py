"""Several keys whose caller is cancelled while they are taken."""

import asyncio

import pytest

from dibs import AsyncDibs
from dibs.testing import FaultProxy, Server, aeventually


async def test_a_caller_that_is_cancelled_leaves_no_key(valkey: Server, proxy: FaultProxy) -> None:
    """The server has granted them, and the reply has not come: they are released."""
    async with AsyncDibs(proxy.url, budget=5) as dibs:
        async with dibs.hold_all(["warm", "up"], ttl=5):
            pass
        proxy.delay(replies=1.0)

        async def take() -> None:
            async with dibs.hold_all(["seat:1", "seat:2"], ttl=60):
                pytest.fail("the reply was to come later")

        task = asyncio.create_task(take())
        await aeventually(lambda: len(valkey.keys()) == 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        proxy.delay()
        await aeventually(lambda: valkey.keys() == [])
