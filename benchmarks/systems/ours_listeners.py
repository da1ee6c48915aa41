"""dibs with each listener, and what OpenTelemetry itself costs for a span."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any

from dibs import AsyncDibs

from . import TTL
from .ours import Tasks


class _ListenedTasks(Tasks, ABC):
    def __init__(self, port: int, callers: int) -> None:
        url = f"redis://127.0.0.1:{port}"
        self.client = AsyncDibs(url, on_outage="closed", listeners=[self.listener()])

    @abstractmethod
    def listener(self) -> Any:
        """What is called with the events of the client."""


class NothingTasks(_ListenedTasks):
    def listener(self) -> Any:
        return lambda event: None


class PrometheusTasks(_ListenedTasks):
    def listener(self) -> Any:
        from prometheus_client import CollectorRegistry

        from dibs.integrations.prometheus import PrometheusListener

        return PrometheusListener(CollectorRegistry())


class ConsoleTasks(_ListenedTasks):
    def listener(self) -> Any:
        from dibs.console.statistics import Statistics

        return Statistics()


class LoggingTasks(_ListenedTasks):
    """As it is: INFO is enabled, so that what concerns one call alone is not logged."""

    def listener(self) -> Any:
        from dibs.integrations.logging import LoggingListener

        return LoggingListener(_silent_logger(logging.INFO))


class AllLoggingTasks(_ListenedTasks):
    def listener(self) -> Any:
        from dibs.integrations.logging import LoggingListener

        return LoggingListener(_silent_logger(logging.DEBUG), level="DEBUG")


def _silent_logger(level: int) -> logging.Logger:
    logger = logging.getLogger(f"bench.{level}")
    logger.setLevel(level)
    logger.propagate = False
    logger.addHandler(logging.NullHandler())
    return logger


class StructlogTasks(_ListenedTasks):
    level = logging.INFO

    def listener(self) -> Any:
        import structlog

        from dibs.integrations.structlog import StructlogListener

        structlog.configure(
            processors=[structlog.processors.add_log_level, structlog.processors.JSONRenderer()],
            wrapper_class=structlog.make_filtering_bound_logger(self.level),
            logger_factory=structlog.ReturnLoggerFactory(),
        )
        return StructlogListener(level=self.level)


class AllStructlogTasks(StructlogTasks):
    level = logging.DEBUG


class SentryTasks(_ListenedTasks):
    def listener(self) -> Any:
        import sentry_sdk
        from sentry_sdk.transport import Transport

        from dibs.integrations.sentry import SentryListener

        class Nowhere(Transport):
            def capture_envelope(self, envelope: Any) -> None:
                pass

        sentry_sdk.init(dsn="http://key@localhost/1", transport=Nowhere)
        return SentryListener()


class OpenTelemetryTasks(_ListenedTasks):
    """Without an SDK: what a library pays in a program that does not use OpenTelemetry."""

    def listener(self) -> Any:
        from dibs.integrations.opentelemetry import OpenTelemetryListener

        return OpenTelemetryListener()


class UnsampledTasks(_ListenedTasks):
    ratio = 0.0

    def listener(self) -> Any:
        from dibs.integrations.opentelemetry import OpenTelemetryListener

        return OpenTelemetryListener(
            tracer_provider=tracer_provider(self.ratio), meter_provider=self.meter_provider()
        )

    def meter_provider(self) -> Any:
        from opentelemetry.metrics import NoOpMeterProvider

        return NoOpMeterProvider()


class SampledTasks(UnsampledTasks):
    ratio = 1.0


class MetricsTasks(UnsampledTasks):
    def meter_provider(self) -> Any:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader

        return MeterProvider([InMemoryMetricReader()])

    def listener(self) -> Any:
        from opentelemetry.trace import NoOpTracerProvider

        from dibs.integrations.opentelemetry import OpenTelemetryListener

        return OpenTelemetryListener(
            tracer_provider=NoOpTracerProvider(), meter_provider=self.meter_provider()
        )


def tracer_provider(ratio: float) -> Any:
    """One that samples such a part of all traces, and ends what it has recorded nowhere."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

    return TracerProvider(sampler=TraceIdRatioBased(ratio))


class BareSpanTasks(Tasks):
    """No listener; around each pair a span of the SDK with the two attributes that ours has."""

    ratio = 1.0

    def pair_on(self, key: str) -> Callable[[], Awaitable[None]]:
        hold = self.client.hold
        tracer = tracer_provider(self.ratio).get_tracer("bench")

        async def pair() -> None:
            with tracer.start_as_current_span("hold bench:*") as span:
                async with hold(key, ttl=TTL):
                    span.set_attribute("dibs.name", "bench:*")
                    span.set_attribute("dibs.outcome", "acquired")

        return pair


class BareUnsampledTasks(BareSpanTasks):
    ratio = 0.0
