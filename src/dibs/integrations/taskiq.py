"""Taskiq tasks that are not queued or run twice: a decorator above `broker.task`.

    @unique(dibs, "report:{account_id}")
    @broker.task
    async def report(account_id): ...

    await report.kiq(42)    # a second one, while it is queued or running: the task that is there

`dibs` is an `AsyncDibs`; producers and workers use the same store and namespace.
"""

import asyncio
import functools
import inspect
from collections.abc import Callable
from contextlib import AsyncExitStack
from contextvars import ContextVar
from typing import Any, TypeVar, Unpack, get_type_hints

from taskiq import (
    AsyncBroker,
    AsyncTaskiqDecoratedTask,
    AsyncTaskiqTask,
    TaskiqMessage,
    TaskiqMiddleware,
)
from taskiq.exceptions import NoResultError
from taskiq.kicker import AsyncKicker
from taskiq_dependencies.dependency import Dependency

from .. import AsyncDibs, Duplicate
from ._async.jobs import AsyncRun, AsyncUniqueJobs
from ._unique import Job, UniqueKey, UniqueKeywords, UniqueOptions, without_parameters

__all__ = ["unique"]

Task = TypeVar("Task", bound="AsyncTaskiqDecoratedTask[..., Any]")

TOKEN, KEY = "dibs_token", "dibs_key"
"""The labels of a message that have the token, and the key: arguments that were encoded may give
another one."""


def unique(
    dibs: AsyncDibs, template: str, **options: Unpack[UniqueKeywords]
) -> Callable[[Task], Task]:
    """Let tasks with the same key run once: `@unique(dibs, "x:{id}")` above `@broker.task`.

    *template* is filled from the arguments of the task. `kiq` of a duplicate returns the task
    that is there. Options: `UniqueOptions`. UsageError: an option is invalid, or a field is
    missing.
    """
    made = UniqueOptions(**options)

    def decorate(task: Task) -> Task:
        original = task.original_func
        key = UniqueKey(template, without_parameters(original, _injected(original)), made)
        jobs = AsyncUniqueJobs(dibs, key)
        task.original_func = _guarded(original, jobs, task.broker)
        task.kicker = functools.partial(_UniqueKicker, task.kicker, jobs)
        if not any(isinstance(each, _Runs) for each in task.broker.middlewares):
            task.broker.add_middlewares(_Runs())
        return task

    return decorate


def _injected(function: Callable[..., Any]) -> list[str]:
    """The parameters that a worker fills, and that no message has."""
    hints = get_type_hints(function, include_extras=True)
    names: list[str] = []
    for name, parameter in inspect.signature(function).parameters.items():
        said = [parameter.default, *getattr(hints.get(name), "__metadata__", ())]
        names += [name] if any(isinstance(each, Dependency) for each in said) else []
    return names


# ---- where it is enqueued


class _UniqueKicker(AsyncKicker[..., Any]):
    def __init__(self, make: Callable[[], AsyncKicker[..., Any]], jobs: AsyncUniqueJobs) -> None:
        vars(self).update(vars(make()))  # the task's own, which knows its broker and labels
        self.dibs_jobs = jobs

    async def kiq(self, *args: Any, **kwargs: Any) -> Any:
        """As Taskiq's. A duplicate is not sent: the answer is the task that is there."""
        key, task_id = self.dibs_jobs.key_of(args, kwargs), self.custom_task_id
        task_id = self.broker.id_generator() if task_id is None else task_id
        async with AsyncExitStack() as stack:
            try:
                queueing = self.dibs_jobs.queueing(key, task_id, _delay(self.labels))
                token = await stack.enter_async_context(queueing)
            except Duplicate as error:
                if error.note is None:
                    raise
                return AsyncTaskiqTask(error.note, self.broker.result_backend, self.return_type)
            self.with_task_id(task_id).with_labels(**{TOKEN: token, KEY: key})
            return await super().kiq(*args, **kwargs)


def _delay(labels: dict[str, Any]) -> float:
    return float(labels.get("delay") or 0)


# ---- where it runs


class _Here:
    """The message that is executed in a task of the event loop."""

    def __init__(self, message: TaskiqMessage) -> None:
        self.message: TaskiqMessage | None = message
        self.run: AsyncRun | None = None


_here: ContextVar[_Here | None] = ContextVar("dibs_taskiq", default=None)


class _Runs(TaskiqMiddleware):
    """Knows what is executed, and ends its run when everybody else is done with it.

    Retries are sent before that, by another middleware: they take the claim along.
    """

    async def pre_execute(self, message: TaskiqMessage) -> TaskiqMessage:
        _here.set(_Here(message))
        return message

    async def pre_send(self, message: TaskiqMessage) -> TaskiqMessage:
        here = _here.get()
        run = None if here is None else here.run
        if run is not None and run.job_id == message.task_id:
            message.labels[TOKEN] = await run.hand_on(_delay(message.labels)) or ""
        return message

    async def post_execute(self, message: TaskiqMessage, result: Any) -> None:
        here = _here.get()
        if here is not None and here.run is not None:
            run, here.run = here.run, None
            error: BaseException | None = result.error
            await run.__aexit__(None if error is None else type(error), error, None)


def _guarded(
    function: Callable[..., Any], jobs: AsyncUniqueJobs, broker: AsyncBroker
) -> Callable[..., Any]:
    """*function*, guarded where a worker calls it; called by anything else it is not."""
    is_async = inspect.iscoroutinefunction(function)

    @functools.wraps(function)
    async def guarded(*args: Any, **kwargs: Any) -> Any:
        here = _here.get()
        if here is not None and here.message is not None:
            message, here.message = here.message, None
            here.run = await _started(jobs, message, broker)
        if is_async:
            return await function(*args, **kwargs)
        return await asyncio.to_thread(function, *args, **kwargs)

    return guarded


async def _started(jobs: AsyncUniqueJobs, message: TaskiqMessage, broker: AsyncBroker) -> AsyncRun:
    labels = message.labels
    attempt = f"{labels.get('_retries', 0)}.{labels.get('X-Taskiq-requeue', 0)}"
    job = Job(message.task_id, labels.get(TOKEN) or None, attempt)
    try:
        key = labels.get(KEY) or jobs.key_of(tuple(message.args), message.kwargs)
        return await jobs.start(key, job)
    except Duplicate as error:
        delay = await jobs.comes_again_in(error, job)
        if delay is not None:
            # Most brokers have no delay. It is not acknowledged before it was sent once more.
            await asyncio.sleep(delay)
            await broker.kick(broker.formatter.dumps(message))
        raise NoResultError from error
