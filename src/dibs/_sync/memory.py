# Generated from src/dibs/_async/memory.py by unasync.py – do not edit.
"""What this process knows of cached values."""

from .._threads import Flight, Guard, monotonic

_MOST_SEEN = 50_000
"""Keys of which we remember how long they are fresh, to know how to ask for them."""


class CacheMemory:
    """What this process knows of values: which are being loaded, and which are fresh."""

    def __init__(self) -> None:
        self.open()

    def open(self) -> None:
        """Begin with nothing known; again in a forked child."""
        self.guard = Guard()
        self.flights: dict[bytes, Flight] = {}
        self.refreshes: dict[bytes, Flight] = {}
        self.seen: dict[bytes, float] = {}
        """Until when a value is fresh, as far as we know."""

    def remember(self, key: bytes, left: float) -> None:
        """The value of *key* is fresh for *left* seconds."""
        if len(self.seen) >= _MOST_SEEN:
            self.seen.clear()
        self.seen[key] = monotonic() + left

    def part(self, key: bytes) -> None:
        """The value changed: who asks from now on does not join a load that began before."""
        self.flights.pop(key, None)
        self.refreshes.pop(key, None)


def drop_flight(flights: dict[bytes, Flight], key: bytes, flight: Flight) -> None:
    """It is over, or must not be joined any more."""
    if flights.get(key) is flight:
        flights.pop(key, None)
