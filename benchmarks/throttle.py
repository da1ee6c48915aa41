"""Client CPU of one throttled call, beside `limits` and slowapi: `python -m benchmarks.throttle`.

Needs the two others beside the development requirements: `uv pip install limits slowapi`.
Figures are CPU time of this process for each call, from one run.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from dibs import AsyncDibs, Dibs
from dibs.testing import Server

CALLS = 4000
MOST: dict[str, Any] = {"limit": 1_000_000, "per": 3600}


def spent(call: Callable[[], object]) -> float:
    """Microseconds of CPU for each call, of a thread alone."""
    call()
    since = time.process_time()
    for _ in range(CALLS):
        call()
    return (time.process_time() - since) / CALLS * 1e6


async def aspent(call: Callable[[], Awaitable[object]], tasks: int) -> float:
    """The same for so many tasks."""

    async def caller() -> None:
        for _ in range(CALLS // tasks):
            await call()

    await call()
    since = time.process_time()
    await asyncio.gather(*[caller() for _ in range(tasks)])
    return (time.process_time() - since) / CALLS * 1e6


def threads(url: str) -> dict[str, float]:
    """Of one thread."""
    from limits import RateLimitItemPerHour
    from limits.storage import RedisStorage
    from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter

    item, storage = RateLimitItemPerHour(1_000_000), RedisStorage(url)
    fixed, moving = FixedWindowRateLimiter(storage), MovingWindowRateLimiter(storage)
    few = RateLimitItemPerHour(5000)  # it keeps an entry for each call
    with Dibs(url, budget=5) as dibs:
        return {
            "dibs.throttle, thread": spent(lambda: dibs.throttle("k", **MOST)),
            "limits 5.8 fixed window, thread": spent(lambda: fixed.hit(item, "k")),
            "limits 5.8 moving window, thread": spent(lambda: moving.hit(few, "m")),
        }


async def tasks(url: str) -> dict[str, float]:
    """Of one task, and of fifty."""
    from limits import RateLimitItemPerHour
    from limits.aio.storage import RedisStorage
    from limits.aio.strategies import FixedWindowRateLimiter

    item = RateLimitItemPerHour(1_000_000)
    fixed = FixedWindowRateLimiter(RedisStorage("async+" + url, implementation="redispy"))
    figures: dict[str, float] = {}
    async with AsyncDibs(url, budget=5) as dibs:
        for number in (1, 50):
            figures[f"dibs.throttle, {number} tasks"] = await aspent(
                lambda: dibs.throttle("k", **MOST), number
            )
            figures[f"limits 5.8 fixed window, {number} tasks"] = await aspent(
                lambda: fixed.hit(item, "k"), number
            )
    return figures


async def requests(url: str) -> dict[str, float]:
    """Of one request of Starlette, called as an ASGI application; and without a limit."""
    from slowapi import Limiter
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, Response
    from starlette.routing import Route

    from dibs.integrations.starlette import install, throttled

    limiter = Limiter(
        key_func=lambda request: "k",
        storage_uri=url,
        headers_enabled=True,  # type: ignore[arg-type]
    )

    async def plain(request: Request) -> Response:
        return PlainTextResponse("ok")

    @throttled("k", **MOST)
    async def ours(request: Request) -> Response:
        return PlainTextResponse("ok")

    @limiter.limit("1000000/hour")  # pyright: ignore[reportUnknownMemberType]
    async def theirs(request: Request) -> Response:
        return PlainTextResponse("ok")

    figures: dict[str, float] = {}
    async with AsyncDibs(url, budget=5) as dibs:
        for name, view in (("no limit", plain), ("dibs", ours), ("slowapi 0.1.10", theirs)):
            app = Starlette(routes=[Route("/", view)])
            app.state.limiter = limiter
            if name == "dibs":
                install(app, dibs)

            async def call(app: Any = app) -> None:
                scope = {
                    "type": "http", "method": "GET", "path": "/", "headers": [],
                    "query_string": b"",
                }  # fmt: skip
                await app(scope, _receive, _send)

            figures[f"a request, {name}"] = await aspent(call, 1)
    return figures


async def _receive() -> dict[str, Any]:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _send(message: dict[str, Any]) -> None:
    if message["type"] == "http.response.start":
        assert message["status"] == 200


def main() -> None:
    """Print a table."""
    with Server.start("valkey") as server:
        figures = threads(server.url)
        for part in (tasks, requests):
            server.flush()
            figures |= asyncio.run(part(server.url))
    for name, micros in figures.items():
        print(f"{name:36} {micros:8.1f} µs")


if __name__ == "__main__":
    main()
