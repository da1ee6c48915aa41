"""The order in which an app must send its answer; given each message, it knows what may follow."""

from __future__ import annotations

from .asgi import Message

# What may be sent beside the answer: extensions of ASGI that end nothing.
ASIDES = {"http.response.push", "http.response.early_hint", "http.response.debug"}
BODIES = {"http.response.body", "http.response.zerocopysend", "http.response.pathsend"}


class OutOfOrder(RuntimeError):
    """A message that a server would refuse at this point; says which and why."""


class MessageOrder:
    """How far one answer has come: not started, started, finished."""

    def __init__(self) -> None:
        self.started = False
        self.finished = False
        self._bodied = False
        self._trailing = False

    def take(self, message: Message) -> None:
        """Note the next message; raise OutOfOrder if a server would refuse it."""
        kind = message["type"]
        if kind in ASIDES:
            return
        if self.finished:
            raise OutOfOrder(f"{kind} was sent after the end of the answer")
        if kind == "http.response.start":
            self._start(message)
        elif not self.started:
            raise OutOfOrder(f"{kind} was sent before the answer was started")
        elif kind in BODIES and not self._bodied:
            self._bodied = not message.get("more_body", False)
            self.finished = self._bodied and not self._trailing
        elif kind == "http.response.trailers" and self._bodied:
            self.finished = not message.get("more_trailers", False)
        else:
            raise OutOfOrder(f"{kind} was not expected here")

    def _start(self, message: Message) -> None:
        if self.started:
            raise OutOfOrder("the answer was started twice")
        self.started = True
        self._trailing = bool(message.get("trailers", False))
