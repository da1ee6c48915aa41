"""Celery tasks that are not queued or run twice: a base class for `app.task`.

    @app.task(base=unique(dibs, "report:{account_id}"))
    def report(account_id): ...

    report.delay(42)    # a second one, while it is queued or running: the AsyncResult of the first

`dibs` is a `Dibs`; producers and workers use the same store and namespace.
"""
# Celery has no types.
# pyright: basic

import functools
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any, ClassVar, Unpack, cast

from celery import Task, uuid
from celery.app.task import Context
from celery.exceptions import Ignore
from celery.signals import task_revoked

from .. import Dibs, Duplicate, Unavailable
from ._jobs import Run, UniqueJobs
from ._unique import Job, UniqueKey, UniqueKeywords, UniqueOptions

__all__ = ["unique"]

TOKEN, KEY = "dibs_token", "dibs_key"
"""The headers of a message. Its arguments may give another key where they have been decoded, and a
worker that drops a task does not see them."""


def unique(dibs: Dibs, template: str, **options: Unpack[UniqueKeywords]) -> type[Task]:
    """A base class for tasks whose calls are unique: `@app.task(base=unique(dibs, "x:{id}"))`.

    *template* is filled from the arguments of the task. `delay` and `apply_async` of a duplicate
    return the AsyncResult of the task that is there. Options: `UniqueOptions`. UsageError: an
    option makes no sense, or (when the task is created) the task lacks a field of *template*.
    """
    made = UniqueOptions(**options)

    class Unique(_UniqueTask):
        """A task whose calls are unique."""

        abstract = True
        dibs_settings = (dibs, template, made)

    return Unique


class _UniqueTask(Task):
    abstract = True
    dibs_settings: ClassVar[tuple[Dibs, str, UniqueOptions]]

    def __init__(self) -> None:
        dibs, template, options = self.dibs_settings
        self.dibs_jobs = UniqueJobs(dibs, UniqueKey(template, self.run, options))

    # ---- where it is enqueued

    def apply_async(
        self,
        args: Any = None,
        kwargs: Any = None,
        task_id: str | None = None,
        *positional: Any,
        **options: Any,
    ) -> Any:
        """As Celery's. A duplicate is not sent: the answer is the result of the one that is there.

        If *task_id* is given, as it is in chains, groups and chords, the result of that id is the
        error Duplicate: whoever waits for it does not wait for ever.
        """
        key, delay = self._dibs_key(args, kwargs), _delay(options)
        send = functools.partial(super().apply_async, args, kwargs)
        with ExitStack() as stack:
            try:
                claimed = self._handed_on(key, task_id, delay)
                new_id = task_id or uuid()
                if claimed is None:
                    token = stack.enter_context(self.dibs_jobs.queueing(key, new_id, delay))
                    claimed = {TOKEN: token, KEY: key}
            except Duplicate as error:
                return self._answer(error, task_id, options)
            headers = {**(options.pop("headers", None) or {}), **claimed}
            return send(new_id, *positional, headers=headers, **options)
        return None

    def _handed_on(self, key: str, task_id: str | None, delay: float) -> dict[str, Any] | None:
        """The claim of the task that runs here and is sent once more, by itself: a retry.

        None: it is another task, or has other arguments.
        """
        request = self._traced()
        if request is None or request.id != task_id:
            return None
        if key != self._dibs_key(request.args, request.kwargs):
            return None
        run: Run | None = getattr(request, "dibs_run", None)
        token = _header(request, TOKEN) if run is None else run.hand_on(delay)
        return {TOKEN: token, KEY: _header(request, KEY) or key}

    def _dibs_key(self, args: Any, kwargs: Any) -> str:
        return self.dibs_jobs.key_of(tuple(args or ()), dict(kwargs or {}))

    def _answer(self, error: Duplicate, task_id: str | None, options: dict[str, Any]) -> Any:
        """What the caller gets instead of a task of its own. Duplicate: nobody knows which."""
        if error.note is None:
            raise error
        if task_id is not None:
            cast(Any, self.backend).mark_as_failure(
                task_id, error, request=_awaited(task_id, options)
            )
        return self.AsyncResult(error.note)

    # ---- where it runs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """In a worker, guarded. A task that is called as a function is not."""
        request = self._traced()
        if request is None or hasattr(request, "dibs_run"):
            return super().__call__(*args, **kwargs)
        request.dibs_run = None
        comes_again = bool(self.acks_late) and not request.is_eager
        job = Job(request.id, _header(request, TOKEN), request.retries, comes_again)
        try:
            key = _header(request, KEY) or self._dibs_key(args, kwargs)
            run = self.dibs_jobs.start(key, job)
        except Duplicate as error:
            self._send_again(request, self.dibs_jobs.comes_again_in(error, job))
            raise Ignore(f"not run: {error}") from error
        except Unavailable as error:
            raise self.retry(exc=error) from error
        with run:
            request.dibs_run = run
            return self.run(*args, **kwargs)

    def _send_again(self, request: Any, delay: float | None) -> None:
        """The same message, for later: this delivery is acknowledged, and may be the last one."""
        if delay is not None:
            later: Any = self.signature_from_request(
                request, countdown=delay, retries=request.retries
            )
            later.apply_async()

    def _traced(self) -> Any:
        """The request that a worker (or `apply`) runs in this thread; None: there is none."""
        request = cast(Any, self.request_stack).top
        return None if request is None or request.called_directly else request


def _header(request: Any, name: str) -> str | None:
    return (request.headers or {}).get(name)


def _delay(options: dict[str, Any]) -> float:
    """How many seconds a task has to wait before it may start."""
    if (eta := options.get("eta")) is None:
        return float(options.get("countdown") or 0)
    at = datetime.fromisoformat(eta) if isinstance(eta, str) else eta
    return (at - datetime.now(UTC if at.tzinfo else None)).total_seconds()


def _awaited(task_id: str, options: dict[str, Any]) -> Any:
    """What the result backend has to know of a task that is part of something larger."""
    group = {"group": options.get("group_id"), "group_index": options.get("group_index")}
    rest = {name: options.get(name) for name in ("chain", "chord", "root_id", "parent_id")}
    return Context(id=task_id, errbacks=options.get("link_error"), **group, **rest)


@task_revoked.connect
def _give_back(sender: Any = None, request: Any = None, **_: Any) -> None:
    """A worker drops a task that was revoked or has expired: its key is free again."""
    if isinstance(sender, _UniqueTask):
        key, token = _header(request, KEY), _header(request, TOKEN)
        if key is not None and token is not None:
            sender.dibs_jobs.give_back(key, token)
