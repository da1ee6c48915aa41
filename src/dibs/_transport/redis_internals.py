"""The private attributes of redis-py connections that dibs uses.

redis-py connects and does the handshake; then dibs reads and writes on the socket (threads) or the
transport (asyncio) itself. A version of redis-py without these attributes is a UsageError when the
first connection is opened, never an error in the middle of a call.
"""

import asyncio
import contextlib
import functools
import socket
import ssl
import traceback
from collections.abc import Callable, Generator
from typing import Any, cast

import redis

from .._core.request import PARSER_ERRORS, ProtocolError
from ..errors import UsageError

_UNKNOWN_VERSION = "dibs does not know this version of redis-py; please report it, with its version"


def socket_of(connection: Any) -> socket.socket:
    """Return the socket of a connected redis-py connection."""
    sock = getattr(connection, "_sock", None)
    if sock is None:
        raise UsageError(_UNKNOWN_VERSION)
    return sock


def connected_socket(connection: Any) -> socket.socket:
    """Return a socket that is connected, over TLS if need be.

    Nothing was written to it afterwards.
    """
    return connection._connect()


async def read_only(connection: Any) -> None:
    """Open a redis.asyncio connection, and read until bytes or its end come; nothing is written."""
    await connection._connect()
    await connection._reader.read(1)


# ---- TLS


def uses_tls(connection: Any) -> bool:
    """Return True if it is a connection over TLS."""
    return is_async(connection) or hasattr(connection, "_wrap_socket_with_ssl")


def is_async(connection: Any) -> bool:
    """Return True if it is one of redis.asyncio, over TLS."""
    return hasattr(connection, "ssl_context")


def use_context(
    connection: Any, context: ssl.SSLContext | None, made: Callable[[ssl.SSLContext], None]
) -> None:
    """Have a connection that is not open yet use *context*; None: its own, passed on to *made*.

    With the options for OCSP, redis-py does more than to make a context: then it does it itself.
    """
    kind = cast("Any", type(connection))
    if is_async(connection):
        connection.ssl_context.context = context
        made(connection.ssl_context.get())
    elif kind._wrap_socket_with_ssl is _WRAP and not _wants_ocsp(connection):
        connection._wrap_socket_with_ssl = functools.partial(
            _wrap_socket, connection, context, made
        )


_WRAP = getattr(redis.SSLConnection, "_wrap_socket_with_ssl", None)


def _wants_ocsp(connection: Any) -> bool:
    return bool(connection.ssl_validate_ocsp or connection.ssl_validate_ocsp_stapled)


def _wrap_socket(
    connection: Any,
    context: ssl.SSLContext | None,
    made: Callable[[ssl.SSLContext], None],
    sock: socket.socket,
) -> ssl.SSLSocket:
    if context is not None:
        return context.wrap_socket(sock, server_hostname=connection.host)
    kind = cast("Any", type(connection))
    wrapped = kind._wrap_socket_with_ssl(connection, sock)
    made(wrapped.context)
    return wrapped


# ---- tasks


def transport_of(connection: Any) -> tuple[asyncio.Transport, bytes]:
    """The transport of a connected redis.asyncio connection, and bytes that it has received."""
    writer = getattr(connection, "_writer", None)
    reader = getattr(connection, "_reader", None)
    if writer is None or reader is None:
        raise UsageError(_UNKNOWN_VERSION)
    return writer.transport, bytes(getattr(reader, "_buffer", b""))


@contextlib.contextmanager
def aborted_on_failure(connection: Any) -> Generator[None]:
    """Abort a redis.asyncio connection if its handshake, in this block, fails or is cancelled.

    redis-py itself would wait for the TLS shutdown of the server, and lose the transport.
    """

    async def disconnect(*_: Any, **__: Any) -> None:
        abort(connection)

    connection.disconnect = disconnect
    try:
        yield
    except BaseException as error:
        abort(connection)
        _abort_failed_transport(error)
        raise
    finally:
        del connection.disconnect


def abort(connection: Any) -> None:
    """Close a redis.asyncio connection whose handshake was cancelled or has failed."""
    writer = getattr(connection, "_writer", None)
    if writer is not None:
        writer.transport.abort()
        disown(connection)


def close_failed_socket(error: BaseException) -> None:
    """Close the socket of a TLS handshake, in a thread, that failed with *error*.

    If the server resets the connection early, `ssl` of Python 3.11 leaves its socket open; it can
    only be found in the frames of the traceback.
    """
    for value in _locals_of(error):
        if isinstance(value, ssl.SSLSocket):
            value.close()


def _abort_failed_transport(error: BaseException) -> None:
    """Close the transport of a TLS handshake that failed with *error*, or was cancelled.

    A handshake that is cancelled before its first step goes on nevertheless; after its
    last step asyncio waits for the TLS shutdown of the server, which may never come.
    """
    for value in _locals_of(error):
        if isinstance(value, asyncio.Transport):
            with contextlib.suppress(RuntimeError):  # it is collected after the end of its loop
                asyncio.get_running_loop().call_soon(value.abort)  # after that first step


def _locals_of(error: BaseException | None) -> list[Any]:
    values: list[Any] = []
    while error is not None:  # redis-py raises an error of its own for that of `ssl`
        for frame, _ in traceback.walk_tb(error.__traceback__):
            values += frame.f_locals.values()
        error = error.__context__
    return values


@contextlib.contextmanager
def reading_handshake() -> Generator[None]:
    """Raise what redis-py's parser, or its reading of the replies, raises as a `ProtocolError`."""
    try:
        yield
    except (*PARSER_ERRORS, AttributeError, LookupError) as error:
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        module, function = frames[-1].f_globals.get("__name__", ""), frames[-1].f_code.co_name
        is_reader = module.startswith(("redis._parsers", "redis.exceptions"))
        if not is_reader and not function.startswith("on_connect"):
            raise
        raise ProtocolError(str(error)) from None


def disown(connection: Any) -> None:
    """Make redis-py treat the connection as closed; dibs closes the transport itself."""
    connection._reader = connection._writer = None
