"""The embedded server of an `AsyncDibs`: started at its first use, and again after a fork."""

import functools
from typing import TYPE_CHECKING

from .._forks import reopen_after_fork
from .._tasks import Flight, Guard, Transport, off_loop, redis
from .._transport.targets import Embedded, parse_address

if TYPE_CHECKING:
    from .._server import embedded


class AsyncEmbeddedServer:
    """Starts the server, and gives its address to the transport."""

    def __init__(self, target: Embedded, transport: Transport) -> None:
        self.is_started = False
        self._target = target
        self._transport = transport
        self._server: embedded.EmbeddedServer | None = None
        self._starting: Flight | None = None
        self._guard = Guard()
        reopen_after_fork(self)

    async def start(self) -> None:
        """Start the server. Callers share one start: two private servers would guard nothing."""
        with self._guard:
            flight = self._starting
            if flight is None or not flight.is_open:
                flight = self._starting = Flight(self._start_now)
        await flight.join()

    async def _start_now(self) -> None:
        # Imported here: most users never need it, and it costs their start-up time.
        from .._server.embedded import start

        if self.is_started:
            return
        known = self._server  # in a forked child: that of its parent, which still runs
        folder = self._target.folder
        join = functools.partial(start, folder) if known is None else known.rejoin
        self._server = server = await off_loop(join)
        self._transport.move_to(parse_address(server.url, redis))
        self._transport.restart_server = self._restart
        self.is_started = True

    def _restart(self) -> None:
        """Start the server again if it has ended. Its data is lost; its leases expire."""
        if self._server is not None and not self._server.alive:
            self._server = self._server.rejoin()

    async def aclose(self) -> None:
        """Stop using the server, which ends with its last user."""
        if self._server is not None:
            await off_loop(self._server.close)

    def open(self) -> None:
        """In a forked child: forget the parent's connection to the server."""
        if self._server is not None:
            self._server.close()
        self.is_started = False
        self._starting = None
        self._guard = Guard()
