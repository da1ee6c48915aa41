"""One connection through the fault proxy: two endpoints, and a pipe in each direction.

A pipe that has lost a byte never delivers another one, as TCP delivers nothing after a gap: a
client that continues to use such a connection gets no reply, never that to another request.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, cast

Trigger = Literal["request", "reply"]
FaultKind = Literal["mute", "cut", "drop", "hold requests", "hold replies"]


@dataclass(slots=True)
class Fault:
    """A fault that is triggered by the next `count` chunks that contain `match`."""

    trigger: Trigger
    kind: FaultKind
    count: int
    match: bytes
    keep: int = 0


@dataclass(slots=True)
class FaultPlan:
    """All faults of one proxy, and how often they were triggered; read for every chunk."""

    black_hole: bool = False
    request_delay: float = 0.0
    reply_delay: float = 0.0
    request_rate: float = 0.0
    reply_rate: float = 0.0
    requests_stalled: bool = False
    replies_stalled: bool = False
    piece: int = 0
    faults: list[Fault] = field(default_factory=list[Fault])
    requests: int = 0
    triggered: int = 0

    def delay(self, request_delay: float, reply_delay: float) -> None:
        """Delay each direction by that many seconds."""
        self.request_delay, self.reply_delay = request_delay, reply_delay

    def throttle(self, request_rate: float, reply_rate: float) -> None:
        """Limit the bytes per second of each direction; 0 is no limit."""
        self.request_rate, self.reply_rate = request_rate, reply_rate

    def stall(self, *, requests: bool, replies: bool) -> None:
        """Hold back all bytes in these directions."""
        self.requests_stalled, self.replies_stalled = requests, replies

    def clear(self) -> None:
        """Remove all faults."""
        self.black_hole, self.piece = False, 0
        self.delay(0.0, 0.0)
        self.throttle(0.0, 0.0)
        self.stall(requests=False, replies=False)
        self.faults.clear()

    def next_fault(self, trigger: Trigger, seen: bytes, fresh: int) -> Fault | None:
        """Return the first fault whose match ends within the last `fresh` bytes of `seen`."""
        for fault in self.faults:
            reach = fresh + max(len(fault.match) - 1, 0)
            if fault.trigger == trigger and fault.match in seen[-reach:]:
                return self._count_trigger(fault)
        return None

    def _count_trigger(self, fault: Fault) -> Fault:
        self.triggered += 1
        fault.count -= 1
        if fault.count <= 0:
            self.faults.remove(fault)
        return fault


MATCH_ACROSS = 1024  # bytes of earlier chunks that are kept, for a match across chunks
RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # linger, but for no time
PIECE_PAUSE = 0.0002  # between the pieces of a split chunk, so that they arrive one by one
CLOCK_STEP = 0.0001  # what is due within this time is delivered without a timer
PIECES_PER_SECOND = 500  # of a pipe with limited bandwidth

BUFFER_SIZE = 65536  # bytes in a pipe of limited bandwidth before its sender has to wait

Lost = Callable[[Exception | None], None]


class Endpoint(asyncio.Protocol):
    """One socket of a connection; reads nothing before `begin`."""

    def __init__(self, received: Callable[[bytes], None], lost: Lost) -> None:
        self._received = received
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self._sock: socket.socket | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # A TLS transport that is being closed no longer has a socket.
        self._sock = cast("socket.socket", transport.get_extra_info("socket"))
        self._transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        self._received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = self._sock = None
        self._lost(exc)

    @property
    def open(self) -> bool:
        """Return whether it can still be written to."""
        return self._transport is not None and not self._transport.is_closing()

    def begin(self) -> None:
        """Read from now on."""
        if self._transport is not None and self.open:
            self._transport.resume_reading()

    def set_paused(self, *, paused: bool) -> None:
        """Read nothing while *paused*, so that the sender's own buffers fill up."""
        if self._transport is not None and self.open and paused != self._is_paused:
            self._is_paused = paused
            (self._transport.pause_reading if paused else self._transport.resume_reading)()

    def write(self, chunk: bytes) -> None:
        """Send, unless it is closed."""
        if self._transport is not None and self.open:
            self._transport.write(chunk)

    def finish(self) -> None:
        """Send end-of-file, and go on reading."""
        if self._transport is not None and self.open:
            self._transport.write_eof()

    def close(self) -> None:
        """Close the connection (FIN) after what was written."""
        if self._transport is not None:
            self._transport.close()

    def reset(self) -> None:
        """Reset the connection (RST); what was written may be lost."""
        if self._transport is not None and self._sock is not None:
            if self._sock.fileno() != -1:
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            self._transport.abort()


class Pipe:
    """The bytes on their way to one endpoint, in order, each chunk after its delay."""

    def __init__(self, target: Endpoint, source: Endpoint, *, stalled: bool) -> None:
        self.remaining: int | None = None  # bytes that will still be delivered; None: all
        self._target = target
        self._source = source
        self._waiting = 0  # bytes not delivered yet, if the bandwidth is limited
        self._stalled = stalled
        self._queue = deque[tuple[float, Callable[[], None]]]()
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def send(self, chunk: bytes, *, delay: float, piece: int, rate: float) -> None:
        """Deliver a chunk, or as much of it as may still be delivered."""
        if self.remaining is not None:
            chunk = chunk[: self.remaining]
            self.remaining -= len(chunk)
        size, pause = _pieces_of_chunk(len(chunk), piece, rate)
        if rate:
            self._waiting += len(chunk)
            self._source.set_paused(paused=self._waiting > BUFFER_SIZE)
        for start in range(0, len(chunk), size):
            part = chunk[start : start + size]
            write = partial(self._write_limited if rate else self._target.write, part)
            self.call_after(write, delay=delay, pause=pause)

    def _write_limited(self, chunk: bytes) -> None:
        self._waiting -= len(chunk)
        self._source.set_paused(paused=self._waiting > BUFFER_SIZE)
        self._target.write(chunk)

    def call_after(self, action: Callable[[], None], *, delay: float, pause: float = 0.0) -> None:
        """Call *action* after all bytes that are on their way."""
        self._due = max(self._due + pause, asyncio.get_running_loop().time() + delay)
        self._queue.append((self._due, action))
        if self._timer is None:
            self._deliver_chunk()

    def stall(self, *, stalled: bool) -> None:
        """Hold back all bytes from now on, or deliver those that were held back."""
        self._stalled = stalled
        if self._timer is None:
            self._deliver_chunk()

    def _deliver_chunk(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        while self._queue and not self._stalled:
            due = self._queue[0][0]
            if due > loop.time() + CLOCK_STEP:
                self._timer = loop.call_at(due, self._deliver_chunk)
                return
            self._queue.popleft()[1]()


def _pieces_of_chunk(length: int, piece: int, rate: float) -> tuple[int, float]:
    """Return how large the pieces of a chunk are, and how many seconds lie between them."""
    size = min(piece or length or 1, int(rate / PIECES_PER_SECOND) + 1 if rate else length or 1)
    return size, max(PIECE_PAUSE if piece else 0.0, size / rate if rate else 0.0)


class Connection:
    """The connection of a client to the proxy, and the one from there to the server."""

    def __init__(self, plan: FaultPlan, on_closed: Callable[[Connection], None]) -> None:
        self.client = Endpoint(self._request_received, self._client_lost)
        self.server = Endpoint(self._reply_received, self._server_lost)
        self._requests = Pipe(self.server, self.client, stalled=plan.requests_stalled)
        self._replies = Pipe(self.client, self.server, stalled=plan.replies_stalled)
        self._plan = plan
        self._on_closed = on_closed
        self._is_cut = False
        self._seen = b""
        self._open_sockets = 2

    def begin(self) -> None:
        """Read from both endpoints, once both are connected; a cut may have come before."""
        if not self.server.open:
            self.client.reset()
        self.server.begin()
        self.client.begin()

    def reset(self) -> None:
        """Reset both sockets."""
        self.client.reset()
        self.server.reset()

    def stall(self, *, requests: bool = True, replies: bool = True) -> None:
        """Hold back bytes, or deliver them, as the plan says: in these directions."""
        if requests:
            self._requests.stall(stalled=self._plan.requests_stalled)
        if replies:
            self._replies.stall(stalled=self._plan.replies_stalled)

    def silence(self) -> None:
        """Drop all bytes from now on, in both directions, without notice."""
        self._requests.remaining = self._replies.remaining = 0

    def client_refused(self) -> None:
        """The TLS handshake of the client failed."""
        self.server.reset()
        self._one_closed()

    def _request_received(self, chunk: bytes) -> None:
        plan = self._plan
        plan.requests += 1
        if plan.black_hole:
            self._requests.remaining = 0
        self._seen = self._seen[-MATCH_ACROSS:] + chunk
        intact = self._requests.remaining is None and self._replies.remaining is None
        fault = plan.next_fault("request", self._seen, len(chunk)) if intact else None
        if fault is not None and fault.kind in ("hold requests", "hold replies"):
            held = self._requests if fault.kind == "hold requests" else self._replies
            held.stall(stalled=True)
            fault = None
        self._requests.send(
            chunk, delay=plan.request_delay, piece=plan.piece, rate=plan.request_rate
        )
        if fault is not None:
            self._replies.remaining = fault.keep
            if fault.kind == "cut":
                self._cut_when_executed()

    def _reply_received(self, chunk: bytes) -> None:
        plan = self._plan
        if plan.black_hole:
            self._replies.remaining = 0
        intact = self._replies.remaining is None
        fault = plan.next_fault("reply", chunk, len(chunk)) if intact else None
        if fault is not None and fault.kind == "drop":
            return
        if fault is not None:
            self._replies.remaining = fault.keep
        self._replies.send(chunk, delay=plan.reply_delay, piece=plan.piece, rate=plan.reply_rate)

    def _cut_when_executed(self) -> None:
        # The server closes the connection when it has executed all that came before the end of
        # file. A reset could overtake the request.
        self._is_cut = True
        self._requests.call_after(self.server.finish, delay=self._plan.request_delay)
        self._requests.remaining = 0

    def _server_lost(self, error: Exception | None) -> None:
        if self._is_cut:
            self._replies.call_after(self.client.reset, delay=self._plan.reply_delay)
        elif self._replies.remaining is None and not self._plan.black_hole:
            end = self.client.reset if error else self.client.close
            self._replies.call_after(end, delay=self._plan.reply_delay)
        self._one_closed()

    def _client_lost(self, error: Exception | None) -> None:
        if self._requests.remaining is None and not self._plan.black_hole:
            end = self.server.reset if error else self.server.close
            self._requests.call_after(end, delay=self._plan.request_delay)
        self._one_closed()

    def _one_closed(self) -> None:
        self._open_sockets -= 1
        if not self._open_sockets:
            self._on_closed(self)
