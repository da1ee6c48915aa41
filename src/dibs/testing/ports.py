"""Ports of 127.0.0.1 that nobody else takes meanwhile."""

from __future__ import annotations

import random
import socket


def free_port() -> int:
    """Return a port of 127.0.0.1 that nobody uses just now."""
    with bound_socket() as wire:
        return wire.getsockname()[1]


def bound_socket(port: int = 0) -> socket.socket:
    """Return a socket bound to the port, or to a free one.

    A free one lies below the range from which the system picks ports for outgoing connections:
    otherwise any client could take it while its owner is down, even one that calls the owner.
    """
    source = random.SystemRandom()  # hypothesis, and others, seed the common one
    while True:
        wire = socket.socket()
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            wire.bind(("127.0.0.1", port or source.randrange(20_000, 32_000)))
            return wire
        except OSError:
            wire.close()
            if port:
                raise
