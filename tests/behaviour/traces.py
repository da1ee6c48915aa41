"""Traces of the OpenTelemetry SDK, kept in memory."""

from collections.abc import Iterable
from typing import Any

from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from dibs.integrations.opentelemetry import OpenTelemetryListener


class _Beginnings(SpanProcessor):
    def __init__(self, names: list[str]) -> None:
        self._names = names

    def on_start(self, span: Span, parent_context: object = None) -> None:
        self._names.append(span.name)


class Traces:
    """What was exported, and a listener and a tracer of the application that export there."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.begun: list[str] = []
        """The names of all spans, in the order in which they began."""
        self.provider.add_span_processor(_Beginnings(self.begun))
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.listener = OpenTelemetryListener(self.provider, NoOpMeterProvider())
        self.tracer = self.provider.get_tracer("application")

    @property
    def spans(self) -> list[ReadableSpan]:
        """All that have ended, in that order."""
        return list(self.exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        [span] = self.named(name)
        return span


def outcome(span: ReadableSpan) -> Any:
    return (span.attributes or {}).get("dibs.outcome")


def outcomes(spans: Iterable[ReadableSpan]) -> list[Any]:
    return [outcome(span) for span in spans]


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    return span.parent is not None and span.parent.span_id == parent.context.span_id


def is_linked(span: ReadableSpan, other: ReadableSpan) -> bool:
    return other.context.span_id in [link.context.span_id for link in span.links]
