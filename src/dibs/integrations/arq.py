"""arq jobs that are not queued or run twice: a decorator, and a function that enqueues.

    @unique(dibs, "report:{account_id}")
    async def report(ctx, account_id): ...

    await enqueue_job(pool, report, 42)    # a second one, while it is queued or running: the first

`dibs` is an `AsyncDibs`; producers and workers use the same store and namespace.
"""

import functools
from collections.abc import Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any, ParamSpec, TypeVar, Unpack, cast
from uuid import uuid4

from arq import ArqRedis, Retry
from arq.jobs import Job as ArqJob
from arq.jobs import JobStatus

from .. import AsyncDibs, Duplicate, UsageError
from ._async.jobs import AsyncUniqueJobs
from ._unique import Job, UniqueKey, UniqueKeywords, UniqueOptions, without_parameters

__all__ = ["enqueue_job", "unique"]

P = ParamSpec("P")
T = TypeVar("T")

TOKEN, KEY = "dibs_token", "dibs_key"
"""The keyword arguments that bring the token to the worker, and the key: arguments that were
serialized may give another one."""
_RETRY_KEY = "arq:dibs:"
"""… and a key on the server for the token of a retry, whose arguments cannot be changed."""


def unique(
    dibs: AsyncDibs, template: str, **options: Unpack[UniqueKeywords]
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Let jobs with the same key run once: `@unique(dibs, "report:{account_id}")`.

    *template* is filled from the arguments of the job, without `ctx`. A worker that meets a
    duplicate does not call the function: the job returns None. Options: `UniqueOptions`.
    UsageError: an option is invalid, or a field is missing.
    """
    made = UniqueOptions(**options)

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        called: Any = function
        first = next(iter(_parameters(called)), None)
        key = UniqueKey(template, without_parameters(called, [first] if first else []), made)
        guarded: Any = _guarded(called, AsyncUniqueJobs(dibs, key))
        return guarded

    return decorate


def _parameters(function: Callable[..., Any]) -> list[str]:
    return list(without_parameters(function, ()).__signature__.parameters)  # type: ignore[attr-defined]


# ---- where it is enqueued


async def enqueue_job(
    pool: ArqRedis, function: Callable[..., Any], *args: Any, **kwargs: Any
) -> ArqJob | None:
    """As `pool.enqueue_job`, with the function itself in place of its name.

    For a duplicate: the job that is there. None: *pool* refused `_job_id`. UsageError: *function*
    is not `unique`.
    """
    jobs: AsyncUniqueJobs | None = getattr(function, "dibs_jobs", None)
    if jobs is None:
        raise UsageError(f"{function.__qualname__}() is not unique; use pool.enqueue_job")
    sent = {name: value for name, value in kwargs.items() if not name.startswith("_")}
    key, job_id = jobs.key_of(args, sent), kwargs.pop("_job_id", None) or uuid4().hex
    queueing = functools.partial(jobs.queueing, key, job_id, _delay(kwargs))
    async with AsyncExitStack() as stack:
        try:
            token = await stack.enter_async_context(queueing())
        except Duplicate as error:
            there = _there(error, pool, kwargs)
            if not await _was_dropped(there, jobs, key, pool):
                return there
            token = await stack.enter_async_context(queueing())
        enqueue: Any = pool.enqueue_job
        claimed = {TOKEN: token, KEY: key}
        job = await enqueue(function.__qualname__, *args, _job_id=job_id, **kwargs, **claimed)
        if job is None:
            await jobs.give_back(key, token)
        return job


def _there(error: Duplicate, pool: ArqRedis, options: dict[str, Any]) -> ArqJob:
    """The job that has the key. Duplicate: it is not known."""
    if error.note is None:
        raise error
    queue = options.get("_queue_name") or pool.default_queue_name
    return ArqJob(error.note, pool, queue, pool.job_deserializer)


async def _was_dropped(job: ArqJob, jobs: AsyncUniqueJobs, key: str, pool: ArqRedis) -> bool:
    """Whether *job* ended without being run: aborted, expired, or retried too often.

    Its key is free now. arq calls nobody then, but keeps a result.
    """
    if await job.status() != JobStatus.complete:
        return False
    info: Any = await job.result_info()
    tokens = [await _retry_token(pool, job.job_id), info and info.kwargs.get(TOKEN)]
    return any([await jobs.give_back(key, token) for token in tokens if token])


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
        token, key = kwargs.pop(TOKEN, None), kwargs.pop(KEY, None)
        job_id = ctx.get("job_id")
        if job_id is None or ctx.get("dibs_is_running"):
            return await function(ctx, *args, **kwargs)
        if ctx.get("job_try", 1) > 1:
            token = await _retry_token(ctx["redis"], job_id) or token
        try:
            run = await jobs.start(key or jobs.key_of(args, kwargs), Job(job_id, token))
        except Duplicate:
            return None
        async with run:
            try:
                return await function({**ctx, "dibs_is_running": True}, *args, **kwargs)
            except Retry as again:
                delay = (again.defer_score or 0) / 1000
                await _keep_token(ctx["redis"], job_id, await run.hand_on(delay), run.kept(delay))
                raise

    cast(Any, guarded).dibs_jobs = jobs
    return guarded


async def _keep_token(pool: Any, job_id: str, token: str | None, ttl: float) -> None:
    if token is not None:
        await pool.set(_RETRY_KEY + job_id, token, px=int(ttl * 1000))


async def _retry_token(pool: Any, job_id: str) -> str | None:
    # Not deleted: a worker may die between this and continuing the claim. It can be used once.
    found = await pool.get(_RETRY_KEY + job_id)
    return None if found is None else found.decode()
