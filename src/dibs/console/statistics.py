"""Figures of this process, counted from events: bounded in memory, templates only, no key.

    statistics = Statistics()
    dibs = Dibs("redis://…", listeners=[statistics])

`console` adds one to its client by itself.
"""

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from typing import Any

from .._process import add_listener, listeners_of
from ..events import Event

OTHER = "other"
"""The name under which all names beyond `MOST_NAMES` are counted together."""
MOST_NAMES = 100
MOST_OUTAGES = 50
LONGEST_NAME = 120
_BATCH = 512
"""How many events are kept before they are counted: appending one is cheaper than counting it."""
_MOST_PENDING = 100_000

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

    def add(self, seconds: float) -> None:
        """One more, of *seconds*."""
        self.count += 1
        self.total += seconds
        if seconds > self.greatest:
            self.greatest = seconds
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

    def hold(self, seconds: float) -> None:
        """A lease or claim ended after *seconds*."""
        self.held += 1
        self.held_total += seconds
        if seconds > self.held_most:
            self.held_most = seconds

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


class Statistics:
    """A listener that counts events by template, and remembers the last outages.

    It may be called from any thread and never raises. At most 100 names are counted apart.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: deque[Event] = deque(maxlen=_MOST_PENDING)
        self._templates: dict[str, Template] = {}
        self._outages: deque[Outage] = deque(maxlen=MOST_OUTAGES)
        self._open: Outage | None = None
        self._switches = 0

    def __call__(self, event: Event) -> None:
        """Count *event*, now or with the next ones."""
        pending = self._pending
        pending.append(event)
        if len(pending) >= _BATCH and self._lock.acquire(blocking=False):
            try:  # not while another thread counts, nor in a child that was forked meanwhile
                self._count_pending()
            finally:
                self._lock.release()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self._templates)} names>"

    def facts(self) -> dict[str, Any]:
        """Everything that was counted, as JSON has it."""
        with self._lock:
            self._count_pending()
            templates = sorted(self._templates.values(), key=lambda each: each.name)
            return {
                "templates": [each.facts() for each in templates],
                "outages": [each.facts() for each in self._outages],
                "switches": self._switches,
            }

    def _count_pending(self) -> None:
        pending = self._pending
        self._count([pending.popleft() for _ in range(len(pending))])

    def _count(self, events: Iterable[Event]) -> None:
        templates = self._templates
        for event in events:
            kind = event.kind
            template = templates.get(event.name) or self._admit(event.name)
            counts = template.counts
            counts[kind] = counts.get(kind, 0) + 1
            if kind in _HELD:
                if event.held is not None and event.guarded:
                    template.hold(event.held)
            elif kind in _WAITED and event.waited:
                template.waits.add(event.waited)
            elif kind in _LOADED and event.took is not None:
                template.loads.add(event.took)
            if event.guarded is False and kind not in _HELD:
                template.unguarded += 1
            if self._open is not None or kind in ("outage", "recovered", "switched"):
                self._follow_outage(event)

    def _admit(self, name: str) -> Template:
        """The template for *name*: its own, up to `MOST_NAMES`."""
        templates = self._templates
        known = name if len(templates) < MOST_NAMES else OTHER
        found = templates.get(known) or Template(known[:LONGEST_NAME])
        templates[known] = found
        return found

    def _follow_outage(self, event: Event) -> None:
        kind, is_open = event.kind, self._open
        if kind == "outage":
            if is_open is None:
                is_open = self._open = Outage(event.at, event.cause or "")
                self._outages.append(is_open)
            is_open.calls += 1
        elif kind == "recovered":
            self._recovered(event)
        elif kind == "switched":
            self._switches += 1
        elif is_open is not None and kind in _ANSWERED and event.guarded:
            self._close(event.at)

    def _recovered(self, event: Event) -> None:
        began = event.at - (event.lasted or 0.0)
        if self._open is None:
            last = self._outages[-1] if self._outages else None
            if last is not None and last.ended is not None and last.ended >= began:
                return  # an answer has ended it already
            self._open = Outage(began, event.cause or "")
            self._outages.append(self._open)
        self._open.began = min(self._open.began, began)
        self._close(event.at)

    def _close(self, at: float) -> None:
        assert self._open is not None
        self._open.ended, self._open = at, None


def statistics_of(dibs: Any) -> Statistics:
    """The figures of *dibs*: of the `Statistics` among its listeners, or of one that is added."""
    for listener in listeners_of(dibs):
        if isinstance(listener, Statistics):
            return listener
    made = Statistics()
    add_listener(dibs, made)
    return made
