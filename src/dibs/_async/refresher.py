"""Refreshing a value behind its readers: one load of a key at a time in this process."""

import functools
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from .._core.cache import Reading
from .._core.causes import cause_for
from .._tasks import BackgroundTasks, monotonic
from .loader import AsyncLoader, LoadRequest

if TYPE_CHECKING:
    from .ledger import AsyncLedger

_TOO_MANY = cause_for("saturated", "too many refreshes at once")
_MOST_KEYS = 50_000
"""Keys of which we remember when a refresh may be tried again."""


class AsyncRefresher:
    """Loads that nobody waits for, while everybody reads what is there."""

    def __init__(self, ledger: "AsyncLedger", loading: AsyncLoader) -> None:
        self._ledger = ledger
        self._loading = loading
        self._tasks = BackgroundTasks()
        self._next_try: dict[bytes, float] = {}
        """When a refresh may be tried again; not while one is under way."""

    def refresh(self, want: LoadRequest, *, force: bool) -> None:
        """Let one of all processes load it again, while everybody reads what is there."""
        key = want.slot.key
        if self._tasks.is_stranded:
            self._next_try.clear()  # what was under way ended with its event loop
        if self._next_try.get(key, 0.0) > monotonic():
            return
        with self._ledger.guard:
            if self._next_try.get(key, 0.0) > monotonic():
                return
            self._begin(want)
        self._spawn(want, functools.partial(self._claim, want, force=force))

    def lead(self, want: LoadRequest, token: bytes, reading: Reading) -> None:
        """The same, where the claim is ours already."""
        self._begin(want)
        work = functools.partial(self._loading.lead, want, token, reading)
        if not self._spawn(want, functools.partial(self._end, want, work)):
            self._loading.abandon(want, token)

    def _begin(self, want: LoadRequest) -> None:
        if len(self._next_try) >= _MOST_KEYS:
            self._next_try.clear()
        # Not for ever: a thread that hangs cannot be stopped, and must not be the last to try.
        limit = want.recipe.load_timeout + want.recipe.lock_ttl
        self._next_try[want.slot.key] = monotonic() + limit

    def _spawn(self, want: LoadRequest, work: Callable[[], Coroutine[Any, Any, Any]]) -> bool:
        if self._tasks.spawn(work):
            return True
        self._try_later(want)
        self._ledger.tell("degraded", want.recipe.name, cause=_TOO_MANY)
        return False

    async def _claim(self, want: LoadRequest, *, force: bool) -> None:
        token = self._ledger.new_token()
        try:
            reading = await self._loading.claim(want, token, force=force)
        except Exception:
            self._try_later(want)
            raise
        if not reading.won:
            self._try_later(want)
            return
        await self._end(want, functools.partial(self._loading.lead, want, token, reading))

    async def _end(self, want: LoadRequest, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        try:
            await work()
        except Exception:
            self._try_later(want)
            raise
        self._next_try.pop(want.slot.key, None)

    def _try_later(self, want: LoadRequest) -> None:
        """Somebody else loads it, or the load failed: its lock stands, so asking is of no use."""
        recipe = want.recipe
        pause = max(min(recipe.lock_ttl, recipe.ttl), recipe.poll)
        self._next_try[want.slot.key] = monotonic() + pause

    async def stop(self) -> None:
        """End all of it; others take over."""
        await self._tasks.stop()
        self._next_try.clear()

    def abandon_all(self) -> None:
        """In a forked child: the loads are the parent's."""
        self._tasks = BackgroundTasks()
        self._next_try = {}
