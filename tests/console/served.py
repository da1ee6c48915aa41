"""An application with two consoles and some keys to show: `python -m … SERVER_URL PORT`.

/dibs may be read by all users; at /ops keys are shown in full, and may be released.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount

from dibs import AsyncDibs
from dibs.console import console

LEASES = 60


def application(url: str) -> Starlette:
    """The application, at the server *url*."""
    dibs = AsyncDibs(url, namespace="shop:")

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with dibs, AsyncExitStack() as held:
            for number in range(LEASES):
                hold = dibs.hold(f"processing:user:{number}", ttl=600, name="processing:user:{id}")
                await held.enter_async_context(hold)
            await held.enter_async_context(dibs.hold("gpu", ttl=600, limit=3))
            await held.enter_async_context(dibs.claim("pay:7", window=600, note="card"))
            menu = dibs.cached("menu:{branch}", ttl=600)(_menu)
            for branch in ("b1", "b2", "b1"):
                await menu(branch)
            waiting = asyncio.create_task(dibs.try_hold("processing:user:0", ttl=5, wait=600))
            yield
            waiting.cancel()
            await asyncio.wait([waiting])

    reading = console(dibs, allow="host")
    working = console(dibs, allow="host", allow_release="host", allow_keys="host")
    return Starlette(routes=[Mount("/dibs", reading), Mount("/ops", working)], lifespan=lifespan)


async def _menu(branch: str) -> dict[str, int]:
    return {"noodles": 180}


if __name__ == "__main__":
    uvicorn.run(application(sys.argv[1]), port=int(sys.argv[2]), log_level="error")
