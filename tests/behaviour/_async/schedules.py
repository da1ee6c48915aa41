"""A clock that a test sets, and what scheduled functions have done."""

from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import Any

from dibs import AsyncDibs

NOON = 1_731_412_800.0
"""A noon in UTC, in the past: the server's own clock is later."""


class Clock:
    """A wall clock that stands still until it is set. *ahead*: of the server's, in seconds."""

    def __init__(self, now: float = NOON, ahead: float = 0.0) -> None:
        self.now = now
        self.ahead = ahead
        self.asked = 0
        """How often the server was asked for the time."""
        self._watched: list[Any] = []

    def __call__(self) -> float:
        return self.now

    def set(self, now: float) -> None:
        """It is *now* from now on, and every scheduler looks."""
        self.now = now
        for scheduler in self._watched:
            scheduler.look()

    def server_time(self, _: int) -> int:
        """What the server's clock shows, in milliseconds."""
        self.asked += 1
        return int((self.now - self.ahead) * 1000)

    @asynccontextmanager
    async def scheduler(self, dibs: AsyncDibs, drain: float = 10):
        """A scheduler that goes by this clock, and knows the last run of each function."""
        scheduler = dibs.scheduler(drain=drain)
        scheduler.clock, scheduler.server_time = self, self.server_time
        self._watched.append(scheduler)
        try:
            async with scheduler:
                yield scheduler
        finally:
            self._watched.remove(scheduler)


def has_begun(server: Any, key: str) -> Callable[[], bool]:
    """Whether some machine knows when the schedule begins."""
    return lambda: f"scheduled-last:{key}" in server.keys()
