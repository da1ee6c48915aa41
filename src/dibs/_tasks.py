"""What differs between asyncio and threads, the asyncio half. `_threads.py` has the same names."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any, TypeVar

import redis.asyncio as redis

from ._links.multiplexed import MultiplexedLink as Link
from .errors import Unavailable

__all__ = [
    "WRONG_WORLD",
    "Background",
    "Body",
    "Crew",
    "Flight",
    "Guard",
    "Link",
    "Signal",
    "Together",
    "current_loop",
    "fits",
    "monotonic",
    "off_loop",
    "redis",
    "settle",
    "sleep",
    "within",
]

Q = TypeVar("Q")
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
        waiter = self._waiter
        # A loop that was closed while somebody waited: nobody is there to be woken.
        if waiter is not None and not waiter.done() and not waiter.get_loop().is_closed():
            waiter.set_result(None)

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


def current_loop() -> object:
    """The event loop that runs here; who waited in another one, which was closed, is gone."""
    return asyncio.get_running_loop()


class Background:
    """A piece of work beside the callers, one at a time, that ends by itself or by `stop`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._task: asyncio.Task[None] | None = None

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start *work*. The caller knows that it is not running."""
        self._task = asyncio.get_running_loop().create_task(work(), name=self._name)

    @property
    def is_cut_off(self) -> bool:
        """True: its event loop was closed before it ended, so it never will."""
        return self._task is not None and self._task.get_loop().is_closed()

    async def stop(self) -> None:
        """End it, and wait until it has ended."""
        task, self._task = self._task, None
        if task is not None and not task.done() and not task.get_loop().is_closed():
            task.cancel()
            await asyncio.wait([task])

    def abandon(self) -> None:
        """In a forked child: it does not run here."""
        self._task = None


class Body:
    """The task inside a `with` block: it is cancelled when its lease is lost."""

    __slots__ = ("_before", "_cancelled", "_on_deadline", "_stopped", "_task", "_timer")

    def __init__(self, on_deadline: Callable[[], None]) -> None:
        self._on_deadline = on_deadline
        self._task = asyncio.current_task()
        self._before = self._task.cancelling() if self._task is not None else 0
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False
        self._cancelled: asyncio.CancelledError | None = None

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
        task = self._task
        if task is not None and not self._stopped and not task.get_loop().is_closed():
            self._stopped = True
            task.cancel()

    async def leave(self, error: BaseException | None) -> bool:
        """The body has ended, by *error*. True: our cancellation ended it, or should have.

        False also where somebody else cancels the task as well: their cancellation goes first.
        Where it has arrived here, `resume` raises it again.
        """
        if self._timer is not None:
            self._timer.cancel()
        if not self._stopped or self._task is None:
            return False
        arrived: asyncio.CancelledError | None = None
        if not isinstance(error, asyncio.CancelledError):
            try:
                # Our cancellation is still on its way to the next await; it must not leave.
                await asyncio.sleep(0)
            except asyncio.CancelledError as cancelled:
                arrived = cancelled
        if self._task.uncancel() <= self._before:
            return True
        self._cancelled = arrived
        return False

    def resume(self) -> None:
        """Raise the cancellation of somebody else that `leave` has met."""
        cancelled, self._cancelled = self._cancelled, None
        if cancelled is not None:
            raise cancelled


class Flight:
    """One piece of work for all who want its result. It goes on without any one of them.

    It runs in a task of its own, so that a caller who is cancelled takes nobody along; when the
    last one leaves, it is cancelled.
    """

    __slots__ = ("_joined", "_task")

    def __init__(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._task = asyncio.get_running_loop().create_task(work(), name="dibs flight")
        self._task.add_done_callback(_see_error)
        self._joined = 0

    @property
    def is_open(self) -> bool:
        """True: there is still something to join."""
        return not self._task.done() and not self._task.cancelling()

    async def join(self) -> Any:
        """The result, or the error."""
        self._joined += 1
        try:
            await asyncio.wait([self._task])
        finally:
            self._joined -= 1
            if not self._joined and not self._task.done():
                self._task.cancel()
        if self._task.cancelled():
            raise Unavailable("the load was cancelled")
        return self._task.result()

    async def land(self) -> None:
        """End it, and wait until it has ended."""
        self._task.cancel()
        await asyncio.wait([self._task])


def _see_error(task: "asyncio.Task[Any]") -> None:
    # Whoever joined has been told; where nobody is left, nobody needs a warning either.
    if not task.cancelled():
        task.exception()


class Crew:
    """Work that nobody waits for, all of it ended by `stop`."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Start *work*. Its errors are its own business."""
        task = asyncio.get_running_loop().create_task(work(), name="dibs crew")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_see_error)

    async def stop(self) -> None:
        """End all of it, and wait until it has ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


_AGAIN: Any = object()


class Together:
    """Callers who ask for the same in one moment share one answer."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, list[asyncio.Future[Any]]] = {}

    async def ask(
        self, key: bytes, question: Callable[[Q], Coroutine[Any, Any, Any]], about: Q
    ) -> Any:
        """The answer to *question*, asked by us or by somebody who was first."""
        while (waiting := self._waiting.get(key)) is not None:
            future = asyncio.get_running_loop().create_future()
            waiting.append(future)
            answer = await future
            if answer is not _AGAIN:
                return answer
            # The one who asked was cancelled or failed: that is theirs, not ours.
        waiting = self._waiting[key] = []
        answer = _AGAIN
        try:
            answer = await question(about)
            return answer
        finally:
            del self._waiting[key]
            for future in waiting:
                if not future.done():
                    future.set_result(answer)


async def within(seconds: float, work: Callable[[], Any]) -> Any:
    """What *work* returns. TimeoutError: it was cancelled, *seconds* were over."""
    async with asyncio.timeout(seconds):
        return await settle(work())


async def settle(value: Any) -> Any:
    """What *value* comes to: awaited, if it can be."""
    return await value if inspect.isawaitable(value) else value


async def off_loop(work: Callable[..., Any], *args: Any) -> Any:
    """Run blocking *work* without stopping the other tasks."""
    return await asyncio.to_thread(work, *args)


def fits(function: Callable[..., Any]) -> bool:
    """True: a decorator of this world can wrap *function*."""
    return inspect.iscoroutinefunction(function) and not inspect.isasyncgenfunction(function)
