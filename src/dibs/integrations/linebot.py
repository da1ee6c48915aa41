"""LINE bots: verify the signature, identify the sender, and handle each event once.

    @once_per_event(dibs)             # AsyncDibs for coroutine functions, Dibs for plain ones
    async def on_event(event): ...    # runs once for each webhookEventId, also if redelivered

`Dispatcher` (`ThreadDispatcher` for plain functions) does all of it: it answers LINE before the
work begins, hands each event to its handler once, and spends each reply token once. It needs
line-bot-sdk; the rest does not. Events and sources may be the SDK's objects, any others with the
same attributes, or LINE's own JSON as dicts.
"""

import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from .. import AsyncDibs, Dibs, Duplicate, UsageError
from ._async import line as async_line
from ._line_events import (
    EVENT_NAME,
    WINDOW,
    EventMemory,
    ThreadWorkerPool,
    WorkerPool,
    actor_key,
    event_id,
    event_key,
    reply_key,
    signature_is_right,
    to_its_end,
)
from ._sync import line as sync_line

__all__ = [
    "EVENT_NAME",
    "WINDOW",
    "Deduplication",
    "Dispatcher",
    "EventMemory",
    "ThreadDeduplication",
    "ThreadDispatcher",
    "ThreadWorkerPool",
    "WorkerPool",
    "actor_key",
    "event_id",
    "event_key",
    "once_per_event",
    "reply_key",
    "signature_is_right",
    "to_its_end",
]

P = ParamSpec("P")
E = TypeVar("E")
T = TypeVar("T")

_AsyncHandler = Callable[Concatenate[E, P], Coroutine[Any, Any, T]]
_Handler = Callable[Concatenate[E, P], T]


class Deduplication(async_line.AsyncDeduplication):
    """Tells which events are new, by a claim that all processes share.

    While Redis is unavailable, this process still knows what it has seen itself; other processes do
    not.

    Args:
        skipped: Called with the state of the first delivery, for each event that is not new.
    """


class ThreadDeduplication(sync_line.Deduplication):
    """`Deduplication` for threads."""


class Dispatcher(async_line.AsyncDispatcher):
    """Passes events to coroutine functions, on the loop that calls `receive`.

    Args:
        parser: A `WebhookParser` of line-bot-sdk.
        configuration: A `Configuration` of line-bot-sdk.
        busy: The reply to a person whose message or tap comes while the one before is worked on.
            None: they are worked on side by side.
        ttl: How long a crash keeps a person from being served, in seconds.
        at_least: For how many seconds after the beginning a person is not served again. Who comes
            after the answer gets no reply.
        concurrency: How many events are worked on at once.
        limit: How many more events may wait.
        ended: Called with the outcome of events ("done", "busy", "duplicate", "ignored", "failed",
            "late", "cut", "refused") and their number.
    """

    pool = WorkerPool


class ThreadDispatcher(sync_line.Dispatcher):
    """Passes events to plain functions, in threads. The options are those of `Dispatcher`."""

    pool = ThreadWorkerPool


@overload
def once_per_event(
    dibs: AsyncDibs,
    *,
    window: float = WINDOW,
    skipped: Callable[[Duplicate], object] | None = None,
) -> Callable[[_AsyncHandler[E, P, T]], _AsyncHandler[E, P, T | None]]: ...


@overload
def once_per_event(
    dibs: Dibs,
    *,
    window: float = WINDOW,
    skipped: Callable[[Duplicate], object] | None = None,
) -> Callable[[_Handler[E, P, T]], _Handler[E, P, T | None]]: ...


def once_per_event(
    dibs: AsyncDibs | Dibs,
    *,
    window: float = WINDOW,
    skipped: Callable[[Duplicate], object] | None = None,
) -> Callable[[Any], Any]:
    """Handle an event, the first argument, once; a duplicate returns None.

    A redelivery has the reply token of the first delivery: any reply to it, even "please wait",
    uses the token up. So it is skipped without a reply. If the handler raises, the event can be
    delivered again; an event without an id is always handled.

    Args:
        window: For how many seconds another delivery is a duplicate.
        skipped: Called with the Duplicate of each event that is skipped.
    """

    def decorate(handler: Callable[..., Any]) -> Callable[..., Any]:
        is_async = inspect.iscoroutinefunction(handler)
        if isinstance(dibs, AsyncDibs):
            if not is_async:
                raise UsageError("with an AsyncDibs, the handler must be a coroutine function")
            return async_line.once_handler(dibs, handler, window, skipped)
        if is_async:
            raise UsageError("with a Dibs, the handler must be a plain function")
        return sync_line.once_handler(dibs, handler, window, skipped)

    return decorate
