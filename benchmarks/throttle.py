"""Client CPU of one throttled call, beside ``limits`` and slowapi, in microseconds.

Each round is a process that measures all of them, one after another.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from dibs import AsyncDibs, Dibs

from . import measure, servers
from .systems import System
from .worker import Bench

CALLS = int(os.environ.get("BENCH_CALLS", "4000"))
MOST: dict[str, Any] = {"limit": 1_000_000, "per": 3600}


OTHERS = (
    System("limits", "threads", "", "limits", "limits"),
    System("slowapi", "asyncio", "", "slowapi", "slowapi"),
)


def run(plan: measure.Plan, bench: Bench) -> dict[str, Any]:
    """Microseconds by label; nothing without the two others."""
    missing = [reason for other in OTHERS if (reason := other.absence())]
    bench.absent += missing
    rows: dict[str, dict[str, Any]] = {}
    if not missing:
        for _ in plan.in_rounds(["throttle"]):
            for label, micros in _measured(bench, 100 if plan.quick else 4000).items():
                if plan.wants(label):
                    rows.setdefault(label, {"us": []})["us"].append(micros)
    return {"rows": rows}


def _measured(bench: Bench, calls: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.throttle", str(bench.server.port)]
    if bench.core is not None:
        command.append(str(bench.core))
    env = os.environ | {"BENCH_CALLS": str(calls)}
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, env=env, check=True).stdout)


# What runs inside the process.


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
            "threads dibs.throttle": spent(lambda: dibs.throttle("k", **MOST)),
            "threads limits, fixed window": spent(lambda: fixed.hit(item, "k")),
            "threads limits, moving window": spent(lambda: moving.hit(few, str(os.getpid()))),
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
            figures[f"asyncio {number} dibs.throttle"] = await aspent(
                lambda: dibs.throttle("k", **MOST), number
            )
            figures[f"asyncio {number} limits, fixed window"] = await aspent(
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
        for name, view in (("no limit", plain), ("dibs", ours), ("slowapi", theirs)):
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
    """Print the figures as JSON."""
    port, *core = sys.argv[1:]
    servers.pin(int(core[0]) if core else None)
    url = f"redis://127.0.0.1:{port}"
    figures = threads(url)
    for part in (tasks, requests):
        figures |= asyncio.run(part(url))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
