"""The embedded server of an `AsyncDibs`: started at the first use, joined again after a fork."""

import functools
from typing import TYPE_CHECKING

from .._tasks import Flight, Guard, Link, off_loop, redis
from .._transport.targets import Embedded, place_of

if TYPE_CHECKING:
    from .._transport.embedded import Engine


class AsyncEmbeddedServer:
    """Starts the server, and hands its address to the link."""

    def __init__(self, target: Embedded, link: Link) -> None:
        self.is_started = False
        self._target = target
        self._link = link
        self._server: Engine | None = None
        self._starting: Flight | None = None
        self._guard = Guard()

    async def start(self) -> None:
        """All who come at once wait for the same start: two private servers would be no guard."""
        with self._guard:
            flight = self._starting
            if flight is None or not flight.is_open:
                flight = self._starting = Flight(self._start_now)
        await flight.join()

    async def _start_now(self) -> None:
        # Imported here: most users never need it, and it costs their start-up time.
        from .._transport.embedded import start

        if self.is_started:
            return
        inherited = self._server  # by a forked child: the server is there, the hold on it is not
        folder = self._target.folder
        join = functools.partial(start, folder) if inherited is None else inherited.rejoin
        self._server = server = await off_loop(join)
        self._link.move_to(place_of(server.url, redis))
        self._link.revive = self._revive
        self.is_started = True

    def _revive(self) -> None:
        """Start the server again if it is gone. What it held is lost; its leases run out."""
        if self._server is not None and not self._server.alive:
            self._server = self._server.rejoin()

    async def aclose(self) -> None:
        """Leave the server; it ends with its last user."""
        if self._server is not None:
            await off_loop(self._server.close)

    def abandon(self) -> None:
        """In a forked child: the hold on the server is the parent's."""
        if self._server is not None:
            self._server.abandon()
        self.is_started = False
        self._starting = None
        self._guard = Guard()
