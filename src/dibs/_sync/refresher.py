# Generated from src/dibs/_async/refresher.py by unasync.py – do not edit.
"""Refreshing values in the background: one load of a key at a time in this process."""

import functools
from collections.abc import Callable
from typing import Any

from .._core.cache import ALWAYS, IF_NEEDED, Answer, LoadRequest, Reading
from .._core.causes import cause_for
from .._events import EventSink
from .._threads import BackgroundTasks, Guard, Signal, monotonic
from .leases import Leases
from .loader import Loader
from .spans import work_in_background

_TOO_MANY = cause_for("saturated", "too many concurrent refreshes")
_MOST_KEYS = 50_000
"""Keys of which we remember when a refresh may be tried again."""


class BackgroundLoad:
    """A load in the background: whether it has ended, and with what."""

    def __init__(self) -> None:
        self.ended = Signal()
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

    def refresh(self, request: LoadRequest, *, force: bool) -> None:
        """Let one of all processes load it again, while everybody reads what is there."""
        key = request.keys.key
        if self._threads.is_orphaned:
            self._next_try.clear()  # what was under way ended with its event loop
        if self._next_try.get(key, 0.0) > monotonic():
            return
        with self._guard:
            if self._next_try.get(key, 0.0) > monotonic():
                return
            self._begin(request)
        self._spawn(request, functools.partial(self._claim, request, force=force))

    def refresh_all(
        self,
        requests: list[LoadRequest],
        work: Callable[[list[LoadRequest]], set[bytes]],
    ) -> None:
        """The same for many, by one piece of *work*, which returns the keys that it has loaded."""
        if self._threads.is_orphaned:
            self._next_try.clear()
        with self._guard:
            now = monotonic()
            due = [each for each in requests if self._next_try.get(each.keys.key, 0.0) <= now]
            for request in due:
                self._begin(request)
        if due and not self._start(functools.partial(self._end_all, due, work)):
            self._events.emit("degraded", due[0].keys.name, cause=_TOO_MANY)
            for request in due:
                self._try_later(request)

    def _end_all(
        self,
        requests: list[LoadRequest],
        work: Callable[[list[LoadRequest]], set[bytes]],
    ) -> None:
        done: set[bytes] = set()
        try:
            done = work(requests)
        finally:
            for request in requests:
                if request.keys.key in done:
                    self._next_try.pop(request.keys.key, None)
                else:
                    self._try_later(request)

    def lead(self, request: LoadRequest, token: bytes, reading: Reading) -> BackgroundLoad | None:
        """The same, where the claim is ours already. None: it could not be begun."""
        self._begin(request)
        load = BackgroundLoad()
        work = functools.partial(self._run, load, request, token, reading)
        if self._spawn(request, functools.partial(self._end, request, work)):
            return load
        self._loader.writer.unlock(request.keys, token)
        return None

    def _run(
        self, load: BackgroundLoad, request: LoadRequest, token: bytes, reading: Reading
    ) -> None:
        try:
            load.answer = self._loader.lead(request, token, reading)
        finally:
            load.ended.set()

    def _begin(self, request: LoadRequest) -> None:
        if len(self._next_try) >= _MOST_KEYS:
            self._next_try.clear()
        # Not for ever: a thread that hangs cannot be stopped, and must not be the last to try.
        limit = request.options.load_timeout + request.options.lock_ttl
        self._next_try[request.keys.key] = monotonic() + limit

    def _spawn(self, request: LoadRequest, work: Callable[[], Any]) -> bool:
        if self._start(work):
            return True
        self._try_later(request)
        self._events.emit("degraded", request.keys.name, cause=_TOO_MANY)
        return False

    def _start(self, work: Callable[[], Any]) -> bool:
        """Start it in the background; in a trace of its own."""
        if self._events.tracers:
            work = functools.partial(work_in_background, self._events, self._events.origins(), work)
        return self._threads.spawn(work)

    def _claim(self, request: LoadRequest, *, force: bool) -> None:
        token = self._leases.new_token()
        try:
            reading = self._loader.claim(request, token, ALWAYS if force else IF_NEEDED)
        except Exception:
            self._try_later(request)
            raise
        if not reading.won:
            self._try_later(request)
            return
        self._end(request, functools.partial(self._loader.lead, request, token, reading))

    def _end(
        self, request: LoadRequest, work: Callable[[], Any]
    ) -> None:
        try:
            work()
        except Exception:
            self._try_later(request)
            raise
        self._next_try.pop(request.keys.key, None)

    def _try_later(self, request: LoadRequest) -> None:
        """Somebody else loads it, or the load failed: its lock stands, so asking is of no use."""
        options = request.options
        pause = max(min(options.lock_ttl, options.ttl), options.poll)
        self._next_try[request.keys.key] = monotonic() + pause

    def stop(self) -> None:
        """End all of it; others take over."""
        self._threads.stop()
        self._next_try.clear()
