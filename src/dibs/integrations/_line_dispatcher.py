"""From LINE's webhook to handlers: answered at once, each event once, each reply token once.

line-bot-sdk verifies, parses and sends; it is imported when it is first needed.
"""

import asyncio
import importlib
import inspect
import logging
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from .. import AsyncDibs, Busy, Dibs, UsageError
from ._line_deduplication import Deduplication, ThreadDeduplication
from ._line_events import (
    ACTOR_NAME,
    REPLY_NAME,
    REPLY_TTL,
    actor_key,
    fact_of,
    part_of,
    reply_key,
    reply_token,
)
from ._line_workers import Ended, ThreadWorkerPool, WorkerPool

_log = logging.getLogger("dibs.linebot")
SEND_WITHIN = 6.0
"""What sending a reply may take, in seconds: without it the SDK waits for ever."""
DRAIN_WITHIN = 20.0
_LOCKED = ("message", "postback")
Handler = Callable[..., Any]
T = TypeVar("T")


class _Route(NamedTuple):
    kind: Any
    content: Any
    handler: Handler
    alone: bool | None

    def fits(self, event: object) -> bool:
        name = fact_of(event, "type", "type") or ""
        content = part_of(event, name)
        return _is(event, self.kind) and (self.content is None or _is(content, self.content))

    def key_of(self, event: object) -> str | None:
        """The key of the sender, if this is done one at a time for each."""
        alone = fact_of(event, "type", "type") in _LOCKED if self.alone is None else self.alone
        return actor_key(part_of(event, "source")) if alone else None


def _is(thing: object, wanted: Any) -> bool:
    if isinstance(wanted, str):
        return fact_of(thing, "type", "type") == wanted
    return isinstance(thing, wanted)


class _Routes:
    """The handlers, and how they are found."""

    def __init__(self, parser: Any, configuration: Any, *, is_async: bool) -> None:
        self._parser = parser
        self._configuration = configuration
        self._is_async = is_async
        self._routes: list[_Route] = []

    def on(
        self, kind: Any, content: Any = None, *, alone: bool | None = None
    ) -> Callable[[Handler], Handler]:
        """Handle events of *kind*, with messages of the type *content*: `handler(event, reply)`.

        Both are classes of line-bot-sdk, or LINE's names for them ("message", "text"). The first
        handler that fits is called. *alone*: one event at a time for each person, as `busy=` says;
        None: messages and postbacks. UsageError: a coroutine function where threads work, or a
        plain one where tasks do.
        """

        def decorate(handler: Handler) -> Handler:
            if inspect.iscoroutinefunction(handler) is not self._is_async:
                wanted = "a coroutine function" if self._is_async else "a plain function"
                raise UsageError(f"a handler of {type(self).__name__} must be {wanted}")
            self._routes.append(_Route(kind, content, handler, alone))
            return handler

        return decorate

    def _route(self, event: object) -> _Route | None:
        """None: nobody handles it, or another bot has the chat."""
        if fact_of(event, "mode", "mode") == "standby":
            return None
        return next((route for route in self._routes if route.fits(event)), None)

    def _parsed(self, body: bytes, signature: str | None) -> Sequence[Any] | None:
        """The events. None: it was not signed by LINE, or is not what LINE sends."""
        try:
            return self._parser.parse(body.decode(), signature or "")
        except Exception as error:  # the SDK has many: a signature, JSON, missing fields
            _log.warning("a webhook was refused with 400: %s", type(error).__name__)
            return None


def _sdk() -> Any:
    """The part of line-bot-sdk that sends."""
    return importlib.import_module("linebot.v3.messaging")


def _request(token: str, messages: Sequence[Any]) -> Any:
    """Texts, messages as dicts, or messages of the SDK, as it sends them."""
    listed = [_message(each) for each in messages]
    return _sdk().ReplyMessageRequest.from_dict({"replyToken": token, "messages": listed})


def _message(message: Any) -> dict[str, Any]:
    if isinstance(message, str):
        return {"type": "text", "text": message}
    return cast(Any, message) if isinstance(message, dict) else message.to_dict()


class Dispatcher(_Routes):
    """Handlers that are coroutine functions, on the loop that calls `receive`.

    *parser*: a `WebhookParser` of line-bot-sdk; *configuration*: its `Configuration`. *busy*: what
    a person gets whose message or tap comes while the one before is worked on; None: they are
    worked on side by side. *ttl*: how long a crash keeps a person from being served, in seconds.
    *concurrency*: how many events are worked on at once; *limit*: how many may wait, beside them.
    *ended* is called with what became of events ("done", "busy", "duplicate", "ignored", "failed",
    "late", "cut", "refused") and how many they are.
    """

    def __init__(
        self,
        dibs: AsyncDibs,
        *,
        parser: Any,
        configuration: Any,
        busy: Any = None,
        ttl: float = 5.0,
        concurrency: int = 64,
        limit: int = 1000,
        ended: Ended | None = None,
    ) -> None:
        super().__init__(parser, configuration, is_async=True)
        self._dibs = dibs
        self._busy = busy
        self._ttl = ttl
        self._deduplication = Deduplication(dibs)
        self._workers: WorkerPool[Any] = WorkerPool(
            self._work, concurrency=concurrency, limit=limit, ended=ended
        )
        self._client: Any = None

    def receive(self, body: bytes, signature: str | None) -> int:
        """The status for LINE: 200, 400 or 503.

        200: each event will be handled. 400: LINE has not sent it. 503: the queue is full.

        *body*: as it was received; *signature*: the header `X-Line-Signature`. The work begins
        after the caller has returned to its loop.
        """
        events = self._parsed(body, signature)
        if events is None:
            return 400
        return 200 if self._workers.accept(events) else 503

    async def aclose(self, within: float = DRAIN_WITHIN) -> None:
        """Wait until all events are done, *within* seconds at most, and close."""
        await self._workers.drain(within)
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()

    async def __aenter__(self) -> "Dispatcher":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _work(self, event: object) -> str:
        route = self._route(event)
        if route is None:
            return "ignored"
        async with self._deduplication.first_time(event) as is_new:
            return await self._handled(route, event) if is_new else "duplicate"

    async def _handled(self, route: _Route, event: object) -> str:
        async def reply(*messages: Any) -> bool:
            """True: sent. False: there is no token, or it was used before."""
            return await to_its_end(self._reply(reply_token(event), messages))

        key = None if self._busy is None else route.key_of(event)
        if key is None:
            await route.handler(event, reply)
            return "done"
        try:
            async with self._dibs.hold(key, ttl=self._ttl, renew=True, name=ACTOR_NAME):
                await route.handler(event, reply)
        except Busy as busy:
            if busy.key != key:
                raise  # of the handler itself
            await reply(self._busy)
            return "busy"
        return "done"

    async def _reply(self, token: str | None, messages: Sequence[Any]) -> bool:
        if token is None:
            return False
        request = _request(token, messages)  # what the SDK refuses spends no token
        # It is marked before it is sent: what may have arrived is not sent again.
        if await self._dibs.try_hold(reply_key(token), ttl=REPLY_TTL, name=REPLY_NAME) is None:
            return False
        await self._api().reply_message(request, _request_timeout=SEND_WITHIN)
        return True

    def _api(self) -> Any:
        if self._client is None:  # it needs a running loop
            self._client = _sdk().AsyncApiClient(self._configuration)
        return _sdk().AsyncMessagingApi(self._client)


async def to_its_end(sending: Coroutine[Any, Any, T]) -> T:
    """The result of *sending* a reply. A caller that is cancelled waits for it first.

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


class ThreadDispatcher(_Routes):
    """Handlers that are plain functions, in threads. The options are those of `Dispatcher`."""

    def __init__(
        self,
        dibs: Dibs,
        *,
        parser: Any,
        configuration: Any,
        busy: Any = None,
        ttl: float = 5.0,
        concurrency: int = 16,
        limit: int = 1000,
        ended: Ended | None = None,
    ) -> None:
        super().__init__(parser, configuration, is_async=False)
        self._dibs = dibs
        self._busy = busy
        self._ttl = ttl
        self._deduplication = ThreadDeduplication(dibs)
        self._workers: ThreadWorkerPool[Any] = ThreadWorkerPool(
            self._work, concurrency=concurrency, limit=limit, ended=ended
        )
        self._lock = threading.Lock()
        self._client: Any = None

    def receive(self, body: bytes, signature: str | None) -> int:
        """As in `Dispatcher`; the work begins in another thread."""
        events = self._parsed(body, signature)
        if events is None:
            return 400
        return 200 if self._workers.accept(events) else 503

    def close(self, within: float = DRAIN_WITHIN) -> None:
        """Wait until all events are done, *within* seconds at most, and close."""
        self._workers.drain(within)
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def __enter__(self) -> "ThreadDispatcher":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _work(self, event: object) -> str:
        route = self._route(event)
        if route is None:
            return "ignored"
        with self._deduplication.first_time(event) as is_new:
            return self._handled(route, event) if is_new else "duplicate"

    def _handled(self, route: _Route, event: object) -> str:
        def reply(*messages: Any) -> bool:
            """True: sent. False: there is no token, or it was used before."""
            return self._reply(reply_token(event), messages)

        key = None if self._busy is None else route.key_of(event)
        if key is None:
            route.handler(event, reply)
            return "done"
        try:
            with self._dibs.hold(key, ttl=self._ttl, renew=True, name=ACTOR_NAME):
                route.handler(event, reply)
        except Busy as busy:
            if busy.key != key:
                raise  # of the handler itself
            reply(self._busy)
            return "busy"
        return "done"

    def _reply(self, token: str | None, messages: Sequence[Any]) -> bool:
        if token is None:
            return False
        request = _request(token, messages)
        if self._dibs.try_hold(reply_key(token), ttl=REPLY_TTL, name=REPLY_NAME) is None:
            return False
        self._api().reply_message(request, _request_timeout=SEND_WITHIN)
        return True

    def _api(self) -> Any:
        with self._lock:
            if self._client is None:
                self._client = _sdk().ApiClient(self._configuration)
            return _sdk().MessagingApi(self._client)
