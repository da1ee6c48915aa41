"""One open connection of the asyncio transport."""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Any

from .._core.capabilities import Engine, Handshake
from .._core.request import Channel, Pending, Reply, reply_parser
from . import redis_internals
from .thread_connection import is_readable, unsent_bytes

OnPush = Callable[[list[Reply]], None]
OnLost = Callable[["AsyncConnection", BaseException], None]

_READ = 65536
"""How many bytes are read at once."""


class AsyncConnection(Channel, asyncio.BufferedProtocol):
    """Requests out in order, replies back in order, pushes apart from them.

    A request on an idle connection is written at once, so that one task alone pays no extra tick.
    Where several tasks are busy, what they ask in one tick goes out together.
    """

    def __init__(self, connection: Any, on_push: OnPush, on_lost: OnLost) -> None:
        """*on_push*: called when the server reports changed keys. *on_lost*: when it is closed."""
        super().__init__()
        self.engine: Engine | None = None
        self.pushes = int(connection.protocol) >= 3
        self.is_tracking = False
        """True: the server was asked to report changes on this connection."""
        self._on_push = on_push
        self._on_lost = on_lost
        loop = asyncio.get_running_loop()
        self._call_soon = loop.call_soon
        self._gone: asyncio.Future[None] = loop.create_future()
        self._connection = connection
        self._parser = reply_parser()
        self._asyncio_transport, early = redis_internals.transport_of(connection)
        # One buffer for ever: asyncio's own would take and give back 256 KiB for every read.
        # A view of it, because the TLS layer writes into slices, and a slice of a bytearray is
        # a copy.
        self._buffer = memoryview(bytearray(_READ))
        self._may_write = True
        self._asyncio_transport.set_protocol(self)
        if early:
            self._received(early, len(early))

    async def ask_engine(self, *, plain: bool = False, ending: bool = False) -> Engine:
        """What the server can do. UsageError: it cannot be worked with. EOFError: it was closed."""
        handshake = Handshake(plain=plain, pushes=self.pushes, ending=ending)
        while self.engine is None:
            reply: asyncio.Future[Any] = self._gone.get_loop().create_future()
            self.send((reply, handshake.request))
            try:
                replies = await reply
            except (EOFError, ConnectionError) as error:
                raise handshake.closed() or error from None
            self.engine = handshake.received(replies if handshake.is_list else [replies])
        self.client = handshake.client
        return self.engine

    # ---- writing

    def send(self, pending: Pending) -> None:
        """Put a request on the wire."""
        queue, unsent, payload = self.queue, self.unsent, pending[1].payload
        if unsent:
            unsent.append(payload)
        elif queue or self.is_shared or not self._may_write:
            unsent.append(payload)
            self._call_soon(self._flush)
        else:
            self.written += len(payload)
            self._asyncio_transport.write(payload)
        queue.append(pending)

    def _flush(self) -> None:
        if self._may_write and self.unsent:
            data = b"".join(self.unsent)
            self.unsent.clear()
            self.written += len(data)
            self._asyncio_transport.write(data)

    @property
    def delivered(self) -> int:
        """How many bytes the server's machine has received, as far as this one knows."""
        transport = self._asyncio_transport
        buffered = transport.get_write_buffer_size()
        return self.written - buffered - unsent_bytes(transport.get_extra_info("socket"))

    @property
    def has_unread(self) -> bool:
        """Whether there is something to read, or it is broken."""
        sock = self._asyncio_transport.get_extra_info("socket")
        return sock is not None and is_readable(sock)

    def pause_writing(self) -> None:
        self._may_write = False

    def resume_writing(self) -> None:
        self._may_write = True
        self._flush()

    # ---- reading

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self._received(self._buffer, nbytes)

    def _received(self, data: bytes | memoryview, size: int) -> None:
        try:
            self._parser.feed(data, 0, size)
            self.receive(self._parser.gets, self._on_push)
        except (ConnectionError, IndexError) as error:
            # Bytes that are no reply, or a reply to nothing: it cannot be trusted any more.
            self.abort()
            self._on_lost(self, error)

    # ---- the end

    def connection_lost(self, exc: Exception | None) -> None:
        redis_internals.disown(self._connection)
        if not self._gone.done():
            self._gone.set_result(None)
        self._on_lost(self, exc or EOFError())

    @property
    def is_closing(self) -> bool:
        """True: it was closed, here or by the server; what is written to it reaches nobody."""
        return self._asyncio_transport.is_closing()

    def close(self) -> None:
        """Write what is not yet written, then close."""
        self._may_write = True
        self._flush()
        self._asyncio_transport.close()
        redis_internals.disown(self._connection)

    async def wait_closed(self, seconds: float) -> None:
        """Close, and wait until it is (TLS is shut down first), but not longer than *seconds*."""
        self.close()
        await asyncio.wait([self._gone], timeout=seconds)
        self.abort()

    def shut_down(self) -> None:
        """Its loop is closed: end the conversation, so that the server need not keep it."""
        with contextlib.suppress(OSError, AttributeError, TypeError):
            self._asyncio_transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    def abort(self) -> None:
        """Close at once."""
        self._asyncio_transport.abort()
        redis_internals.disown(self._connection)
