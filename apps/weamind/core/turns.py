"""Turns: the processing lock for tasks, and who may speak to a person.

Two rules. While work runs, who taps again is asked to wait; from its answer to the end of
*at_least*, the same tap gets no reply, and another one is answered when the key is free. And one
process at a time sends, so that the answer comes after every "please wait".
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Literal
from weakref import WeakValueDictionary

from dibs import AsyncDibs, Busy, Unavailable
from dibs.integrations.linebot import actor_key

from .lock_log import LockLog, key_of, type_of
from .metrics import Metrics, metrics
from .processing_lock import NAME

_MARGIN = 0.05
"""Seconds after a key should be free in which it still may be taken."""
_SENDING, _PATIENCE = 10.0, 2.0
"""Seconds: more than sending a message takes; how long one sender waits for another."""


class Turn:
    """Whether the caller may work; if not, whether to ask the person to wait, within the block."""

    def __init__(self, *, granted: bool, asks_to_wait: bool = False, answers: Any = None) -> None:
        self.granted = granted
        self.asks_to_wait = asks_to_wait
        self._answers = answers

    async def answers(self) -> None:
        """Stop asking people to wait; call it before the answer is sent."""
        answers, self._answers = self._answers, None
        if answers is not None:
            await answers()


class ProcessingLock:
    """The lock for tasks; granted to all where there is no user id, and while the store is out."""

    def __init__(
        self, dibs: AsyncDibs, *, ttl: float = 5.0, at_least: float = 0.0, enabled: bool = True,
        busy_reply: Literal["every", "first"] = "every", counted_in: Metrics = metrics,
    ) -> None:  # fmt: skip
        """*at_least*: how long a key stays after it was acquired; not longer than *ttl*."""
        self._dibs, self._ttl, self._at_least = dibs, ttl, min(at_least, ttl)
        self._enabled, self._busy_reply, self._metrics = enabled, busy_reply, counted_in
        self._log = LockLog(counted_in)
        self._orders: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def in_order(self, source: object) -> asyncio.Lock:
        """Held while a person's event is read, so that the first of several taps is served."""
        key = actor_key(source)
        return asyncio.Lock() if key is None else self._orders.setdefault(key, asyncio.Lock())

    async def connect(self) -> None:
        """Say in the log whether Redis can be reached; never raises for an outage."""
        try:
            await self._dibs.peek("processing:ready")
        except Unavailable:
            self._log.reached(is_reached=False)
        else:
            self._log.reached(is_reached=True)

    async def says_once(self, source: object, what: str) -> bool:
        """Whether *what* is to be said to the person now: not if it just was."""
        key = actor_key(source)
        if key is None or not self._enabled or not self._at_least:
            return True
        said = key.replace("processing:user:", f"line:said:{what}:", 1)
        return await self._dibs.try_hold(said, ttl=self._at_least, name="line:said") is not None

    @asynccontextmanager
    async def turn(self, source: object, *, what: str = "") -> AsyncIterator[Turn]:
        """A turn for the person in *source*: granted to one at a time, until the block ends.

        *what*: a name for what people tap again and again. Without it there is always a turn after
        an answer.
        """
        key = key_of(source) if self._enabled else None
        if key is None and self._enabled:
            self._metrics.lock_acquire.labels("no_user", type_of(source)).inc()
        async with AsyncExitStack() as stack:
            yield Turn(granted=True) if key is None else await self._take(stack, key, source, what)

    async def _take(
        self, stack: AsyncExitStack, key: str, source: object, what: str, wait: float = 0.0
    ) -> Turn:
        rules: dict[str, Any] = {"ttl": self._ttl, "at_least": self._at_least}
        tap = key.replace("processing:user:", f"line:tap:{what}:", 1)
        try:
            lease = await stack.enter_async_context(
                self._dibs.hold(key, wait=wait, name=NAME, **rules)
            )
        except Busy as busy:
            self._log.attempt(key, None, type_of(source))
            is_same = bool(what) and await self._state(tap) is not None
            work = busy.state == "held" and await self._is_work(stack, key)
            if work is not False:
                return Turn(granted=False, asks_to_wait=bool(work) and await self._is_first(busy))
            if is_same or wait or not what:
                return Turn(granted=not what)
            return await self._take(stack, key, source, what, busy.retry_after + _MARGIN)
        held = self._log.attempt(key, lease, type_of(source))

        async def end() -> None:
            nonlocal held
            ended, held = held, None
            if ended is not None:
                self._log.end(ended, released=await lease.release())

        async def answers() -> None:
            await end()  # from now on it cools, and no one begins to ask anybody to wait
            with suppress(Busy):  # one who sends for longer than usual
                await stack.enter_async_context(self._speaking(key))

        stack.push_async_callback(end)
        if what and self._at_least:
            with suppress(Busy):
                await stack.enter_async_context(self._dibs.hold(tap, name="line:tap", **rules))
        return Turn(granted=True, answers=answers if self._at_least else None)

    def _speaking(self, key: str) -> Any:
        speaking = key.replace("processing:user:", "line:speaking:", 1)
        return self._dibs.hold(speaking, ttl=_SENDING, wait=_PATIENCE, name="line:speaking")

    async def _state(self, key: str) -> str | None:
        """The state of *key*; None: it is free. In an outage it counts as held."""
        try:
            holding = await self._dibs.peek(key)
        except Unavailable:
            return "held"
        return None if holding is None else holding.state

    async def _is_work(self, stack: AsyncExitStack, key: str) -> bool | None:
        """Whether work is not answered yet; then its answer waits until *stack* is closed.

        None: another process is sending, for longer than usual.
        """
        if not self._at_least:
            return True
        async with AsyncExitStack() as speaking:
            try:
                await speaking.enter_async_context(self._speaking(key))
            except Busy:
                return None
            if await self._state(key) != "held":
                return False
            stack.push_async_callback(speaking.pop_all().aclose)
        return True

    async def _is_first(self, busy: Busy) -> bool:
        """Whether to ask to wait: after each refusal, or the first while the lock can last."""
        if self._busy_reply == "every":
            return True
        key = busy.key.replace("processing:", "processing:asked:", 1)
        rest = min(max(busy.retry_after, 0.001), self._ttl)
        return await self._dibs.try_hold(key, ttl=rest, name="processing:asked") is not None
