"""Waiting until a condition is true."""

from __future__ import annotations

import asyncio
import inspect
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self, TypeVar, cast

T = TypeVar("T")
PAUSE = 0.01


def eventually(check: Callable[[], T], *, within: float = 60.0) -> T:
    """Call `check` until it returns a true value, and return that value.

    A `check` that raises AssertionError is called again, too.

    Args:
        within: Seconds after which it is given up.

    Raises:
        AssertionError: Not true after `within` seconds; with the last value.
    """
    deadline = time.monotonic() + within
    while True:
        try:
            if value := check():
                return value
            seen = repr(value)
        except AssertionError as error:
            seen = repr(error)
        _still_within(deadline, within, seen)
        time.sleep(PAUSE)


async def aeventually(check: Callable[[], T | Awaitable[T]], *, within: float = 60.0) -> T:
    """Like `eventually`, for asyncio; `check` may be a plain or a coroutine function.

    Args:
        within: Seconds after which it is given up.

    Raises:
        AssertionError: Not true after `within` seconds; with the last value.
    """
    deadline = time.monotonic() + within
    while True:
        try:
            if value := await _awaited_value(check()):
                return value
            seen = repr(value)
        except AssertionError as error:
            seen = repr(error)
        _still_within(deadline, within, seen)
        await asyncio.sleep(PAUSE)


async def _awaited_value(value: T | Awaitable[T]) -> T:
    return await cast("Awaitable[T]", value) if inspect.isawaitable(value) else cast("T", value)


def _still_within(deadline: float, within: float, seen: str) -> None:
    if time.monotonic() > deadline:
        raise AssertionError(f"not true within {within:g} s; the last value was {seen}")


class Closeable(ABC):
    """Closed by `close()`, or by leaving its `with` block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Leave nothing behind. Harmless the second time."""
