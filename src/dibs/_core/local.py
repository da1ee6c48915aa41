"""A bounded in-process cache: a value is dropped as soon as it may have changed."""

from collections.abc import Callable
from typing import Any, NamedTuple

MOST = 10_000
"""Values that are remembered at most; the oldest goes first."""

LONGEST_PAUSE = 0.5
"""Seconds: if nobody has asked for so long whether changes were missed, the next reader asks."""

ABSENT: Any = object()
"""Not None: that is a value like any other."""

Ticket = Callable[[], None]
"""Taken before the store is asked, one for each question; called when the key changes."""


class Entry(NamedTuple):
    """A value, until when it may be served, and the ticket with which it came."""

    value: Any
    until: float
    ticket: Ticket


class Local:
    """Key → value, until a time, as long as nobody says that it changed.

    Any thread may forget at any moment. Hence the order in `put` (the value, then the look at its
    ticket) and in `forget` (the ticket, then the value): one of the two always sees the other.
    """

    def __init__(self, is_behind: Callable[[float], bool], most: int = MOST) -> None:
        """*is_behind*: whether the server may have reported changes that were not read yet, as
        after a pause of this process."""
        self._is_behind = is_behind
        self._asked_at = 0.0
        self._most = most
        self._values: dict[bytes, Entry] = {}
        self._tickets: dict[bytes, Ticket] = {}

    def get(self, key: bytes, now: float) -> Any:
        """The value; ABSENT: ask the store."""
        found = self._values.get(key)
        if found is None or found[1] <= now:
            return ABSENT
        if now - self._asked_at > LONGEST_PAUSE:
            if self._is_behind(now):
                return ABSENT
            self._asked_at = now
        return found[0]

    def ask(self, key: bytes, ticket: Ticket) -> None:
        """The store is about to be asked; its answer comes with this ticket."""
        self._tickets[key] = ticket

    def drop(self, key: bytes, ticket: Ticket) -> None:
        """The answer that came with this ticket is not to be remembered."""
        if self._tickets.get(key) is ticket:
            self._tickets.pop(key, None)

    def put(
        self, key: bytes, value: Any, until: float, ticket: Ticket
    ) -> list[tuple[bytes, Ticket]]:
        """Remember it, unless it changed since the ticket was taken.

        Returns the keys and tickets that are of no use any more.
        """
        if self._tickets.get(key) is not ticket:
            return [(key, ticket)]
        old = self._values.pop(key, None)
        entry = self._values[key] = Entry(value, until, ticket)
        gone = [] if old is None else [(key, old.ticket)]
        if self._tickets.get(key) is not ticket:  # it changed in between
            if self._values.get(key) is entry:
                self._values.pop(key, None)
            return [*gone, (key, ticket)]
        if len(self._values) > self._most:
            gone += self._oldest_out()
        return gone

    def _oldest_out(self) -> list[tuple[bytes, Ticket]]:
        try:
            key = next(iter(self._values))
        except (RuntimeError, StopIteration):  # other threads are at it as well
            return []
        self._tickets.pop(key, None)
        old = self._values.pop(key, None)
        return [] if old is None else [(key, old.ticket)]

    def forget(self, key: bytes) -> None:
        """It changed, or may have: whatever was asked for before now is not remembered either."""
        self._tickets.pop(key, None)
        self._values.pop(key, None)
