"""Events as Prometheus metrics.

    dibs = Dibs("redis://…", listeners=[PrometheusListener()])

docs/monitoring.md has every metric, deploy/alerts.yml the alerts. One listener may serve several
Dibs; another store or another service in the same registry needs another prefix.

In the multiprocess mode of prometheus_client (PROMETHEUS_MULTIPROC_DIR) each event is written at
once, for the process that reads them: counters and histograms are summed over all processes, gauges
over those that are alive: `open_claims` is the sum as of the last event of a claim in each process;
`outage` is 1 if Redis is unavailable to one of them. A listener that is made removes the gauges of
processes that were killed.
"""

import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Literal

from . import needs

with needs("prometheus"):
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
    from prometheus_client.metrics_core import HistogramMetricFamily, Metric

from .._event_counting import Durations, Observer, Series, Tally
from ..claims import open_claims
from ..errors import OTHER, UsageError
from ..events import KINDS, MEASURES, Event, EventKey, Kind, Quantity

__all__ = ["PrometheusListener"]

_PREFIX = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
"""Of the buckets, in seconds."""
_SHOWN = [*(str(float(bound)) for bound in _BOUNDS), "+Inf"]

# What an event means for the key of a claim: whether it was set, and whether it was deleted.
_SET = {"claimed": "ok", "duplicate": "duplicate", "replayed": "replayed", "mismatch": "mismatch"}
_NOT_GUARDED = "outage"
_DELETED = {"released": "ok", "completed": "ok", "late": "late", "leaked": "leaked"}
_LEAKS = ("cleared", "dropped", "outage", "closed")
_LEADS = {"elected": 1, "resigned": 0, "deposed": 0}
_NEED_EVENTS: frozenset[Kind] = frozenset({"leaked", "missed", "finished"})
"""More than their number and their durations matters."""


class PrometheusListener(Tally):
    """Counts every event.

    It never raises, and may be called from any thread. Labels contain names, which are templates,
    never keys.

    Args:
        registry: Default: the global one.
        prefix: Metrics are called *prefix*_….
        most_names: Names beyond the first *most_names* are counted together as "other".

    Raises:
        UsageError: The prefix is invalid, or the registry already has such metrics.
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
        self._is_multiprocess = _is_multiprocess()
        super().__init__(most_names, **({"batch": 1} if self._is_multiprocess else {}))
        self._prefix = prefix
        self._claims: set[str] = set()
        """Names of claims: a `released` event may be of a lease."""
        self._metrics = _Metrics(prefix, self._add_up)
        if self._is_multiprocess:
            self._try_update(_forget_dead_processes)
            self._metrics.open.set(open_claims())  # a killed process may have had the same id
            self._metrics.outage.set(0)
        else:
            self._metrics.open.set_function(open_claims)
        try:
            (REGISTRY if registry is None else registry).register(self._metrics)
        except ValueError as error:
            hint = "pass one listener to all your Dibs, or use another prefix"
            raise UsageError(f"the registry already has {prefix}_… metrics: {hint}") from error

    def __call__(self, event: Event) -> None:
        """Count *event*."""
        super().__call__(event)
        if event.kind in _NEED_EVENTS:
            self._try_update(self._note_event, event, self._names(event.name))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._prefix!r}: {len(self._names)} names>"

    def _begin_outage(self) -> None:
        """Set the gauge."""
        super()._begin_outage()
        self._metrics.outage.set(1)

    def _end_outage(self) -> None:
        """Reset the gauge."""
        super()._end_outage()
        self._metrics.outage.set(0)

    def _observer_of(self, quantity: Quantity, key: EventKey) -> Observer | None:
        """Return the histogram of *quantity*; of outages only the sum is exported."""
        if quantity == "outage":
            return _Sum(self._metrics.out)
        return self._metrics.durations[quantity].labels(key[1])

    def _learn_series(self, series: Series, key: EventKey) -> None:
        """Say which metrics an event updates: decided once for each kind and name."""
        kind, name, guarded = key
        metrics, measure = self._metrics, MEASURES[kind]
        series.add.append(metrics.events.labels(kind, name).inc)
        self._learn_claims(series, key)
        if kind == "outage":
            series.then.append(self._begin_outage)
            series.most_pending = 1
            if guarded:
                series.add.append(metrics.refused.labels(name).inc)
        if measure.grants:
            # Series begin at 0 with the first call of a name: the first event is an increase.
            metrics.refused.labels(name)
            unguarded = metrics.unguarded.labels(name)
            if guarded is False:
                series.add.append(unguarded.inc)
            if not measure.is_long:
                metrics.durations["hold"].labels(name)
        if kind == "started":
            metrics.missed.labels(name)
        if kind in _LEADS:
            leader, leads = metrics.leader.labels(name), _LEADS[kind]
            series.then.append(lambda: leader.set(leads))
            series.most_pending = 1
        if self._is_multiprocess and (kind in _DELETED or kind == "claimed"):
            series.then.append(lambda: metrics.open.set(open_claims()))

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
        for key, series in list(self._series.items()):
            if key[1] == name and key[0] in _DELETED:  # until now it was the name of leases
                series.add_up()
                self._learn_claims(series, key)

    def _note_event(self, event: Event, name: str) -> None:
        """Note what is in the event itself."""
        metrics = self._metrics
        if event.kind == "leaked":
            cause = event.cause if event.cause in _LEAKS else OTHER
            metrics.leaked.labels(name, cause).inc()
        elif event.kind == "missed":
            metrics.missed.labels(name).inc(event.count or 0)
        else:
            metrics.succeeded.labels(name).set(event.at)


class _Sum:
    """Durations of which only the sum matters."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter

    def observe(self, amount: float, /) -> None:
        """Add *amount* seconds."""
        self._counter.inc(max(amount, 0.0))


class _DurationsByName:
    """A histogram of this process, cheaper to add to than that of prometheus_client."""

    def __init__(self, name: str, documentation: str) -> None:
        self._name = name
        self._documentation = documentation
        self._by_name: dict[str, Durations] = {}

    def labels(self, name: str) -> Durations:
        """Return the durations of *name*."""
        return self._by_name.setdefault(name, Durations(_BOUNDS))

    def describe(self) -> Iterable[Metric]:
        """Return its name and type."""
        return [self._metric_family()]

    def collect(self) -> Iterable[Metric]:
        """Return what was added until now."""
        family = self._metric_family()
        for name, durations in self._by_name.copy().items():
            buckets = list(zip(_SHOWN, accumulate(durations.buckets), strict=True))
            family.add_metric([name], buckets, durations.total)
        return [family]

    def _metric_family(self) -> HistogramMetricFamily:
        return HistogramMetricFamily(self._name, self._documentation, labels=["name"])


class _Metrics:
    """All metrics of one listener, as one collector, which is brought up to date to be read."""

    def __init__(self, prefix: str, update: Callable[[], None]) -> None:
        def counter(name: str, documentation: str, *labels: str) -> Counter:
            return Counter(f"{prefix}_{name}", documentation, labels, registry=None)

        def gauge(
            name: str, documentation: str, mode: Literal["livesum", "livemax", "max"], *labels: str
        ) -> Gauge:
            text = documentation
            return Gauge(f"{prefix}_{name}", text, labels, registry=None, multiprocess_mode=mode)

        def durations(name: str, documentation: str) -> "Histogram | _DurationsByName":
            name = f"{prefix}_{name}"
            if _is_multiprocess():  # written to files, which another process reads
                return Histogram(name, documentation, ["name"], registry=None, buckets=_BOUNDS)
            return _DurationsByName(name, documentation)

        self._update = update
        self.events = counter("events", "Events by kind.", "kind", "name")
        text = "Attempts to claim: ok, or why not; outage: let through unguarded."
        self.set = counter("claims_set", text, "name", "outcome")
        text = "Claims that ended: ok, late (the key had expired or was taken over) or leaked."
        self.deleted = counter("claims_deleted", text, "name", "outcome")
        text = (
            "Claims that were not ended and expire by their ttl: cleared by clear_current_claims,"
            " garbage-collected, closed before their end, or ended while Redis was unavailable."
        )
        self.leaked = counter("claims_leaked", text, "name", "cause")
        self.open = gauge("open_claims", "Open claims of this process.", "livesum")
        text = "Leases and claims granted unguarded while Redis was unavailable."
        self.unguarded = counter("unguarded", text, "name")
        self.refused = counter("refused", "Calls refused while Redis was unavailable.", "name")
        self.outage = gauge("outage", "1 while Redis is unavailable.", "livemax")
        self.out = counter("outage_seconds", "Total duration of past outages.")
        self.leader = gauge("leader", "1 while this process is the leader.", "livesum", "name")
        self.missed = counter("scheduled_missed", "Runs that were missed.", "name")
        text = "When a scheduled function last returned in this process."
        self.succeeded = gauge("scheduled_success_timestamp_seconds", text, "max", "name")
        self.durations = {
            "hold": durations("hold_seconds", "Time for which leases and claims were held."),
            "wait": durations("wait_seconds", "Time that callers waited for other holders."),
            "load": durations("load_seconds", "Time that loads of cached values took."),
            "run": durations(
                "scheduled_seconds", "Time that scheduled functions ran, also those that failed."
            ),
            "delay": durations(
                "scheduled_delay_seconds", "Time from when a function was due to its run."
            ),
        }
        others = [each for each in vars(self).values() if isinstance(each, Counter | Gauge)]
        self._all = [*others, *self.durations.values()]

    def describe(self) -> Iterable[Metric]:
        """Return the names and types of all."""
        return [described for metric in self._all for described in metric.describe()]

    def collect(self) -> Iterable[Metric]:
        """Return all, as they are now."""
        self._update()
        return [family for metric in self._all for family in metric.collect()]


def _is_multiprocess() -> bool:
    """Return whether prometheus_client adds up several processes."""
    return "PROMETHEUS_MULTIPROC_DIR" in os.environ


def _forget_dead_processes() -> None:
    """Remove the live gauges of processes that have ended without cleaning up, e.g. by SIGKILL.

    `mark_process_dead` of prometheus_client does so for one process, where something calls it. Many
    servers have no hook for that.
    """
    if os.name != "posix":
        return  # there is no safe way to ask
    for path in Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]).glob("gauge_live*_*.db"):
        pid = path.stem.rpartition("_")[2]
        if pid.isdecimal() and not _is_alive(int(pid)):
            with suppress(OSError):  # another process that starts has removed it
                path.unlink()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # of another user, or no process id
        return True
    return True
