"""Opening a connection: connect, and find out what the server can do, in a dialect it knows."""

from time import monotonic

from .._core.breaker import Limits
from .._core.capabilities import RESP2, Dialect, Greeting
from . import adopted
from .async_connection import AsyncConnection, Owner
from .faults import BELOW, lacks_hello, was_closed
from .targets import Address
from .thread_connection import ThreadConnection


async def open_async(address: Address, greeting: Greeting, owner: Owner) -> AsyncConnection:
    """A connection for tasks. BELOW: it cannot be opened. UsageError: it cannot be used."""
    dialect = _first_dialect(address, greeting)
    while True:
        try:
            connection = await _open_async_as(dialect, address, owner)
        except BELOW as error:
            dialect = _next_or_raise(greeting, dialect, error)
        else:
            greeting.worked(dialect, monotonic())
            return connection


async def _open_async_as(dialect: Dialect, address: Address, owner: Owner) -> AsyncConnection:
    connection = address.connection(None, dialect.protocol, plain=dialect.plain)
    with adopted.dropped_on_failure(connection):
        await connection.connect()
    opened = AsyncConnection(owner, connection)
    try:
        await opened.ask_engine(plain=dialect.plain)
    except BaseException:
        opened.abort()
        raise
    return opened


def open_for_threads(address: Address, greeting: Greeting, limits: Limits) -> ThreadConnection:
    """A connection for threads. BELOW: it cannot be opened. UsageError: it cannot be used."""
    dialect = _first_dialect(address, greeting)
    while True:
        try:
            connection = _open_for_threads_as(dialect, address, limits)
        except BELOW as error:
            dialect = _next_or_raise(greeting, dialect, error)
        else:
            greeting.worked(dialect, monotonic())
            return connection


def _open_for_threads_as(dialect: Dialect, address: Address, limits: Limits) -> ThreadConnection:
    connection = address.connection(limits.connect, dialect.protocol, plain=dialect.plain)
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


def _first_dialect(address: Address, greeting: Greeting) -> Dialect:
    dialect = greeting.first(monotonic())
    return dialect if dialect.protocol <= address.protocol else RESP2


def _next_or_raise(greeting: Greeting, dialect: Dialect, error: BaseException) -> Dialect:
    refused, closed = lacks_hello(error), was_closed(error)
    following = greeting.after(dialect, refused=refused, closed=closed)
    if following is None:
        raise error
    return following
