"""One open connection of the asyncio link."""

import asyncio
from collections import deque
from typing import Any, Protocol

import hiredis

from .._core.capabilities import Handshake
from .._core.engine import Engine
from .._core.request import REPEATED, Reply, Request
from . import adopted

Pending = tuple["asyncio.Future[Any] | None", Request, float]
"""A request on its way: who waits for its reply (or nobody), what it is, since when it waits.

A bare tuple, because two are made for every lease.
"""


def is_wanted(pending: Pending) -> bool:
    """True: somebody waits for the reply, or it must be delivered anyway."""
    future, request, _ = pending
    return request.until > 0 or (future is not None and not future.done())


def fail(pending: Pending, error: Exception) -> None:
    """Tell whoever waits that no reply will come."""
    future = pending[0]
    if future is not None and not future.done():
        future.set_exception(error)


def repeated(pending: Pending) -> Pending:
    """The same, whose answer 0 says only that somebody, perhaps ourselves, was there first."""
    future, request, since = pending
    if not request.until or future is None:
        return pending
    waiter = future
    again: asyncio.Future[Any] = waiter.get_loop().create_future()

    def hand_on(answered: "asyncio.Future[Any]") -> None:
        error = None if answered.cancelled() else answered.exception()
        if waiter.done() or answered.cancelled():
            return
        if error is not None:
            waiter.set_exception(error)
        else:
            reply = answered.result()
            waiter.set_result(REPEATED if reply == 0 else reply)

    again.add_done_callback(hand_on)
    return (again, request, since)


class Owner(Protocol):
    """Who is told what a line cannot settle itself."""

    def pushed(self, push: list[Reply]) -> None: ...
    def line_lost(self, line: "Line", error: BaseException) -> None: ...


class Line(asyncio.BufferedProtocol):
    """Requests out in order, replies back in order, pushes told apart.

    The first request of a loop tick on an idle line is written at once (one task alone pays no
    extra tick), the others of that tick go out together.
    """

    def __init__(self, owner: Owner, connection: Any) -> None:
        self.queue: deque[Pending] = deque()
        self.engine: Engine | None = None
        self.pushes = int(connection.protocol) >= 3
        self.is_tracking = False
        """True: the server was told that this connection wants to be told of changes."""
        self._owner = owner
        loop = asyncio.get_running_loop()
        self._call_soon = loop.call_soon
        self._gone: asyncio.Future[None] = loop.create_future()
        self._connection = connection
        self._reader = adopted.make_reader()
        self._transport, early = adopted.transport_of(connection)
        self._buffer = bytearray(65536)
        self._out: list[bytes] = []
        self._got: list[Reply] = []
        self._may_write = True
        self._transport.set_protocol(self)
        if early:
            self._received(early, len(early))

    @property
    def oldest(self) -> float | None:
        """Since when the oldest unanswered request waits."""
        return self.queue[0][2] if self.queue else None

    def send(self, pending: Pending) -> None:
        """Put a request on the wire."""
        queue, out, payload = self.queue, self._out, pending[1].payload
        if out:
            out.append(payload)
        elif queue or not self._may_write:
            out.append(payload)
            self._call_soon(self._flush)
        else:
            self._transport.write(payload)
        queue.append(pending)

    async def ask_engine(self, *, plain: bool = False) -> Engine:
        """What the server can do. UsageError: it cannot be worked with. EOFError: it was closed."""
        handshake = Handshake(plain=plain, pushes=self.pushes)
        while self.engine is None:
            reply: asyncio.Future[Any] = self._gone.get_loop().create_future()
            self.send((reply, handshake.request, 0.0))
            await asyncio.wait([reply, self._gone], return_when=asyncio.FIRST_COMPLETED)
            if not reply.done():
                raise handshake.closed() or EOFError()
            replies = reply.result()
            self.engine = handshake.heard(replies if handshake.is_list else [replies])
        return self.engine

    def _flush(self) -> None:
        if self._may_write and self._out:
            self._transport.write(b"".join(self._out))
            self._out.clear()

    def get_buffer(self, sizehint: int) -> bytearray:
        # One buffer for ever: asyncio's own would take and give back 256 KiB for every read.
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._received(self._buffer, nbytes)

    def _received(self, data: bytes | bytearray, size: int) -> None:
        try:
            self._reader.feed(data, 0, size)
            self._read()
        except (ConnectionError, IndexError) as error:
            # Bytes that are no reply, or a reply to nothing: the line cannot be trusted.
            self.abort()
            self._owner.line_lost(self, error)

    def _read(self) -> None:
        """Hand out all replies that are complete. The hottest loop of all: hence in one piece."""
        gets, queue, got = self._reader.gets, self.queue, self._got
        while (reply := gets()) is not adopted.MORE:
            if type(reply) is hiredis.PushNotification:
                self._owner.pushed(reply)
                continue
            future, request, _ = queue[0]
            if request.replies != 1:
                got.append(reply)
                if len(got) < request.replies:
                    continue
                reply = got
                self._got = got = []
            queue.popleft()
            if future is not None and not future.done():
                future.set_result(reply)

    def pause_writing(self) -> None:
        self._may_write = False

    def resume_writing(self) -> None:
        self._may_write = True
        self._flush()

    def connection_lost(self, exc: Exception | None) -> None:
        adopted.forget(self._connection)
        if not self._gone.done():
            self._gone.set_result(None)
        self._owner.line_lost(self, exc or EOFError())

    def close(self) -> None:
        """Send what is not yet sent, then close. Unanswered requests stay in `queue`."""
        self._may_write = True
        self._flush()
        self._transport.close()
        adopted.forget(self._connection)

    def give_up(self) -> list[Pending]:
        """All that was asked here, is not answered, and still wanted."""
        wanted = [pending for pending in self.queue if is_wanted(pending)]
        self.queue.clear()
        return wanted

    async def closed(self, seconds: float) -> None:
        """Close, and wait until it is (TLS says goodbye first), but not longer than *seconds*."""
        self.close()
        await asyncio.wait([self._gone], timeout=seconds)
        self.abort()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()
        adopted.forget(self._connection)


def resend(line: Line, pending: Pending) -> None:
    """Ask on *line* what was asked elsewhere, if it is still wanted."""
    future, request, _ = pending
    if request.replies:
        if is_wanted(pending):
            line.send(pending)
    elif future is not None and not future.done():
        future.set_result([])
