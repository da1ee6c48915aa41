"""The processing lock: one query at a time for each person, across all processes.

`ProcessingLockService` is for threads, with the three functions of the seeds; `ProcessingLock` for
tasks. Both hold `processing:user:{userId}` with their own token, so that a slow holder never
releases its successor's lock, and both let people through while the store is out.

With `at_least`, the key stays that long after it was acquired. Taps that come while the work runs
get the sentence that asks to wait; those that come after its answer do not.
"""

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal
from weakref import WeakValueDictionary

from dibs import AsyncDibs, AsyncLease, Busy, Dibs, Lease, Unavailable
from dibs.integrations.linebot import actor_key

from .config import read_store_settings
from .metrics import Metrics, metrics
from .speaking import Speaking

NAME = "processing:user:{userId}"
ASKED_NAME = "processing:asked:{userId}"
SAID_NAME = "line:said:{what}:{userId}"
ANSWERED_NAME = "line:answered:{what}:{userId}"
_MARGIN = 0.05
"""Seconds after a key should be free in which it still may be taken."""
_BEGINNING = 0.25
"""Seconds after an acquire in which the work counts as running, whether it has said so or not."""
_FORGOTTEN_AFTER = 60.0
"""Seconds after its end from which no caller can still release a lock."""
_log = logging.getLogger(__name__)

_asker: ContextVar[tuple[str, str] | None] = ContextVar("asker", default=None)
"""The key that was built last, and the type of its source."""
_latest: ContextVar["_Held | None"] = ContextVar("latest", default=None)
"""What this thread or task acquired last."""
_refused: ContextVar[str | None] = ContextVar("refused", default=None)
"""The key that it was refused last."""


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    key: str
    lease: Lease
    forgotten_at: float
    mark: str


class _Reach:
    """Whether Redis answered the last request; changes are logged."""

    def __init__(self) -> None:
        self._is_reached: bool | None = None

    def note(self, *, is_reached: bool) -> None:
        """Log a line when Redis is reached for the first time, is lost, or is back."""
        before, self._is_reached = self._is_reached, is_reached
        if is_reached and not before:
            _log.info("connected to Redis")
        elif not is_reached and before is not False:
            _log.warning("Redis is unavailable: everybody is let through, without the lock")


class ProcessingLockService:
    """The lock for threads. Any thread may release what another one acquired."""

    def __init__(
        self, target: object = None, *, at_least: float = 0.0, counted_in: Metrics = metrics
    ) -> None:
        """*target*: as for Dibs; without it `REDIS_URL`, read at the first use.

        *at_least*: how long a lock stays after it was acquired, even if it is released; not longer
        than its time. SettingsError, at the first use: `REDIS_URL` cannot be used.
        """
        self._target = target
        self._at_least = at_least
        self._metrics = counted_in
        self._reach = _Reach()
        self._dibs: Dibs | None = None
        self._guard = threading.Lock()
        self._held: list[_Held] = []
        """The held locks, in the order in which they were acquired."""

    def try_acquire_lock(self, key: str, timeout_seconds: float) -> bool:
        """True: it is yours for *timeout_seconds*, or the store is out. False: it is taken.

        ValueError, before any request: an empty key, or no time at all.
        """
        stays = min(self._at_least, timeout_seconds)
        lease = self._connected().try_hold(key, ttl=timeout_seconds, at_least=stays, name=NAME)
        self._reach.note(is_reached=lease is None or lease.guarded)
        _count_attempt(self._metrics, lease, _asked_by(key))
        mark = _log_attempt(lease)
        _refused.set(key if lease is None else None)
        if lease is None:
            return False
        held = _Held(key, lease, time.monotonic() + timeout_seconds + _FORGOTTEN_AFTER, mark)
        _latest.set(held)
        with self._guard:
            self._forget()
            self._held.append(held)
        return True

    def release_lock(self, key: str) -> None:
        """Release the lock if it is still yours, and no other holder's. Never raises."""
        held = self._take(key)
        if held is None:
            _log.debug("processing lock: nothing to release")
            return
        try:
            released = held.lease.release()
        except Exception as error:  # its time runs out by itself
            _log.warning("processing lock: not released (%s)", type(error).__name__)
            released = False
        _count_release(self._metrics, released=released, guarded=held.lease.guarded)
        _log_release(held.mark, released=released)

    def build_actor_key(self, source: object) -> str | None:
        """`processing:user:{userId}`; None, and a warning without names: there is no user id."""
        key = _key_of(source)
        _asker.set(None if key is None else (key, _type_of(source)))
        return key

    def close(self) -> None:
        """Close the connections; the next use opens new ones."""
        with self._guard:
            dibs, self._dibs = self._dibs, None
        if dibs is not None:
            dibs.close()

    def _connected(self) -> Dibs:
        with self._guard:
            if self._dibs is None:
                self._dibs = Dibs(self._target or read_store_settings().redis_url)
            return self._dibs

    def _take(self, key: str) -> _Held | None:
        """What this thread or task acquired; nothing, if it was refused; else the oldest.

        The last is for those who acquired in another thread. It is never a lock that is in use:
        who came after it came because it had run out, and those before it have taken theirs.
        """
        with self._guard:
            self._forget()
            line = [held for held in self._held if held.key == key]
            mine = _latest.get()
            if mine not in line:
                mine = line[0] if line and _refused.get() != key else None
            if mine is not None:
                self._held.remove(mine)
            return mine

    def _forget(self) -> None:
        """Drop locks whose holders have never come back."""
        now = time.monotonic()
        self._held = [held for held in self._held if held.forgotten_at > now]


processing_lock_service = ProcessingLockService()
"""The one of this process; it connects to `REDIS_URL` when it is first used."""


# ---- for tasks


class Turn:
    """Whether the caller may work; if not, whether to ask the person to wait."""

    def __init__(
        self, *, granted: bool, asks_to_wait: bool = False, speaking: Speaking | None = None
    ) -> None:
        self.granted = granted
        self.asks_to_wait = asks_to_wait
        self._speaking = speaking

    async def answers(self) -> None:
        """Stop asking people to wait; call it before the answer is sent.

        It waits until the messages that are being sent are sent. Further calls do nothing.
        """
        if self._speaking is not None:
            await self._speaking.end_work()


class ProcessingLock:
    """The lock for tasks."""

    def __init__(
        self,
        dibs: AsyncDibs,
        *,
        ttl: float = 5.0,
        at_least: float = 0.0,
        enabled: bool = True,
        busy_reply: Literal["every", "first"] = "every",
        counted_in: Metrics = metrics,
    ) -> None:
        """*at_least*: how long a key stays after it was acquired; not longer than *ttl*."""
        self._dibs = dibs
        self._ttl = ttl
        self._at_least = min(at_least, ttl)
        self._enabled = enabled
        self._busy_reply = busy_reply
        self._metrics = counted_in
        self._reach = _Reach()
        self._orders: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def in_order(self, source: object) -> asyncio.Lock:
        """What a person's events read before their turn is read in the order of the events.

        Otherwise the database decides by its quickest answer which of several taps is served.
        """
        key = actor_key(source)
        return asyncio.Lock() if key is None else self._orders.setdefault(key, asyncio.Lock())

    async def connect(self) -> None:
        """Say in the log whether Redis can be reached; never raises for an outage."""
        try:
            await self._dibs.peek("processing:ready")
        except Unavailable:
            self._reach.note(is_reached=False)
        else:
            self._reach.note(is_reached=True)

    @asynccontextmanager
    async def turn(self, source: object, *, what: str = "") -> AsyncIterator[Turn]:
        """A turn for the person in *source*: granted to one at a time, until the block ends.

        Also granted where the lock is switched off, where there is no user id, and while the
        store is out. *what*: a name for what impatient people do again and again. After its answer
        there is no turn for the same until the key is free, and one for something else as soon as
        it is free. Without it there is always one after an answer.

        Who is refused and `asks_to_wait` must do it within the block: the answer waits for it.
        """
        key = _key_of(source) if self._enabled else None
        if key is None:
            if self._enabled:
                self._metrics.lock_acquire.labels("no_user", _type_of(source)).inc()
            yield Turn(granted=True)
            return
        async with AsyncExitStack() as stack:
            yield await self._try(stack, key, source, what)

    async def says_once(self, source: object, what: str) -> bool:
        """Whether *what* is to be said to the person now: not if it just was."""
        key = actor_key(source)
        if key is None or not self._enabled or not self._at_least:
            return True
        said = key.replace("processing:user:", f"line:said:{what}:", 1)
        lease = await self._dibs.try_hold(said, ttl=self._at_least, name=SAID_NAME)
        return lease is not None

    async def _try(
        self, stack: AsyncExitStack, key: str, source: object, what: str, wait: float = 0.0
    ) -> Turn:
        stays = self._at_least
        hold = self._dibs.hold(key, ttl=self._ttl, at_least=stays, wait=wait, name=NAME)
        try:
            lease = await stack.enter_async_context(hold)
        except Busy as busy:
            self._reach.note(is_reached=True)
            _count_attempt(self._metrics, None, _type_of(source))
            _log_attempt(None)
            return await self._refused(stack, busy, source, what, may_wait=not wait)
        self._reach.note(is_reached=lease.guarded)
        _count_attempt(self._metrics, lease, _type_of(source))
        mark = _log_attempt(lease)
        speaking = await self._work_begins(stack, key, what)
        stack.push_async_callback(self._give_back, lease, time.monotonic(), mark)
        return Turn(granted=True, speaking=speaking)

    async def _work_begins(self, stack: AsyncExitStack, key: str, what: str) -> Speaking | None:
        if not self._at_least:
            return None
        speaking = Speaking(self._dibs, key)
        stack.push_async_callback(speaking.close)  # after the lock has been released
        await speaking.begin_work(self._ttl)
        if what:
            answered = self._dibs.hold(
                _answered_key(key, what),
                ttl=self._ttl, at_least=self._at_least, name=ANSWERED_NAME,
            )  # fmt: skip
            with suppress(Busy):
                await stack.enter_async_context(answered)
        return speaking

    async def _give_back(self, lease: AsyncLease, since: float, mark: str) -> None:
        # Before the hold would do it, because it does not tell what came of it.
        released = await lease.release()
        self._metrics.lock_held.observe(time.monotonic() - since)
        _count_release(self._metrics, released=released, guarded=lease.guarded)
        _log_release(mark, released=released)

    # ---- who is refused

    async def _refused(
        self, stack: AsyncExitStack, busy: Busy, source: object, what: str, *, may_wait: bool
    ) -> Turn:
        if not self._at_least:
            return Turn(granted=False, asks_to_wait=await self._is_first(busy))
        # Asked now: once it may speak, the work may be over and its keys gone.
        is_same = bool(what) and await self._is_same(busy, what)
        speaking = Speaking(self._dibs, busy.key)
        stack.push_async_callback(speaking.close)
        if not await speaking.begin():  # the answer is being sent, for longer than usual
            return Turn(granted=False)
        if await self._is_running(busy.key, speaking):
            return Turn(granted=False, asks_to_wait=await self._is_first(busy))
        await speaking.close()
        if not what:
            return Turn(granted=True)
        if is_same or not may_wait or await self._is_answered(busy.key, what):
            return Turn(granted=False)
        wait = min(busy.retry_after, self._at_least) + _MARGIN
        return await self._try(stack, busy.key, source, what, wait)

    async def _is_same(self, busy: Busy, what: str) -> bool:
        """Whether what runs, or was just answered, is the same; in the beginning, it counts so."""
        begins = busy.retry_after > max(self._at_least, self._ttl - _BEGINNING)
        return begins or await self._is_answered(busy.key, what)

    async def _is_answered(self, key: str, what: str) -> bool:
        """Whether the last answer was to the same."""
        try:
            return await self._dibs.peek(_answered_key(key, what)) is not None
        except Unavailable:
            return False

    async def _is_running(self, key: str, speaking: Speaking) -> bool:
        """Whether there is work that is not answered yet."""
        try:
            held = await self._dibs.peek(key)
            if held is None:
                return False
            begins = held.remaining > max(self._at_least, self._ttl - _BEGINNING)
            return begins or await speaking.is_work()
        except Unavailable:
            return True

    async def _is_first(self, busy: Busy) -> bool:
        """Whether to ask to wait: after each refusal, or the first while the lock can last."""
        if self._busy_reply == "every":
            return True
        key = busy.key.replace("processing:", "processing:asked:", 1)
        rest = min(max(busy.retry_after, 0.001), self._ttl)
        return await self._dibs.try_hold(key, ttl=rest, name=ASKED_NAME) is not None


# ---- both


def _key_of(source: object) -> str | None:
    key = actor_key(source)
    if key is None:
        _log.warning("processing lock: the event has no user id; it runs without")
    return key


def _type_of(source: object) -> str:
    kind = getattr(source, "type", None)
    return kind if kind in ("user", "group", "room") else "unknown"


def _answered_key(key: str, what: str) -> str:
    return key.replace("processing:user:", f"line:answered:{what}:", 1)


def _asked_by(key: str) -> str:
    """The type of the source that *key* was built from, in this thread or task."""
    asker = _asker.get()
    return asker[1] if asker is not None and asker[0] == key else "unknown"


def _log_attempt(lease: Lease | AsyncLease | None) -> str:
    """Log a line; its mark joins it to that of the release, and reveals nothing else."""
    mark = secrets.token_hex(4)
    _log.debug("processing lock %s: %s", mark, "missed" if lease is None else "acquired")
    return mark


def _log_release(mark: str, *, released: bool) -> None:
    _log.debug(
        "processing lock %s: %s", mark, "released" if released else "expired before its release"
    )


def _count_attempt(counted: Metrics, lease: Lease | AsyncLease | None, source_type: str) -> None:
    if lease is None:
        counted.lock_miss.inc()
        counted.lock_acquire.labels("busy", source_type).inc()
    else:
        status = "acquired" if lease.guarded else "unguarded"
        counted.lock_acquire.labels(status, source_type).inc()


def _count_release(counted: Metrics, *, released: bool, guarded: bool) -> None:
    if released:
        counted.lock_release.inc()
    elif guarded:
        counted.lock_release_late.inc()
