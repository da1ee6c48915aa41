"""Where events go: from the parts of one client to its listeners."""

import logging
from collections import deque
from time import time
from typing import Any

from ._core.causes import cause_for
from .errors import Cause
from .events import Event, Kind, Listener

_log = logging.getLogger("dibs")


_DROPPED = "%s was garbage-collected before it ended; its key expires by its ttl"


class EventSink:
    """Hands events to listeners. Without any, no event is made."""

    def __init__(self, listeners: tuple[Listener, ...]) -> None:
        self.listeners = listeners
        self.open()

    def open(self) -> None:
        """Begin with nothing to report; again in a forked child."""
        self.dropped: deque[tuple[str, float]] = deque(maxlen=10_000)
        """Leases and claims that were collected without being ended: name, seconds held.

        Reported later: they are collected anywhere, also inside a listener that holds a lock."""

    def emit(self, kind: Kind, name: str, **facts: Any) -> None:
        """Make an event, if anybody listens. A *cause* becomes its code and its sentence."""
        if self.listeners:
            self.emit_dropped()
            self._hand_over(kind, name, facts)

    def emit_dropped(self) -> None:
        """Report leases and claims that were dropped."""
        while self.dropped:
            name, held = self.dropped.popleft()
            _log.warning(
                "%s was garbage-collected before it ended; its key expires by its ttl", name
            )
            self._hand_over("leaked", name, {"held": held, "cause": cause_for("dropped")})

    def _hand_over(self, kind: Kind, name: str, facts: dict[str, Any]) -> None:
        if "cause" in facts:
            sentence = Cause(facts["cause"])
            facts.update(cause=sentence.code, detail=str(sentence))
        event = Event(kind=kind, name=name, at=time(), **facts)
        for listener in self.listeners:
            try:
                listener(event)
            except Exception:  # it hurts nobody else
                _log.exception("a dibs listener raised an exception for the event %r", event.kind)
