"""The two private attributes of redis-py that we lean on, in one place.

redis-py opens a connection and shakes hands; then we take the socket (threads) or the transport
(asyncio) and let the bytes flow our way. A redis-py that moves them fails loudly here, in
`tests/test_links.py` and at the first connection, never in the middle of a call.
"""

import asyncio
import contextlib
import socket
import ssl
import traceback
from typing import Any

from ..errors import UsageError

_MOVED = "dibs does not know this version of redis-py; please report it, with its version"


def socket_of(connection: Any) -> socket.socket:
    """The socket of a connected redis-py connection."""
    sock = getattr(connection, "_sock", None)
    if sock is None:
        raise UsageError(_MOVED)
    return sock


def transport_of(connection: Any) -> tuple[asyncio.Transport, bytes]:
    """The transport of a connected redis.asyncio connection, and bytes that came already."""
    writer = getattr(connection, "_writer", None)
    reader = getattr(connection, "_reader", None)
    if writer is None or reader is None:
        raise UsageError(_MOVED)
    return writer.transport, bytes(getattr(reader, "_buffer", b""))


def drop(connection: Any) -> None:
    """Close a redis.asyncio connection that was given up while it shook hands."""
    writer = getattr(connection, "_writer", None)
    if writer is not None:
        writer.transport.abort()
        forget(connection)


def close_what_failed(error: BaseException) -> None:
    """Close the socket of a TLS handshake that failed with *error*, on a thread.

    Where the server resets early, `ssl` of Python 3.11 raises and leaves its socket open;
    only the frames of the error still know it.
    """
    origin = error.__context__ or error  # redis-py raises its own error instead of that of `ssl`
    for frame, _ in traceback.walk_tb(origin.__traceback__):
        for value in list(frame.f_locals.values()):
            if isinstance(value, ssl.SSLSocket):
                with contextlib.suppress(OSError):
                    value.close()


def forget(connection: Any) -> None:
    """Make redis-py believe that the connection is closed; we close the transport ourselves."""
    connection._reader = connection._writer = None
