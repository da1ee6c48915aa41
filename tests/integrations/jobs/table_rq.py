"""The table of RQ: jobs with a plan, and every way to send them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import Any

import redis
from rq import Queue, Retry, get_current_job
from rq.command import send_stop_job_command

from dibs import Dibs
from dibs.integrations.rq import UniqueQueue, unique
from dibs.testing import Server, eventually
from tests.integrations.jobs.conftest import running
from tests.integrations.jobs.job_control import STORE_URL, URL, JobFailed
from tests.integrations.jobs.table import (
    LEASE,
    LIMIT,
    PLANS,
    QUEUED,
    Facts,
    Fate,
    done,
    facts,
    next_step,
    wait_until,
)

dibs = Dibs(STORE_URL, namespace="unique:", budget=5)


@unique(dibs, "t:{key}", queued=QUEUED, lease=LEASE)
def follow(key: str, plan: list[str]) -> Any:
    job: Any = get_current_job()
    step = next_step(key, job.id, plan)
    if step == "fail":
        raise JobFailed(key)
    return Retry(max=2) if step == "retry" else done(key)


@unique(dibs, "t:{key}", queued=QUEUED, lease=LEASE)
async def follow_on_a_loop(key: str, plan: list[str]) -> Any:
    job: Any = get_current_job()
    step = next_step(key, job.id, plan)
    if step == "fail":
        raise JobFailed(key)
    return Retry(max=2) if step == "retry" else done(key)


def caller(key: str) -> Any:
    """Calls a unique function."""
    return follow(key, ["finish"])


def broken() -> None:
    raise JobFailed("a dependency")


WAYS: dict[str, list[str]] = {
    "`enqueue`": [],
    "`enqueue` with an id": [],
    "`enqueue_in`": [],
    "`enqueue` of a coroutine function": [],
    "a plain `Queue`": [],
    "by a returned `Retry`": ["retry"],
}
ENDS = {name: plan for name, plan in PLANS.items() if not name.startswith("delivered")}
WORKER = """
import os, sys, redis, rq
from tests.integrations.jobs import job_control, table_rq
is_first = not any(os.fork() == 0 for _ in sys.argv[1:])
connection = redis.Redis.from_url(job_control.URL)
worker = rq.Worker(["default"], connection=connection)
worker.work(logging_level="ERROR", with_scheduler=is_first)
"""
"""As many more of them as it has arguments."""


class RqCells:
    """RQ, with three workers."""

    ways, ends = WAYS, ENDS

    def __init__(self) -> None:
        self.connection = redis.Redis.from_url(URL)
        self.queue = UniqueQueue(connection=self.connection)

    @contextmanager
    def workers(self, server: Server) -> Iterator[None]:
        with ExitStack() as stack:
            for _ in range(3):
                stack.enter_context(running(server, "-c", WORKER))
            yield

    def close(self) -> None:
        self.connection.close()
        dibs.close()

    def expected(self, way: str, end: str) -> Facts:
        before, runs = len(WAYS[way]), 2 if end in ("retry", "kill -9") else 1
        times = 0 if end in ("failure", "time limit", "revoked while it runs") else 1
        return Facts(before + runs, times, is_free=True)

    def send_all(self, client: Any, keys: dict[tuple[str, str], str]) -> None:
        jobs = {
            pair: self.send(*pair, key, [*WAYS[pair[0]], *ENDS[pair[1]]])
            for pair, key in keys.items()
        }
        for (way, end), job in jobs.items():
            if end == "revoked while it runs":
                wanted, key = len(WAYS[way]) + 1, keys[way, end]
                wait_until(lambda k=key, n=wanted: client.llen(f"starts:{k}") >= n)
                send_stop_job_command(self.connection, job.id)

    def send(self, way: str, end: str, key: str, plan: list[str]) -> Any:
        options: dict[str, Any] = {"job_timeout": LIMIT if plan[-1] == "hang" else 60}
        if end == "kill -9":
            options["retry"] = Retry(max=2)
        if way == "`enqueue_in`":
            return self.queue.enqueue_in(timedelta(seconds=0.5), follow, key, plan, **options)
        if way == "`enqueue` with an id":
            options["job_id"] = f"my-{key}"
        queue = Queue(connection=self.connection) if "plain" in way else self.queue
        return queue.enqueue(
            follow_on_a_loop if "coroutine" in way else follow, key, plan, **options
        )

    def is_quiet(self, client: Any) -> bool:
        return not self.queue.count and not self.queue.started_job_registry.count

    # ---- what else may happen to a job

    @property
    def fates(self) -> Any:
        return {
            "called as a function, in another job": self.called,
            "the same id again, after its end": self.id_again,
            "its module cannot be imported": self.not_imported,
            "`ttl` is over": self.ttl,
            "cancelled": self.cancelled,
            "deleted": self.deleted,
            "the queue is emptied": self.emptied,
            "the job that it depends on has failed": self.dependency,
        }

    def next_one(self, fate: Fate, first: Any) -> str:
        """Whether another one with the same key is enqueued and run."""
        second = self.queue.enqueue(follow, fate.key, ["finish"])
        assert second.id != first.id, "the answer is a job that cannot run"
        eventually(lambda: facts(fate.client, fate.key) == (1, 1, True), within=90)
        return "the next one runs"

    def waiting(self, fate: Fate, **options: Any) -> Any:
        nobody = UniqueQueue("nobody", connection=self.connection)
        return nobody.enqueue(follow, fate.key, ["finish"], **options)

    def called(self, fate: Fate) -> str:
        self.waiting(fate)
        self.queue.enqueue(caller, fate.key)
        eventually(lambda: fate.client.llen(f"done:{fate.key}") == 1, within=90)
        return "it runs, unguarded"

    def id_again(self, fate: Fate) -> str:
        for times in (1, 2):
            self.queue.enqueue(follow, fate.key, ["finish"] * 2, job_id=f"twice-{fate.key}")
            eventually(lambda n=times: facts(fate.client, fate.key) == (n, n, True), within=90)
        return "it runs again"

    def not_imported(self, fate: Fate) -> str:
        """As after a deployment that lacks a module."""
        jobs = follow.dibs_jobs  # type: ignore[attr-defined]
        first = self.queue.create_job("gone.follow", args=(fate.key, ["finish"]))
        first.dibs_jobs = jobs
        self.queue.enqueue_job(first)
        eventually(lambda: first.get_status(refresh=True) == "failed", within=90)
        return self.next_one(fate, first)

    def ttl(self, fate: Fate) -> str:
        first = self.waiting(fate, ttl=1)
        eventually(lambda: not fate.client.exists(f"rq:job:{first.id}"), within=90)
        return self.next_one(fate, first)

    def cancelled(self, fate: Fate) -> str:
        first = self.waiting(fate)
        first.cancel()
        return self.next_one(fate, first)

    def deleted(self, fate: Fate) -> str:
        first = self.waiting(fate)
        first.delete()
        return self.next_one(fate, first)

    def emptied(self, fate: Fate) -> str:
        first = self.waiting(fate)
        Queue("nobody", connection=self.connection).empty()
        return self.next_one(fate, first)

    def dependency(self, fate: Fate) -> str:
        needed = self.queue.enqueue(broken)
        first = self.queue.enqueue(follow, fate.key, ["finish"], depends_on=needed)
        eventually(lambda: needed.get_status(refresh=True) == "failed", within=90)
        return self.next_one(fate, first)
