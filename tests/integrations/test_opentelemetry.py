"""OpenTelemetry: metrics, and spans where programs are rough with them."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from opentelemetry import context, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

from dibs import AsyncDibs, Busy, Dibs, UsageError
from dibs.events import Event
from dibs.integrations.opentelemetry import OpenTelemetryListener
from dibs.testing import Child, Server, aeventually
from tests.behaviour.traces import Traces, is_child, is_linked, outcome, outcomes


class Metrics:
    """What a listener exports."""

    def __init__(self, **options: Any) -> None:
        self.reader = InMemoryMetricReader()
        provider = MeterProvider([self.reader], shutdown_on_exit=False)
        self.listener = OpenTelemetryListener(
            trace.NoOpTracerProvider(), provider, **{"traces": False, **options}
        )

    def read(self) -> dict[str, Any]:
        found = self.reader.get_metrics_data()
        assert found is not None
        return {
            metric.name: metric
            for resource in found.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def points(self, name: str) -> dict[tuple[Any, ...], Any]:
        points = self.read()[name].data.data_points
        return {tuple(sorted(point.attributes.items())): point for point in points}


def test_the_name_of_a_span_is_text_that_every_exporter_can_encode() -> None:
    """Else one span would lose the whole batch; and it is no longer than that of a metric."""
    traces = Traces()
    for name in ("shop\udcff", "x" * 5000):
        traces.listener.span("hold", name, None, background=False, origin=None).end(
            "acquired", None
        )
    assert [len(span.name.encode()) <= 205 for span in traces.spans] == [True, True]


def test_metrics_have_the_names_and_units_of_the_conventions(valkey: Server) -> None:
    """Durations are histograms in seconds; counts have a unit in braces; no suffix _total."""
    metrics = Metrics()
    with Dibs(valkey.url, budget=5, listeners=[metrics.listener]) as dibs:
        with dibs.hold("user:U4711", ttl=5), dibs.claim("order:U4711", window=5):
            with pytest.raises(Busy), dibs.hold("user:U4711", ttl=5):
                pytest.fail("held twice")
            assert metrics.points("dibs.claim.open")[()].value == 1
        dibs.get_or_load("menu:b1", lambda: "menu", ttl=5)
        found = metrics.read()
    assert {name: found[name].unit for name in sorted(found)} == {
        "dibs.claim.open": "{claim}",
        "dibs.events": "{event}",
        "dibs.hold.duration": "s",
        "dibs.load.duration": "s",
    }
    [held] = [
        point
        for attributes, point in metrics.points("dibs.hold.duration").items()
        if ("dibs.name", "user:*") in attributes
    ]
    assert held.count == 1 and held.explicit_bounds[0] == 0.001
    assert "U4711" not in str(found)


def test_every_event_is_counted_by_kind_name_and_guard(valkey: Server) -> None:
    """Each once; also those of several threads at once."""
    metrics = Metrics()

    def pairs(number: int) -> None:
        for _ in range(50):
            with dibs.hold(f"user:{number}", ttl=5):
                pass

    with Dibs(valkey.url, budget=5, listeners=[metrics.listener]) as dibs:
        threads = [threading.Thread(target=pairs, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    counts = metrics.points("dibs.events")
    for kind in ("acquired", "released"):
        key = (("dibs.event", kind), ("dibs.guarded", True), ("dibs.name", "user:*"))
        assert counts[key].value == 400


def test_names_beyond_the_limit_are_counted_together() -> None:
    """An id that was formatted into a name does not create ever more series."""
    metrics = Metrics(most_names=2)
    for name in ("a", "b", "c", "d"):
        metrics.listener(Event(kind="renewed", name=name, at=0.0))
    names = {dict(key)["dibs.name"]: p.value for key, p in metrics.points("dibs.events").items()}
    assert names == {"a": 1, "b": 1, "other": 2}
    with pytest.raises(UsageError, match="most_names"):
        OpenTelemetryListener(most_names=0)


def test_without_an_sdk_nothing_happens(valkey: Server) -> None:
    """A library may always have the listener: the application decides whether there are traces."""
    with Dibs(valkey.url, budget=5, listeners=[OpenTelemetryListener()]) as dibs:
        before = context.get_current()
        with dibs.hold("user:1", ttl=5):
            assert context.get_current() == before


def test_what_is_not_sampled_stays_so_in_the_block(valkey: Server) -> None:
    """The span is not recorded, but it is the parent: its children are not sampled either."""
    provider = TracerProvider(sampler=ALWAYS_OFF, shutdown_on_exit=False)
    with Dibs(valkey.url, budget=5, listeners=[OpenTelemetryListener(provider)]) as dibs:
        with dibs.hold("user:1", ttl=5):
            current = trace.get_current_span().get_span_context()
            assert current.is_valid and not current.trace_flags.sampled
        assert not trace.get_current_span().get_span_context().is_valid


def test_without_traces_no_span_is_begun(valkey: Server) -> None:
    """`traces=False` makes metrics only."""
    traces = Traces()
    listener = OpenTelemetryListener(traces.provider, traces=False)
    with Dibs(valkey.url, budget=5, listeners=[listener]) as dibs, dibs.hold("user:1", ttl=5):
        pass
    assert traces.spans == []


def test_a_trace_goes_on_from_a_parent_in_another_process(valkey: Server) -> None:
    """What was propagated, as by a queue's instrumentation, is the parent of a resumed lease."""
    traces = Traces()
    with Dibs(valkey.url, budget=5, listeners=[traces.listener]) as dibs:
        with traces.tracer.start_as_current_span("producer"):
            with dibs.hold("job:1", ttl=5) as lease:
                token = lease.detach(ttl=5)
                carried = trace.get_current_span().get_span_context()
        remote = trace.NonRecordingSpan(
            trace.SpanContext(carried.trace_id, carried.span_id, True, carried.trace_flags)
        )

        def consume() -> None:
            context.attach(trace.set_span_in_context(remote))
            with dibs.hold("job:1", ttl=5, token=token):
                pass

        contextvars.Context().run(consume)
    detached, resumed = traces.named("hold job:*")
    assert outcomes([detached, resumed]) == ["detached", "acquired"]
    assert is_child(resumed, detached)


# ---- generators, tasks, threads, forks


def test_a_generator_that_ends_elsewhere_leaves_the_current_span_alone(
    valkey: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """It is closed in a copy of its context, or in another one: no complaint, no wrong parent."""
    traces = Traces()

    def held() -> Iterator[None]:
        with dibs.hold("user:1", ttl=5):
            yield

    with Dibs(valkey.url, budget=5, listeners=[traces.listener]) as dibs:
        for elsewhere in (contextvars.copy_context, contextvars.Context):
            generator = held()
            contextvars.Context().run(next, generator)
            with traces.tracer.start_as_current_span("request") as request:
                elsewhere().run(generator.close)  # type: ignore[attr-defined]
                assert trace.get_current_span() is request
    assert outcomes(traces.named("hold user:*")) == ["acquired", "acquired"]
    assert not caplog.records


async def test_an_async_generator_that_is_collected_ends_its_span(valkey: Server) -> None:
    """The event loop closes it in its own task."""
    traces = Traces()

    async def held() -> AsyncIterator[None]:
        async with dibs.hold("user:1", ttl=5):
            yield

    async with AsyncDibs(valkey.url, budget=5, listeners=[traces.listener]) as dibs:
        generator = held()
        await anext(generator)
        del generator
        gc.collect()
        await aeventually(lambda: traces.spans)
    assert outcomes(traces.spans) == ["acquired"]


async def test_tasks_have_a_current_span_each(valkey: Server) -> None:
    """A hundred tasks that hold at the same time: the parent of each query is its own hold."""
    traces = Traces()

    async def work(number: int) -> None:
        async with dibs.hold(f"user:{number}", ttl=20):
            with traces.tracer.start_as_current_span(f"query {number}") as query:
                await asyncio.sleep(0)
                query.set_attribute("hold", number)

    async with AsyncDibs(valkey.url, budget=5, listeners=[traces.listener]) as dibs:
        await asyncio.gather(*[work(number) for number in range(100)])
    holds = {span.context.span_id for span in traces.named("hold user:*")}
    queries = [span for span in traces.spans if span.name.startswith("query")]
    parents = {query.parent.span_id for query in queries if query.parent is not None}
    assert len(holds) == 100 and parents == holds


async def test_a_load_that_is_cancelled_ends_its_span(valkey: Server) -> None:
    """Its last caller has left. Cancellation is an outcome, and no error."""
    traces = Traces()
    began = asyncio.Event()

    async def load() -> str:
        began.set()
        await asyncio.sleep(60)
        return "never"

    async with AsyncDibs(valkey.url, budget=5, listeners=[traces.listener]) as dibs:
        caller = asyncio.create_task(dibs.get_or_load("menu:b1", load, ttl=60))
        await began.wait()
        caller.cancel()
        await aeventually(lambda: traces.spans)
        with pytest.raises(asyncio.CancelledError):
            await caller
        with pytest.raises(TimeoutError):
            await dibs.get_or_load("menu:b2", load, ttl=60, load_timeout=0.05)
    cancelled, late = traces.spans
    assert outcomes([cancelled, late]) == ["cancelled", "timeout"]
    assert cancelled.status.is_unset and not late.status.is_ok
    assert (late.attributes or {})["error.type"] == "TimeoutError"


async def test_a_cancelled_hold_ends_its_span(valkey: Server) -> None:
    """While it waits, and while its block runs."""
    traces = Traces()
    began = asyncio.Event()

    async def hold(wait: float) -> None:
        async with dibs.hold("user:1", ttl=20, wait=wait):
            began.set()
            await asyncio.sleep(60)

    async with AsyncDibs(valkey.url, budget=5, listeners=[traces.listener]) as dibs:
        holder = asyncio.create_task(hold(0))
        await began.wait()
        waiter = asyncio.create_task(hold(20))
        await asyncio.sleep(0.05)
        for task in (waiter, holder):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    assert outcomes(traces.spans) == ["cancelled", "acquired"]
    assert all(span.status.is_unset for span in traces.spans)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_an_event_loop_that_ends_during_a_hold_does_no_harm(valkey: Server) -> None:
    """The next loop has its own spans."""
    traces = Traces()
    dibs = AsyncDibs(valkey.url, budget=5, listeners=[traces.listener])

    async def stop_inside() -> None:
        hold = dibs.hold("user:1", ttl=0.2)
        await hold.__aenter__()

    async def once_more() -> None:
        async with dibs.hold("user:2", ttl=5):
            pass
        await dibs.aclose()

    asyncio.run(stop_inside())
    asyncio.run(once_more())
    assert outcomes(traces.spans) == ["acquired"] and traces.spans[0].parent is None


def test_an_exporter_that_fails_hurts_nobody(valkey: Server) -> None:
    """The block runs and the key is released."""

    class Broken(SimpleSpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            raise RuntimeError("no disk")

        def on_end(self, span: Any) -> None:
            raise RuntimeError("no disk")

    traces = Traces()
    traces.provider.add_span_processor(Broken(traces.exporter))
    with Dibs(valkey.url, budget=5, listeners=[traces.listener]) as dibs:
        for _ in range(2):
            with dibs.hold("user:1", ttl=5) as lease:
                assert lease.guarded
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_many_spans_leave_nothing_behind() -> None:
    """Every one ends, none is the parent of the next, and none stays the current one."""
    traces = Traces()
    with Dibs("redis://127.0.0.1:1", listeners=[traces.listener]) as dibs:
        for number in range(1000):
            with dibs.hold(f"user:{number}", ttl=5):
                pass
    spans = traces.spans
    assert len(spans) == 1000 and all(span.parent is None for span in spans)
    assert context.get_current() == {}


@pytest.mark.only_on("linux", "darwin")
def test_a_forked_child_has_spans_of_its_own(valkey: Server) -> None:
    """It continues the trace of its parent; the hold of the parent stays the parent's."""

    def work(url: str) -> None:
        traces = Traces()
        with Dibs(url, budget=5, listeners=[traces.listener]) as dibs:
            with dibs.hold("user:1", ttl=5):
                pid = os.fork()
                if pid == 0:
                    with dibs.hold("child:1", ttl=5):
                        pass
                    print("child", outcomes(traces.spans), flush=True)
                    os._exit(0)
                os.waitpid(pid, 0)
            print("parent", outcomes(traces.spans), flush=True)

    code = "\n".join(
        [
            "import os, sys",
            "from dibs import Dibs",
            "from tests.behaviour.traces import Traces, outcomes",
            _source_of(work),
            f"work({valkey.url!r})",
        ]
    )
    with Child(code) as child:
        assert child.line(within=60) == "child ['acquired']"
        assert child.line(within=60) == "parent ['acquired']"


def _source_of(function: Any) -> str:
    import inspect
    import textwrap

    return textwrap.dedent(inspect.getsource(function))


@pytest.mark.parametrize(
    ("integration", "package", "extra"),
    [("opentelemetry", "opentelemetry", "opentelemetry"), ("structlog", "structlog", "structlog"),
     ("sentry", "sentry_sdk", "sentry"), ("prometheus", "prometheus_client", "prometheus"),
     ("fastapi", "fastapi", "fastapi"), ("starlette", "starlette", "starlette"),
     ("flask", "flask", "flask"), ("django", "django", "django"), ("drf", "django", "drf"),
     ("celery", "celery", "celery"),
     ("rq", "rq", "rq"), ("dramatiq", "dramatiq", "dramatiq"), ("taskiq", "taskiq", "taskiq"),
     ("arq", "arq", "arq"), ("sqlalchemy", "sqlalchemy", "sqlalchemy")],
)  # fmt: skip
def test_a_package_that_is_missing_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, integration: str, package: str, extra: str
) -> None:
    """The error says what to install."""
    for module in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    for module in [name for name in sys.modules if name.startswith("dibs.integrations.")]:
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(ModuleNotFoundError, match=rf'pip install "pydibs\[{extra}\]"'):
        __import__(f"dibs.integrations.{integration}")


async def test_a_run_of_a_scheduled_function_is_a_trace(valkey: Server) -> None:
    """Its own trace, regardless of the current span where the scheduler began."""
    traces = Traces()
    ran = asyncio.Event()
    async with AsyncDibs(valkey.url, budget=5, listeners=[traces.listener]) as dibs:

        @dibs.scheduled(every=1, key="nightly")
        async def nightly() -> None:
            with traces.tracer.start_as_current_span("query"):
                ran.set()

        with traces.tracer.start_as_current_span("start"):
            async with dibs.scheduler():
                await ran.wait()
                await aeventually(lambda: traces.named("run nightly"))
    run = traces.named("run nightly")[0]
    assert run.parent is None and outcome(run) == "finished"
    assert is_linked(run, traces.one("start")) and is_child(traces.named("query")[0], run)
