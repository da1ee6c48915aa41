"""What a caller gets for a duplicate can be waited for: it ends, also where no result can come."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from celery import Celery
from celery.exceptions import TimeoutError as CeleryTimeout
from celery.result import AsyncResult
from rq import SimpleWorker
from taskiq import AsyncTaskiqTask, InMemoryBroker

from dibs import AsyncDibs, Dibs, LeaseLost
from dibs.integrations import celery as for_celery
from dibs.integrations import taskiq as for_taskiq
from dibs.integrations.rq import UniqueQueue
from dibs.integrations.rq import unique as unique_in_rq
from dibs.testing import Server, eventually

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture
def dibs(own_server: Server) -> Iterator[Dibs]:
    with Dibs(own_server.url, budget=5) as dibs:
        yield dibs


@pytest.fixture
def app(own_server: Server) -> Iterator[Celery]:
    with Celery("answers", broker=own_server.url, backend=own_server.url) as app:
        yield app
        # A result that is collected after this test would ask a server that is gone.
        app.backend.remove_pending_result = lambda result: result


def double(n: int) -> int:
    return 2 * n


def task_of(app: Celery, dibs: Dibs, **options: Any) -> Any:
    base = for_celery.unique(dibs, "double:{n}", until=600, lease=1)
    return app.task(base=base, name=uuid.uuid4().hex, **options)(double)


def run_here(app: Celery, task: Any, sent: Any, n: int) -> None:
    """As a worker does: with the headers of the message."""
    message: Any = app.connection_for_read().SimpleQueue("celery").get(timeout=10)
    message.ack()
    headers = {name: value for name, value in message.headers.items() if name.startswith("dibs_")}
    ended = task.apply((n,), task_id=sent.id, headers=headers)
    task.backend.mark_as_done(sent.id, ended.get())


def test_a_result_that_is_gone_is_none(app: Celery, dibs: Dibs) -> None:
    """Not one that never comes: the task was done long ago, and its result forgotten."""
    task = task_of(app, dibs)
    first = task.delay(1)
    run_here(app, task, first, 1)
    assert task.delay(1).get(timeout=10) == 2
    first.forget()
    again = task.delay(1)
    assert again.id == first.id
    eventually(lambda: task.delay(1).ready())
    assert again.get() is None and again.successful()


def test_a_result_that_is_ignored_is_none_at_once(app: Celery, dibs: Dibs) -> None:
    """As that of the first one."""
    task = task_of(app, dibs, ignore_result=True)
    assert task.delay(1).get() is None
    assert task.delay(1).get() is None


def test_an_eager_task_was_run(app: Celery, dibs: Dibs) -> None:
    """Nothing is stored, and nothing to wait for."""
    app.conf.task_always_eager = True
    task = task_of(app, dibs)
    assert task.delay(1).get() == 2
    assert task.delay(1).get() is None


def test_a_task_that_waits_is_waited_for(app: Celery, dibs: Dibs, own_server: Server) -> None:
    """For as long as the caller says; one that was lost is an error."""
    task = task_of(app, dibs)
    first = task.delay(1)
    again = task.delay(1)
    with pytest.raises(CeleryTimeout):
        again.get(timeout=1.2)
    assert again.state == "PENDING"
    own_server.client().delete("double:1")  # as after its lease, when its worker was killed
    with pytest.raises(LeaseLost):
        again.get()
    assert again.id == first.id and isinstance(again, AsyncResult)


def doubled(n: int) -> int:
    return 2 * n


def test_a_job_of_rq_that_is_gone_has_finished(own_server: Server, dibs: Dibs) -> None:
    """Its state can be asked, as that of one that RQ still knows."""
    global doubled
    plain, connection = doubled, redis.Redis.from_url(own_server.url)
    doubled = unique_in_rq(dibs, "doubled:{n}", until=600)(plain)
    queue = UniqueQueue(connection=connection)
    first = queue.enqueue(doubled, 4)
    logging.getLogger("rq.worker").setLevel(logging.ERROR)
    SimpleWorker([queue], connection=connection).work(burst=True)
    assert queue.enqueue(doubled, 4).return_value() == 8
    first.delete()
    again = queue.enqueue(doubled, 4)
    doubled = plain
    assert again.id == first.id and again.is_finished and again.get_status() == "finished"
    assert again.return_value() is None and again.latest_result() is None
    connection.close()


async def test_a_task_of_taskiq_that_is_gone_is_ready(own_server: Server) -> None:
    """Its result is None; that of one that was lost is an error."""
    broker = InMemoryBroker(await_inplace=True)
    async with AsyncDibs(own_server.url, budget=5) as dibs:

        @for_taskiq.unique(dibs, "double:{n}", until=600, lease=1)
        @broker.task(task_name=uuid.uuid4().hex)
        async def work(n: int) -> int:
            return 2 * n

        first = await work.kiq(2)
        assert (await first.wait_result(timeout=10)).return_value == 4
        broker.result_backend.results.clear()
        again = await work.kiq(2)
        assert again.task_id == first.task_id and isinstance(again, AsyncTaskiqTask)
        result = await again.wait_result(check_interval=0.05)
        assert (result.return_value, result.is_err) == (None, False)
        work.original_func.dibs_jobs  # noqa: B018
        async with work.original_func.dibs_jobs.queueing("double:3", "lost"):
            pass
        lost = await work.kiq(3)
        own_server.client().delete("double:3")
        result = await lost.wait_result(check_interval=0.05)
        assert isinstance(result.error, LeaseLost)
