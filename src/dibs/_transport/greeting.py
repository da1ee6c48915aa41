"""Opening a connection: connect, and find out what the server can do, in a dialect it knows."""

import asyncio
from time import monotonic

from .._core.breaker import Limits
from .._core.capabilities import Dialect, Greeting
from . import adopted
from .async_connection import AsyncConnection, Owner
from .faults import BELOW, lacks_hello, was_closed
from .targets import Place
from .thread_connection import ThreadConnection


async def open_async(place: Place, greeting: Greeting, owner: Owner) -> AsyncConnection:
    """A connection for tasks. BELOW: it cannot be opened. UsageError: it cannot be used."""
    loop = asyncio.get_running_loop()
    dialect = greeting.first(monotonic())
    while True:
        try:
            connection = await _open_async_as(dialect, place, owner)
        except (*BELOW, RuntimeError) as error:
            if loop.is_closed():  # we are being collected; redis-py and asyncio make errors of it
                raise GeneratorExit from None
            dialect = _next_or_raise(greeting, dialect, error)
        else:
            greeting.worked(dialect, monotonic())
            return connection


async def _open_async_as(dialect: Dialect, place: Place, owner: Owner) -> AsyncConnection:
    connection = place.connection(None, dialect.protocol, plain=dialect.plain)
    with adopted.dropped_on_failure(connection):
        await connection.connect()
    opened = AsyncConnection(owner, connection)
    try:
        await opened.ask_engine(plain=dialect.plain)
    except BaseException:
        opened.abort()
        raise
    return opened


def open_for_threads(place: Place, greeting: Greeting, limits: Limits) -> ThreadConnection:
    """A connection for threads. BELOW: it cannot be opened. UsageError: it cannot be used."""
    dialect = greeting.first(monotonic())
    while True:
        try:
            connection = _open_for_threads_as(dialect, place, limits)
        except BELOW as error:
            dialect = _next_or_raise(greeting, dialect, error)
        else:
            greeting.worked(dialect, monotonic())
            return connection


def _open_for_threads_as(dialect: Dialect, place: Place, limits: Limits) -> ThreadConnection:
    connection = place.connection(limits.connect, dialect.protocol, plain=dialect.plain)
    try:
        connection.connect()
    except BELOW as error:
        adopted.close_what_failed(error)
        raise
    opened = ThreadConnection(connection, limits.budget / 2)
    try:
        opened.ask_engine(limits.connect, plain=dialect.plain)
    except BaseException:
        opened.close()
        raise
    return opened


def _next_or_raise(greeting: Greeting, dialect: Dialect, error: BaseException) -> Dialect:
    refused, closed = lacks_hello(error), was_closed(error)
    following = greeting.after(dialect, refused=refused, closed=closed)
    if following is None:
        raise error
    return following
