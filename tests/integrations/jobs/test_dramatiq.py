"""Dramatiq messages that must not be processed twice: real workers, on a real broker."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from typing import Any

import dramatiq
import pytest
import redis
from dramatiq.brokers.redis import RedisBroker
from dramatiq.brokers.stub import StubBroker
from dramatiq.middleware import GroupCallbacks
from dramatiq.rate_limits.backends import StubBackend

from dibs import Dibs, Event, Unavailable, UsageError
from dibs.integrations.dramatiq import unique
from dibs.testing import Server, eventually
from tests.integrations.jobs.conftest import loaded_anew, running
from tests.integrations.jobs.job_control import JobControl

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

WORKER = ("-m", "dramatiq", "tests.integrations.jobs.dramatiq_app", "--processes=1")


@pytest.fixture(scope="module")
def jobs(broker: Server) -> Iterator[Any]:
    """The actors, and workers that run them."""
    patch = pytest.MonkeyPatch()
    patch.setattr("tests.integrations.jobs.job_control.URL", broker.url)
    dramatiq_app = loaded_anew("dramatiq_app")
    default = (*WORKER, "--threads=4", "--queues", "default")
    doomed = (*WORKER, "--threads=1", "--queues", "doomed")
    with running(broker, *default), running(broker, *doomed) as worker:
        dramatiq_app.doomed_worker = worker  # type: ignore[attr-defined]
        yield dramatiq_app
    dramatiq_app.dibs.close()
    dramatiq_app.broker.close()
    patch.undo()


@pytest.fixture
def key() -> str:
    return uuid.uuid4().hex


def ended(message: Any) -> Any:
    return message.get_result(block=True, timeout=30_000)


def test_a_second_message_in_the_queue_has_the_id_of_the_first(jobs: Any, key: str) -> None:
    """Nothing is sent, also not for later."""
    first = jobs.waiting.send(key)
    assert jobs.waiting.send(key=key).message_id == first.message_id
    later = jobs.work.send_with_options(args=(key,), delay=60_000)
    assert later.message_id == first.message_id
    assert jobs.waiting.send(key + "x").message_id != first.message_id


def test_an_actor_is_unique_until_it_ends(jobs: Any, control: JobControl, key: str) -> None:
    """A second message while it runs has the result of the first; then another one runs."""
    first = jobs.work.send(key)
    assert control.started(key).id == first.message_id
    second = jobs.work.send(key)
    control.send(key)
    assert second.message_id == first.message_id
    assert ended(second) == key
    eventually(lambda: not control.client.exists(f"unique:work:{key}"))
    third = jobs.work_on_a_loop.send(key)
    assert third.message_id != first.message_id
    assert ended(third) == key


def test_one_message_runs_and_one_waits(jobs: Any, control: JobControl, key: str) -> None:
    """Never two at once, also if the first is tried again; the second begins after its end."""
    first = jobs.alone.send(key)
    control.started(key)
    second = jobs.alone.send(key)
    assert second.message_id != first.message_id
    assert jobs.alone.send(key).message_id == second.message_id
    control.send(key, "retry")
    assert control.started(key).id == first.message_id
    for each in range(3):
        assert ended(jobs.plain.send(str(each))) == str(each)
    assert control.runs(key) == [first.message_id] * 2
    control.send(key)
    assert control.started(key).id == second.message_id
    control.send(key)
    assert [ended(first), ended(second)] == [key] * 2


def test_an_actor_can_be_unique_until_it_starts(jobs: Any, control: JobControl, key: str) -> None:
    """While it runs, one more may wait; a third is that one."""
    first = jobs.until_started.send(key)
    control.started(key)
    second = jobs.until_started.send_with_options(args=(key,), delay=3_600_000)
    assert second.message_id != first.message_id
    assert jobs.until_started.send(key).message_id == second.message_id
    control.send(key)
    assert ended(first) == key


def test_an_actor_can_be_unique_for_a_window(jobs: Any, control: JobControl, key: str) -> None:
    """After its end, another message is the first, while the window is open; not if it fails."""
    failed = jobs.hourly.send(key)
    control.started(key)
    control.send(key, "fail")
    eventually(lambda: not control.client.exists(f"unique:hourly:{key}"))
    first = jobs.hourly.send(key)
    assert control.started(key).id == first.message_id != failed.message_id
    control.send(key)
    assert ended(first) == key
    eventually(lambda: control.client.ttl(f"unique:hourly:{key}") > 3000)
    assert jobs.hourly.send(key).message_id == first.message_id


def test_a_message_that_is_tried_again_keeps_its_key(
    jobs: Any, control: JobControl, key: str
) -> None:
    """It is no duplicate of itself; while it waits for its next run, others are duplicates."""
    first = jobs.work.send(key)
    for _ in range(2):
        assert control.started(key).id == first.message_id
        control.send(key, "retry")
        assert jobs.work.send(key).message_id == first.message_id
    assert control.started(key).id == first.message_id
    assert jobs.work.send(key).message_id == first.message_id
    control.send(key)
    assert ended(first) == key
    assert control.runs(key) == [first.message_id] * 3
    eventually(lambda: not control.client.exists(f"unique:work:{key}"))


def test_a_message_of_a_killed_worker_is_processed_by_another(
    jobs: Any, control: JobControl, broker: Server, key: str
) -> None:
    """Its second delivery is no duplicate of the first, which died."""
    first = jobs.doomed.send(key)
    assert control.started(key).id == first.message_id
    jobs.doomed_worker.kill()
    assert jobs.work.send(key).message_id == first.message_id
    with running(broker, *WORKER, "--threads=1", "--queues", "doomed"):
        assert control.started(key).id == first.message_id
        assert jobs.work.send(key).message_id == first.message_id
        control.send(key)
        assert ended(first) == key
    eventually(lambda: not control.client.exists(f"unique:work:{key}"))


def test_of_two_deliveries_of_a_message_one_is_processed(
    jobs: Any, control: JobControl, key: str
) -> None:
    """While it runs, and after its end."""
    first = jobs.work.send(key)
    assert control.started(key).id == first.message_id
    jobs.broker.enqueue(first)
    control.send(key)
    assert ended(first) == key
    jobs.broker.enqueue(first)
    assert ended(jobs.plain.send(key)) == key
    eventually(lambda: not control.client.hlen("dramatiq:default.msgs"), within=90)
    assert control.runs(key) == [first.message_id]


def test_a_delivery_that_meets_its_own_run_keeps_the_result_and_comes_again_later(
    jobs: Any, control: JobControl, key: str
) -> None:
    """It may be the only message left, if that run dies; and its result is not None."""
    first = jobs.work.send(key)
    assert control.started(key).id == first.message_id
    jobs.broker.enqueue(first)
    eventually(lambda: is_queued(first, "default.DQ", control), within=90)
    control.send(key)
    assert ended(first) == key
    jobs.broker.enqueue(first)
    for queue in ("default", "default.DQ"):
        eventually(lambda q=queue: not is_queued(first, q, control), within=90)
    assert ended(first) == key
    assert control.runs(key) == [first.message_id]


def is_queued(message: Any, queue: str, control: JobControl) -> bool:
    """Whether a delivery of *message* waits there, or is being processed."""
    queued = control.client.hvals(f"dramatiq:{queue}.msgs")
    return any(message.message_id in each for each in queued)


def test_a_duplicate_in_a_group_counts_as_processed(broker: Server) -> None:
    """Or the group would never be complete."""
    queue, runs, completions = StubBroker(), list[str](), list[str]()
    queue.add_middleware(GroupCallbacks(StubBackend()))
    is_over, events = threading.Event(), list[Event]()
    name = uuid.uuid4().hex
    with Dibs(broker.url, namespace=name, budget=5, listeners=[events.append]) as dibs:

        @dramatiq.actor(actor_class=unique(dibs, "part:{key}"), broker=queue)
        def part(key: str) -> None:
            runs.append(key)
            assert is_over.wait(30)

        @dramatiq.actor(broker=queue)
        def complete() -> None:
            completions.append("all")

        members = [part.message(each) for each in ("a", "a", "b")]
        group = dramatiq.group(members, broker=queue)
        group.add_completion_callback(complete.message())
        group.run()
        worker = dramatiq.Worker(queue, worker_timeout=100, worker_threads=3)
        worker.start()
        try:
            eventually(lambda: any(event.kind == "duplicate" for event in events))
            eventually(lambda: sorted(runs) == ["a", "b"])
            is_over.set()
            eventually(lambda: completions == ["all"])
            assert sorted(runs) == ["a", "b"]
        finally:
            is_over.set()
            worker.stop()
            queue.close()


def test_a_message_that_is_too_old_gives_its_key_back(
    jobs: Any, control: JobControl, key: str
) -> None:
    """Dramatiq drops it without calling the actor."""
    old = jobs.work.send_with_options(args=(key,), max_age=1, delay=100)
    eventually(lambda: not control.client.exists(f"unique:work:{key}"), within=90)
    assert jobs.work.send(key).message_id != old.message_id
    control.started(key)
    control.send(key)


def test_a_message_that_waits_too_long_does_not_block(
    jobs: Any, control: JobControl, key: str
) -> None:
    """After `queued`, another one takes its place; the late one is skipped."""
    late = jobs.impatient.message(key)
    second = jobs.impatient.send(key)
    assert control.started(key).id == second.message_id
    jobs.broker.enqueue(late.copy(options={"dibs_token": "claim:1-1"}))
    assert ended(jobs.plain.send(key)) == key
    eventually(lambda: control.client.hlen("dramatiq:default.msgs") == 1, within=90)
    control.send(key)
    assert ended(second) == key
    assert control.runs(key) == [second.message_id]


def test_arguments_that_the_encoder_changes_do_not_change_the_key(
    jobs: Any, control: JobControl, key: str
) -> None:
    """JSON has no numbers as keys: the worker continues the claim of the producer all the same."""
    first = jobs.filtered.send(key, {1: "a"})
    control.started(key)
    assert jobs.filtered.send(key, {1: "a"}).message_id == first.message_id
    control.send(key, "retry")
    control.started(key)
    assert jobs.filtered.send(key, {1: "a"}).message_id == first.message_id
    control.send(key)
    assert ended(first) == key
    eventually(lambda: not list(control.client.scan_iter(f"unique:filtered:{key}:*")))


def test_a_lost_result_of_a_message_blocks_nobody(jobs: Any, control: JobControl, key: str) -> None:
    """The key does not depend on what the result backend keeps."""
    first = jobs.work.send(key)
    control.started(key)
    control.send(key)
    eventually(lambda: not control.client.exists(f"unique:work:{key}"))
    for each in control.client.scan_iter("dramatiq-results:*"):
        control.client.delete(each)
    second = jobs.work.send(key)
    assert control.started(key).id == second.message_id != first.message_id
    control.send(key)
    assert ended(second) == key


def test_an_actor_that_is_called_is_not_guarded(jobs: Any, control: JobControl, key: str) -> None:
    """Nothing was sent, so nothing can be a duplicate of it."""
    jobs.waiting.send(key)
    control.send(key)
    assert jobs.work(key) == key


def test_mistakes_and_outages_are_told_where_a_message_is_sent(broker: Server) -> None:
    """Before anything is sent; with the policy "open" an outage is none."""
    import dramatiq
    from dramatiq.brokers.stub import StubBroker

    from dibs.integrations.dramatiq import unique

    stub = StubBroker()
    with Dibs("redis://127.0.0.1:1") as dibs:
        with pytest.raises(UsageError, match="until must be"):
            unique(dibs, "x:{x}", until="never")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="no parameter 'y'"):
            dramatiq.actor(same, broker=stub, actor_class=unique(dibs, "x:{y}"))
        guarded = unique(dibs, "x:{x}", on_outage="closed")
        closed = dramatiq.actor(same, broker=stub, actor_name="c", actor_class=guarded)
        opened = dramatiq.actor(same, broker=stub, actor_class=unique(dibs, "x:{x}"))
        with pytest.raises(Unavailable):
            closed.send(1)
        assert opened.send(1).message_id


def same(x: int) -> int:
    return x


def test_a_message_by_hand_that_cannot_be_sent_leaves_its_key_free(
    broker: Server, own_server: Server
) -> None:
    """Nor is it kept alive by the process that failed to send it."""
    away = RedisBroker(url=own_server.url)
    with Dibs(broker.url, namespace="by hand:", budget=5) as dibs:
        made = unique(dibs, "report:{account}")

        @dramatiq.actor(broker=away, actor_class=made)
        def report_away(account: int) -> None: ...

        own_server.kill()
        with pytest.raises(redis.ConnectionError):
            away.enqueue(report_away.message(1))
        assert dibs.peek("report:1") is None
    away.close()


def test_the_messages_of_a_group_are_unique(jobs: Any, control: JobControl, key: str) -> None:
    """Claimed where they are sent; a duplicate is skipped, also if the first has ended by then."""
    import dramatiq

    parts = [jobs.work.message(key), jobs.work.message(key), jobs.plain.message(key)]
    running = dramatiq.group(parts).run()
    assert control.started(key).id == parts[0].message_id
    assert jobs.work.send(key).message_id == parts[0].message_id
    control.send(key)
    assert [*running.get_results(block=True, timeout=30_000)] == [key, None, key]
    eventually(lambda: not control.client.exists(f"unique:work:{key}"))
    assert control.runs(key) == [parts[0].message_id]


def test_an_actor_that_sends_itself_runs_again(jobs: Any, control: JobControl, key: str) -> None:
    """After its end, with the key that it has kept."""
    jobs.pages.send(key, 3)
    eventually(lambda: control.pages(key) == [3, 2, 1, 0], within=60)
    eventually(lambda: not control.client.exists(f"unique:pages:{key}"))


def test_each_message_of_a_pipeline_with_one_key_is_processed(
    jobs: Any, control: JobControl, key: str
) -> None:
    """As in a chain of Celery: the key goes from one to the next."""
    steps = [jobs.piped.message(key, 1), jobs.piped.message(key), jobs.piped.message(key)]
    line = dramatiq.pipeline(steps).run()
    assert line.get_result(block=True, timeout=60_000) == 4
    assert control.pages(key) == [1, 2, 3]
    eventually(lambda: not control.client.exists(f"unique:piped:{key}"))
