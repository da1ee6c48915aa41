"""Jobs with `queue=True` in real workers of five queues: all run, in order, also after a kill."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
import redis
from arq import create_pool
from arq.connections import RedisSettings
from rq.job import Job as RQJob

from dibs.integrations.arq import enqueue_job
from dibs.integrations.rq import UniqueQueue
from dibs.testing import Server
from tests.integrations.jobs.conftest import StartWorker, loaded_anew
from tests.integrations.jobs.job_control import JobControl

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of redis-py
APP = "tests.integrations.jobs."
RQ_WORKER = """
import redis, rq
from tests.integrations.jobs import job_control
connection = redis.Redis.from_url(job_control.URL)
rq.Worker(["turns"], connection=connection).work(logging_level="ERROR")
"""
WORKERS: dict[str, tuple[str, ...]] = {
    "celery": ("-m", "celery", "-A", f"{APP}celery_app", "worker", "--concurrency=1", "-P", "solo",
               "--without-gossip", "--without-mingle", "-Q", "turns"),
    "rq": ("-c", RQ_WORKER),
    "dramatiq": ("-m", "dramatiq", f"{APP}dramatiq_app", "--processes=1", "--threads=2",
                 "--queues", "default"),
    "taskiq": ("-m", "taskiq", "worker", f"{APP}taskiq_app:broker", "--workers=1",
               "--max-async-tasks=2", "--log-level=ERROR"),
    "arq": ("-m", "arq", f"{APP}arq_app.WorkerSettings"),
}  # fmt: skip

Send = Callable[[str, str], str]
"""Sends a job by its name and its key; returns its id."""
Ended = Callable[[str], Any]
"""Waits for the result of a job."""


@pytest.fixture
def key() -> str:
    return uuid.uuid4().hex


@contextmanager
def celery(app: Any, broker: Server) -> Iterator[tuple[Send, Ended]]:
    def send(name: str, key: str) -> str:
        return getattr(app, name).apply_async((key,), queue="turns").id

    yield send, lambda job_id: app.in_turn.AsyncResult(job_id).get(timeout=60)
    app.dibs.close()
    app.app.close()


@contextmanager
def rq(app: Any, broker: Server) -> Iterator[tuple[Send, Ended]]:
    with redis.Redis.from_url(broker.url) as connection:
        queue = UniqueQueue("turns", connection=connection)

        def ended(job_id: str) -> Any:
            result = RQJob.fetch(job_id, connection).latest_result(60)
            return result and result.return_value

        yield lambda name, key: queue.enqueue(getattr(app, name), key).id, ended
    app.dibs.close()


@contextmanager
def dramatiq(app: Any, broker: Server) -> Iterator[tuple[Send, Ended]]:
    sent: dict[str, Any] = {}

    def send(name: str, key: str) -> str:
        message = getattr(app, name).send(key)
        sent[message.message_id] = message
        return message.message_id

    yield send, lambda job_id: sent[job_id].get_result(block=True, timeout=60_000)
    app.dibs.close()
    app.broker.close()


@asynccontextmanager
async def taskiq(app: Any, broker: Server) -> AsyncGenerator[tuple[Any, Any]]:
    sent: dict[str, Any] = {}
    await app.broker.startup()

    async def send(name: str, key: str) -> str:
        task = await getattr(app, name).kiq(key)
        sent[task.task_id] = task
        return task.task_id

    async def ended(job_id: str) -> Any:
        return (await sent[job_id].wait_result(timeout=60, check_interval=0.02)).return_value

    yield send, ended
    await app.broker.shutdown()
    await app.broker.connection_pool.disconnect()
    await app.broker.result_backend.redis_pool.disconnect()
    await app.dibs.aclose()


@asynccontextmanager
async def arq(app: Any, broker: Server) -> AsyncGenerator[tuple[Any, Any]]:
    sent: dict[str, Any] = {}
    pool = await create_pool(RedisSettings.from_dsn(broker.url))

    async def send(name: str, key: str) -> str:
        job = await enqueue_job(pool, getattr(app, name), key)
        assert job is not None
        sent[job.job_id] = job
        return job.job_id

    async def ended(job_id: str) -> Any:
        while (info := await sent[job_id].result_info()) is None:
            await asyncio.sleep(0.02)
        return info.result

    yield send, ended
    await pool.aclose()
    await pool.connection_pool.disconnect()
    await app.dibs.aclose()


def app_of(framework: str, broker: Server) -> Any:
    patch = pytest.MonkeyPatch()
    patch.setattr(f"{APP}job_control.URL", broker.url)
    app = loaded_anew(f"{framework}_app")
    patch.undo()
    return app


NAMES = ("in_turn", "also_in_turn", "in_turn", "also_in_turn")


@pytest.mark.parametrize("framework", ["celery", "rq", "dramatiq"])
def test_all_jobs_run_in_their_order(
    broker: Server, control: JobControl, key: str, start_worker: StartWorker, framework: str
) -> None:
    """Of two kinds, by two workers, and also while the first is tried again."""
    opened = {"celery": celery, "rq": rq, "dramatiq": dramatiq}[framework]
    for _ in range(2):
        start_worker(*WORKERS[framework])
    with opened(app_of(framework, broker), broker) as (send, ended):
        ids = [send(name, key) for name in NAMES]
        assert control.started(key).id == ids[0]
        control.send(key, "retry")
        assert control.started(key).id == ids[0]
        control.send(key)
        for job_id in ids[1:]:
            assert control.started(key).id == job_id
            control.send(key)
        assert [ended(job_id) for job_id in ids] == [key] * 4
        assert control.runs(key) == [ids[0], *ids]


@pytest.mark.parametrize("framework", ["taskiq", "arq"])
async def test_all_jobs_run_in_their_order_on_a_loop(
    broker: Server, control: JobControl, key: str, start_worker: StartWorker, framework: str
) -> None:
    """The same, with Taskiq and arq."""
    opened = {"taskiq": taskiq, "arq": arq}[framework]
    for _ in range(2):
        await asyncio.to_thread(start_worker, *WORKERS[framework])
    async with opened(app_of(framework, broker), broker) as (send, ended):
        ids = [await send(name, key) for name in NAMES]
        for number, job_id in enumerate([ids[0], *ids]):
            assert (await asyncio.to_thread(control.started, key)).id == job_id
            control.send(key, "finish" if number else "retry")
        assert [await ended(job_id) for job_id in ids] == [key] * 4
        assert control.runs(key) == [ids[0], *ids]


@pytest.mark.parametrize("framework", ["celery", "dramatiq"])
def test_a_worker_that_is_killed_holds_nobody_up(
    broker: Server, control: JobControl, key: str, start_worker: StartWorker, framework: str
) -> None:
    """It should have sent the next one: another worker does. Nobody sends anything else."""
    opened = {"celery": celery, "dramatiq": dramatiq}[framework]
    with opened(app_of(framework, broker), broker) as (send, _):
        killed = start_worker(*WORKERS[framework])
        ids = [send(name, key) for name in NAMES]
        assert control.started(key).id == ids[0]
        killed.kill()
        start_worker(*WORKERS[framework])
        met = []
        while set(ids[1:]) - set(met):
            met.append(control.started(key).id)
            control.send(key)
        assert [each for each in met if each != ids[0]] == ids[1:]


@pytest.mark.parametrize(
    "framework",
    ["taskiq", pytest.param("arq", marks=pytest.mark.long)],  # arq waits for a minute
)
async def test_a_worker_that_is_killed_on_a_loop_holds_nobody_up(
    broker: Server, control: JobControl, key: str, start_worker: StartWorker, framework: str
) -> None:
    """The same, with Taskiq and arq, which run the job again that was killed."""
    opened = {"taskiq": taskiq, "arq": arq}[framework]
    async with opened(app_of(framework, broker), broker) as (send, _):
        killed = await asyncio.to_thread(start_worker, *WORKERS[framework])
        ids = [await send(name, key) for name in NAMES]
        assert (await asyncio.to_thread(control.started, key)).id == ids[0]
        await asyncio.to_thread(killed.kill)
        await asyncio.to_thread(start_worker, *WORKERS[framework])
        met = []
        while set(ids) - set(met):
            met.append((await asyncio.to_thread(control.started, key)).id)
            control.send(key)
        assert [each for each in met if each != ids[0]] == ids[1:]
