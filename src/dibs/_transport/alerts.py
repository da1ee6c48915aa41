"""Why a server ends connections over TLS as soon as they are open: it says so in an alert.

With TLS 1.3 a server checks the certificate of a client after the client has finished its part of
the handshake. What the client has written by then makes the server reset the connection, and the
alert may be lost with it. So the same connection is opened once more, and nothing is written.
"""

import asyncio
import ssl
from typing import Any

from . import redis_internals
from .faults import CONNECTION_ERRORS, settings_error


def read_alert(connection: Any, limit: float) -> ssl.SSLError | None:
    """The alert, if it names a mistake in the settings. None: there is none within *limit* seconds.

    *connection*: of redis-py, for threads; the server has closed it.
    """
    if not redis_internals.uses_tls(connection):
        return None
    try:
        with redis_internals.connected_socket(connection) as connected:
            connected.settimeout(limit)
            connected.recv(1)
    except CONNECTION_ERRORS as error:
        redis_internals.close_failed_socket(error)
        return _mistake(error)
    return None


async def read_alert_async(connection: Any, limit: float) -> ssl.SSLError | None:
    """The same for a connection of redis.asyncio."""
    if not redis_internals.uses_tls(connection):
        return None
    try:
        async with asyncio.timeout(limit):
            with redis_internals.aborted_on_failure(connection):
                await redis_internals.read_only(connection)
    except CONNECTION_ERRORS as error:
        return _mistake(error)
    finally:
        redis_internals.abort(connection)
    return None


def _mistake(error: Exception) -> ssl.SSLError | None:
    if not isinstance(error, ssl.SSLError):
        return None
    return None if settings_error(error) is None else error
