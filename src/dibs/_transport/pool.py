"""The connections of the threads transport: one that a thread uses, the idle ones, new ones."""

import contextlib
import itertools
import signal
import socket
import struct
import sys
import weakref
from collections import deque
from collections.abc import Callable
from time import sleep
from typing import Any

from .._core.capabilities import Engine, Handshake
from .._core.causes import cause_for
from .._core.connection import (
    MOST_CLOSED,
    PROBE_EVERY,
    SLICES,
    Outage,
    TimeLimit,
    allowance,
    pause_after,
)
from .._core.request import (
    MORE,
    PARSER_ERRORS,
    ClientInfo,
    ProtocolError,
    Reply,
    Request,
    reply_parser,
)
from .._locks import Guard, Signal, start_thread
from .._system import monotonic
from . import redis_internals
from .base import is_readable, unsent_bytes
from .connection_errors import cause_of

# ---- one connection

_TIMERS = [
    getattr(signal, name)
    for name in ("ITIMER_REAL", "ITIMER_VIRTUAL", "ITIMER_PROF")
    if hasattr(signal, name)
]


def is_interrupted_within(seconds: float) -> bool:
    """True: a timer of this process, such as a profiler's, sends signals more often than that.

    The kernel begins its wait for a socket anew after each of them.
    """
    return any(0.0 < signal.getitimer(timer)[1] <= seconds for timer in _TIMERS)


_READ = 65536
_PIECE = 65536
"""The most that is written in one step.

A TLS socket takes all or nothing, so a large request shows progress only where it is cut.
"""
_SLICE_IS_OVER = (BlockingIOError, TimeoutError)
"""How a socket says that nothing moved for a slice of the limit."""


class Silent(TimeoutError):
    """A request was written, and no byte came back for as long as the caller allows."""


class ThreadConnection:
    """A request out, its replies back. After any exception but `Silent` its state is unknown."""

    __slots__ = (
        "__weakref__", "_connection", "_limit", "_parser", "_sock", "client", "engine",
        "generation", "is_closed", "pushes", "unread", "waits_since",
    )  # fmt: skip

    def __init__(self, connection: Any, limit: float) -> None:
        self._connection = connection
        self._sock = redis_internals.socket_of(connection)
        self._parser = reply_parser()
        self._limit = limit
        self.pushes = int(connection.protocol) >= 3
        self.engine: Engine | None = None
        self.client: ClientInfo | None = None
        """How the server names it, where it would end it for us."""
        self.unread = 0
        """Replies that come before those to the request that was written last."""
        self.generation = 0
        """That of the pool when it began to be opened."""
        self.is_closed = False
        self.waits_since = monotonic()
        """Where a thread reads for all: since when everything that had come is handled."""
        self.look_every(limit / SLICES)

    def look_every(self, seconds: float) -> None:
        """How long a system call on the socket may take before it is looked at again."""
        if _has_kernel_timeouts(self._sock) and not is_interrupted_within(2 * seconds):
            # The kernel keeps the time: Python's own way is another system call for every call.
            whole, part = divmod(seconds, 1)
            limit = struct.pack("ll", int(whole), max(int(part * 1e6), 1))
            self._sock.settimeout(None)
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        else:
            self._sock.settimeout(seconds)

    def look_again(self) -> None:
        """Signals may come more often, or less often, than when the connection was opened."""
        is_kernel, seconds = self._sock.gettimeout() is None, self._limit / SLICES
        if _has_kernel_timeouts(self._sock) and is_interrupted_within(2 * seconds) == is_kernel:
            self.look_every(seconds)

    def ask_engine(self, limit: float, *, plain: bool = False, ending: bool = False) -> Engine:
        """Return what the server can do. Raises UsageError if it cannot be worked with."""
        handshake = Handshake(plain=plain, pushes=self.pushes, ending=ending)
        try:
            while self.engine is None:
                replies = self.exchange(handshake.request, limit)
                self.engine = handshake.received(replies if handshake.is_list else [replies])
        except (EOFError, ConnectionResetError) as error:
            raise handshake.closed() or error from None
        self.client = handshake.client
        return self.engine

    def exchange(self, request: Request, limit: float | None = None) -> Any:
        """The reply, or a list where there are several. Silent: none came; it may still come.

        EOFError: the server closed, or replied to nothing: it cannot be trusted any more.
        *limit*: how long the server may stay silent, in seconds (default: as it was made with).
        """
        if self._parser.has_data():
            raise EOFError
        self.write(request)
        if len(request.payload) > _PIECE:
            limit = (self._limit if limit is None else limit) + allowance(len(request.payload))
        return self.read(request, limit)

    def exchange_after(
        self, first: Request, request: Request, limit: float | None
    ) -> tuple[list[Reply], Any]:
        """Return the replies to *first*, and what `exchange` returns for *request*.

        In one write.
        """
        self.unread += first.replies
        both = Request(first.payload + request.payload, 0, request.key)
        self.exchange(both, limit)
        before: list[Reply] = []
        while self.unread:
            before.append(self._next_reply(limit))
            self.unread -= 1
        return before, self.read(request, limit)

    def write(self, request: Request) -> None:
        """Put a request on the wire. Raises TimeoutError if the server does not take it."""
        payload = request.payload
        try:
            sent = self._sock.send(payload) if len(payload) <= _PIECE else 0
        except _SLICE_IS_OVER:
            sent = 0
        if sent != len(payload):
            self._write_pieces(memoryview(payload)[sent:])

    def _write_pieces(self, rest: memoryview) -> None:
        time_limit = TimeLimit(self._limit)
        left = unsent_bytes(self._sock)
        while rest:
            since = monotonic()
            try:
                rest = rest[self._sock.send(rest[:_PIECE]) :]
                time_limit.reset()
            except _SLICE_IS_OVER:
                before, left = left, unsent_bytes(self._sock)
                if left < before:
                    time_limit.reset()
                elif time_limit.count(monotonic() - since):
                    # Not `Silent`: half a request is on the wire, nobody can use it any more.
                    raise TimeoutError("the request could not be sent in time") from None

    def read(self, request: Request, limit: float | None = None) -> Any:
        """Return its reply, or a list where there are several. Raises Silent if none came."""
        if request.replies == 1:
            return self._next_reply(limit)
        return [self._next_reply(limit) for _ in range(request.replies)]

    def _next_reply(self, limit: float | None) -> Reply:
        parser = self._parser
        try:
            reply = parser.gets()
            while reply is MORE:
                try:
                    data = self._sock.recv(_READ)
                except _SLICE_IS_OVER:
                    data = self._receive_later(self._limit if limit is None else limit)
                if not data:
                    raise EOFError
                parser.feed(data)
                reply = parser.gets()
        except PARSER_ERRORS as error:
            raise ProtocolError(str(error)) from None
        return reply

    def _receive_later(self, limit: float) -> bytes:
        """Return the next bytes, after a slice without any.

        Raises Silent if none within *limit*.
        """
        time_limit = TimeLimit(limit)
        elapsed = self._limit / SLICES
        left = unsent_bytes(self._sock)
        while not time_limit.count(elapsed):
            since = monotonic()
            try:
                return self._sock.recv(_READ)
            except _SLICE_IS_OVER:
                elapsed = monotonic() - since
            before, left = left, unsent_bytes(self._sock)
            if left < before:  # a large request is still on its way out
                time_limit.reset()
        raise Silent

    def read_any(self) -> Any:
        """Return the next reply or push. Raises Silent if none for a slice."""
        try:
            reply = self._parser.gets()
            while reply is MORE:
                self.waits_since = monotonic()
                try:
                    data = self._sock.recv(_READ)
                except _SLICE_IS_OVER:
                    raise Silent from None
                if not data:
                    raise EOFError
                self._parser.feed(data)
                reply = self._parser.gets()
        except PARSER_ERRORS as error:
            raise ProtocolError(str(error)) from None
        return reply

    def has_ended(self) -> bool:
        """True, while nobody waits for a reply: the server has closed the connection."""
        return is_readable(self._sock)

    def close(self) -> None:
        """Close. In a forked child only the child's copy, without telling the server."""
        self.is_closed = True
        self._connection.disconnect()

    def shutdown(self) -> None:
        """End the conversation under a thread that reads: it gets an EOFError and closes."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)


def _has_kernel_timeouts(sock: Any) -> bool:
    """Return True if a plain blocking socket.

    TLS and green threads (gevent) keep the time themselves.
    """
    is_plain = type(sock) is socket.socket and type(sock).__module__ == "socket"
    return is_plain and sys.platform == "linux"


# ---- opening one, and the idle ones


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
        self._guard = Guard()
        self._is_taken = False
        self._connection: ThreadConnection | None = None

    def start(self) -> None:
        """Start the thread. *on_end* is called when the attempt has succeeded or failed."""
        try:
            start_thread(self._open_connection, "dibs connect")
        except RuntimeError:  # no more threads: open it in this one
            self._open_connection()

    def wait(self, seconds: float) -> bool:
        """Return True if it has succeeded or failed."""
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

    def _open_connection(self) -> None:
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
        """Return True if it was woken."""
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
        self._guard = Guard()

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
                return self._opened_by(found, time_limit)
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
        """Return a free connection; or one that the caller is to open."""
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
                self._wait_for_turn(waiter, time_limit)
        finally:
            if waiter is not None:
                self._leave_queue(waiter)

    def _next_for(self, waiter: _Waiter | None, *, new: bool) -> ThreadConnection | Opening | None:
        if waiter is not None and waiter.connection is not None:
            connection, waiter.connection = waiter.connection, None
            return connection
        if not new:
            with contextlib.suppress(IndexError):  # others take from it without the lock
                return self.idle.pop()
        if not self._may_open(new=new):
            return None
        self._opening.add(opening := Opening(self._connect, self._opening_ended))
        return opening

    def _leave_queue(self, waiter: _Waiter) -> None:
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
        """Return True if other threads use connections that they will give back."""
        with self._guard:
            return any(not connection.is_closed for connection in self._members)

    def _wait_for_turn(self, waiter: _Waiter, time_limit: TimeLimit) -> None:
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

    def _opened_by(self, opening: Opening, time_limit: TimeLimit) -> ThreadConnection:
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

    def _opening_ended(self, opening: Opening) -> None:
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
