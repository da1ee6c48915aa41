"""What differs between asyncio and threads, the asyncio half. `_threads.py` has the same names."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any

import redis.asyncio as redis

from ._links.multiplexed import MultiplexedLink as Link

__all__ = [
    "WRONG_WORLD",
    "Background",
    "Body",
    "Guard",
    "Link",
    "Signal",
    "fits",
    "monotonic",
    "off_loop",
    "redis",
    "settle",
    "sleep",
]

sleep = asyncio.sleep
WRONG_WORLD = "AsyncDibs wraps async functions; plain ones need a Dibs, generators cannot be held"


class Signal:
    """Set once by anybody, waited for by one task."""

    __slots__ = ("_is_set", "_waiter")

    def __init__(self) -> None:
        self._is_set = False
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Wake the waiter, now or when it comes."""
        self._is_set = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def clear(self) -> None:
        """Forget that it was set."""
        self._is_set = False

    async def wait(self, seconds: float) -> bool:
        """True: it was set. False: *seconds* are over."""
        if not self._is_set and seconds > 0:
            loop = asyncio.get_running_loop()
            self._waiter = waiter = loop.create_future()
            timer = loop.call_later(seconds, _finish, waiter)
            try:
                await waiter
            finally:
                timer.cancel()
                self._waiter = None
        return self._is_set


def _finish(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


class Guard:
    """Nothing: between two awaits nobody else runs."""

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


class Background:
    """A piece of work beside the callers, one at a time, that ends by itself or by `stop`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._task: asyncio.Task[None] | None = None

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start *work*. The caller knows that it is not running."""
        self._task = asyncio.get_running_loop().create_task(work(), name=self._name)

    async def stop(self) -> None:
        """End it, and wait until it has ended."""
        task, self._task = self._task, None
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task])

    def abandon(self) -> None:
        """In a forked child: it does not run here."""
        self._task = None


class Body:
    """The task inside a `with` block: it is cancelled when its lease is lost."""

    __slots__ = ("_before", "_on_deadline", "_stopped", "_task", "_timer")

    def __init__(self, on_deadline: Callable[[], None]) -> None:
        self._on_deadline = on_deadline
        self._task = asyncio.current_task()
        self._before = self._task.cancelling() if self._task is not None else 0
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False

    def stop_at(self, deadline: float) -> None:
        """Have `on_deadline` called at *deadline*, unless it is moved or the body ends."""
        if self._timer is not None:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(deadline - monotonic(), 0), self._on_deadline)

    def stop(self) -> None:
        """Cancel the body now."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None and not self._stopped:
            self._stopped = True
            self._task.cancel()

    async def leave(self, error: BaseException | None) -> bool:
        """The body has ended, by *error*. True: our cancellation ended it, or should have.

        False also where somebody else cancels the task as well: their cancellation goes first.
        """
        if self._timer is not None:
            self._timer.cancel()
        if not self._stopped or self._task is None:
            return False
        if not isinstance(error, asyncio.CancelledError):
            try:
                # Our cancellation is still on its way to the next await; it must not leave.
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                pass
        return self._task.uncancel() <= self._before


async def settle(value: Any) -> Any:
    """What *value* comes to: awaited, if it can be."""
    return await value if inspect.isawaitable(value) else value


async def off_loop(work: Callable[..., Any], *args: Any) -> Any:
    """Run blocking *work* without stopping the other tasks."""
    return await asyncio.to_thread(work, *args)


def fits(function: Callable[..., Any]) -> bool:
    """True: a decorator of this world can wrap *function*."""
    return inspect.iscoroutinefunction(function) and not inspect.isasyncgenfunction(function)
