"""Opening a connection: connect, and find out what the server can do, over RESP3 or RESP2."""

import asyncio
from time import monotonic

from .._core.breaker import Limits
from .._core.capabilities import RESP2, ClosedAtScript, Dialect, Negotiation
from . import redis_internals
from .async_connection import AsyncConnection, OnLost, OnPush
from .faults import CONNECTION_ERRORS, is_closed_by_server, is_hello_refused
from .targets import Address
from .thread_connection import ThreadConnection


async def open_async(
    address: Address, negotiation: Negotiation, on_push: OnPush, on_lost: OnLost
) -> AsyncConnection:
    """Open a connection for tasks.

    CONNECTION_ERRORS: it cannot be opened. UsageError: the server cannot be used.
    """
    loop = asyncio.get_running_loop()
    dialect = _first_dialect(address, negotiation)
    while True:
        try:
            connection = await _open_async_as(dialect, address, on_push, on_lost)
        except (*CONNECTION_ERRORS, RuntimeError) as error:
            if loop.is_closed():  # this coroutine is being collected, and redis-py cannot close
                raise GeneratorExit from None
            dialect = _next_or_raise(negotiation, dialect, error)
        else:
            negotiation.worked(dialect, monotonic())
            return connection


async def _open_async_as(
    dialect: Dialect, address: Address, on_push: OnPush, on_lost: OnLost
) -> AsyncConnection:
    connection = address.connection(None, dialect.protocol, plain=dialect.plain)
    with redis_internals.aborted_on_failure(connection):
        await connection.connect()
    opened = AsyncConnection(connection, on_push, on_lost)
    try:
        await opened.ask_engine(plain=dialect.plain)
    except BaseException:
        opened.abort()
        raise
    return opened


def open_for_threads(
    address: Address, negotiation: Negotiation, limits: Limits
) -> ThreadConnection:
    """Open a connection for threads.

    CONNECTION_ERRORS: it cannot be opened. UsageError: the server cannot be used.
    """
    dialect = _first_dialect(address, negotiation)
    while True:
        try:
            connection = _open_for_threads_as(dialect, address, limits)
        except CONNECTION_ERRORS as error:
            dialect = _next_or_raise(negotiation, dialect, error)
        else:
            negotiation.worked(dialect, monotonic())
            return connection


def _open_for_threads_as(dialect: Dialect, address: Address, limits: Limits) -> ThreadConnection:
    connection = address.connection(limits.connect, dialect.protocol, plain=dialect.plain)
    try:
        connection.connect()
    except CONNECTION_ERRORS as error:
        redis_internals.close_failed_socket(error)
        raise
    opened = ThreadConnection(connection, limits.budget / 2)
    try:
        opened.ask_engine(limits.connect, plain=dialect.plain)
    except BaseException:
        opened.close()
        raise
    return opened


def _first_dialect(address: Address, negotiation: Negotiation) -> Dialect:
    dialect = negotiation.first(monotonic())
    return dialect if dialect.protocol <= address.protocol else RESP2


def _next_or_raise(negotiation: Negotiation, dialect: Dialect, error: BaseException) -> Dialect:
    refused, closed = is_hello_refused(error), is_closed_by_server(error)
    at_script = isinstance(error, ClosedAtScript)
    next_dialect = negotiation.after(dialect, refused=refused, closed=closed, at_script=at_script)
    if next_dialect is None:
        raise error
    return next_dialect
