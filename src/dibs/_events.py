"""Where events go: from the parts of one client to its listeners."""

import logging
from collections import deque
from contextvars import ContextVar
from time import time
from typing import Any, cast

from ._core.causes import cause_for
from .errors import Cause
from .events import KINDS, Event, Kind, Listener, Span, SpanKind, SpanListener

_log = logging.getLogger("dibs")

Origins = tuple[object, ...]
"""What each listener that makes spans wants them to be linked to."""

_behind: ContextVar[Origins | None] = ContextVar("dibs_behind", default=None)
"""Set in work that nobody waits for, until it has begun its first span."""


class EventSink:
    """Hands events to listeners. Without any, no event is made."""

    def __init__(self, listeners: tuple[Listener, ...]) -> None:
        self._listen(listeners)
        self.open()

    def add(self, listener: Listener) -> None:
        """One more listener, from the next event on."""
        self._listen((*self.listeners, listener))

    def _listen(self, listeners: tuple[Listener, ...]) -> None:
        self.listeners = listeners
        self._wanted = {kind: _who_wants(kind, listeners) for kind in KINDS}
        self.hears_holds = bool(self._wanted["acquired"] or self._wanted["busy"])
        """False: nobody wants to know that a lease was taken, or could not be."""
        endings: tuple[Kind, ...] = ("released", "completed", "late")
        self.hears_endings = any(self._wanted[kind] for kind in endings)
        self.tracers = tuple(
            cast("SpanListener", each) for each in listeners if getattr(each, "makes_spans", False)
        )
        """The listeners that make spans."""

    def open(self) -> None:
        """Begin with nothing to report; again in a forked child."""
        self.dropped: deque[tuple[str, float]] = deque(maxlen=10_000)
        """Leases and claims that were collected without being ended: name, seconds held.

        Reported later: they are collected anywhere, also inside a listener that holds a lock."""

    def emit(self, kind: Kind, name: str, **facts: Any) -> None:
        """Make an event, if anybody listens. A *cause* becomes its code and its sentence."""
        if not self.listeners:
            return
        if self.dropped:
            self.emit_dropped()
        if wanted := self._wanted[kind]:
            _hand_over(wanted, kind, name, facts)

    def emit_dropped(self) -> None:
        """Report leases and claims that were dropped."""
        while self.dropped:
            name, held = self.dropped.popleft()
            _log.warning(
                "%s was garbage-collected before it ended; its key expires by its ttl", name
            )
            facts = {"held": held, "cause": cause_for("dropped")}
            _hand_over(self._wanted["leaked"], "leaked", name, facts)

    # ---- spans

    def span(self, kind: SpanKind, name: str, reason: str | None = None) -> "Spans":
        """Begin a span in the trace of each listener that makes them."""
        origins = _behind.get()
        if origins is not None:
            _behind.set(None)
        spans: list[Span | None] = []
        for tracer in self.tracers:
            origin = None if origins is None else origins[len(spans)]
            try:
                behind = origins is not None
                spans.append(tracer.span(kind, name, reason, behind=behind, origin=origin))
            except Exception:
                _log.exception("a dibs listener could not begin a span")
                spans.append(None)
        return Spans(spans)

    def origins(self) -> Origins:
        """What work is linked to that begins behind the caller. None for each without a trace."""
        return tuple([_attempt(tracer.origin) for tracer in self.tracers])

    def begin_behind(self, origins: Origins) -> None:
        """In a thread or task of its own: the next span begins a trace, linked to *origins*."""
        _behind.set(origins)


class Spans:
    """The spans of one piece of work. A listener that raises an exception hurts nobody else."""

    __slots__ = ("_spans",)

    def __init__(self, spans: list[Span | None]) -> None:
        self._spans = spans
        """None: that listener could not begin its own."""

    @property
    def origins(self) -> Origins:
        """What spans elsewhere are linked to."""
        return tuple([None if each is None else each.origin for each in self._spans])

    def waited(self, seconds: float) -> None:
        """It waited for others so long, until now."""
        for span in self._spans:
            if span is not None:
                _attempt(span.waited, seconds)

    def link(self, origins: Origins | None) -> None:
        """It depends on another piece of work."""
        for span, origin in zip(self._spans, origins or (), strict=False):
            if span is not None and origin is not None:
                _attempt(span.link, origin)

    def end(self, outcome: str, error: BaseException | None = None) -> None:
        """It is over; the last to begin ends first."""
        for span in self._spans[::-1]:
            if span is not None:
                _attempt(span.end, outcome, error)


_new, _set = object.__new__, object.__setattr__


def _attempt(call: Any, *args: Any) -> Any:
    try:
        return call(*args)
    except Exception:
        _log.exception("a dibs listener raised an exception in a span")
        return None


def _who_wants(kind: Kind, listeners: tuple[Listener, ...]) -> tuple[Listener, ...]:
    return tuple([each for each in listeners if kind in getattr(each, "kinds", KINDS)])


def _hand_over(wanted: tuple[Listener, ...], kind: Kind, name: str, facts: dict[str, Any]) -> None:
    if "cause" in facts:
        sentence = Cause(facts["cause"])
        facts.update(cause=sentence.code, detail=str(sentence))
    facts["kind"], facts["name"], facts["at"] = kind, name, time()
    # Much faster than its own way to be made, which sets each field by a call.
    event = _new(Event)
    _set(event, "__dict__", facts)
    for listener in wanted:
        try:
            listener(event)
        except Exception:  # it hurts nobody else
            _log.exception("a dibs listener raised an exception for the event %r", kind)
