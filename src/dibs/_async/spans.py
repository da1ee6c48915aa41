"""Spans of a trace: around blocks that hold or claim a key, around loads, and around waits.

Only where a listener makes spans (`EventSink.tracers`); otherwise nothing here is used.
"""

from collections.abc import Callable, Coroutine
from functools import partial
from types import TracebackType
from typing import Any

from .._core.lease import Holding, LeaseState
from .._events import EventSink, Origins
from .._tasks import Flight, current_flight, is_cancellation, monotonic
from ..errors import Busy, Duplicate, LeaseLost, Mismatch, Unavailable
from .claim import AsyncClaim, AsyncClaiming
from .hold import AsyncHold, AsyncLease
from .lease_table import AsyncLeases

_OUTCOMES: tuple[tuple[type[BaseException], str], ...] = (
    (Busy, "busy"),
    (Duplicate, "duplicate"),
    (Mismatch, "mismatch"),
    (LeaseLost, "lost"),
    (Unavailable, "unavailable"),
)
_EXPECTED = (Busy, Duplicate)
"""Answers to a caller who came second: no error."""


class AsyncTracedHold(AsyncHold):
    """A hold with a span, from the request for the key to the end of the block."""

    __slots__ = ("_span", "_taken")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._taken: Any = None
        """The span of a lease that was taken before its block begins."""
        self._span: Any = None

    async def take(self) -> Holding | None:
        """Enter it; a refusal ends the span."""
        span, since = self._leases.events.span("hold", self._call.name), monotonic()
        try:
            refusal = await super().take()
        except BaseException as error:
            _end_refused(span, error)
            raise
        if refusal is not None:
            span.end("busy")
            return refusal
        if self._call.options.wait:
            span.waited(monotonic() - since)
        self._taken = span
        return None

    async def __aenter__(self) -> AsyncLease:
        pending, self._taken = self._taken, None
        span, since = pending or self._leases.events.span("hold", self._call.name), monotonic()
        try:
            lease = await super().__aenter__()
        except BaseException as error:
            _end_refused(span, error)
            raise
        if pending is None and self._call.options.wait:
            span.waited(monotonic() - since)
        self._span = span
        return lease

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        state, span, self._span = self._state, self._span, None
        leave = partial(super().__aexit__, kind, error, traceback)
        await _leave(span, leave, error, lambda: _outcome_of(state, "acquired"))


class AsyncTracedClaiming(AsyncClaiming[Any]):
    """A claim with a span, from the request for the key to the end of the block."""

    __slots__ = ("_span",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._span: Any = None

    async def take(self) -> AsyncClaim[Any]:
        """Enter it; a refusal ends the span."""
        call = self._submission.call
        span, since = self._leases.events.span("claim", call.name), monotonic()
        try:
            claim = await super().take()
        except BaseException as error:
            _end_refused(span, error)
            raise
        if call.options.wait:
            span.waited(monotonic() - since)
        self._span = span
        return claim

    async def __aenter__(self) -> AsyncClaim[Any]:
        before = self._span
        try:
            return await super().__aenter__()
        except BaseException as error:
            span, self._span = self._span, before
            if span is not None and span is not before:
                _end_refused(span, error)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        claim, span, self._span = self._claim, self._span, None
        assert claim is not None
        leave = partial(super().__aexit__, kind, error, traceback)

        def outcome() -> str:
            return _outcome_of(claim._lease, "claimed")  # pyright: ignore[reportPrivateUsage]

        await _leave(span, leave, error, outcome)


def traced_hold(leases: AsyncLeases, *args: Any, **kwargs: Any) -> AsyncHold:
    """Return a hold; with a span, if a listener makes spans at present."""
    kind = AsyncTracedHold if leases.events.tracers else AsyncHold
    return kind(leases, *args, **kwargs)


def traced_claiming(leases: AsyncLeases, *args: Any, **kwargs: Any) -> AsyncClaiming[Any]:
    """Return a claim; with a span, if a listener makes spans at present."""
    kind = AsyncTracedClaiming if leases.events.tracers else AsyncClaiming
    return kind(leases, *args, **kwargs)


async def _leave(
    span: Any,
    leave: Callable[[], Coroutine[Any, Any, None]],
    error: BaseException | None,
    outcome: Callable[[], str],
) -> None:
    """Leave a block, and end its span with its outcome; *error*: what the block raised."""
    try:
        await leave()
    except BaseException as other:
        error = other
        raise
    finally:
        span.end(outcome(), error)


def _end_refused(span: Any, error: BaseException) -> None:
    span.end(_refusal(error), None if isinstance(error, _EXPECTED) else error)


def _refusal(error: BaseException) -> str:
    """Return the outcome of a block that did not begin."""
    known = next((code for kind, code in _OUTCOMES if isinstance(error, kind)), None)
    return known or ("cancelled" if is_cancellation(error) else "failed")


def _outcome_of(state: LeaseState | None, usual: str) -> str:
    """Return the outcome of a block that has ended. None: it was a replay."""
    if state is None:
        return "replayed"
    if state.is_detached:
        return "detached"
    if not state.guarded:
        return "unguarded"
    return "lost" if state.is_lost else usual


# ---- loads


async def load_in_span(
    events: EventSink, name: str, reason: str, load: Callable[[], Coroutine[Any, Any, Any]]
) -> Any:
    """Return what *load* returns. Callers who join our flight are linked to the span."""
    span, flight = events.span("load", name, reason), current_flight()
    if flight is not None:
        flight.origins = span.origins
    return await _work(span, load, "loaded")


async def _work(span: Any, work: Callable[[], Coroutine[Any, Any, Any]], outcome: str) -> Any:
    """Return what *work* returns. The span ends with *outcome*, or with its failure."""
    try:
        result = await work()
    except BaseException as error:
        span.end(_failure(error), error)
        raise
    span.end(outcome)
    return result


def _failure(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "timeout"
    return "cancelled" if is_cancellation(error) else "failed"


async def join_in_span(events: EventSink, name: str, flight: Flight) -> Any:
    """Return what another caller's flight in this process finds; the span is linked to its load."""
    span = events.span("wait", name)

    async def join() -> Any:
        try:
            return await flight.join()
        finally:
            span.link(flight.origins)

    return await _work(span, join, "shared")


async def follow_in_span(
    events: EventSink, name: str, follow: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    """Wait for a load in another process."""
    await _work(events.span("wait", name), follow, "followed")


async def work_in_background(
    events: EventSink, origins: Origins, work: Callable[[], Coroutine[Any, Any, Any]]
) -> Any:
    """Do *work* in a separate thread or task: its spans begin a trace, linked to *origins*."""
    events.begin_in_background(origins)
    return await work()


async def run_in_span(
    events: EventSink, name: str, work: Callable[[], Coroutine[Any, Any, Any]]
) -> Any:
    """Return a run of a scheduled function: a separate trace."""
    events.begin_in_background(events.origins())
    return await _work(events.span("run", name), work, "finished")
