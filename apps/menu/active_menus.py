"""The active menu of each branch, cached: one load for all guests of all processes."""

import asyncio
import logging
from collections import Counter
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic
from typing import NamedTuple
from urllib.parse import urlsplit

from dibs import AsyncDibs, Event, Unavailable

from .downstream import LONGEST, ActiveMenu, NoMenu, Refused, StoreClient, Unreachable

CACHE_KEY = "cis:menu:active:v1:{branch_id}"
LOCK_KEY = "lock:cis:menu:active:v1:{branch_id}"
"""The seed's. In a cluster the two would be in different slots, so dibs names the lock there."""
LOAD_TIMEOUT = LONGEST + 2
FAILURE_TTL = 1.0
"""Seconds for which a failed load answers all callers: else each process tries in turn."""
RENEWAL_WAIT = 2.0
"""Seconds that a guest waits for the successor of a menu whose time window has ended."""
RENEWAL_PAUSE = 3.0
"""Seconds between two requests for it, if the store-service has none or does not answer."""
_MOST_PAUSES = 10_000
NO_ANSWER = (Unreachable, Refused, Unavailable, TimeoutError)
_log = logging.getLogger(__name__)

_HOW = {
    "hit": "hit",
    "local_hit": "hit",
    "stale": "stale",
    "miss": "miss",
    "reelected": "miss",
    "waited": "shared",
    "degraded": "bypass",
}
_LOGGED = {
    "hit": (logging.DEBUG, "hit"),
    "local_hit": (logging.DEBUG, "hit"),
    "stale": (logging.DEBUG, "hit, and stale: one process refreshes it"),
    "miss": (logging.DEBUG, "miss"),
    "reelected": (logging.DEBUG, "miss: the process that loaded it gave up"),
    "waited": (logging.DEBUG, "hit, after another request loaded it"),
    "loaded": (logging.DEBUG, "rebuilt"),
    "degraded": (logging.WARNING, "bypassed: loaded without the cache"),
    "rejected_write": (logging.WARNING, "loaded, and not stored"),
    "poison": (logging.WARNING, "unreadable, loaded again"),
    "invalidated": (logging.INFO, "invalidated"),
}
"""The seed's log of a cached menu: the words for each event, at the seed's level."""


@dataclass
class _Asked:
    """One request, and the events that dibs emitted for it.

    No kinds: it shared another request's answer.
    """

    branch_id: str
    kinds: list[str] = field(default_factory=list[str])
    has_failed: bool = False
    """The load failed and was logged: consequences are not logged again."""

    @property
    def how(self) -> str:
        return next((_HOW[kind] for kind in self.kinds if kind in _HOW), "shared")


_asked: ContextVar[_Asked | None] = ContextVar("asked", default=None)


class Served(NamedTuple):
    """A menu, and where it came from: hit, stale, miss, shared or bypass."""

    menu: ActiveMenu
    how: str


class ActiveMenus:
    """The cache in front of the store-service."""

    def __init__(self, redis_url: str, store: StoreClient, *, stale: float) -> None:
        """Nothing connects yet. UsageError: the URL cannot be used."""
        self.happened = Counter[str]()
        self._store = store
        self._stale = stale
        self._paused: dict[str, float] = {}
        """Since when there is no successor for the branch's ended menu."""
        self._dibs = AsyncDibs(redis_url, listeners=[self._on_event])
        self._menu = self._dibs.cached(
            CACHE_KEY,
            lock_key=None if _is_cluster(redis_url) else LOCK_KEY,
            ttl=180,
            jitter=0.2,
            min_ttl=60,
            lock_ttl=3,
            poll=0.08,
            wait=LOAD_TIMEOUT,
            stale=stale,
            negative_ttl=FAILURE_TTL,
            load_timeout=LOAD_TIMEOUT,
        )(self._load)

    async def aclose(self) -> None:
        """Close all connections."""
        await self._dibs.aclose()

    async def find(self, branch_id: str) -> Served:
        """The menu that the branch serves now: cached, stale or just loaded.

        NoMenu: there is none. Refused, Unreachable, Unavailable, TimeoutError: it is unknown.
        """
        asked = _Asked(branch_id)
        _asked.set(asked)
        menu = await self._menu(branch_id)
        if _seconds_over(menu) < 0:
            return Served(menu, asked.how)
        return await self._renewed(asked, menu)

    async def invalidate(self, branch_id: str) -> bool:
        """Delete the menu, so that later readers load it.

        False: Redis is down; it is deleted when Redis is back.
        """
        _asked.set(_Asked(branch_id))
        return await self._menu.invalidate(branch_id)

    async def is_redis_there(self) -> bool:
        """True: Redis answers."""
        try:
            await self._dibs.peek("cis:menu:ready")
        except Unavailable:
            return False
        return True

    # ---- loading

    async def _load(self, branch_id: str) -> ActiveMenu:
        _log.info("menu of branch %s: the store-service is called", branch_id)
        try:
            return await self._store.resolve_active(branch_id)
        except (Refused, Unreachable) as error:
            _log_failure(branch_id, error)
            if isinstance(error, NoMenu):
                await self._menu.invalidate(branch_id)  # a "no" is an answer: no old menu now
            raise

    async def _renewed(self, asked: _Asked, old: ActiveMenu) -> Served:
        """The successor of a menu whose time window has ended; *old* as stale, if there is none."""
        if self._is_paused(asked.branch_id):
            return self._old(old)
        asked.kinds.clear()
        try:
            async with asyncio.timeout(RENEWAL_WAIT):
                menu = await self._menu.refresh(asked.branch_id)
        except NoMenu:
            raise
        except NO_ANSWER as error:
            self._pause(asked.branch_id)
            return self._old(old, error)
        if _seconds_over(menu) >= 0:  # its clock differs from ours: it knows better
            self._pause(asked.branch_id)
        return Served(menu, asked.how)

    def _old(self, menu: ActiveMenu, error: Exception | None = None) -> Served:
        if _seconds_over(menu) < self._stale:
            return Served(menu, "stale")
        raise error or Unreachable("a moment ago, and the last menu is too old")

    def _is_paused(self, branch_id: str) -> bool:
        since = self._paused.get(branch_id)
        return since is not None and monotonic() - since < RENEWAL_PAUSE

    def _pause(self, branch_id: str) -> None:
        if len(self._paused) >= _MOST_PAUSES:
            self._paused.clear()
        self._paused[branch_id] = monotonic()

    # ---- events

    def _on_event(self, event: Event) -> None:
        self.happened[event.kind] += 1
        asked = _asked.get()
        if asked is None:
            return
        asked.kinds.append(event.kind)
        level, words = _LOGGED.get(event.kind, (logging.NOTSET, ""))
        if words and not asked.has_failed:
            _log.log(level, "menu of branch %s: %s", asked.branch_id, words)


def _log_failure(branch_id: str, error: Refused | Unreachable) -> None:
    """Log a missing menu as INFO, no answer as WARNING, and an error of the service as ERROR."""
    levels = {NoMenu: logging.INFO, Unreachable: logging.WARNING}
    _log.log(levels.get(type(error), logging.ERROR), "menu of branch %s: %s", branch_id, error)
    if asked := _asked.get():
        asked.has_failed = True


def _is_cluster(redis_url: str) -> bool:
    return urlsplit(redis_url).scheme.endswith("+cluster")


def _seconds_over(menu: ActiveMenu) -> float:
    """Seconds since the end of its time window; negative: it has not ended, or has no end."""
    end = menu.ends_at
    return -1.0 if end is None else (datetime.now(UTC) - end).total_seconds()
