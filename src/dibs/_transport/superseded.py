"""First connections of requests that were repeated on a second one."""

import contextlib
from collections import OrderedDict
from time import monotonic

from .._core.request import Request
from .faults import BELOW
from .thread_connection import ThreadConnection

_MOST = 16
_KEPT = 5.0
"""Seconds that a connection is kept: what it has not delivered by then, it never will."""


class Superseded:
    """A repeated request may still be executed from its first connection, after its release.

    So the release follows it there.
    """

    def __init__(self) -> None:
        self.connections: OrderedDict[bytes, tuple[ThreadConnection, float]] = OrderedDict()

    def keep(self, key: bytes, connection: ThreadConnection) -> None:
        """Keep *connection* until the key is released. The oldest goes, if there are many."""
        self.connections[key] = (connection, monotonic() + _KEPT)
        self._expire(most=_MOST)

    def follow(self, request: Request) -> None:
        """The key is released: say so on its first connection as well, and close that."""
        connection, _ = self.connections.pop(request.key, (None, 0.0))
        if connection is not None:
            with contextlib.suppress(*BELOW):
                connection.write(request)
            connection.close()
        self._expire(most=_MOST)

    def _expire(self, most: int) -> None:
        now = monotonic()
        while self.connections:
            key = next(iter(self.connections), b"")
            _, until = self.connections.get(key, (None, 0.0))
            if len(self.connections) <= most and until > now:
                return
            connection, _ = self.connections.pop(key, (None, 0.0))
            if connection is not None:
                connection.close()

    def close(self) -> None:
        """Close them all."""
        self._expire(most=-1)
