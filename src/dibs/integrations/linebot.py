"""LINE bots: verify the signature, identify the sender, and handle each event once.

    @once_per_event(dibs)             # AsyncDibs for coroutine functions, Dibs for plain ones
    async def on_event(event): ...    # runs once for each webhookEventId, also if redelivered

`Dispatcher` (`ThreadDispatcher` for plain functions) does all of it: it answers LINE before the
work begins, hands each event to its handler once, and spends each reply token once. It needs
line-bot-sdk; the rest does not. Events and sources may be the SDK's objects, any others with the
same attributes, or LINE's own JSON as dicts.
"""

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar, overload

from .. import AsyncDibs, Dibs, Duplicate, UsageError
from ._line_deduplication import Deduplication, EventMemory, ThreadDeduplication
from ._line_dispatcher import Dispatcher, ThreadDispatcher, to_its_end
from ._line_events import (
    EVENT_NAME,
    WINDOW,
    actor_key,
    event_id,
    event_key,
    reply_key,
    signature_is_right,
)
from ._line_workers import ThreadWorkerPool, WorkerPool

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
    """Handle an event, the first argument, once in *window* seconds; a duplicate returns None.

    A redelivery has the reply token of the first delivery: any reply to it, even "please wait",
    uses the token up. So it is skipped without a reply; *skipped* is called, to count it. If the
    handler raises, the event can be delivered again; an event without an id is always handled.
    """

    def decorate(handler: Callable[..., Any]) -> Callable[..., Any]:
        is_async = inspect.iscoroutinefunction(handler)
        if isinstance(dibs, AsyncDibs):
            if not is_async:
                raise UsageError("with an AsyncDibs, the handler must be a coroutine function")
            return _async_handler(dibs, handler, window, skipped)
        if is_async:
            raise UsageError("with a Dibs, the handler must be a plain function")
        return _handler(dibs, handler, window, skipped)

    return decorate


def _async_handler(
    dibs: AsyncDibs,
    handler: Callable[..., Coroutine[Any, Any, Any]],
    window: float,
    skipped: Callable[[Duplicate], object] | None,
) -> Callable[..., Coroutine[Any, Any, Any]]:
    @functools.wraps(handler)
    async def once(event: object, *args: Any, **kwargs: Any) -> Any:
        key = event_key(event)
        if key is None:
            return await handler(event, *args, **kwargs)
        claiming = dibs.claim(key, window=window, after="hold", on_error="release", name=EVENT_NAME)
        try:
            async with claiming:
                return await handler(event, *args, **kwargs)
        except Duplicate as duplicate:
            return _skip(duplicate, key, skipped)

    return once


def _handler(
    dibs: Dibs,
    handler: Callable[..., Any],
    window: float,
    skipped: Callable[[Duplicate], object] | None,
) -> Callable[..., Any]:
    @functools.wraps(handler)
    def once(event: object, *args: Any, **kwargs: Any) -> Any:
        key = event_key(event)
        if key is None:
            return handler(event, *args, **kwargs)
        claiming = dibs.claim(key, window=window, after="hold", on_error="release", name=EVENT_NAME)
        try:
            with claiming:
                return handler(event, *args, **kwargs)
        except Duplicate as duplicate:
            return _skip(duplicate, key, skipped)

    return once


def _skip(duplicate: Duplicate, key: str, skipped: Callable[[Duplicate], object] | None) -> None:
    if duplicate.key != key:
        raise duplicate  # raised by the handler itself, for another key
    if skipped is not None:
        skipped(duplicate)
