"""LINE bots: verify the signature, identify the sender, and handle each event once.

    @once_per_event(dibs)             # AsyncDibs for coroutine functions, Dibs for plain ones
    async def on_event(event): ...    # runs once for each webhookEventId, also if redelivered

Events and sources may be the SDK's objects, any others with the same attributes, or LINE's own
JSON as dicts. The SDK is not needed.
"""

import base64
import functools
import hashlib
import hmac
import inspect
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar, cast, overload

from .. import AsyncDibs, Dibs, Duplicate, UsageError

P = ParamSpec("P")
E = TypeVar("E")
T = TypeVar("T")

EVENT_NAME = "line:event:{webhookEventId}"
"""The name of the claim on an event, in events and errors of dibs."""
WINDOW = 86_400.0
"""A day: LINE stops redelivering an event before that."""


def signature_is_right(body: bytes, signature: str | None, secret: str) -> bool:
    """True: *body*, as received, was signed with the channel's *secret*.

    *signature*: the header `X-Line-Signature`. False if it is malformed or missing; the comparison
    takes constant time.
    """
    right = base64.b64encode(hmac.digest(secret.encode(), body, hashlib.sha256))
    return hmac.compare_digest(right, (signature or "").encode("utf-8", "replace"))


def actor_key(source: object) -> str | None:
    """`processing:user:{userId}` of the sender, also in a group; None: LINE does not send it."""
    user_id = _fact(source, "user_id", "userId")
    return None if user_id is None else f"processing:user:{user_id}"


def event_id(event: object) -> str | None:
    """The event's `webhookEventId`, the same at each delivery; None: it has none."""
    return _fact(event, "webhook_event_id", "webhookEventId")


def event_key(event: object) -> str | None:
    """The key that is claimed for the event; None: the event has no id."""
    found = event_id(event)
    return None if found is None else f"line:event:{found}"


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


def _fact(thing: object, attribute: str, field: str) -> str | None:
    """A string of *thing*: an attribute or, in LINE's JSON, a field; None: it has none."""
    if isinstance(thing, Mapping):
        value = cast("Mapping[str, object]", thing).get(field)
    else:
        value = getattr(thing, attribute, None)
    return value if isinstance(value, str) and value else None
