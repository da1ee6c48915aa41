"""Events counted by kind and name: what the listeners that measure have in common.

An event is appended to a list, and added to figures with many others: when they are read, or when
there are a thousand. That takes a fourth of the time of a counter of prometheus_client.
"""

import logging
import threading
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ._forks import fork_safe_lock
from .errors import OTHER, UsageError
from .events import (
    KINDS,
    MEASURES,
    Counter,
    Event,
    EventKey,
    Kind,
    Quantity,
    duration_of,
    has_answered,
)

_log = logging.getLogger("dibs")

_LONGEST = 200
_BATCH = 1000


class Names:
    """The first *most* names as they are, cut to 200 characters; all further ones as "other"."""

    def __init__(self, most: int) -> None:
        if most < 1:
            raise UsageError(f"most_names must be at least 1, not {most}")
        self._most = most
        self._lock = fork_safe_lock()
        self._known: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __call__(self, name: str) -> str:
        """Return what *name* is called."""
        return self._known.get(name) or self._admit_name(name)

    def _admit_name(self, name: str) -> str:
        with self._lock:
            if name not in self._known and len(self._known) < self._most:
                self._known[name] = label_text(name)
            return self._known.get(name, OTHER)


def label_text(name: str) -> str:
    """Return *name* as valid text, 200 characters at most."""
    return name[:_LONGEST].encode("utf-8", "replace").decode() or OTHER


class Observer(Protocol):
    """What durations are added to."""

    def observe(self, amount: float, /) -> None:
        """Add *amount* seconds."""
        ...


class Durations:
    """A histogram: number, sum and greatest, and how many are in each bucket."""

    __slots__ = ("_bounds", "buckets", "count", "greatest", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.count = 0
        self.total = 0.0
        self.greatest = 0.0

    def observe(self, amount: float, /) -> None:
        """Add *amount* seconds. The caller has a lock."""
        self.buckets[bisect_left(self._bounds, amount)] += 1
        self.count += 1
        self.total += amount
        if amount > self.greatest:
            self.greatest = amount

    @property
    def mean(self) -> float | None:
        """Seconds; None: there was none."""
        return self.total / self.count if self.count else None

    def at_most(self, share: float) -> float | None:
        """Return a bound that *share* of them did not exceed; None: there was none."""
        rank, seen = share * self.count, 0
        for bound, count in zip((*self._bounds, self.greatest), self.buckets, strict=True):
            seen += count
            if count and seen >= rank:
                return min(bound, self.greatest)
        return None


class Series:
    """Events of one kind and name, guarded or not, and what their number is added to."""

    __slots__ = (
        "_is_adding", "_lock", "_pending", "_update", "add", "durations", "most_pending", "then",
    )  # fmt: skip

    def __init__(self, lock: threading.RLock, attempt: Callable[..., None], batch: int) -> None:
        self._lock = lock
        self._update = attempt
        self._pending: list[float | None] = []
        self._is_adding = False
        """True: a signal handler that uses dibs has interrupted it."""
        self.add: list[Callable[[int], object]] = []
        """Adds a number of events to each counter."""
        self.durations: Observer | None = None
        self.then: list[Callable[[], object]] = []
        """What else is done when events are added."""
        self.most_pending = batch
        """1: each event is added at once."""

    def count(self, seconds: float | None) -> None:
        """One more event. Any thread may append, without a lock."""
        pending = self._pending
        pending.append(seconds)
        if len(pending) >= self.most_pending:
            self.add_up()

    def add_up(self) -> None:
        """Add what was counted since the last time."""
        with self._lock:
            if self._pending and not self._is_adding:
                self._is_adding = True
                try:
                    self._add_up()
                finally:
                    self._is_adding = False

    def _add_up(self) -> None:
        attempt, durations = self._update, self._pending[:]
        del self._pending[: len(durations)]  # others may have appended meanwhile
        for add in self.add:
            attempt(add, len(durations))
        attempt(self._observe_durations, durations)
        for then in self.then:
            attempt(then)

    def _observe_durations(self, durations: list[float | None]) -> None:
        if self.durations is not None:
            observe = self.durations.observe
            for seconds in durations:
                if seconds is not None:
                    observe(seconds)


class Tally:
    """A listener that counts every event, by `MEASURES`. It never raises, in any thread."""

    counted: frozenset[Kind] = KINDS
    """Of these kinds it needs no events."""
    series_class = Series

    def __init__(self, most_names: int, *, batch: int = _BATCH) -> None:
        self._names = Names(most_names)
        self._lock = fork_safe_lock()
        self._batch = batch
        """How many events of one series are kept before they are added."""
        self.is_out = False
        """Whether an outage is under way."""
        self._series: dict[EventKey, Series] = {}
        self._long: set[str] = set()
        """Names of elections and schedules."""
        self._has_failed = False

    def __call__(self, event: Event) -> None:
        """Count *event*."""
        self.counter(event.kind, event.name, guarded=event.guarded)(duration_of(event))

    def counter(self, kind: Kind, name: str, *, guarded: bool | None) -> Counter:
        """Return what counts events of *kind*."""
        key = kind, self._names(name), guarded
        with self._lock:
            return (self._series.get(key) or self._begin_series(key)).count

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self._names)} names>"

    def _learn_series(self, series: Series, key: EventKey) -> None:
        """Say what a new series is added to; once for each kind and name."""

    def _observer_of(self, quantity: Quantity, key: EventKey) -> Observer | None:
        """Return what durations of *quantity* are added to; None: they are not measured here."""

    def _add_up(self) -> None:
        """Bring the figures up to date: they are about to be read."""
        with self._lock:
            for series in list(self._series.values()):
                series.add_up()

    def _begin_outage(self) -> None:
        """Redis did not answer. Earlier answers do not end the outage; the next one does."""
        with self._lock:
            self._add_up()
            self.is_out = True
            self._set_batch_size()

    def _end_outage(self) -> None:
        """End the outage: Redis has answered."""
        with self._lock:
            self.is_out = False
            self._set_batch_size()

    def _try_update(self, update: Callable[..., object], *args: Any) -> None:
        """Update figures. It never raises: a disk that other processes read from may be full."""
        try:
            update(*args)
        except Exception:
            if not self._has_failed:
                self._has_failed = True
                _log.exception("an event could not be counted; further failures are not logged")

    def _begin_series(self, key: EventKey) -> Series:
        kind, name, guarded = key
        series = self.series_class(self._lock, self._try_update, self._batch)
        measure = MEASURES[kind]
        if measure.is_long:
            self._measure_no_holds(name)
        if measure.quantity is not None and not self._is_left_out(measure.quantity, key):
            series.durations = self._observer_of(measure.quantity, key)
        if measure.quantity == "wait" and series.durations is not None:
            series.durations = _NotZero(series.durations)
        if has_answered(kind, guarded=guarded):
            series.then.append(self._note_answer)
            series.most_pending = 1 if self.is_out else self._batch
        self._learn_series(series, key)
        self._series[key] = series
        return series

    def _is_left_out(self, quantity: Quantity, key: EventKey) -> bool:
        _, name, guarded = key
        return quantity == "hold" and (not guarded or name in self._long)

    def _measure_no_holds(self, name: str) -> None:
        self._long.add(name)
        for (kind, label, _), series in list(self._series.items()):
            if label == name and MEASURES[kind].quantity == "hold":
                series.durations = None

    def _note_answer(self) -> None:
        if self.is_out:
            self._end_outage()

    def _set_batch_size(self) -> None:
        for series in list(self._series.values()):
            if self._note_answer in series.then:
                series.most_pending = 1 if self.is_out else self._batch


class _NotZero:
    """A wait of 0 s is none."""

    __slots__ = ("_observe_durations",)

    def __init__(self, durations: Observer) -> None:
        self._observe_durations = durations.observe

    def observe(self, amount: float, /) -> None:
        """Add *amount* seconds, if it is more than none."""
        if amount:
            self._observe_durations(amount)
