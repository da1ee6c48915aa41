# Generated from src/dibs/_async/refresher.py by unasync.py – do not edit.
"""Refreshing a value behind its readers: one load of a key at a time in this process."""

import functools
from collections.abc import Callable
from typing import Any

from .._core.cache import ALWAYS, IF_NEEDED, Answer, LoadRequest, Reading
from .._core.causes import cause_for
from .._events import EventSink
from .._threads import BackgroundTasks, Guard, Signal, monotonic
from .leases import Leases
from .loader import Loader
from .spans import work_behind

_TOO_MANY = cause_for("saturated", "too many concurrent refreshes")
_MOST_KEYS = 50_000
"""Keys of which we remember when a refresh may be tried again."""


class Landing:
    """The end of a load behind its readers."""

    def __init__(self) -> None:
        self.signal = Signal()
        self.answer: Answer | None = None
        """What it found; None: it failed, or is not over."""


class Refresher:
    """Loads that nobody waits for, while everybody reads what is there."""

    def __init__(self, events: EventSink, leases: Leases, loader: Loader) -> None:
        self._events = events
        self._leases = leases
        self._loader = loader
        self.open()

    def open(self) -> None:
        """Begin without refreshes; again in a forked child."""
        self._guard = Guard()
        self._threads = BackgroundTasks()
        self._next_try: dict[bytes, float] = {}
        """When a refresh may be tried again; not while one is under way."""

    def refresh(self, want: LoadRequest, *, force: bool) -> None:
        """Let one of all processes load it again, while everybody reads what is there."""
        key = want.keys.key
        if self._threads.is_stranded:
            self._next_try.clear()  # what was under way ended with its event loop
        if self._next_try.get(key, 0.0) > monotonic():
            return
        with self._guard:
            if self._next_try.get(key, 0.0) > monotonic():
                return
            self._begin(want)
        self._spawn(want, functools.partial(self._claim, want, force=force))

    def refresh_all(
        self,
        wants: list[LoadRequest],
        work: Callable[[list[LoadRequest]], set[bytes]],
    ) -> None:
        """The same for many, by one piece of *work*, which returns the keys that it has loaded."""
        if self._threads.is_stranded:
            self._next_try.clear()
        with self._guard:
            now = monotonic()
            due = [want for want in wants if self._next_try.get(want.keys.key, 0.0) <= now]
            for want in due:
                self._begin(want)
        if due and not self._start(functools.partial(self._end_all, due, work)):
            self._events.emit("degraded", due[0].keys.name, cause=_TOO_MANY)
            for want in due:
                self._try_later(want)

    def _end_all(
        self,
        wants: list[LoadRequest],
        work: Callable[[list[LoadRequest]], set[bytes]],
    ) -> None:
        done: set[bytes] = set()
        try:
            done = work(wants)
        finally:
            for want in wants:
                if want.keys.key in done:
                    self._next_try.pop(want.keys.key, None)
                else:
                    self._try_later(want)

    def lead(self, want: LoadRequest, token: bytes, reading: Reading) -> "Landing | None":
        """The same, where the claim is ours already. None: it could not be begun."""
        self._begin(want)
        landing = Landing()
        work = functools.partial(self._land, landing, want, token, reading)
        if self._spawn(want, functools.partial(self._end, want, work)):
            return landing
        self._loader.writer.unlock(want.keys, token)
        return None

    def _land(
        self, landing: "Landing", want: LoadRequest, token: bytes, reading: Reading
    ) -> None:
        try:
            landing.answer = self._loader.lead(want, token, reading)
        finally:
            landing.signal.set()

    def _begin(self, want: LoadRequest) -> None:
        if len(self._next_try) >= _MOST_KEYS:
            self._next_try.clear()
        # Not for ever: a thread that hangs cannot be stopped, and must not be the last to try.
        limit = want.options.load_timeout + want.options.lock_ttl
        self._next_try[want.keys.key] = monotonic() + limit

    def _spawn(self, want: LoadRequest, work: Callable[[], Any]) -> bool:
        if self._start(work):
            return True
        self._try_later(want)
        self._events.emit("degraded", want.keys.name, cause=_TOO_MANY)
        return False

    def _start(self, work: Callable[[], Any]) -> bool:
        """Start it beside the callers; in a trace of its own."""
        if self._events.tracers:
            work = functools.partial(work_behind, self._events, self._events.origins(), work)
        return self._threads.spawn(work)

    def _claim(self, want: LoadRequest, *, force: bool) -> None:
        token = self._leases.new_token()
        try:
            reading = self._loader.claim(want, token, ALWAYS if force else IF_NEEDED)
        except Exception:
            self._try_later(want)
            raise
        if not reading.won:
            self._try_later(want)
            return
        self._end(want, functools.partial(self._loader.lead, want, token, reading))

    def _end(self, want: LoadRequest, work: Callable[[], Any]) -> None:
        try:
            work()
        except Exception:
            self._try_later(want)
            raise
        self._next_try.pop(want.keys.key, None)

    def _try_later(self, want: LoadRequest) -> None:
        """Somebody else loads it, or the load failed: its lock stands, so asking is of no use."""
        options = want.options
        pause = max(min(options.lock_ttl, options.ttl), options.poll)
        self._next_try[want.keys.key] = monotonic() + pause

    def stop(self) -> None:
        """End all of it; others take over."""
        self._threads.stop()
        self._next_try.clear()
