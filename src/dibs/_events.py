"""Where events go: from the parts of one client to its listeners."""

import logging
import math
from collections import deque
from contextvars import ContextVar
from typing import Any, cast

from ._core.causes import cause_for
from ._core.lease import HoldCall, Holding, LeaseState
from ._locks import Guard
from ._system import monotonic, time
from .errors import Cause
from .events import (
    KINDS,
    MEASURES,
    Counter,
    CountingListener,
    Event,
    EventKey,
    Kind,
    Listener,
    Span,
    SpanKind,
    SpanListener,
)

_log = logging.getLogger("dibs")

_POLICIES = {
    "open": "callers proceed unguarded and cached functions are called directly, except with "
    'on_outage="closed"; with within= the table decides; leaders and schedules wait',
    "closed": 'callers get Unavailable, except with on_outage="open"; leaders and schedules wait',
}


_LATE = 1.0
"""Seconds in which callers may still come that an outage touched before it ended."""
_OF_SOME_KEYS = ("tryagain", "clusterdown")
"""Causes that concern a few slots of a cluster: that others are served does not end them."""
_QUIET = 5.0
"""Seconds without another such cause after which they are over."""


class OutageLog:
    """What one `Dibs` says about outages of its store. Holds no key and no id.

    An outage begins when a server stops answering, or answers that it cannot serve; it ends when
    it answers again.
    """

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self.open()

    def open(self) -> None:
        """Begin without an outage; again in a forked child, which has its own connections."""
        self.is_open = False
        """True: an outage was logged, and its end was not."""
        self._servers = 0
        """How many servers do not answer: one, or several nodes of a cluster."""
        self._since = 0.0
        self._late_until = -math.inf
        self._cause = Cause("")
        self._touched_at = 0.0
        self._unguarded = 0
        self._guard = Guard()

    def began(self, cause: Cause, now: float) -> None:
        """A server stopped answering."""
        with self._guard:
            self._servers += 1
            is_news = self._is_beginning(cause, now)
        if is_news:
            self._log_outage(cause)

    def touched(self, cause: str, now: float, *, is_unguarded: bool) -> None:
        """A caller was let through without a guard, or got Unavailable.

        A thread may say so late, when the server answers again: it is counted with the next outage.
        """
        with self._guard:
            is_late = now <= self._late_until and self._cause == cause
            is_news = not is_late and self._is_beginning(Cause(cause), now)
            self._touched_at = now
            self._unguarded += is_unguarded
        if is_news:
            self._log_outage(Cause(cause))

    def ended(self, now: float) -> None:
        """A server answers again."""
        with self._guard:
            self._servers = max(self._servers - 1, 0)
            self._late_until = now + _LATE
        self.served(now)

    def served(self, now: float) -> None:
        """A request was served: what the server could not do before, it can do now."""
        with self._guard:
            is_quiet = now - self._touched_at > _QUIET
            is_over = self._cause.code not in _OF_SOME_KEYS or is_quiet
            if not self.is_open or self._servers or not is_over:
                return
            self.is_open = False
            lasted, count = max(now - self._since, 0.0), self._unguarded
            self._unguarded = 0
        # Nowhere under the guard: a handler that hangs would hold up every caller.
        _log.info(
            "Redis is available again after %.2f s (%s); unguarded grants meanwhile: %d",
            lasted, self._cause.code, count,
        )  # fmt: skip

    def _is_beginning(self, cause: Cause, now: float) -> bool:
        if self.is_open:
            return False
        self.is_open, self._since, self._cause = True, now, cause
        return True

    def _log_outage(self, cause: Cause) -> None:
        _log.warning(
            "Redis is unavailable (%s: %s); until it is available again, %s",
            cause.code, cause, _POLICIES[self._policy],
        )  # fmt: skip


Origins = tuple[object, ...]
"""What each listener that makes spans wants them to be linked to."""

_MOST_COUNTERS = 10_000
"""Names come from templates, but a program may make them up."""

_background: ContextVar[Origins | None] = ContextVar("dibs_background", default=None)
"""Set in background work, until it has begun its first span."""


class EventSink:
    """Hands events to listeners. Without any, no event is made."""

    def __init__(self, listeners: tuple[Listener, ...]) -> None:
        self._set_listeners(listeners)
        self.open()

    def add(self, listener: Listener) -> None:
        """One more listener, from the next event on."""
        self._set_listeners((*self.listeners, listener))

    def _set_listeners(self, listeners: tuple[Listener, ...]) -> None:
        self.listeners = listeners
        self._wanted = {kind: _who_wants(kind, listeners) for kind in KINDS}
        self._counting = {kind: _who_counts(kind, listeners) for kind in KINDS}
        self._counters: dict[EventKey, Counter] = {}
        self._only_counted: dict[Kind, dict[str, Counter]] = {kind: {} for kind in KINDS}
        """Those of guarded events that are only counted, by name."""
        self.wants = {kind: bool(self._wanted[kind] or self._counting[kind]) for kind in KINDS}
        """False: no listener wants events of that kind."""
        self.wants_holds = self.wants["acquired"] or self.wants["busy"]
        """False: no listener wants to know that a lease was acquired or refused."""
        self._tracers = tuple(
            [cast("SpanListener", each) for each in listeners if hasattr(each, "makes_spans")]
        )
        self.may_trace = bool(self._tracers)
        """False: `tracers` are none, now and later."""

    def open(self) -> None:
        """Begin with nothing to report; again in a forked child."""
        self.dropped: deque[tuple[str, float]] = deque(maxlen=10_000)
        """Leases and claims that were collected without being ended: name, seconds held.

        Reported later: they are collected anywhere, also inside a listener that holds a lock."""

    def emit(self, kind: Kind, name: str, **facts: Any) -> None:
        """Make an event, if there are listeners. A *cause* becomes its code and its sentence."""
        if self.listeners:
            self._emit_all(kind, name, facts)

    # Two events of every hold: the same as `emit`, and quicker where they are only counted.

    def taken(self, call: HoldCall, outcome: LeaseState | Holding, since: float) -> None:
        """A caller who asked at *since* has a lease, or was refused."""
        waited = monotonic() - since if call.options.wait else 0.0
        name = call.given_name or call.name
        if isinstance(outcome, Holding):
            return self.emit("busy", name, waited=waited, retry_after=outcome.remaining)
        guarded = outcome.guarded
        count = self._only_counted["acquired"].get(name) if guarded else None
        if count is None:
            facts = {"waited": waited, "guarded": guarded, "fence": outcome.fence}
            return self._emit_all("acquired", name, facts)
        try:
            count(waited)
        except Exception:
            _report_failing_listener("acquired")
        return self.emit_dropped() if self.dropped else None

    def ended(self, kind: Kind, name: str, held: float, *, guarded: bool) -> None:
        """A lease is over."""
        count = self._only_counted[kind].get(name) if guarded else None
        if count is None:
            return self._emit_all(kind, name, {"held": held, "guarded": guarded})
        try:
            count(held)
        except Exception:
            _report_failing_listener(kind)
        return self.emit_dropped() if self.dropped else None

    def _emit_all(self, kind: Kind, name: str, facts: dict[str, Any]) -> None:
        if self.dropped:
            self.emit_dropped()
        self._emit_event(kind, name, facts)

    def emit_dropped(self) -> None:
        """Report leases and claims that were dropped."""
        while self.dropped:
            name, held = self.dropped.popleft()
            _log.warning(
                "%s was garbage-collected before it ended; its key expires by its ttl", name
            )
            self._emit_event("leaked", name, {"held": held, "cause": cause_for("dropped")})

    def _emit_event(self, kind: Kind, name: str, facts: dict[str, Any]) -> None:
        if self._counting[kind]:
            key: EventKey = kind, name, facts.get("guarded")
            count = self._counters.get(key) or self._find_counter(key)
            try:
                count(facts.get(MEASURES[kind].field))
            except Exception:
                _report_failing_listener(kind)
        if listeners := self._wanted[kind]:
            _hand_over(listeners, kind, name, facts)

    def _find_counter(self, key: EventKey) -> Counter:
        """Return what counts such events, for all listeners that do."""
        kind, name, guarded = key
        counters: list[Counter] = []
        for listener in self._counting[kind]:
            try:
                counters.append(listener.counter(kind, name, guarded=guarded))
            except Exception:
                _report_failing_listener(kind)
        count = counters[0] if len(counters) == 1 else _counting_with(counters, kind)
        if len(self._counters) < _MOST_COUNTERS:
            self._counters[key] = count
            if guarded and not self._wanted[kind]:
                self._only_counted[kind][name] = count
        return count

    # ---- spans

    @property
    def tracers(self) -> tuple[SpanListener, ...]:
        """The listeners that make spans at present."""
        return tuple([each for each in self._tracers if each.makes_spans]) if self._tracers else ()

    def span(self, kind: SpanKind, name: str, reason: str | None = None) -> "Spans":
        """Begin a span in the trace of each listener that makes them."""
        origins = _background.get()
        if origins is not None:
            _background.set(None)
        spans: list[Span | None] = []
        for number, tracer in enumerate(self._tracers):
            if not tracer.makes_spans:
                spans.append(None)
                continue
            origin = None if origins is None else origins[number]
            try:
                background = origins is not None
                spans.append(tracer.span(kind, name, reason, background=background, origin=origin))
            except Exception:
                _log.exception("a dibs listener could not begin a span")
                spans.append(None)
        return Spans(spans)

    def origins(self) -> Origins:
        """Return what work is linked to that begins in the background.

        None for each without a trace.
        """
        tracers = self._tracers
        return tuple([_try_call(each.origin) if each.makes_spans else None for each in tracers])

    def begin_in_background(self, origins: Origins) -> None:
        """In a separate thread or task: the next span begins a trace, linked to *origins*."""
        _background.set(origins)


class Spans:
    """The spans of one piece of work. A listener that raises does not affect the others."""

    __slots__ = ("_spans",)

    def __init__(self, spans: list[Span | None]) -> None:
        self._spans = spans
        """By listener. None: it makes none at present, or could not begin it."""

    @property
    def origins(self) -> Origins:
        """Return what spans elsewhere are linked to."""
        return tuple([None if each is None else each.origin for each in self._spans])

    def waited(self, seconds: float) -> None:
        """It waited for others so long, until now."""
        for span in self._spans:
            if span is not None:
                _try_call(span.waited, seconds)

    def link(self, origins: Origins | None) -> None:
        """It depends on another piece of work."""
        for span, origin in zip(self._spans, origins or (), strict=False):
            if span is not None and origin is not None:
                _try_call(span.link, origin)

    def end(self, outcome: str, error: BaseException | None = None) -> None:
        """It is over; the last to begin ends first."""
        for span in self._spans[::-1]:
            if span is not None:
                _try_call(span.end, outcome, error)


_new, _set = object.__new__, object.__setattr__


def _try_call(call: Any, *args: Any) -> Any:
    try:
        return call(*args)
    except Exception:
        _log.exception("a dibs listener raised an exception in a span")
        return None


def _who_wants(kind: Kind, listeners: tuple[Listener, ...]) -> tuple[Listener, ...]:
    """Return those that get an event of *kind*."""
    return tuple(
        [
            each
            for each in listeners
            if kind in getattr(each, "kinds", KINDS) and kind not in getattr(each, "counted", ())
        ]
    )


def _who_counts(kind: Kind, listeners: tuple[Listener, ...]) -> tuple[CountingListener, ...]:
    counting = [each for each in listeners if kind in getattr(each, "counted", ())]
    return cast("tuple[CountingListener, ...]", tuple(counting))


def _counting_with(counters: list[Counter], kind: Kind) -> Counter:
    def count(seconds: float | None) -> None:
        for each in counters:
            try:
                each(seconds)
            except Exception:
                _report_failing_listener(kind)

    return count


def _report_failing_listener(kind: Kind) -> None:
    """A listener raised an exception: it does not affect the others."""
    _log.exception("a dibs listener raised an exception for the event %r", kind)


def _hand_over(
    listeners: tuple[Listener, ...], kind: Kind, name: str, facts: dict[str, Any]
) -> None:
    if "cause" in facts:
        sentence = Cause(facts["cause"])
        facts.update(cause=sentence.code, detail=str(sentence))
    facts["kind"], facts["name"], facts["at"] = kind, name, time()
    # Much faster than its own way to be made, which sets each field by a call.
    event = _new(Event)
    _set(event, "__dict__", facts)
    for listener in listeners:
        try:
            listener(event)
        except Exception:
            _report_failing_listener(kind)
