"""Events as spans and metrics of OpenTelemetry.

    dibs = Dibs("redis://…", listeners=[OpenTelemetryListener()])

docs/tracing.md has every span, attribute and metric. Keys are never written, only their names.
"""

import threading
from collections.abc import Callable, Iterable

try:
    from opentelemetry import context, metrics, trace
    from opentelemetry.context import Context
    from opentelemetry.metrics import CallbackOptions, Histogram, Meter, MeterProvider, Observation
    from opentelemetry.trace import Link, Status, StatusCode, TracerProvider
    from opentelemetry.trace import Span as OtelSpan
    from opentelemetry.util.types import Attributes
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        'opentelemetry-api is not installed: pip install "dibs[opentelemetry]"', name=error.name
    ) from error

from .. import __version__
from ..claims import open_claims
from ..events import KINDS, Event, Kind, SpanKind
from ._names import OTHER, Names, printable

__all__ = ["OpenTelemetryListener"]

_LIBRARY = "dibs"
_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300)
"""Those of the semantic conventions for database clients, and three more: holds may be long."""

_DURATIONS: dict[str, tuple[str, str]] = {
    "dibs.hold.duration": ("held", "Time for which leases and claims were held."),
    "dibs.wait.duration": ("waited", "Time that callers waited for other holders or loads."),
    "dibs.load.duration": ("took", "Time that loads of cached values took."),
    "dibs.run.duration": ("took", "Time that scheduled functions ran."),
    "dibs.outage.duration": ("lasted", "Time for which Redis was unavailable."),
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
        self.kinds: frozenset[Kind] = KINDS if metrics else frozenset()
        """The events that it wants."""
        self.makes_spans = traces
        """False: `span` is not called."""
        if metrics:
            self._metrics = _Metrics(meter_provider, self._names)

    def __call__(self, event: Event) -> None:
        """Count *event*."""
        self._metrics.count(event)

    def span(
        self, kind: SpanKind, name: str, reason: str | None, *, behind: bool, origin: object
    ) -> _Span | _NoSpan:
        """Begin a span, and make it the current one."""
        before = context.get_current()
        attributes = self._attributes.get((name, reason)) or self._learn(name, reason)
        span = self._tracer.start_span(
            f"{kind} {attributes['dibs.name']}",
            Context() if behind else before,
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


_Key = tuple[Kind, str, bool | None]
"""Kind and name of an event, and whether it is guarded."""


class _Series:
    """What is counted of events of one kind and name, guarded or not."""

    __slots__ = ("attributes", "count", "counted", "fact", "record")

    def __init__(self, key: _Key) -> None:
        kind, name, guarded = key
        self.count = 0
        self.counted: dict[str, str | bool] = {"dibs.event": kind, "dibs.name": name}
        if guarded is not None:
            self.counted["dibs.guarded"] = guarded
        self.attributes = {"dibs.name": name, "dibs.outcome": kind}
        self.fact = ""
        """The field that has a duration; "": there is none."""
        self.record: Callable[[float, Attributes], None] | None = None


class _Metrics:
    def __init__(self, provider: MeterProvider | None, names: Names) -> None:
        meter = metrics.get_meter(_LIBRARY, __version__, provider)
        self._names = names
        self._lock = threading.Lock()
        self._known: dict[_Key, _Series] = {}
        """By kind and name, as they come: names beyond the limit share a series."""
        self._series: dict[_Key, _Series] = {}
        self._durations = {
            name: _histogram(meter, name, description)
            for name, (_, description) in _DURATIONS.items()
        }
        # Observed when metrics are exported, because counting here is ten times as fast.
        meter.create_observable_counter(
            "dibs.events", [self._observe], "{event}", "What happened, by kind and name."
        )
        meter.create_observable_up_down_counter(
            "dibs.claim.open", [_observe_claims], "{claim}", "Open claims of this process."
        )

    def count(self, event: Event) -> None:
        """Count *event*, and record its duration."""
        key = event.kind, event.name, event.guarded
        series = self._known.get(key) or self._learn(key)
        with self._lock:
            series.count += 1
        if series.record is not None:
            seconds = getattr(event, series.fact)
            if seconds:
                series.record(seconds, series.attributes)

    def _learn(self, key: _Key) -> _Series:
        kind, name, guarded = key
        called = self._names(name)
        with self._lock:
            series = self._series.get((kind, called, guarded))
            if series is None:
                series = self._series[kind, called, guarded] = _Series((kind, called, guarded))
                recorded = _RECORDED.get(kind)
                if recorded is not None and guarded is not False:
                    series.fact = _DURATIONS[recorded][0]
                    series.record = self._durations[recorded].record
            if called is not OTHER:
                self._known[key] = series
        return series

    def _observe(self, options: CallbackOptions) -> Iterable[Observation]:
        with self._lock:
            counts = [(series.count, series.counted) for series in self._series.values()]
        for count, attributes in counts:
            yield Observation(count, attributes)


def _observe_claims(options: CallbackOptions) -> Iterable[Observation]:
    yield Observation(open_claims())


def _histogram(meter: Meter, name: str, description: str) -> Histogram:
    return meter.create_histogram(
        name, "s", description, explicit_bucket_boundaries_advisory=_BUCKETS
    )
