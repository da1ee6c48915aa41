"""The floor: the same commands on the wire with nothing around them.

``SET NX GET PX`` and ``PTTL`` in one write, then ``DELIFEQ``: two round trips, three replies, what
any lease of this kind must at least pay. The commands are packed beforehand and the replies are
parsed by hiredis. There is no error handling, no deadline and no reconnecting: this is a floor to
measure from, not a client to use.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from typing import cast

import hiredis

from ..servers import packed
from . import TTL


class Threads:
    """One blocking socket for each key."""

    def __init__(self, port: int, callers: int) -> None:
        self._port = port
        self._lines: list[socket.socket] = []

    def pair_on(self, key: str) -> Callable[[], None]:
        line = socket.create_connection(("127.0.0.1", self._port))
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lines.append(line)
        reader, (take, give) = hiredis.Reader(), commands(key)
        feed, gets, send, receive = reader.feed, reader.gets, line.sendall, line.recv

        def reply() -> object:
            while (answer := gets()) is False:
                feed(receive(65536))
            return answer

        def pair() -> None:
            send(take)
            held = reply()
            reply()
            send(give)
            if held is not None or reply() != 1:
                raise AssertionError(f"{key} was not free")

        return pair

    def close(self) -> None:
        for line in self._lines:
            line.close()


class Line(asyncio.Protocol):
    """One connection for all tasks: what they ask in one turn of the loop goes out in one write.

    An idle line is written to at once; for a lone task, gathering would cost a turn of the loop.
    """

    def __init__(self) -> None:
        self._reader = hiredis.Reader()
        self._outgoing: list[bytes] = []
        self._waiting: deque[asyncio.Future[object] | None] = deque()
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def ask(self, packed: bytes, replies: int) -> asyncio.Future[object]:
        """The first of ``replies`` replies to what is sent; the others are read and dropped."""
        if not self._waiting:
            self.transport.write(packed)
        else:
            if not self._outgoing:
                self._loop.call_soon(self._flush)
            self._outgoing.append(packed)
        answer: asyncio.Future[object] = self._loop.create_future()
        self._waiting.append(answer)
        self._waiting.extend([None] * (replies - 1))
        return answer

    def _flush(self) -> None:
        self.transport.write(b"".join(self._outgoing))
        self._outgoing.clear()

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            if (answer := self._waiting.popleft()) is not None:
                answer.set_result(reply)


class Tasks:
    """All keys on one :class:`Line`."""

    def __init__(self, line: Line) -> None:
        self._line = line

    @classmethod
    async def open(cls, port: int, callers: int) -> Tasks:
        loop = asyncio.get_running_loop()
        return cls((await loop.create_connection(Line, "127.0.0.1", port))[1])

    def pair_on(self, key: str) -> Callable[[], Awaitable[None]]:
        ask, (take, give) = self._line.ask, commands(key)

        async def pair() -> None:
            if await ask(take, 2) is not None or await ask(give, 1) != 1:
                raise AssertionError(f"{key} was not free")

        return pair

    async def aclose(self) -> None:
        self._line.transport.close()


def commands(key: str) -> tuple[bytes, bytes]:
    """What takes the key, in one write, and what gives it back."""
    token = f"token-of-{key}"
    take = packed("SET", key, token, "NX", "GET", "PX", TTL * 1000) + packed("PTTL", key)
    return take, packed("DELIFEQ", key, token)
