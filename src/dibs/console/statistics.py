"""Figures of this process, counted from events: bounded in memory, templates only, no key.

    statistics = Statistics()
    dibs = Dibs("redis://…", listeners=[statistics])

`console` adds one to its client by itself.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from time import time
from typing import Any

from .._interface import RenewedLock
from .._process import add_listener, listeners_of
from ..events import KINDS, Counter, Event, EventKey, Kind, PendingDurations, duration_of

OTHER = "other"
"""The name under which all names beyond `MOST_NAMES` are counted together."""
MOST_NAMES = 100
MOST_OUTAGES = 50
LONGEST_NAME = 120
_BATCH = 512
"""How many events are kept before they are counted: appending one is cheaper than counting it."""
_MOST_WAITING = 10_000
"""How many are kept where they cannot be counted."""

_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

_HELD = frozenset({"released", "completed", "late"})  # `lost` is followed by `late`
_WAITED = frozenset({"acquired", "busy", "claimed", "replayed", "duplicate", "waited", "elected"})
_LOADED = frozenset({"loaded", "degraded"})
_ANSWERED = frozenset({"acquired", "claimed", "released", "completed", "late", "elected", "fired"})
"""The server has answered, if the event is guarded. A refusal may come from this process alone."""
_HITS = ("hit", "local_hit", "stale")


class Durations:
    """How long something took: number, mean, greatest, and about which share was quicker."""

    __slots__ = ("_buckets", "count", "greatest", "total")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.greatest = 0.0
        self._buckets = [0] * (len(_BOUNDS) + 1)

    def add(self, durations: Sequence[float]) -> None:
        """More of them, in seconds."""
        self.count += len(durations)
        self.total += sum(durations)
        self.greatest = max(self.greatest, *durations) if durations else self.greatest
        for seconds in durations:
            self._buckets[bisect_left(_BOUNDS, seconds)] += 1

    @property
    def mean(self) -> float | None:
        """Seconds; None: there was none."""
        return self.total / self.count if self.count else None

    def at_most(self, share: float) -> float | None:
        """A bound that *share* of them did not exceed; None: there was none."""
        wanted, seen = share * self.count, 0
        for bound, count in zip((*_BOUNDS, self.greatest), self._buckets, strict=True):
            seen += count
            if count and seen >= wanted:
                return min(bound, self.greatest)
        return None

    def facts(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "count": self.count, "mean": self.mean, "p95": self.at_most(0.95),
            "most": self.greatest if self.count else None,
        }  # fmt: skip


class Template:
    """What has happened under one name."""

    __slots__ = ("counts", "held", "held_most", "held_total", "loads", "name", "unguarded", "waits")

    def __init__(self, name: str) -> None:
        self.name = name
        self.counts: dict[str, int] = {}
        self.unguarded = 0
        self.held = 0
        self.held_total = 0.0
        self.held_most = 0.0
        self.waits = Durations()
        self.loads = Durations()

    def hold(self, durations: Sequence[float]) -> None:
        """Leases or claims ended, after so many seconds each."""
        self.held += len(durations)
        self.held_total += sum(durations)
        self.held_most = max(self.held_most, *durations) if durations else self.held_most

    @property
    def hit_rate(self) -> float | None:
        """Reads that met a value, of all that looked for one; None: nobody did."""
        hits = sum(self.counts.get(kind, 0) for kind in _HITS)
        asked = hits + self.counts.get("miss", 0)
        return hits / asked if asked else None

    def facts(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "name": self.name, "counts": dict(self.counts), "unguarded": self.unguarded,
            "hit_rate": self.hit_rate, "waits": self.waits.facts(), "loads": self.loads.facts(),
            "held_mean": self.held_total / self.held if self.held else None,
            "held_most": self.held_most if self.held else None,
        }  # fmt: skip


class Outage:
    """A time in which calls were not answered."""

    __slots__ = ("began", "calls", "cause", "ended")

    def __init__(self, began: float, cause: str) -> None:
        self.began = began
        self.ended: float | None = None
        self.cause = cause
        self.calls = 0
        """How many calls it touched."""

    def facts(self) -> dict[str, Any]:
        """As JSON has it; times are seconds since the epoch."""
        return {"began": self.began, "ended": self.ended, "cause": self.cause, "calls": self.calls}


class _Series:
    """Events of one kind and name, guarded or not, which are counted together from time to time."""

    __slots__ = ("_is_reply", "_pending", "_statistics", "guarded", "kind", "template")

    def __init__(
        self, statistics: "Statistics", kind: Kind, template: Template, *, guarded: bool | None
    ) -> None:
        self._statistics = statistics
        self.kind = kind
        self.template = template
        self.guarded = guarded
        self._is_reply = bool(guarded) and kind in _ANSWERED
        self._pending = PendingDurations()

    def count(self, seconds: float | None) -> None:
        """One more event."""
        pending = self._pending
        pending.append(seconds)
        if self._is_reply and self._statistics.is_out:
            self._statistics.answered(time())
        if len(pending) >= _BATCH:
            self._statistics.count_soon(self)

    def keep_newest(self, number: int) -> None:
        """Forget all but *number*: there may be nobody who will ever count them."""
        del self._pending[:-number]

    def taken(self) -> list[float | None]:
        """The durations of all that were not counted yet; they are forgotten."""
        return self._pending.take()


class Statistics:
    """A listener that counts events by template, and remembers the last outages.

    It may be called from any thread and never raises. At most 100 names are counted apart.
    """

    counted: frozenset[Kind] = KINDS - {"outage", "recovered", "switched"}
    """Of these kinds it needs no events."""

    def __init__(self) -> None:
        self._lock = RenewedLock()
        self._templates: dict[str, Template] = {}
        self._series: dict[EventKey, _Series] = {}
        self._outages: deque[Outage] = deque(maxlen=MOST_OUTAGES)
        self._open: Outage | None = None
        self.is_out = False
        """Whether an outage is under way."""
        self._switches = 0

    def __call__(self, event: Event) -> None:
        """Count *event*."""
        self._follow_outage(event)
        self.counter(event.kind, event.name, guarded=event.guarded)(duration_of(event))

    def counter(self, kind: Kind, name: str, *, guarded: bool | None) -> Counter:
        """What counts events of *kind*."""
        template = self._templates.get(name) or self._admit(name)
        key = kind, template.name, guarded
        found = self._series.get(key)
        if found is None:
            found = _Series(self, kind, template, guarded=guarded)
        return self._series.setdefault(key, found).count

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self._templates)} names>"

    def facts(self) -> dict[str, Any]:
        """Everything that was counted, as JSON has it."""
        with self._lock:
            for series in list(self._series.values()):
                _count(series)
            templates = sorted(self._templates.values(), key=lambda each: each.name)
            return {
                "templates": [each.facts() for each in templates],
                "outages": [each.facts() for each in self._outages],
                "switches": self._switches,
            }

    def count_soon(self, series: _Series) -> None:
        """Count its events, but not while another thread counts."""
        if self._lock.acquire(blocking=False):
            try:
                _count(series)
            finally:
                self._lock.release()
        else:
            series.keep_newest(_MOST_WAITING)

    def _admit(self, name: str) -> Template:
        """The template for *name*: its own, up to `MOST_NAMES`."""
        templates = self._templates
        known = name if len(templates) < MOST_NAMES else OTHER
        return templates.setdefault(known, Template(known[:LONGEST_NAME]))

    # ---- outages

    def answered(self, at: float) -> None:
        """The server has answered: an outage is over."""
        is_open, self._open, self.is_out = self._open, None, False
        if is_open is not None:
            is_open.ended = at

    def _follow_outage(self, event: Event) -> None:
        kind = event.kind
        if kind == "outage":
            self._begin(event.at, event.cause).calls += 1
        elif kind == "recovered":
            self._recovered(event)
        elif kind == "switched":
            self._switches += 1
        elif kind in _ANSWERED and event.guarded:
            self.answered(event.at)

    def _begin(self, at: float, cause: str | None) -> Outage:
        is_open = self._open
        if is_open is None:
            is_open = self._open = Outage(at, cause or "")
            self._outages.append(is_open)
            self.is_out = True
        return is_open

    def _recovered(self, event: Event) -> None:
        began = event.at - (event.lasted or 0.0)
        last = self._outages[-1] if self._outages else None
        if self._open is None and last is not None and (last.ended or 0.0) >= began:
            return  # an answer has ended it already
        is_open = self._begin(began, event.cause)
        is_open.began = min(is_open.began, began)
        self.answered(event.at)


def _count(series: _Series) -> None:
    """Add its events to its template. The caller has the lock."""
    durations, template, kind = series.taken(), series.template, series.kind
    if not durations:
        return
    template.counts[kind] = template.counts.get(kind, 0) + len(durations)
    if series.guarded is False and kind not in _HELD:
        template.unguarded += len(durations)
    if kind in _WAITED:
        durations = [seconds for seconds in durations if seconds]
    known = [seconds for seconds in durations if seconds is not None]
    if kind in _HELD and series.guarded:
        template.hold(known)
    elif kind in _WAITED:
        template.waits.add(known)
    elif kind in _LOADED:
        template.loads.add(known)


def statistics_of(dibs: Any) -> Statistics:
    """The figures of *dibs*: of the `Statistics` among its listeners, or of one that is added."""
    for listener in listeners_of(dibs):
        if isinstance(listener, Statistics):
            return listener
    made = Statistics()
    add_listener(dibs, made)
    return made
