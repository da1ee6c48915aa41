"""The Prometheus metrics of dibs, and durations that are cheap to add to."""

import os
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import HistogramMetricFamily, Metric

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
"""Of the buckets, in seconds."""
_SHOWN = [*(str(float(bound)) for bound in BOUNDS), "+Inf"]


class Durations:
    """The durations of one name. The caller has a lock."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        """By bucket."""
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """One more."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


class Observer(Protocol):
    """What durations are added to."""

    def observe(self, amount: float, /) -> None:
        """One more."""
        ...


class _DurationsByName:
    """A histogram of this process, cheaper to add to than that of prometheus_client."""

    def __init__(self, name: str, documentation: str) -> None:
        self._name = name
        self._documentation = documentation
        self._by_name: dict[str, Durations] = {}

    def labels(self, name: str) -> Durations:
        """Those of *name*."""
        return self._by_name.setdefault(name, Durations())

    def describe(self) -> Iterable[Metric]:
        """Its name and type."""
        return [self._family()]

    def collect(self) -> Iterable[Metric]:
        """What was added until now."""
        family = self._family()
        for name, durations in self._by_name.copy().items():
            buckets = list(zip(_SHOWN, accumulate(durations.counts), strict=True))
            family.add_metric([name], buckets, durations.total)
        return [family]

    def _family(self) -> HistogramMetricFamily:
        return HistogramMetricFamily(self._name, self._documentation, labels=["name"])


def _durations(name: str, documentation: str) -> "Histogram | _DurationsByName":
    if is_multiprocess():  # written to files, which another process reads
        return Histogram(name, documentation, ["name"], registry=None, buckets=BOUNDS)
    return _DurationsByName(name, documentation)


def is_multiprocess() -> bool:
    """Whether prometheus_client adds up several processes."""
    return "PROMETHEUS_MULTIPROC_DIR" in os.environ


def forget_dead_processes() -> None:
    """Remove the live gauges of processes that have ended without a word, as by SIGKILL.

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
    except (OSError, OverflowError):  # it is somebody else's, or no process id
        return True
    return True


class Metrics:
    """All metrics of one listener, as one collector, which is brought up to date to be read."""

    def __init__(self, prefix: str, update: Callable[[], None]) -> None:
        self._update = update
        self.events = Counter(
            f"{prefix}_events", "Events by kind.", ["kind", "name"], registry=None
        )
        self.set = Counter(
            f"{prefix}_claims_set",
            "Attempts to claim: ok, or why not; outage: let through unguarded.",
            ["name", "outcome"],
            registry=None,
        )
        self.deleted = Counter(
            f"{prefix}_claims_deleted",
            "Claims that ended: ok, late (the key had expired or was taken over) or leaked.",
            ["name", "outcome"],
            registry=None,
        )
        self.leaked = Counter(
            f"{prefix}_claims_leaked",
            "Claims that were not ended and expire by their ttl: cleared by clear_current_claims,"
            " garbage-collected, closed before their end, or ended while Redis was unavailable.",
            ["name", "cause"],
            registry=None,
        )
        self.open = Gauge(
            f"{prefix}_open_claims",
            "Open claims of this process.",
            registry=None,
            multiprocess_mode="livesum",
        )
        self.unguarded = Counter(
            f"{prefix}_unguarded",
            "Leases and claims granted unguarded while Redis was unavailable.",
            ["name"],
            registry=None,
        )
        self.refused = Counter(
            f"{prefix}_refused",
            "Calls refused while Redis was unavailable.",
            ["name"],
            registry=None,
        )
        self.outage = Gauge(
            f"{prefix}_outage",
            "1 while Redis is unavailable.",
            registry=None,
            multiprocess_mode="livemax",
        )
        self.out = Counter(
            f"{prefix}_outage_seconds", "Total duration of past outages.", registry=None
        )
        self.held = _durations(
            f"{prefix}_hold_seconds", "Time for which leases and claims were held."
        )
        self.waited = _durations(
            f"{prefix}_wait_seconds", "Time that callers waited for other holders."
        )
        self.loaded = _durations(f"{prefix}_load_seconds", "Time that loads of cached values took.")
        self.leader = Gauge(
            f"{prefix}_leader",
            "1 while this process is the leader.",
            ["name"],
            registry=None,
            multiprocess_mode="livesum",
        )
        self.ran = _durations(
            f"{prefix}_scheduled_seconds",
            "Time that scheduled functions ran, also those that failed.",
        )
        self.delay = _durations(
            f"{prefix}_scheduled_delay_seconds", "Time from the fire of a function to its run."
        )
        self.missed = Counter(
            f"{prefix}_scheduled_missed", "Fires that nobody ran.", ["name"], registry=None
        )
        self.succeeded = Gauge(
            f"{prefix}_scheduled_success_timestamp_seconds",
            "When a scheduled function last returned in this process.",
            ["name"],
            registry=None,
            multiprocess_mode="max",
        )

    def register(self, registry: CollectorRegistry) -> None:
        """Register all metrics or none. ValueError: a name is taken."""
        registry.register(self)

    def _all(self) -> "Iterator[Counter | Gauge | Histogram | _DurationsByName]":
        return (each for name, each in vars(self).items() if not name.startswith("_"))

    def describe(self) -> Iterable[Metric]:
        """The names and types of all."""
        return [described for metric in self._all() for described in metric.describe()]

    def collect(self) -> Iterable[Metric]:
        """All, as they are now."""
        self._update()
        return [family for metric in self._all() for family in metric.collect()]
