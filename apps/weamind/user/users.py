"""People, for tasks: the database on its own threads, with deadlines."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from .database import Kind, Person, UserDatabase

T = TypeVar("T")
_log = logging.getLogger(__name__)

LONGEST = 3.0
"""How long a person waits for what is known about them, in seconds."""


class UsersUnavailable(Exception):
    """The database did not answer, or not in time."""


class Users:
    """The people who talk to the bot: ready on entry, closed on exit.

    UsersUnavailable, from every query: the database does not answer.
    """

    def __init__(self, url: str) -> None:
        """ValueError: the URL is none of SQLite or PostgreSQL."""
        self._database = UserDatabase(url)
        # Its own threads, not asyncio's: on exit they are waited for, before connections close.
        self._threads = ThreadPoolExecutor(self._database.threads, "users")

    async def __aenter__(self) -> "Users":
        """SQLAlchemyError: there is no such database, or its schema cannot be brought up."""
        try:
            await self._run(self._database.prepare)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exception: object) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        # Threads first: a question given up on leaves one behind that still has a connection.
        self._threads.shutdown()
        self._database.close()

    # ---- questions

    async def ping(self) -> None:
        """Return if the database answers."""
        await self._ask(self._database.ping)

    async def meet(self, user_id: str) -> Person:
        """What is known about *user_id*, who is created if unknown."""
        return await self._ask(self._database.meet, user_id, _now())

    async def follow(self, user_id: str, at: int | None) -> None:
        """Record that they are a friend since *at*, in LINE's milliseconds."""
        await self._ask(self._database.follow, user_id, _now() if at is None else at)

    async def unfollow(self, user_id: str, at: int | None) -> None:
        """Record that they left at *at*."""
        await self._ask(self._database.unfollow, user_id, _now() if at is None else at)

    async def set_place(self, user_id: str, kind: Kind, code: str | None) -> None:
        """Set their home or office to *code*; None: remove it."""
        await self._ask(self._database.set_place, user_id, kind, code, _now())

    async def record(self, user_id: str, code: str) -> None:
        """Record a query for *code*."""
        await self._ask(self._database.record, user_id, code, _now())

    async def delete(self, user_id: str) -> bool:
        """Delete all data about them. False: there was none."""
        return await self._ask(self._database.delete, user_id)

    async def keep(self, events: list[str]) -> None:
        """Keep *events* for another process to answer."""
        await self._ask(self._database.keep, events, _now())

    async def take(self, younger_than: float) -> tuple[list[str], int]:
        """The events of the last so many seconds to answer; how many were older, and are dropped.

        If the caller stops waiting before they are read, they are kept for the next one.
        """
        since = _now() - int(younger_than * 1000)
        work = self._threads.submit(self._database.take, since)
        try:
            return await self._answer(asyncio.wrap_future(work))
        except BaseException:
            work.add_done_callback(self._keep_again)
            raise

    def _keep_again(self, work: "Future[tuple[list[str], int]]") -> None:
        nothing: tuple[list[str], int] = [], 0
        is_over = work.cancelled() or work.exception() is not None
        events, _ = nothing if is_over else work.result()
        try:
            if events:
                self._database.keep(events, _now())
        except SQLAlchemyError as error:
            _log.error("%d events are lost: %s", len(events), type(error).__name__)

    async def _ask(self, call: Callable[..., T], *arguments: Any) -> T:
        return await self._answer(self._run(call, *arguments))

    async def _answer(self, asked: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(LONGEST):
                return await asked
        except TimeoutError:
            reason = "it is too slow"
        except SQLAlchemyError as error:
            reason = type(error).__name__
        _log.error("the database does not answer: %s", reason)
        raise UsersUnavailable(reason)

    async def _run(self, call: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *arguments)


def _now() -> int:
    return time.time_ns() // 1_000_000
