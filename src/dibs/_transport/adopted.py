"""The two private attributes of redis-py that we lean on, in one place.

redis-py opens a connection and shakes hands; then we take the socket (threads) or the transport
(asyncio) and let the bytes flow our way. A redis-py that moves them fails loudly here, in
`tests/transport/test_adopted.py` and at the first connection, never in the middle of a call.
"""

import asyncio
import contextlib
import socket
import ssl
import traceback
from collections.abc import Generator
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


@contextlib.contextmanager
def dropped_on_failure(connection: Any) -> Generator[None]:
    """A redis.asyncio connection shakes hands in here; it is dropped if that fails or is cancelled.

    redis-py would wait for the goodbye of the server, where there is TLS, and forget the transport.
    """

    async def disconnect(*_: Any, **__: Any) -> None:
        drop(connection)

    connection.disconnect = disconnect
    try:
        yield
    except BaseException as error:
        drop(connection)
        _abort_what_failed(error)
        raise
    finally:
        del connection.disconnect


def drop(connection: Any) -> None:
    """Close a redis.asyncio connection that was given up while it shook hands."""
    writer = getattr(connection, "_writer", None)
    if writer is not None:
        writer.transport.abort()
        forget(connection)


def close_what_failed(error: BaseException) -> None:
    """Close the socket of a TLS handshake that failed with *error*, on a thread.

    Where the server resets early, `ssl` of Python 3.11 raises and leaves its socket open; only
    the frames of the error still know it.
    """
    for value in _locals_of(error):
        if isinstance(value, ssl.SSLSocket):
            value.close()


def _abort_what_failed(error: BaseException) -> None:
    """Close the transport of a TLS handshake that failed with *error*, or was cancelled.

    Where asyncio is cancelled before the first step of a handshake, it goes on without anybody;
    where after the last one, it waits for the goodbye of a server that may be silent.
    """
    for value in _locals_of(error):
        if isinstance(value, asyncio.Transport):
            with contextlib.suppress(RuntimeError):  # it is collected after the end of its loop
                asyncio.get_running_loop().call_soon(value.abort)  # after that first step


def _locals_of(error: BaseException | None) -> list[Any]:
    values: list[Any] = []
    while error is not None:  # redis-py raises its own error in place of that of `ssl`
        for frame, _ in traceback.walk_tb(error.__traceback__):
            values += frame.f_locals.values()
        error = error.__context__
    return values


def forget(connection: Any) -> None:
    """Make redis-py believe that the connection is closed; we close the transport ourselves."""
    connection._reader = connection._writer = None
