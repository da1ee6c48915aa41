"""Free ports of 127.0.0.1."""

from __future__ import annotations

import os
import random
import socket
import weakref
from itertools import count

_FIRST, _PART, _PARTS = 20_000, 750, 16
"""The range of ports, which is divided among the workers of a test run."""


class _Choice:
    """Ports to try, one after the other."""

    def __init__(self) -> None:
        self._process = 0
        self._numbers = count()

    def next(self) -> int:
        """Return the next port to try."""
        if self._process != os.getpid():  # a forked child would try what its parent tries
            source = random.SystemRandom()  # hypothesis, and others, seed the global one
            self._process, self._numbers = os.getpid(), count(source.randrange(_PART * _PARTS))
        first, size = _port_range(os.environ.get("PYTEST_XDIST_WORKER", ""))
        return first + next(self._numbers) % size


def _port_range(worker: str) -> tuple[int, int]:
    """Return the first port, and how many there are: for a *worker* of pytest-xdist, or for all."""
    number = worker.removeprefix("gw")
    if not number.isdecimal():
        return _FIRST, _PART * _PARTS
    return _FIRST + int(number) % _PARTS * _PART, _PART


_choice = _Choice()


def free_port() -> int:
    """Return a port of 127.0.0.1 that is free now."""
    with bound_socket() as sock:
        return sock.getsockname()[1]


def bound_socket(port: int = 0) -> socket.socket:
    """Return a socket bound to the port, or to a free one.

    A free port is chosen below the range from which the system takes the ports of outgoing
    connections: otherwise any client could take it while the server is down, even a client that
    connects to that server. A process chooses none twice before it has chosen all of them, and each
    worker of pytest-xdist has a part of the range: else one could take what another has just found.
    """
    while True:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("127.0.0.1", port or _choice.next()))
            return sock
        except OSError:
            sock.close()
            if port:
                raise


def kept_port(port: int) -> socket.socket | None:
    """Return a socket that keeps a port for a server that is down.

    No process listens there, and no other server can. None: another one was quicker.
    """
    try:
        sock = bound_socket(port)
    except OSError:
        return None
    # With this option, which most servers set, another one could still bind it.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    reference = weakref.ref(sock)  # a forked child must not keep it when the server starts again
    os.register_at_fork(after_in_child=lambda: _close_socket(reference()))
    return sock


def _close_socket(sock: socket.socket | None) -> None:
    if sock is not None:
        sock.close()
