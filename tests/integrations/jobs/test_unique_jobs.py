"""The claim of a job from where it is sent to its end, in any framework."""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from dibs import Dibs, Duplicate, Event, Unavailable, UsageError
from dibs.integrations._sync.jobs import UniqueJobs
from dibs.integrations._unique_jobs import Job, UniqueKey, UniqueOptions
from dibs.testing import Server, eventually
from tests.conftest import Spawn
from tests.integrations.jobs.conftest import running
from tests.integrations.jobs.job_control import client_of

KEY = "report:1"


def report(account: int) -> None: ...


def jobs_of(dibs: Dibs, task: str = "report", **options: Any) -> UniqueJobs:
    key = UniqueKey("report:{account}", report, UniqueOptions(**options), task)
    return UniqueJobs(dibs, key)


def remaining(server: Server, key: str = KEY) -> float:
    return server.client().pttl(key) / 1000


def test_the_record_of_a_run_is_counted_from_its_end(own_server: Server) -> None:
    """However long the job ran: a second delivery may come late."""
    with Dibs(own_server.url, budget=5) as dibs:
        jobs, job = jobs_of(dibs, queued=20), Job("a", None, 0)
        with jobs.start(KEY, job):
            time.sleep(1.5)
            ended = time.monotonic()
        left = remaining(own_server, job.run_key)
        assert left > 20 - (time.monotonic() - ended) - 0.1
        with pytest.raises(Duplicate):
            jobs.start(KEY, job)


def test_the_key_is_short_until_the_job_is_sent(own_server: Server) -> None:
    """One lease, kept alive however long sending takes; then `queued` and its delay."""
    events: list[Event] = []
    with Dibs(own_server.url, budget=5, listeners=[events.append]) as dibs:
        jobs = jobs_of(dibs, lease=2, queued=100)
        with jobs.queueing(KEY, "a", delay=50) as (token, *_):
            begun = time.monotonic()
            eventually(lambda: time.monotonic() > begun + 3)
            assert 0 < remaining(own_server) <= 2
            with pytest.raises(Duplicate) as caught, jobs.queueing(KEY, "b"):
                pass
            assert caught.value.note == "a"
        assert 100 < remaining(own_server) <= 150
        with jobs.start(KEY, Job("a", token)):
            assert 0 < remaining(own_server) <= 2
        assert not own_server.client().exists(KEY)
        assert "lost" not in {event.kind for event in events}


def test_a_worker_may_start_a_job_that_is_still_being_sent(own_server: Server) -> None:
    """The broker has it, and its answer is slow: the producer notices, and leaves the key alone."""
    events: list[Event] = []
    with (
        Dibs(own_server.url, budget=5, listeners=[events.append]) as producer,
        Dibs(own_server.url, budget=5) as worker,
    ):
        jobs = jobs_of(worker, lease=2, queued=100)
        with jobs_of(producer, lease=2, queued=100).queueing(KEY, "a") as (token, *_):
            run = jobs.start(KEY, Job("a", token))
        assert 0 < remaining(own_server) <= 2
        with run:
            pass
        assert not own_server.client().exists(KEY)
        assert {"lost", "late"}.isdisjoint({event.kind for event in events})


def send_for_ever(url: str) -> None:
    import time

    from dibs import Dibs
    from tests.integrations.jobs.test_unique_jobs import KEY, jobs_of

    with Dibs(url) as dibs, jobs_of(dibs, lease=2).queueing(KEY, "a"):
        time.sleep(600)


def retry_for_ever(url: str) -> None:
    import time

    from dibs import Dibs
    from dibs.integrations._unique_jobs import Job
    from tests.integrations.jobs.test_unique_jobs import KEY, jobs_of

    with Dibs(url) as dibs, jobs_of(dibs, lease=2).start(KEY, Job("a", None, 0)) as run:
        run.hand_on()
        time.sleep(600)


def stop_at_the_end(url: str) -> None:
    """Stops as soon as the first of the two claims of a job has ended."""
    import time

    from dibs import Dibs
    from dibs.integrations._unique_jobs import Job
    from tests.integrations.jobs.test_unique_jobs import KEY, jobs_of

    ends = ("completed", "released")
    stop = lambda event: event.kind in ends and (print("ended", flush=True), time.sleep(600))  # noqa: E731
    with Dibs(url, budget=5, listeners=[stop]) as dibs:
        with jobs_of(dibs, lease=2).start(KEY, Job("a", None, 0)):
            pass


def test_a_job_that_is_killed_while_its_end_is_recorded_does_not_run_again(
    own_server: Server, spawn: Spawn
) -> None:
    """That it ran is recorded before its key is free; the key is, after one lease."""
    child = spawn(stop_at_the_end, own_server.url)
    child.line()
    child.kill()
    eventually(lambda: not own_server.client().exists(KEY), within=60)
    with Dibs(own_server.url, budget=5) as dibs, pytest.raises(Duplicate) as caught:
        jobs_of(dibs, lease=2).start(KEY, Job("a", None, 0))
    assert caught.value.state == "done"


@pytest.mark.parametrize("sending", [send_for_ever, retry_for_ever])
def test_a_process_that_is_killed_while_it_sends_blocks_the_key_for_one_lease(
    own_server: Server, spawn: Spawn, sending: Any
) -> None:
    """A producer, or a worker that sends a retry: the message was never sent."""
    child = spawn(sending, own_server.url)
    eventually(lambda: own_server.client().exists(KEY), within=60)
    child.kill()
    assert remaining(own_server) <= 2
    with Dibs(own_server.url, budget=5) as dibs:
        jobs = jobs_of(dibs, lease=2)

        def is_sent() -> bool:
            try:
                with jobs.queueing(KEY, "b"):
                    return True
            except Duplicate:
                return False

        eventually(is_sent, within=60)


def test_of_two_retries_of_one_attempt_one_runs(own_server: Server) -> None:
    """The first run lost its claim, so its message was run again; both runs were tried again."""
    with (
        Dibs(own_server.url, budget=5) as one,
        Dibs(own_server.url, budget=5) as other,
    ):
        jobs = jobs_of(other, lease=1)
        with jobs_of(one, lease=1).start(KEY, Job("a", None, 0)) as lost:
            own_server.flush()
            with jobs.start(KEY, Job("a", None, 0)) as run:
                token = run.hand_on()
            eventually(lambda: lost.lost)
            assert lost.hand_on() is None
        with jobs.start(KEY, Job("a", token, 1, sent_by=run.sending)):
            pass
        with pytest.raises(Duplicate):
            jobs.start(KEY, Job("a", None, 1, sent_by=lost.sending))
        assert not own_server.client().exists(KEY)


def test_a_message_whose_run_has_ended_elsewhere_gives_its_claim_back(own_server: Server) -> None:
    """Or its key would be taken for the rest of `queued`, by a job that is done."""
    with Dibs(own_server.url, budget=5) as dibs:
        jobs = jobs_of(dibs)
        with jobs.start(KEY, Job("a", None, 1, sent_by="x")):
            pass
        with jobs.queueing(KEY, "a") as (token, *_):
            pass
        with pytest.raises(Duplicate):
            jobs.start(KEY, Job("a", token, 1, sent_by="x"))
        assert not own_server.client().exists(KEY)


def test_a_retry_that_cannot_be_sent_frees_the_key(own_server: Server) -> None:
    """Its claim was handed on, and no worker got it."""
    with Dibs(own_server.url, budget=5) as dibs:
        jobs = jobs_of(dibs)
        with pytest.raises(ConnectionError), jobs.start(KEY, Job("a", None, 0)) as run:
            run.hand_on()
            run.take_back()
            raise ConnectionError
        assert not own_server.client().exists(KEY)


@pytest.mark.parametrize("can_run", [True, False])
def test_a_job_is_there_as_long_as_it_can_run(own_server: Server, can_run: bool) -> None:
    """One that waits, and that the framework knows to be over, frees its key for the next one."""
    with Dibs(own_server.url, budget=5) as dibs:
        jobs = jobs_of(dibs, queued=100)
        with jobs.queueing(KEY, "a"):
            pass
        if can_run:
            with pytest.raises(Duplicate), jobs.queueing(KEY, "b", 0.0, lambda _: True):
                pass
        else:
            with jobs.queueing(KEY, "b", 0.0, lambda entry: entry.note != "a") as (token, *_):
                pass
            with jobs.start(KEY, Job("b", token)):  # it runs: only its lease can end it
                with pytest.raises(Duplicate), jobs.queueing(KEY, "c", 0.0, lambda _: False):
                    pass


def test_so_many_jobs_with_one_key_are_there_and_no_more(own_server: Server) -> None:
    """Sent with a claim or by name; the end of any of them makes room for another one."""
    with Dibs(own_server.url, budget=5) as dibs:
        jobs = jobs_of(dibs, limit=2)
        with jobs.queueing(KEY, "a") as first:
            pass
        with jobs.start(KEY, Job("b", None, 0)) as named:
            assert named.key != first.key
            with pytest.raises(Duplicate) as caught, jobs.queueing(KEY, "c"):
                pass
            assert caught.value.note == "a"
            with pytest.raises(Duplicate):
                jobs.start(KEY, Job("c", None, 0))
            token = named.hand_on()
        with pytest.raises(Duplicate), jobs.queueing(KEY, "c"):
            pass
        with jobs.start(named.key, Job("b", token, 1, sent_by=named.sending)):
            pass
        with jobs.queueing(KEY, "c") as third:
            assert third.key == named.key
        with jobs.start(first.key, Job("a", first.token, 0)):
            with jobs.start(third.key, Job("c", third.token, 0)):
                pass
        assert not own_server.client().keys("report:*")


def test_a_job_whose_place_was_taken_gets_another_one(own_server: Server) -> None:
    """Its worker was killed, and its message comes again: there is room for it."""
    with Dibs(own_server.url, budget=5) as dibs:
        jobs = jobs_of(dibs, limit=3)
        for number in range(2):
            with jobs.queueing(KEY, f"killed {number}") as killed:
                pass
        own_server.flush()  # one lease after that
        for number in range(2):
            with jobs.queueing(KEY, f"other {number}"):
                pass
        with jobs.start(killed.key, Job("killed 1", killed.token, 0)):
            with pytest.raises(Duplicate), jobs.queueing(KEY, "a fourth one"):
                pass
        assert len(own_server.client().keys("*report:1")) == 2


def test_no_argument_makes_the_key_of_another_job(own_server: Server) -> None:
    """The slots of one key are never those of another."""
    with Dibs(own_server.url, budget=5) as dibs:
        jobs = jobs_of(dibs, limit=2)
        own = {*jobs._key.slots(jobs.key_of(("1",), {}))}
        assert own.isdisjoint(jobs._key.slots(jobs.key_of(("1#2",), {})))


@pytest.mark.parametrize("limit", [0, 101, True, 1.5])
def test_a_limit_of_jobs_is_a_number(limit: Any) -> None:
    """From 1 to 100."""
    with pytest.raises(UsageError, match="from 1 to 100"):
        UniqueOptions(limit=limit)


def test_a_turn_is_taken_by_one_job_and_kept_for_its_retry(own_server: Server) -> None:
    """One that waits keeps its key; one that is revoked before its retry gives its turn back."""
    with Dibs(own_server.url, budget=5) as dibs:
        jobs = jobs_of(dibs, until="start", alone=True)
        with jobs.queueing(KEY, "a") as (first, *_):
            pass
        with jobs.start(KEY, Job("a", first, 0)) as run:
            with jobs.queueing(KEY, "b") as (second, *_):
                pass
            with pytest.raises(Duplicate) as caught:
                jobs.start(KEY, Job("b", second, 0))
            assert jobs.comes_again_in(caught.value, Job("b", second, 0)) == 1.0
            with pytest.raises(Duplicate), jobs.queueing(KEY, "c"):
                pass
            token = run.hand_on()
        with pytest.raises(Duplicate):
            jobs.start(KEY, Job("b", second, 0))
        assert jobs.give_back(KEY, str(token))
        with jobs.start(KEY, Job("b", second, 0)):
            pass
        assert not own_server.client().keys("job:alone:*")


@pytest.mark.parametrize("again", ["replace", "postpone"])
def test_a_job_that_waits_is_replaced_by_a_newer_one(own_server: Server, again: Any) -> None:
    """The older one is not run, whenever its message comes; one that runs is left alone."""
    with Dibs(own_server.url, budget=5) as dibs, Dibs(own_server.url, budget=5) as worker:
        jobs, workers = (jobs_of(each, until="start", again=again) for each in (dibs, worker))
        with jobs.queueing(KEY, "a", 100.0) as older:
            assert older.delay is None
        with jobs.queueing(KEY, "b", 10.0) as newer:
            assert newer.delay is not None
            assert newer.delay == 10.0 if again == "postpone" else 90 < newer.delay <= 100
        assert 3600 + newer.delay - 10 < remaining(own_server) <= 3600 + newer.delay
        with pytest.raises(Duplicate) as caught:
            workers.start(KEY, Job("a", older.token, 0))
        assert caught.value.note == "b"
        with workers.start(KEY, Job("b", newer.token, 0)):
            with jobs.queueing(KEY, "c") as waiting:
                assert waiting.delay is None
            assert jobs.give_back(KEY, waiting.token)
        with pytest.raises(Duplicate) as caught:
            workers.start(KEY, Job("a", older.token, 0))
        assert caught.value.note == "b", "it came after the end of the other one"


def test_a_job_is_replaced_once_the_newer_one_is_sent(own_server: Server) -> None:
    """If that cannot be sent, or its producer dies, the older one runs."""
    with Dibs(own_server.url, budget=5) as dibs, Dibs(own_server.url, budget=5) as worker:
        jobs = jobs_of(dibs, until="start", again="replace", lease=2)
        workers = jobs_of(worker, until="start", again="replace", lease=2)
        with jobs.queueing(KEY, "a") as older:
            pass
        with pytest.raises(ConnectionError), jobs.queueing(KEY, "b"):
            entry = dibs.peek(KEY)
            assert entry is not None and entry.note == "a", "as long as it is not sent"
            raise ConnectionError
        with workers.start(KEY, Job("a", older.token, 0)):
            pass


def test_a_job_that_is_being_sent_is_replaced_afterwards(own_server: Server) -> None:
    """Two producers at once: the second waits until the first has sent its job."""
    events: list[Event] = []
    with (
        Dibs(own_server.url, budget=5) as one,
        Dibs(own_server.url, budget=5, listeners=[events.append]) as two,
    ):
        first = jobs_of(one, until="start", again="replace", lease=60)
        second = jobs_of(two, until="start", again="replace", lease=60)
        with ThreadPoolExecutor(1) as pool:
            with first.queueing(KEY, "a"):
                sent = pool.submit(lambda: second.queueing(KEY, "b").__enter__())
                eventually(lambda: [each.kind for each in events].count("duplicate") > 2)
                assert not sent.done()
            assert sent.result(60).delay is not None


def test_an_older_job_does_not_run_after_the_newer_one(own_server: Server) -> None:
    """Its message comes while that one is being sent, which has ended by then."""
    with Dibs(own_server.url, budget=5) as dibs, Dibs(own_server.url, budget=5) as worker:
        jobs, workers = (jobs_of(each, until="start", again="replace") for each in (dibs, worker))
        with jobs.queueing(KEY, "a") as older:
            pass
        with ThreadPoolExecutor(1) as pool:
            with jobs.queueing(KEY, "b") as newer:
                with workers.start(KEY, Job("b", newer.token, 0)):
                    pass
                started = pool.submit(workers.start, KEY, Job("a", older.token, 0))
                record = b"job:replaced:a:*"
                eventually(lambda: own_server.client().keys(record) or started.done())
            with pytest.raises(Duplicate) as caught:
                started.result(60)
        assert caught.value.note == "b"


def test_a_job_that_was_replaced_does_not_wait_for_its_turn(own_server: Server) -> None:
    """Or each of many triggers would come again, or hold a worker, until the first has ended."""
    with Dibs(own_server.url, budget=5) as dibs:
        jobs = jobs_of(dibs, until="start", again="replace", alone=True)
        with jobs.queueing(KEY, "a") as (first, *_):
            pass
        with jobs.start(KEY, Job("a", first, 0)):
            with jobs.queueing(KEY, "b") as (older, *_):
                pass
            with jobs.queueing(KEY, "c"):
                pass
            job = Job("b", older, 0)
            with pytest.raises(Duplicate) as caught:
                jobs.start(KEY, job)
            assert caught.value.note == "c"
            assert jobs.comes_again_in(caught.value, job) is None


def test_an_outage_while_a_job_is_replaced_follows_the_policy(own_server: Server) -> None:
    """The caller must not be answered with the older job, as if the newest arguments would run."""

    def stop(event: Event) -> None:
        if event.kind == "duplicate":
            own_server.kill()

    with Dibs(own_server.url, budget=1, listeners=[stop]) as dibs:
        jobs = jobs_of(dibs, until="start", again="replace", on_outage="closed", lease=2)
        with jobs.queueing(KEY, "a"):
            pass
        with pytest.raises(Unavailable), jobs.queueing(KEY, "b"):
            pass


def test_a_job_that_may_have_been_replaced_runs_in_an_outage(own_server: Server) -> None:
    """If the policy is "open": nothing can be asked."""
    with Dibs(own_server.url, budget=1) as dibs:
        jobs = jobs_of(dibs, until="start", again="replace", alone=True, on_outage="open")
        with jobs.queueing(KEY, "a") as (token, *_):
            pass
        own_server.kill()
        with jobs.start(KEY, Job("a", token, 0)):
            pass


@pytest.mark.parametrize(
    "options",
    [{"again": "merge", "until": "start"}, {"again": "replace"},
     {"again": "replace", "until": "start", "limit": 2},
     {"again": "replace", "until": "start", "queued": 5}],
)  # fmt: skip
def test_again_goes_with_until_start(options: Any) -> None:
    """While one runs the newest must be queued; what waits must be told from what starts."""
    with pytest.raises(UsageError, match="again"):
        UniqueOptions(**options)


@pytest.mark.parametrize("until", ["end", 60])
def test_alone_goes_with_until_start(until: Any) -> None:
    """Otherwise no two jobs run at once anyway."""
    with pytest.raises(UsageError, match='alone=True goes with until="start"'):
        UniqueOptions(until=until, alone=True)


@pytest.mark.parametrize("alone", [1, "no", None])
def test_alone_is_true_or_false(alone: Any) -> None:
    """Text from a configuration is not, and would mean the opposite."""
    with pytest.raises(UsageError, match="alone must be True or False"):
        UniqueOptions(until="start", alone=alone)


def test_alone_has_no_limit() -> None:
    """One runs; so many of them did."""
    with pytest.raises(UsageError, match="no limit="):
        UniqueOptions(until="start", alone=True, limit=2)


def test_an_id_that_is_sent_again_is_another_run(own_server: Server) -> None:
    """A second delivery of one message is not: it brings the same token."""
    with Dibs(own_server.url, budget=5) as dibs:
        jobs = jobs_of(dibs)
        for _ in range(2):
            with jobs.queueing(KEY, "nightly") as (token, *_):
                pass
            with jobs.start(KEY, Job("nightly", token, 0)):
                pass
            with pytest.raises(Duplicate):
                jobs.start(KEY, Job("nightly", token, 0))


def test_one_unique_on_two_jobs_needs_their_names_in_the_template(own_server: Server) -> None:
    """Or the second would be answered with the first."""
    with Dibs(own_server.url) as dibs:
        made = UniqueOptions()
        UniqueKey("{account}", report, made, "invoice")
        UniqueKey("{account}", report, made, "invoice")  # as a task of two applications
        with pytest.raises(UsageError, match="invoice and reminder"):
            UniqueKey("{account}", report, made, "reminder")
        made = UniqueOptions()
        keys = [UniqueKey("{task}:{account}", report, made, name) for name in ("a.b", "a:b")]
        assert [each.of((7,), {}) for each in keys] == ["a.b:7", "a%3Ab:7"]
        own = UniqueKey("{task}", own_task, UniqueOptions(), "x")
        assert own.of(("y",), {}) == "y", "a parameter of that name"
        del dibs


def own_task(task: str) -> None: ...


@pytest.mark.parametrize(
    ("template", "is_shared"),
    [("{account}:mail", True), ("{account.id}:mail", True), ("{task}:mail", False), ("a", False)],
)
def test_two_jobs_with_the_same_keys_are_a_line_in_the_log(
    own_server: Server, caplog: pytest.LogCaptureFixture, template: str, is_shared: bool
) -> None:
    """Each has its own `unique`, which may be what is wanted. A job may be declared twice."""
    with Dibs(own_server.url) as dibs, Dibs(own_server.url, namespace="other:") as other:
        for client, task, mine in [
            (dibs, "invoice", "{account}:mail"),
            (dibs, "invoice", "{account}:mail"),
            (other, "reminder", template),
            (dibs, "reminder", template),
        ]:
            assert not caplog.records
            UniqueJobs(client, UniqueKey(mine, report, UniqueOptions(), task))
        lines = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
        said = f"{template}: invoice and reminder have the same keys"
        assert [each.startswith(said) for each in lines] == ([True] if is_shared else [])


def test_mistakes_name_the_job(own_server: Server) -> None:
    """An id that is too long, an argument that is missing."""
    with Dibs(own_server.url, budget=5) as dibs:
        jobs = jobs_of(dibs, "tasks.report")
        with pytest.raises(UsageError, match=r"tasks\.report: the id .* 200 .* 201"):
            with jobs.queueing(KEY, "x" * 201):
                pass
        with pytest.raises(TypeError, match=r"^report\(\) missing 1 required"):
            jobs.key_of((), {})


# ---- Celery


def send(account: int) -> None: ...


def test_a_base_class_with_a_call_belongs_behind_unique(broker: Server) -> None:
    """Before it, it would bypass the guard in the worker."""
    from celery import Celery, Task

    from dibs.integrations.celery import unique

    class ContextTask(Task):
        abstract = True

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            return self.run(*args, **kwargs)

    with Celery("order", broker=broker.url) as app, Dibs(broker.url) as dibs:
        guard: Any = unique(dibs, "order:{account}")
        wrong = type("Wrong", (ContextTask, guard), {"abstract": True})
        right = type("Right", (guard, ContextTask), {"abstract": True})
        with pytest.raises(UsageError, match="must be the first base"):
            app.task(base=wrong, name="wrong", lazy=False)(send)
        app.task(base=right, name="right", lazy=False)(send)
        with pytest.raises(UsageError, match="right and second"):
            app.task(base=right, name="second", lazy=False)(send)


def test_an_id_of_ones_own_that_waits_is_no_failure(broker: Server) -> None:
    """The second call has the same id: its result is the first one's, which will run."""
    from celery import Celery

    from dibs.integrations.celery import unique

    with Celery("own", broker=broker.url, backend=broker.url) as app, Dibs(broker.url) as dibs:
        task: Any = app.task(base=unique(dibs, "own:{account}"), name="own")(send)
        for _ in range(2):
            result = task.apply_async((1,), task_id="nightly", queue="nobody")
            assert (result.id, result.state) == ("nightly", "PENDING")


def test_a_naive_eta_is_read_as_celery_reads_it(
    broker: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In UTC, wherever the machine is."""
    from datetime import UTC, datetime, timedelta

    from celery import Celery

    from dibs.integrations.celery import unique

    monkeypatch.setenv("TZ", "Asia/Taipei")
    time.tzset()
    try:
        with Celery("zone", broker=broker.url) as app, Dibs(broker.url, budget=5) as dibs:
            task: Any = app.task(base=unique(dibs, "zone:{account}"), name="zone")(send)
            naive = (datetime.now(UTC) + timedelta(hours=2)).replace(tzinfo=None)
            task.apply_async((1,), eta=naive, queue="nobody")
            assert 2.9 * 3600 < remaining(broker, "zone:1") <= 3 * 3600
    finally:
        monkeypatch.undo()
        time.tzset()


def test_callbacks_of_a_duplicate_are_a_line_in_the_log(
    broker: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """They are not called: the existing task has its own."""
    from celery import Celery

    from dibs.integrations.celery import unique

    with Celery("link", broker=broker.url) as app, Dibs(broker.url, budget=5) as dibs:
        task: Any = app.task(base=unique(dibs, "link:{account}"), name="link")(send)
        first = task.apply_async((1,), queue="nobody")
        task.apply_async((1,), queue="nobody", link=task.si(2))
        said = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
        assert f"link:{{account}}: a duplicate of job {first.id} has callbacks" in "".join(said)


# ---- arq


def test_no_token_is_in_the_log_of_arq(broker: Server) -> None:
    """arq writes the arguments of each job that it starts."""
    program = """
import asyncio, logging, sys
from arq import create_pool, Worker, func
from arq.connections import RedisSettings
from dibs import AsyncDibs
from dibs.integrations.arq import enqueue_job, unique
from tests.integrations.jobs.job_control import URL

async def main():
    dibs = AsyncDibs(URL, namespace="log:")
    async def report(ctx, account): ...
    guarded = unique(dibs, "report:{account}")(report)
    pool = await create_pool(RedisSettings.from_dsn(URL), default_queue_name="logged")
    await enqueue_job(pool, guarded, 7)
    worker = Worker([func(guarded)], queue_name="logged", redis_pool=pool, burst=True,
                    poll_delay=0, handle_signals=False)
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger("arq").addHandler(handler)
    logging.getLogger("arq").setLevel("INFO")
    await worker.main()
    await pool.rpush("arq-log", *lines)
    await worker.close()
    await dibs.aclose()

asyncio.run(main())
"""
    with running(broker, "-c", program), client_of(broker.url) as client:
        eventually(lambda: client.llen("arq-log"), within=60)
        lines = "".join(client.lrange("arq-log", 0, -1))
    assert "report(7" in lines
    assert "claim:" not in lines


# ---- jobs that send jobs with their own key


def sends(jobs: UniqueJobs, job_id: str, found: list[Any]) -> str | None:
    """As an integration does; what is sent goes to *found*. The id of an existing job, or None."""
    try:
        with jobs.queueing(KEY, job_id) as sending:
            found.append(sending)
    except Duplicate as error:
        if (outer := jobs.inside(KEY)) is None:
            return error.note
        outer.send_after(job_id, 100, found.append)
    return None


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_job_sends_with_its_own_key_comes_after_it(own_server: Server, fails: bool) -> None:
    """With its claim, so that nothing gets between; a second one of them is the first."""
    found: list[Any] = []
    with Dibs(own_server.url, budget=5) as dibs, Dibs(own_server.url, budget=5) as other:
        jobs, job = jobs_of(dibs), Job("a", None, 0)
        with suppress(ZeroDivisionError), jobs.start(KEY, job):
            assert [sends(jobs, "b", found), sends(jobs, "c", found)] == [None, "b"]
            assert not found
            if fails:
                raise ZeroDivisionError
        assert len(found) == 1 and 90 < remaining(own_server) <= 100
        assert sends(jobs_of(other), "d", []) == "b"
        with jobs_of(other).start(KEY, Job("b", found[0].token, 0)):
            assert sends(jobs, "d", []) == "b"
        assert not own_server.client().exists(KEY)


def test_what_a_job_sends_is_left_out_if_it_is_tried_again(
    own_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """The retry has the key, and sends again; the log says so."""
    caplog.set_level(logging.INFO, "dibs")
    found: list[Any] = []
    with Dibs(own_server.url, budget=5) as dibs:
        jobs = jobs_of(dibs)
        with jobs.start(KEY, Job("a", None, 0)) as run:
            sends(jobs, "b", found)
            token = run.hand_on()
        assert not found and "job b is not sent" in caplog.text
        with jobs.start(KEY, Job("a", token, 1)):
            pass


def test_what_cannot_be_sent_after_a_job_is_an_error(own_server: Server) -> None:
    """Of the job that has sent it; its key is free."""

    def fail(_: object) -> None:
        raise OSError("the broker is down")

    with Dibs(own_server.url, budget=5) as dibs:
        jobs = jobs_of(dibs)
        with pytest.raises(OSError, match="broker"), jobs.start(KEY, Job("a", None, 0)) as run:
            run.send_after("b", 100, fail)
        assert not own_server.client().exists(KEY)


def test_only_a_job_with_the_same_key_comes_after(own_server: Server) -> None:
    """And only with until="end"; a job in another thread is no part of the run."""
    with Dibs(own_server.url, budget=5) as dibs:
        hourly = jobs_of(dibs, until=60)
        with hourly.start(KEY, Job("a", None, 0)):
            assert hourly.inside(KEY) is None
        jobs = jobs_of(dibs, "another")
        with jobs.start("report:2", Job("b", None, 0)) as run:
            assert jobs.inside("report:2") is run and jobs.inside("report:3") is None
            with jobs.start("report:3", Job("c", None, 0)) as inner:
                assert jobs.inside("report:2") is run and jobs.inside("report:3") is inner
            assert jobs.inside("report:2") is run
            with ThreadPoolExecutor(1) as threads:
                assert threads.submit(jobs.inside, "report:2").result() is None
        assert jobs.inside("report:2") is None


def test_every_job_that_is_not_sent_is_in_the_log(
    own_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """And an event."""
    caplog.set_level(logging.INFO, "dibs")
    events: list[Event] = []
    with Dibs(own_server.url, budget=5, listeners=[events.append]) as dibs:
        jobs = jobs_of(dibs)
        sends(jobs, "a", [])
        sends(jobs, "b", [])
    assert "report:{account}: job b is not sent: job a exists" in caplog.text
    assert [each.kind for each in events if each.kind == "duplicate"] == ["duplicate"]


# ---- messages that are delivered after another run


def test_a_message_that_was_sent_before_a_run_is_a_duplicate_of_it(own_server: Server) -> None:
    """The worker of the first was killed, and its message comes when another one has ended."""
    with Dibs(own_server.url, budget=5) as dibs:
        jobs, found = jobs_of(dibs, lease=0.2), []
        sends(jobs, "a", found)
        own_server.client().delete(KEY)  # the lease of its run has ended
        first = found.pop()
        begun = time.monotonic()
        eventually(lambda: time.monotonic() > begun + 0.2)
        sends(jobs, "b", found)
        with jobs.start(KEY, Job("b", found[0].token, 0, sent_at=found[0].sent_at)):
            pass
        with pytest.raises(Duplicate) as caught:
            jobs.start(KEY, Job("a", first.token, 0, sent_at=first.sent_at))
        assert (caught.value.note, caught.value.state) == ("b", "done")
        assert not own_server.client().exists(KEY)
        sends(jobs, "c", found)  # what is sent afterwards runs
        with jobs.start(KEY, Job("c", found[1].token, 0, sent_at=found[1].sent_at)):
            pass


def test_a_run_that_failed_has_not_done_the_work_of_another(own_server: Server) -> None:
    """Nor has one of a job that is to run for each request."""
    with Dibs(own_server.url, budget=5) as dibs:
        for until in ("end", "start"):
            jobs = jobs_of(dibs, until=until, lease=0.2)
            early = 1.0
            with suppress(ZeroDivisionError), jobs.start(KEY, Job("b", None, 0)):
                if until == "end":
                    raise ZeroDivisionError
            with jobs.start(KEY, Job("a", None, 0, sent_at=early)):
                pass
            own_server.client().flushall()
