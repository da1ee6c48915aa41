"""The state machine of connections: a transport reports facts, it answers what to do.

Facts: a connection was opened, could not be opened, answered, stayed silent, broke; the server
switched. Actions: open a connection, repeat requests on another one, give up. Nothing here does
I/O or reads a clock: the same rules serve asyncio and threads, and a test can drive them through
every order of facts.

Silence is the server's: it is counted while a request is written, this process is able to read,
and no byte arrives. See `TimeLimit` for how a busy or stopped process differs from a silent server.
"""

import enum
import itertools
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, Self, TypeVar

from ..errors import OTHER, Cause, DibsError
from .capabilities import by_script
from .causes import SENTENCES, code_of_reply
from .request import Abandoned, Reply, Request, first_error

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
        """Return *connect* as it is given; else 2 s, or the budget where that is longer."""
        return cls(budget, max(CONNECT, budget) if connect is None else connect)


class Breaker:
    """Closed: ask. Open: answer at once, while a background task checks the server."""

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
        """Return True if do not ask."""
        return self.opened_at is not None

    @property
    def state(self) -> str:
        """One of "closed", "open", and "half-open": asking again, without an answer yet."""
        if self.opened_at is not None:
            return "open"
        return "closed" if self._since is None else "half-open"

    @property
    def since(self) -> float | None:
        """Return when the outage began whose end has not been seen, by the monotonic clock."""
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
        """Return the server answered. How long it was out; None: it was not."""
        if self._since is None:
            return None
        lasted = now - self._since
        self.recoveries += 1  # before the next request
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


P = ParamSpec("P")
T = TypeVar("T")


def interpret(read: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what *read* makes of a reply.

    Raises Outage if it is not one that the request can have.
    """
    try:
        return read(*args, **kwargs)
    except Exception as error:
        raise protocol_error(error) from None


def protocol_error(error: Exception) -> Exception:
    """Return what a reader's *error* is for its caller: an outage, unless it is an error of dibs.

    A broken server or proxy sent the reply, or it belongs to another request: whether this one
    was executed is not known.
    """
    if isinstance(error, DibsError | Outage):
        return error
    # Not its message, which may quote the reply.
    detail = f"{SENTENCES['protocol']} ({type(error).__name__})"
    return Outage(detail, sent=True, code="protocol")


SLICES = 16
"""Into how many slices a time limit is cut."""
MOST_LOSSES = 6
"""How many connections may break under one and the same request before it is an outage.

With three, a program that ends all connections every 20 to 50 ms made outages. Not how many break
in all: a proxy that restarts ends the connections of all threads at once.
"""
MOST_CLOSED = 8
"""How many attempts in a row may end with a closed connection before it is an outage."""
_PAUSE = 0.005
_BYTES_PER_SECOND = 50_000_000
"""How fast a server processes a request at least. Meanwhile it answers no other."""
MOST_UNDELIVERED = 10_000
"""Requests in an outbox at most; the oldest go first, and their leases expire."""


def pause_after(closed: int) -> float:
    """Seconds until the next attempt to open a connection, after *closed* of them were closed.

    All of them together are shorter than the default budget. They differ, so that they do not keep
    step with a program that ends connections at regular intervals.
    """
    return _PAUSE * closed


def allowance(size: int) -> float:
    """Return the seconds of silence that a request of *size* bytes may cost beyond the budget."""
    return size / _BYTES_PER_SECOND


class TimeLimit:
    """How much of a time limit is used up, counted in slices.

    A wait is cut into slices, and a slice that ends late counts as two slices at most. While
    this process was busy or stopped it could not have read an answer, so that time says nothing
    about the server.
    """

    __slots__ = ("_base", "_limit", "counted", "slice")

    def __init__(self, limit: float) -> None:
        self._base = self._limit = limit
        self.slice = limit / SLICES
        """How long to wait before the next look, in seconds."""
        self.counted = 0.0

    def count(self, elapsed: float) -> bool:
        """A slice has passed, in *elapsed* seconds. True: the limit is used up."""
        self.counted += min(elapsed, 2 * self.slice)
        # Timers may fire a moment early.
        return self.counted >= self._limit - self.slice / 2

    def is_half_over(self) -> bool:
        """Return True if half of the limit is used up."""
        return self.counted >= self._limit / 2 - self.slice / 2

    def reset(self, more: float = 0.0) -> None:
        """Something came: the limit starts again, *more* seconds longer than it was made."""
        self.counted = 0.0
        self._limit = self._base + more


# ---- what must still be delivered


class Outbox:
    """Requests without a waiter that must reach the server: releases, as a rule."""

    def __init__(self) -> None:
        self._requests: deque[Request] = deque(maxlen=MOST_UNDELIVERED)

    def __bool__(self) -> bool:
        return bool(self._requests)

    def add(self, request: Request, now: float) -> None:
        """Keep *request* if it must be delivered and is still worth it."""
        if request.until > now:
            self._requests.append(request)

    def take(self, now: float) -> list[Request]:
        """Return all that is still worth delivering; the caller delivers it or gives it back."""
        # One atomic step, so that threads and signal handlers need no lock.
        requests, self._requests = self._requests, deque[Request](maxlen=MOST_UNDELIVERED)
        return [request.at(now) for request in requests if request.until > now]

    def give_back(self, requests: list[Request]) -> None:
        """They could not be delivered."""
        self._requests.extendleft(reversed(requests))


def worth_repeating(request: Request, reply: Reply) -> Request | None:
    """Return what to send again after *reply*, or None.

    The server could not do it now (BUSY, LOADING …), or lacks the command and gets a script.
    """
    error = first_error(reply)  # of a command behind ASKING, say
    if error is None:
        return None
    return request if code_of_reply(str(error)) is not None else by_script(request, error)


def is_elsewhere(reply: Reply) -> bool:
    """Return True if the node of a cluster says that the key is on another one."""
    error = first_error(reply)
    return error is not None and error.code in ("MOVED", "ASK")


def unserved(requests: list[Request], reply: Any) -> tuple[list[Request], list[Request]]:
    """Return which of *requests* to send again, and which to another node.

    *reply* is the server's answer to all of them together.
    """
    replies: list[Reply] = reply if sum(each.replies for each in requests) > 1 else [reply]
    ends = itertools.accumulate(each.replies for each in requests)
    pairs = [(each, replies[end - 1]) for each, end in zip(requests, ends, strict=True)]
    repeats = [worth_repeating(request, reply) for request, reply in pairs]
    elsewhere = [request for request, reply in pairs if is_elsewhere(reply)]
    return [request for request in repeats if request is not None], elsewhere


# ---- one server


class Circuit:
    """The state of one server: whether it is out, what is undelivered, which connections to end."""

    def __init__(self) -> None:
        self.breaker = Breaker()
        self.outbox = Outbox()
        self.abandoned = Abandoned()

    def refuse(self, request: Request, now: float) -> Outage:
        """The answer to *request* while the server is out; what must be delivered is kept."""
        self.outbox.add(request, now)
        return Outage(self.breaker.cause, sent=False)

    def trip(self, now: float, cause: Cause) -> bool:
        """The server does not answer. True: that was not known yet."""
        return self.breaker.trip(now, cause)


class Next(enum.Enum):
    """What the transport does next."""

    NOTHING = enum.auto()
    OPEN = enum.auto()
    """Open a connection, beside the current one if there is one."""
    TRIP = enum.auto()
    """The server is out: callers no longer wait, and it is tried again in the background."""
    USE = enum.auto()
    """Use the new connection."""
    CLOSE = enum.auto()
    """Close the connection: it is not needed."""


# ---- one request of one thread


class Attempt:
    """A request that was not answered at once: how often it is sent again, and when not."""

    __slots__ = ("_circuit", "_losses", "_recoveries", "was_silent")

    def __init__(self, circuit: Circuit) -> None:
        self._circuit = circuit
        self._recoveries = circuit.breaker.recoveries
        self._losses = 0
        self.was_silent = False
        """True: a connection was silent for half a budget."""

    @property
    def needs_new_connection(self) -> bool:
        """True: an idle connection was silent, or two have broken: no other one can be trusted.

        A firewall that forgets idle connections forgets all of them, silently.
        """
        return self.was_silent or self._losses > 1

    @property
    def is_outdated(self) -> bool:
        """True: an outage has ended since it began, so what it met says nothing about now."""
        return self._circuit.breaker.recoveries != self._recoveries

    def silent(self) -> Next:
        """Nothing came for half a budget: the second connection gets the other half."""
        was_silent, self.was_silent = self.was_silent, True
        return Next.TRIP if was_silent or self._circuit.breaker.is_open else Next.OPEN

    def lost(self) -> Next:
        """The connection broke."""
        self._losses += 1
        is_outage = self._losses >= MOST_LOSSES or self._circuit.breaker.is_open
        return Next.TRIP if is_outage else Next.OPEN
