"""RQ jobs that are not queued or run twice: a decorator, and a queue that knows it.

    @unique(dibs, "report:{account_id}")
    def report(account_id): ...

    queue = UniqueQueue(connection=redis)
    queue.enqueue(report, 42)    # a second one, while it is queued or running: the Job of the first

`dibs` is a `Dibs`; producers and workers use the same store and namespace. Workers need nothing
else: the function that they import is the decorated one.
"""

import contextlib
import functools
import inspect
import json
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any, ParamSpec, TypeVar, Unpack, cast

from . import needs

with needs("rq"):
    from rq import Queue, Retry, get_current_job
    from rq.exceptions import InvalidJobOperation, NoSuchJobError
    from rq.job import Job as RQJob
    from rq.job import JobStatus
    from rq.registry import ScheduledJobRegistry

from .. import Dibs, Duplicate, Unavailable, UsageError
from .._internal_api import KeyInfo, signature_of
from ._sync.jobs import Run, UniqueJobs
from ._unique_jobs import (
    TURN_WITHIN,
    Job,
    NotRun,
    NotThere,
    NotYet,
    Sending,
    TransactionKeywords,
    UniqueKey,
    is_turn,
    transaction_options,
)

__all__ = ["UniqueQueue", "unique"]

P = ParamSpec("P")
T = TypeVar("T")

TOKEN, KEY, SENT = "dibs_token", "dibs_key", "dibs_sent"
"""In `job.meta`: the claim of a job that waits, its key (arguments that were serialized may give
another one), and when it was sent."""
SENDING = "dibs_sending"
"""There, too: what tells the times apart at which a job that has waited was sent."""
_ENDED_BADLY = {JobStatus.FAILED, JobStatus.STOPPED, JobStatus.CANCELED}
_ENDED = {JobStatus.FINISHED, *_ENDED_BADLY}
DUPLICATE_OF = "duplicate_of"
"""In `job.meta`: the job because of which this one was not run."""


def unique(
    dibs: Dibs, template: str, **options: Unpack[TransactionKeywords]
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Let jobs with the same key run once: `@unique(dibs, "report:{account_id}")`.

    A worker that meets a duplicate does not call the function: the job returns None, and
    `job.meta["duplicate_of"]` is the id of the other.

    Args:
        template: Filled from the arguments of the function; `{task}` is its name.
        **options: `TransactionOptions`.

    Raises:
        UsageError: An option is invalid, a field is missing, or another function has the same
            `unique(…)` without `{task}`.
    """
    settings = transaction_options(options)

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        name = f"{function.__module__}.{function.__qualname__}"
        jobs = UniqueJobs(dibs, UniqueKey(template, function, settings, name))
        if settings.within is not None and inspect.iscoroutinefunction(function):
            raise UsageError(f"{name}: within= of a Dibs needs a plain function")
        guarded: Any = (
            _async_guarded(function, jobs)
            if inspect.iscoroutinefunction(function)
            else _guarded(function, jobs)
        )
        guarded.dibs_jobs = jobs
        return guarded

    return decorate


# ---- where it is enqueued


class _EndedJob:
    """A job that has finished so long ago that RQ has no result of it any more."""

    def get_status(self, refresh: bool = True) -> Any:  # noqa: FBT001, FBT002 - as RQ's
        """It has finished."""
        return JobStatus.FINISHED

    def refresh(self) -> None:
        """There is nothing to be read."""

    def return_value(self, refresh: bool = False) -> None:  # noqa: FBT001, FBT002 - as RQ's
        """It is not known."""

    def latest_result(self, timeout: int = 0) -> None:
        """There is none, and none will come."""


class UniqueQueue(Queue):
    """A queue that refuses a job whose function is `unique` and whose key is taken.

    `enqueue`, `enqueue_many`, `enqueue_at` and `enqueue_in` of a duplicate return the existing job.
    """

    def create_job(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Create a job, as RQ does."""
        job = cast(Any, super()).create_job(func, *args, **kwargs)
        job.dibs_jobs = getattr(func, "dibs_jobs", None)
        return job

    def enqueue_job(self, job: Any, *args: Any, **kwargs: Any) -> Any:
        """Enqueue a job, as RQ does; for a duplicate, return the existing one."""
        return self._once(job, 0.0, functools.partial(super().enqueue_job, job, *args, **kwargs))

    def enqueue_many(
        self, job_datas: Iterable[Any], pipeline: Any = None, group_id: str | None = None
    ) -> list[Any]:
        """Enqueue jobs, as RQ does; a duplicate yields the existing job. Keeps the order.

        Duplicate: one is, and its function has `on_duplicate="raise"`; then nothing is enqueued.
        """
        created = [self._created(each) for each in job_datas]
        newest = {key: job.id for _, job, jobs, key in created if jobs and jobs.replaces}
        with ExitStack() as stack:
            claims = [self._claimed(stack, newest, *each) for each in created]
            sent = [data for data, _ in claims if data is not None]
            enqueued = super().enqueue_many(sent, pipeline, group_id)
        known = {each.id: each for each in enqueued}
        return [answer(known) for _, answer in claims]

    def _created(self, data: Any) -> tuple[Any, Any, UniqueJobs | None, str]:
        """Return what is asked for, its job, and what makes that unique."""
        job: Any = self.create_job(data.func, data.args, data.kwargs, job_id=data.job_id)
        jobs = _jobs_of(job)
        key = "" if jobs is None else jobs.key_of(job.args, job.kwargs)
        return data._replace(job_id=job.id), job, jobs, key

    def _claimed(
        self,
        stack: ExitStack,
        newest: dict[str, str],
        data: Any,
        job: Any,
        jobs: UniqueJobs | None,
        key: str,
    ) -> tuple[Any, Callable[[Any], Any]]:
        """Return what is to be enqueued (None.

        Nothing), and the answer, once all the others are.
        """
        if jobs is None:
            return data, lambda known: known[job.id]
        if jobs.turns is not None:
            return None, lambda known: cast(Any, self).enqueue_call(**_call_of(data))
        if jobs.replaces and newest[key] != job.id:  # by one that is sent together with it
            return None, lambda known: known.get(newest[key]) or self._fetched(newest[key])
        try:
            sending = stack.enter_context(jobs.queueing(key, job.id, 0.0, self._can_run))
        except Duplicate as error:
            first = jobs.answer(error, job.args, job.kwargs, self._there)
            return None, lambda known: known.get(getattr(first, "id", None), first)
        own: dict[str, Any] = data.meta or {}
        meta = {**own, TOKEN: sending.token, KEY: sending.key, SENT: sending.sent_at}
        return data._replace(meta=meta), lambda known: known[job.id]

    def schedule_job(self, job: Any, datetime: datetime, *args: Any, **kwargs: Any) -> Any:
        """Schedule a job, as RQ does; for a duplicate, return the existing one."""
        delay = (datetime - _now(datetime)).total_seconds()
        send = functools.partial(super().schedule_job, job, datetime, *args, **kwargs)
        return self._once(job, delay, send)

    def _once(self, job: Any, delay: float, send: Callable[[], Any]) -> Any:
        jobs = _jobs_of(job)
        if jobs is None or TOKEN in job.meta:  # one that is tried again takes its claim along
            return send()
        key = jobs.key_of(job.args, job.kwargs)
        if jobs.turns is not None:
            if delay > 0 or job._dependency_ids or not cast(Any, self)._is_async:
                return send()  # it takes its place where it runs
            return self._in_turn(jobs, key, job)

        def send_claimed(sending: Sending) -> Any:
            job.meta.update({TOKEN: sending.token, KEY: sending.key, SENT: sending.sent_at})
            if sending.delay is None or sending.delay == max(delay, 0.0):
                return send()
            if not sending.delay:
                return super(UniqueQueue, self).enqueue_job(job)
            at = datetime.now(UTC) + timedelta(seconds=sending.delay)
            return super(UniqueQueue, self).schedule_job(job, at)

        with ExitStack() as stack:
            try:
                sending = stack.enter_context(jobs.queueing(key, job.id, delay, self._can_run))
            except Duplicate as error:
                if (outer := jobs.inside(key)) is not None:
                    outer.send_after(job.id, jobs.in_queue(delay), send_claimed)
                    return job
                return jobs.answer(error, job.args, job.kwargs, self._there)
            return send_claimed(sending)
        return None

    def _in_turn(self, jobs: UniqueJobs, key: str, job: Any) -> Any:
        """Enqueue *job* now, or when it is its turn; until then it is scheduled, for much later."""
        assert jobs.turns is not None
        at = datetime.now(UTC) + timedelta(seconds=jobs.in_queue(0.0))
        job.origin = self.name
        super().schedule_job(job, at)
        send = functools.partial(_send_waiting, job)
        try:
            jobs.turns.send(key, job.id, json.dumps([job.id, self.name]), send)
        except BaseException:
            job.delete()
            raise
        with contextlib.suppress(NoSuchJobError):  # it has run, and was forgotten
            job.refresh()
        return job

    def _there(self, error: Duplicate) -> Any:
        """Return the job that has the key."""
        return self._fetched(cast(str, error.note), is_done=error.state == "done")

    def _fetched(self, job_id: str, *, is_done: bool = False) -> Any:
        job_class: Any = self.job_class
        try:
            return job_class.fetch(job_id, self.connection, self.serializer)
        except NoSuchJobError:  # it is being enqueued at this moment, or was forgotten by RQ
            known = type(job_class.__name__, (_EndedJob, job_class), {}) if is_done else job_class
            return known(job_id, self.connection, self.serializer)

    def _can_run(self, entry: KeyInfo) -> bool:
        """Return whether a worker may still start a job."""
        job = self._fetched(str(entry.note))
        try:
            if job.get_status() != JobStatus.DEFERRED:
                return job.get_status(refresh=False) not in _ENDED
            known = [each.get_status(refresh=False) for each in job.fetch_dependencies()]
        except (InvalidJobOperation, NoSuchJobError):  # its ttl is over, or it was deleted
            return False
        return job.allow_dependency_failures or not _ENDED_BADLY.intersection(known)


def _call_of(data: Any) -> dict[str, Any]:
    """Return the arguments of `enqueue_call` for what `enqueue_many` is given."""
    known = signature_of(cast(Any, Queue).enqueue_call).parameters
    return {name: value for name, value in data._asdict().items() if name in known}


def _send_waiting(known: Any, message: str, sending: Sending) -> None:
    """Enqueue a job that has waited. *known*: any job that is on the same server."""
    job_id, name = json.loads(message)
    connection, serializer = known.connection, known.serializer
    job_class = cast(Any, type(known))
    try:
        job: Any = job_class.fetch(job_id, connection, serializer)
    except NoSuchJobError:
        raise NotThere from None
    status = job.get_status(refresh=False)
    if status in _ENDED:
        raise NotThere
    if status == JobStatus.STARTED:  # it is about to be scheduled
        raise NotYet
    told = {TOKEN: sending.token, KEY: sending.key, SENT: sending.sent_at}
    job.meta.update({**told, SENDING: sending.sending})
    job.save_meta()
    if status == JobStatus.SCHEDULED:
        queue = Queue(name, connection, job_class=job_class, serializer=serializer)
        connection.zrem(ScheduledJobRegistry(queue=queue).key, job_id)
        queue.enqueue_job(job)


def _now(like: datetime) -> datetime:
    return datetime.now(UTC) if like.tzinfo else datetime.now(UTC).replace(tzinfo=None)


def _jobs_of(job: Any) -> UniqueJobs | None:
    """Return the options of the function of *job*; None: it has none, or is not known here."""
    if (known := getattr(job, "dibs_jobs", None)) is not None:
        return known
    try:
        return getattr(job.func, "dibs_jobs", None)
    except (ImportError, AttributeError, ValueError):  # only workers have the code
        return None


# ---- where it runs


def _guarded(function: Callable[P, T], jobs: UniqueJobs) -> Callable[P, T | None]:
    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T | None:
        job = _running_job(jobs)
        if job is None:
            return function(*args, **kwargs)
        run = _start(jobs, job, args, kwargs)
        if not isinstance(run, Run):
            return cast(Any, run)
        with run, _TriedAgain(run, job) as retry:
            result = _called(run, function, args, kwargs)
            retry.look_at(result)
            return result

    return guarded


class _Returned(Exception):
    """A job has returned a `Retry`: a transaction in which it runs is rolled back."""

    def __init__(self, retry: Retry) -> None:
        super().__init__()
        self.retry = retry


def _called(run: Run, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Return what *function* returns.

    Raises Duplicate if another transaction does the same, and may yet fail.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if isinstance(result, Retry):
            raise _Returned(result)
        return result

    try:
        return run.call(call, args, kwargs)
    except _Returned as returned:
        return returned.retry
    except NotRun as refusal:
        raise refusal.error from None


def _async_guarded(function: Callable[..., Any], jobs: UniqueJobs) -> Callable[..., Any]:
    @functools.wraps(function)
    async def guarded(*args: Any, **kwargs: Any) -> Any:
        job = _running_job(jobs)
        if job is None:
            return await function(*args, **kwargs)
        run = _start(jobs, job, args, kwargs)
        if not isinstance(run, Run):
            return run
        with run, _TriedAgain(run, job) as retry:  # RQ runs nothing else on this loop
            result = await function(*args, **kwargs)
            retry.look_at(result)
            return result

    return guarded


def _running_job(jobs: UniqueJobs) -> Any:
    """The job whose function *jobs* belongs to; None: something else calls it, even in a job.

    That function may have other decorators around the one of this module.
    """
    job: Any = get_current_job()
    if job is None or getattr(job, "dibs_is_running", False):
        return None
    if getattr(job.func, "dibs_jobs", None) is not jobs:
        return None
    job.dibs_is_running = True
    return job


def _start(jobs: UniqueJobs, job: Any, args: Any, kwargs: Any) -> Run | Retry | None:
    """Return the run of *job*; a Retry: it is not its turn; None: it is a duplicate."""
    timeout = job.timeout or 0  # -1: there is none
    patience = min(TURN_WITHIN, timeout / 2) if timeout > 0 else TURN_WITHIN
    own, key, send = None, "", functools.partial(_send_waiting, job)
    try:
        key = job.meta.get(KEY) or jobs.key_of(args, kwargs)
        # RQ enqueues a job that is to be repeated again and again: it is asked for each time.
        sent_at = None if getattr(job, "repeats_left", None) else job.meta.get(SENT)
        attempt = None
        if jobs.turns is not None:
            attempt = f"{job.number_of_retries or 0}.{getattr(job, 'repeats_left', None) or 0}"
            jobs.turns.look_after(send)
        own = Job(
            job.id, job.meta.get(TOKEN), attempt, sent_by=job.meta.get(SENDING), sent_at=sent_at,
            patience=patience,
        )  # fmt: skip
        return jobs.start(key, own, send)
    except Duplicate as error:
        if own is not None and jobs.waits(error, own):
            return _wait_again(jobs, job, key, own, send)
        if is_turn(error):
            return _not_counted(job, 0)
        job.meta[DUPLICATE_OF] = error.note
        job.save_meta()
        return None


def _wait_again(jobs: UniqueJobs, job: Any, key: str, own: Job, send: Any) -> Retry:
    """Put *job* back to its place; until its turn it is scheduled, for much later."""
    try:
        jobs.wait_again(key, own, json.dumps([job.id, job.origin]), send)
    except Unavailable:
        return _not_counted(job, 0)
    return _not_counted(job, int(jobs.in_queue(0.0)))


def _not_counted(job: Any, interval: int) -> Retry:
    """Have RQ enqueue *job* again. It has not run: this does not count as a retry."""
    retries = job.number_of_retries or 0
    job.number_of_retries = retries - 1
    return Retry(max=retries + 1, interval=interval)


class _TriedAgain:
    """Takes the claim along where RQ is going to run the job once more."""

    def __init__(self, run: Run, job: Any) -> None:
        self._run = run
        self._job = job

    def look_at(self, result: object) -> None:
        """A job may return a `Retry`."""
        done = self._job.number_of_retries or 0
        if isinstance(result, Retry) and done < result.max:
            self._hand_on(Retry.get_interval(done, result.intervals))

    def _hand_on(self, delay: float) -> None:
        self._job.meta[TOKEN], self._job.meta[KEY] = self._run.hand_on(delay), self._run.key
        self._job.save_meta()

    def __enter__(self) -> "_TriedAgain":
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        job = cast("RQJob", self._job)
        if kind is not None and issubclass(kind, Exception) and job.should_retry:
            self._hand_on(job.get_retry_interval())
