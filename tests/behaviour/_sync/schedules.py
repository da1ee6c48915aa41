# Generated from tests/behaviour/_async/schedules.py by unasync.py – do not edit.
"""A clock that a test sets, and what scheduled functions have done."""

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

from dibs import Dibs

NOON = 1_794_484_800.0
"""A noon in UTC."""


class Clock:
    """A wall clock that stands still until it is set."""

    def __init__(self, now: float = NOON) -> None:
        self.now = now
        self._watched: list[Any] = []

    def __call__(self) -> float:
        return self.now

    def set(self, now: float) -> None:
        """It is *now* from now on, and every scheduler looks."""
        self.now = now
        for scheduler in self._watched:
            scheduler.look()

    @contextmanager
    def scheduler(self, dibs: Dibs, drain: float = 10):
        """A scheduler that goes by this clock, and knows the last fire of each function."""
        scheduler = dibs.scheduler(drain=drain)
        scheduler.clock = self
        self._watched.append(scheduler)
        try:
            with scheduler:
                yield scheduler
        finally:
            self._watched.remove(scheduler)


def has_begun(server: Any, key: str) -> Callable[[], bool]:
    """Whether some machine knows when the schedule begins."""
    return lambda: f"scheduled-last:{key}" in server.keys()
