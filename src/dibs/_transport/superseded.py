"""Connections of requests that were sent again on another connection."""

import contextlib
from collections import OrderedDict
from time import monotonic

from .._core.request import Request
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

    def keep(self, key: bytes, connection: ThreadConnection) -> None:
        """Keep *connection* until *key* is released. The oldest is closed if there are many."""
        self.connections[key] = (connection, monotonic() + _KEPT)
        self._expire(at_most=_MAX_CONNECTIONS)

    def follow(self, request: Request) -> None:
        """Send *request*, which releases its key, on the first connection too; then close that."""
        connection, _ = self.connections.pop(request.key, (None, 0.0))
        if connection is not None:
            with contextlib.suppress(*CONNECTION_ERRORS):
                connection.write(request)
            connection.close()
        self._expire(at_most=_MAX_CONNECTIONS)

    def _expire(self, at_most: int) -> None:
        now = monotonic()
        while self.connections:
            key = next(iter(self.connections), b"")
            _, until = self.connections.get(key, (None, 0.0))
            if len(self.connections) <= at_most and until > now:
                return
            connection, _ = self.connections.pop(key, (None, 0.0))
            if connection is not None:
                connection.close()

    def close(self) -> None:
        """Close all connections."""
        self._expire(at_most=-1)
