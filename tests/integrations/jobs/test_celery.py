"""Celery tasks that must not run twice: real workers, on a broker that has the keys as well.

Most of the cases are complaints of users of celery-once and celery-singleton; docs/jobs.md says
what these do in the same case.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery, chain, group

from dibs import Dibs, Duplicate, Unavailable, UsageError
from dibs.integrations.celery import unique
from dibs.testing import Server, eventually
from tests.conftest import Spawn
from tests.integrations.jobs.conftest import loaded_anew, running
from tests.integrations.jobs.job_control import JobControl

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of redis-py, in Celery

WORKER = ("-m", "celery", "-A", "tests.integrations.jobs.celery_app", "worker", "--concurrency=3",
          "--without-gossip", "--without-mingle", "--without-heartbeat", "-Pprefork")  # fmt: skip

DOOMED = (*WORKER[:5], "-P", "solo", *WORKER[6:9], "-Q", "doomed", "-n", "doomed")


@pytest.fixture(scope="module")
def jobs(broker: Server) -> Iterator[Any]:
    """The application, and a worker that runs its tasks."""
    patch = pytest.MonkeyPatch()
    patch.setattr("tests.integrations.jobs.job_control.URL", broker.url)
    celery_app = loaded_anew("celery_app")
    with running(broker, *WORKER), running(broker, *DOOMED) as doomed:
        celery_app.doomed = doomed  # type: ignore[attr-defined]
        yield celery_app
    celery_app.dibs.close()
    celery_app.app.close()
    patch.undo()


@pytest.fixture
def key() -> str:
    return uuid.uuid4().hex


def same(x: int) -> int:
    return x


def ended(result: Any) -> Any:
    return result.get(timeout=30)


def test_a_task_can_be_sent_while_another_thread_sets_it_up(broker: Server, key: str) -> None:
    """Celery does that at the first use, and a web server has several threads."""
    with Dibs(broker.url) as dibs, Celery("x", broker=broker.url, backend=broker.url) as app:
        task: Any = app.task(base=unique(dibs, f"{key}:{{x}}"), name=key)(same)
        stack, task.__class__.request_stack = task.request_stack, None
        first = task.delay(1)
        assert task.delay(1).id == first.id
        task.__class__.request_stack = stack


def test_a_second_task_in_the_queue_is_answered_with_the_first(jobs: Any, key: str) -> None:
    """Nothing is sent: the AsyncResult is that of the task that waits."""
    first = jobs.work.apply_async((key,), queue="nobody")
    assert [jobs.work.delay(key).id, jobs.work.delay(key=key).id] == [first.id, first.id]
    assert jobs.work.apply_async((key,), {"note": "other"}, queue="nobody").id == first.id
    other = jobs.work.apply_async((key + "x",), queue="nobody")
    assert other.id != first.id


def test_a_task_is_unique_until_it_ends(jobs: Any, control: JobControl, key: str) -> None:
    """A second one while it runs gets the result of the first; after its end another one runs."""
    first = jobs.work.delay(key)
    assert control.started(key).id == first.id
    second = jobs.work.delay(key)
    control.send(key)
    assert second.id == first.id
    assert ended(second) == key
    eventually(lambda: jobs.work.delay(key).id != first.id)
    assert control.started(key).id != first.id
    control.send(key)


def test_a_task_can_be_unique_until_it_starts(jobs: Any, control: JobControl, key: str) -> None:
    """While it runs, one more may wait; a third is answered with that one."""
    first = jobs.until_started.delay(key)
    control.started(key)
    second = jobs.until_started.apply_async((key,), queue="nobody")
    assert second.id != first.id
    assert jobs.until_started.delay(key).id == second.id
    control.send(key)
    assert ended(first) == key
    assert jobs.until_started.delay(key).id == second.id


def test_one_task_runs_and_one_waits(jobs: Any, control: JobControl, key: str) -> None:
    """Never two at once, also if the first is tried again; the second begins after its end."""
    first = jobs.alone.delay(key)
    control.started(key)
    second = jobs.alone.delay(key)
    assert second.id != first.id
    assert jobs.alone.delay(key).id == second.id
    control.send(key, "retry")
    assert control.started(key).id == first.id
    for each in range(3):
        assert ended(jobs.plain.delay(str(each))) == str(each)
    assert control.runs(key) == [first.id, first.id]
    control.send(key)
    assert control.started(key).id == second.id
    third = jobs.alone.delay(key)
    assert third.id not in (first.id, second.id)
    control.send(key)
    control.send(key)
    assert [ended(first), ended(second), ended(third)] == [key] * 3


def test_the_newest_of_several_tasks_runs(jobs: Any, control: JobControl, key: str) -> None:
    """Each postpones the one before, which gets the error as its result."""
    results = [jobs.debounced.apply_async((key, text), countdown=1) for text in ("a", "ab", "abc")]
    assert control.started(key).id == results[-1].id
    control.send(key)
    assert ended(results[-1]) == "abc"
    for each in results[:-1]:
        with pytest.raises(Duplicate):
            ended(each)
    assert control.runs(key) == [results[-1].id]


def test_a_task_that_is_killed_ends_its_turn(jobs: Any, control: JobControl, key: str) -> None:
    """After one lease the one that waits begins."""
    jobs.alone.delay(key)
    killed = control.started(key)
    second = jobs.alone.delay(key)
    os.kill(killed.pid, signal.SIGKILL)
    assert control.started(key).id == second.id
    control.send(key)
    assert ended(second) == key


def test_a_task_can_be_unique_for_a_window(jobs: Any, control: JobControl, key: str) -> None:
    """After its end, another one is answered with the first, while the window is open."""
    first = jobs.hourly.delay(key)
    control.started(key)
    control.send(key)
    assert ended(first) == key
    assert jobs.hourly.delay(key).id == first.id
    assert 3000 < control.client.ttl(f"unique:hourly:{key}") <= 3600


def test_a_failed_task_frees_its_key(jobs: Any, control: JobControl, key: str) -> None:
    """Also where it is unique for a window: what has failed can be sent again."""
    first = jobs.hourly.delay(key)
    control.started(key)
    control.send(key, "fail")
    assert "was to fail" in str(first.get(timeout=30, propagate=False))
    assert jobs.hourly.delay(key).id != first.id
    control.started(key)
    control.send(key)


@pytest.mark.parametrize("task", ["work", "limited"])
def test_a_task_that_is_killed_frees_its_key(
    jobs: Any, control: JobControl, key: str, task: str
) -> None:
    """By SIGKILL, or by its hard time limit: after one lease another one runs."""
    first = getattr(jobs, task).delay(key)
    pid = control.started(key).pid
    if task == "work":
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: jobs.work.delay(key).id != first.id, within=90)
    assert control.started(key).id != first.id
    control.send(key)


def test_a_worker_that_is_killed_frees_its_keys(jobs: Any, control: JobControl, key: str) -> None:
    """The whole worker is gone, with its tasks: after one lease another worker takes the next."""
    first = jobs.work.apply_async((key,), queue="doomed")
    assert control.started(key).id == first.id
    jobs.doomed.kill()
    assert jobs.work.delay(key).id == first.id
    eventually(lambda: jobs.work.delay(key).id != first.id, within=90)
    assert control.started(key).id != first.id
    control.send(key)


def test_a_task_that_is_delivered_again_after_a_crash_runs(
    jobs: Any, control: JobControl, key: str
) -> None:
    """With late acknowledgement, its second delivery is no duplicate of the first, which died."""
    first = jobs.careful.delay(key)
    os.kill(control.started(key).pid, signal.SIGKILL)
    assert control.started(key).id == first.id
    assert jobs.careful.delay(key).id == first.id
    control.send(key)
    assert ended(first) == key


def test_of_two_deliveries_of_a_task_one_runs(jobs: Any, control: JobControl, key: str) -> None:
    """While it runs, and after its end: the visibility timeout brings a message back."""
    first = jobs.work.apply_async((key,), queue="nobody")
    message = taken_from("nobody", control)
    control.client.lpush("celery", message, message)
    assert control.started(key).id == first.id
    control.send(key)
    assert ended(first) == key
    control.client.lpush("celery", message)
    assert ended(jobs.plain.delay(key)) == key
    eventually(lambda: not control.client.llen("celery"))
    marker = jobs.work.apply_async((key,))
    assert control.started(key).id == marker.id
    control.send(key)
    assert ended(marker) == key
    assert control.runs(key) == [first.id, marker.id]


def test_further_deliveries_of_a_task_that_runs_block_no_process(
    jobs: Any, control: JobControl, key: str
) -> None:
    """Two of them, for the two other processes of the worker; the lease is ten minutes."""
    first = jobs.patient.apply_async((key,), queue="nobody")
    message = taken_from("nobody", control)
    control.client.lpush("celery", message, message, message)
    assert control.started(key).id == first.id
    assert ended(jobs.plain.delay(key)) == key
    control.send(key)
    assert ended(first) == key and control.runs(key) == [first.id]


def test_who_waits_for_a_duplicate_that_was_sent_by_name_gets_an_error(
    jobs: Any, control: JobControl, key: str
) -> None:
    """It is found in the worker: a sender that has only the name has no guard."""
    first = jobs.work.delay(key)
    control.started(key)
    with pytest.raises(Duplicate):
        ended(jobs.app.send_task(jobs.work.name, (key,)))
    control.send(key)
    assert ended(first) == key and control.runs(key) == [first.id]


def test_a_delivery_that_meets_its_own_run_comes_again_later(
    jobs: Any, control: JobControl, key: str
) -> None:
    """With late acknowledgement it may be the only message left: if that run dies, it runs.

    Of several deliveries one comes again, so that they do not multiply.
    """
    first = jobs.late.apply_async((key,), queue="nobody")
    message = taken_from("nobody", control)
    control.client.lpush("celery", message)
    pid = control.started(key).pid
    tags = [str(uuid.uuid4()) for _ in range(3)]
    control.client.lpush("celery", *[with_tag(message, tag) for tag in tags])
    eventually(lambda: not control.client.llen("celery"), within=90)
    unacked = functools.partial(control.client.hgetall, "unacked")
    eventually(lambda: not any(tag in unacked() for tag in tags), within=90)
    waiting = [each for each in unacked().values() if first.id in each]
    assert len(waiting) <= 2, "the one that runs, and one of the three"
    os.kill(pid, signal.SIGKILL)
    assert control.started(key).id == first.id
    control.send(key)
    eventually(lambda: jobs.late.AsyncResult(first.id).state == "SUCCESS", within=90)
    eventually(lambda: not any(first.id in each for each in unacked().values()), within=90)
    assert control.runs(key) == [first.id] * 2


def with_tag(message: str, tag: str) -> str:
    """The same message, delivered under another tag."""
    changed = json.loads(message)
    changed["properties"]["delivery_tag"] = tag
    return json.dumps(changed)


def taken_from(queue: str, control: JobControl) -> str:
    """The newest message of a queue that no worker reads, as if it were sent to another one."""
    message = json.loads(control.client.lpop(queue))
    message["properties"]["delivery_info"]["routing_key"] = "celery"
    return json.dumps(message)


def test_a_retry_keeps_the_key(jobs: Any, control: JobControl, key: str) -> None:
    """It is no duplicate of itself; while it waits for its next run, others are duplicates."""
    first = jobs.work.delay(key)
    for _ in range(2):
        assert control.started(key).id == first.id
        assert jobs.work.delay(key).id == first.id
        control.send(key, "retry")
        eventually(lambda: first.state == "RETRY")
        assert jobs.work.delay(key).id == first.id
    assert control.started(key).id == first.id
    control.send(key)
    assert ended(first) == key
    assert control.runs(key) == [first.id] * 3
    eventually(lambda: not control.client.exists(f"unique:work:{key}"))


def test_arguments_that_the_broker_changes_do_not_change_the_key(
    jobs: Any, control: JobControl, key: str
) -> None:
    """JSON has no numbers as keys: the worker continues the claim of the producer all the same."""
    first = jobs.filtered.delay(key, {1: "a"})
    control.started(key)
    assert jobs.filtered.delay(key, {1: "a"}).id == first.id
    control.send(key, "retry")
    assert control.started(key).id == first.id
    assert jobs.filtered.delay(key, {1: "a"}).id == first.id
    control.send(key)
    assert ended(first) == key
    eventually(lambda: not list(control.client.scan_iter(f"unique:filtered:{key}:*")))


def test_a_revoked_task_gives_its_key_back(jobs: Any, control: JobControl, key: str) -> None:
    """As soon as a worker drops it; so does one that has expired."""
    assert ended(jobs.plain.delay(key)) == key  # a worker that has not started yet gets no revoke
    first = jobs.work.apply_async((key,), countdown=1)
    assert jobs.work.delay(key).id == first.id
    first.revoke()
    eventually(lambda: first.state == "REVOKED", within=90)
    eventually(lambda: not control.client.exists(f"unique:work:{key}"))
    expired = jobs.work.apply_async((key,), expires=-1)
    eventually(lambda: expired.state == "REVOKED", within=90)
    eventually(lambda: not control.client.exists(f"unique:work:{key}"))
    assert control.runs(key) == []


def test_a_task_that_waits_too_long_does_not_block(
    jobs: Any, control: JobControl, key: str
) -> None:
    """After `queued`, another one takes its place; the late one does not run beside it."""
    late = jobs.impatient.apply_async((key,), queue="nobody")
    message = taken_from("nobody", control)
    eventually(lambda: not control.client.exists(f"unique:short:{key}"))
    second = jobs.impatient.delay(key)
    assert control.started(key).id == second.id
    control.client.lpush("celery", message)
    with pytest.raises(Duplicate):  # its caller is not left waiting
        late.get(timeout=60)
    control.send(key)
    assert ended(second) == key
    assert control.runs(key) == [second.id]


def test_a_task_that_waited_too_long_runs_if_there_is_no_other(
    jobs: Any, control: JobControl, key: str
) -> None:
    """It acquires its key again."""
    late = jobs.impatient.apply_async((key,), queue="nobody")
    message = taken_from("nobody", control)
    eventually(lambda: not control.client.exists(f"unique:short:{key}"))
    control.client.lpush("celery", message)
    assert control.started(key).id == late.id
    assert jobs.impatient.delay(key).id == late.id
    control.send(key)
    assert ended(late) == key


def test_a_task_that_waits_for_its_time_keeps_its_key(
    jobs: Any, control: JobControl, key: str
) -> None:
    """`queued` begins when the task may start."""
    first = jobs.impatient.apply_async((key,), countdown=500, queue="nobody")
    assert 400 < control.client.ttl(f"unique:short:{key}") <= 501
    assert jobs.impatient.delay(key).id == first.id


def test_a_lost_result_blocks_nobody(jobs: Any, control: JobControl, key: str) -> None:
    """The key does not depend on the result of the task, which may expire or never be stored."""
    first = jobs.work.delay(key)
    control.started(key)
    control.send(key)
    ended(first)
    control.client.delete(f"celery-task-meta-{first.id}")
    second = jobs.work.delay(key)
    assert second.id != first.id
    control.started(key)
    control.send(key)
    assert ended(second) == key


def test_a_duplicate_in_a_chain_or_group_is_an_error_for_who_waits(jobs: Any, key: str) -> None:
    """Callers do not wait for ever for an id that was never sent."""
    first = jobs.work.apply_async((key,), queue="nobody")
    with pytest.raises(Duplicate) as caught:
        ended(chain(jobs.plain.s(key), jobs.work.s(), jobs.plain.s()).apply_async())
    assert caught.value.note == first.id
    with pytest.raises(Duplicate):
        ended(group(jobs.work.s(key), jobs.plain.s(key)).apply_async())
    assert ended(chain(jobs.plain.s(key), jobs.chained.s()).apply_async()) == f"after {key}"


def test_a_task_that_cannot_be_sent_leaves_its_key_free(
    jobs: Any, control: JobControl, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker is gone: the error reaches the caller, and the next try is no duplicate."""
    sending = functools.partial(jobs.work.apply_async, (key,), queue="nobody")
    with pytest.raises(Exception, match="serializ"):
        sending(serializer="unknown serializer")
    assert not control.client.exists(f"unique:work:{key}")
    assert sending().id


def test_a_task_that_is_called_as_a_function_is_not_guarded(
    jobs: Any, control: JobControl, key: str
) -> None:
    """Nothing was enqueued, so nothing can be a duplicate of it."""
    jobs.work.apply_async((key,), queue="nobody")
    control.send(key)
    assert jobs.work(key) == key
    assert jobs.chained(key) == f"after {key}"


def test_tasks_that_run_eagerly_are_guarded_as_well(
    jobs: Any, control: JobControl, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They run at once, with their claim; a retry is no duplicate of itself."""
    monkeypatch.setitem(jobs.app.conf, "task_always_eager", True)
    control.send(key, "retry")
    control.send(key)
    assert jobs.work.delay(key).get() == key
    assert len(control.runs(key)) == 2
    assert not control.client.exists(f"unique:work:{key}")


def in_transactions(url: str, key: str) -> list[list[int]]:
    """Keys and messages after a rollback, before a commit, after it, and after a second one."""
    import django
    from celery import Celery
    from django.conf import settings

    from dibs import Dibs
    from dibs.integrations.celery import unique
    from tests.integrations.jobs.job_control import client_of

    memory = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
    settings.configure(DATABASES={"default": memory})
    django.setup()

    from celery.contrib.django.task import DjangoTask
    from django.db import transaction

    seen: list[list[int]] = []
    with Celery("django", broker=url) as app, Dibs(url) as dibs, client_of(url) as client:

        class Unique(unique(dibs, "committed:{key}"), DjangoTask):  # type: ignore[misc]
            abstract = True

        @app.task(base=Unique, name="committed")
        def report(key: str) -> None: ...

        def look() -> None:
            seen.append([client.exists(f"committed:{key}"), client.llen(f"queue:{key}")])

        def send() -> None:
            report.apply_async_on_commit((key,), queue=f"queue:{key}")

        try:
            with transaction.atomic():
                send()
                raise LookupError
        except LookupError:
            look()
        for _ in range(2):
            with transaction.atomic():
                send()
                look()
        look()
    return seen


def test_a_task_is_sent_with_the_transaction_of_django(
    broker: Server, key: str, spawn: Spawn
) -> None:
    """A class of the application's own has both bases; a rollback leaves neither key nor task."""
    child = spawn(in_transactions, broker.url, key)
    assert child.result(within=100) == [[0, 0], [0, 0], [1, 1], [1, 1]]


def test_an_outage_follows_the_policy(key: str, broker: Server) -> None:
    """Open: the task is sent, unguarded. Closed: Unavailable, before anything is sent."""
    from celery import Celery

    from dibs.integrations.celery import unique

    with Celery("outage", broker=broker.url) as app, Dibs("redis://127.0.0.1:1") as dibs:
        closed: Any = app.task(base=unique(dibs, "x:{x}", on_outage="closed"), name="c")(same)
        opened: Any = app.task(base=unique(dibs, "x:{x}"), name="o")(same)
        with pytest.raises(Unavailable):
            closed.apply_async((1,), queue="nobody")
        assert opened.apply_async((1,), queue="nobody").id


def test_mistakes_are_told_before_anything_is_sent(broker: Server) -> None:
    """An unknown option, a field that the task does not have, a value that is not plain."""
    from celery import Celery

    from dibs.integrations.celery import unique

    with Celery("mistakes", broker=broker.url) as app, Dibs(broker.url) as dibs:
        for wrong in ({"until": "never"}, {"queued": 0}, {"lease": -1}, {"until": 0}):
            with pytest.raises(UsageError):
                unique(dibs, "x:{x}", **wrong)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="no parameter 'y'"):
            app.task(base=unique(dibs, "x:{y}"), name="y", lazy=False)(same)
        task: Any = app.task(base=unique(dibs, "x:{x}"), name="z")(same)
        with pytest.raises(UsageError, match="None or empty"):
            task.delay(None)
        with pytest.raises(TypeError):
            task.delay()


def test_a_group_is_unique_and_chunks_are_a_mistake(
    jobs: Any, control: JobControl, key: str
) -> None:
    """Chunks and maps call their tasks inside of another one, where nothing would guard them."""
    first, second = group([jobs.work.s(key), jobs.work.s(key)]).apply_async().results
    control.started(key)
    with pytest.raises(Duplicate):
        second.get(timeout=30)
    control.send(key)
    assert ended(first) == key
    for wrong in (lambda: jobs.work.chunks([(key,)], 1), lambda: jobs.work.starmap([(key,)])):
        with pytest.raises(UsageError, match="send a group"):
            wrong()


def test_a_task_that_sends_itself_runs_again(jobs: Any, control: JobControl, key: str) -> None:
    """After its end, with the key that it has kept; what it sends twice is one task."""
    assert ended(jobs.pages.delay(key, 3)) == 3
    eventually(lambda: control.pages(key) == [3, 2, 1, 0], within=60)
    eventually(lambda: not control.client.exists(f"unique:pages:{key}"))
