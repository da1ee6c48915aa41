"""Connections of the threads link that nobody uses right now, and those that are being opened."""

import contextlib
import threading
from collections.abc import Callable
from time import monotonic

from .._core.breaker import Outage
from .._core.causes import cause_for
from .._core.connection import Allowance
from .opening import Opening
from .thread_connection import ThreadConnection

MOST_IDLE = 64
"""Connections that are kept for later; a burst of more threads opens more and closes them."""
_OPENING_AT_ONCE = 4
"""Connections that are opened at the same time.

Two hundred threads that start together would otherwise make two hundred handshakes. The others
wait for a connection that is done with.
"""


class PoolTimeout(Outage):
    """No connection became free in time: that says nothing about the server."""


class Pool:
    """Hands out connections: an idle one, or a new one."""

    def __init__(
        self, connect: Callable[[], ThreadConnection], known_outage: Callable[[], Outage | None]
    ) -> None:
        self.idle: list[ThreadConnection] = []
        self.waiting = 0
        """How many threads wait for a connection."""
        self._connect = connect
        self._known_outage = known_outage
        self._opening = 0
        self._changed = threading.Condition()
        self._is_closed = False

    def take(self, allowance: Allowance) -> ThreadConnection:
        """A connection. Outage: the server is known to be out. PoolTimeout: none became free.

        Whatever opening a connection raises, or TimeoutError: it takes longer than *allowance*.
        """
        with self._changed:
            self.waiting += 1
            try:
                while not self.idle and self._opening >= _OPENING_AT_ONCE:
                    self._wait(allowance)
                if self.idle:
                    return self.idle.pop()
                self._opening += 1
            finally:
                self.waiting -= 1
        return self._open(allowance)

    def _wait(self, allowance: Allowance) -> None:
        since = monotonic()
        woken = self._changed.wait(allowance.slice)
        outage = self._known_outage()
        if outage is not None:
            raise outage
        if not woken and allowance.spend(monotonic() - since):
            raise PoolTimeout(cause_for("saturated"), sent=False)

    def _open(self, allowance: Allowance) -> ThreadConnection:
        opening = Opening(self._connect, self._opened)
        elapsed = 0.0
        while not allowance.spend(elapsed):
            since = monotonic()
            if opening.wait(allowance.slice) or self._known_outage() is not None:
                break
            elapsed = monotonic() - since
        connection = opening.take()
        if connection is None:
            raise self._known_outage() or opening.error or TimeoutError()
        return connection

    def _opened(self) -> None:
        with self._changed:
            self._opening -= 1
            self._changed.notify()

    def put(self, connection: ThreadConnection) -> None:
        """Back to the idle ones, or to whoever waits for one."""
        if self._is_closed or len(self.idle) >= MOST_IDLE:
            connection.close()
            return
        self.idle.append(connection)
        if self.waiting:
            with self._changed:
                self._changed.notify()

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
