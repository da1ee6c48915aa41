"""The processing lock: one query at a time for each person, across all processes.

`ProcessingLockService` is for threads, with the three functions of the seeds; `ProcessingLock` for
tasks. Both hold `processing:user:{userId}` with a token of their own, so that a slow holder
never takes its successor's lock away, and both let people through while the store is out.
"""

import logging
import secrets
import threading
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal

from dibs import AsyncDibs, AsyncLease, Busy, Dibs, Lease
from dibs.integrations.linebot import actor_key

from .config import read_store_settings
from .metrics import Metrics, metrics

NAME = "processing:user:{userId}"
TOLD_NAME = "processing:told:{userId}"
_FORGOTTEN_AFTER = 60.0
"""Seconds past its end after which nobody comes back to release a lock."""
_log = logging.getLogger(__name__)

_latest: ContextVar["_Held | None"] = ContextVar("latest", default=None)
"""What this thread or task acquired last."""
_refused: ContextVar[str | None] = ContextVar("refused", default=None)
"""The key that it was refused last."""


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    key: str
    lease: Lease
    forgotten_at: float


class ProcessingLockService:
    """The lock for threads. Any thread may release what another one acquired."""

    def __init__(self, target: object = None, *, counted_in: Metrics = metrics) -> None:
        """*target*: as for Dibs; without it `REDIS_URL`, read at the first use.

        SettingsError, then: it cannot be used.
        """
        self._target = target
        self._metrics = counted_in
        self._dibs: Dibs | None = None
        self._guard = threading.Lock()
        self._held: list[_Held] = []
        """In the order in which they were acquired; as many as threads are at work."""

    def try_acquire_lock(self, key: str, timeout_seconds: float) -> bool:
        """True: it is yours for *timeout_seconds*, or the store is out. False: somebody has it.

        ValueError, before anything is asked: an empty key, or no time at all.
        """
        lease = self._connected().try_hold(key, ttl=timeout_seconds, name=NAME)
        _count_attempt(self._metrics, lease, "unknown")
        _refused.set(key if lease is None else None)
        if lease is None:
            return False
        held = _Held(key, lease, time.monotonic() + timeout_seconds + _FORGOTTEN_AFTER)
        _latest.set(held)
        with self._guard:
            self._forget()
            self._held.append(held)
        return True

    def release_lock(self, key: str) -> None:
        """It is free, if it still was yours; nobody else's lock is touched. Never raises."""
        held = self._take(key)
        if held is None:
            _log.debug("processing lock: nothing to release")
            return
        try:
            given = held.lease.release()
        except Exception as error:  # its time runs out by itself
            _log.warning("processing lock: not released (%s)", type(error).__name__)
            given = False
        _count_release(self._metrics, given=given, guarded=held.lease.guarded)

    def build_actor_key(self, source: object) -> str | None:
        """`processing:user:{userId}`; None, and a warning without names: there is no user id."""
        return _key_of(source)

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
        """Locks whose holders have never come back."""
        now = time.monotonic()
        self._held = [held for held in self._held if held.forgotten_at > now]


processing_lock_service = ProcessingLockService()
"""The one of this process; it connects to `REDIS_URL` when it is first used."""


# ---- for tasks


@dataclass(frozen=True, slots=True)
class Turn:
    """Whether it is yours to work; if not, whether to say that somebody does."""

    granted: bool
    tell: bool = False


class ProcessingLock:
    """The lock for tasks."""

    def __init__(
        self,
        dibs: AsyncDibs,
        *,
        ttl: float = 5.0,
        enabled: bool = True,
        busy_reply: Literal["every", "first"] = "every",
        counted_in: Metrics = metrics,
    ) -> None:
        self._dibs = dibs
        self._ttl = ttl
        self._enabled = enabled
        self._busy_reply = busy_reply
        self._metrics = counted_in

    @asynccontextmanager
    async def turn(self, source: object) -> AsyncIterator[Turn]:
        """A turn for the person in *source*: granted to one at a time, until the block ends.

        Also granted where the lock is switched off, where there is no user id, and while the
        store is out.
        """
        key = _key_of(source) if self._enabled else None
        if key is None:
            if self._enabled:
                self._metrics.lock_acquire.labels("no_user", _type_of(source)).inc()
            yield Turn(granted=True)
            return
        async with AsyncExitStack() as stack:
            yield await self._try(stack, key, source)

    async def _try(self, stack: AsyncExitStack, key: str, source: object) -> Turn:
        mark = secrets.token_hex(4)  # joins the lines of one turn, and tells nothing else
        try:
            lease = await stack.enter_async_context(self._dibs.hold(key, ttl=self._ttl, name=NAME))
        except Busy as busy:
            _count_attempt(self._metrics, None, _type_of(source))
            _log.debug("processing lock %s: missed", mark)
            return Turn(granted=False, tell=await self._is_first(busy))
        _count_attempt(self._metrics, lease, _type_of(source))
        _log.debug("processing lock %s: acquired", mark)
        stack.push_async_callback(self._give_back, lease, time.monotonic(), mark)
        return Turn(granted=True)

    async def _give_back(self, lease: AsyncLease, since: float, mark: str) -> None:
        # Before the hold would do it, because it does not tell what came of it.
        given = await lease.release()
        self._metrics.lock_held.observe(time.monotonic() - since)
        _count_release(self._metrics, given=given, guarded=lease.guarded)
        _log.debug("processing lock %s: %s", mark, "released" if given else "not ours any more")

    async def _is_first(self, busy: Busy) -> bool:
        """Whether this refusal is to be told: each, or the first while the lock can last."""
        if self._busy_reply == "every":
            return True
        key = busy.key.replace("processing:", "processing:told:", 1)
        rest = min(max(busy.retry_after, 0.001), self._ttl)
        return await self._dibs.try_hold(key, ttl=rest, name=TOLD_NAME) is not None


# ---- both


def _key_of(source: object) -> str | None:
    key = actor_key(source)
    if key is None:
        _log.warning("processing lock: the event has no user id; it runs without")
    return key


def _type_of(source: object) -> str:
    kind = getattr(source, "type", None)
    return kind if kind in ("user", "group", "room") else "unknown"


def _count_attempt(counted: Metrics, lease: Lease | AsyncLease | None, source_type: str) -> None:
    if lease is None:
        counted.lock_miss.inc()
        counted.lock_acquire.labels("busy", source_type).inc()
    else:
        status = "acquired" if lease.guarded else "unguarded"
        counted.lock_acquire.labels(status, source_type).inc()


def _count_release(counted: Metrics, *, given: bool, guarded: bool) -> None:
    if given:
        counted.lock_release.inc()
    elif guarded:
        counted.lock_release_late.inc()
