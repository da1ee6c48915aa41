"""arq jobs that must not run twice: real workers, on a server that has the keys as well."""

from __future__ import annotations

import asyncio
import importlib
import json
import uuid
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from arq import Retry, Worker, create_pool, func
from arq.connections import RedisSettings
from arq.jobs import Job as ArqJob

from dibs import AsyncDibs, Unavailable, UsageError
from dibs.integrations.arq import enqueue_job, unique
from dibs.testing import Server, aeventually
from tests.integrations.jobs.conftest import running
from tests.integrations.jobs.job_control import JobControl

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

_RUN = "tests.integrations.jobs.arq_worker"
WORKER = ("-m", _RUN, "tests.integrations.jobs.arq_app.WorkerSettings")


@pytest.fixture(scope="module")
def workers(broker: Server) -> Iterator[list[Any]]:
    """The worker; a test that takes it from the list may kill it."""
    with running(broker, *WORKER) as worker:
        yield [worker]


@asynccontextmanager
async def opened(broker: Server) -> AsyncGenerator[tuple[Any, Any]]:
    """The module of the jobs, reloaded for the loop of a test, and a pool."""
    patch = pytest.MonkeyPatch()
    patch.setattr("tests.integrations.jobs.job_control.URL", broker.url)
    from tests.integrations.jobs import arq_app

    app = importlib.reload(arq_app)
    patch.undo()
    pool = await create_pool(RedisSettings.from_dsn(broker.url))
    try:
        yield app, pool
    finally:
        await pool.aclose()
        await pool.connection_pool.disconnect()
        await app.dibs.aclose()


@pytest.fixture
def key() -> str:
    return uuid.uuid4().hex


async def ended(job: Any) -> Any:
    """Its result. `job.result` misses one that is stored between two of its requests."""
    while (info := await job.result_info()) is None:
        await asyncio.sleep(0.02)
    return info.result


async def test_a_second_job_of_arq_is_the_one_that_waits(broker: Server, key: str) -> None:
    """Nothing is enqueued, also not for later; and `_job_id` is refused as by arq itself."""
    async with opened(broker) as (app, pool):
        first = await enqueue_job(pool, app.work, key, _queue_name="nobody")
        assert (await enqueue_job(pool, app.work, key=key)).job_id == first.job_id
        assert (await enqueue_job(pool, app.work, key, _defer_by=60)).job_id == first.job_id
        other = await enqueue_job(pool, app.work, key + "x", _queue_name="nobody")
        assert other.job_id != first.job_id
        assert await enqueue_job(pool, app.work, key + "y", _job_id=first.job_id) is None
        again = await enqueue_job(pool, app.work, key + "y", _queue_name="nobody")
        assert again.job_id != first.job_id


async def test_one_job_of_arq_runs_and_one_waits(
    broker: Server, control: JobControl, key: str, workers: list[Any]
) -> None:
    """Never two at once, also if the first is tried again. Waiting counts as no try, of three."""
    asked = lambda: control.client.info("commandstats").get("cmdstat_decrby", {}).get("calls", 0)  # noqa: E731
    async with opened(broker) as (app, pool):
        before = asked()
        first = await enqueue_job(pool, app.alone, key)
        await asyncio.to_thread(control.started, key)
        second = await enqueue_job(pool, app.alone, key)
        assert second.job_id != first.job_id
        assert (await enqueue_job(pool, app.alone, key)).job_id == second.job_id
        control.send(key, "retry")
        assert (await asyncio.to_thread(control.started, key)).id == first.job_id
        await aeventually(lambda: asked() >= before + 4, within=90)
        assert control.runs(key) == [first.job_id] * 2
        control.send(key)
        assert (await asyncio.to_thread(control.started, key)).id == second.job_id
        control.send(key)
        assert [await ended(first), await ended(second)] == [key] * 2


async def test_a_job_of_arq_is_unique_until_it_ends(
    workers: Any, broker: Server, control: JobControl, key: str
) -> None:
    """A second one while it runs is the first; then another one runs, although arq keeps
    results."""
    async with opened(broker) as (app, pool):
        first = await enqueue_job(pool, app.work, key)
        assert control.started(key).id == first.job_id
        second = await enqueue_job(pool, app.work, key)
        assert second.job_id == first.job_id
        control.send(key)
        assert await ended(second) == key
        third = await enqueue_job(pool, app.work, key)
        assert control.started(key).id == third.job_id != first.job_id
        control.send(key, "fail")
        await aeventually(lambda: not control.client.exists(f"unique:work:{key}"))


async def test_a_job_of_arq_can_be_unique_until_it_starts_or_for_a_window(
    workers: Any, broker: Server, control: JobControl, key: str
) -> None:
    """While it runs, one more may wait; or after its end none is enqueued, for the window."""
    async with opened(broker) as (app, pool):
        first = await enqueue_job(pool, app.until_started, key)
        control.started(key)
        second = await enqueue_job(pool, app.until_started, key, _queue_name="nobody")
        assert second.job_id != first.job_id
        assert (await enqueue_job(pool, app.until_started, key)).job_id == second.job_id
        control.send(key)
        assert await ended(first) == key
        first = await enqueue_job(pool, app.hourly, key)
        control.started(key)
        control.send(key)
        assert await ended(first) == key
        assert (await enqueue_job(pool, app.hourly, key)).job_id == first.job_id


async def test_a_job_of_arq_that_is_tried_again_keeps_its_key(
    workers: Any, broker: Server, control: JobControl, key: str
) -> None:
    """It is no duplicate of itself; if it was tried too often, the next one takes its place."""
    async with opened(broker) as (app, pool):
        first = await enqueue_job(pool, app.work, key)
        for _ in range(3):
            assert control.started(key).id == first.job_id
            assert (await enqueue_job(pool, app.work, key)).job_id == first.job_id
            control.send(key, "retry")
        await aeventually(lambda: control.client.exists(f"arq:result:{first.job_id}"), within=90)
        second = await enqueue_job(pool, app.work, key)
        assert control.started(key).id == second.job_id != first.job_id
        control.send(key)
        assert await ended(second) == key
        assert control.runs(key) == [first.job_id] * 3 + [second.job_id]


async def test_an_aborted_job_of_arq_frees_its_key(
    workers: Any, broker: Server, control: JobControl, key: str
) -> None:
    """While it waits, or while it runs."""
    async with opened(broker) as (app, pool):
        first = await enqueue_job(pool, app.work, key, _defer_by=60)
        await first.abort(timeout=30, poll_delay=0.02)
        assert isinstance(await ended(first), asyncio.CancelledError)
        second = await enqueue_job(pool, app.work, key)
        assert second.job_id != first.job_id
        runs = [control.started(key).id]
        if runs == [first.job_id]:  # arq has started it, and cancelled it then
            runs.append(control.started(key).id)
        assert runs[-1] == second.job_id
        await second.abort(timeout=30, poll_delay=0.02)
        assert isinstance(await ended(second), asyncio.CancelledError)
        await aeventually(lambda: not control.client.exists(f"unique:work:{key}"))
        for _ in runs:
            control.send(key)  # its thread continues


async def test_a_job_of_a_killed_arq_worker_runs_in_another(
    workers: list[Any], broker: Server, control: JobControl, key: str
) -> None:
    """arq starts it again, and it is no duplicate of itself."""
    async with opened(broker) as (app, pool):
        first = await enqueue_job(pool, app.work, key)
        assert control.started(key).id == first.job_id
        workers.pop().kill()
        assert (await enqueue_job(pool, app.work, key)).job_id == first.job_id
        control.client.delete(f"arq:in-progress:{first.job_id}")  # as its expiry would, later
        with running(broker, *WORKER):
            assert control.started(key).id == first.job_id
            assert (await enqueue_job(pool, app.work, key)).job_id == first.job_id
            control.send(key)
            assert await ended(first) == key


async def test_a_retry_whose_worker_dies_before_it_starts_runs_in_another(
    broker: Server, key: str
) -> None:
    """The claim of a job that is tried again can be continued until that is done."""
    async with opened(broker) as (_, pool), AsyncDibs(broker.url, namespace=key, budget=5) as dibs:
        tries: list[int] = []

        async def work(ctx: Any, x: int) -> None:
            tries.append(ctx["job_try"])
            if ctx["job_try"] == 1:
                raise Retry

        guarded: Any = unique(dibs, "x:{x}")(work)
        with pytest.raises(Retry):  # arq runs each job as a task
            await asyncio.create_task(guarded({"job_id": key, "job_try": 1, "redis": pool}, 1))
        dying = Dying(pool)
        with pytest.raises(ConnectionError):
            await asyncio.create_task(guarded({"job_id": key, "job_try": 2, "redis": dying}, 1))
        await asyncio.create_task(guarded({"job_id": key, "job_try": 3, "redis": pool}, 1))
        assert tries == [1, 3]


class Dying:
    """A pool whose worker dies as soon as it has read something."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    def __getattr__(self, command: str) -> Any:
        async def call(*args: Any) -> None:
            await getattr(self._pool, command)(*args)
            raise ConnectionError("killed")

        return call


async def test_arguments_that_a_serializer_changes_do_not_change_the_key(
    broker: Server, key: str
) -> None:
    """JSON has no numbers as keys: the worker continues the claim of the producer all the same."""
    settings = RedisSettings.from_dsn(broker.url)
    codec: Any = {"job_serializer": dumped, "job_deserializer": json.loads}
    async with AsyncDibs(broker.url, namespace=key, budget=5) as dibs:
        filtered: Any = unique(dibs, "filtered:{x:hash}")(same)
        pool = await create_pool(settings, default_queue_name=key, **codec)
        first: Any = await enqueue_job(pool, filtered, {1: "a"})
        assert (await enqueue_job(pool, filtered, {1: "a"})).job_id == first.job_id  # type: ignore[union-attr]
        worker = Worker([filtered], queue_name=key, redis_pool=pool, burst=True, poll_delay=0,
                        handle_signals=False, **codec)  # fmt: skip
        await worker.main()
        assert await ended(first) == {"1": "a"}
        assert await enqueue_job(pool, filtered, {1: "a"}) != first
        await worker.close()


def dumped(job: dict[str, Any]) -> bytes:
    return json.dumps(job, default=repr).encode()


async def test_mistakes_and_outages_are_told_by_enqueue_job(broker: Server, key: str) -> None:
    """Before anything is enqueued; a function that is called is not guarded."""
    async with opened(broker) as (_, pool), AsyncDibs("redis://127.0.0.1:1") as dibs:
        with pytest.raises(UsageError, match="until must be"):
            unique(dibs, "x:{x}", until="never")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="no parameter 'y'"):
            unique(dibs, "x:{y}")(same)
        with pytest.raises(UsageError, match="is not unique"):
            await enqueue_job(pool, same, 1)
        with pytest.raises(Unavailable):
            await enqueue_job(pool, unique(dibs, "x:{x}", on_outage="closed")(same), 1)
        assert await enqueue_job(pool, unique(dibs, "x:{x}")(same), 1, _queue_name="nobody")
        assert await unique(dibs, "x:{x}")(same)({}, 1) == 1


@pytest.mark.parametrize("way", ["gather", "create_task"])
async def test_what_a_job_starts_as_a_task_is_not_guarded(
    broker: Server, key: str, way: str
) -> None:
    """As what it awaits: only what the worker has started is a job."""
    async with opened(broker) as (_, pool), AsyncDibs(broker.url, budget=5) as dibs:
        double = unique(dibs, key + ":{x}")(doubled)

        async def total(ctx: Any, x: int) -> int:
            if way == "gather":
                return sum(await asyncio.gather(double(ctx, x), double(ctx, x + 1)))
            return await asyncio.create_task(double(ctx, x))

        await enqueue_job(pool, double, 1, _queue_name="nobody")
        await pool.enqueue_job("total", 1, _job_id=key, _queue_name=key)
        named = await pool.enqueue_job("double", 5, _queue_name=key)
        functions = [func(total, name="total"), func(double, name="double")]
        worker = Worker(
            functions, queue_name=key, redis_pool=pool, burst=True, handle_signals=False,
            poll_delay=0.05,
        )  # fmt: skip
        await worker.main()
        result = await ArqJob(key, pool, key).result(timeout=10)
        assert result == (6 if way == "gather" else 2)
        assert await named.result(timeout=10) == 10  # type: ignore[union-attr]
        assert guarded_runs == [5]
        guarded_runs.clear()


guarded_runs: list[int] = []


async def doubled(ctx: Any, x: int) -> int:
    guarded_runs.extend([x] if "dibs_is_running" in ctx else [])
    return 2 * x


async def same(ctx: Any, x: int) -> int:
    return x


async def test_a_job_of_arq_that_enqueues_itself_runs_again(
    broker: Server, control: JobControl, key: str
) -> None:
    """After its end, with the key that it has kept."""
    async with opened(broker) as (app, pool):
        with running(broker, *WORKER):  # that of the other tests may have been killed
            await _pages(app, pool, control, key)


async def _pages(app: Any, pool: Any, control: JobControl, key: str) -> None:
    await enqueue_job(pool, app.pages, key, 3)
    await aeventually(lambda: control.pages(key) == [3, 2, 1, 0], within=60)
    await aeventually(lambda: not control.client.exists(f"unique:pages:{key}"))
