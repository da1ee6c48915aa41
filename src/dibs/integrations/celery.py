"""Celery tasks that are not queued or run twice: a base class for `app.task`.

    @app.task(base=unique(dibs, "report:{account_id}"))
    def report(account_id): ...

    report.delay(42)    # a second one, while it is queued or running: the AsyncResult of the first

`dibs` is a `Dibs`; producers and workers use the same store and namespace.
"""
# Celery has no types.
# pyright: basic

import functools
import json
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Unpack, cast

from . import needs

with needs("celery"):
    from celery import Task, uuid
    from celery.app.task import Context
    from celery.exceptions import Ignore, TimeoutError
    from celery.result import AsyncResult, EagerResult
    from celery.signals import (
        task_postrun,
        task_received,
        task_revoked,
        worker_ready,
        worker_shutdown,
    )
    from celery.states import FAILURE, PENDING, READY_STATES, RETRY, SUCCESS
    from celery.utils.functional import head_from_fun
    from celery.utils.time import maybe_make_aware
    from kombu.serialization import dumps, loads, prepare_accept_content

from .. import Dibs, Duplicate, LeaseLost, Unavailable, UsageError
from .._internal_api import KeyInfo
from ._looking import Looking
from ._sync.job_results import ResultWait
from ._sync.job_turns import JobTurns
from ._sync.jobs import Run, UniqueJobs
from ._unique_jobs import (
    AGAIN_WITHIN,
    LOOK_EVERY,
    Job,
    NotRun,
    Sending,
    TransactionKeywords,
    TransactionOptions,
    UniqueKey,
    from_base64,
    in_base64,
    is_anothers,
    log_callbacks,
    transaction_options,
)

__all__ = ["unique"]

TOKEN, KEY, SENT = "dibs_token", "dibs_key", "dibs_sent"
SENDING = "dibs_sending"
"""The headers of a message, the last one of a retry or of a task that has waited. Its arguments may
give another key where they have been decoded, and a worker that drops a task does not see them."""
_CANVAS = {"chain", "chord", "group_id", "parent_id"}
"""Options of a task that Celery sends as part of something larger: a duplicate that is raised there
would leave the other parts unsent, or be lost in a worker. It is the result of the part."""
_POSITIONAL = ("producer", "link", "link_error", "shadow")
"""The parameters of `apply_async` after the id."""
_OF_THIS_PROCESS = ("producer", "publisher", "connection", "router", "result_cls")
"""Those which a task that waits cannot take along."""


def unique(dibs: Dibs, template: str, **options: Unpack[TransactionKeywords]) -> type[Task]:
    """Create a base class for unique tasks: `@app.task(base=unique(dibs, "x:{id}"))`.

    `delay` and `apply_async` of a duplicate return the AsyncResult of the existing task.

    Args:
        template: Filled from the arguments of the task; `{task}` is its name.
        **options: `TransactionOptions`.

    Raises:
        UsageError: An option is invalid; or, when the task is created, it lacks a field of
            *template*, another task has the same template without `{task}`, or a base class before
            this one has a `__call__`, which would bypass it.
    """
    settings = transaction_options(options)

    class Unique(_UniqueTask):
        """A task whose calls are unique."""

        abstract = True
        dibs_settings = (dibs, template, settings)

    return Unique


class _ExistingResult(AsyncResult):
    """The result of an existing task. It is ready if none can come any more: None, or LeaseLost."""

    dibs_waiting: ResultWait | None = None

    def get(self, timeout: float | None = None, *args: Any, **options: Any) -> Any:
        """As Celery's, in parts: between them it looks whether the task is still there."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            self.ready()
            left = LOOK_EVERY if end is None else min(LOOK_EVERY, max(end - time.monotonic(), 0.0))
            try:
                return super().get(left, *args, **options)
            except TimeoutError:
                # That of the task itself is its result.
                if self._cache or (end is not None and time.monotonic() >= end):
                    raise

    def _get_task_meta(self) -> Any:
        meta: Any = super()._get_task_meta()
        if self._cache is not None or meta.get("status") != PENDING:
            return meta
        ended = self._without_result()
        return meta if ended is None else self._set_cache({**meta, **ended})

    def _without_result(self) -> dict[str, Any] | None:
        """Return how a task ended that has left no result; None: it may come."""
        try:
            if self.dibs_waiting is None or not self.dibs_waiting.is_over():
                return None
        except LeaseLost as error:
            return {"status": FAILURE, "result": error}
        return {"status": SUCCESS, "result": None}


class _UniqueTask(Task):
    abstract = True
    dibs_settings: ClassVar[tuple[Dibs, str, TransactionOptions]]

    def __init__(self) -> None:
        super().__init__()
        dibs, template, options = self.dibs_settings
        own = type(self)
        name = self.name or f"{own.__module__}.{own.__name__}"
        if own.__call__ is not _UniqueTask.__call__:
            raise UsageError(f"{name}: unique() must be the first base, before one with __call__")
        self.dibs_jobs = UniqueJobs(dibs, UniqueKey(template, self.run, options, name))
        if options.within is not None:
            self.__header__ = head_from_fun(self.dibs_jobs.sent)  # what `delay` compares with

    # ---- where it is enqueued

    def apply_async(
        self,
        args: Any = None,
        kwargs: Any = None,
        task_id: str | None = None,
        *positional: Any,
        **options: Any,
    ) -> Any:
        """Send the task, as Celery does. For a duplicate, return the result of the existing one.

        If *task_id* is given, as it is in chains, groups and chords, the result of that id is the
        error Duplicate: callers that wait for it do not wait for ever.
        """
        key, delay = self._dibs_key(args, kwargs), self._delay(options)
        send = functools.partial(super().apply_async, args, kwargs)
        if (handed_on := self._handed_on(key, task_id, delay)) is not None:
            return self._send_on(send, handed_on, task_id, positional, options)
        if self.dibs_jobs.turns is not None:
            if delay > 0:  # it takes its place when its time has come
                return super().apply_async(args, kwargs, task_id, *positional, **options)
            options = {**dict(zip(_POSITIONAL, positional, strict=False)), **options}
            return self._send_in_turn(key, task_id or uuid(), args, kwargs, options)
        new_id = task_id or uuid()
        queueing = self.dibs_jobs.queueing(key, new_id, delay, self._can_run)
        with ExitStack() as stack:
            try:
                sending = stack.enter_context(queueing)
            except Duplicate as error:
                claimed = functools.partial(self._send_claimed, send, new_id, positional, options)
                if (outer := self.dibs_jobs.inside(key)) is not None:
                    outer.send_after(new_id, self.dibs_jobs.in_queue(delay), claimed)
                    return self._result(new_id, options)
                return self._answer(error, args, kwargs, task_id, options)
            return self._send_claimed(send, new_id, positional, options, sending)
        return None

    def _send_claimed(
        self, send: Any, task_id: str, positional: Any, options: Any, sending: Sending
    ) -> Any:
        own: dict[str, Any] = options.get("headers") or {}
        headers = {**own, TOKEN: sending.token, KEY: sending.key, SENT: sending.sent_at}
        options = {**options, "headers": headers}
        if sending.delay is not None:
            options.update(eta=None, countdown=sending.delay)
        return send(task_id, *positional, **options)

    # ---- with queue=True

    def _send_in_turn(self, key: str, task_id: str, args: Any, kwargs: Any, options: Any) -> Any:
        """Send the task now, or when it is its turn."""
        results: dict[str, Any] = {}
        parent: Any = self.app.current_worker_task
        line = {"root_id": task_id, "parent_id": None}
        if parent is not None:
            line = {"root_id": parent.request.root_id or parent.request.id}
            line["parent_id"] = parent.request.id
        options = {**self._get_exec_options(), **line, **options, "task_id": task_id}
        if isinstance(expires := options.get("expires"), (int, float)):
            options["expires"] = datetime.now(UTC) + timedelta(seconds=expires)

        def send(message: str, sending: Sending) -> None:
            result = self._send_waiting(message, sending)
            results[result.id] = result

        turns = cast("JobTurns", self.dibs_jobs.turns)
        turns.send(key, task_id, self._message(args, kwargs, options), send)
        result = results.get(task_id) or self._result(task_id, options)
        if parent is not None:
            parent.add_trail(result)
        return result

    def _message(self, args: Any, kwargs: Any, options: dict[str, Any]) -> str:
        """Return what a task waits with: serialized as its message will be."""
        kept = {name: value for name, value in options.items() if name not in _OF_THIS_PROCESS}
        serializer = options.get("serializer") or self.serializer
        content_type, encoding, body = dumps(
            [self.name, args or (), kwargs or {}, kept], serializer
        )
        data = body if isinstance(body, bytes) else body.encode()
        return json.dumps([content_type, encoding, in_base64(data)])

    def _send_waiting(self, message: str, sending: Sending) -> Any:
        """Send a task that has waited; it may be another one, which has the same template."""
        app: Any = self.app
        content_type, encoding, body = json.loads(message)
        accept = prepare_accept_content(app.conf.accept_content)
        words: Any = loads(from_base64(body), content_type, encoding, accept=accept)
        name, args, kwargs, options = words
        headers = {
            **(options.pop("headers", None) or {}), TOKEN: sending.token, KEY: sending.key,
            SENT: sending.sent_at, SENDING: sending.sending,
        }  # fmt: skip
        send: Any = functools.partial(app.send_task, name)
        if name == self.name:
            send = functools.partial(Task.apply_async, self)
        elif app.conf.task_always_eager:
            send = functools.partial(Task.apply_async, app.tasks[name])
        return send(args, kwargs, headers=headers, add_to_parent=False, **options)

    def _wait_again(self, request: Any, key: str, job: Job) -> None:
        """Put a task back to its place; this delivery is acknowledged."""
        later: Any = self.signature_from_request(request, retries=request.retries)
        message = self._message(later.args, later.kwargs, later.options)
        try:
            self.dibs_jobs.wait_again(key, job, message, self._send_waiting)
        except Unavailable:
            self._send_again(request, AGAIN_WITHIN)

    def dibs_look_after(self) -> None:
        """Send what should have been sent by a process that is dead."""
        if self.dibs_jobs.turns is not None:
            self.dibs_jobs.turns.look_after(self._send_waiting)

    def map(self, it: Any) -> Any:
        """Raise UsageError if its parts are calls inside of one task, which nothing guards."""
        raise UsageError(f"{self.name}: map, starmap and chunks call it unguarded; send a group")

    def starmap(self, it: Any) -> Any:
        """Return the same."""
        return self.map(it)

    def chunks(self, it: Any, n: int) -> Any:
        """Return the same."""
        return self.map(it)

    def replace(self, sig: Any) -> Any:
        """As Celery's. What replaces this task takes its claim along, if it has the same key."""
        self.request.dibs_is_replaced = True
        return super().replace(sig)

    def _handed_on(self, key: str, task_id: str | None, delay: float) -> dict[str, Any] | None:
        """Return the claim of the task that runs here and is sent once more, by itself.

        None: it is another task, or has other arguments.
        """
        request = self._traced()
        if request is None:
            return None
        if request.id != task_id and not getattr(request, "dibs_is_replaced", False):
            return None
        if key != self._dibs_key(request.args, request.kwargs):
            return None
        run: Run | None = getattr(request, "dibs_run", None)
        claimed = {name: _header(request, name) for name in (TOKEN, SENDING, SENT)}
        if run is not None:
            claimed.update({TOKEN: run.hand_on(delay), SENDING: run.sending, KEY: run.key})
        return {KEY: _header(request, KEY) or key, **claimed}

    def _send_on(
        self, send: Any, claimed: dict[str, Any], task_id: Any, positional: Any, options: Any
    ) -> Any:
        headers = {**(options.pop("headers", None) or {}), **claimed}
        request = self._traced()
        request.dibs_is_replaced = False  # of several tasks that replace it, the first has its key
        try:
            return send(task_id, *positional, headers=headers, **options)
        except BaseException:
            if (run := getattr(request, "dibs_run", None)) is not None:
                run.take_back()
            raise

    def _dibs_key(self, args: Any, kwargs: Any) -> str:
        return self.dibs_jobs.key_of(tuple(args or ()), dict(kwargs or {}))

    def _delay(self, options: dict[str, Any]) -> float:
        """Return how many seconds a task has to wait before it may start."""
        if (eta := options.get("eta")) is None:
            return float(options.get("countdown") or 0)
        at = datetime.fromisoformat(eta) if isinstance(eta, str) else eta
        app: Any = self.app
        return (maybe_make_aware(at, app.timezone) - datetime.now(UTC)).total_seconds()

    def _can_run(self, entry: KeyInfo) -> bool:
        """Return False if it has ended without being run. Only a result backend can tell.

        A worker did not know the task, or met an outage too often.
        """
        try:
            result: Any = self.AsyncResult(cast(str, entry.note))
            ended = result.date_done if result.state in READY_STATES else None
        except Exception:  # there is no backend, or it does not answer
            return True
        if not isinstance(ended, datetime):
            return True
        ago = (datetime.now(UTC) - maybe_make_aware(ended, UTC)).total_seconds()
        # An older result is that of an earlier task with the same id.
        return ago >= (entry.age or 0.0)

    def _answer(
        self, error: Duplicate, args: Any, kwargs: Any, task_id: str | None, options: dict[str, Any]
    ) -> Any:
        """Return what the caller gets instead of another task.

        Duplicate: the caller asked for it, or the existing task is not known.
        """
        if task_id is not None and task_id != error.note:
            self._fail(error, task_id, _awaited(task_id, options))
        elif options.get("link") or options.get("link_error"):
            log_callbacks(error.name, error.note or "?")
        existing = functools.partial(self._existing, options)
        if error.note is not None and not _CANVAS.isdisjoint(options):
            return existing(error)
        return self.dibs_jobs.answer(error, args or (), kwargs or {}, existing)

    def _existing(self, options: dict[str, Any], error: Duplicate) -> Any:
        return self._result(cast(str, error.note), options, self.dibs_jobs.result_of(error))

    def _result(self, task_id: str, options: Any, waiting: ResultWait | None = None) -> Any:
        """Return what a caller may wait for: it ends, also where the task leaves no result."""
        if self.app.conf.task_always_eager:  # it has run, or runs when its caller has ended
            return EagerResult(task_id, None, SUCCESS, name=self.name)
        result = _ExistingResult(task_id, backend=self.backend, task_name=self.name, app=self.app)
        result.ignored = bool(options.get("ignore_result", self.ignore_result))
        result.dibs_waiting = waiting
        return result

    def _fail(self, error: Duplicate, task_id: str, request: Any) -> None:
        """Let *error* be the result of a task that is not run: a caller may wait for it."""
        cast(Any, self.backend).mark_as_failure(task_id, error, request=request)

    # ---- where it runs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """In a worker, guarded. A task that is called as a function is not."""
        request = self._traced()
        if request is None or hasattr(request, "dibs_run"):
            return super().__call__(*args, **kwargs)
        request.dibs_run = None
        key = _header(request, KEY) or self._dibs_key(args, kwargs)
        if self._is_inside(request, key):
            return self._run(*args, **kwargs)
        attempt = f"{request.retries}.{request.get('replaced_task_nesting') or 0}"
        token, sending = _header(request, TOKEN), _header(request, SENDING)
        sent_at: Any = _header(request, SENT)
        job = Job(request.id, token, attempt, not request.is_eager, sending, sent_at=sent_at)
        try:
            run = self.dibs_jobs.start(key, job, self._send_waiting)
        except Duplicate as error:
            if self.dibs_jobs.waits(error, job):
                self._wait_again(request, key, job)
                raise Ignore("it waits for its turn") from error
            raise self._refused(error, job, request) from error
        except Unavailable as error:
            raise self.retry(exc=error) from error
        request.dibs_key = key
        with run:
            request.dibs_run = run
            try:
                return run.call(self._run, args, kwargs)
            except Ignore as error:  # it was replaced, or stored a result itself: it did not fail
                ended: Ignore | NotRun = error
            except NotRun as error:
                ended = error
        if isinstance(ended, NotRun):
            raise self._refused(ended.error, job, request) from ended.error
        raise ended

    def _refused(self, error: Duplicate, job: Job, request: Any) -> Ignore:
        """Return what ends a task that is not run; it comes again, or its result is *error*."""
        self._send_again(request, self.dibs_jobs.comes_again_in(error, job))
        if is_anothers(error, job) and not request.is_eager:
            self._fail(error, request.id, request)
        return Ignore(f"not run: {error}")

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        """Return the function, within the `__call__` of a base class of the application."""
        call = super().__call__
        if call.__func__ is Task.__call__:  # which would hide the request from the function
            return self.run(*args, **kwargs)
        return call(*args, **kwargs)

    def _is_inside(self, request: Any, key: str) -> bool:
        """Whether a task with the same key runs here eagerly, and is replaced by this one."""
        stack: Any = self.request_stack
        return request.is_eager and any(
            getattr(each, "dibs_key", None) == key for each in stack.stack[:-1]
        )

    def _send_again(self, request: Any, delay: float | None) -> None:
        """Send the message again, for later: this delivery is acknowledged, perhaps the last."""
        if delay is not None:
            later: Any = self.signature_from_request(
                request, countdown=delay, retries=request.retries
            )
            later.apply_async()

    def _traced(self) -> Any:
        """Return the request that a worker (or `apply`) runs in this thread.

        None: there is none.
        """
        stack: Any = self.request_stack
        request = None if stack is None else stack.top  # None: another thread sets this task up
        return None if request is None or request.called_directly else request


def _header(request: Any, name: str) -> str | None:
    return (request.headers or {}).get(name)


def _awaited(task_id: str, options: dict[str, Any]) -> Any:
    """Return what the result backend has to know of a task that is part of something larger."""
    group = {"group": options.get("group_id"), "group_index": options.get("group_index")}
    rest = {name: options.get(name) for name in ("chain", "chord", "root_id", "parent_id")}
    return Context(id=task_id, errbacks=options.get("link_error"), **group, **rest)


@task_received.connect
def _fetched(sender: Any = None, request: Any = None, **_: Any) -> None:
    """A worker has a message in its memory: until it starts, for hours if that has an `eta`."""
    if not isinstance(request.task, _UniqueTask):
        return
    headers = request.request_dict
    key, token = headers.get(KEY), headers.get(TOKEN)
    if key is not None and token is not None:
        wait = (request.eta - datetime.now(UTC)).total_seconds() if request.eta else 0.0
        request.task.dibs_jobs.fetched(key, token, wait)


@task_revoked.connect
def _give_back(sender: Any = None, request: Any = None, **_: Any) -> None:
    """A worker drops a task that was revoked or has expired: its key is free again."""
    if isinstance(sender, _UniqueTask):
        key, token = _header(request, KEY), _header(request, TOKEN)
        if key is not None and token is not None:
            sender.dibs_jobs.give_back(key, token, sender._send_waiting)


@task_postrun.connect
def _after(sender: Any = None, state: Any = None, **_: Any) -> None:
    """A task that ended before it was called, as by an error in `before_start`: its key is free."""
    if not isinstance(sender, _UniqueTask) or state == RETRY:
        return
    if not hasattr(sender.request, "dibs_run"):
        _give_back(sender, sender.request)


_LOOKING = Looking()


@worker_ready.connect
def _look(sender: Any = None, **_: Any) -> None:
    """A worker looks after tasks that wait for their turn."""
    tasks = [each for each in sender.app.tasks.values() if isinstance(each, _UniqueTask)]
    _LOOKING.start(
        (each.dibs_look_after, each.dibs_jobs.turns.look_every)
        for each in tasks
        if each.dibs_jobs.turns is not None
    )


@worker_shutdown.connect
def _look_no_more(**_: Any) -> None:
    _LOOKING.stop()
