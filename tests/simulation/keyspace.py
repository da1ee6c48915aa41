"""The keys of one server: strings and sorted sets, each with an expiry or none."""

from collections.abc import Callable

from .wire import ErrorReply

Value = bytes | dict[bytes, float]
"""A string, or a sorted set: member → score. A value is replaced, never changed."""

WRONG_TYPE = "WRONGTYPE Operation against a key holding the wrong kind of value"


class Keyspace:
    """The current keys. *clock*: milliseconds of the server's wall clock."""

    def __init__(self, clock: Callable[[], int], changed: Callable[[bytes], None]) -> None:
        """*changed*: called with each key that was written, deleted, or has expired."""
        self.clock = clock
        self._changed = changed
        self.values: dict[bytes, Value] = {}
        self.expiries: dict[bytes, int] = {}

    def live(self, key: bytes) -> Value | None:
        """The value of *key*. One that has expired is removed first.

        As in Redis, it lasts to the end of its last millisecond.
        """
        expiry = self.expiries.get(key)
        if expiry is not None and expiry < self.clock():
            self.remove(key)
        return self.values.get(key)

    def string(self, key: bytes) -> bytes | None:
        """The string at *key*. ErrorReply: it is a sorted set."""
        value = self.live(key)
        if isinstance(value, dict):
            raise ErrorReply(WRONG_TYPE)
        return value

    def sorted_set(self, key: bytes) -> dict[bytes, float]:
        """The sorted set at *key*; an empty one if there is none. ErrorReply: it is a string."""
        value = self.live(key)
        if isinstance(value, bytes):
            raise ErrorReply(WRONG_TYPE)
        return value or {}

    def put(self, key: bytes, value: Value, *, keep_expiry: bool = False) -> None:
        """Set *key*. An empty sorted set is no key."""
        if not value and isinstance(value, dict):
            self.remove(key)
            return
        self.values[key] = value
        if not keep_expiry:
            self.expiries.pop(key, None)
        self._changed(key)

    def expire_at(self, key: bytes, expiry: int) -> None:
        """Let the existing *key* expire at *expiry*."""
        self.expiries[key] = expiry
        self._changed(key)
        if expiry <= self.clock():
            self.remove(key)

    def remove(self, key: bytes) -> bool:
        """Delete *key*. False: it was not there."""
        self.expiries.pop(key, None)
        if self.values.pop(key, None) is None:
            return False
        self._changed(key)
        return True

    def remaining(self, key: bytes) -> int:
        """PTTL of *key*: -2 if there is none, -1 if it never expires."""
        if self.live(key) is None:
            return -2
        return self.expiries[key] - self.clock() if key in self.expiries else -1

    def sweep(self) -> None:
        """Remove all that has expired."""
        now = self.clock()
        for key in [key for key, expiry in self.expiries.items() if expiry < now]:
            self.remove(key)

    def copied(self) -> tuple[dict[bytes, Value], dict[bytes, int]]:
        """All of it, as it is now."""
        return dict(self.values), dict(self.expiries)

    def restore(self, values: dict[bytes, Value], expiries: dict[bytes, int]) -> None:
        """Have these keys and no others."""
        for key in {**self.values, **values}:
            self._changed(key)
        self.values, self.expiries = dict(values), dict(expiries)
