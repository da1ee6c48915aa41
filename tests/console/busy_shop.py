"""An application that does a little of everything, for pictures of its console.

`python -m tests.console.busy_shop SERVER_URL PORT`; the console is at /ops.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from time import time

import uvicorn
from redis.asyncio import Redis
from starlette.applications import Starlette
from starlette.routing import Mount

from dibs import AsyncDibs, Busy
from dibs.console import console

NAMESPACE = "shop:"
KEPT = 30 * 86_400_000
"""For how many ms the record of a run is kept after its next one is due."""
DIES = """
import sys
from dibs import Dibs
Dibs(sys.argv[1], namespace="shop:").try_hold("job:nightly", ttl=900, fence=True)
"""


def application(url: str) -> Starlette:
    """The application, at the server *url*."""
    dibs = AsyncDibs(url, namespace=NAMESPACE)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with dibs, AsyncExitStack() as held, asyncio.TaskGroup() as tasks:
            await asyncio.to_thread(subprocess.run, [sys.executable, "-c", DIES, url], check=True)
            for number in range(5):
                key, name = f"processing:user:{number}", "processing:user:{id}"
                await held.enter_async_context(dibs.hold(key, ttl=30, renew=True, name=name))
            await held.enter_async_context(dibs.hold("report:monthly", ttl=600))
            await held.enter_async_context(dibs.hold("gpu", ttl=60, limit=3, renew=True))
            await held.enter_async_context(dibs.claim("pay:7", window=600, note="card"))
            await _use_once(dibs)
            await _record_runs(url)
            works = [_work(dibs) for _ in range(4)]
            waiting = dibs.try_hold("report:monthly", ttl=5, wait=600)
            started = [tasks.create_task(each) for each in (waiting, *works)]
            yield
            for task in started:
                task.cancel()

    page = console(dibs, allow="host", allow_release="host", allow_keys="host")
    return Starlette(routes=[Mount("/ops", page)], lifespan=lifespan)


async def _use_once(dibs: AsyncDibs) -> None:
    @dibs.once("order:{number}", window=600, after="hold")
    async def order(number: int) -> int:
        return number

    for number in range(12):
        await order(number)
    for _ in range(3):
        await dibs.throttle("sms:ann", limit=5, per=60)
    await dibs.quota("tokens:ann", limit=1000, per="day", cost=320)


async def _record_runs(url: str) -> None:
    """Write what two schedules have run: one is due in five minutes, one is overdue."""
    now = int(time() * 1000)
    runs = {
        "report": (f"{now - 120_000} web-1:7 finished {now - 119_900} 3200", 300_000),
        "backup": (
            f"{now - 7_200_000} web-2:9 failed:OperationalError {now - 7_199_000} 200000",
            -3_400_000,
        ),
    }
    async with Redis.from_url(url) as client:
        for name, (record, due) in runs.items():
            await client.set(f"{NAMESPACE}scheduled-last:{name}", record, px=KEPT + due)


async def _work(dibs: AsyncDibs) -> None:
    """Answer six users, each by one at a time, from the menus of eight branches."""

    @dibs.cached("menu:{branch}", ttl=180)
    async def menu(branch: str) -> dict[str, int]:
        await asyncio.sleep(0.05)
        return {"noodles": 180}

    while True:
        key, name = f"processing:user:{random.randrange(20, 26)}", "processing:user:{id}"
        try:
            async with dibs.hold(key, ttl=10, name=name):
                await asyncio.sleep(random.random() * 4)
        except Busy:
            await asyncio.sleep(0.1)
        await menu(random.choice("abcdefgh"))


if __name__ == "__main__":
    uvicorn.run(application(sys.argv[1]), port=int(sys.argv[2]), log_level="error")
