"""Taskiq tasks that must not run twice: real workers, on a stream that delivers again."""

from __future__ import annotations

import asyncio
import functools
import uuid
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from taskiq import BrokerMessage, InMemoryBroker, SimpleRetryMiddleware, TaskiqDepends
from taskiq.brokers.shared_broker import AsyncSharedBroker

from dibs import AsyncDibs, Unavailable, UsageError
from dibs.integrations.taskiq import unique
from dibs.testing import Server, aeventually
from tests.integrations.jobs.conftest import running
from tests.integrations.jobs.job_control import JobControl

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

WORKER = ("-m", "taskiq", "worker", "tests.integrations.jobs.taskiq_app:broker", "--workers=1",
          "--max-async-tasks=10", "--log-level=ERROR")  # fmt: skip


@pytest.fixture(scope="module")
def workers(broker: Server) -> Iterator[list[Any]]:
    """The worker; a test that takes it from the list may kill it."""
    with running(broker, *WORKER) as first:
        yield [first]


@asynccontextmanager
async def opened(broker: Server) -> AsyncGenerator[Any]:
    """The module of the tasks, reloaded: each test has its own loop."""
    import importlib

    patch = pytest.MonkeyPatch()
    patch.setattr("tests.integrations.jobs.job_control.URL", broker.url)
    from tests.integrations.jobs import taskiq_app

    app = importlib.reload(taskiq_app)
    patch.undo()
    await app.broker.startup()
    try:
        yield app
    finally:
        await app.broker.shutdown()
        await app.broker.connection_pool.disconnect()
        await app.broker.result_backend.redis_pool.disconnect()
        await app.dibs.aclose()


@pytest.fixture
def key() -> str:
    return uuid.uuid4().hex


async def ended(task: Any) -> Any:
    return (await task.wait_result(timeout=30, check_interval=0.02)).return_value


async def test_a_second_task_is_the_one_that_waits(broker: Server, key: str) -> None:
    """Nothing is sent, also not for later."""
    async with opened(broker) as app:
        nobody = app.work.kicker().with_labels(queue_name="nobody")
        first = await nobody.kiq(key)
        assert (await app.work.kiq(key)).task_id == first.task_id
        assert (await app.work.kicker().with_labels(delay=60).kiq(key=key)).task_id == first.task_id
        other = await app.work.kicker().with_labels(queue_name="nobody").kiq(key + "x")
        assert other.task_id != first.task_id


async def test_one_task_of_taskiq_runs_and_one_waits(
    broker: Server, control: JobControl, key: str, workers: list[Any]
) -> None:
    """Never two at once, also if the first is tried again; the second begins after its end."""
    async with opened(broker) as app:
        first = await app.alone.kiq(key)
        await asyncio.to_thread(control.started, key)
        second = await app.alone.kiq(key)
        assert second.task_id != first.task_id
        assert (await app.alone.kiq(key)).task_id == second.task_id
        control.send(key, "retry")
        assert (await asyncio.to_thread(control.started, key)).id == first.task_id
        for each in range(3):
            assert await ended(await app.plain.kiq(str(each))) == str(each)
        assert control.runs(key) == [first.task_id] * 2
        control.send(key)
        assert (await asyncio.to_thread(control.started, key)).id == second.task_id
        control.send(key)
        assert [await ended(first), await ended(second)] == [key] * 2


async def test_a_task_of_taskiq_is_unique_until_it_ends(
    workers: Any, broker: Server, control: JobControl, key: str
) -> None:
    """A second one while it runs is the first; after its end another one runs."""
    async with opened(broker) as app:
        first = await app.work.kiq(key)
        assert control.started(key).id == first.task_id
        second = await app.work.kiq(key)
        assert second.task_id == first.task_id
        control.send(key)
        assert await ended(second) == key
        third = await app.work_in_a_thread.kiq(key)
        assert control.started(key).id == third.task_id != first.task_id
        assert (await app.work.kiq(key)).task_id == third.task_id
        control.send(key)
        assert await ended(third) == "finish"


async def test_a_task_of_taskiq_can_be_unique_until_it_starts_or_for_a_window(
    workers: Any, broker: Server, control: JobControl, key: str
) -> None:
    """While it runs, one more may wait; or after its end none is sent, while the window is open."""
    async with opened(broker) as app:
        first = await app.until_started.kiq(key)
        control.started(key)
        waiting = app.until_started.kicker().with_labels(queue_name="nobody")
        second = await waiting.kiq(key)
        assert second.task_id != first.task_id
        assert (await app.until_started.kiq(key)).task_id == second.task_id
        control.send(key)
        assert await ended(first) == key
        first = await app.hourly.kiq(key)
        control.started(key)
        control.send(key)
        assert await ended(first) == key
        assert (await app.hourly.kiq(key)).task_id == first.task_id


async def test_a_task_of_taskiq_that_is_tried_again_keeps_its_key(
    workers: Any, broker: Server, control: JobControl, key: str
) -> None:
    """It is no duplicate of itself; a failure without a retry frees the key."""
    async with opened(broker) as app:
        first = await app.work.kiq(key)
        for command in ("retry", "retry", "fail"):
            assert control.started(key).id == first.task_id
            assert (await app.work.kiq(key)).task_id == first.task_id
            control.send(key, command)
        assert control.runs(key) == [first.task_id] * 3
        await aeventually(lambda: not control.client.exists(f"unique:work:{key}"))


async def test_of_two_deliveries_by_taskiq_one_runs(
    workers: Any, broker: Server, control: JobControl, key: str
) -> None:
    """While it runs, and after its end."""
    async with opened(broker) as app:
        first = await app.work.kicker().with_labels(queue_name="nobody").kiq(key)
        [(_, message)] = control.client.xrevrange("nobody", count=1)
        control.client.xadd("default", message)
        assert control.started(key).id == first.task_id
        control.client.xadd("default", message)
        control.send(key)
        assert await ended(first) == key
        control.client.xadd("default", message)
        assert await ended(await app.plain.kiq(key)) == key
        pending = functools.partial(control.client.xpending, "default", "default")
        await aeventually(lambda: not pending()["pending"], within=90)
        assert control.runs(key) == [first.task_id]


async def test_a_task_of_a_killed_worker_runs_in_another(
    workers: list[Any], broker: Server, control: JobControl, key: str
) -> None:
    """Its second delivery is no duplicate of the first delivery, which died."""
    async with opened(broker) as app:
        first = await app.work.kiq(key)
        assert control.started(key).id == first.task_id
        workers.pop().kill()
        assert (await app.work.kiq(key)).task_id == first.task_id
        [(_, message)] = control.client.xrevrange("default", count=1)
        with running(broker, *WORKER):
            control.client.xadd("default", message)  # as the broker does, later
            await aeventually(lambda: _is_taken(control, message), within=90)
            assert control.started(key).id == first.task_id
            assert (await app.work.kiq(key)).task_id == first.task_id
            control.send(key)
            assert await ended(first) == key


class Queue(InMemoryBroker):
    """Keeps what is sent, for a test that delivers it."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []

    async def kick(self, message: BrokerMessage) -> None:
        self.sent.append(message.message)


async def test_a_delivery_by_taskiq_that_meets_its_own_run_comes_again(broker: Server) -> None:
    """That run may be lost. Of several deliveries one is sent again, until the run has ended."""
    queue, runs, is_over = Queue(), list[str](), asyncio.Event()
    async with AsyncDibs(broker.url, namespace=uuid.uuid4().hex, budget=5) as dibs:

        @unique(dibs, "work:{key}", lease=1)
        @queue.task(task_name="work")
        async def work(key: str) -> None:
            runs.append(key)
            await is_over.wait()

        await work.kiq("a")
        first, deliver = queue.sent[0], queue.receiver.callback
        running = asyncio.create_task(deliver(first))
        await aeventually(lambda: runs == ["a"])
        await asyncio.gather(*[deliver(first) for _ in range(3)])
        assert queue.sent == [first] * 2
        is_over.set()
        await running
        await deliver(queue.sent[1])
        assert runs == ["a"] and len(queue.sent) == 2


async def test_a_task_that_another_one_calls_is_not_guarded(broker: Server) -> None:
    """Its key would be made of the arguments of that one."""
    async with AsyncDibs(broker.url, namespace=uuid.uuid4().hex, budget=5) as dibs:
        queue = InMemoryBroker(await_inplace=True)

        @unique(dibs, "work:{key}")
        @queue.task(task_name="work")
        async def work(key: str) -> str:
            return f"of {key}"

        @queue.task(task_name="nightly")
        async def nightly(day: str) -> str:
            return await work("a")

        async with dibs.hold("work:b", ttl=60), dibs.hold("work:a", ttl=60):
            assert await ended(await nightly.kiq("b")) == "of a"


async def test_a_task_of_a_shared_broker_frees_its_key(broker: Server) -> None:
    """The broker that runs it is known only when it is sent."""
    async with AsyncDibs(broker.url, namespace=uuid.uuid4().hex, budget=5) as dibs:
        shared, queue = AsyncSharedBroker(), InMemoryBroker(await_inplace=True)
        shared.default_broker(queue)

        @unique(dibs, "work:{key}")
        @shared.task(task_name="shared")  # all brokers of the process see it
        async def work(key: str) -> str:
            return key

        sent = [await work.kiq("a") for _ in range(2)]
        assert [await ended(each) for each in sent] == ["a", "a"]
        assert sent[0].task_id != sent[1].task_id and await dibs.peek("work:a") is None


@pytest.mark.parametrize("fault", ["at the end of a dependency", "while a retry is sent"])
async def test_a_task_that_taskiq_does_not_bring_to_its_end_frees_its_key(
    broker: Server, fault: str
) -> None:
    """It is not acknowledged: it is delivered again, and runs again."""
    queue, runs, faults = Queue(), list[str](), [OSError("gone")]
    queue.add_middlewares(SimpleRetryMiddleware(default_retry_count=3))

    def fail() -> None:
        if faults:
            raise faults.pop()

    async def session() -> AsyncGenerator[None]:
        yield
        if fault == "at the end of a dependency":
            fail()

    async with AsyncDibs(broker.url, namespace=uuid.uuid4().hex, budget=5) as dibs:

        @unique(dibs, "work:{key}")
        @queue.task(task_name="work", retry_on_error=True)
        async def work(key: str, session: None = TaskiqDepends(session)) -> None:
            runs.append(key)
            if fault == "while a retry is sent" and faults:
                queue.kick = lambda message: fail()  # type: ignore[method-assign,assignment]
                raise ValueError

        await work.kiq("a")
        delivery = asyncio.create_task(queue.receiver.callback(queue.sent[0]))
        with pytest.raises(Exception, match=r"gone|Cannot send"):
            await delivery
        await aeventually(functools.partial(_is_free, dibs, "work:a"))
        await queue.receiver.callback(queue.sent[0])
        assert runs == ["a", "a"] and await dibs.peek("work:a") is None


async def _is_free(dibs: AsyncDibs, key: str) -> bool:
    return await dibs.peek(key) is None


def _is_taken(control: JobControl, message: Any) -> bool:
    """Whether a worker that lives has got it; the server may still feed the one that was killed."""
    [group] = control.client.xinfo_groups("default")
    if group["consumers"] < 2:
        return False
    control.client.xadd("default", message)
    return True


async def test_a_late_task_and_a_lost_result_block_nobody(broker: Server) -> None:
    """In memory: after `queued`, or after the end, the next one takes the key."""
    async with AsyncDibs(broker.url, namespace="memory:", budget=5) as dibs:
        memory, runs = InMemoryBroker(await_inplace=True), list[int]()

        @unique(dibs, "x:{x}")
        @memory.task
        async def work(x: int) -> int:
            runs.append(x)
            return x

        first = await work.kiq(1)
        memory.result_backend.results.clear()  # type: ignore[attr-defined]
        second = await work.kiq(1)
        assert second.task_id != first.task_id
        assert await ended(second) == 1
        async with dibs.claim("x:1", window=60, note="another"):
            assert (await work.kiq(1)).task_id == "another"
            assert await work(1) == 1
        assert runs == [1, 1, 1]


async def test_arguments_that_the_message_changes_do_not_change_the_key(broker: Server) -> None:
    """A date is sent as a text: the worker continues the claim of the producer all the same."""
    async with AsyncDibs(broker.url, namespace=uuid.uuid4().hex, budget=5) as dibs:
        memory = InMemoryBroker(await_inplace=True)

        @unique(dibs, "day:{day}")
        @memory.task
        async def report(day: Any) -> str:
            return type(day).__name__

        day = datetime(2026, 11, 15, 12, tzinfo=UTC)
        assert await ended(await report.kiq(day)) == "str"
        assert await dibs.peek(f"day:{day}") is None


async def test_mistakes_and_outages_are_told_by_kiq(broker: Server) -> None:
    """Before anything is sent; with the policy "open" an outage is none."""
    async with AsyncDibs("redis://127.0.0.1:1") as dibs:
        memory = InMemoryBroker(await_inplace=True)
        with pytest.raises(UsageError, match="until must be"):
            unique(dibs, "x:{x}", until="never")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="no parameter 'y'"):
            unique(dibs, "x:{y}")(memory.task(same))
        closed = unique(dibs, "x:{x}", on_outage="closed")(memory.task(task_name="c")(same))
        opened = unique(dibs, "x:{x}")(memory.task(task_name="o")(same))
        with pytest.raises(Unavailable):
            await closed.kiq(1)
        assert await ended(await opened.kiq(1)) == 1


async def same(x: int) -> int:
    return x


async def test_a_task_of_taskiq_that_sends_itself_runs_again(
    broker: Server, control: JobControl, key: str
) -> None:
    """After its end, with the key that it has kept."""
    with running(broker, *WORKER):  # that of the other tests may have been killed
        await _pages(broker, control, key)


async def _pages(broker: Server, control: JobControl, key: str) -> None:
    async with opened(broker) as app:
        await app.pages.kiq(key, 3)
        await aeventually(lambda: control.pages(key) == [3, 2, 1, 0], within=60)
        await aeventually(lambda: not control.client.exists(f"unique:pages:{key}"))
