"""Jobs that a worker has fetched and not started: who has them, and what becomes of their keys."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from dibs import AsyncDibs, Dibs, Duplicate
from dibs._internal_api import inspector
from dibs.integrations._async.jobs import AsyncUniqueJobs
from dibs.integrations._sync.jobs import UniqueJobs
from dibs.integrations._unique_jobs import Job, UniqueKey, UniqueOptions
from dibs.testing import Server, aeventually, eventually
from tests.integrations.jobs.conftest import StartWorker, loaded_anew
from tests.integrations.jobs.job_control import JobControl

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of redis-py, in Celery
KEY = "report:1"


def report(account: int) -> None: ...


def jobs_of(dibs: Dibs, **options: Any) -> UniqueJobs:
    return UniqueJobs(dibs, UniqueKey("report:{account}", report, UniqueOptions(**options), "r"))


def sent(jobs: UniqueJobs, job_id: str, key: str = KEY) -> str:
    with jobs.queueing(key, job_id) as sending:
        return sending.token


def worker_of(dibs: Dibs, key: str = KEY) -> str | None:
    entry = inspector(dibs).entry(key)
    return entry and entry.worker


@pytest.fixture
def key() -> str:
    return uuid.uuid4().hex


# ---- in any framework


@pytest.mark.parametrize("until", ["end", "start", 60])
def test_the_key_of_a_fetched_job_is_free_after_its_worker(
    own_server: Server, until: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """While the worker lives its job is the one; after its last heartbeat another one is."""
    caplog.set_level(logging.INFO, "dibs")
    with Dibs(own_server.url, budget=5) as dibs, Dibs(own_server.url, budget=5) as worker:
        jobs, terms = jobs_of(dibs, until=until, lease=1), {"until": until, "lease": 1}
        token = sent(jobs, "a")
        jobs_of(worker, **terms).fetched(KEY, token)
        entry = inspector(dibs).entry(KEY)
        assert entry and entry.note == "a" and entry.holder and " " not in entry.holder
        with pytest.raises(Duplicate) as caught, jobs.queueing(KEY, "b"):
            pass
        assert caught.value.note == "a"
        worker.close()
        eventually(lambda: not own_server.client().exists(f"job:worker:{entry.worker}"))
        sent(jobs, "b")
        assert "job a is replaced" in caplog.text
        with pytest.raises(Duplicate) as caught:  # it is delivered again
            jobs.start(KEY, Job("a", token, 0))
        assert caught.value.note == "b"


def test_a_fetched_job_runs_as_any_other(own_server: Server) -> None:
    """Its claim no longer names a worker then; its retry is fetched, too."""
    with Dibs(own_server.url, budget=5) as dibs:
        jobs = jobs_of(dibs, lease=5)
        token: str | None = sent(jobs, "a")
        for attempt in range(2):
            jobs.fetched(KEY, token or "")
            assert worker_of(dibs) is not None
            with jobs.start(KEY, Job("a", token, attempt)) as run:
                assert worker_of(dibs) is None
                token = run.hand_on()
        with pytest.raises(Duplicate):
            sent(jobs, "b")


def test_a_message_may_be_fetched_before_its_sender_knows(own_server: Server) -> None:
    """Its key is then kept as long as in the queue, its delay included."""
    with Dibs(own_server.url, budget=5) as dibs, Dibs(own_server.url, budget=5) as worker:
        jobs = jobs_of(dibs, lease=1, queued=100)
        with jobs.queueing(KEY, "a", 50) as sending:
            jobs_of(worker, lease=1, queued=100).fetched(KEY, sending.token, 50)
        assert 100_000 < own_server.client().pttl(KEY) <= 150_050


def test_a_worker_has_one_heartbeat(own_server: Server) -> None:
    """For all its tasks and messages; one that stood still for too long gets another one."""
    with Dibs(own_server.url, budget=5) as dibs:
        tasks = [jobs_of(dibs, lease=1) for _ in range(2)]
        names = []
        for number, jobs in reversed(list(enumerate(tasks))):
            jobs.fetched(f"report:{number}", token := sent(jobs, "a", f"report:{number}"))
            names.append(worker_of(dibs, f"report:{number}"))
        assert names[0] == names[1] is not None
        own_server.client().delete(f"job:worker:{names[0]}")  # as if it had expired

        def has_another() -> bool:
            tasks[0].fetched("report:0", token)
            return worker_of(dibs, "report:0") != names[0]

        eventually(has_another)


def test_a_turn_that_waits_in_a_dead_worker_is_free(own_server: Server) -> None:
    """With `alone`, a retry that was fetched keeps the others waiting no longer."""
    terms: dict[str, Any] = {"until": "start", "alone": True, "lease": 1}
    with Dibs(own_server.url, budget=5) as dibs, Dibs(own_server.url, budget=5) as worker:
        jobs = jobs_of(dibs, **terms)
        with jobs.start(KEY, Job("a", sent(jobs, "a"), 0)) as run:
            token = run.hand_on(60)
        jobs_of(worker, **terms).fetched(KEY, token or "", 60)
        second = sent(jobs, "b")
        with pytest.raises(Duplicate):
            jobs.start(KEY, Job("b", second, 0))
        worker.close()

        def starts() -> bool:
            try:
                jobs.start(KEY, Job("b", second, 0)).__exit__(None, None, None)
            except Duplicate:
                return False
            return True

        eventually(starts)


def test_a_producer_that_cannot_ask_is_refused(own_server: Server) -> None:
    """A user of the server who may not read heartbeats, for one: as before."""
    own_server.client().execute_command(
        "ACL", "SETUSER", "web", "on", ">x", "~report:*", "&*", "+@all"
    )
    url = own_server.url.replace("redis://", "redis://web:x@")
    with Dibs(own_server.url, budget=5) as worker, Dibs(url, budget=5) as dibs:
        jobs = jobs_of(dibs, lease=1)
        jobs_of(worker, lease=1).fetched(KEY, sent(jobs, "a"))
        with pytest.raises(Duplicate):
            sent(jobs, "b")


# ---- real workers, killed


@pytest.fixture
def celery_jobs(broker: Any) -> Iterator[Any]:
    patch = pytest.MonkeyPatch()
    patch.setattr("tests.integrations.jobs.job_control.URL", broker.url)
    jobs = loaded_anew("celery_app")
    yield jobs
    jobs.dibs.close()
    jobs.app.close()
    patch.undo()


CELERY = ("-m", "celery", "-A", "tests.integrations.jobs.celery_app", "worker", "--concurrency=1",
          "--prefetch-multiplier=4", "--without-gossip", "--without-mingle", "-Q",
          "prefetched")  # fmt: skip


def test_a_worker_of_celery_that_is_killed_frees_what_it_had_fetched(
    celery_jobs: Any, control: JobControl, key: str, start_worker: StartWorker
) -> None:
    """Prefetched messages and those with a countdown: another one is accepted after a lease."""
    worker = start_worker(*CELERY)

    def send(name: str, countdown: float = 0) -> Any:
        return celery_jobs.work.apply_async(
            (name,), queue="prefetched", countdown=countdown or None
        )

    send(key)
    control.started(key)
    names = [f"{key}-{number}" for number in range(3)]
    first = [send(name, countdown) for name, countdown in zip(names, (0, 0, 600), strict=True)]
    for name in names:
        eventually(lambda name=name: worker_of(celery_jobs.dibs, f"work:{name}"), within=60)
    assert [send(name).id for name in names] == [each.id for each in first]
    assert 600 < celery_jobs.dibs.peek(f"work:{names[2]}").remaining <= 660
    worker.kill()
    for name, before in zip(names, first, strict=True):
        eventually(lambda name=name, before=before: send(name).id != before.id, within=60)
    start_worker(*CELERY)
    for name in names:
        assert control.started(name).id != ""
        control.send(name)


@pytest.fixture
def dramatiq_jobs(broker: Any) -> Iterator[Any]:
    patch = pytest.MonkeyPatch()
    patch.setattr("tests.integrations.jobs.job_control.URL", broker.url)
    jobs = loaded_anew("dramatiq_app")
    yield jobs
    jobs.dibs.close()
    jobs.broker.close()
    patch.undo()


DRAMATIQ = ("-m", "dramatiq", "tests.integrations.jobs.dramatiq_app", "--processes=1",
            "--threads=1", "--queues", "doomed")  # fmt: skip


def test_a_worker_of_dramatiq_that_is_killed_frees_what_it_had_fetched(
    dramatiq_jobs: Any, control: JobControl, key: str, start_worker: StartWorker
) -> None:
    """Prefetched messages and those of its delay queue; when they come again, they are dropped."""
    worker = start_worker(*DRAMATIQ)

    def send(name: str, delay: int | None = None) -> str:
        return dramatiq_jobs.doomed.send_with_options(args=(name,), delay=delay).message_id

    send(key)
    control.started(key)
    names = [f"{key}-{number}" for number in range(2)]
    first = [send(name, delay) for name, delay in zip(names, (None, 600_000), strict=True)]
    for name in names:
        eventually(lambda name=name: worker_of(dramatiq_jobs.dibs, f"work:{name}"), within=60)
    assert [send(name) for name in names] == first
    worker.kill()
    for name, before in zip(names, first, strict=True):
        eventually(lambda name=name, before=before: send(name) != before, within=60)
    start_worker(*DRAMATIQ)
    control.send(key)
    for name, before in zip(names, first, strict=True):
        assert control.started(name).id != before
        control.send(name)


TASKIQ = ("-m", "taskiq", "worker", "tests.integrations.jobs.taskiq_app:broker", "--workers=1",
          "--max-async-tasks=1", "--max-prefetch=3", "--log-level=ERROR")  # fmt: skip


async def test_a_worker_of_taskiq_that_is_killed_frees_what_it_had_fetched(
    broker: Any, control: JobControl, key: str, start_worker: StartWorker
) -> None:
    """What it has prefetched from its stream; what it had read in one batch waits for `queued`."""
    worker = await asyncio.to_thread(start_worker, *TASKIQ)
    patch = pytest.MonkeyPatch()
    patch.setattr("tests.integrations.jobs.job_control.URL", broker.url)
    app = loaded_anew("taskiq_app")
    patch.undo()
    await app.broker.startup()

    async def send(name: str) -> str:
        return (await app.work.kiq(name)).task_id

    async def is_fetched(name: str) -> bool:
        entry = await inspector(app.dibs).entry(f"work:{name}")
        return entry is not None and entry.worker is not None

    async def is_replaced(name: str, before: str) -> bool:
        return await send(name) != before

    await send(key)
    await asyncio.to_thread(control.started, key)
    names = [f"{key}-{number}" for number in range(2)]
    first = [await send(name) for name in names]
    for name in names:
        await aeventually(lambda name=name: is_fetched(name), within=60)
    assert [await send(name) for name in names] == first
    await asyncio.to_thread(worker.kill)
    for name, before in zip(names, first, strict=True):
        await aeventually(lambda name=name, before=before: is_replaced(name, before), within=60)
    await app.broker.shutdown()
    await app.broker.connection_pool.disconnect()
    await app.broker.result_backend.redis_pool.disconnect()
    await app.dibs.aclose()


async def test_what_is_fetched_with_an_async_client(own_server: Server) -> None:
    """The same as with threads."""
    async with AsyncDibs(own_server.url) as dibs, AsyncDibs(own_server.url) as worker:

        async def work(account: int) -> None: ...

        made = UniqueKey("report:{account}", work, UniqueOptions(lease=1), "r")
        jobs, there = AsyncUniqueJobs(dibs, made), AsyncUniqueJobs(worker, made)
        async with jobs.queueing(KEY, "a") as sending:
            pass
        await there.fetched(KEY, sending.token)
        with pytest.raises(Duplicate):
            async with jobs.queueing(KEY, "b"):
                pass
        await worker.aclose()

        async def is_free() -> bool:
            try:
                async with jobs.queueing(KEY, "b"):
                    return True
            except Duplicate:
                return False

        await aeventually(is_free)
