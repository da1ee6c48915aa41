"""When to stop asking a server that does not answer, and when to look again."""

from typing import NamedTuple, Self

from ..errors import OTHER, Cause

PROBE_EVERY = 0.1
"""Seconds between two looks at a server that is out: recovery is noticed within a second."""
CONNECT = 2.0
"""How long opening a connection may take, in seconds, if the caller does not say."""


DEFAULT_BUDGET = 0.25
"""Seconds; that of a client, and what the doctor judges by."""


class Limits(NamedTuple):
    """How long a server may take, in seconds."""

    budget: float
    """Its silence: a request is written, we could read, and nothing comes."""
    connect: float
    """Opening a connection: name look-up, TCP, TLS, log-in."""

    @classmethod
    def of(cls, budget: float, connect: float | None = None) -> Self:
        """*connect* as it is given; else 2 s, or the budget where that is longer."""
        return cls(budget, max(CONNECT, budget) if connect is None else connect)


class Breaker:
    """Closed: ask. Open: answer at once, without asking; somebody in the background looks."""

    __slots__ = ("_since", "cause", "opened_at", "recoveries")

    def __init__(self) -> None:
        self.opened_at: float | None = None
        self._since: float | None = None
        """When the outage began whose end has not been seen."""
        self.cause = Cause("")
        self.recoveries = 0
        """How many outages have ended."""

    @property
    def is_open(self) -> bool:
        """True: do not ask."""
        return self.opened_at is not None

    @property
    def state(self) -> str:
        """ "closed"; "open"; or "half-open": asking again, and no answer has come yet."""
        if self.opened_at is not None:
            return "open"
        return "closed" if self._since is None else "half-open"

    @property
    def since(self) -> float | None:
        """When the outage began whose end has not been seen, by the monotonic clock."""
        return self._since

    def trip(self, now: float, cause: str) -> bool:
        """The server did not answer. True: this is news."""
        if self.opened_at is not None:
            return False
        self.opened_at, self.cause = now, Cause(cause)
        is_news = self._since is None
        self._since = now if is_news else self._since
        return is_news

    def half_open(self) -> None:
        """Ask again. It is still the same outage if the server does not answer."""
        self.opened_at = None

    def close(self, now: float) -> float | None:
        """The server answered. How long it was out; None: it was not."""
        if self._since is None:
            return None
        lasted = now - self._since
        self.recoveries += 1  # before anybody asks again
        self._since = self.opened_at = None
        return lasted


class Outage(Exception):
    """Inside dibs only: the store did not answer. The shells turn it into the caller's policy."""

    def __init__(self, cause: str, *, sent: bool, code: str = OTHER) -> None:
        super().__init__(cause)
        self.cause = Cause(cause, code)
        """What happened: a sentence with a code; pass it on as it is."""
        self.sent = sent
        """True: the request may have reached the server; what it did there is not known."""
