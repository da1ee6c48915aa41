"""Events as Prometheus metrics.

    dibs = Dibs("redis://…", listeners=[PrometheusListener()])

docs/monitoring.md has every metric, deploy/alerts.yml the alerts. One listener may serve several
Dibs; another store or another service in the same registry needs another prefix.

An event is counted as a number here, and added to the metrics when they are read, which takes a
fourth of the time of a counter of prometheus_client. In its multiprocess mode
(PROMETHEUS_MULTIPROC_DIR) each event is written at once, for the process that reads them: counters
and histograms are summed over all processes, gauges over those that are alive: `open_claims` is the
sum as of the last event of a claim in each process; `outage` is 1 if Redis is unavailable to one
of them. A listener that is made removes the gauges of processes that were killed.
"""

import re

from prometheus_client import REGISTRY, CollectorRegistry

from ..claims import open_claims
from ..errors import UsageError
from ..events import KINDS, Counter, Event, EventKey, Kind, duration_of
from ._names import OTHER, Names
from ._prometheus_metrics import Metrics, forget_dead_processes, is_multiprocess
from ._prometheus_series import NOT_OBSERVED, Series, Shared, Sum

__all__ = ["PrometheusListener"]

_PREFIX = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

# What an event means for the key of a claim: whether it was set, and whether it was deleted.
_SET = {
    "claimed": "ok",
    "duplicate": "duplicate",
    "replayed": "replayed",
    "mismatch": "mismatch",
}
_NOT_GUARDED = "outage"
_DELETED = {"released": "ok", "completed": "ok", "late": "late", "leaked": "leaked"}
_LEAKS = ("cleared", "dropped", "outage", "closed")

_HELD = ("released", "completed", "late")  # `lost` is followed by `late`
_BEGINS_HOLD = ("acquired", "claimed")
_WAITED = ("acquired", "busy", "waited")
_GRANTED = ("acquired", "claimed", "elected", "fired", "passed")
_ANSWERED = ("renewed", "hit", "invalidated", "recovered", "throttled")
"""Redis has answered. So it has if one of these is guarded: a refusal may be of this process."""
_ANSWERED_IF_GUARDED = (*_GRANTED, *_HELD)

_LEADS = {"elected": 1, "resigned": 0, "deposed": 0}
_NEED_EVENTS: frozenset[Kind] = frozenset({"leaked", "missed", "finished"})
"""More than their number and their durations matters."""


class PrometheusListener:
    """Counts every event in *registry* (default: the global one), as metrics named *prefix*_….

    It never raises, and may be called from any thread. Labels contain names, which are templates,
    never keys; names beyond the first *most_names* are counted together as "other". UsageError:
    the prefix is invalid, or the registry already has such metrics.
    """

    counted = KINDS - _NEED_EVENTS
    """Of these kinds it needs no events."""

    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        prefix: str = "dibs",
        *,
        most_names: int = 100,
    ) -> None:
        if not _PREFIX.fullmatch(prefix):
            raise UsageError(
                f"prefix must consist of letters, digits and underscores, not {prefix!r}"
            )
        self._prefix = prefix
        self._names = Names(most_names)
        self._claims: set[str] = set()
        """Names of claims: a `released` event may be of a lease."""
        self._long: set[str] = set()
        """Names of elections and schedules, whose leases may be held for hours."""
        self._series: dict[EventKey, Series] = {}
        self._is_multiprocess = is_multiprocess()
        self._metrics = Metrics(prefix, self._add_up)
        self._shared = Shared()
        self._is_out = False
        if self._is_multiprocess:
            self._shared.attempt(forget_dead_processes)
            self._metrics.open.set(open_claims())  # a killed process may have had the same id
            self._metrics.outage.set(0)
        else:
            self._metrics.open.set_function(open_claims)
        try:
            self._metrics.register(REGISTRY if registry is None else registry)
        except ValueError as error:
            hint = "pass one listener to all your Dibs, or use another prefix"
            raise UsageError(f"the registry already has {prefix}_… metrics: {hint}") from error

    def __call__(self, event: Event) -> None:
        """Count *event*."""
        self.counter(event.kind, event.name, guarded=event.guarded)(duration_of(event))
        if event.kind in _NEED_EVENTS:
            self._shared.attempt(self._note, event, self._names(event.name))

    def counter(self, kind: Kind, name: str, *, guarded: bool | None) -> Counter:
        """What counts events of *kind*."""
        key = kind, self._names(name), guarded
        with self._shared.lock:
            series = self._series.get(key)
            if series is None:
                series = self._series[key] = self._learn(key)
        return series.count

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._prefix!r}: {len(self._names)} names>"

    def _add_up(self) -> None:
        """The metrics are about to be read."""
        with self._shared.lock:
            for series in self._series.values():
                series.add_up()

    def _begin_outage(self) -> None:
        self._add_up()  # replies from before
        self._is_out = True
        self._metrics.outage.set(1)

    def _end_outage(self) -> None:
        if self._is_out:
            self._is_out = False
            self._metrics.outage.set(0)

    # ---- what an event updates: decided once for each kind and name

    def _learn(self, key: EventKey) -> Series:
        kind, name, _ = key
        series = Series(self._shared)
        series.add.append(self._metrics.events.labels(kind, name).inc)
        self._learn_claims(series, key)
        self._learn_durations(series, key)
        self._learn_outages(series, key)
        if kind in _LEADS:
            self._hold_long(name)
            leader, leads = self._metrics.leader.labels(name), _LEADS[kind]
            series.then, series.most_pending = lambda: leader.set(leads), 1
        if self._is_multiprocess:  # another process reads the metrics
            series.most_pending = 1
            if kind in _DELETED or kind == "claimed":
                series.add.append(lambda number: self._metrics.open.set(open_claims()))
        return series

    def _learn_claims(self, series: Series, key: EventKey) -> None:
        kind, name, guarded = key
        if kind in _SET:
            self._expect_claims(name)
            outcome = _NOT_GUARDED if guarded is False else _SET[kind]
            series.add.append(self._metrics.set.labels(name, outcome).inc)
        if kind in _DELETED and guarded is not False and name in self._claims:
            # An unguarded claim has no key to delete.
            series.add.append(self._metrics.deleted.labels(name, _DELETED[kind]).inc)

    def _expect_claims(self, name: str) -> None:
        """Begin every series at 0, so that the first failure is an increase."""
        if name in self._claims:
            return
        self._claims.add(name)
        for outcome in (*_SET.values(), _NOT_GUARDED):
            self._metrics.set.labels(name, outcome)
        for outcome in _DELETED.values():
            self._metrics.deleted.labels(name, outcome)
        for cause in (*_LEAKS, OTHER):
            self._metrics.leaked.labels(name, cause)
        for key, series in self._series.items():
            if key[1] == name and key[0] in _DELETED:  # until now it was the name of leases
                series.add_up()
                self._learn_claims(series, key)

    def _learn_durations(self, series: Series, key: EventKey) -> None:
        kind, name, guarded = key
        metrics = self._metrics
        if kind in _HELD and name not in self._long:
            held = metrics.held.labels(name)
            series.durations = held if guarded else NOT_OBSERVED
        if kind in _BEGINS_HOLD:
            metrics.held.labels(name)  # begins at 0, so that the first hold is an increase
        if kind in _WAITED:
            series.durations = metrics.waited.labels(name)
            series.counts_zero = False
        elif kind in ("loaded", "degraded"):
            series.durations = metrics.loaded.labels(name)
        elif kind in ("finished", "failed"):
            series.durations = metrics.ran.labels(name)
        elif kind == "fired":
            self._hold_long(name)
            metrics.missed.labels(name)  # begins at 0, so that the first one is an increase
            series.durations = metrics.delay.labels(name)
        elif kind == "recovered":
            series.durations = Sum(metrics.out.inc)

    def _hold_long(self, name: str) -> None:
        self._long.add(name)
        for (kind, label, _), series in self._series.items():
            if label == name and kind in _HELD:
                series.durations = NOT_OBSERVED

    def _learn_outages(self, series: Series, key: EventKey) -> None:
        kind, name, guarded = key
        if kind == "outage":
            series.then, series.most_pending = self._begin_outage, 1
            if guarded:
                series.add.append(self._metrics.refused.labels(name).inc)
        elif kind in _ANSWERED or (guarded and kind in _ANSWERED_IF_GUARDED):
            series.then = self._end_outage
        if kind in _GRANTED:
            unguarded = self._metrics.unguarded.labels(name)
            self._metrics.refused.labels(name)  # begins at 0, so that the first one is an increase
            if guarded is False:
                series.add.append(unguarded.inc)

    def _note(self, event: Event, name: str) -> None:
        """What is in the event itself."""
        metrics = self._metrics
        if event.kind == "leaked":
            cause = event.cause if event.cause in _LEAKS else OTHER
            metrics.leaked.labels(name, cause).inc()
        elif event.kind == "missed":
            metrics.missed.labels(name).inc(event.count or 0)
        else:
            metrics.succeeded.labels(name).set(event.at)
