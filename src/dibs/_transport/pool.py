"""The idle connections of the threads transport, and those that are being opened."""

import contextlib
import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable
from time import sleep

from .._core.causes import cause_for
from .._core.connection import MOST_CLOSED, PROBE_EVERY, Outage, TimeLimit, pause_after
from .._system import monotonic
from .faults import cause_of
from .thread_connection import ThreadConnection
from .waking import Signal


class Opening:
    """A connection that is being opened in a thread of its own."""

    def __init__(
        self, connect: Callable[[], ThreadConnection], on_end: Callable[["Opening"], None]
    ) -> None:
        self.error: BaseException | None = None
        """Why there is no connection."""
        self._connect = connect
        self._on_end = on_end
        self._done = Signal()
        self._guard = threading.RLock()
        self._is_taken = False
        self._connection: ThreadConnection | None = None

    def start(self) -> None:
        """Start the thread. *on_end* is called when the attempt has succeeded or failed."""
        try:
            threading.Thread(target=self._run, name="dibs connect", daemon=True).start()
        except RuntimeError:  # no more threads: open it in this one
            self._run()

    def wait(self, seconds: float) -> bool:
        """True: it has succeeded or failed."""
        return self._done.wait(seconds)

    def take(self) -> ThreadConnection | None:
        """Return the connection, or None: then one that is opened later is closed at once."""
        with self._guard:
            self._is_taken = True
            connection, self._connection = self._connection, None
            return connection

    def cancel(self) -> None:
        """Close the connection, now or when it is open."""
        connection = self.take()
        if connection is not None:
            connection.close()

    def _run(self) -> None:
        connection = None
        try:
            connection = self._connect()
        except BaseException as error:
            self.error = error
        with self._guard:
            if self._is_taken and connection is not None:
                connection.close()
            else:
                self._connection = connection
        self._done.set()
        self._on_end(self)


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


class _Waiter:
    """A thread that waits for a connection, or for its turn to open one."""

    __slots__ = ("_turn", "connection", "new")

    def __init__(self, *, new: bool) -> None:
        self.new = new
        """True: it can only use a new connection."""
        self.connection: ThreadConnection | None = None
        """What it was given."""
        self._turn = Signal()

    def wake(self) -> None:
        """It was given a connection, or should look for itself."""
        self._turn.set()

    def wait(self, seconds: float) -> bool:
        """True: it was woken."""
        woken = self._turn.wait(seconds)
        self._turn.clear()
        return woken


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
        self.generation = 0
        """Connections of an earlier generation are closed when they come back."""
        self.waiters: deque[_Waiter] = deque()
        """Who waits for a connection, in order of arrival."""
        self._served = 0
        """How often somebody who waited was given a connection, or the right to open one."""
        self._connect = connect
        self._known_outage = known_outage
        # Weakly, both: what a raising signal handler has dropped counts no more.
        self._opening: weakref.WeakSet[Opening] = weakref.WeakSet()
        self._members: weakref.WeakSet[ThreadConnection] = weakref.WeakSet()
        self._open_again_at = 0.0
        """After a failure: who can wait for another connection opens none before."""
        self._why = cause_for("saturated")
        """Why there are not more connections."""
        self._guard = threading.RLock()

    # ---- taking

    def take(self, time_limit: TimeLimit, *, new: bool = False) -> ThreadConnection:
        """A connection. Outage: the server is known to be out. PoolTimeout: none became free.

        Whatever opening a connection raises, or TimeoutError: it takes longer than *time_limit*.
        *new*: not an idle one, if one can be opened.
        """
        for number in itertools.count(1):
            found = self._free_or_opening(time_limit, new=new)
            if isinstance(found, ThreadConnection):
                return found
            try:
                return self._opened(found, time_limit)
            except Outage:
                raise
            except Exception as error:
                self._why = cause_of(error)
                if self._why.code == "disconnected" and number < MOST_CLOSED:
                    sleep(pause_after(number))
                    continue  # it was closed while it was being opened, perhaps with all others
                if not self._has_others():
                    raise
                new = False  # others are served: better one of theirs than none
                self._open_again_at = monotonic() + PROBE_EVERY
        raise AssertionError  # not reached: there is no last number

    def _free_or_opening(self, time_limit: TimeLimit, *, new: bool) -> ThreadConnection | Opening:
        """A free connection; or one that the caller is to open."""
        waiter: _Waiter | None = None
        try:
            while True:
                with self._guard:
                    found = self._next_for(waiter, new=new)
                    if found is not None:
                        self._served += waiter is not None
                        return found
                    if waiter is None:
                        self.waiters.append(waiter := _Waiter(new=new))
                self._wait(waiter, time_limit)
        finally:
            if waiter is not None:
                self._leave(waiter)

    def _next_for(self, waiter: _Waiter | None, *, new: bool) -> ThreadConnection | Opening | None:
        if waiter is not None and waiter.connection is not None:
            connection, waiter.connection = waiter.connection, None
            return connection
        if not new:
            with contextlib.suppress(IndexError):  # others take from it without the lock
                return self.idle.pop()
        if not self._may_open(new=new):
            return None
        self._opening.add(opening := Opening(self._connect, self._ended))
        return opening

    def _leave(self, waiter: _Waiter) -> None:
        """It waits no more; what it was given meanwhile goes to the next."""
        with self._guard:
            with contextlib.suppress(ValueError):
                self.waiters.remove(waiter)
            connection, waiter.connection = waiter.connection, None
        if connection is not None:
            self.put(connection)

    def _may_open(self, *, new: bool) -> bool:
        if len(self._opening) >= _OPENING_AT_ONCE:
            return False
        return new or monotonic() >= self._open_again_at or not self._has_others()

    def _has_others(self) -> bool:
        """True: other threads use connections that they will give back."""
        with self._guard:
            return any(not connection.is_closed for connection in self._members)

    def _wait(self, waiter: _Waiter, time_limit: TimeLimit) -> None:
        """Until it is woken, or for a slice. PoolTimeout: nobody was served for the whole limit.

        While others are served it is only a matter of time: they came first.
        """
        since, served = monotonic(), self._served
        woken = waiter.wait(time_limit.slice)
        outage = self._known_outage()
        if outage is not None:
            raise outage
        if woken or served != self._served:
            time_limit.reset()
        elif time_limit.count(monotonic() - since):
            raise PoolTimeout(self._why, sent=False)

    def _opened(self, opening: Opening, time_limit: TimeLimit) -> ThreadConnection:
        opening.start()
        elapsed = 0.0
        try:
            while not time_limit.count(elapsed):
                since = monotonic()
                if opening.wait(time_limit.slice) or self._known_outage() is not None:
                    break
                elapsed = monotonic() - since
        except BaseException:  # a signal handler raised
            opening.cancel()
            raise
        connection = opening.take()
        if connection is not None:
            return connection
        error = self._known_outage() or opening.error or TimeoutError()
        # Explicitly: where another error is being handled, that one would take its place.
        raise error from (error.__cause__ or error.__context__)

    def _ended(self, opening: Opening) -> None:
        with self._guard:
            self._opening.discard(opening)
            if self.waiters:
                self.waiters[0].wake()

    # ---- giving back

    def add(self, connection: ThreadConnection) -> None:
        """It is in use, and will be given back."""
        with self._guard:
            self._members.add(connection)

    def remove(self, connection: ThreadConnection | None) -> None:
        """It is used for something else or silent: nobody should wait for it."""
        if connection is not None:
            with self._guard:
                self._members.discard(connection)

    def put(self, connection: ThreadConnection) -> None:
        """Back to the idle ones, or to whoever waits for one."""
        if connection.generation != self.generation:
            connection.close()
            self.wake_all()  # who waits for it can open one
            return
        if len(self.idle) >= MOST_IDLE:
            connection.close()
            return
        if self.waiters:
            with self._guard:
                waiter = next((each for each in self.waiters if not each.new), None)
                if waiter is not None:
                    self.waiters.remove(waiter)
                    waiter.connection = connection
                    waiter.wake()
                    return
        self.idle.append(connection)
        if connection.generation != self.generation:  # meanwhile
            self.drop_idle()

    def sweep(self, now: float) -> None:
        """Close idle connections that the server has closed, and check the time-outs of the others.

        The last one that was given back is taken first. So a server that ends idle connections
        would leave those at the bottom open here for ever.
        """
        self.sweep_at = now + _SWEEP_EVERY
        for connection in [each for each in self.idle if each.has_ended()]:
            with contextlib.suppress(ValueError):  # another thread has taken it
                self.idle.remove(connection)
                connection.close()
        for connection in list(self.idle):
            connection.look_again()

    def drop_idle(self) -> None:
        """One connection broke or hangs: the other idle ones may be broken as well."""
        while self.idle:
            with contextlib.suppress(IndexError):
                self.idle.pop().close()

    def renew(self) -> None:
        """Use no connection again that is open now: also those that a thread is using."""
        self.generation += 1
        self.drop_idle()

    def wake_all(self) -> None:
        """Something changed that all who wait should know."""
        with self._guard:
            for waiter in self.waiters:
                waiter.wake()

    def close(self) -> None:
        """Close what is idle, and what comes back."""
        self.renew()
        self.wake_all()
