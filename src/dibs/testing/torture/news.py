"""Waiting for what must happen, with a deadline: how a case sees, and never hopes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

QUIET_TURNS = 50  # of the event loop: enough for whatever needs no input to come out


class Broken(AssertionError):
    """A promise was broken; the sentence says what was seen."""


def expect(condition: object, seen: str) -> None:
    """Go on if the condition is true; else raise Broken with what was seen instead."""
    if not condition:
        raise Broken(seen)


class News:
    """Wakes all who wait for a condition, each time that something has happened."""

    def __init__(self, within: float) -> None:
        self._within = within
        self._happened = asyncio.Event()

    def tell(self) -> None:
        """Something has happened: let everybody look again."""
        self._happened.set()

    async def next(self) -> None:
        """Return when the next thing has happened, whenever that is."""
        self._happened.clear()
        await self._happened.wait()

    async def until(self, condition: Callable[[], object], missing: Callable[[], str]) -> None:
        """Return once the condition is true; raise Broken with what is missing at the deadline."""
        try:
            async with asyncio.timeout(self._within):
                await self._wait(condition)
        except TimeoutError:
            raise Broken(f"{missing()} (waited {self._within:g} s)") from None

    async def _wait(self, condition: Callable[[], object]) -> None:
        while not condition():
            await self.next()


async def quiet(turns: int = QUIET_TURNS) -> None:
    """Let everybody else take their steps, as far as they can without something new."""
    for _ in range(turns):
        await asyncio.sleep(0)
