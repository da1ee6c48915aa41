"""Connections of the threads link that nobody uses right now, and those that are being opened."""

import contextlib
import itertools
import threading
import weakref
from collections.abc import Callable
from time import monotonic

from .._core.breaker import PROBE_EVERY, Outage
from .._core.causes import cause_for
from .._core.connection import MOST_LOSSES, Allowance
from .faults import cause_of
from .opening import Opening
from .thread_connection import ThreadConnection

MOST_IDLE = 64
"""Connections that are kept for later; a burst of more threads opens more and closes them."""
_SWEEP_EVERY = 1.0
"""Seconds between looks at the idle connections: has the server closed some of them?"""
_OPENING_AT_ONCE = 4
"""Connections that are opened at the same time.

Two hundred threads that start together would otherwise make two hundred handshakes. The others
wait for a connection that is done with.
"""


class PoolTimeout(Outage):
    """No connection became free in time: that says nothing about the server."""


class Pool:
    """Hands out connections: an idle one, or a new one.

    If no more can be opened (the server has its `maxclients`, this process its open files, the
    name server is down), that is no outage while other threads use connections that answer: who
    needs one waits until one of those is done with.
    """

    def __init__(
        self, connect: Callable[[], ThreadConnection], known_outage: Callable[[], Outage | None]
    ) -> None:
        self.idle: list[ThreadConnection] = []
        self.sweep_at = 0.0
        self.waiters = 0
        """How many threads wait for a connection."""
        self._handed: list[ThreadConnection] = []
        """For those who wait. Whoever comes later cannot take them, as it could from `idle`."""
        self._connect = connect
        self._known_outage = known_outage
        # Weakly, both: what a raising signal handler has dropped counts no more.
        self._opening: weakref.WeakSet[Opening] = weakref.WeakSet()
        self._members: weakref.WeakSet[ThreadConnection] = weakref.WeakSet()
        self._open_again_at = 0.0
        """After a failure: who can wait for another connection opens none before."""
        self._why = cause_for("saturated")
        """Why there are not more connections."""
        self._changed = threading.Condition()
        self._is_closed = False

    # ---- taking

    def take(self, allowance: Allowance, *, new: bool = False) -> ThreadConnection:
        """A connection. Outage: the server is known to be out. PoolTimeout: none became free.

        Whatever opening a connection raises, or TimeoutError: it takes longer than *allowance*.
        *new*: not an idle one.
        """
        for number in itertools.count(1):
            found = self._free_or_opening(allowance, new=new)
            if isinstance(found, ThreadConnection):
                return found
            try:
                return self._opened(found, allowance)
            except Outage:
                raise
            except Exception as error:
                self._why = cause_of(error)
                if self._why.code == "disconnected" and number < MOST_LOSSES:
                    continue  # it was closed while it was being opened, perhaps with all others
                if new or not self._has_others():
                    raise
                self._open_again_at = monotonic() + PROBE_EVERY
        raise AssertionError  # not reached: there is no last number

    def _free_or_opening(self, allowance: Allowance, *, new: bool) -> ThreadConnection | Opening:
        """A free connection; or one that the caller is to open."""
        with self._changed:
            self.waiters += not new
            try:
                while True:
                    connection = None if new else self._free()
                    if connection is not None:
                        return connection
                    if self._may_open(new=new):
                        self._opening.add(opening := Opening(self._connect, self._ended))
                        return opening
                    self._wait(allowance)
            finally:
                self.waiters -= not new
                while len(self._handed) > self.waiters:
                    self.put(self._handed.pop())

    def _free(self) -> ThreadConnection | None:
        if self._handed:
            return self._handed.pop()
        with contextlib.suppress(IndexError):  # others take from it without the lock
            return self.idle.pop()
        return None

    def _may_open(self, *, new: bool) -> bool:
        if len(self._opening) >= _OPENING_AT_ONCE:
            return False
        return new or monotonic() >= self._open_again_at or not self._has_others()

    def _has_others(self) -> bool:
        """True: other threads use connections that they will give back."""
        with self._changed:
            return any(not connection.is_closed for connection in self._members)

    def _wait(self, allowance: Allowance) -> None:
        since = monotonic()
        woken = self._changed.wait(allowance.slice)
        outage = self._known_outage()
        if outage is not None:
            raise outage
        if not woken and allowance.spend(monotonic() - since):
            raise PoolTimeout(self._why, sent=False)

    def _opened(self, opening: Opening, allowance: Allowance) -> ThreadConnection:
        opening.start()
        elapsed = 0.0
        try:
            while not allowance.spend(elapsed):
                since = monotonic()
                if opening.wait(allowance.slice) or self._known_outage() is not None:
                    break
                elapsed = monotonic() - since
        except BaseException:  # a signal handler raised
            opening.give_up()
            raise
        connection = opening.take()
        if connection is not None:
            return connection
        error = self._known_outage() or opening.error or TimeoutError()
        # Explicitly: where another error is being handled, that one would take its place.
        raise error from (error.__cause__ or error.__context__)

    def _ended(self, opening: Opening) -> None:
        with self._changed:
            self._opening.discard(opening)
            self._changed.notify()

    # ---- giving back

    def add(self, connection: ThreadConnection) -> None:
        """It is in use, and will be given back."""
        with self._changed:
            self._members.add(connection)

    def part_with(self, connection: ThreadConnection | None) -> None:
        """It is used for something else or silent: nobody should wait for it."""
        if connection is not None:
            with self._changed:
                self._members.discard(connection)

    def put(self, connection: ThreadConnection) -> None:
        """Back to the idle ones, or to whoever waits for one."""
        if self._is_closed or len(self.idle) >= MOST_IDLE:
            connection.close()
            return
        if not self.waiters:
            self.idle.append(connection)
            if self._is_closed:  # meanwhile
                self.drop_idle()
            return
        with self._changed:
            waits = self.waiters > len(self._handed)
            (self._handed if waits else self.idle).append(connection)
            self._changed.notify()

    def sweep(self, now: float) -> None:
        """Close idle connections that the server has closed.

        The last one that was given back is taken first. So a server that ends idle connections
        would leave those at the bottom open here for ever.
        """
        self.sweep_at = now + _SWEEP_EVERY
        for connection in [each for each in self.idle if each.has_ended()]:
            with contextlib.suppress(ValueError):  # another thread has taken it
                self.idle.remove(connection)
                connection.close()

    def drop_idle(self) -> None:
        """One connection broke or hangs: its neighbours are no better."""
        while self.idle:
            with contextlib.suppress(IndexError):
                self.idle.pop().close()

    def wake_all(self) -> None:
        """Something changed that all who wait should know."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """Close what is idle, and what comes back."""
        self._is_closed = True
        self.drop_idle()
        self.wake_all()
