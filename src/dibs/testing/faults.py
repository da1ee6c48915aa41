"""A proxy between clients and server that loses, delays and splits bytes, and cuts connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from io import BufferedReader
from typing import TypeVar

from .certificates import Certificates
from .connections import BUFFER_SIZE, RESET_ON_CLOSE, Connection, Fault, FaultPlan
from .polling import Closeable
from .ports import bound_socket


class Proxy(Closeable):
    """Listens on a free port, in place of the server at the target.

    The target is a port of 127.0.0.1, or the path of a Unix socket.
    """

    def __init__(self, target: int | str) -> None:
        self._target = target
        self._listener = bound_socket()
        self.port: int = self._listener.getsockname()[1]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on port {self.port} to {self._target}>"

    @property
    def url(self) -> str:
        """Return where clients connect instead of to the server."""
        return f"redis://127.0.0.1:{self.port}"


WireCommand = list[bytes]


class CommandFilter(Proxy):
    """Passes commands to a server on a port of 127.0.0.1, except those that are named here.

    A command is named as "EVAL" or, with its subcommand, as "CLIENT TRACKING". The proxy sends a
    refused command to the server under an unknown name: the server answers with an error, and the
    replies of a pipeline keep their order.
    """

    def __init__(self, target: int) -> None:
        super().__init__(target)
        self._server_port = target
        self._refused: set[str] = set()
        self._closing: set[str] = set()
        self._replaced: dict[str, WireCommand] = {}
        self._seen: list[str] = []
        self._open: set[socket.socket] = set()
        self._listener.listen(128)
        threading.Thread(target=self._accept, name="command filter", daemon=True).start()

    @property
    def seen(self) -> list[str]:
        """The commands that clients have sent so far, in capital letters."""
        return list(self._seen)

    def refuse(self, *commands: str) -> None:
        """Answer these commands with "ERR unknown command", from now on."""
        self._refused.update(commands)

    def close_on(self, *commands: str) -> None:
        """Close a connection that sends one of these commands, from now on."""
        self._closing.update(commands)

    def replace(self, command: str, *words: str) -> None:
        """Send the server *words* in place of this command, from now on."""
        self._replaced[command] = [word.encode() for word in words]

    def allow_all(self) -> None:
        """Pass all commands from now on."""
        self._refused.clear()
        self._closing.clear()
        self._replaced.clear()

    def close(self) -> None:
        """Close the port and all connections; harmless the second time."""
        for each in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            server = socket.create_connection(("127.0.0.1", self._server_port))
            self._open |= {client, server}
            with server:
                replies = threading.Thread(
                    target=self._forward_replies, args=(server, client), daemon=True
                )
                replies.start()
                for words in _commands_of(client):
                    if not self._forward_request(words, server):
                        break
                self._open -= {client, server}
                for each in (server, client):
                    with contextlib.suppress(OSError):
                        each.shutdown(socket.SHUT_RDWR)
                replies.join()

    def _forward_request(self, words: WireCommand, server: socket.socket) -> bool:
        """Send a command to the server. False: close the connection instead."""
        names = _command_names(words)
        self._seen.append(names[-1])
        if not self._closing.isdisjoint(names):
            return False
        if not self._refused.isdisjoint(names):
            words = [words[0] + b"?", *words[1:]]
        for name in names:
            words = self._replaced.get(name, words)
        server.sendall(wire_bytes(words))
        return True

    def _forward_replies(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                client.sendall(data)


def _command_names(words: WireCommand) -> list[str]:
    """Return the names of a command: "CLIENT", "CLIENT TRACKING"."""
    texts = [word.decode(errors="replace").upper() for word in words[:2]]
    has_subcommand = texts[0] in ("CLIENT", "COMMAND", "SCRIPT", "CLUSTER", "ACL", "CONFIG")
    return [texts[0], " ".join(texts)] if has_subcommand else [texts[0]]


def _commands_of(client: socket.socket) -> Iterator[WireCommand]:
    """Yield the commands that a client sends, until it closes the connection."""
    with client.makefile("rb") as stream:
        while (head := stream.readline()).startswith(b"*"):
            yield [_read_word(stream) for _ in range(int(head[1:]))]


def _read_word(stream: BufferedReader) -> bytes:
    size = int(stream.readline()[1:])
    return stream.read(size + 2)[:-2]


def wire_bytes(words: WireCommand) -> bytes:
    """Return a command as the wire wants it."""
    parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"*%d\r\n%b" % (len(words), b"".join(parts))


T = TypeVar("T")
BACKLOG = 512
CONNECT_WITHIN = 5.0


class FaultProxy(Proxy):
    """Passes bytes between clients and one server, with the faults that its methods set.

    The proxy runs in a separate thread, so plain and asyncio tests use it alike; a fault is in
    force when its method returns. With `match` it is triggered only by a request that contains
    these bytes, so not by a handshake. A connection that has lost bytes delivers nothing more, as
    TCP delivers nothing after a gap.

    Args:
        target: A port of 127.0.0.1, or the path of a Unix socket.
        tls: Clients speak TLS to the proxy, and the proxy speaks plain TCP to the server.
    """

    _loop: asyncio.AbstractEventLoop
    _closing: asyncio.Event

    def __init__(self, target: int | str, *, tls: Certificates | None = None) -> None:
        super().__init__(target)
        self._tls = tls
        self._context = tls.server_context() if tls is not None else None
        self._plan = FaultPlan()
        self._connections: set[Connection] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        self._accepted = 0
        self._cuts = 0
        self._listening = False
        ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._run_loop, args=(ready,), daemon=True)
        self._thread.start()
        ready.result()

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, {self.open} open>"

    @property
    def url(self) -> str:
        """Return where clients connect instead of to the server.

        With `tls` it names the certificate.
        """
        return super().url if self._tls is None else self._tls.url(f"127.0.0.1:{self.port}")

    @property
    def connections(self) -> int:
        """Return how many connections it has accepted so far."""
        return self._accepted

    @property
    def open(self) -> int:
        """Return how many of them the clients still have open."""
        if not self._is_running:
            return 0
        return self._do_in_loop(lambda: sum(each.client.open for each in self._connections))

    @property
    def requests(self) -> int:
        """Return how many chunks have come from clients.

        What one write sent is, as a rule, one chunk.
        """
        return self._plan.requests

    @property
    def triggered(self) -> int:
        """Return how many requests or replies a fault with a count has hit so far."""
        return self._plan.triggered

    def swallow_replies(self, count: int = 1, *, match: bytes = b"", keep: int = 0) -> None:
        """Let the next `count` requests be executed, and drop their replies.

        The connections stay open and deliver nothing more. The first `keep` bytes still arrive.
        Without a `match` the next bytes from the server are dropped, whatever they answer.
        """
        self._add_fault(Fault("request" if match else "reply", "mute", count, match, keep))

    def swallow_pushes(self, count: int = 1, *, match: bytes = b"") -> None:
        """Drop the next `count` chunks from the server that themselves contain `match`.

        The connection stays usable, so `match` has to be in whole messages: an invalidation push,
        for example.
        """
        self._add_fault(Fault("reply", "drop", count, match))

    def cut_after_request(self, count: int = 1, *, match: bytes = b"", keep: int = 0) -> None:
        """Let the next `count` requests be executed, then reset the connection instead of replying.

        The reset comes when the server has executed the request, so never from a frozen one. The
        first `keep` bytes of a reply still arrive.
        """
        self._add_fault(Fault("request", "cut", count, match, keep))

    def cut(self) -> None:
        """Reset all connections (RST); new ones are accepted."""
        self._do_in_loop(self._cut_connections)

    def silence(self) -> None:
        """Drop all bytes of the connections that are open now; new connections work.

        A firewall that has forgotten them does that.
        """
        self._do_in_loop(lambda: [connection.silence() for connection in list(self._connections)])

    def refuse(self) -> None:
        """Refuse new connections; open ones stay. No other process can take the port."""
        self._do_in_loop(self._stop_listening)

    def accept(self) -> None:
        """Accept connections again, on the same port."""
        self._do_in_loop(self._start_listening)

    def move_to(self, target: int | str) -> None:
        """Connect new clients to another server; open connections stay.

        A fixed address does that after a failover.

        Args:
            target: Its port, or the path of its Unix socket.
        """
        self._do_in_loop(lambda: setattr(self, "_target", target))

    def black_hole(self) -> None:
        """Accept connections and drop all bytes in both directions, on open connections too."""
        self._do_in_loop(lambda: setattr(self._plan, "black_hole", True))

    def delay(self, *, requests: float = 0.0, replies: float = 0.0) -> None:
        """Deliver everything that many seconds later: latency, without a limit of bandwidth."""
        self._do_in_loop(lambda: self._plan.delay(requests, replies))

    def throttle(self, *, requests: float = 0.0, replies: float = 0.0) -> None:
        """Deliver at most that many bytes per second on each connection; 0 is no limit."""
        self._do_in_loop(lambda: self._plan.throttle(requests, replies))

    def stall(self, *, requests: bool = False, replies: bool = False) -> None:
        """Hold back all bytes in a direction, until `heal()` or another `stall` delivers them."""
        self._do_in_loop(lambda: self._stall_plan(requests=requests, replies=replies))

    def hold_requests(self, *, match: bytes) -> None:
        """Hold back the next request that contains `match`, until `deliver`: a late packet.

        What follows on its connection is held back as well. Other connections work.
        """
        self._add_fault(Fault("request", "hold requests", 1, match))

    def hold_replies(self, *, match: bytes) -> None:
        """Execute the next request that contains `match`, and hold back its reply until `deliver`.

        The later replies of its connection are held back as well. Other connections work.
        """
        self._add_fault(Fault("request", "hold replies", 1, match))

    def deliver(self, *, requests: bool = True, replies: bool = True) -> None:
        """Deliver what was held back. What a client has left on a connection is delivered, too."""
        self._do_in_loop(lambda: self._deliver_stalled(requests=requests, replies=replies))

    def split(self, size: int) -> None:
        """Deliver in pieces of `size` bytes, 0.2 ms apart, in both directions; 0 ends it."""
        self._do_in_loop(lambda: setattr(self._plan, "piece", size))

    def heal(self) -> None:
        """End all faults; connections that have lost bytes still deliver nothing."""
        self._do_in_loop(self._plan.clear)
        self._do_in_loop(lambda: self._stall_plan(requests=False, replies=False))
        self._do_in_loop(self._start_listening)

    def close(self) -> None:
        """Reset all connections and end the thread; harmless the second time."""
        if self._is_running:
            self._do_in_loop(self._closing.set)
            self._thread.join()

    @property
    def _is_running(self) -> bool:
        return self._thread.is_alive()

    def _add_fault(self, fault: Fault) -> None:
        self._do_in_loop(lambda: self._plan.faults.append(fault))

    def _do_in_loop(self, action: Callable[[], T]) -> T:
        # What follows runs in the thread of the proxy, so nothing needs a lock.
        done: Future[T] = Future()

        def act() -> None:
            try:
                done.set_result(action())
            except BaseException as error:
                done.set_exception(error)

        self._loop.call_soon_threadsafe(act)
        return done.result()

    def _cut_connections(self) -> None:
        while self._listening and self._accept():
            pass  # a client that has connected is cut off, too
        self._cuts += 1
        for connection in list(self._connections):
            connection.reset()

    def _stall_plan(self, *, requests: bool, replies: bool) -> None:
        self._plan.stall(requests=requests, replies=replies)
        for connection in self._connections:
            connection.stall()

    def _deliver_stalled(self, *, requests: bool, replies: bool) -> None:
        for connection in list(self._connections):
            connection.stall(requests=requests, replies=replies)

    def _run_loop(self, ready: Future[None]) -> None:
        asyncio.run(self._serve(ready), debug=False)

    async def _serve(self, ready: Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._closing = asyncio.Event()
        self._start_listening()
        ready.set_result(None)
        await self._closing.wait()
        self._loop.remove_reader(self._listener)
        self._listener.close()
        await asyncio.sleep(0)  # a task that is cancelled before its first step closes nothing
        for task in self._connecting:
            task.cancel()  # a client may never end its TLS handshake
        await asyncio.gather(*self._connecting, return_exceptions=True)
        while self._connections:
            for connection in list(self._connections):
                connection.reset()
            await asyncio.sleep(0)

    def _start_listening(self) -> None:
        if not self._listening:
            self._listener.setblocking(False)
            # Small: a client must notice that the connection is slow, and not fill a large buffer.
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_SIZE)
            self._listener.listen(BACKLOG)
            self._loop.add_reader(self._listener, self._accept)
            self._listening = True

    def _stop_listening(self) -> None:
        if self._listening:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = bound_socket(self.port)  # bound, but not listening
            self._listening = False

    def _accept(self) -> bool:
        try:
            sock, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return False
        self._accepted += 1
        task = self._loop.create_task(self._serve_client(sock, self._cuts))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)
        return True

    async def _serve_client(self, client: socket.socket, cuts: int) -> None:
        connection = Connection(self._plan, self._connections.discard)
        try:
            server = await self._connect_to_target()
            await self._loop.create_connection(lambda: connection.server, sock=server)
        except (OSError, asyncio.CancelledError):  # no server there, or the proxy is being closed
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            return client.close()
        self._connections.add(connection)
        if cuts != self._cuts:  # while the server was being connected to
            connection.reset()
        client.setblocking(False)
        return await self._connect_client(connection, client)

    async def _connect_client(self, connection: Connection, client: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection.client, client, ssl=self._context
            )
        except (OSError, asyncio.CancelledError):  # the TLS handshake failed, or we are closing
            return connection.client_refused()
        return connection.begin()

    async def _connect_to_target(self) -> socket.socket:
        if isinstance(self._target, str):
            sock, address = socket.socket(socket.AF_UNIX), self._target
        else:
            sock, address = socket.socket(socket.AF_INET), ("127.0.0.1", self._target)
        sock.setblocking(False)
        try:
            async with asyncio.timeout(CONNECT_WITHIN):
                await self._loop.sock_connect(sock, address)
        except BaseException:
            sock.close()
            raise
        return sock
