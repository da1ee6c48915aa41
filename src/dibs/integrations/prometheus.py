"""Events as Prometheus metrics.

    dibs = Dibs("redis://…", listeners=[PrometheusListener()])

docs/monitoring.md has every metric, deploy/alerts.yml the alerts. One listener may serve several
Dibs; another store or another service in the same registry needs another prefix.

In the multiprocess mode of prometheus_client (PROMETHEUS_MULTIPROC_DIR), counters and histograms
are summed over all processes, gauges over those that are alive: `open_claims` is the sum as of the
last event of a claim in each process; `outage` is 1 if Redis is unavailable to one of them.
"""

import logging
import os
import re
import threading
from collections.abc import Callable

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

from ..claims import open_claims
from ..errors import UsageError
from ..events import Event

__all__ = ["PrometheusListener"]

OTHER = "other"
"""The label of all names beyond `most_names`, and of unknown causes."""

_LONGEST_NAME = 200
_PREFIX = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)

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
_WAITED = ("acquired", "busy", "waited")
_ANSWERED = ("acquired", "claimed", "elected", "fired", "released", "completed", "late")
"""Redis has answered, if the event is guarded. A refusal may come from this process alone."""

_LEADS = {"elected": 1, "resigned": 0, "deposed": 0}

_log = logging.getLogger("dibs")
_Note = Callable[[Event], object]


class _Metrics:
    def __init__(self, prefix: str) -> None:
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
        self.outage = Gauge(
            f"{prefix}_outage",
            "1 while Redis is unavailable.",
            registry=None,
            multiprocess_mode="livemax",
        )
        self.out = Counter(
            f"{prefix}_outage_seconds", "Total duration of past outages.", registry=None
        )
        self.held = _histogram(
            f"{prefix}_hold_seconds", "Time for which leases and claims were held."
        )
        self.waited = _histogram(
            f"{prefix}_wait_seconds", "Time that callers waited for other holders."
        )
        self.loaded = _histogram(f"{prefix}_load_seconds", "Time that loads of cached values took.")
        self.leader = Gauge(
            f"{prefix}_leader",
            "1 while this process is the leader.",
            ["name"],
            registry=None,
            multiprocess_mode="livesum",
        )
        self.ran = _histogram(
            f"{prefix}_scheduled_seconds",
            "Time that scheduled functions ran, also those that failed.",
        )
        self.delay = _histogram(
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
        metrics: list[MetricWrapperBase] = list(vars(self).values())
        done: list[MetricWrapperBase] = []
        try:
            for metric in metrics:
                registry.register(metric)
                done.append(metric)
        except ValueError:
            for metric in done:
                registry.unregister(metric)
            raise


def _histogram(name: str, documentation: str) -> Histogram:
    return Histogram(name, documentation, ["name"], registry=None, buckets=_SECONDS)


class PrometheusListener:
    """Counts every event in *registry* (default: the global one), as metrics named *prefix*_….

    It never raises, and may be called from any thread. Labels contain names, which are templates,
    never keys; names beyond the first *most_names* are counted together as "other". UsageError:
    the prefix is invalid, or the registry already has such metrics.
    """

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
        if most_names < 1:
            raise UsageError(f"most_names must be at least 1, not {most_names}")
        self._prefix = prefix
        self._most_names = most_names
        self._lock = threading.Lock()
        self._names: dict[str, str] = {}
        self._claims: set[str] = set()
        """Names of claims: a `released` event may be of a lease."""
        self._long: set[str] = set()
        """Names of elections and schedules, whose leases may be held for hours."""
        self._notes: dict[tuple[str, str], list[_Note]] = {}
        """By kind and label: what an event updates."""
        self._known: dict[tuple[str, str], list[_Note]] = {}
        """The same by kind and name, for names that have a label of their own."""
        self._is_out = False
        self._has_failed = False
        self._is_multiprocess = "PROMETHEUS_MULTIPROC_DIR" in os.environ
        self._metrics = _Metrics(prefix)
        if not self._is_multiprocess:
            self._metrics.open.set_function(open_claims)
        try:
            self._metrics.register(REGISTRY if registry is None else registry)
        except ValueError as error:
            hint = "pass one listener to all your Dibs, or use another prefix"
            raise UsageError(f"the registry already has {prefix}_… metrics: {hint}") from error

    def __call__(self, event: Event) -> None:
        """Count *event*."""
        try:
            key = event.kind, event.name
            for note in self._known.get(key) or self._find(key):
                note(event)
        except Exception:  # in multiprocess mode: the disk is full
            if not self._has_failed:
                self._has_failed = True
                _log.exception("an event could not be counted; further failures are not logged")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._prefix!r}: {len(self._names)} names>"

    def _admit(self, name: str) -> str:
        """The label for *name*: itself, up to `most_names`."""
        with self._lock:
            if name not in self._names and len(self._names) < self._most_names:
                self._names[name] = _printable(name)
            return self._names.get(name, OTHER)

    # ---- which metrics an event updates: decided once for each kind and name

    def _find(self, key: tuple[str, str]) -> list[_Note]:
        kind, name = key
        label = self._names.get(name) or self._admit(name)
        notes = self._notes.get((kind, label)) or self._learn(kind, label)
        if name in self._names:
            self._known[key] = notes
        return notes

    def _learn(self, kind: str, name: str) -> list[_Note]:
        notes = [
            _adding_one(self._metrics.events.labels(kind, name)),
            *self._notes_on_claims(kind, name),
            *self._notes_on_times(kind, name),
            *self._notes_on_outages(kind, name),
            *self._notes_on_leaders(kind, name),
            *self._notes_on_schedules(kind, name),
        ]
        self._notes[kind, name] = notes
        return notes

    def _notes_on_claims(self, kind: str, name: str) -> list[_Note]:
        notes: list[_Note] = []
        if kind in _SET:
            self._expect_claims(name)
            notes.append(self._note_set(_SET[kind], name))
        if kind in _DELETED:
            notes.append(self._note_deleted(_DELETED[kind], name))
        if kind == "leaked":
            notes.append(self._note_leaked(name))
        if self._is_multiprocess and (kind in _DELETED or kind == "claimed"):
            notes.append(self._note_open)
        return notes

    def _notes_on_times(self, kind: str, name: str) -> list[_Note]:
        notes: list[_Note] = []
        if kind in _HELD:
            notes.append(self._note_held(name))
        if kind in _WAITED:
            waited = self._metrics.waited.labels(name).observe
            notes.append(lambda event: event.waited and waited(event.waited))
        if kind in ("loaded", "degraded"):
            took = self._metrics.loaded.labels(name).observe
            notes.append(lambda event: event.took is not None and took(event.took))
        return notes

    def _notes_on_outages(self, kind: str, name: str) -> list[_Note]:
        if kind == "outage":
            return [lambda event: self._out(is_out=True)]
        if kind == "recovered":
            return [lambda event: self._out(is_out=False), self._note_recovered]
        if kind in ("renewed", "hit", "invalidated"):
            return [lambda event: self._out(is_out=False)]
        if kind not in _ANSWERED:
            return []
        is_grant = kind in ("acquired", "claimed", "elected", "fired")
        unguarded = self._metrics.unguarded.labels(name).inc if is_grant else None

        def note(event: Event) -> None:
            if event.guarded:
                if self._is_out:
                    self._out(is_out=False)
            elif unguarded is not None and event.guarded is False:
                unguarded()

        return [note]

    def _notes_on_leaders(self, kind: str, name: str) -> list[_Note]:
        if kind not in _LEADS:
            return []
        self._long.add(name)
        leader, leads = self._metrics.leader.labels(name), _LEADS[kind]
        return [lambda event: leader.set(leads)]

    def _notes_on_schedules(self, kind: str, name: str) -> list[_Note]:
        metrics = self._metrics
        if kind == "missed":
            missed = metrics.missed.labels(name)
            return [lambda event: missed.inc(event.count or 0)]
        if kind == "fired":
            self._long.add(name)
            metrics.missed.labels(name)  # begins at 0, so that the first one is an increase
            delay = metrics.delay.labels(name).observe
            return [lambda event: event.delay is not None and delay(event.delay)]
        if kind not in ("finished", "failed"):
            return []
        ran = metrics.ran.labels(name).observe
        notes: list[_Note] = [lambda event: event.took is not None and ran(event.took)]
        if kind == "finished":
            succeeded = metrics.succeeded.labels(name).set
            notes.append(lambda event: succeeded(event.at))
        return notes

    # ---- updating the metrics

    def _note_held(self, name: str) -> _Note:
        held = self._metrics.held.labels(name).observe

        def note(event: Event) -> None:
            if event.guarded and event.held is not None and name not in self._long:
                held(event.held)

        return note

    def _expect_claims(self, name: str) -> None:
        """Begin every series at 0, so that the first failure is an increase."""
        self._claims.add(name)
        for outcome in (*_SET.values(), _NOT_GUARDED):
            self._metrics.set.labels(name, outcome)
        for outcome in _DELETED.values():
            self._metrics.deleted.labels(name, outcome)
        for cause in (*_LEAKS, OTHER):
            self._metrics.leaked.labels(name, cause)

    def _note_set(self, outcome: str, name: str) -> _Note:
        done = self._metrics.set.labels(name, outcome).inc
        unguarded = self._metrics.set.labels(name, _NOT_GUARDED).inc
        return lambda event: unguarded() if event.guarded is False else done()

    def _note_deleted(self, outcome: str, name: str) -> _Note:
        deleted = self._metrics.deleted

        def note(event: Event) -> None:
            # An unguarded claim has no key to delete.
            if name in self._claims and event.guarded is not False:
                deleted.labels(name, outcome).inc()

        return note

    def _note_leaked(self, name: str) -> _Note:
        leaked = self._metrics.leaked
        causes = {cause: cause for cause in _LEAKS}
        return lambda event: leaked.labels(name, causes.get(event.cause or "", OTHER)).inc()

    def _note_open(self, event: Event) -> None:
        self._metrics.open.set(open_claims())

    def _note_recovered(self, event: Event) -> None:
        self._metrics.out.inc(max(event.lasted or 0.0, 0.0))

    def _out(self, *, is_out: bool) -> None:
        if self._is_out is is_out:
            return
        with self._lock:
            self._is_out = is_out
            self._metrics.outage.set(is_out)


def _adding_one(counter: Counter) -> _Note:
    inc = counter.inc
    return lambda event: inc()


def _printable(name: str) -> str:
    """*name* as valid text for a label."""
    return name[:_LONGEST_NAME].encode("utf-8", "replace").decode() or OTHER
