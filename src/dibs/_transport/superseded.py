"""Connections of requests that were sent again on another connection."""

import contextlib
import threading
from collections import OrderedDict

from .._core.request import Request
from .._system import monotonic
from .faults import CONNECTION_ERRORS
from .thread_connection import ThreadConnection

_MAX_CONNECTIONS = 16
_KEPT = 5.0
"""Seconds that a connection is kept: what it has not delivered by then is lost."""


class Superseded:
    """The server may execute a request from its first connection after the release of its key.

    So the release is sent on that connection, too.
    """

    def __init__(self) -> None:
        self.connections: OrderedDict[bytes, tuple[ThreadConnection, float]] = OrderedDict()
        self._guard = threading.RLock()

    def keep(self, key: bytes, connection: ThreadConnection) -> None:
        """Keep *connection* until *key* is released. The oldest is closed if there are many."""
        with self._guard:
            before = self._take(key)
            self.connections[key] = (connection, monotonic() + _KEPT)
        if before is not None:
            before.close()
        self._expire(at_most=_MAX_CONNECTIONS)

    def follow(self, request: Request) -> None:
        """Send *request*, which releases its key, on the first connection too; then close that."""
        connection = self._take(request.key)
        if connection is not None:
            with contextlib.suppress(*CONNECTION_ERRORS):
                connection.write(request)
            connection.close()
        self._expire(at_most=_MAX_CONNECTIONS)

    def _take(self, key: bytes) -> ThreadConnection | None:
        with self._guard:
            return self.connections.pop(key, (None, 0.0))[0]

    def _expire(self, at_most: int) -> None:
        now = monotonic()
        while (connection := self._oldest(at_most, now)) is not None:
            connection.close()

    def _oldest(self, at_most: int, now: float) -> ThreadConnection | None:
        """The oldest one, if it is one too many or over; it is not kept any more."""
        with self._guard:
            for key, (_, until) in self.connections.items():
                is_kept = len(self.connections) <= at_most and until > now
                return None if is_kept else self._take(key)
        return None

    def close(self) -> None:
        """Close all connections."""
        self._expire(at_most=-1)
