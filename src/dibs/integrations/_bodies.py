"""Reading the body of a request to its end, before anybody works on it.

What is short stays in memory; the rest goes to a temporary file, and is hashed on its way. The
application gets all of it afterwards. A body that breaks off is noticed here.
"""

import asyncio
import hashlib
import tempfile
from collections.abc import Awaitable, Callable, MutableMapping
from typing import IO, Any, cast

from .._http.bodies import SHORT, BodyHash, LongBody, declared_length
from .._http.facts import INCOMPLETE, KeyTrouble, too_large

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

PIECE = 256 * 1024
"""Bytes that are written to a file, or read from it, at a time."""


class AsgiBody:
    """The body of a request under ASGI. `receive` hands it on."""

    # What few bodies need is set on the class: most are short, and come in one message.
    _size = 0
    _first: Message | None = None
    """All of it, if it came in one message."""
    _buffer: bytearray | None = None
    """What has come in several: together, because a client may cut it as finely as it likes."""
    _file: IO[bytes] | None = None
    _hash: BodyHash | None = None
    is_gone = False
    """The client left before it had said everything."""
    long: LongBody | None = None
    """What is known of a body that is not held in memory."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive

    @property
    def data(self) -> bytes:
        """The body, if it is short."""
        return b"" if self._first is None else self._first.get("body", b"")

    async def read(self, headers: dict[str, str], limit: int) -> KeyTrouble | None:
        """Read to the end. Returns what is wrong with it: it broke off, or is too long."""
        message = await self._receive()
        if self._is_all(message, limit):
            self._first = message
            return None
        self._buffer = bytearray()
        while await self._take(message, self._buffer, headers, limit):
            message = await self._receive()
        if self._size > limit:
            return too_large(limit)
        if self.is_gone:
            return INCOMPLETE
        await self._finish(self._buffer)
        return None

    def _is_all(self, message: Message, limit: int) -> bool:
        """True: the first message is a whole, short body."""
        is_last = message["type"] == "http.request" and not message.get("more_body")
        return is_last and len(message.get("body", b"")) <= min(SHORT, limit)

    async def _take(
        self, message: Message, buffer: bytearray, headers: dict[str, str], limit: int
    ) -> bool:
        """One message. False: it was the last."""
        if message["type"] == "http.disconnect":
            self.is_gone = True
            return False
        piece = message.get("body", b"")
        self._size += len(piece)
        if self._size <= limit:
            buffer += piece
            await self._spool(buffer, headers)
        # What is too long is read all the same, within reason: a client that is answered while it
        # still sends would lose its connection, and the answer with it.
        return bool(message.get("more_body")) and self._size <= 2 * limit

    async def _spool(self, buffer: bytearray, headers: dict[str, str]) -> None:
        """Move what has come to a file, if the body is long."""
        if self._file is None and self._size > SHORT:
            self._file = cast("IO[bytes]", tempfile.TemporaryFile())  # noqa: SIM115 – see close()
            self._hash = BodyHash(headers.get("content-type", ""))
        if self._file is not None and self._hash is not None and len(buffer) >= PIECE:
            await asyncio.to_thread(_move, buffer, self._hash, self._file)

    async def _finish(self, buffer: bytearray) -> None:
        self._buffer = None
        if self._file is None or self._hash is None:
            self._first = {"type": "http.request", "body": bytes(buffer), "more_body": False}
            return
        await asyncio.to_thread(_move, buffer, self._hash, self._file)
        self._file.seek(0)
        self.long = self._hash.result()

    async def receive(self) -> Message:
        """What was read, then what comes: a client that really leaves is told as ever."""
        if self._first is not None:
            first, self._first = self._first, None
            return first
        if self._file is None:
            return await self._receive()
        piece = await asyncio.to_thread(self._file.read, PIECE)
        self._size -= len(piece)
        is_more = self._size > 0 and bool(piece)
        if not is_more:
            self.close()
        return {"type": "http.request", "body": piece, "more_body": is_more}

    def close(self) -> None:
        """Remove the file, if there is one."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _move(buffer: bytearray, hashing: BodyHash, file: IO[bytes]) -> None:
    """Hash and write what is in *buffer*, and empty it."""
    data = bytes(buffer)
    buffer.clear()
    hashing.add(data)
    file.write(data)


class WsgiBody:
    """The body of a request under WSGI. `file` is what the application reads in its place."""

    __slots__ = ("_is_ended", "data", "file", "long", "size")

    def __init__(self, *, is_ended: bool) -> None:
        self._is_ended = is_ended
        self.data = b""
        self.size = 0
        self.long: LongBody | None = None
        file = tempfile.SpooledTemporaryFile(SHORT)  # noqa: SIM115 – see close()
        self.file: IO[bytes] = cast("IO[bytes]", file)

    def read(self, source: Any, headers: dict[str, str], limit: int) -> KeyTrouble | None:
        """Read to the end. Returns what is wrong with it: it broke off, or is too long."""
        length = declared_length(headers)
        self.size = self._copy(source, headers, limit, length)
        if self.size > limit:
            return too_large(limit)
        if length is not None and self.size < length:
            return INCOMPLETE
        self.file.seek(0)
        if self.long is None:
            self.data = self.file.read()
            self.file.seek(0)
        return None

    def _copy(self, source: Any, headers: dict[str, str], limit: int, length: int | None) -> int:
        """How much there was. Without a length, only what a server ends may be read to its end."""
        if length is None and not self._is_ended:
            return 0
        hashing, size = BodyHash(headers.get("content-type", "")), 0
        while size <= 2 * limit and (length is None or size < length):
            piece = source.read(PIECE if length is None else min(PIECE, length - size))
            if not piece:
                break
            size += len(piece)
            if size <= limit:
                hashing.add(piece)
                self.file.write(piece)
        self.long = hashing.result() if SHORT < size <= limit else None
        return size

    def close(self) -> None:
        """Remove the file."""
        self.file.close()


def file_hash(file: Any) -> str:
    """The hash of a file that was uploaded, and is read again by the application."""
    place, hashing = file.tell(), hashlib.sha256()
    file.seek(0)
    while piece := file.read(PIECE):
        hashing.update(piece)
    file.seek(place)
    return hashing.hexdigest()
