"""What transactions of `within` have committed, for duplicates whose first copy seems dead."""

import logging
from collections.abc import Awaitable, Callable
from functools import partial

from .._core.done_table import Recorded, look_now, row_key
from .._tasks import Flight, Guard, maybe_await, within
from .transaction import AsyncWithin, open_writers, run

FindCommitted = Callable[[bytes], Awaitable[Recorded | None]]
_log = logging.getLogger("dibs")

_LOOK_WITHIN = 2.0
"""Seconds after which a duplicate is refused without the answer of the database."""


class AsyncRecords:
    """Looks up what the transactions of one function have committed."""

    def __init__(self, opener: AsyncWithin) -> None:
        self._opener = opener
        self._guard = Guard()
        self._flights: dict[bytes, Flight] = {}

    async def find(self, key: bytes) -> Recorded | None:
        """Return what is committed under *key*; None: nothing, or the database does not say.

        Those who ask at the same moment share one query.
        """
        if open_writers():  # it would wait for the transaction around it
            return None
        with self._guard:
            flight = self._flights.get(key)
            if flight is None or not flight.is_open:
                flight = Flight(partial(self._look_up, key), partial(self._ended, key))
                self._flights[key] = flight
        try:
            return await flight.join()
        except Exception as error:
            _log.debug("the table could not be asked for a duplicate: %s", type(error).__name__)
            return None

    def _ended(self, key: bytes, flight: Flight) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]

    async def _look_up(self, key: bytes) -> Recorded | None:
        return await within(_LOOK_WITHIN, partial(self._look, key))

    async def _look(self, key: bytes) -> Recorded | None:
        async with self._opener.transaction() as (transaction, _):
            await maybe_await(transaction.start())
            return await run(transaction, look_now(transaction.dialect, row_key(key)))


class AsyncTableQuery:
    """The question of one call to the table: it is asked once at most."""

    __slots__ = ("_find", "_is_asked", "has_answered")

    def __init__(self, find: FindCommitted) -> None:
        self._find = find
        self._is_asked = False
        self.has_answered = False
        """The caller is answered by the table."""

    async def ask(self, key: bytes) -> Recorded | None:
        """Return what is committed under *key*; None: nothing is, or it was asked before."""
        if self._is_asked:
            return None
        self._is_asked = True
        recorded = await self._find(key)
        self.has_answered = recorded is not None
        return recorded
