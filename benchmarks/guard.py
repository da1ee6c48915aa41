"""What a guard against double submission costs an endpoint that does nothing.

Requests go straight into the ASGI application, without a server or a client around it: those would
cost more than what is measured. Each is new, with its own key; then one is repeated, and answered
from what was kept. Fifty at once show what is shared; of fifty repeated ones the client's CPU is
given, because the rest is the server's. Pinned, as ``hold`` is. Round trips are what the server
says it has read, which with one caller is the same.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from . import concurrent_callers, measure, servers
from .systems import BARE, GUARDS, RELEASE
from .systems.guarded import BODY, STATUS
from .worker import Bench, Broken, Worker

AT_ONCE = 50
BODIES = b'{"items":[{"sku":"tea","quantity":%d}],"note":"to go"}'


def run(plan: measure.Plan, bench: Bench) -> dict[str, Any]:
    """Microseconds for a new request and for a repeated one, and the round trips of a new one."""
    workers = bench.of(system for system in GUARDS if plan.wants(system.label))
    rows: dict[str, dict[str, Any]] = {
        worker.system.name: {"new": [], "again": [], "at_once": [], "again_cpu": [], "trips": []}
        for worker in workers
    }
    for worker in plan.in_rounds(workers):
        _ask(bench.server, worker, plan, rows[worker.system.name])
    return {"core": bench.core, "rows": rows}


def _ask(server: servers.Server, worker: Worker, plan: measure.Plan, row: dict[str, Any]) -> None:
    name = worker.system.name
    if "broken" in row:
        return
    try:
        row["new"].append(worker.do(f"{__name__}:new", callers=1, seconds=plan.seconds))
        row["at_once"].append(worker.do(f"{__name__}:new", callers=AT_ONCE, seconds=plan.seconds))
        row["trips"].append(_trips(server, worker, 50 if plan.quick else 500))
        if name not in (BARE, RELEASE):
            again = f"{__name__}:again"
            row["again"].append(worker.do(again, callers=1, seconds=plan.seconds)["us"])
            many = worker.do(again, callers=AT_ONCE, seconds=plan.seconds)
            row["again_cpu"].append(many["cpu_us"])
    except Broken as reason:
        row["broken"] = str(reason)


def _trips(server: servers.Server, worker: Worker, times: int) -> float:
    """By the difference of two runs: opening a connection is in both."""
    reads = [server.reads()]
    for count in (times, 2 * times):
        worker.do(f"{__name__}:some", times=count)
        reads.append(server.reads())
    first, second = reads[1] - reads[0], reads[2] - reads[1]
    return round((second - first) / times, 1)


# What runs inside a worker.

Step = Callable[[], Awaitable[None]]
Result = TypeVar("Result")


def new(opener: Any, port: int, *, callers: int, seconds: float) -> float:
    """Microseconds for each new request."""

    async def measured(app: Any) -> float:
        tally = await concurrent_callers.in_tasks(
            [_fresh(app, number) for number in range(callers)], seconds
        )
        return 1e6 / tally.as_dict()["rate"]

    return asyncio.run(_with(opener, port, callers, measured))


def again(opener: Any, port: int, *, callers: int, seconds: float) -> dict[str, float]:
    """For each request that was made before: microseconds, and those of the client's CPU."""

    async def measured(app: Any) -> dict[str, float]:
        steps = [_repeated(app, number) for number in range(callers)]
        figures = (await concurrent_callers.in_tasks(steps, seconds)).as_dict()
        return {"us": 1e6 / figures["rate"], "cpu_us": figures["cpu_us"]}

    return asyncio.run(_with(opener, port, callers, measured))


def some(opener: Any, port: int, *, times: int) -> None:
    """So many new requests."""

    async def done(app: Any) -> float:
        step = _fresh(app, 0)
        for _ in range(times):
            await step()
        return 0.0

    asyncio.run(_with(opener, port, 1, done))


async def _with(
    opener: Any, port: int, callers: int, work: Callable[[Any], Awaitable[Result]]
) -> Result:
    client = await opener.open(port, callers)
    try:
        return await work(client.app)
    finally:
        await client.aclose()


def _fresh(app: Any, caller: int) -> Step:
    numbers, began = itertools.count(), time.time_ns()

    async def step() -> None:
        number = next(numbers)
        await request(app, b"%d-%d-%d" % (began, caller, number), BODIES % (began + number))

    return step


def _repeated(app: Any, caller: int) -> Step:
    async def step() -> None:
        await request(app, b"the-same-key-again-and-again-%d" % caller, b"{}")

    return step


async def request(app: Any, key: bytes, body: bytes) -> None:
    """One request, and its whole answer. AssertionError: it is not the endpoint's."""
    headers = [
        (b"host", b"shop"),
        (b"content-type", b"application/json"),
        (b"authorization", b"Bearer somebody"),
        (b"idempotency-key", key),
    ]
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST",
        "scheme": "http", "path": "/orders", "raw_path": b"/orders", "query_string": b"",
        "root_path": "", "headers": headers, "client": ("127.0.0.1", 1), "server": ("shop", 80),
        "state": {},
    }  # fmt: skip
    coming = iter([{"type": "http.request", "body": body}])
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return next(coming)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    body = b"".join([message.get("body", b"") for message in sent[1:]])
    if sent[0]["status"] != STATUS or body != BODY:
        raise AssertionError(f"{sent[0]['status']} {body[:200]!r}")
