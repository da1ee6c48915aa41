"""A proxy between client and server that loses, delays, tears and cuts what passes through it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Self, TypeVar

from .certificates import Certificates
from .connections import LANE_SIZE, RESET_ON_CLOSE, Connection
from .fault_plan import Fault, FaultPlan
from .ports import bound_socket

T = TypeVar("T")
BACKLOG = 512
REACH_WITHIN = 5.0


class FaultProxy:
    """Passes bytes between clients and one server, and does harm when told to.

    The target is a port of 127.0.0.1 or the path of a Unix socket. The proxy has a thread of its
    own, so plain and asyncio tests use it alike; a fault is in force when its method returns. With
    `match` it springs only for a request that contains these bytes, so that handshakes are spared.
    A connection that has lost bytes stays silent for good: TCP knows no gaps. With `tls` clients
    speak TLS to the proxy, and the proxy plainly to the server.
    """

    _loop: asyncio.AbstractEventLoop
    _ending: asyncio.Event

    def __init__(self, target: int | str, *, tls: Certificates | None = None) -> None:
        self._target = target
        self._tls = tls
        self._context = tls.server_context() if tls is not None else None
        self._plan = FaultPlan()
        self._live: set[Connection] = set()
        self._joining: set[asyncio.Task[None]] = set()
        self._accepted = 0
        self._listening = False
        self._listener = bound_socket()
        self.port: int = self._listener.getsockname()[1]
        ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        ready.result()

    def __repr__(self) -> str:
        return f"<FaultProxy on port {self.port} to {self._target}, {self.open} open>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Where clients connect to the proxy instead of the server."""
        address = f"127.0.0.1:{self.port}"
        return self._tls.url(address) if self._tls is not None else f"redis://{address}"

    @property
    def connections(self) -> int:
        """How many connections it has accepted so far."""
        return self._accepted

    @property
    def open(self) -> int:
        """How many of them the clients still have open."""
        return self._do(lambda: sum(link.client.open for link in self._live)) if self._alive else 0

    @property
    def requests(self) -> int:
        """How many chunks have come from clients: what one write sent is, as a rule, one chunk."""
        return self._plan.requests

    @property
    def sprung(self) -> int:
        """How often a fault that waited for its moment has met it."""
        return self._plan.met

    def swallow_replies(self, count: int = 1, *, match: bytes = b"", keep: int = 0) -> None:
        """Let the next `count` requests be executed, and their replies vanish in silence.

        The connections stay open, and silent. The first `keep` bytes of a reply still arrive.
        Without a `match` it is the next bytes from the server that vanish, whatever they answer.
        """
        self._set(Fault("request" if match else "reply", "mute", count, match, keep))

    def swallow_pushes(self, count: int = 1, *, match: bytes = b"") -> None:
        """Drop the next `count` chunks from the server that themselves contain `match`.

        The connection goes on as if nothing had happened, so aim at whole messages: a wake-up or
        an invalidation that nobody asked for.
        """
        self._set(Fault("reply", "drop", count, match))

    def cut_after_request(self, count: int = 1, *, match: bytes = b"", keep: int = 0) -> None:
        """Let the next `count` requests be executed, then reset the connection instead of replying.

        The reset comes when the server has executed the request, so never from a frozen one. The
        first `keep` bytes of a reply still arrive.
        """
        self._set(Fault("request", "cut", count, match, keep))

    def cut(self) -> None:
        """Reset all connections (RST); new ones are welcome."""
        self._do(lambda: [link.reset() for link in list(self._live)])

    def refuse(self) -> None:
        """Refuse new connections, on a port that stays ours; those that are open live on."""
        self._do(self._close_door)

    def accept(self) -> None:
        """Accept connections again, on the same port."""
        self._do(self._open_door)

    def black_hole(self) -> None:
        """Accept connections and swallow all bytes, in both directions and on open ones, too."""
        self._do(lambda: setattr(self._plan, "hole", True))

    def delay(self, *, requests: float = 0.0, replies: float = 0.0) -> None:
        """Deliver everything that many seconds later: a long line, not a slow one."""
        self._do(lambda: self._plan.lengthen(requests, replies))

    def throttle(self, *, requests: float = 0.0, replies: float = 0.0) -> None:
        """Deliver at most that many bytes per second on each connection; 0 is no limit."""
        self._do(lambda: self._plan.throttle(requests, replies))

    def stall(self, *, requests: bool = False, replies: bool = False) -> None:
        """Keep back all that goes in a direction, until `heal()` or another `stall` delivers it."""
        self._do(lambda: self._stall(requests=requests, replies=replies))

    def split(self, size: int) -> None:
        """Deliver in pieces of `size` bytes, 0.2 ms apart, in both directions; 0 ends it."""
        self._do(lambda: setattr(self._plan, "piece", size))

    def heal(self) -> None:
        """End all faults: connections that have lost bytes stay silent, all others are well."""
        self._do(self._plan.end_all)
        self._do(lambda: self._stall(requests=False, replies=False))
        self._do(self._open_door)

    def close(self) -> None:
        """Reset what is open and end the thread; harmless the second time."""
        if self._alive:
            self._do(self._ending.set)
            self._thread.join()

    @property
    def _alive(self) -> bool:
        return self._thread.is_alive()

    def _set(self, fault: Fault) -> None:
        self._do(lambda: self._plan.faults.append(fault))

    def _do(self, action: Callable[[], T]) -> T:
        # Everything below happens in the proxy's thread, so nothing needs a lock.
        done: Future[T] = Future()

        def act() -> None:
            try:
                done.set_result(action())
            except BaseException as error:
                done.set_exception(error)

        self._loop.call_soon_threadsafe(act)
        return done.result()

    def _stall(self, *, requests: bool, replies: bool) -> None:
        self._plan.stall(requests=requests, replies=replies)
        for link in self._live:
            link.stall()

    def _run(self, ready: Future[None]) -> None:
        asyncio.run(self._serve(ready), debug=False)

    async def _serve(self, ready: Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._ending = asyncio.Event()
        self._open_door()
        ready.set_result(None)
        await self._ending.wait()
        self._loop.remove_reader(self._listener)
        self._listener.close()
        await asyncio.sleep(0)  # a task that is cancelled before its first step closes nothing
        for task in self._joining:
            task.cancel()  # a client may never end its TLS handshake
        await asyncio.gather(*self._joining, return_exceptions=True)
        while self._live:
            for link in list(self._live):
                link.reset()
            await asyncio.sleep(0)

    def _open_door(self) -> None:
        if not self._listening:
            self._listener.setblocking(False)
            # Small, or a slow line would look like a quick one with a slow server behind it.
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, LANE_SIZE)
            self._listener.listen(BACKLOG)
            self._loop.add_reader(self._listener, self._welcome)
            self._listening = True

    def _close_door(self) -> None:
        if self._listening:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = bound_socket(self.port)  # bound but not listening: refused, and ours
            self._listening = False

    def _welcome(self) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionError):
            wire, _ = self._listener.accept()
            self._accepted += 1
            task = self._loop.create_task(self._join(wire))
            self._joining.add(task)
            task.add_done_callback(self._joining.discard)

    async def _join(self, client: socket.socket) -> None:
        link = Connection(self._plan, self._live.discard)
        try:
            server = await self._reach_target()
            await self._loop.create_connection(lambda: link.server, sock=server)
        except (OSError, asyncio.CancelledError):  # it is not there, or we end
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            return client.close()
        self._live.add(link)
        client.setblocking(False)
        return await self._greet(link, client)

    async def _greet(self, link: Connection, client: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: link.client, client, ssl=self._context)
        except (OSError, asyncio.CancelledError):  # it does not trust us, or we end
            return link.client_refused()
        return link.begin()

    async def _reach_target(self) -> socket.socket:
        if isinstance(self._target, str):
            wire, address = socket.socket(socket.AF_UNIX), self._target
        else:
            wire, address = socket.socket(socket.AF_INET), ("127.0.0.1", self._target)
        wire.setblocking(False)
        try:
            async with asyncio.timeout(REACH_WITHIN):
                await self._loop.sock_connect(wire, address)
        except BaseException:
            wire.close()
            raise
        return wire
