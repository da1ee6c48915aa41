"""Figures of this process, counted from events: bounded in memory, templates only, no key.

    statistics = Statistics()
    dibs = Dibs("redis://…", listeners=[statistics])

`console` adds one to its client by itself.
"""

from collections import deque
from time import time
from typing import Any

from .._event_counting import Durations, Observer, Series, Tally
from .._process_state import add_listener, listeners_of
from ..events import KINDS, MEASURES, Event, EventKey, Kind, Quantity, has_answered

MOST_NAMES = 100
MOST_OUTAGES = 50

_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_HITS = ("hit", "local_hit", "stale")


class TemplateStatistics:
    """What has happened under one name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.counts: dict[str, int] = {}
        self.unguarded = 0
        self.durations: dict[str, Durations] = {
            quantity: Durations(_BOUNDS) for quantity in ("hold", "wait", "load")
        }

    @property
    def hit_rate(self) -> float | None:
        """Reads that met a value, of all that looked for one; None: there was none."""
        hits = sum(self.counts.get(kind, 0) for kind in _HITS)
        reads = hits + self.counts.get("miss", 0)
        return hits / reads if reads else None

    def facts(self) -> dict[str, Any]:
        """As JSON has it."""
        held = self.durations["hold"]
        return {
            "name": self.name, "counts": dict(self.counts), "unguarded": self.unguarded,
            "hit_rate": self.hit_rate, "waits": _duration_facts(self.durations["wait"]),
            "loads": _duration_facts(self.durations["load"]),
            "held_mean": held.mean, "held_most": held.greatest if held.count else None,
        }  # fmt: skip

    def count(self, kind: Kind, number: int) -> None:
        """So many events of *kind*."""
        self.counts[kind] = self.counts.get(kind, 0) + number

    def let_through(self, number: int) -> None:
        """So many grants without a guard."""
        self.unguarded += number


def _duration_facts(durations: Durations) -> dict[str, Any]:
    return {
        "count": durations.count, "mean": durations.mean, "p95": durations.at_most(0.95),
        "most": durations.greatest if durations.count else None,
    }  # fmt: skip


class OutageRecord:
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


class Statistics(Tally):
    """A listener that counts events by template, and remembers the last outages.

    It may be called from any thread and never raises. At most 100 names are counted apart.
    """

    counted: frozenset[Kind] = KINDS - {"outage", "recovered", "switched"}
    """Of these kinds it needs no events."""

    def __init__(self) -> None:
        super().__init__(MOST_NAMES)
        self._templates: dict[str, TemplateStatistics] = {}
        self._outages: deque[OutageRecord] = deque(maxlen=MOST_OUTAGES)
        self._switches = 0

    def __call__(self, event: Event) -> None:
        """Count *event*."""
        with self._lock:
            self._follow_outage(event)
        super().__call__(event)

    def facts(self) -> dict[str, Any]:
        """Return everything that was counted, as JSON has it."""
        with self._lock:
            self._add_up()
            templates = sorted(self._templates.values(), key=lambda each: each.name)
            return {
                "templates": [each.facts() for each in templates],
                "outages": [each.facts() for each in self._outages],
                "switches": self._switches,
            }

    def _learn_series(self, series: Series, key: EventKey) -> None:
        kind, name, guarded = key
        template = self._statistics_of(name)
        series.add.append(lambda number: template.count(kind, number))
        if MEASURES[kind].grants and guarded is False:
            series.add.append(template.let_through)

    def _observer_of(self, quantity: Quantity, key: EventKey) -> Observer | None:
        return self._statistics_of(key[1]).durations.get(quantity)

    def _statistics_of(self, name: str) -> TemplateStatistics:
        return self._templates.setdefault(name, TemplateStatistics(name))

    # ---- outages

    def _end_outage(self, at: float | None = None) -> None:
        super()._end_outage()
        if self._outages and self._outages[-1].ended is None:
            self._outages[-1].ended = time() if at is None else at

    def _follow_outage(self, event: Event) -> None:
        kind = event.kind
        if kind == "outage":
            self._open_outage(event.at, event.cause).calls += 1
        elif kind == "recovered":
            self._count_recovery(event)
        elif kind == "switched":
            self._switches += 1
        elif self.is_out and has_answered(kind, guarded=event.guarded):
            self._end_outage(event.at)

    def _open_outage(self, at: float, cause: str | None) -> OutageRecord:
        if not self.is_out:
            self._outages.append(OutageRecord(at, cause or ""))
            self._begin_outage()
        return self._outages[-1]

    def _count_recovery(self, event: Event) -> None:
        began = event.at - (event.lasted or 0.0)
        last = self._outages[-1] if self._outages else None
        if not self.is_out and last is not None and (last.ended or 0.0) >= began:
            return  # an answer has ended it already
        outage = self._open_outage(began, event.cause)
        outage.began = min(outage.began, began)
        self._end_outage(event.at)


def statistics_of(dibs: Any) -> Statistics:
    """Return the figures of *dibs*.

    Of the `Statistics` among its listeners, or of one that is added.
    """
    for listener in listeners_of(dibs):
        if isinstance(listener, Statistics):
            return listener
    statistics = Statistics()
    add_listener(dibs, statistics)
    return statistics
