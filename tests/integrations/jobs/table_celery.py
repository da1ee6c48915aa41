"""The table of Celery: tasks with a plan, and every way to send them."""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from celery import Celery, Task, chain, uuid

from dibs import Dibs
from dibs.integrations.celery import unique
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
    wait_for_refusal,
    wait_until,
)

app = Celery("table", broker=URL, backend=URL)
app.conf.update(
    broker_connection_retry_on_startup=True,
    task_default_retry_delay=0,
    worker_prefetch_multiplier=1,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
)
dibs = Dibs(STORE_URL, namespace="unique:", budget=5)
is_in_context = contextvars.ContextVar("is_in_context", default=False)


def base() -> Any:
    """Each task has its own, with the same keys."""
    return unique(dibs, "t:{key}", queued=QUEUED, lease=LEASE)


class ContextTask(Task):
    """As in the documentation of Flask."""

    abstract = True

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        before = is_in_context.set(True)
        try:
            return self.run(*args, **kwargs)
        finally:
            is_in_context.reset(before)


class UniqueContextTask(base(), ContextTask):  # type: ignore[misc]
    abstract = True


def follow(task: Any, key: str, plan: list[str]) -> str:
    request = task.request
    step = next_step(key, request.id, plan)
    limit = {"time_limit": LIMIT} if plan[-1] == "hang" else {}
    if step == "fail":
        raise JobFailed(key)
    if step == "retry":
        raise task.retry(countdown=0, **limit)
    if step == "replace":
        raise task.replace(task.si(key, plan).set(**limit))
    if step.startswith("copy"):
        copy(task, countdown=1 if step == "copy later" else 0)
    if step == "copy":
        wait_for_refusal(key, request.id)
    return done(key)


def copy(task: Any, **options: Any) -> None:
    """The message that this task was started by, once more: as a broker delivers it again."""
    request = task.request
    Task.apply_async(
        task, request.args, request.kwargs, task_id=request.id, retries=request.retries,
        headers=request.headers, replaced_task_nesting=request.replaced_task_nesting, **options,
    )  # fmt: skip


@app.task(base=base(), bind=True)
def late(self: Any, key: str, plan: list[str]) -> str:
    return follow(self, key, plan)


@app.task(base=base(), bind=True, acks_late=False)
def early(self: Any, key: str, plan: list[str]) -> str:
    return follow(self, key, plan)


@app.task(base=UniqueContextTask, bind=True)
def in_context(self: Any, key: str, plan: list[str]) -> str:
    assert is_in_context.get(), "the __call__ of the application was skipped"
    return follow(self, key, plan)


@app.task
def plain(key: str) -> str:
    return key


@app.task(bind=True)
def caller(self: Any, key: str) -> str:
    """Calls a unique task as a function."""
    return late.run(key, ["finish"]) if self.request.retries else late(key, ["finish"])


class RefusingTask(base()):  # type: ignore[misc]
    abstract = True

    def before_start(self, *args: Any) -> None:
        raise JobFailed("before it starts")


@app.task(base=RefusingTask, bind=True)
def failing_early(self: Any, key: str, plan: list[str]) -> str:
    return follow(self, key, plan)


WAYS: dict[str, list[str]] = {
    "`delay`": [],
    "`delay`, acknowledged early": [],
    "`apply_async` with an id": [],
    "by name": [],
    "in a chain": [],
    "by `self.replace`": ["replace"],
    "by `self.retry`": ["retry"],
    "with a base class of the application": [],
}
WORKER = ("-m", "celery", "-A", "tests.integrations.jobs.table_celery", "worker", "-c8",
          "--without-gossip", "--without-mingle", "--without-heartbeat", "-Pprefork")  # fmt: skip


class CeleryCells:
    """Celery, prefork, on a broker that is Redis."""

    ways = WAYS
    ends = PLANS

    @contextmanager
    def workers(self, server: Server) -> Iterator[None]:
        with running(server, *WORKER):
            yield

    def expected(self, way: str, end: str) -> Facts:
        before, runs, times = len(WAYS[way]), 1, 1
        if end in ("failure", "time limit", "revoked while it runs"):
            times = 0
        elif end == "retry":
            runs = 2
        elif end == "kill -9":
            runs, times = (1, 0) if "early" in way else (2, 1)
        return Facts(before + runs, times, is_free=True)

    def send_all(self, client: Any, keys: dict[tuple[str, str], str]) -> None:
        results = {
            pair: self.send(*pair, key, [*WAYS[pair[0]], *PLANS[pair[1]]])
            for pair, key in keys.items()
        }
        for (way, end), result in results.items():
            if end == "revoked while it runs":
                wanted, key = len(WAYS[way]) + 1, keys[way, end]
                wait_until(lambda k=key, n=wanted: client.llen(f"starts:{k}") >= n)
                result.revoke(terminate=True, signal="SIGKILL")

    def send(self, way: str, end: str, key: str, plan: list[str]) -> Any:
        limit = {"time_limit": LIMIT} if plan == ["hang"] else {}
        if way == "in a chain":
            return chain(plain.s(key), late.s(plan).set(**limit)).apply_async()
        if way == "by name":
            return app.send_task(late.name, (key, plan), **limit)
        if way == "`apply_async` with an id":
            return late.apply_async((key, plan), task_id=f"my-{key}", **limit)
        task = early if "early" in way else in_context if "base" in way else late
        return task.apply_async((key, plan), **limit)

    def is_quiet(self, client: Any) -> bool:
        return not client.llen("celery") and not client.hlen("unacked")

    @property
    def fates(self) -> Any:
        return FATES

    def close(self) -> None:
        dibs.close()
        app.close()


def free_for_the_next(fate: Fate, task: Any = late) -> str:
    """Whether another one with the same key is sent and run."""
    fresh = task.apply_async((fate.key, ["finish"]))
    eventually(lambda: fate.client.llen(f"done:{fate.key}") >= 1, within=90)
    return "the next one runs" if fresh.get(timeout=60) == fate.key else "?"


def called(fate: Fate) -> str:
    late.apply_async((fate.key, ["finish"]), queue="nobody")
    assert plain.delay(fate.key).get(timeout=60) == fate.key
    assert caller.delay(fate.key).get(timeout=60) == fate.key
    return "it runs, unguarded"


def id_again(fate: Fate) -> str:
    for times in (1, 2):
        late.apply_async((fate.key, ["finish"] * 2), task_id=f"twice-{fate.key}")
        eventually(lambda n=times: facts(fate.client, fate.key) == (n, n, True), within=30)
    return "it runs again"


def before_start(fate: Fate) -> str:
    result = failing_early.delay(fate.key, ["finish"])
    assert isinstance(result.get(timeout=60, propagate=False), JobFailed)
    return free_for_the_next(fate)


def _unknown(key: str) -> None: ...


def unknown(fate: Fate) -> str:
    with Celery("other", broker=URL, backend=URL) as other:
        task: Any = other.task(base=base(), name="unknown to the worker")(_unknown)
        first = task.delay(fate.key)
        eventually(lambda: first.state == "FAILURE", within=90)
        second = task.delay(fate.key)
        assert second.id != first.id
        eventually(lambda: second.state == "FAILURE", within=90)
        return "the next one is sent"


def expired(fate: Fate) -> str:
    result = late.apply_async((fate.key, ["finish"]), expires=-1)
    eventually(lambda: result.state == "REVOKED", within=90)
    return free_for_the_next(fate)


def purged(fate: Fate) -> str:
    first = late.apply_async((fate.key, ["finish"]), queue="nobody")
    fate.client.delete("nobody")
    assert late.delay(fate.key, ["finish"]).id == first.id
    return "the key is kept for `queued`: a broker cannot be asked"


def duplicate_by_name(fate: Fate) -> str:
    late.apply_async((fate.key, ["finish"]), queue="nobody")
    result = app.send_task(late.name, (fate.key, ["finish"]), task_id=uuid())
    return f"`{type(result.get(timeout=60, propagate=False)).__name__}` for who waits"


FATES = {
    "called as a function, in another task": called,
    "the same id again, after its end": id_again,
    "an error in `before_start`": before_start,
    "no worker knows the task": unknown,
    "`expires` is over": expired,
    "the queue is purged": purged,
    "sent by name while one waits": duplicate_by_name,
}
