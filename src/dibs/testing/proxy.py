"""What both proxies have in common: a port of 127.0.0.1 where clients connect."""

from __future__ import annotations

from .closeable import Closeable
from .ports import bound_socket


class Proxy(Closeable):
    """Listens on a port of its own, in place of the server at the target.

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
        """Where clients connect instead of to the server."""
        return f"redis://127.0.0.1:{self.port}"
