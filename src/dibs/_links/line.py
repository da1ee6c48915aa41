"""One open connection of the asyncio link."""

import asyncio
from collections import deque
from typing import Any, Protocol

import hiredis

from .._core.engine import Engine
from .._core.request import Reply, Request
from . import adopted


class Pending:
    """A request on its way, and who waits for its reply (nobody: `future` is None)."""

    __slots__ = ("future", "request", "since", "times_sent")

    def __init__(
        self, future: "asyncio.Future[Any] | None", request: Request, since: float
    ) -> None:
        self.future = future
        self.request = request
        self.since = since
        self.times_sent = 0

    @property
    def is_wanted(self) -> bool:
        """True: somebody waits for it, or it must be delivered anyway."""
        return self.request.until > 0 or (self.future is not None and not self.future.done())

    def answer(self, reply: Any) -> None:
        """Hand over the reply, unless the waiter has left or was answered by another line."""
        if self.future is not None and not self.future.done():
            self.future.set_result(reply)

    def fail(self, error: Exception) -> None:
        """Tell the waiter that no reply will come."""
        if self.future is not None and not self.future.done():
            self.future.set_exception(error)


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
        return self.queue[0].since if self.queue else None

    def send(self, pending: Pending) -> None:
        """Put a request on the wire."""
        pending.times_sent += 1
        queue, out = self.queue, self._out
        if out:
            out.append(pending.request.payload)
        elif queue or not self._may_write:
            out.append(pending.request.payload)
            self._call_soon(self._flush)
        else:
            self._transport.write(pending.request.payload)
        queue.append(pending)

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
            pending = queue[0]
            replies = pending.request.replies
            if replies != 1:
                got.append(reply)
                if len(got) < replies:
                    continue
                reply = got
                self._got = got = []
            queue.popleft()
            future = pending.future
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

    async def closed(self, seconds: float) -> None:
        """Close, and wait until it is (TLS says goodbye first), but not longer than *seconds*."""
        self.close()
        await asyncio.wait([self._gone], timeout=seconds)
        self.abort()

    def abort(self) -> None:
        """Close at once."""
        self._transport.abort()
        adopted.forget(self._connection)
