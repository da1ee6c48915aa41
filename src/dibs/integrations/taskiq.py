"""Taskiq tasks that are not queued or run twice: a decorator above `broker.task`.

    @unique(dibs, "report:{account_id}")
    @broker.task
    async def report(account_id): ...

    await report.kiq(42)    # a second one, while it is queued or running: the existing task

`dibs` is an `AsyncDibs`; producers and workers use the same store and namespace.
"""

import asyncio
import contextlib
import functools
import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from typing import Any, TypeVar, Unpack, get_type_hints

from . import needs

with needs("taskiq"):
    from taskiq import (
        AckableMessage,
        AsyncBroker,
        AsyncTaskiqDecoratedTask,
        AsyncTaskiqTask,
        Context,
        TaskiqDepends,
        TaskiqMessage,
        TaskiqMiddleware,
        TaskiqResult,
    )
    from taskiq.exceptions import NoResultError
    from taskiq.kicker import AsyncKicker
    from taskiq_dependencies.dependency import Dependency

from .. import AsyncDibs, Duplicate, LeaseLost, Unavailable
from .._internal_api import signature_of
from ._async.job_results import AsyncResultWait
from ._async.jobs import AsyncRun, AsyncUniqueJobs
from ._unique_jobs import (
    TURN_WITHIN,
    Job,
    Sending,
    UniqueKey,
    UniqueKeywords,
    from_base64,
    in_base64,
    is_turn,
    unique_options,
    without_parameters,
)

__all__ = ["unique"]

Task = TypeVar("Task", bound="AsyncTaskiqDecoratedTask[..., Any]")

TOKEN, KEY, SENT = "dibs_token", "dibs_key", "dibs_sent"
SENDING = "dibs_sending"
"""The labels of a message that have the token, the key (arguments that were encoded may give
another one), when it was sent and, in a retry or after its turn has come, the sending."""
CONTEXT = "dibs_context"
"""The parameter by which a worker says what it runs."""


def unique(
    dibs: AsyncDibs, template: str, **options: Unpack[UniqueKeywords]
) -> Callable[[Task], Task]:
    """Let tasks with the same key run once: `@unique(dibs, "x:{id}")` above `@broker.task`.

    `kiq` of a duplicate returns the existing task.

    Args:
        template: Filled from the arguments of the task; `{task}` is its name.
        **options: `UniqueOptions`.

    Raises:
        UsageError: An option is invalid, a field is missing, or another task has the same
            `unique(…)` without `{task}`.
    """
    settings = unique_options(options)

    def decorate(task: Task) -> Task:
        original = task.original_func
        sent = without_parameters(original, _injected(original))
        jobs = AsyncUniqueJobs(dibs, UniqueKey(template, sent, settings, task.task_name))
        task.original_func = _guarded(original, jobs)
        task.kicker = functools.partial(_UniqueKicker, task.kicker, jobs)
        _runs_of(task.broker)
        return task

    return decorate


def _injected(function: Callable[..., Any]) -> list[str]:
    """Return the parameters that a worker fills, and that no message has."""
    hints = get_type_hints(function, include_extras=True)
    names: list[str] = []
    for name, parameter in signature_of(function).parameters.items():
        markers = [parameter.default, *getattr(hints.get(name), "__metadata__", ())]
        names += [name] if any(isinstance(each, Dependency) for each in markers) else []
    return names


# ---- where it is enqueued


class _UniqueKicker(AsyncKicker[..., Any]):
    def __init__(self, make: Callable[[], AsyncKicker[..., Any]], jobs: AsyncUniqueJobs) -> None:
        vars(self).update(vars(make()))  # the task's own, which knows its broker and labels
        self.dibs_jobs = jobs

    async def kiq(self, *args: Any, **kwargs: Any) -> Any:
        """Send the task, as Taskiq does. For a duplicate, return the existing one."""
        key, task_id = self.dibs_jobs.key_of(args, kwargs), self.custom_task_id
        task_id = self.broker.id_generator() if task_id is None else task_id

        async def send_claimed(sending: Sending) -> Any:
            # Another one: a kicker can be used for several tasks, and labels may be the task's own.
            labels = {**self.labels, TOKEN: sending.token, KEY: sending.key}
            if sending.sent_at is not None:
                labels[SENT] = str(sending.sent_at)
            if sending.delay is not None:
                labels["delay"] = sending.delay
            kicker = AsyncKicker[..., Any](self.task_name, self.broker, labels, self.return_type)
            return await kicker.with_task_id(task_id).kiq(*args, **kwargs)

        delay = _delay(self.labels)
        if self.dibs_jobs.turns is not None:
            sent = AsyncKicker[..., Any](
                self.task_name, self.broker, self.labels, self.return_type
            ).with_task_id(task_id)
            if delay > 0:  # it takes its place when its time has come
                return await sent.kiq(*args, **kwargs)
            message = sent._prepare_message(*args, **kwargs)
            turn = in_base64(self.broker.formatter.dumps(message).message)
            send = functools.partial(_send_waiting, self.broker)
            await self.dibs_jobs.turns.send(key, task_id, turn, send)
            return AsyncTaskiqTask(task_id, self.broker.result_backend, self.return_type)
        async with AsyncExitStack() as stack:
            try:
                queueing = self.dibs_jobs.queueing(key, task_id, delay)
                sending = await stack.enter_async_context(queueing)
            except Duplicate as error:
                if (outer := self.dibs_jobs.inside(key)) is not None:
                    outer.send_after(task_id, self.dibs_jobs.in_queue(delay), send_claimed)
                    return AsyncTaskiqTask(task_id, self.broker.result_backend, self.return_type)
                answer = self.dibs_jobs.answer(error, args, kwargs, self._existing)
                return await answer if inspect.isawaitable(answer) else answer
            return await send_claimed(sending)

    def _existing(self, error: Duplicate) -> AsyncTaskiqTask[Any]:
        task = _ExistingTask(error.note or "", self.broker.result_backend, self.return_type)
        task.dibs_waiting = self.dibs_jobs.result_of(error)
        return task


async def _send_waiting(broker: AsyncBroker, text: str, sending: Sending) -> None:
    """Send a task that has waited; it may be another one, which has the same template."""
    message = broker.formatter.loads(from_base64(text))
    message.parse_labels()
    labels = {
        **message.labels, TOKEN: sending.token, KEY: sending.key, SENT: str(sending.sent_at),
        SENDING: sending.sending,
    }  # fmt: skip
    kicker = AsyncKicker[..., Any](message.task_name, broker, labels)
    await kicker.with_task_id(message.task_id).kiq(*message.args, **message.kwargs)


class _ExistingTask(AsyncTaskiqTask[Any]):
    """An existing task. It is ready if no result can come any more: None, or LeaseLost."""

    dibs_waiting: AsyncResultWait

    async def is_ready(self) -> bool:
        """As Taskiq's, or nothing will come."""
        if await super().is_ready():
            return True
        try:
            return await self.dibs_waiting.is_over()
        except LeaseLost:
            return True

    async def get_result(  # as Taskiq's
        self,
        with_logs: bool = False,  # noqa: FBT001, FBT002
    ) -> TaskiqResult[Any]:
        """As Taskiq's; where nothing will come, a result without a value."""
        error: LeaseLost | None = None
        if not await super().is_ready():
            try:
                is_over = await self.dibs_waiting.is_over()
            except LeaseLost as lost:
                is_over, error = True, lost
            if is_over:
                return TaskiqResult(
                    is_err=error is not None, return_value=None, execution_time=0.0, error=error
                )
        return await super().get_result(with_logs)


def _delay(labels: dict[str, Any]) -> float:
    return float(labels.get("delay") or 0)


# ---- where it runs


class _Runs(TaskiqMiddleware):
    """Ends a run when all other middleware is done with its message.

    Retries are sent before that, by another middleware: they take the claim along.
    """

    def __init__(self) -> None:
        super().__init__()
        self._running: dict[int, AsyncRun] = {}
        """By the identity of the message: several deliveries of one may be here at once."""
        self._sending: set[str] = set()
        """The ids of the runs that are being sent once more."""
        self._ending: set[asyncio.Task[bool]] = set()
        self._looking: asyncio.Task[None] | None = None

    async def startup(self) -> None:
        """A worker looks after tasks that wait for their turn."""
        if self.broker.is_worker_process:
            self._looking = asyncio.create_task(_look_after(self.broker))

    async def shutdown(self) -> None:
        """It does not any more."""
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await looking

    def started(self, message: TaskiqMessage, run: AsyncRun) -> None:
        """It ends with its message; at the latest, with the task that processes that."""
        self._running[id(message)] = run
        if (task := asyncio.current_task()) is not None:
            # It holds the message, so that no other one gets its identity.
            task.add_done_callback(functools.partial(self._abandoned, message, run))

    def _abandoned(self, message: TaskiqMessage, run: AsyncRun, task: "asyncio.Task[Any]") -> None:
        """If a dependency failed at its end, or another middleware, `post_execute` is not called.

        The message is not acknowledged then, and may be delivered again.
        """
        if self._running.get(id(message)) is run:
            error = RuntimeError("Taskiq has not processed it to its end")
            ending = task.get_loop().create_task(self._end(message, error))
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)

    async def _end(self, message: TaskiqMessage, error: BaseException | None) -> bool:
        """End the run of *message*. False: there is none."""
        run = self._running.pop(id(message), None)
        if run is None:
            return False
        if run.job_id in self._sending:  # it could not be sent
            self._sending.discard(run.job_id)
            run.take_back()
        await run.__aexit__(None if error is None else type(error), error, None)
        return True

    async def pre_send(self, message: TaskiqMessage) -> TaskiqMessage:
        for run in list(self._running.values()):
            if run.job_id == message.task_id:
                message.labels[TOKEN] = run.hand_on(_delay(message.labels)) or ""
                message.labels[SENDING], message.labels[KEY] = run.sending, run.key
                self._sending.add(run.job_id)
        return message

    async def post_send(self, message: TaskiqMessage) -> None:
        self._sending.discard(message.task_id)

    async def post_execute(self, message: TaskiqMessage, result: Any) -> None:
        error: BaseException | None = result.error
        if await self._end(message, error):
            return
        if error is not None and not isinstance(error, NoResultError):
            await self._give_back(message)

    async def _give_back(self, message: TaskiqMessage) -> None:
        """It has ended before its function was called, by a dependency: its key is free."""
        task, token = self.broker.find_task(message.task_name), message.labels.get(TOKEN)
        jobs: AsyncUniqueJobs | None = getattr(
            getattr(task, "original_func", None), "dibs_jobs", None
        )
        if jobs is not None and token:
            send = functools.partial(_send_waiting, self.broker)
            await jobs.give_back(message.labels[KEY], token, send)


def _runs_of(broker: AsyncBroker) -> _Runs:
    """Yield the middleware of *broker*. That of a shared task is known when a worker runs it."""
    for middleware in broker.middlewares:
        if isinstance(middleware, _Runs):
            return middleware
    runs = _Runs()
    broker.add_middlewares(runs)
    listen = broker.listen

    async def naming() -> AsyncGenerator[Any, None]:
        """Yield what *listen* yields: it may wait in this process for long."""
        async with contextlib.aclosing(listen()) as deliveries:
            async for delivery in deliveries:
                await _name(broker, delivery)
                yield delivery

    broker.listen = naming  # type: ignore[method-assign]
    return runs


async def _look_after(broker: AsyncBroker) -> None:
    """Send what should have been sent by a process that is dead, again and again."""
    send = functools.partial(_send_waiting, broker)
    while True:
        functions: list[Any] = [each.original_func for each in broker.get_all_tasks().values()]
        known = [getattr(each, "dibs_jobs", None) for each in functions]
        turns = [jobs.turns for jobs in known if jobs is not None and jobs.turns is not None]
        for each in turns:
            await each.look_after(send)
        await asyncio.sleep(min((each.look_every for each in turns), default=5.0))


async def _name(broker: AsyncBroker, delivery: Any) -> None:
    """Name this process in the claim of a message that it has fetched."""
    data = delivery.data if isinstance(delivery, AckableMessage) else delivery
    with contextlib.suppress(Exception):  # Taskiq says what is wrong with a message
        message = broker.formatter.loads(data)
        task, labels = broker.find_task(message.task_name), message.labels
        jobs: AsyncUniqueJobs | None = getattr(
            getattr(task, "original_func", None), "dibs_jobs", None
        )
        if jobs is not None and labels.get(TOKEN):
            await jobs.fetched(labels[KEY], labels[TOKEN])


def _guarded(function: Callable[..., Any], jobs: AsyncUniqueJobs) -> Callable[..., Any]:
    """Return *function*, guarded where a worker calls it; called by anything else it is not."""
    is_async = inspect.iscoroutinefunction(function)

    @functools.wraps(function)
    async def guarded(*args: Any, **kwargs: Any) -> Any:
        context: Context | None = kwargs.pop(CONTEXT, None)
        if context is not None:
            run = await _started(jobs, context)
            _runs_of(context.broker).started(context.message, run)
        if is_async:
            return await function(*args, **kwargs)
        return await asyncio.to_thread(function, *args, **kwargs)

    _inject_context(guarded, function)
    guarded.dibs_jobs = jobs  # type: ignore[attr-defined]
    return guarded


def _inject_context(guarded: Any, function: Callable[..., Any]) -> None:
    """Have workers pass the message: nothing else that calls *guarded* does."""
    hints = {**get_type_hints(function, include_extras=True), CONTEXT: Context}
    own = signature_of(function).parameters.values()
    # Resolved: Taskiq evaluates no text in a signature that is given to it.
    parameters = [each.replace(annotation=hints.get(each.name, each.annotation)) for each in own]
    added = inspect.Parameter(
        CONTEXT, inspect.Parameter.KEYWORD_ONLY, default=TaskiqDepends(), annotation=Context
    )
    at = len(parameters) - any(each.kind is each.VAR_KEYWORD for each in parameters)
    guarded.__signature__ = inspect.Signature([*parameters[:at], added, *parameters[at:]])
    guarded.__annotations__ = hints


async def _started(jobs: AsyncUniqueJobs, context: Context) -> AsyncRun:
    message, broker = context.message, context.broker
    labels = message.labels
    attempt = f"{labels.get('_retries', 0)}.{labels.get('X-Taskiq-requeue', 0)}"
    token, sending = labels.get(TOKEN) or None, labels.get(SENDING)
    sent_at = float(labels[SENT]) if SENT in labels else None
    job = Job(
        message.task_id, token, attempt, sent_by=sending, patience=TURN_WITHIN, sent_at=sent_at
    )
    key = ""
    try:
        key = labels.get(KEY) or jobs.key_of(tuple(message.args), message.kwargs)
        send = functools.partial(_send_waiting, broker)
        return await jobs.start(key, job, send)
    except Duplicate as error:
        if jobs.waits(error, job):
            await _wait_again(jobs, broker, message, key, job)
            raise NoResultError from error
        delay = await jobs.comes_again_in(error, job)
        if delay is not None:
            # Most brokers have no delay. It is not acknowledged before it was sent once more.
            if not is_turn(error):  # for which it has waited
                await asyncio.sleep(delay)
            await broker.kick(broker.formatter.dumps(message))
        elif error.key != job.run_key:  # a caller may wait for it
            result = TaskiqResult[Any](
                is_err=True, return_value=None, execution_time=0.0, error=error, labels=labels
            )
            await broker.result_backend.set_result(message.task_id, result)
        raise NoResultError from error


async def _wait_again(
    jobs: AsyncUniqueJobs, broker: AsyncBroker, message: TaskiqMessage, key: str, job: Job
) -> None:
    """Put a task back to its place; this delivery is acknowledged."""
    delivery = broker.formatter.dumps(message)
    send = functools.partial(_send_waiting, broker)
    try:
        await jobs.wait_again(key, job, in_base64(delivery.message), send)
    except Unavailable:
        await asyncio.sleep(TURN_WITHIN)
        await broker.kick(delivery)
