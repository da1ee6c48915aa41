"""Events as spans and metrics of OpenTelemetry.

    dibs = Dibs("redis://…", listeners=[OpenTelemetryListener()])

docs/logs-and-traces.md has every span, attribute and metric. Keys are never written, only names.
"""

import threading
from collections.abc import Iterable
from time import monotonic

try:
    from opentelemetry import context, metrics, trace
    from opentelemetry.context import Context
    from opentelemetry.metrics import CallbackOptions, Histogram, Meter, MeterProvider, Observation
    from opentelemetry.trace import Link, Status, StatusCode, TracerProvider
    from opentelemetry.trace import Span as OtelSpan
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        'opentelemetry-api is not installed: pip install "dibs[opentelemetry]"', name=error.name
    ) from error

from .. import __version__
from .._interface import fork_safe_lock
from ..claims import open_claims
from ..events import KINDS, Counter, Event, EventKey, Kind, SpanKind, duration_of
from ._names import Names, printable

__all__ = ["OpenTelemetryListener"]

_LIBRARY = "dibs"
_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300)
"""Those of the semantic conventions for database clients, and three more: holds may be long."""

_DURATIONS = {
    "dibs.hold.duration": "Time for which leases and claims were held.",
    "dibs.wait.duration": "Time that callers waited for other holders or loads.",
    "dibs.load.duration": "Time that loads of cached values took.",
    "dibs.run.duration": "Time that scheduled functions ran.",
    "dibs.outage.duration": "Time for which Redis was unavailable.",
}
_RECORDED: dict[Kind, str] = {
    "released": "dibs.hold.duration",
    "completed": "dibs.hold.duration",
    "late": "dibs.hold.duration",
    "acquired": "dibs.wait.duration",
    "busy": "dibs.wait.duration",
    "waited": "dibs.wait.duration",
    "loaded": "dibs.load.duration",
    "degraded": "dibs.load.duration",
    "finished": "dibs.run.duration",
    "failed": "dibs.run.duration",
    "recovered": "dibs.outage.duration",
}
"""Which duration an event has."""


class _Span:
    """One span, which is the current one until it ends."""

    __slots__ = ("_before", "_span")

    def __init__(self, span: OtelSpan, before: Context) -> None:
        self._span = span
        self._before = before
        context.attach(trace.set_span_in_context(span, before))

    @property
    def origin(self) -> object:
        """Its context."""
        return self._span.get_span_context()

    def waited(self, seconds: float) -> None:
        """An event marks the end of the wait."""
        self._span.set_attribute("dibs.wait.duration", seconds)
        self._span.add_event("acquired")

    def link(self, origin: object) -> None:
        """To the load that was waited for."""
        if isinstance(origin, trace.SpanContext):
            self._span.add_link(origin)

    def end(self, outcome: str, error: BaseException | None) -> None:
        """With the class of the error, but not its text, which may hold personal data."""
        span = self._span
        if span.is_recording():
            span.set_attribute("dibs.outcome", outcome)
            if isinstance(error, Exception):
                kind = _class_of(error)
                span.set_attribute("error.type", kind)
                span.set_status(Status(StatusCode.ERROR, kind))
        span.end()
        # Set, not reset by a token: a generator may end in another thread or task than it began
        # in, where the token is refused. There, another span is the current one, and stays it.
        if trace.get_current_span() is span:
            context.attach(self._before)


class _NoSpan:
    """Without an SDK there is no trace."""

    __slots__ = ()
    origin = None

    def waited(self, seconds: float) -> None:
        """Nothing."""

    def link(self, origin: object) -> None:
        """Nothing."""

    def end(self, outcome: str, error: BaseException | None) -> None:
        """Nothing."""


_NO_SPAN = _NoSpan()


def _is_real(provider: TracerProvider) -> bool:
    """False: of the API only, without an SDK."""
    return not isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider)


def _class_of(error: BaseException) -> str:
    kind = type(error)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )


class OpenTelemetryListener:
    """Makes spans of holds, claims, loads and waits, and metrics of all events.

    *tracer_provider*, *meter_provider*: the default is what the application has set for all
    libraries. *traces*, *metrics*: False makes none of them. Attributes contain names, which are
    templates, never keys; in metrics, names beyond the first *most_names* are counted together as
    "other". It may be called from any thread. UsageError: *most_names* is less than 1.
    """

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        *,
        traces: bool = True,
        metrics: bool = True,
        most_names: int = 100,
    ) -> None:
        self._names = Names(most_names)
        self._tracer = trace.get_tracer(_LIBRARY, __version__, tracer_provider)
        self._attributes: dict[tuple[str, str | None], dict[str, str]] = {}
        self._traces = False if not traces else None if tracer_provider is None else True
        """None: it depends on what the application sets for all libraries, which may come later."""
        self._look_at = 0.0
        self.counted: frozenset[Kind] = KINDS if metrics else frozenset()
        """It needs no events, only their number and their durations."""
        self.kinds: frozenset[Kind] = self.counted
        self._metrics = _Metrics(meter_provider, self._names) if metrics else None

    def __call__(self, event: Event) -> None:
        """Count *event*."""
        self.counter(event.kind, event.name, guarded=event.guarded)(duration_of(event))

    def counter(self, kind: Kind, name: str, *, guarded: bool | None) -> Counter:
        """What counts events of *kind*."""
        assert self._metrics is not None
        return self._metrics.counter(kind, name, guarded=guarded)

    @property
    def makes_spans(self) -> bool:
        """False: there is no SDK, so that nobody would see them.

        It is looked for ten times a second at most: a look costs as much as counting an event.
        """
        if self._traces is None and monotonic() >= self._look_at:
            self._look_at = monotonic() + 0.1
            self._traces = _is_real(trace.get_tracer_provider()) or None
        return bool(self._traces)

    def span(
        self, kind: SpanKind, name: str, reason: str | None, *, background: bool, origin: object
    ) -> _Span | _NoSpan:
        """Begin a span, and make it the current one."""
        before = context.get_current()
        attributes = self._attributes.get((name, reason)) or self._learn(name, reason)
        span = self._tracer.start_span(
            f"{kind} {attributes['dibs.name']}",
            Context() if background else before,
            attributes=attributes,
            links=[Link(origin)] if isinstance(origin, trace.SpanContext) else None,
        )
        return _NO_SPAN if span is trace.INVALID_SPAN else _Span(span, before)

    def origin(self) -> object:
        """The current span, if there is a trace."""
        found = trace.get_current_span().get_span_context()
        return found if found.is_valid else None

    def _learn(self, name: str, reason: str | None) -> dict[str, str]:
        attributes = {"dibs.name": printable(name)}
        if reason is not None:
            attributes["dibs.load.reason"] = reason
        if len(self._attributes) < 1000:
            self._attributes[name, reason] = attributes
        return attributes

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self._names)} names>"


class _Series:
    """What is counted of events of one kind and name, guarded or not."""

    __slots__ = ("_attributes", "_lock", "_record", "attributes", "number")

    def __init__(self, key: EventKey, lock: threading.RLock, histogram: Histogram | None) -> None:
        kind, name, guarded = key
        self._lock = lock
        self.number = 0
        self.attributes: dict[str, str | bool] = {"dibs.event": kind, "dibs.name": name}
        if guarded is not None:
            self.attributes["dibs.guarded"] = guarded
        self._attributes = {"dibs.name": name, "dibs.outcome": kind}
        self._record = None if histogram is None else histogram.record

    def count(self, seconds: float | None) -> None:
        """One more."""
        with self._lock:
            self.number += 1
        if seconds and self._record is not None:
            self._record(seconds, self._attributes)


class _Metrics:
    def __init__(self, provider: MeterProvider | None, names: Names) -> None:
        meter = metrics.get_meter(_LIBRARY, __version__, provider)
        self._names = names
        self._lock = fork_safe_lock()
        self._series: dict[EventKey, _Series] = {}
        self._durations = {
            name: _histogram(meter, name, description) for name, description in _DURATIONS.items()
        }
        # Observed when metrics are exported, because counting here is ten times as fast.
        meter.create_observable_counter(
            "dibs.events", [self._observe], "{event}", "What happened, by kind and name."
        )
        meter.create_observable_up_down_counter(
            "dibs.claim.open", [_observe_claims], "{claim}", "Open claims of this process."
        )

    def counter(self, kind: Kind, name: str, *, guarded: bool | None) -> Counter:
        """What counts such events; names beyond the limit share one."""
        key = kind, self._names(name), guarded
        with self._lock:
            series = self._series.get(key)
            if series is None:
                recorded = None if guarded is False else _RECORDED.get(kind)
                histogram = None if recorded is None else self._durations[recorded]
                series = self._series[key] = _Series(key, self._lock, histogram)
        return series.count

    def _observe(self, options: CallbackOptions) -> Iterable[Observation]:
        with self._lock:
            counts = [(series.number, series.attributes) for series in self._series.values()]
        for number, attributes in counts:
            yield Observation(number, attributes)


def _observe_claims(options: CallbackOptions) -> Iterable[Observation]:
    yield Observation(open_claims())


def _histogram(meter: Meter, name: str, description: str) -> Histogram:
    return meter.create_histogram(
        name, "s", description, explicit_bucket_boundaries_advisory=_BUCKETS
    )
