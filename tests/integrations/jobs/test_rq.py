"""RQ jobs that must not run twice: real workers, on a server that has the keys as well."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis
from rq import Retry, SimpleWorker
from rq.job import Job
from rq.serializers import JSONSerializer

from dibs import Dibs, Duplicate, Unavailable, UsageError
from dibs.integrations.rq import UniqueQueue, unique
from dibs.testing import Server, eventually
from tests.integrations.jobs.conftest import StartWorker, loaded_anew, running
from tests.integrations.jobs.job_control import JobControl

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of redis-py, in RQ

WORKER = """
import sys, redis, rq
from tests.integrations.jobs import job_control, rq_app
connection = redis.Redis.from_url(job_control.URL)
rq.Worker(sys.argv[1:], connection=connection).work(logging_level="ERROR")
"""


@pytest.fixture(scope="module")
def connection(broker: Server) -> Iterator[Any]:
    client = redis.Redis.from_url(broker.url)
    yield client
    client.close()


@pytest.fixture(scope="module")
def jobs(broker: Server) -> Iterator[Any]:
    """The functions, and workers that run them."""
    patch = pytest.MonkeyPatch()
    patch.setattr("tests.integrations.jobs.job_control.URL", broker.url)
    rq_app = loaded_anew("rq_app")
    with (
        running(broker, "-c", WORKER, "default"),
        running(broker, "-c", WORKER, "doomed") as doomed,
    ):
        rq_app.doomed = doomed  # type: ignore[attr-defined]
        yield rq_app
    rq_app.dibs.close()
    patch.undo()


@pytest.fixture
def queue(connection: Any) -> UniqueQueue:
    return UniqueQueue(connection=connection)


@pytest.fixture
def nobody(connection: Any) -> UniqueQueue:
    """A queue without a worker."""
    return UniqueQueue("nobody", connection=connection)


@pytest.fixture
def key() -> str:
    return uuid.uuid4().hex


def ended(job: Job) -> Any:
    eventually(lambda: job.get_status(refresh=True) in ("finished", "failed"), within=90)
    return job.return_value(refresh=True)


def test_a_second_job_in_the_queue_is_the_first(
    jobs: Any, queue: UniqueQueue, nobody: UniqueQueue, key: str
) -> None:
    """`enqueue`, `enqueue_in` and `enqueue_call` return the job that waits, from any queue."""
    first = nobody.enqueue(jobs.work, key)
    assert queue.enqueue(jobs.work, key=key).id == first.id
    assert queue.enqueue_in(timedelta(hours=1), jobs.work, key).id == first.id
    assert queue.enqueue("tests.integrations.jobs.rq_app.work", key).id == first.id
    assert nobody.enqueue(jobs.work, key + "x").id != first.id
    assert nobody.job_ids.count(first.id) == 1
    assert queue.count == 0


def test_one_job_runs_and_one_waits(
    jobs: Any, queue: UniqueQueue, control: JobControl, key: str, start_worker: StartWorker
) -> None:
    """Never two at once, also if the first is tried again. What waits counts as no retry."""
    start_worker("-c", WORKER, "default")
    first = queue.enqueue(jobs.alone, key, retry=Retry(max=1))
    control.started(key)
    second = queue.enqueue(jobs.alone, key)
    assert second.id != first.id
    assert queue.enqueue(jobs.alone, key).id == second.id
    control.send(key, "fail")
    assert control.started(key).id == first.id
    # It goes through the queue while another one runs.
    eventually(lambda: any(each.type.name == "RETRIED" for each in second.results()), within=90)
    assert ended(queue.enqueue(jobs.plain, key)) == key
    assert control.runs(key) == [first.id, first.id]
    control.send(key)
    assert control.started(key).id == second.id
    control.send(key, "retry")
    assert control.started(key).id == second.id
    control.send(key)
    assert [ended(first), ended(second)] == [key] * 2


def test_a_job_is_unique_until_it_ends(
    jobs: Any, queue: UniqueQueue, control: JobControl, key: str
) -> None:
    """A second one while it runs is the first; after its end another one runs."""
    first = queue.enqueue(jobs.work, key)
    assert control.started(key).id == first.id
    assert queue.enqueue(jobs.work, key).id == first.id
    control.send(key)
    assert ended(first) == key
    second = queue.enqueue(jobs.work_on_a_loop, key)
    assert control.started(key).id == second.id != first.id
    assert queue.enqueue(jobs.work, key).id == second.id
    control.send(key)
    assert ended(second) == key


def test_a_job_can_be_unique_until_it_starts(
    jobs: Any, queue: UniqueQueue, nobody: UniqueQueue, control: JobControl, key: str
) -> None:
    """While it runs, one more may wait; a third is that one."""
    first = queue.enqueue(jobs.until_started, key)
    control.started(key)
    second = nobody.enqueue(jobs.until_started, key)
    assert second.id != first.id
    assert queue.enqueue(jobs.until_started, key).id == second.id
    control.send(key, "retry")
    assert control.started(key).id == first.id, "a retry runs, whoever waits"
    control.send(key)
    assert ended(first) == key


def test_a_job_can_be_unique_for_a_window(
    jobs: Any, queue: UniqueQueue, control: JobControl, key: str
) -> None:
    """After its end, another one is the first, while the window is open; not after a failure."""
    failed = queue.enqueue(jobs.hourly, key)
    control.started(key)
    control.send(key, "fail")
    ended(failed)
    first = queue.enqueue(jobs.hourly, key)
    assert control.started(key).id == first.id != failed.id
    control.send(key)
    assert ended(first) == key
    assert queue.enqueue(jobs.hourly, key).id == first.id


@pytest.mark.parametrize("victim", ["the job's process", "the worker"])
def test_a_job_that_is_killed_frees_its_key(
    jobs: Any, queue: UniqueQueue, connection: Any, control: JobControl, key: str, victim: str
) -> None:
    """After one lease another one runs."""
    doomed = victim == "the worker"
    where = UniqueQueue("doomed", connection=connection) if doomed else queue
    first = where.enqueue(jobs.work, key)
    pid = control.started(key).pid
    if doomed:
        jobs.doomed.kill()
    os.kill(pid, signal.SIGKILL)
    assert queue.enqueue(jobs.work, key).id == first.id
    eventually(lambda: queue.enqueue(jobs.work, key).id != first.id, within=90)
    assert control.started(key).id != first.id
    control.send(key)


@pytest.mark.parametrize("way", ["raised", "returned", "killed"])
def test_a_job_that_is_tried_again_keeps_its_key(
    jobs: Any, queue: UniqueQueue, control: JobControl, key: str, way: str
) -> None:
    """It is no duplicate of itself: by Retry, returned or given, and after a crash."""
    first = queue.enqueue(jobs.work, key, retry=None if way == "returned" else Retry(max=1))
    pid = control.started(key).pid
    if way == "killed":
        os.kill(pid, signal.SIGKILL)
    else:
        control.send(key, "fail" if way == "raised" else "retry")
    assert queue.enqueue(jobs.work, key).id == first.id
    assert control.started(key).id == first.id
    assert queue.enqueue(jobs.work, key).id == first.id
    control.send(key)
    assert ended(first) == key
    assert control.runs(key) == [first.id] * 2
    eventually(lambda: not control.client.exists(f"unique:work:{key}"))


def test_a_cancelled_job_frees_its_key(
    jobs: Any, queue: UniqueQueue, nobody: UniqueQueue, control: JobControl, key: str
) -> None:
    """The next one takes its key."""
    first = nobody.enqueue(jobs.work, key)
    first.cancel()
    second = queue.enqueue(jobs.work, key)
    assert control.started(key).id == second.id != first.id
    control.send(key)
    assert ended(second) == key


def test_a_job_that_waits_too_long_does_not_block(
    jobs: Any, queue: UniqueQueue, nobody: UniqueQueue, control: JobControl, key: str
) -> None:
    """After `queued`, another one takes its place; the late one says so, and does not run."""
    late = nobody.enqueue(jobs.impatient, key)
    eventually(lambda: not control.client.exists(f"unique:short:{key}"))
    second = queue.enqueue(jobs.until_started, key)
    assert control.started(key).id == second.id
    with jobs.dibs.claim(f"short:{key}", window=60, note="another"):
        queue.push_job_id(late.id)
        control.send(key)
        assert ended(late) is None
    assert late.get_meta()["duplicate_of"] == "another"
    assert control.runs(key) == [second.id]


def test_a_lost_result_of_a_job_blocks_nobody(
    jobs: Any, queue: UniqueQueue, control: JobControl, key: str
) -> None:
    """The key does not depend on what RQ keeps of a job."""
    first = queue.enqueue(jobs.work, key, result_ttl=0)
    control.started(key)
    control.send(key)
    eventually(lambda: not Job.exists(first.id, queue.connection), within=90)
    second = queue.enqueue(jobs.work, key)
    assert control.started(key).id == second.id != first.id
    control.send(key)
    ended(second)


def test_arguments_that_the_serializer_changes_do_not_change_the_key(
    jobs: Any, connection: Any, control: JobControl, key: str
) -> None:
    """JSON has no numbers as keys: the worker continues the claim of the producer all the same."""
    queue = UniqueQueue("json", connection=connection, serializer=JSONSerializer)
    first = queue.enqueue(jobs.filtered, key, {1: "a"})
    assert queue.enqueue(jobs.filtered, key, {1: "a"}).id == first.id
    worker = SimpleWorker([queue], connection=connection, serializer=JSONSerializer)
    worker.work(burst=True, logging_level="ERROR")
    assert ended(first) == key
    assert not list(control.client.scan_iter(f"unique:filtered:{key}:*"))


def test_a_function_with_another_decorator_is_guarded_as_well(
    jobs: Any, queue: UniqueQueue, control: JobControl, key: str
) -> None:
    """Above `unique`, as long as it keeps what functools.wraps copies."""
    first = queue.enqueue(jobs.decorated, key)
    control.started(key)
    assert queue.enqueue(jobs.decorated, key).id == first.id
    control.send(key)
    assert ended(first) == key.upper()
    assert not control.client.exists(f"unique:shouted:{key}")


def test_a_job_that_is_being_enqueued_is_there_and_a_deleted_one_is_not(
    jobs: Any, nobody: UniqueQueue, key: str
) -> None:
    """Neither exists in RQ. The key of the first is short, until it is in the queue."""
    with jobs.work.dibs_jobs.queueing(f"work:{key}", "now"):
        assert nobody.enqueue(jobs.work, key).id == "now"
    with jobs.dibs.claim(f"work:{key}x", window=60, lease=2, note="other") as claim:
        assert nobody.enqueue(jobs.work, key + "x").id == "other"
        claim.release()
    first = nobody.enqueue(jobs.work, key + "y")
    first.delete()
    assert nobody.enqueue(jobs.work, key + "y").id != first.id


def test_a_function_that_is_called_is_not_guarded(
    jobs: Any, nobody: UniqueQueue, control: JobControl, key: str
) -> None:
    """Neither is a job in a queue that does not wait for a worker a duplicate of itself."""
    waiting = nobody.enqueue(jobs.work, key)
    control.send(key)
    assert jobs.work(key) == key
    waiting.cancel()
    at_once = UniqueQueue(connection=nobody.connection, is_async=False)
    control.send(key)
    assert at_once.enqueue(jobs.work, key).return_value() == key
    assert not control.client.exists(f"unique:work:{key}")


def test_an_outage_of_the_store_of_a_queue_follows_the_policy(nobody: UniqueQueue) -> None:
    """Open: the job is enqueued, unguarded. Closed: Unavailable, and nothing is enqueued."""
    before = nobody.count
    with Dibs("redis://127.0.0.1:1") as dibs:
        for policy in ("open", "closed"):
            globals()["same"] = unique(dibs, "x:{x}", on_outage=policy)(plain)  # type: ignore[arg-type]
            if policy == "open":
                assert nobody.enqueue(f"{__name__}.same", 1).id
            else:
                with pytest.raises(Unavailable):
                    nobody.enqueue(f"{__name__}.same", 1)
    assert nobody.count == before + 1


def test_mistakes_about_a_function_are_told_at_once(broker: Server) -> None:
    """An option that makes no sense, a field that the function does not have."""
    with Dibs(broker.url) as dibs:
        with pytest.raises(UsageError, match="until must be"):
            unique(dibs, "x:{x}", until="never")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="no parameter 'y'"):
            unique(dibs, "x:{y}")(plain)


def plain(x: int) -> int:
    return x


def test_jobs_that_are_enqueued_together_are_unique(
    jobs: Any, queue: UniqueQueue, nobody: UniqueQueue, control: JobControl, key: str
) -> None:
    """In place of each duplicate, the existing job: from before, or earlier in the same call."""
    waiting = nobody.enqueue(jobs.work, key + "a")
    prepared = [
        UniqueQueue.prepare_data(function, (text,), job_id=job_id)
        for function, text, job_id in [
            (jobs.work, key + "a", None), (jobs.work, key, None), (jobs.plain, key, "own" + key),
            (jobs.work, key, None), ("tests.integrations.jobs.rq_app.work", key, None),
        ]
    ]  # fmt: skip
    first, second, third, *others = queue.enqueue_many(prepared)
    assert first.id == waiting.id
    assert third.id == "own" + key
    assert [each.id for each in others] == [second.id] * 2
    assert control.started(key).id == second.id
    assert queue.enqueue(jobs.work, key).id == second.id
    control.send(key)
    assert [ended(second), ended(third)] == [key, key]
    eventually(lambda: not control.client.exists(f"unique:work:{key}"))


def test_jobs_that_are_enqueued_together_are_all_refused(connection: Any, key: str) -> None:
    """If one is a duplicate, and that is to be an error: nothing is enqueued, no key is taken."""
    queue = UniqueQueue(key, connection=connection)
    with Dibs(connection_url(connection)) as dibs:
        refusing = unique(dibs, key + ":{x}", on_duplicate="raise")(answer)
        data = [UniqueQueue.prepare_data(refusing, (each,)) for each in (1, 2, 1)]
        with pytest.raises(Duplicate):
            queue.enqueue_many(data)
        assert queue.count == 0
        assert len(queue.enqueue_many(data[:2])) == 2 == queue.count


def test_of_jobs_that_are_enqueued_together_the_newest_is(connection: Any, key: str) -> None:
    """Those before it are not sent; it replaces one that waits."""
    queue = UniqueQueue(key, connection=connection)
    with Dibs(connection_url(connection)) as dibs:
        last = unique(dibs, key + ":{x}", until="start", again="replace", lease=1)(answer_by)
        waiting = queue.enqueue(last, 1, by="a")
        data = [UniqueQueue.prepare_data(last, (x,), {"by": by}) for x, by in [(1, "b"), (1, "c")]]
        older, newer = queue.enqueue_many(data)
        assert newer.kwargs == {"by": "c"} and older.id == newer.id
        assert queue.job_ids == [waiting.id, newer.id]
        first = queue.enqueue(last, 1, by="d", at_front=True)
        assert queue.job_ids == [first.id, waiting.id, newer.id]


def answer_by(x: int, by: str) -> str:
    return by


def answer(x: int) -> int:
    return x


def connection_url(connection: Any) -> str:
    options = connection.connection_pool.connection_kwargs
    return f"redis://{options['host']}:{options['port']}"


def test_a_job_that_enqueues_itself_runs_again(
    jobs: Any, queue: UniqueQueue, control: JobControl, key: str
) -> None:
    """After its end, with the key that it has kept."""
    queue.enqueue(jobs.pages, key, 3)
    eventually(lambda: control.pages(key) == [3, 2, 1, 0], within=90)
    eventually(lambda: not control.client.exists(f"unique:pages:{key}"))
