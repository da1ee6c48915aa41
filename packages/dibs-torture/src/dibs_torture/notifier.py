"""Waiting for a condition, with a deadline and without polling."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

RETRY_EVERY = 0.02
SETTLE_TURNS = 50  # of the event loop: enough for everything that needs no input to finish


class PromiseBroken(AssertionError):
    """A promise was broken; the message says what was seen."""


def expect(condition: object, seen: str) -> None:
    """Go on if the condition is true; else raise PromiseBroken with what was seen instead."""
    if not condition:
        raise PromiseBroken(seen)


class Notifier:
    """Wakes the tasks that wait for a condition each time something happens."""

    def __init__(self, within: float) -> None:
        self._within = within
        self._happened = asyncio.Event()

    def notify(self) -> None:
        """Something has happened: check the conditions again."""
        self._happened.set()

    async def next(self) -> None:
        """Return when the next thing has happened, whenever that is."""
        self._happened.clear()
        await self._happened.wait()

    async def until(self, condition: Callable[[], object], missing: Callable[[], str]) -> None:
        """Return once the condition is true; at the deadline raise PromiseBroken."""
        try:
            async with asyncio.timeout(self._within):
                await self._wait(condition)
        except TimeoutError:
            raise PromiseBroken(f"{missing()} (waited {self._within:g} s)") from None

    async def _wait(self, condition: Callable[[], object]) -> None:
        while not condition():
            await self.next()


async def settle(turns: int = SETTLE_TURNS) -> None:
    """Let the other tasks run as far as they can without new input."""
    for _ in range(turns):
        await asyncio.sleep(0)


async def eventually(check: Callable[[], Awaitable[object]], *, within: float) -> None:
    """Repeat a check until it passes. PromiseBroken: it did not pass within that time."""
    deadline = asyncio.get_running_loop().time() + within
    while True:
        try:
            await check()
            return
        except PromiseBroken:
            if asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(RETRY_EVERY)
