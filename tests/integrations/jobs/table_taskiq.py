"""The table of Taskiq: tasks with a plan, and every way to send them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

from taskiq import Context, SimpleRetryMiddleware, TaskiqDepends, async_shared_broker
from taskiq.kicker import AsyncKicker
from taskiq_redis import ListQueueBroker, RedisAsyncResultBackend, RedisStreamBroker

from dibs import AsyncDibs
from dibs.integrations.taskiq import unique
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
    is_refused,
    next_step,
    wait_until,
)

Here = Annotated[Context, TaskiqDepends()]
QUEUE = "taskiq"

broker: Any = (
    RedisStreamBroker(URL, QUEUE, consumer_group_name=QUEUE, idle_timeout=8000)
    if fences.IS_ON  # the one of the two that delivers again what was lost with its worker
    else ListQueueBroker(URL, queue_name=QUEUE)
).with_result_backend(RedisAsyncResultBackend(URL))
broker.add_middlewares(SimpleRetryMiddleware(default_retry_count=5))
async_shared_broker.default_broker(broker)
dibs = AsyncDibs(STORE_URL, namespace="unique:", budget=5)


def guarded() -> Any:
    return unique(dibs, "t:{key}", queued=QUEUED, lease=LEASE)


async def follow(key: str, plan: list[str], here: Context) -> str:
    task_id = here.message.task_id
    step = await fences.in_thread(next_step, key, task_id, plan)
    if step in ("fail", "retry"):
        here.message.labels["retry_on_error"] = step == "retry"
        raise JobFailed(key)
    if step == "requeue":
        await here.requeue()
    if step == "sleep":
        here.message.labels["retry_on_error"] = False  # of the run before
        await asyncio.sleep(60)
    if step.startswith("copy"):
        await copy(here, delay=1 if step == "copy later" else 0)
    if step == "copy":
        while not await fences.in_thread(is_refused, task_id):  # a loop has few threads
            await asyncio.sleep(0.05)
    return await fences.in_thread(done, key)


_copies: set[Any] = set()


async def copy(here: Context, delay: float) -> None:
    """The same message once more, as a broker delivers it again."""
    message = here.broker.formatter.dumps(here.message)

    async def send() -> None:
        await asyncio.sleep(delay)
        await here.broker.kick(message)

    _copies.add(asyncio.create_task(send()))


@guarded()
@broker.task
async def task(key: str, plan: list[str], here: Here) -> str:
    return await follow(key, plan, here)


@guarded()
@async_shared_broker.task
async def shared(key: str, plan: list[str], here: Here) -> str:
    return await follow(key, plan, here)


async def _refused() -> AsyncGenerator[str]:
    raise JobFailed("a dependency")
    yield ""


@guarded()
@broker.task
async def dependent(key: str, needed: Annotated[str, TaskiqDepends(_refused)]) -> str:
    return key


@broker.task
async def caller(key: str, here: Here) -> str:
    """Calls a unique task as a function."""
    return await task(key, ["finish"], here)


WAYS: dict[str, list[str]] = {
    "`kiq`": [],
    "a kicker used twice": [],
    "a shared broker": [],
    "by name": [],
    "by a retry": ["retry"],
    "by `requeue`": ["requeue"],
}
ENDS = {name: plan for name, plan in PLANS.items() if not name.startswith("revoked")}
ENDS["time limit"] = ["sleep"]
ENDS["kill -9"] = ["sleep"]
WORKER = ("-m", "taskiq", "worker", "tests.integrations.jobs.table_taskiq:broker", "--workers=1",
          "--max-async-tasks=60", "--log-level=ERROR")  # fmt: skip


class TaskiqCells:
    """Taskiq, with a list of Redis as the broker: what is lost with its worker is lost."""

    ways, ends = WAYS, ENDS

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.kicker: Any = None

    def wait(self, coroutine: Any) -> Any:
        return self.loop.run_until_complete(coroutine)

    @contextmanager
    def workers(self, server: Server) -> Iterator[None]:
        self.running = Workers(lambda: running(server, *WORKER))
        self.wait(broker.startup())
        with self.running:
            yield

    def close(self) -> None:
        self.wait(broker.shutdown())
        self.wait(broker.connection_pool.disconnect())
        self.wait(broker.result_backend.redis_pool.disconnect())  # type: ignore[attr-defined]
        self.wait(dibs.aclose())
        self.loop.close()

    def expected(self, way: str, end: str) -> Facts:
        before, runs = len(WAYS[way]), 2 if end == "retry" else 1
        times = int(end not in ("failure", "time limit", "kill -9"))
        return Facts(before + runs, times, is_free=True)

    def send_all(self, client: Any, keys: dict[tuple[str, str], str]) -> None:
        for (way, end), key in keys.items():
            self.wait(self.send(way, end, key, [*WAYS[way], *ENDS[end]]))
        doomed = {key: len(WAYS[way]) + 1 for (way, end), key in keys.items() if end == "kill -9"}
        others = [(pair, key) for pair, key in keys.items() if key not in doomed]
        wait_until(
            lambda: (
                all(facts(client, key).runs >= n for key, n in doomed.items())
                and all(facts(client, key) >= self.expected(*pair) for pair, key in others)
            )
        )
        self.running.kill_and_start()

    async def connect(self) -> None:
        """In a process that only sends."""
        await broker.startup()

    async def send(self, way: str, end: str, key: str, plan: list[str]) -> Any:
        labels = {"timeout": LIMIT} if end == "time limit" else {}
        labels["max_retries"] = 5
        if way == "by name":
            kicker: Any = AsyncKicker(task.task_name, broker, labels)
            return await kicker.kiq(key, plan)
        if "kicker" in way:
            self.kicker = self.kicker or task.kicker().with_labels(max_retries=5)
            kicker = task.kicker().with_labels(**labels) if "timeout" in labels else self.kicker
            return await kicker.kiq(key, plan)
        chosen: Any = shared if "shared" in way else task
        return await chosen.kicker().with_labels(**labels).kiq(key, plan)

    def is_quiet(self, client: Any) -> bool:
        return not client.llen(QUEUE)

    # ---- what else may happen to a task

    @property
    def fates(self) -> Any:
        return {
            "called as a function, in another task": self.called,
            "the same id again, after its end": self.id_again,
            "an error in a dependency": self.refused,
            "the queue is emptied": self.emptied,
            "sent by name while one waits": self.duplicate_by_name,
        }

    async def _waiting(self, key: str) -> Any:
        nobody: Any = task.kicker().with_labels(queue_name="nobody")
        return await nobody.kiq(key, ["finish"])

    def called(self, fate: Fate) -> str:
        self.wait(self._waiting(fate.key))
        self.wait(caller.kiq(fate.key))
        eventually(lambda: fate.client.llen(f"done:{fate.key}") == 1, within=90)
        return "it runs, unguarded"

    def id_again(self, fate: Fate) -> str:
        for times in (1, 2):
            kicker: Any = task.kicker().with_task_id(f"twice-{fate.key}")
            self.wait(kicker.kiq(fate.key, ["finish"] * 2))
            eventually(lambda n=times: facts(fate.client, fate.key) == (n, n, True), within=90)
        return "it runs again"

    def refused(self, fate: Fate) -> str:
        sent: Any = self.wait(dependent.kiq(fate.key))  # type: ignore[call-arg]
        self.wait(sent.wait_result(timeout=60))
        eventually(lambda: not fate.client.exists(f"unique:t:{fate.key}"), within=90)
        self.wait(task.kiq(fate.key, ["finish"]))  # type: ignore[call-arg]
        eventually(lambda: facts(fate.client, fate.key) == (1, 1, True), within=90)
        return "the next one runs"

    def emptied(self, fate: Fate) -> str:
        first = self.wait(self._waiting(fate.key))
        fate.client.delete("nobody")
        second: Any = self.wait(task.kiq(fate.key, ["finish"]))  # type: ignore[call-arg]
        assert second.task_id == first.task_id
        return "the key is kept for `queued`: a broker cannot be asked"

    def duplicate_by_name(self, fate: Fate) -> str:
        self.wait(self._waiting(fate.key))
        kicker: Any = AsyncKicker(task.task_name, broker, {})
        sent = self.wait(kicker.kiq(fate.key, ["finish"]))
        result = self.wait(sent.wait_result(timeout=60))
        return f"`{type(result.error).__name__}` for who waits"
