"""LINE: each event once, from the webhook to its handler; each reply token once."""

import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Self

from ..._internal_api import Guard, Seconds
from ...errors import Busy, Duplicate
from .._line_events import (
    ACTOR_NAME,
    EVENT_NAME,
    REPLY_NAME,
    REPLY_TTL,
    WINDOW,
    Ended,
    EventMemory,
    Route,
    Routes,
    Skipped,
    event_key,
    is_new,
    reply_key,
    reply_request,
    reply_token,
    sdk,
)

if TYPE_CHECKING:
    from ... import AsyncDibs

SEND_WITHIN = 6.0
"""What sending a reply may take, in seconds: without it the SDK waits for ever."""
DRAIN_WITHIN = 20.0
_MARGIN = 0.05
"""Seconds after a key should be free in which it still may be taken."""


def once_handler(
    dibs: "AsyncDibs",
    handler: Callable[..., Coroutine[Any, Any, Any]],
    window: float,
    skipped: Callable[[Duplicate], object] | None,
) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Return *handler*, called once for each event."""

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


def _skip(duplicate: Duplicate, key: str, skipped: Callable[[Duplicate], object] | None) -> None:
    if duplicate.key != key:
        raise duplicate  # raised by the handler itself, for another key
    if skipped is not None:
        skipped(duplicate)


class AsyncDeduplication:
    """Which events are new; see `Deduplication` in linebot.py."""

    def __init__(self, dibs: "AsyncDibs", *, skipped: Skipped | None = None) -> None:
        self._dibs = dibs
        self._skipped = skipped
        self._memory = EventMemory()

    @asynccontextmanager
    async def first_time(self, event: object) -> AsyncGenerator[bool]:
        """Yield True if the event is new: work on it until the block ends.

        If the block raises, the event may be delivered and worked on again. An event without an id
        cannot be distinguished from others, and is always new.
        """
        key = event_key(event)
        state = None if key is None else self._memory.begin(key)
        if key is None or state is not None:
            yield is_new(state, self._skipped)
            return
        is_done = False
        try:
            async with AsyncExitStack() as stack:
                is_first = await self._claimed(stack, key)
                yield is_first
            is_done = is_first  # what another process does, it may yet fail to do
        finally:
            self._memory.end(key, is_done=is_done)

    async def _claimed(self, stack: AsyncExitStack, key: str) -> bool:
        claim = self._dibs.claim(
            key, window=WINDOW, after="hold", on_error="release", name=EVENT_NAME
        )
        try:
            await stack.enter_async_context(claim)
        except Duplicate as duplicate:
            return is_new(duplicate.state, self._skipped)
        return True


class AsyncDispatcher(Routes):
    """Hands events to handlers; see `Dispatcher` in linebot.py for its options."""

    pool: Any
    """Where events are worked on: a `WorkerPool`, or the one for threads."""

    def __init__(
        self,
        dibs: "AsyncDibs",
        *,
        parser: Any,
        configuration: Any,
        busy: Any = None,
        ttl: Seconds = 5.0,
        at_least: Seconds = 0,
        concurrency: int | None = None,
        limit: int = 1000,
        ended: Ended | None = None,
    ) -> None:
        is_async = inspect.iscoroutinefunction(self._work)
        super().__init__(parser, is_async=is_async, busy=busy, ttl=ttl, at_least=at_least)
        self._configuration = configuration
        self._dibs = dibs
        self._deduplication = AsyncDeduplication(dibs)
        concurrency = self.pool.concurrency if concurrency is None else concurrency
        self._workers = self.pool(self._work, concurrency=concurrency, limit=limit, ended=ended)
        self._lock = Guard()
        self._client: Any = None

    def receive(self, body: bytes, signature: str | None) -> int:
        """Accept a webhook, and return the status for LINE.

        The work begins afterwards: when the caller returns to its loop, or in another thread.

        Args:
            body: As it was received.
            signature: The header `X-Line-Signature`.

        Returns:
            200 if each event will be handled, 400 if LINE has not sent it, 503 if the queue is
            full.
        """
        events = self.parsed(body, signature)
        if events is None:
            return 400
        return 200 if self._workers.accept(events) else 503

    async def aclose(self, within: float = DRAIN_WITHIN) -> None:
        """Wait until all events are done, *within* seconds at most, and close."""
        await self._workers.drain(within)
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _work(self, event: object) -> str:
        route = self.route(event)
        if route is None:
            return "ignored"
        async with self._deduplication.first_time(event) as is_new:
            return await self._handled(route, event) if is_new else "duplicate"

    async def _handled(self, route: Route, event: object) -> str:
        async def reply(*messages: Any) -> bool:
            """Return True if sent. False: there is no token, or it was used before."""
            return await self._workers.replying(self._reply(reply_token(event), messages))

        key = route.key_of(event)
        if key is None:
            await route.handler(event, reply)
            return "done"
        return await self._alone(route, event, reply, key)

    async def _alone(
        self, route: Route, event: object, reply: Callable[..., Any], key: str, wait: float = 0.0
    ) -> str:
        hold = self._dibs.hold(
            key, ttl=self._ttl, at_least=route.at_least, renew=True, wait=wait, name=ACTOR_NAME
        )
        try:
            async with hold:
                await route.handler(event, reply)
        except Busy as busy:
            if busy.key != key:
                raise  # of the handler itself
            if busy.state == "held":
                await reply(route.busy)
            elif not route.at_least and not wait:  # another handler keeps it: what comes is new
                left = busy.retry_after + _MARGIN
                return await self._alone(route, event, reply, key, left)
            return "busy"
        return "done"

    async def _reply(self, token: str | None, messages: Sequence[Any]) -> bool:
        if token is None:
            return False
        request = reply_request(token, messages)  # what the SDK refuses spends no token
        # It is marked before it is sent: what may have arrived is not sent again.
        if await self._dibs.try_hold(reply_key(token), ttl=REPLY_TTL, name=REPLY_NAME) is None:
            return False
        await self._api().reply_message(request, _request_timeout=SEND_WITHIN)
        return True

    def _api(self) -> Any:
        with self._lock:
            if self._client is None:  # it needs a running loop
                self._client = sdk().AsyncApiClient(self._configuration)
            return sdk().AsyncMessagingApi(self._client)
