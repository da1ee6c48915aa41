"""Opening a connection: connect, and find out what the server can do, in a dialect it knows."""

from time import monotonic

from .._core.capabilities import Dialect, Greeting
from . import adopted
from .faults import BELOW, lacks_hello, was_closed
from .line import Line, Owner
from .targets import Place
from .wire import Wire


async def open_line(place: Place, greeting: Greeting, owner: Owner) -> Line:
    """A connection for tasks. BELOW: it cannot be opened. UsageError: it cannot be used."""
    dialect = greeting.first(monotonic())
    while True:
        try:
            line = await _open_line_as(dialect, place, owner)
        except BELOW as error:
            dialect = _next_or_raise(greeting, dialect, error)
        else:
            greeting.worked(dialect, monotonic())
            return line


async def _open_line_as(dialect: Dialect, place: Place, owner: Owner) -> Line:
    connection = place.connection(None, dialect.protocol, plain=dialect.plain)
    try:
        await connection.connect()
    except BaseException:
        adopted.drop(connection)
        raise
    line = Line(owner, connection)
    try:
        await line.ask_engine(plain=dialect.plain)
    except BaseException:
        line.abort()
        raise
    return line


def open_wire(place: Place, greeting: Greeting, limit: float) -> Wire:
    """A connection for threads. BELOW: it cannot be opened. UsageError: it cannot be used.

    *limit*: the most that each step may take.
    """
    dialect = greeting.first(monotonic())
    while True:
        try:
            wire = _open_wire_as(dialect, place, limit)
        except BELOW as error:
            dialect = _next_or_raise(greeting, dialect, error)
        else:
            greeting.worked(dialect, monotonic())
            return wire


def _open_wire_as(dialect: Dialect, place: Place, limit: float) -> Wire:
    connection = place.connection(limit, dialect.protocol, plain=dialect.plain)
    connection.connect()
    wire = Wire(connection, limit)
    try:
        wire.ask_engine(plain=dialect.plain)
    except BaseException:
        wire.close()
        raise
    return wire


def _next_or_raise(greeting: Greeting, dialect: Dialect, error: BaseException) -> Dialect:
    refused, closed = lacks_hello(error), was_closed(error)
    following = greeting.after(dialect, refused=refused, closed=closed)
    if following is None:
        raise error
    return following
