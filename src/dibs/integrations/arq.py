"""arq jobs that are not queued or run twice: a decorator, and a function that enqueues.

    @unique(dibs, "report:{account_id}")
    async def report(ctx, account_id): ...

    await enqueue_job(pool, report, 42)    # a second one, while it is queued or running: the first

`dibs` is an `AsyncDibs`; producers and workers use the same store and namespace.
"""

import asyncio
import functools
import inspect
import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, ParamSpec, TypeVar, Unpack, cast
from uuid import uuid4

from . import needs

with needs("arq"):
    from arq import ArqRedis, Retry
    from arq.constants import (
        default_queue_name,
        in_progress_key_prefix,
        job_key_prefix,
        retry_key_prefix,
    )
    from arq.jobs import Job as ArqJob
    from arq.jobs import JobResult, JobStatus
    from arq.worker import Function, Worker

from .. import AsyncDibs, Duplicate, Unavailable, UsageError
from .._internal_api import KeyInfo
from ._async.jobs import AsyncUniqueJobs
from ._unique_jobs import (
    AGAIN_WITHIN,
    Job,
    NotThere,
    NotYet,
    Sending,
    UniqueKey,
    UniqueKeywords,
    is_turn,
    unique_options,
    without_parameters,
)

__all__ = ["enqueue_job", "unique"]

P = ParamSpec("P")
T = TypeVar("T")

CLAIM = "dibs_claim"
"""The keyword argument of a job that names its claim. arq writes arguments to its log, and those of
a retry cannot be changed, so the token itself is elsewhere:"""
_CLAIM_KEY = "arq:dibs:"
"""… in a key of arq's server, with the key of the job: arguments that were serialized may give
another one."""
RUNNING = "dibs_is_running"
"""In the `ctx` of a job that is guarded already: what it calls is not."""
TOKEN, KEY = "dibs_token", "dibs_key"
"""The keyword arguments of jobs that older versions of dibs have enqueued."""


class _Claim(NamedTuple):
    """What a job brings along."""

    token: str | None
    key: str
    queue: str = default_queue_name
    sent_at: float | None = None


def unique(
    dibs: AsyncDibs, template: str, **options: Unpack[UniqueKeywords]
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Let jobs with the same key run once: `@unique(dibs, "report:{account_id}")`.

    A worker that meets a duplicate does not call the function: the job returns None.

    Args:
        template: Filled from the arguments of the job, without `ctx`; `{task}` is its name.
        **options: `UniqueOptions`.

    Raises:
        UsageError: An option is invalid, a field is missing, or another function has the same
            `unique(…)` without `{task}`.
    """
    settings = unique_options(options)

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        called: Any = function
        first = next(iter(_parameters(called)), None)
        sent = without_parameters(called, [first] if first else [])
        key = UniqueKey(template, sent, settings, f"{called.__module__}.{called.__qualname__}")
        guarded: Any = _guarded(called, AsyncUniqueJobs(dibs, key))
        return guarded

    return decorate


def _parameters(function: Callable[..., Any]) -> list[str]:
    return list(without_parameters(function, ()).__signature__.parameters)  # type: ignore[attr-defined]


# ---- where it is enqueued


async def enqueue_job(
    pool: ArqRedis, function: Callable[..., Any] | Function, *args: Any, **kwargs: Any
) -> ArqJob | None:
    """Enqueue a job like `pool.enqueue_job`, with the function in place of its name.

    Args:
        function: A `unique` function, or what `arq.func` returns for one.

    Returns:
        The job; for a duplicate the existing one. None if *pool* refused `_job_id`.

    Raises:
        UsageError: *function* is not `unique`.
    """
    called: Any = function.coroutine if isinstance(function, Function) else function
    name = function.name if isinstance(function, Function) else called.__qualname__
    jobs: AsyncUniqueJobs | None = getattr(called, "dibs_jobs", None)
    if jobs is None:
        raise UsageError(f"{called.__qualname__}() is not unique; use pool.enqueue_job")
    sent = {name: value for name, value in kwargs.items() if not name.startswith("_")}
    key, job_id = jobs.key_of(args, sent), kwargs.pop("_job_id", None) or uuid4().hex
    delay, claim_id = _delay(kwargs), uuid4().hex
    if jobs.turns is not None:
        return await _enqueue_in_turn(
            pool, jobs, (key, job_id, claim_id, delay), (name, *args), kwargs
        )
    queueing = jobs.queueing(key, job_id, delay, functools.partial(_can_run, pool))

    async def send_claimed(sending: Sending) -> ArqJob | None:
        queue, kept = kwargs.get("_queue_name") or pool.default_queue_name, jobs.in_queue(delay)
        if sending.delay is not None:
            kwargs.update(_defer_until=None, _defer_by=sending.delay or None)
            kept = jobs.in_queue(sending.delay)
        claim = _Claim(sending.token, sending.key, queue, sending.sent_at)
        await _keep(pool, claim_id, claim, kept)
        enqueue: Any = pool.enqueue_job
        job = await enqueue(name, *args, _job_id=job_id, **kwargs, **{CLAIM: claim_id})
        if job is None:
            await jobs.give_back(sending.key, sending.token)
        return job

    async with AsyncExitStack() as stack:
        try:
            sending = await stack.enter_async_context(queueing)
        except Duplicate as error:
            if (outer := jobs.inside(key)) is not None:
                outer.send_after(job_id, jobs.in_queue(delay), send_claimed)
                return _existing(pool, kwargs, job_id)
            answer = jobs.answer(
                error, args, sent, lambda error: _existing(pool, kwargs, error.note or "")
            )
            return await answer if inspect.isawaitable(answer) else answer
        return await send_claimed(sending)


async def _enqueue_in_turn(
    pool: ArqRedis,
    jobs: AsyncUniqueJobs,
    names: tuple[str, str, str, float],
    call: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> ArqJob | None:
    """Enqueue a job now, or when it is its turn; until then it is deferred, by much more."""
    key, job_id, claim_id, delay = names
    assert jobs.turns is not None
    if delay <= 0:  # else it takes its place when its time has come
        kwargs.update(_defer_until=None, _defer_by=jobs.in_queue(0.0))
    enqueue: Any = pool.enqueue_job
    job: ArqJob | None = await enqueue(*call, _job_id=job_id, **kwargs, **{CLAIM: claim_id})
    if job is None or delay > 0:
        return job
    queue = kwargs.get("_queue_name") or pool.default_queue_name
    message, send = json.dumps([job_id, queue, claim_id]), functools.partial(_send_waiting, pool)
    try:
        await jobs.turns.send(key, job_id, message, send)
    except BaseException:
        await pool.delete(job_key_prefix + job_id)
        await pool.zrem(queue, job_id)
        raise
    return job


async def _send_waiting(pool: Any, message: str, sending: Sending) -> None:
    """Let a job begin that has waited."""
    job_id, queue, claim_id = json.loads(message)
    if await pool.exists(in_progress_key_prefix + job_id):  # it is about to be deferred
        raise NotYet
    if (kept := await pool.pttl(job_key_prefix + job_id)) == -2:
        raise NotThere
    claim = _Claim(sending.token, sending.key, queue, sending.sent_at)
    await _keep(pool, claim_id, claim, max(kept / 1000, 1.0))
    now = int(datetime.now(UTC).timestamp() * 1000)
    await pool.zadd(queue, {job_id: now}, xx=True)


def _existing(pool: ArqRedis, options: dict[str, Any], job_id: str) -> ArqJob:
    """Return the job that has the key."""
    queue = options.get("_queue_name") or pool.default_queue_name
    return ArqJob(job_id, pool, queue, pool.job_deserializer)


async def _can_run(pool: ArqRedis, entry: KeyInfo) -> bool:
    """False: it was aborted, has expired, was tried too often, or is gone, without a hook."""
    job_id = str(entry.note)
    info: Any = await ArqJob(job_id, pool, _deserializer=pool.job_deserializer).info()
    if info is None or isinstance(info, JobResult):
        return False
    claim = await _kept(pool, str(info.kwargs.get(CLAIM)))
    if claim is None:
        return True
    return await ArqJob(job_id, pool, claim.queue).status() is not JobStatus.not_found


def _delay(options: dict[str, Any]) -> float:
    if (until := options.get("_defer_until")) is not None:
        now = datetime.now(UTC)
        return (until - (now if until.tzinfo else now.replace(tzinfo=None))).total_seconds()
    by = options.get("_defer_by") or 0
    return by.total_seconds() if isinstance(by, timedelta) else float(by)


# ---- where it runs


def _guarded(function: Callable[..., Any], jobs: AsyncUniqueJobs) -> Callable[..., Any]:
    @functools.wraps(function)
    async def guarded(ctx: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        claim_id = kwargs.pop(CLAIM, None)
        token, key = kwargs.pop(TOKEN, None), kwargs.pop(KEY, None)
        is_enqueued = claim_id is not None or key is not None
        if not is_enqueued and not _is_called_by_arq(function, ctx):
            return await function(ctx, *args, **kwargs)
        ctx[RUNNING] = True
        claim_id = claim_id or ctx["job_id"]
        claim = await _kept(ctx["redis"], claim_id)
        claim = claim or _Claim(token, key or jobs.key_of(args, kwargs))
        job = Job(ctx["job_id"], claim.token, sent_at=claim.sent_at)
        send = functools.partial(_send_waiting, ctx["redis"])
        if jobs.turns is not None:
            await jobs.turns.look_after(send)
        try:
            run = await jobs.start(claim.key, job, send)
        except Duplicate as error:
            if jobs.waits(error, job):
                raise await _wait_again(ctx, jobs, claim, claim_id, job) from None
            if not is_turn(error):
                return None
            # It has not run: this try does not count.
            await ctx["redis"].decr(retry_key_prefix + job.id)
            raise Retry(await jobs.comes_again_in(error, job)) from None
        async with run:
            try:
                return await function(ctx, *args, **kwargs)
            except Retry as again:
                delay = (again.defer_score or 0) / 1000
                claim = claim._replace(token=run.hand_on(delay), key=run.key)
                await _keep(ctx["redis"], claim_id, claim, jobs.in_queue(delay))
                raise

    cast(Any, guarded).dibs_jobs = jobs
    return guarded


async def _wait_again(
    ctx: dict[str, Any], jobs: AsyncUniqueJobs, claim: _Claim, claim_id: str, job: Job
) -> Retry:
    """Put *job* back to its place; until its turn it is deferred, by much more."""
    pool, defer = ctx["redis"], jobs.in_queue(0.0)
    message = json.dumps([job.id, pool.default_queue_name, claim_id])
    try:
        send = functools.partial(_send_waiting, pool)
        await jobs.wait_again(claim.key, job, message, send)
    except Unavailable:
        defer = AGAIN_WITHIN
    await pool.decr(retry_key_prefix + job.id)  # it has not run: this try does not count
    return Retry(defer)


def _is_called_by_arq(function: Callable[..., Any], ctx: dict[str, Any]) -> bool:
    """Return whether a worker has started *function*, as a task.

    Another job that calls it has not.
    """
    if "job_id" not in ctx or RUNNING in ctx:
        return False
    task = asyncio.current_task()
    started: Any = None if task is None else task.get_coro()
    if getattr(started, "__qualname__", None) != function.__qualname__:
        return False
    workers = _workers()
    return not workers or any(each.job_tasks.get(ctx["job_id"]) is task for each in workers)


def _workers() -> list[Worker]:
    """The workers that run jobs on this loop: a job may have started another task, by `gather`.

    arq does not expose them; each job has a task in which its worker waits for it.
    """
    coroutines: list[Any] = [each.get_coro() for each in asyncio.all_tasks()]
    frames = [getattr(each, "cr_frame", None) for each in coroutines]
    running = [each for each in frames if each and each.f_code is Worker.run_job.__code__]
    return [each.f_locals["self"] for each in running]


async def _keep(pool: Any, claim_id: str, claim: _Claim, ttl: float) -> None:
    await pool.set(_CLAIM_KEY + claim_id, json.dumps(claim), px=int(ttl * 1000))


async def _kept(pool: Any, claim_id: str) -> _Claim | None:
    """Return the claim of a job. None: it was enqueued by name, or waited for too long."""
    # Not deleted: a worker may die between this and continuing the claim. It can be used once.
    claim: bytes | None = await pool.get(_CLAIM_KEY + claim_id)
    return None if claim is None else _Claim(*json.loads(claim))
