"""Events of one kind and name, counted as a number that is added to metrics later."""

import logging
from collections.abc import Callable
from typing import Any

from .._interface import fork_safe_lock
from ..events import PendingDurations
from ._prometheus_metrics import Observer

_log = logging.getLogger("dibs")
_MOST_PENDING = 1000


class Sum:
    """Durations of which only the sum matters."""

    __slots__ = ("_add",)

    def __init__(self, add: Callable[[float], object]) -> None:
        self._add = add

    def observe(self, amount: float, /) -> None:
        """One more."""
        self._add(max(amount, 0.0))


NOT_OBSERVED = Sum(lambda amount: None)


class Shared:
    """What all series of one listener share."""

    def __init__(self) -> None:
        self.lock = fork_safe_lock()
        self._has_failed = False

    def attempt(self, update: Callable[..., object], *args: Any) -> None:
        """Update a metric. It never raises: in multiprocess mode, the disk may be full."""
        try:
            update(*args)
        except Exception:
            if not self._has_failed:
                self._has_failed = True
                _log.exception("an event could not be counted; further failures are not logged")


class Series:
    """Events of one kind and name, guarded or not: how many, and what their number is added to.

    An event is added to the metrics with many others: when they are read, or when there are a
    thousand.
    """

    __slots__ = (
        "_is_adding", "_pending", "_shared", "add", "counts_zero", "durations", "most_pending",
        "then",
    )  # fmt: skip

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._pending = PendingDurations()
        self._is_adding = False
        """True: a signal handler that uses dibs has interrupted it."""
        self.add: list[Callable[[float], object]] = []
        """The counters."""
        self.durations: Observer = NOT_OBSERVED
        self.counts_zero = True
        """False: a duration of 0 is none."""
        self.most_pending = _MOST_PENDING
        """1: each event is added at once."""
        self.then: Callable[[], object] | None = None
        """What else is done when events are added."""

    def count(self, seconds: float | None) -> None:
        """One more event."""
        pending = self._pending
        pending.append(seconds)
        if len(pending) >= self.most_pending:
            self.add_up()

    def add_up(self) -> None:
        """Add what was counted since the last time."""
        with self._shared.lock:
            if self._pending and not self._is_adding:
                self._is_adding = True
                try:
                    self._add_up()
                finally:
                    self._is_adding = False

    def _add_up(self) -> None:
        attempt, durations = self._shared.attempt, self._pending.take()
        for add in self.add:
            attempt(add, len(durations))
        attempt(self._observe, durations)
        if self.then is not None:
            attempt(self.then)

    def _observe(self, durations: list[float | None]) -> None:
        observe = self.durations.observe
        for seconds in durations:
            if seconds or (seconds == 0 and self.counts_zero):
                observe(seconds)
