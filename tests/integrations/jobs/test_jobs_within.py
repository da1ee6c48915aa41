"""Jobs in transactions: what a worker has committed is not done again, however it dies."""

from __future__ import annotations

import functools
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
import redis
from celery import Celery
from dramatiq.results import ResultMissing
from rq import Retry
from sqlalchemy import create_engine, text
from sqlalchemy.orm import sessionmaker

from dibs import Dibs, Duplicate, UsageError
from dibs.integrations import celery as for_celery
from dibs.integrations import rq as for_rq
from dibs.integrations._sync.jobs import UniqueJobs
from dibs.integrations._unique_jobs import Job, NotRun, TransactionOptions, UniqueKey
from dibs.testing import Server, eventually
from dibs.testing.processes import Process
from tests.apps.postgres import Postgres
from tests.integrations.jobs.conftest import loaded_anew, running
from tests.integrations.jobs.job_control import JobControl

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

APP = "tests.integrations.jobs.within_app"
RQ_WORKER = f"""
import redis, rq, {APP}
from tests.integrations.jobs import job_control
rq.Worker(["rq"], connection=redis.Redis.from_url(job_control.URL)).work(logging_level="ERROR")
"""
WORKERS = {
    "celery": (
        "-m", "celery", "-A", APP, "worker", "--concurrency=1", "--without-gossip",
        "--without-mingle", "--without-heartbeat", "-Pprefork",
    ),
    "rq": ("-c", RQ_WORKER),
    "dramatiq": ("-m", "dramatiq", APP, "--processes=1", "--threads=1"),
}  # fmt: skip


def _result_of(message: Any) -> Any:
    """Polled: redis-py gives up a blocking command after its own timeout."""
    found: list[Any] = []

    def look() -> bool:
        with suppress(ResultMissing):
            found.append(message.get_result())
        return bool(found)

    eventually(look, within=90)
    return found[0]


class Payments:
    """The jobs, their workers, and the rows that they have written."""

    def __init__(self, app: Any, database: Callable[[str], list[Any]], broker: Server) -> None:
        self.app = app
        self.database = database
        self.broker = broker
        self._workers = ExitStack()
        self._running: dict[str, Process] = {}

    def work(self, framework: str) -> Process:
        """A worker of *framework*, the same for all tests unless it has ended."""
        if framework not in self._running:
            worker = self._workers.enter_context(running(self.broker, *WORKERS[framework]))
            self._running[framework] = worker
        return self._running[framework]

    def restart(self, framework: str) -> None:
        """Kill the worker of *framework*, and start another one."""
        self._running.pop(framework).kill()
        self.work(framework)

    def send(self, framework: str, name: str, key: str) -> Callable[[], Any]:
        """Send a job; what gives its result."""
        self.work(framework)
        job = getattr(self.app, f"{framework}_{name}")
        if framework == "celery":
            result = job.delay(key)
            return lambda: result.get(timeout=90)
        if framework == "dramatiq":
            return functools.partial(_result_of, job.send(key))
        client = redis.Redis.from_url(self.broker.url)
        queue = for_rq.UniqueQueue("rq", connection=client)
        enqueued = queue.enqueue(job, key, retry=None if name == "retried" else Retry(max=3))

        def ended() -> Any:
            eventually(
                lambda: enqueued.get_status(refresh=True) in ("finished", "failed"), within=90
            )
            result = enqueued.return_value(refresh=True)
            client.close()
            return result

        return ended

    def rows(self, key: str) -> list[str]:
        return [
            number
            for (number,) in self.database(f"SELECT number FROM payments WHERE key = '{key}'")
        ]

    def close(self) -> None:
        self._workers.close()


@pytest.fixture(scope="module")
def payments(broker: Server, postgres: Postgres) -> Iterator[Payments]:
    patch = pytest.MonkeyPatch()
    url = postgres.new_database()
    name = url.partition("@/")[2].partition("?")[0]
    patch.setenv("JOBS_DATABASE", url.replace("postgresql://", "postgresql+psycopg://"))
    patch.setattr("tests.integrations.jobs.job_control.URL", broker.url)
    postgres.ask("CREATE TABLE payments (key text, number text)", name)
    app = loaded_anew("within_app")
    payments = Payments(app, lambda sql: postgres.ask(sql, name), broker)
    yield payments
    payments.close()
    app.dibs.close()
    app.app.close()
    app.broker.close()
    app.client.close()
    app.engine.dispose()
    patch.undo()


def moment_of(moment: str, key: str) -> str:
    """Asks a job to die."""
    return f"die:committed:{key}" if moment == "committed" else "die:told"


@pytest.fixture
def key() -> str:
    return uuid.uuid4().hex


@pytest.mark.parametrize("framework", WORKERS)
@pytest.mark.parametrize("name", ["paid", "done"])
@pytest.mark.parametrize("moment", ["committed", "told"])
def test_a_job_that_dies_after_its_commit_is_not_done_again(
    payments: Payments, control: JobControl, key: str, framework: str, name: str, moment: str
) -> None:
    """By kill -9 before the framework is told.

    It is delivered again: its function does not run, and its result is the one that was committed.
    """
    control.client.set(moment_of(moment, key), 1)
    result = payments.send(framework, name, key)
    if framework == "dramatiq":  # the whole worker dies: start another one
        eventually(lambda: not control.client.exists(moment_of(moment, key)), within=90)
        payments.restart(framework)
    paid = result()
    assert payments.rows(key) == [paid["number"]]
    assert control.runs(key) == ["run"]


@pytest.mark.parametrize("framework", WORKERS)
def test_a_run_that_asks_for_another_one_is_rolled_back(
    payments: Payments, control: JobControl, key: str, framework: str
) -> None:
    """By an exception, or by what it returns: the last run commits, and it alone."""
    paid = payments.send(framework, "retried", key)()
    assert payments.rows(key) == [paid["number"]]
    assert control.runs(key) == ["run"] * 3


# ---- one process


@pytest.fixture
def dibs(valkey: Server) -> Iterator[Dibs]:
    with Dibs(valkey.url) as dibs:
        yield dibs


@pytest.fixture
def opener(tmp_path: Any) -> Iterator[Any]:
    engine = create_engine(f"sqlite:///{tmp_path}/jobs.db")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE work (id text)"))
    yield sessionmaker(engine).begin
    engine.dispose()


class Worker:
    """Runs jobs as a framework does, and counts."""

    def __init__(self, dibs: Dibs, opener: Any, **options: Any) -> None:
        chosen = TransactionOptions(within=opener, lease=1, **options)
        self.jobs = UniqueJobs(dibs, UniqueKey("work:{key}", self.function, chosen, "work"))
        self.runs = 0
        self.fails = False

    def function(self, session: Any, key: str) -> int:
        self.runs += 1
        session.execute(text("INSERT INTO work VALUES (:key)"), {"key": key})
        if self.fails:
            raise RuntimeError("failed")
        return self.runs

    def run(self, job_id: str, attempt: object = 0, key: str = "a") -> Any:
        with self.jobs.start(f"work:{key}", Job(job_id, None, attempt)) as run:
            return run.call(self.function, (key,), {})


UNTIL: Any = pytest.mark.parametrize("until", ["end", 60])


@UNTIL
@pytest.mark.parametrize("flushed", [False, True])
def test_every_later_delivery_gets_what_was_committed(
    dibs: Dibs, valkey: Server, opener: Any, until: Any, flushed: bool
) -> None:
    """Whether Redis knows it or not, and as another attempt, too."""
    worker = Worker(dibs, opener, until=until)
    assert worker.run("j1") == 1
    for attempt in (0, 1):
        if flushed:
            valkey.flush()
        assert worker.run("j1", attempt) == 1
    assert worker.runs == 1


def test_another_job_is_another_work_unless_it_is_unique_for_longer(
    dibs: Dibs, valkey: Server, opener: Any
) -> None:
    """After the end of a job the next one runs; within its window that gets the result."""
    until_end, for_a_minute = (Worker(dibs, opener, until=until) for until in ("end", 60))
    assert [until_end.run("j1"), until_end.run("j2")] == [1, 2]
    assert [for_a_minute.run("j3", key="b"), for_a_minute.run("j4", key="b")] == [1, 1]
    valkey.flush()
    assert for_a_minute.run("j5", key="b") == 1


@UNTIL
def test_a_job_that_fails_is_rolled_back_and_runs_again(
    dibs: Dibs, opener: Any, until: Any
) -> None:
    """Nothing is recorded of it."""
    worker = Worker(dibs, opener, until=until)
    worker.fails = True
    with pytest.raises(RuntimeError, match="failed"):
        worker.run("j1")
    worker.fails = False
    assert worker.run("j1") == 2
    with opener() as session:
        assert session.execute(text("SELECT count(*) FROM work")).scalar() == 1


@UNTIL
def test_without_redis_the_table_answers_every_delivery(opener: Any, until: Any) -> None:
    """Nothing is guarded, and nothing is done twice."""
    with Dibs("redis://127.0.0.1:1") as dibs:
        worker = Worker(dibs, opener, until=until)
        assert [worker.run("j1"), worker.run("j1")] == [1, 1]
    assert worker.runs == 1


def test_who_sends_another_job_within_the_window_gets_the_first(dibs: Dibs, opener: Any) -> None:
    """It is not sent: the existing job has the result."""
    worker = Worker(dibs, opener, until=60)
    worker.run("j1")
    with pytest.raises(Duplicate) as refused, worker.jobs.queueing("work:a", "j2"):
        raise AssertionError("not reached")
    assert (refused.value.note, refused.value.state) == ("j1", "done")


def test_a_task_that_runs_eagerly_has_its_transaction(dibs: Dibs, opener: Any) -> None:
    """Callers do not pass it, and too few arguments are seen where a task is sent."""
    app = Celery("eager")
    app.conf.task_always_eager = True

    @app.task(base=for_celery.unique(dibs, "eager:{key}", until=60, within=opener), bind=True)
    def task(self: Any, session: Any, key: str, note: str = "") -> list[str]:
        session.execute(text("INSERT INTO work VALUES (:key)"), {"key": key})
        return [key, self.request.id]

    first = task.delay("a")
    assert first.get() == ["a", first.id]
    assert task.apply(args=["a"], task_id="another").get() == ["a", first.id]
    with pytest.raises(TypeError, match="key"):
        task.delay()
    with opener() as session:
        assert session.execute(text("SELECT id FROM work")).all() == [("a",)]
    app.close()


def test_a_transaction_that_is_open_elsewhere_is_not_the_end(
    dibs: Dibs, valkey: Server, postgres: Postgres
) -> None:
    """It may be rolled back: the delivery comes again."""
    engine = create_engine(
        postgres.new_database().replace("postgresql://", "postgresql+psycopg://")
    )
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE work (id text)"))
    worker = Worker(dibs, sessionmaker(engine).begin, until=60)
    outcomes: list[Any] = []

    def interrupted(session: Any, key: str) -> int:
        valkey.flush()  # the claims are gone, and the transaction is open
        elsewhere = threading.Thread(target=deliver_again)  # not in this transaction
        elsewhere.start()
        elsewhere.join()
        return worker.function(session, key)

    def deliver_again() -> None:
        with Dibs(valkey.url) as other:
            second = Worker(other, sessionmaker(engine).begin, until=60)
            try:
                second.run("j1")
            except NotRun as refusal:
                outcomes.append(second.jobs.comes_again_in(refusal.error, Job("j1", None, 0)))
            outcomes.append(second.runs)

    with worker.jobs.start("work:a", Job("j1", None, 0)) as run:
        assert run.call(interrupted, ("a",), {}) == 1
    assert outcomes == [1.0, 0]
    assert worker.run("j1") == 1 == worker.runs
    engine.dispose()


def test_what_cannot_be_recorded_is_refused_at_once(dibs: Dibs, opener: Any) -> None:
    """Before anything is sent."""

    async def coroutine(session: Any, key: str) -> None: ...

    def nothing() -> None: ...

    with pytest.raises(UsageError, match="until"):
        for_celery.unique(dibs, "x:{key}", within=opener, until="start")
    with pytest.raises(UsageError, match="plain function"):
        for_rq.unique(dibs, "x:{key}", within=opener)(coroutine)
    with pytest.raises(UsageError, match="first argument"):
        for_rq.unique(dibs, "x", within=opener)(nothing)
    with pytest.raises(UsageError, match="open a transaction"):
        for_rq.unique(dibs, "x:{key}", within=opener())(pay)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="session"):
        for_rq.unique(dibs, "x:{session}", within=opener)(pay)


def pay(session: Any, key: str) -> None: ...
