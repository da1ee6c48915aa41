"""Opening connections for asyncio, until one can be used."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from .._core.breaker import PROBE_EVERY
from .._core.connection import TimeLimit, pause_after
from .._system import monotonic
from .async_connection import AsyncConnection
from .gathering import start_task

_MAX_ATTEMPTS = 4
"""Attempts at the same time."""


class AsyncOpening:
    """One attempt after the other; each may take *limit* seconds.

    While the server is known to be out, an attempt that hangs does not delay the next one: on a
    network that loses packets the newest attempt is often the first to succeed.
    """

    def __init__(
        self,
        open: Callable[[], Coroutine[Any, Any, AsyncConnection]],
        limit: float,
        *,
        is_needed: Callable[[], bool],
        is_out: Callable[[], bool],
    ) -> None:
        self._open = open
        self._limit = limit
        self._is_needed = is_needed
        self._is_out = is_out
        self._attempts: dict[asyncio.Task[AsyncConnection], TimeLimit] = {}
        self._ending: set[asyncio.Task[AsyncConnection]] = set()
        self._task: asyncio.Task[None] | None = None

    def start(
        self,
        use: Callable[[AsyncConnection], None],
        failed: Callable[[BaseException], bool],
        restart_server: Callable[[], Awaitable[None]],
    ) -> None:
        """Start, unless it runs. If *failed* returns False, there is no other attempt."""
        if self._task is None:
            self._task = start_task(self._run(use, failed, restart_server), "dibs connect")

    async def stop(self) -> None:
        """Cancel all attempts, and wait until they have ended."""
        tasks = [*self._attempts, *self._ending, *([] if self._task is None else [self._task])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _run(
        self,
        use: Callable[[AsyncConnection], None],
        failed: Callable[[BaseException], bool],
        restart_server: Callable[[], Awaitable[None]],
    ) -> None:
        begin_at = 0.0
        failures = 0
        try:
            while self._is_needed():
                now = monotonic()
                if not self._attempts or (now >= begin_at and self._is_out()):
                    self._begin()
                    begin_at = now + self._limit / _MAX_ATTEMPTS
                error = await self._wait_for_one(use)
                if error is not None:
                    if not failed(error):
                        return
                    failures += 1
                    await asyncio.sleep(self._pause(failures))
                    await restart_server()
        finally:
            self._task = None
            for attempt in self._attempts:
                self._cancel(attempt)
            self._attempts = {}

    def _pause(self, failures: int) -> float:
        """Short while callers wait: it is not known yet whether the server is out."""
        return PROBE_EVERY if self._is_out() else min(pause_after(failures), PROBE_EVERY)

    def _begin(self) -> None:
        if len(self._attempts) < _MAX_ATTEMPTS:
            attempt = start_task(self._open(), "dibs open")
            self._attempts[attempt] = TimeLimit(self._limit)

    async def _wait_for_one(self, use: Callable[[AsyncConnection], None]) -> BaseException | None:
        """Wait for a slice. Returns why an attempt failed; None: none has, or one succeeded."""
        attempts = self._attempts
        since, a_slice = monotonic(), next(iter(attempts.values())).slice
        first = asyncio.FIRST_COMPLETED
        done, _ = await asyncio.wait(attempts, timeout=a_slice, return_when=first)
        elapsed = monotonic() - since
        failure: BaseException | None = None
        for attempt in [each for each in attempts if each in done or attempts[each].count(elapsed)]:
            del attempts[attempt]
            if not attempt.done():
                self._cancel(attempt)
                failure = TimeoutError()
            elif (failure := _error_of(attempt)) is None:
                use(attempt.result())
        return failure

    def _cancel(self, attempt: "asyncio.Task[AsyncConnection]") -> None:
        if attempt.get_loop().is_closed():
            return  # both are being collected
        attempt.cancel()
        self._ending.add(attempt)
        attempt.add_done_callback(self._ended)

    def _ended(self, attempt: "asyncio.Task[AsyncConnection]") -> None:
        self._ending.discard(attempt)
        if _error_of(attempt) is None:  # it succeeded before it was cancelled
            attempt.result().close()


def _error_of(attempt: "asyncio.Task[AsyncConnection]") -> BaseException | None:
    if attempt.cancelled():
        return TimeoutError()
    error = attempt.exception()
    # The server may have closed it since, and `lost` was called before anybody used it.
    return EOFError() if error is None and attempt.result().is_closing else error
