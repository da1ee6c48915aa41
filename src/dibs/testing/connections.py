"""One connection through the fault proxy: two ends, and a lane in each direction.

A lane that has lost a byte never delivers another one, as TCP never delivers what comes after a
gap: whoever goes on using such a connection meets silence, never somebody else's reply.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import cast

from .fault_plan import FaultPlan

REACH = 1024  # how much of earlier chunks is kept, for a match that lies across chunks
RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # linger, but for no time
PIECE_PAUSE = 0.0002  # between the pieces of a torn chunk, so that they arrive one by one
CLOCK_STEP = 0.0001  # what is due so soon is not worth a timer
PIECES_PER_SECOND = 500  # of a lane with a limit: each piece is sent when its time has come

LANE_SIZE = 65536  # bytes on a lane of limited bandwidth before its sender has to wait

Lost = Callable[[Exception | None], None]


class End(asyncio.Protocol):
    """One socket of a connection; reads nothing before it is told to."""

    def __init__(self, received: Callable[[bytes], None], lost: Lost) -> None:
        self._received = received
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._is_held_back = False
        self._wire: socket.socket | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # Now: a TLS transport that is being closed does not know its socket any more.
        self._wire = cast("socket.socket", transport.get_extra_info("socket"))
        self._transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        self._received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = self._wire = None
        self._lost(exc)

    @property
    def open(self) -> bool:
        """Whether it can still be written to."""
        return self._transport is not None and not self._transport.is_closing()

    def begin(self) -> None:
        """Read from now on."""
        if self._transport is not None and self.open:
            self._transport.resume_reading()

    def hold_back(self, *, is_full: bool) -> None:
        """Read nothing while the other lane is full: the sender's own buffers fill up."""
        if self._transport is not None and self.open and is_full != self._is_held_back:
            self._is_held_back = is_full
            (self._transport.pause_reading if is_full else self._transport.resume_reading)()

    def write(self, chunk: bytes) -> None:
        """Send, unless it is closed."""
        if self._transport is not None and self.open:
            self._transport.write(chunk)

    def finish(self) -> None:
        """Say that nothing more will be sent, and go on reading."""
        if self._transport is not None and self.open:
            self._transport.write_eof()

    def close(self) -> None:
        """End politely (FIN), after what was written."""
        if self._transport is not None:
            self._transport.close()

    def reset(self) -> None:
        """End rudely (RST), forgetting what was written."""
        if self._transport is not None and self._wire is not None:
            if self._wire.fileno() != -1:
                self._wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            self._transport.abort()


class Lane:
    """What is on its way to one end, in order, each chunk after its delay."""

    def __init__(self, end: End, source: End, *, stalled: bool) -> None:
        self.left: int | None = None  # how many bytes will still be delivered; None = all
        self._end = end
        self._source = source
        self._waiting = 0  # bytes of a limited lane that are not delivered yet
        self._stalled = stalled
        self._queue = deque[tuple[float, Callable[[], None]]]()
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def carry(self, chunk: bytes, *, delay: float, piece: int, rate: float) -> None:
        """Deliver a chunk, or as much of it as the lane still lets through."""
        if self.left is not None:
            chunk = chunk[: self.left]
            self.left -= len(chunk)
        size, pause = _pieces(len(chunk), piece, rate)
        if rate:
            self._waiting += len(chunk)
            self._source.hold_back(is_full=self._waiting > LANE_SIZE)
        for start in range(0, len(chunk), size):
            piece_of_it = chunk[start : start + size]
            write = partial(self._write_limited if rate else self._end.write, piece_of_it)
            self.then(write, delay=delay, pause=pause)

    def _write_limited(self, chunk: bytes) -> None:
        self._waiting -= len(chunk)
        self._source.hold_back(is_full=self._waiting > LANE_SIZE)
        self._end.write(chunk)

    def then(self, action: Callable[[], None], *, delay: float, pause: float = 0.0) -> None:
        """Do something to the end, after all that is on its way."""
        self._due = max(self._due + pause, asyncio.get_running_loop().time() + delay)
        self._queue.append((self._due, action))
        if self._timer is None:
            self._deliver()

    def stall(self, *, stalled: bool) -> None:
        """Keep everything back from now on, or deliver what was kept."""
        self._stalled = stalled
        if self._timer is None:
            self._deliver()

    def _deliver(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        while self._queue and not self._stalled:
            due = self._queue[0][0]
            if due > loop.time() + CLOCK_STEP:
                self._timer = loop.call_at(due, self._deliver)
                return
            self._queue.popleft()[1]()


def _pieces(length: int, piece: int, rate: float) -> tuple[int, float]:
    """How large the pieces of a chunk are, and how many seconds lie between them."""
    size = min(piece or length or 1, int(rate / PIECES_PER_SECOND) + 1 if rate else length or 1)
    return size, max(PIECE_PAUSE if piece else 0.0, size / rate if rate else 0.0)


class Connection:
    """A client's connection and its continuation to the server."""

    def __init__(self, plan: FaultPlan, gone: Callable[[Connection], None]) -> None:
        self.client = End(self._requested, self._client_lost)
        self.server = End(self._replied, self._server_lost)
        self._requests = Lane(self.server, self.client, stalled=plan.requests_stalled)
        self._replies = Lane(self.client, self.server, stalled=plan.replies_stalled)
        self._plan = plan
        self._gone = gone
        self._doomed = False
        self._seen = b""
        self._ends = 2

    def begin(self) -> None:
        """Let bytes flow, once both ends are there; a cut may have come before."""
        if not self.server.open:
            self.client.reset()
        self.server.begin()
        self.client.begin()

    def reset(self) -> None:
        """Cut both ends."""
        self.client.reset()
        self.server.reset()

    def stall(self) -> None:
        """Keep back, or let through, what the plan says."""
        self._requests.stall(stalled=self._plan.requests_stalled)
        self._replies.stall(stalled=self._plan.replies_stalled)

    def client_refused(self) -> None:
        """The client never got through its TLS handshake."""
        self.server.reset()
        self._lost_one()

    def _requested(self, chunk: bytes) -> None:
        plan = self._plan
        plan.requests += 1
        if plan.hole:
            self._requests.left = 0
        self._seen = self._seen[-REACH:] + chunk
        intact = self._requests.left is None and self._replies.left is None
        fault = plan.next_fault("request", self._seen, len(chunk)) if intact else None
        self._requests.carry(
            chunk, delay=plan.request_delay, piece=plan.piece, rate=plan.request_rate
        )
        if fault is not None:
            self._replies.left = fault.keep
            if fault.kind == "cut":
                self._cut_when_executed()

    def _replied(self, chunk: bytes) -> None:
        plan = self._plan
        if plan.hole:
            self._replies.left = 0
        fault = plan.next_fault("reply", chunk, len(chunk)) if self._replies.left is None else None
        if fault is not None and fault.kind == "drop":
            return
        if fault is not None:
            self._replies.left = fault.keep
        self._replies.carry(chunk, delay=plan.reply_delay, piece=plan.piece, rate=plan.reply_rate)

    def _cut_when_executed(self) -> None:
        # The server closes after it has executed all that came before our end of file. A reset
        # could overtake the request; counting replies would mean to parse them.
        self._doomed = True
        self._requests.then(self.server.finish, delay=self._plan.request_delay)
        self._requests.left = 0

    def _server_lost(self, error: Exception | None) -> None:
        if self._doomed:
            self._replies.then(self.client.reset, delay=self._plan.reply_delay)
        elif self._replies.left is None and not self._plan.hole:
            end = self.client.reset if error else self.client.close
            self._replies.then(end, delay=self._plan.reply_delay)
        self._lost_one()

    def _client_lost(self, error: Exception | None) -> None:
        if self._requests.left is None and not self._plan.hole:
            end = self.server.reset if error else self.server.close
            self._requests.then(end, delay=self._plan.request_delay)
        self._lost_one()

    def _lost_one(self) -> None:
        self._ends -= 1
        if not self._ends:
            self._gone(self)
