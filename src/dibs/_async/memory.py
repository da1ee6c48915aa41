"""What this process knows of cached values."""

from .._tasks import Flight, Guard, monotonic
from .store import AsyncStore

_MOST_SEEN = 50_000
"""Keys of which we remember how long they are fresh, to know how to ask for them."""


class AsyncCacheMemory:
    """What this process knows of values: which are being loaded, and which are fresh."""

    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self.open()

    def open(self) -> None:
        """Begin with nothing known; again in a forked child."""
        self.guard = Guard()
        self.flights: dict[bytes, Flight] = {}
        self.refreshes: dict[bytes, Flight] = {}
        self.seen: dict[bytes, float] = {}
        """Until when a value is fresh, as far as we know."""
        self._unwatched: dict[bytes, tuple[object, int]] = {}
        """Key → a load in an outage: nobody tells us of changes; and how many had ended before."""

    def remember(self, key: bytes, left: float) -> None:
        """The value of *key* is fresh for *left* seconds."""
        if len(self.seen) >= _MOST_SEEN:
            self.seen.clear()
        self.seen[key] = monotonic() + left

    def flight_of(self, flights: dict[bytes, Flight], key: bytes) -> Flight | None:
        """The flight of *key* that who asks now may join.

        Not one that loads since an outage which is over: it may have missed an invalidation.
        """
        flight = flights.get(key)
        if flight is None or not flight.is_open:
            return None
        _, ended = self._unwatched.get(key, (None, -1))
        if ended not in (-1, self._store.recoveries):
            self.forget_loads(key)
            return None
        return flight

    def begin_unwatched(self, key: bytes, load: object, ended: int) -> None:
        """*load* is not told of changes. *ended*: the outages that were over before."""
        self._unwatched[key] = load, ended

    def end_unwatched(self, key: bytes, load: object) -> None:
        """*load* is over."""
        if self._unwatched.get(key, (None,))[0] is load:
            self._unwatched.pop(key, None)

    def forget_loads(self, key: bytes) -> None:
        """The value changed: who asks from now on does not join a load that began before."""
        self.flights.pop(key, None)
        self.refreshes.pop(key, None)


def drop_flight(flights: dict[bytes, Flight], key: bytes, flight: Flight) -> None:
    """It is over, or must not be joined any more."""
    if flights.get(key) is flight:
        flights.pop(key, None)
