"""Where the page and its services listen."""

import socket
from typing import Any


def listen(address: tuple[Any, ...], *, family: int = socket.AF_INET) -> socket.socket:
    """A listening socket. OSError: it is not possible."""
    made = socket.create_server(address, family=family, backlog=512)
    # TCP by name, which create_server leaves out: asyncio sends small answers at once only where
    # it sees that name. Else each takes 40 ms on a connection that is kept.
    return socket.socket(made.family, made.type, socket.IPPROTO_TCP, made.detach())


def adopt(number: int) -> socket.socket:
    """The same socket, in the process that was given its *number*."""
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, number)


def free_port() -> int:
    """A port of this machine that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]
