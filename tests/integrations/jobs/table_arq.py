"""The table of arq: functions with a plan, and every way to send them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from arq import Retry, create_pool, func
from arq.connections import RedisSettings
from arq.jobs import Job

from dibs import AsyncDibs
from dibs.integrations.arq import enqueue_job, unique
from dibs.testing import Server, eventually
from tests.integrations.jobs import fences
from tests.integrations.jobs.conftest import running
from tests.integrations.jobs.job_control import STORE_URL, URL, JobFailed
from tests.integrations.jobs.table import (
    LEASE,
    LIMIT,
    PLANS,
    QUEUED,
    Facts,
    Fate,
    Workers,
    done,
    facts,
    next_step,
    wait_until,
)

dibs = AsyncDibs(STORE_URL, namespace="unique:", budget=5)


def guarded() -> Any:
    return unique(dibs, "t:{key}", queued=QUEUED, lease=LEASE)


async def _follow(ctx: dict[str, Any], key: str, plan: list[str]) -> str:
    step = await fences.in_thread(next_step, key, ctx["job_id"], plan)
    if step == "fail":
        raise JobFailed(key)
    if step == "retry":
        raise Retry(defer=0.1)
    if step == "sleep":
        await asyncio.sleep(60)
    return await fences.in_thread(done, key)


@guarded()
async def follow(ctx: dict[str, Any], key: str, plan: list[str]) -> str:
    return await _follow(ctx, key, plan)


@guarded()
async def follow_shortly(ctx: dict[str, Any], key: str, plan: list[str]) -> str:
    return await _follow(ctx, key, plan)


@guarded()
async def unknown(ctx: dict[str, Any], key: str) -> None: ...


async def caller(ctx: dict[str, Any], key: str) -> str:
    """Calls a unique function."""
    return await follow(ctx, key, ["finish"])


LIMITED: Any = func(follow_shortly, name="limited", timeout=LIMIT)
LONG: Any = func(follow, timeout=60)
WAYS: dict[str, list[str]] = {
    "`enqueue_job`": [],
    "`enqueue_job` with an id": [],
    "`enqueue_job`, deferred": [],
    "by name": [],
    "by `Retry`": ["retry"],
}
ENDS = {name: plan for name, plan in PLANS.items() if not name.startswith("delivered")}
ENDS = {**ENDS, "kill -9": ["sleep", "finish"], "time limit": ["sleep"],
        "revoked while it runs": ["sleep"]}  # fmt: skip
_RUN = "tests.integrations.jobs.arq_worker"
WORKER = ("-m", _RUN, "tests.integrations.jobs.table_arq.WorkerSettings")


class WorkerSettings:
    """What the worker runs."""

    functions: ClassVar[list[Any]] = [LONG, LIMITED, caller]
    redis_settings = RedisSettings.from_dsn(URL)
    allow_abort_jobs = True
    max_jobs = 60
    max_tries = 5
    poll_delay = 0.05


class ArqCells:
    """arq, with one worker."""

    ways, ends = WAYS, ENDS

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()

    def wait(self, coroutine: Any) -> Any:
        return self.loop.run_until_complete(coroutine)

    @contextmanager
    def workers(self, server: Server) -> Iterator[None]:
        self.running = Workers(lambda: running(server, *WORKER))
        self.pool = self.wait(create_pool(RedisSettings.from_dsn(server.url)))
        with self.running:
            yield

    def close(self) -> None:
        self.wait(self.pool.aclose())
        self.wait(self.pool.connection_pool.disconnect())
        self.wait(dibs.aclose())
        self.loop.close()

    def expected(self, way: str, end: str) -> Facts:
        before, runs = len(WAYS[way]), 2 if end in ("retry", "kill -9") else 1
        times = int(end not in ("failure", "time limit", "revoked while it runs"))
        return Facts(before + runs, times, is_free=True)

    def send_all(self, client: Any, keys: dict[tuple[str, str], str]) -> None:
        jobs = {
            pair: self.wait(self.send(*pair, key, [*WAYS[pair[0]], *ENDS[pair[1]]]))
            for pair, key in keys.items()
        }
        held = {
            pair: (key, len(WAYS[pair[0]]) + 1)
            for pair, key in keys.items()
            if pair[1] in ("kill -9", "revoked while it runs")
        }
        wait_until(lambda: all(facts(client, key).runs >= runs for key, runs in held.values()))
        for pair in held:
            if pair[1] != "kill -9":
                self.wait(jobs[pair].abort(timeout=60, poll_delay=0.05))
        others = [(pair, key) for pair, key in keys.items() if pair[1] != "kill -9"]
        wait_until(lambda: all(facts(client, key) >= self.expected(*pair) for pair, key in others))
        self.running.kill_and_start()
        for pair in held:  # as its expiry would, some minutes later
            client.delete(f"arq:in-progress:{jobs[pair].job_id}")

    async def connect(self) -> None:
        """In a process that only sends."""
        self.pool = await create_pool(RedisSettings.from_dsn(URL))

    async def send(self, way: str, end: str, key: str, plan: list[str]) -> Any:
        function = LIMITED if end == "time limit" else LONG
        if way == "by name":
            return await self.pool.enqueue_job(function.name, key, plan)
        options: dict[str, Any] = {}
        if "id" in way:
            options["_job_id"] = f"my-{key}"
        if "deferred" in way:
            options["_defer_by"] = 0.3
        return await enqueue_job(self.pool, function, key, plan, **options)

    def is_quiet(self, client: Any) -> bool:
        return not client.zcard("arq:queue")

    # ---- what else may happen to a job

    @property
    def fates(self) -> Any:
        return {
            "called as a function, in another job": self.called,
            "no worker knows the function": self.not_known,
            "`_expires` is over": self.expired,
            "aborted while it waits": self.aborted,
            "the queue is emptied": self.emptied,
        }

    def waiting(self, fate: Fate, **options: Any) -> Job:
        return self.wait(
            enqueue_job(self.pool, follow, fate.key, ["finish"], _queue_name="nobody", **options)
        )

    def next_one(self, fate: Fate, first: Any) -> str:
        second: Any = self.wait(enqueue_job(self.pool, follow, fate.key, ["finish"]))
        assert second.job_id != first.job_id, "the answer is a job that cannot run"
        eventually(lambda: facts(fate.client, fate.key) == (1, 1, True), within=90)
        return "the next one runs"

    def called(self, fate: Fate) -> str:
        self.waiting(fate)
        self.wait(self.pool.enqueue_job("caller", fate.key))
        eventually(lambda: fate.client.llen(f"done:{fate.key}") == 1, within=90)
        return "it runs, unguarded"

    def not_known(self, fate: Fate) -> str:
        first: Any = self.wait(enqueue_job(self.pool, unknown, fate.key))
        eventually(lambda: fate.client.exists(f"arq:result:{first.job_id}"), within=90)
        return self.next_one(fate, first)

    def expired(self, fate: Fate) -> str:
        first = self.waiting(fate, _expires=0.1)
        eventually(lambda: not fate.client.exists(f"arq:job:{first.job_id}"), within=90)
        return self.next_one(fate, first)

    def aborted(self, fate: Fate) -> str:
        first: Any = self.wait(enqueue_job(self.pool, follow, fate.key, ["finish"], _defer_by=3600))
        self.wait(first.abort(timeout=60, poll_delay=0.05))
        return self.next_one(fate, first)

    def emptied(self, fate: Fate) -> str:
        first = self.waiting(fate)
        fate.client.delete("nobody")
        return self.next_one(fate, first)
