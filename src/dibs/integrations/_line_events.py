"""What LINE sends: ids, senders, reply tokens, signatures; which events are new, who handles them.

Events and sources may be the SDK's objects, any others with the same attributes, or LINE's own
JSON as dicts. Pure: no I/O. line-bot-sdk is imported when it is first needed.
"""

import asyncio
import base64
import hashlib
import hmac
import importlib
import inspect
import logging
import traceback
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, Literal, NamedTuple, TypeVar, cast

from .. import DibsError
from .._internal_api import Guard, Seconds, check_hold, fork_safe_lock
from ..errors import UsageError
from . import needs

_log = logging.getLogger("dibs.linebot")

DeliveryState = Literal["running", "done"]
Skipped = Callable[[DeliveryState], object]
Handler = Callable[..., Any]
_LOCKED = ("message", "postback")
ACTOR_NAME = "processing:user:{userId}"
REPLY_NAME = "line:reply:{replyToken}"
REPLY_TTL = 1800.0
"""A reply token is good for a minute, and after a redelivery up to 20 minutes after the event."""
EVENT_NAME = "line:event:{webhookEventId}"
"""The name of the claim on an event, in events and errors of dibs."""
WINDOW = 86_400.0
"""A day: LINE stops redelivering an event before that."""


def signature_is_right(body: bytes, signature: str | None, secret: str) -> bool:
    """Check that *body*, as received, was signed with the channel's *secret*.

    The comparison takes constant time.

    Args:
        signature: The header `X-Line-Signature`; False if it is malformed or missing.

    Raises:
        UsageError: *secret* is empty, and anybody can sign with that.
    """
    if not secret:
        raise UsageError("the channel secret is empty: anybody could sign a webhook")
    right = base64.b64encode(hmac.digest(secret.encode(), body, hashlib.sha256))
    return hmac.compare_digest(right, (signature or "").encode("utf-8", "replace"))


def actor_key(source: object) -> str | None:
    """Return `processing:user:{userId}` of the sender, or None if LINE does not send the id."""
    user_id = fact_of(source, "user_id", "userId")
    return None if user_id is None else f"processing:user:{user_id}"


def event_id(event: object) -> str | None:
    """Return the event's `webhookEventId`, the same at each delivery, or None."""
    return fact_of(event, "webhook_event_id", "webhookEventId")


def event_key(event: object) -> str | None:
    """Return the key that is claimed for the event, or None if the event has no id."""
    webhook_id = event_id(event)
    return None if webhook_id is None else f"line:event:{webhook_id}"


def reply_token(event: object) -> str | None:
    """Return the event's `replyToken`; None: it cannot be replied to."""
    return fact_of(event, "reply_token", "replyToken")


def reply_key(token: str) -> str:
    """Return the key that is held once a reply token is used; it does not show the token."""
    return f"line:reply:{hashlib.sha256(token.encode()).hexdigest()[:32]}"


def part_of(thing: object, name: str) -> object:
    """Return a part of an event, such as its source or message; None: it has none."""
    if isinstance(thing, Mapping):
        return cast("Mapping[str, object]", thing).get(name)
    return getattr(thing, name, None)


def fact_of(thing: object, attribute: str, field: str) -> str | None:
    """Return a string of *thing*: an attribute or, in LINE's JSON, a field; None: it has none."""
    if isinstance(thing, Mapping):
        value = cast("Mapping[str, object]", thing).get(field)
    else:
        value = getattr(thing, attribute, None)
    return value if isinstance(value, str) and value else None


# ---- which are new


class EventMemory:
    """The latest keys of this process and their states, up to *size*; the oldest go first."""

    def __init__(self, size: int = 10_000) -> None:
        self._size = size
        self._states: OrderedDict[str, DeliveryState] = OrderedDict()
        self._lock = fork_safe_lock()

    def __len__(self) -> int:
        return len(self._states)

    def get(self, key: str) -> DeliveryState | None:
        """Return the state of *key*, or None if it was never seen, or too long ago."""
        return self._states.get(key)

    def begin(self, key: str) -> DeliveryState | None:
        """Return the state of *key*; if there is none, return None and record it as running."""
        with self._lock:
            state = self._states.get(key)
            if state is None:
                self._put(key, "running")
            return state

    def put(self, key: str, state: DeliveryState) -> None:
        """Record the state of *key*."""
        with self._lock:
            self._put(key, state)

    def drop(self, key: str) -> None:
        """Forget *key*, so that it counts as new."""
        with self._lock:
            self._states.pop(key, None)

    def end(self, key: str, *, is_done: bool) -> None:
        """Record *key* as done, or forget it."""
        self.put(key, "done") if is_done else self.drop(key)

    def _put(self, key: str, state: DeliveryState) -> None:
        self._states[key] = state
        self._states.move_to_end(key)
        if len(self._states) > self._size:
            self._states.popitem(last=False)


def is_new(state: DeliveryState | None, skipped: Skipped | None) -> bool:
    """Return whether an event in *state* is new; if not, *skipped* is called."""
    if state is not None and skipped is not None:
        skipped(state)
    return state is None


# ---- who handles them, and what is replied


class Route(NamedTuple):
    """A handler, and the events that it is for."""

    kind: Any
    content: Any
    handler: Handler
    when: Callable[[Any], object] | None
    alone: bool | None
    key: Callable[[Any], str] | None
    busy: Any
    at_least: Seconds

    def fits(self, event: object) -> bool:
        """Return whether it is for this handler."""
        name = fact_of(event, "type", "type") or ""
        content = part_of(event, name)
        fits = _is(event, self.kind) and (self.content is None or _is(content, self.content))
        return fits and (self.when is None or bool(self.when(event)))

    def key_of(self, event: object) -> str | None:
        """Return what is done one at a time: for the sender, or by its own key.

        None: side by side.
        """
        alone = fact_of(event, "type", "type") in _LOCKED if self.alone is None else self.alone
        if not alone or self.busy is None:
            return None
        if self.key is not None:
            return f"processing:{self.key(event)}"
        return actor_key(part_of(event, "source"))


def _is(thing: object, kind: Any) -> bool:
    if isinstance(kind, str):
        return fact_of(thing, "type", "type") == kind
    return isinstance(thing, kind)


class Routes:
    """The handlers, and how they are found."""

    def __init__(
        self, parser: Any, *, is_async: bool, busy: Any, ttl: Seconds, at_least: Seconds
    ) -> None:
        check_hold("Dispatcher", {"ttl": ttl, "at_least": at_least})
        self._parser = parser
        self._is_async = is_async
        self._busy = busy
        self._ttl = ttl
        self._at_least = at_least
        self._routes: list[Route] = []

    def on(
        self,
        kind: Any,
        content: Any = None,
        *,
        when: Callable[[Any], object] | None = None,
        alone: bool | None = None,
        key: Callable[[Any], str] | None = None,
        busy: Any = None,
        at_least: Seconds | None = None,
    ) -> Callable[[Handler], Handler]:
        """Handle events of *kind*, with messages of the type *content*: `handler(event, reply)`.

        Both are classes of line-bot-sdk, or LINE's names for them ("message", "text"). The first
        handler that fits is called.

        Args:
            when: Called with the event; false: it is not for this handler.
            alone: One event at a time for each person, as `busy` says. None: messages and
                postbacks.
            key: Called with the event: what is done one at a time, in place of the person.
            busy: The reply to who comes meanwhile. None: that of the dispatcher.
            at_least: As for the dispatcher. None: what that says.

        Raises:
            UsageError: A coroutine function for threads, or a plain function for asyncio; or
                *at_least* is longer than the ttl.
        """
        least = self._at_least if at_least is None else at_least
        check_hold("on", {"ttl": self._ttl, "at_least": least})
        said = self._busy if busy is None else busy

        def decorate(handler: Handler) -> Handler:
            if inspect.iscoroutinefunction(handler) is not self._is_async:
                expected = "a coroutine function" if self._is_async else "a plain function"
                raise UsageError(f"a handler of {type(self).__name__} must be {expected}")
            self._routes.append(Route(kind, content, handler, when, alone, key, said, least))
            return handler

        return decorate

    def route(self, event: object) -> Route | None:
        """Return the handler of an event, or None if it has none or another bot has the chat."""
        if fact_of(event, "mode", "mode") == "standby":
            return None
        return next((route for route in self._routes if route.fits(event)), None)

    def parsed(self, body: bytes, signature: str | None) -> Sequence[Any] | None:
        """Return the events of a webhook, or None if LINE has not signed it or it is malformed."""
        try:
            return self._parser.parse(body.decode(), signature or "")
        except Exception as error:  # the SDK has many: a signature, JSON, missing fields
            _log.warning("a webhook was refused with 400: %s", type(error).__name__)
            return None


def sdk() -> Any:
    """Return the part of line-bot-sdk that sends."""
    with needs("linebot"):
        return importlib.import_module("linebot.v3.messaging")


def reply_request(token: str, messages: Sequence[Any]) -> Any:
    """Texts, messages as dicts, or messages of the SDK, as it sends them."""
    listed = [_message(each) for each in messages]
    return sdk().ReplyMessageRequest.from_dict({"replyToken": token, "messages": listed})


def _message(message: Any) -> dict[str, Any]:
    if isinstance(message, str):
        return {"type": "text", "text": message}
    return cast(Any, message) if isinstance(message, dict) else message.to_dict()


LONGEST_REPLY = 50.0
"""What one event may take, in seconds: its reply token is good for about a minute."""

E = TypeVar("E")
T = TypeVar("T")
Ended = Callable[[str, int], object]
"""Called with the outcome of events, as a code, and their number."""


async def to_its_end(sending: Coroutine[Any, Any, T]) -> T:
    """Return the result of *sending* a reply; if the caller is cancelled, finish sending first.

    A reply that is cancelled while it is sent would use up the token without an answer.
    """
    task = asyncio.create_task(sending, name="line reply")
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
    finally:
        task.cancel()


class WorkerPool(Generic[E]):
    """Works on events in tasks. One that fails, hangs or is cancelled does not affect the others.

    Args:
        work: Handles an event, and returns its outcome as a code.
        concurrency: How many events are worked on at once.
        limit: How many events may be under way, the waiting ones included.
        longest: Seconds after which an event is given up.
        ended: Called with a code, that of *work* or "failed", "late", "cut", "refused", and the
            number of events.
        queued: Called with the number of events that are not done.
        running: Makes a context manager for the time in which an event is worked on.
    """

    concurrency = 64
    """How many a dispatcher works on at once, if it is not said."""
    replying = staticmethod(to_its_end)

    def __init__(
        self,
        work: Callable[[E], Awaitable[str]],
        *,
        concurrency: int,
        limit: int,
        longest: float = LONGEST_REPLY,
        ended: Ended | None = None,
        queued: Callable[[int], object] | None = None,
        running: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self._work = work
        self._limit = limit
        self._longest = longest
        self._semaphore = asyncio.Semaphore(concurrency)
        self._ended = ended or _nothing
        self._queued = queued or _nothing
        self._running = running
        self._tasks: dict[asyncio.Task[None], E] = {}
        self._is_draining = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {len(self._tasks)} of {self._limit} events>"

    def accept(self, events: Sequence[E]) -> bool:
        """Accept all of *events*, or none.

        Returns:
            False if they do not all fit, or the pool is draining.
        """
        if self._is_draining or len(self._tasks) + len(events) > self._limit:
            _refuse(self._ended, len(events), is_draining=self._is_draining)
            return False
        for event in events:
            task = asyncio.create_task(self._run(event), name="line event")
            self._tasks[task] = event
            task.add_done_callback(self._gone)
        self._queued(len(self._tasks))
        return True

    async def drain(
        self, within: float, keep: Callable[[Sequence[E]], Awaitable[None]] | None = None
    ) -> int:
        """Wait until all events are done; cancel those that are not done *within* seconds.

        Args:
            keep: Called with the cancelled events, so that another process can answer them.

        Returns:
            How many were cancelled.
        """
        if not self._tasks:
            return 0
        self._is_draining = True
        try:
            return await self._drained(within, keep)
        finally:
            self._is_draining = False

    async def _drained(
        self, within: float, keep: Callable[[Sequence[E]], Awaitable[None]] | None
    ) -> int:
        _log.info("waiting for %d events", len(self._tasks))
        await asyncio.wait(self._tasks, timeout=within)
        pending = dict(self._tasks)
        for task in pending:
            task.cancel()
        if pending:
            _log.error(
                "%d events were not done within %g s, and are cancelled", len(pending), within
            )
            await asyncio.wait(pending)
        cut = [event for task, event in pending.items() if task.cancelled()]
        if cut and keep is not None:
            await keep(cut)
        return len(pending)

    def _gone(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        self._queued(len(self._tasks))

    async def _run(self, event: E) -> None:
        outcome = "cut"
        try:
            async with self._semaphore:
                with self._running():
                    outcome = await self._outcome(event)
        finally:
            self._ended(outcome, 1)

    async def _outcome(self, event: E) -> str:
        limit = asyncio.timeout(self._longest)
        try:
            async with limit:
                return await self._work(event)
        except Exception as error:
            if limit.expired():
                _log.error("an event took longer than %g s, and is given up", self._longest)
                return "late"
            return _failed(error)


class ThreadWorkerPool(Generic[E]):
    """Works on events in threads, which cannot be cancelled; otherwise like `WorkerPool`."""

    concurrency = 16

    @staticmethod
    def replying(sent: T) -> T:
        """Return a reply that was sent: threads are not cancelled."""
        return sent

    def __init__(
        self,
        work: Callable[[E], str],
        *,
        concurrency: int,
        limit: int,
        ended: Ended | None = None,
    ) -> None:
        self._work = work
        self._limit = limit
        self._ended = ended or _nothing
        self._lock = Guard()
        self._futures: set[Future[None]] = set()
        self._is_drained = False
        self._pool = ThreadPoolExecutor(concurrency, "line event")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {len(self._futures)} of {self._limit} events>"

    def accept(self, events: Sequence[E]) -> bool:
        """Accept all of *events*, or none, as in `WorkerPool`."""
        with self._lock:
            fits = not self._is_drained and len(self._futures) + len(events) <= self._limit
            started = [self._pool.submit(self._run, each) for each in events] if fits else []
            self._futures.update(started)
        for future in started:
            future.add_done_callback(self._gone)
        if not fits:
            _refuse(self._ended, len(events), is_draining=self._is_drained)
        return fits

    def drain(self, within: float) -> int:
        """Wait until all events are done, *within* seconds at most.

        Events that have not begun by then never do. From now on none is accepted.

        Returns:
            How many are not done.
        """
        with self._lock:
            self._is_drained = True
            futures = set(self._futures)
        pending = len(wait(futures, timeout=within).not_done)
        if pending:
            _log.error("%d events were not done within %g s", pending, within)
        self._pool.shutdown(wait=False, cancel_futures=True)
        return pending

    def _gone(self, future: "Future[None]") -> None:
        with self._lock:
            self._futures.discard(future)
        if future.cancelled():
            self._ended("cut", 1)

    def _run(self, event: E) -> None:
        outcome = "cut"
        try:
            outcome = self._work(event)
        except Exception as error:
            outcome = _failed(error)
        finally:
            self._ended(outcome, 1)


def _refuse(ended: Ended, number: int, *, is_draining: bool) -> None:
    ended("refused", number)
    why = "the process is ending" if is_draining else "the queue is full"
    _log.error("%s: a webhook of %d events is refused", why, number)


def _failed(error: Exception) -> str:
    where = "".join(traceback.format_tb(error.__traceback__))
    _log.error("an event failed with %s\n%s", _described(error), where)
    return "failed"


def _described(error: Exception) -> str:
    """Return its type, and what is known to quote no user's text: most errors may do so."""
    kind, status = type(error), getattr(error, "status", None)
    if kind.__module__ == DibsError.__module__:
        sentence = "" if getattr(error, "message", None) else str(error).partition(", not ")[0]
        return f"{kind.__name__}: {sentence}" if sentence else kind.__name__
    if kind.__module__.startswith("linebot.") and isinstance(status, int):
        return f"{kind.__name__}: HTTP status {status}"
    return kind.__name__


def _nothing(*_: object) -> None: ...
