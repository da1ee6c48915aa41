"""One open connection of the threads transport, used by one thread at a time."""

import contextlib
import select
import signal
import socket
import struct
import sys
from typing import Any

from .._core.capabilities import Engine, Handshake
from .._core.connection import SLICES, TimeLimit, allowance
from .._core.request import MORE, ClientInfo, Reply, Request, reply_parser
from .._system import monotonic
from . import redis_internals

_SIOCOUTQ = 0x5411
"""Linux: bytes in the send queue that the peer has not acknowledged."""


def unsent_bytes(sock: Any) -> int:
    """Bytes written that the peer has not acknowledged; 0 if the system does not say."""
    if sys.platform != "linux" or sock is None:
        return 0
    import fcntl

    try:
        return struct.unpack("i", fcntl.ioctl(sock.fileno(), _SIOCOUTQ, b"\0\0\0\0"))[0]
    except (OSError, ValueError):  # closed meanwhile, or not a TCP socket
        return 0


def is_readable(sock: Any) -> bool:
    """True: there are bytes to read, the peer has closed it, or it is broken."""
    try:
        if not hasattr(select, "poll"):  # Windows
            return bool(select.select([sock], [], [], 0)[0])
        poller = select.poll()
        poller.register(sock, select.POLLIN)
        return bool(poller.poll(0))
    except (OSError, ValueError):  # it is closed here
        return True


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
        """What the server can do. UsageError: it cannot be worked with."""
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
        """The replies to *first*, and what `exchange` returns for *request*: in one write."""
        self.unread += first.replies
        both = Request(first.payload + request.payload, 0, request.key)
        self.exchange(both, limit)
        before: list[Reply] = []
        while self.unread:
            before.append(self._next(limit))
            self.unread -= 1
        return before, self.read(request, limit)

    def write(self, request: Request) -> None:
        """Put a request on the wire. TimeoutError: the server does not take it."""
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
        """Its reply, or a list where there are several. Silent: none came."""
        if request.replies == 1:
            return self._next(limit)
        return [self._next(limit) for _ in range(request.replies)]

    def _next(self, limit: float | None) -> Reply:
        parser = self._parser
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
        return reply

    def _receive_later(self, limit: float) -> bytes:
        """The next bytes, after a slice without any. Silent: none within *limit*."""
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
        """The next reply or push. Silent: none for a slice."""
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
    """True: a plain blocking socket. TLS and green threads (gevent) keep the time themselves."""
    is_plain = type(sock) is socket.socket and type(sock).__module__ == "socket"
    return is_plain and sys.platform == "linux"
