"""Opening a connection: connect, and find out what the server can do, over RESP3 or RESP2."""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from .._core.capabilities import RESP2, ClosedAtScript, Dialect, Engine, Negotiation
from .._core.connection import Limits
from .._core.request import ClientInfo
from .._system import monotonic
from . import redis_internals
from .connection_errors import (
    CONNECTION_ERRORS,
    is_closed_by_server,
    is_hello_refused,
    read_alert,
    read_alert_async,
    share_context,
)
from .pool import ThreadConnection
from .targets import Address


class _ForTasks(Protocol):
    """A connection for tasks, as far as it is used here."""

    client: ClientInfo | None

    async def ask_engine(self, *, plain: bool, ending: bool) -> Engine: ...

    def abort(self) -> None: ...


C = TypeVar("C", bound=_ForTasks)


async def open_async(
    address: Address, negotiation: Negotiation, limits: Limits, make: Callable[[Any], C]
) -> C:
    """Open a connection for tasks, which *make* makes of one of redis-py.

    CONNECTION_ERRORS: it cannot be opened. UsageError: the server cannot be used.
    """
    loop = asyncio.get_running_loop()
    dialect, began = _first_dialect(address, negotiation), negotiation.at_scripts
    while True:
        connection = _new_connection(address, None, dialect)
        try:
            ending = negotiation.may_end(monotonic())
            opened = await _open_async_as(dialect, connection, make, ending=ending)
        except (*CONNECTION_ERRORS, RuntimeError) as error:
            if loop.is_closed():  # this coroutine is being collected, and redis-py cannot close
                raise GeneratorExit from None
            following = _next_dialect(negotiation, dialect, error, began)
            if following is None:
                if is_closed_by_server(error) and negotiation.may_have_alert:
                    alert = await read_alert_async(connection, limits.connect / 2)
                    raise _reason_for_closing(negotiation, alert, error) from None
                raise
            dialect = following
        else:
            negotiation.worked(dialect, monotonic(), ends=opened.client is not None)
            return opened


async def _open_async_as(
    dialect: Dialect, connection: Any, make: Callable[[Any], C], *, ending: bool
) -> C:
    with redis_internals.aborted_on_failure(connection), redis_internals.reading_handshake():
        await connection.connect()
    opened = make(connection)
    try:
        await opened.ask_engine(plain=dialect.plain, ending=ending)
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
    dialect, began = _first_dialect(address, negotiation), negotiation.at_scripts
    while True:
        connection = _new_connection(address, limits.connect, dialect)
        try:
            ending = negotiation.may_end(monotonic())
            opened = _open_for_threads_as(dialect, connection, limits, ending=ending)
        except CONNECTION_ERRORS as error:
            following = _next_dialect(negotiation, dialect, error, began)
            if following is None:
                if is_closed_by_server(error) and negotiation.may_have_alert:
                    alert = read_alert(connection, limits.connect / 2)
                    raise _reason_for_closing(negotiation, alert, error) from None
                raise
            dialect = following
        else:
            negotiation.worked(dialect, monotonic(), ends=opened.client is not None)
            return opened


def _open_for_threads_as(
    dialect: Dialect, connection: Any, limits: Limits, *, ending: bool
) -> ThreadConnection:
    try:
        with redis_internals.reading_handshake():
            connection.connect()
    except CONNECTION_ERRORS as error:
        redis_internals.close_failed_socket(error)
        connection.disconnect()
        raise
    opened = ThreadConnection(connection, limits.budget / 2)
    try:
        opened.ask_engine(limits.connect, plain=dialect.plain, ending=ending)
    except BaseException:
        opened.close()
        raise
    return opened


def _new_connection(address: Address, limit: float | None, dialect: Dialect) -> Any:
    connection = address.connection(limit, dialect.protocol, plain=dialect.plain)
    share_context(connection, address.options)
    return connection


def _first_dialect(address: Address, negotiation: Negotiation) -> Dialect:
    dialect = negotiation.first(monotonic())
    return dialect if dialect.protocol <= address.protocol else RESP2


def _next_dialect(
    negotiation: Negotiation, dialect: Dialect, error: BaseException, began: int
) -> Dialect | None:
    """Return what to try after *error*; None: nothing."""
    return negotiation.after(
        dialect,
        refused=is_hello_refused(error),
        closed=is_closed_by_server(error),
        at_script=isinstance(error, ClosedAtScript),
        began=began,
    )


def _reason_for_closing(
    negotiation: Negotiation, alert: BaseException | None, error: BaseException
) -> BaseException:
    """Return why every connection was closed; *error*, if the server does not say."""
    if alert is None:
        negotiation.has_no_alert()
        return error
    return alert
