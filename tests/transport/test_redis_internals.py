"""The private attributes of redis-py that dibs uses are where it looks for them."""

import asyncio
import socket

import pytest
import redis
import redis.asyncio

from dibs import UsageError
from dibs._transport.redis_internals import socket_of, transport_of
from dibs.testing import Server


def test_the_socket_of_a_connection(valkey: Server) -> None:
    """Of a connection that redis-py has opened: the one that leads to the server."""
    connection = redis.Connection(host="127.0.0.1", port=valkey.port)
    connection.connect()
    try:
        found = socket_of(connection)
        assert isinstance(found, socket.socket) and found.getpeername()[1] == valkey.port
    finally:
        connection.disconnect()


async def test_the_transport_of_an_asyncio_connection(valkey: Server) -> None:
    """The transport that leads to the server, and no byte that came already and is not read."""
    connection = redis.asyncio.Connection(host="127.0.0.1", port=valkey.port)
    await connection.connect()
    try:
        transport, came = transport_of(connection)
        assert isinstance(transport, asyncio.Transport) and came == b""
        assert transport.get_extra_info("peername")[1] == valkey.port
    finally:
        await connection.disconnect()


@pytest.mark.parametrize("find", [socket_of, transport_of])
def test_a_redis_py_that_has_moved_them_gets_an_error(find: object) -> None:
    """UsageError that names redis-py, and not an AttributeError in the middle of a call."""
    assert callable(find)
    with pytest.raises(UsageError, match="redis-py"):
        find(object())
