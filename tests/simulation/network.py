"""The network: lines between processes and servers, which delay, lose and cut.

A line keeps its order, as TCP does. What is late arrives late but arrives, unless the line is cut
or silent; what was written before the client has closed its end still arrives.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from .server import Server, Session
from .system import CLOCK, OUTSIDE, PROCESS, Process
from .wire import read_commands

if TYPE_CHECKING:
    from .loop import SimulatedLoop

_STEP = 1e-6
"""Seconds between two deliveries in one direction."""


class Direction:
    """One way of a line."""

    def __init__(self, line: "Line", receive: Callable[[bytes], None]) -> None:
        self._line = line
        self._receive = receive
        self.last = 0.0
        """When the last of what was sent arrives."""
        self.late_until = 0.0
        """What is sent before arrives then, at the earliest."""

    def send(self, data: bytes) -> None:
        """Have *data* arrive, some time from now."""
        if self._line.is_silent:
            return
        self._line.network.call_at(self.next_arrival(), self._arrive, data)

    def next_arrival(self) -> float:
        """When something arrives that is sent now."""
        soonest = CLOCK.now + self._line.latency()
        self.last = max(soonest, self.last + _STEP, self.late_until)
        return self.last

    def _arrive(self, data: bytes) -> None:
        if not self._line.is_silent and not self._line.is_cut:
            self._receive(data)


class Line:
    """A connection: the process has its `transport`, the server its `session`."""

    def __init__(self, network: "Network", process: Process, server: "Host", number: int) -> None:
        self.network = network
        self.process = process
        self.host = server
        self.number = number
        self.is_silent = self.is_cut = False
        self.is_late_after_handshake = 0.0
        """If set: for so many seconds, once it carries something else than a handshake."""
        self._random = Random(f"{network.seed}/{process.name}/{number}")
        self.requests = Direction(self, self._requested)
        self.replies = Direction(self, self._replied)
        address = f"10.0.0.{process.number}:{40000 + number}"
        self.session = Session(server.server, address, self.replies.send, self._ended_by_server)
        self.session.line = self  # type: ignore[attr-defined]
        self.transport: LineTransport

    def __repr__(self) -> str:
        return f"{self.process.name}.{self.number}"

    def latency(self) -> float:
        """How long something takes from one end to the other."""
        draw = self._random.random()
        return 0.0002 + 0.0006 * draw + (0.02 if draw > 0.99 else 0.0) + self.network.slow * draw

    # ---- requests

    def write(self, data: bytes) -> None:
        """The client has written *data*."""
        if self.is_late_after_handshake and not _is_handshake(data):
            self.requests.late_until = CLOCK.now + self.is_late_after_handshake
            self.is_late_after_handshake = 0.0
        self.requests.send(data)

    def _requested(self, data: bytes) -> None:
        if self.session.is_open:
            self.host.receive(self.session, data)

    # ---- replies

    def _replied(self, data: bytes) -> None:
        self.process_call(self.transport.feed, data)

    def process_call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Have the process notice something, as soon as it runs."""
        self.network.loop.call_soon(function, *arguments, context=self.process.context)

    # ---- ends

    def _ended_by_server(self) -> None:
        """Nothing more of it is executed; the client sees its end behind what was answered."""
        self.network.lines.pop(self, None)
        if not self.is_silent:
            self.network.call_at(self.replies.next_arrival(), self._end, None)

    def end_by_client(self) -> None:
        """The server sees the end behind what was written."""
        self.network.call_at(self.requests.next_arrival(), self._forget)

    def _forget(self) -> None:
        self.session.forget()
        self.network.lines.pop(self, None)

    def cut(self, error: Exception | None) -> None:
        """Both ends see it at once; what is on its way is lost."""
        if not self.is_cut:
            self.is_cut = True
            self._forget()
            self._end(error)

    def _end(self, error: Exception | None) -> None:
        self.network.ends.append(CLOCK.now)
        self.process_call(self.transport.end, error)


def _is_handshake(data: bytes) -> bool:
    """Whether a write opens a connection; dibs writes its questions in small letters."""
    commands, _ = read_commands(data)
    first = commands[0] if commands else [b"HELLO"]
    known = {b"HELLO", b"COMMAND", b"AUTH", b"SELECT"}
    is_info = first[0] == b"CLIENT" and first[1] == b"SETINFO"
    return first[0] in known or first[0].islower() or is_info


class LineTransport(asyncio.Transport):
    """The end of a line that a process has."""

    def __init__(self, line: Line, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self._line = line
        self.number = line.number
        self._protocol: Any = protocol
        self._is_closing = False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return self._is_closing

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        raise AssertionError("the library reads whatever comes")

    def resume_reading(self) -> None:
        raise AssertionError("the library reads whatever comes")

    def write(self, data: Any) -> None:
        if not self._is_closing:
            self._line.write(bytes(data))

    def feed(self, data: bytes) -> None:
        """Hand *data* to the protocol."""
        while data and not self._is_closing:
            if not isinstance(self._protocol, asyncio.BufferedProtocol):
                self._protocol.data_received(data)
                return
            buffer = self._protocol.get_buffer(len(data))
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            data = data[size:]
            self._protocol.buffer_updated(size)

    def end(self, error: Exception | None) -> None:
        """The other end has closed, or the line was cut."""
        if not self._is_closing:
            self._is_closing = True
            self._protocol.connection_lost(error)

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._line.end_by_client()
            self._line.process_call(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()  # what the system has accepted is delivered all the same


class Host:
    """A server on the network: it can be stopped, and its port can be closed."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.stops = 0
        """How many faults have stopped it."""
        self._held: list[tuple[Session, bytes]] = []
        """What arrived while it was stopped."""

    def receive(self, session: Session, data: bytes) -> None:
        """Execute *data*, now or when the server resumes."""
        if self.stops:
            self._held.append((session, data))
        else:
            session.receive(data)

    def stop(self) -> None:
        """Execute nothing until `go_on`."""
        self.stops += 1

    def go_on(self) -> None:
        """Execute what has arrived."""
        self.stops -= 1
        if not self.stops:
            held, self._held = self._held, []
            for session, data in held:
                if session.is_open:
                    session.receive(data)


class Network:
    """All connections, and what happens to new ones."""

    def __init__(self, loop: "SimulatedLoop", seed: str) -> None:
        self.loop = loop
        self.seed = seed
        self.hosts: dict[str, Host] = {}
        self.lines: dict[Line, None] = {}
        self.slow = 0.0
        """Every delivery may take so many seconds longer."""
        self.refusals = self.hangs = self.closings = 0
        """How many faults refuse new connections, let them hang, close them at once."""
        self.late_next: dict[Process, float] = {}
        """The next line of a process is late for so many seconds, after its handshake."""
        self.ends: list[float] = []
        """When connections were cut, or closed by the server."""
        self._opened = 0

    def call_at(self, moment: float, function: Callable[..., None], *arguments: Any) -> None:
        """Call *function* at *moment*, even if processes are killed or paused."""
        self.loop.call_at(moment, function, *arguments, context=OUTSIDE)

    async def connect(self, factory: Callable[[], Any], host: str, _port: int) -> tuple[Any, Any]:
        """Open a line for the process that asks."""
        process = PROCESS.get()
        await asyncio.sleep(0.0003)
        while self.hangs:
            await asyncio.sleep(0.05)
        if self.refusals:
            raise ConnectionRefusedError(111, "Connection refused")
        self._opened += 1
        line = Line(self, process, self.hosts[host], self._opened)
        line.is_late_after_handshake = self.late_next.pop(process, 0.0)
        protocol = factory()
        line.transport = LineTransport(line, protocol)
        self.lines[line] = None
        protocol.connection_made(line.transport)
        if self.closings:
            line.cut(None)
        return line.transport, protocol

    def leave(self, process: Process) -> None:
        """*process* was killed: the system closes its lines."""
        for line in [line for line in self.lines if line.process is process]:
            line.end_by_client()
