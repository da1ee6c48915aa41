"""A bounded memory of values in this process, true because every doubt empties it."""

from typing import Any

MOST = 10_000
"""Values that are remembered at most; the oldest goes first."""

ABSENT: Any = object()
"""Not None: that is a value like any other."""


class Local:
    """Key → value, until a time, as long as nobody says that it changed."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._values: dict[bytes, tuple[Any, float]] = {}
        self._tickets: dict[bytes, object] = {}

    def get(self, key: bytes, now: float) -> Any:
        """The value; ABSENT: ask the store."""
        found = self._values.get(key)
        if found is None or found[1] <= now:
            return ABSENT
        return found[0]

    def ticket(self, key: bytes) -> object:
        """To be taken before the store is asked, and given with its answer."""
        ticket = self._tickets[key] = object()
        return ticket

    def put(self, key: bytes, value: Any, until: float, ticket: object) -> bytes | None:
        """Remember it, unless it changed since the ticket was taken. A key that had to go."""
        if self._tickets.get(key) is not ticket:
            return None
        self._values.pop(key, None)
        self._values[key] = (value, until)
        if len(self._values) <= self._most:
            return None
        oldest = next(iter(self._values))
        self.forget(oldest)
        return oldest

    def forget(self, key: bytes) -> None:
        """It changed, or may have: whatever was asked for before now is not remembered either."""
        self._values.pop(key, None)
        self._tickets.pop(key, None)
