"""One open connection of the threads link, used by one thread at a time."""

import contextlib
import socket
from time import monotonic
from typing import Any

from .._core.capabilities import Handshake
from .._core.engine import Engine
from .._core.request import Reply, Request
from . import adopted


class Wire:
    """A request out, its replies back. Any exception means: close it, its state is not known."""

    __slots__ = ("_connection", "_reader", "_sock", "engine", "patience", "pushes")

    def __init__(self, connection: Any, patience: float | None) -> None:
        self._connection = connection
        self._sock = adopted.socket_of(connection)
        self._reader = adopted.make_reader()
        self.pushes = int(connection.protocol) >= 3
        self.engine: Engine | None = None
        self.set_patience(patience)

    def set_patience(self, seconds: float | None) -> None:
        """How long a single look at the socket may take. Set rarely: it costs a system call."""
        self.patience = seconds
        self._sock.settimeout(seconds)

    def ask_engine(self, *, plain: bool = False) -> Engine:
        """What the server can do. UsageError: it cannot be worked with."""
        handshake = Handshake(plain=plain, pushes=self.pushes)
        try:
            while self.engine is None:
                replies = self.exchange(handshake.request)
                self.engine = handshake.heard(replies if handshake.is_list else [replies])
        except (EOFError, ConnectionResetError) as error:
            raise handshake.closed() or error from None
        return self.engine

    def exchange(self, request: Request) -> Any:
        """The reply, or a list where there are several. TimeoutError: none within the patience.

        EOFError: closed, or there was a reply to nothing: it cannot be trusted any more.
        """
        if self._reader.has_data():
            raise EOFError
        self.write(request)
        return self.read(request, monotonic())

    def write(self, request: Request) -> None:
        """Put a request on the wire."""
        self._sock.sendall(request.payload)

    def read(self, request: Request, since: float) -> Any:
        """Its reply, or a list where there are several."""
        if request.replies == 1:
            return self._next(since)
        return [self._next(since) for _ in range(request.replies)]

    def _next(self, since: float) -> Reply:
        reply = self._reader.gets()
        if reply is adopted.MORE:
            return self._wait_for_more(since)
        return reply

    def _wait_for_more(self, since: float) -> Any:
        reader, sock = self._reader, self._sock
        data = sock.recv(65536)
        reader.feed(data)
        reply = reader.gets()
        if reply is not adopted.MORE:
            return reply
        # Rare: the reply came in pieces. Each piece restarts the socket's clock, so ours counts.
        while reply is adopted.MORE:
            if not data:
                raise EOFError
            self._wait_less(since)
            data = sock.recv(65536)
            reader.feed(data)
            reply = reader.gets()
        sock.settimeout(self.patience)
        return reply

    def _wait_less(self, since: float) -> None:
        if self.patience is not None:
            left = self.patience - (monotonic() - since)
            if left <= 0:
                raise TimeoutError
            self._sock.settimeout(left)

    def close(self) -> None:
        """Close. In a forked child only the child's copy, without a word to the server."""
        self._connection.disconnect()

    def read_any(self) -> Any:
        """The next reply or push."""
        return self._next(monotonic())

    def hang_up(self) -> None:
        """End the conversation under a thread that reads: it gets an EOFError and closes."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
