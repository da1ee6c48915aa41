"""Events as spans and metrics of OpenTelemetry.

    dibs = Dibs("redis://…", listeners=[OpenTelemetryListener()])

docs/logs-and-traces.md has every span, attribute and metric. Keys are never written, only names.
"""

from collections.abc import Iterable
from time import monotonic

from . import needs

with needs("opentelemetry"):
    from opentelemetry import context, trace
    from opentelemetry.context import Context
    from opentelemetry.metrics import (
        CallbackOptions,
        Histogram,
        Meter,
        MeterProvider,
        Observation,
        get_meter,
    )
    from opentelemetry.trace import Link, Status, StatusCode, TracerProvider
    from opentelemetry.trace import Span as OtelSpan

from .. import __version__
from .._event_counting import Observer, Series, Tally, label_text
from ..claims import open_claims
from ..events import KINDS, EventKey, Kind, Quantity, SpanKind

__all__ = ["OpenTelemetryListener"]

_LIBRARY = "dibs"
_BUCKETS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300)
"""Those of the semantic conventions for database clients, and three more: holds may be long."""

_DURATIONS: dict[Quantity, str] = {
    "hold": "Time for which leases and claims were held.",
    "wait": "Time that callers waited for other holders or loads.",
    "load": "Time that loads of cached values took.",
    "run": "Time that scheduled functions ran.",
    "outage": "Time for which Redis was unavailable.",
}
"""Metrics named `dibs.hold.duration` …"""


class _Span:
    """One span, which is the current one until it ends."""

    __slots__ = ("_before", "_span")

    def __init__(self, span: OtelSpan, before: Context) -> None:
        self._span = span
        self._before = before
        context.attach(trace.set_span_in_context(span, before))

    @property
    def origin(self) -> object:
        """The context of the span."""
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
        """Do nothing."""

    def link(self, origin: object) -> None:
        """Do nothing."""

    def end(self, outcome: str, error: BaseException | None) -> None:
        """Do nothing."""


_NO_SPAN = _NoSpan()


def _is_real(provider: TracerProvider) -> bool:
    """Return False if of the API only, without an SDK."""
    return not isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider)


def _class_of(error: BaseException) -> str:
    kind = type(error)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )


class _Recorder:
    """Adds durations of one name to a histogram, with what they ended with."""

    __slots__ = ("_attributes", "_histogram")

    def __init__(self, histogram: Histogram, attributes: dict[str, str]) -> None:
        self._histogram = histogram
        self._attributes = attributes

    def observe(self, amount: float, /) -> None:
        """Record *amount* seconds."""
        self._histogram.record(amount, self._attributes)


class _Series(Series):
    """Durations are recorded at once: the SDK may keep the current span beside them."""

    __slots__ = ()

    def count(self, seconds: float | None) -> None:
        """Count an event."""
        super().count(None)
        if seconds and self.durations is not None:
            self.durations.observe(seconds)


class OpenTelemetryListener(Tally):
    """Makes spans of holds, claims, loads and waits, and metrics of all events.

    Attributes of spans contain names, which are templates, never keys. It may be called from any
    thread.

    Args:
        tracer_provider: Default: the one that the application has set for all libraries.
        meter_provider: Default: the one that the application has set for all libraries.
        traces: False makes no spans.
        metrics: False makes no metrics.
        most_names: In metrics, names beyond the first *most_names* are counted together as "other".

    Raises:
        UsageError: *most_names* is less than 1.
    """

    series_class = _Series

    def __init__(
        self,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        *,
        traces: bool = True,
        metrics: bool = True,
        most_names: int = 100,
    ) -> None:
        super().__init__(most_names)
        self._tracer = trace.get_tracer(_LIBRARY, __version__, tracer_provider)
        self._attributes: dict[tuple[str, str | None], dict[str, str]] = {}
        self._traces = False if not traces else None if tracer_provider is None else True
        """None: it depends on what the application sets for all libraries, which may come later."""
        self._look_at = 0.0
        self.counted: frozenset[Kind] = KINDS if metrics else frozenset()
        """It needs no events, only their number and their durations."""
        self.kinds: frozenset[Kind] = self.counted
        self._counts: dict[EventKey, int] = {}
        self._histograms: dict[Quantity, Histogram] = {}
        if metrics:
            self._create_histograms(get_meter(_LIBRARY, __version__, meter_provider))

    @property
    def makes_spans(self) -> bool:
        """Return whether an SDK is configured; if not, the spans would not be seen.

        This is checked ten times a second at most: a check costs as much as counting an event.
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
        attributes = self._attributes.get((name, reason)) or self._attributes_of(name, reason)
        span = self._tracer.start_span(
            f"{kind} {attributes['dibs.name']}",
            Context() if background else before,
            attributes=attributes,
            links=[Link(origin)] if isinstance(origin, trace.SpanContext) else None,
        )
        return _NO_SPAN if span is trace.INVALID_SPAN else _Span(span, before)

    def origin(self) -> object:
        """Return the current span, if there is a trace."""
        span_context = trace.get_current_span().get_span_context()
        return span_context if span_context.is_valid else None

    def _attributes_of(self, name: str, reason: str | None) -> dict[str, str]:
        attributes = {"dibs.name": label_text(name)}
        if reason is not None:
            attributes["dibs.load.reason"] = reason
        if len(self._attributes) < 1000:
            self._attributes[name, reason] = attributes
        return attributes

    # ---- metrics

    def _create_histograms(self, meter: Meter) -> None:
        for quantity, text in _DURATIONS.items():
            self._histograms[quantity] = meter.create_histogram(
                f"dibs.{quantity}.duration", "s", text, explicit_bucket_boundaries_advisory=_BUCKETS
            )
        # Observed when metrics are exported, because counting here is ten times as fast.
        meter.create_observable_counter(
            "dibs.events", [self._observe_counts], "{event}", "What happened, by kind and name."
        )
        meter.create_observable_up_down_counter(
            "dibs.claim.open", [_observe_claims], "{claim}", "Open claims of this process."
        )

    def _learn_series(self, series: Series, key: EventKey) -> None:
        def add(number: int) -> None:
            self._counts[key] = self._counts.get(key, 0) + number

        series.add.append(add)

    def _observer_of(self, quantity: Quantity, key: EventKey) -> Observer | None:
        kind, name, _ = key
        histogram = self._histograms.get(quantity)
        attributes = {"dibs.name": name, "dibs.outcome": kind}
        return None if histogram is None else _Recorder(histogram, attributes)

    def _observe_counts(self, options: CallbackOptions) -> Iterable[Observation]:
        with self._lock:
            self._add_up()
            counts = self._counts.copy()
        for (kind, name, guarded), number in counts.items():
            attributes: dict[str, str | bool] = {"dibs.event": kind, "dibs.name": name}
            if guarded is not None:
                attributes["dibs.guarded"] = guarded
            yield Observation(number, attributes)


def _observe_claims(options: CallbackOptions) -> Iterable[Observation]:
    yield Observation(open_claims())
