"""The loop of a client, background tasks, and running functions until enough have ended."""

import asyncio
import functools
from collections.abc import Callable, Coroutine, Sequence
from queue import SimpleQueue
from typing import Any, TypeVar

from .._locks import Guard, start_thread
from ..errors import UsageError

Q = TypeVar("Q")


def no_loop_error() -> UsageError:
    """Return the error for a caller where asyncio runs no event loop; trio, perhaps."""
    return UsageError(
        "AsyncDibs needs a running event loop of asyncio; under trio, use a Dibs in threads"
    )


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop that runs. Raises UsageError if asyncio runs none."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise no_loop_error() from None


def check_loop(before: asyncio.AbstractEventLoop | None, loop: asyncio.AbstractEventLoop) -> None:
    """UsageError: what belongs to the loop *before* is used in another one, and that is open."""
    if before is not None and before is not loop and not before.is_closed():
        raise UsageError("an AsyncDibs belongs to one event loop; create one for each loop")


class LoopBinding:
    """The event loop that a client belongs to, until it is closed: one at a time.

    What the client keeps in a loop (futures, tasks, timers) is touched by callers that have
    entered, and by no others: no other thread does so at the same time.
    """

    __slots__ = ("_guard", "_loop")

    def __init__(self) -> None:
        self.open()

    def open(self) -> None:
        """Belong to none: at construction, and in a forked child."""
        self._guard = Guard()
        self._loop: asyncio.AbstractEventLoop | None = None

    def enter(self) -> None:
        """Belong to the loop that runs here.

        Raises UsageError if there is none, or another one is open.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise no_loop_error() from None
        if self._loop is not loop:
            with self._guard:
                check_loop(self._loop, loop)
                self._loop = loop

    def start_behind(self, work: Callable[[], Coroutine[Any, Any, object]]) -> bool:
        """Start *work* where the client belongs; called wherever garbage is collected.

        False: its loop is closed, or there was none.
        """
        if self._loop is None or self._loop.is_closed():
            return False
        try:
            self._loop.call_soon_threadsafe(_start_kept, work)
        except RuntimeError:  # closed meanwhile
            return False
        return True


_kept_tasks: set["asyncio.Task[Any]"] = set()
"""Nobody else refers to them."""


def _start_kept(work: Callable[[], Coroutine[Any, Any, object]]) -> None:
    task = start_task(work(), "dibs close")
    _kept_tasks.add(task)
    task.add_done_callback(_kept_tasks.discard)
    task.add_done_callback(_outcome_of)


def start_task(work: Coroutine[Any, Any, Q], name: str) -> "asyncio.Task[Q]":
    """Start a background task. asyncio does not warn if its event loop is closed before it ends."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    setattr(task, "_log_destroy_pending", False)  # noqa: B010 - asyncio has no public name for it
    return task


def ends_task(error: BaseException) -> bool:
    """Return True if *error* ends the task that runs, not only what it called.

    It is being cancelled.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    return isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit)


def ends_thread(error: BaseException) -> bool:
    """Return False if nobody ends a thread from outside.

    SystemExit would end it, and nobody would know.
    """
    return False


async def gather_tasks_until(
    works: Sequence[Callable[[], Coroutine[Any, Any, Any]]], is_enough: Callable[[list[Any]], bool]
) -> list[Any]:
    """Run *works* as tasks until *is_enough*, and cancel the others.

    Returns what they returned or raised, in the order in which they ended.
    """
    tasks = {asyncio.ensure_future(work()) for work in works}
    outcomes: list[Any] = []
    try:
        while tasks and not is_enough(outcomes):
            done, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            outcomes += [_outcome_of(task) for task in done]
    finally:
        for task in tasks:
            task.add_done_callback(_outcome_of)
            task.cancel()
    return outcomes


def _outcome_of(task: "asyncio.Future[Any]") -> Any:
    return None if task.cancelled() else task.exception() or task.result()


async def gather_tasks(works: Sequence[Callable[[], Coroutine[Any, Any, Any]]]) -> list[Any]:
    """Return what *works* returned, or the exceptions that they raised; each runs as a task."""
    if len(works) == 1:
        return [await _error_or_result(works[0])]
    return await asyncio.gather(*[_error_or_result(work) for work in works])


async def _error_or_result(work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    try:
        return await work()
    except Exception as error:
        return error


def gather_in_turn(works: Sequence[Callable[[], Any]]) -> list[Any]:
    """Return the same, one after the other: to start a thread takes longer than a round trip."""
    outcomes: list[Any] = []
    for work in works:
        try:
            outcomes.append(work())
        except Exception as error:
            outcomes.append(error)
    return outcomes


def gather_threads_until(
    works: Sequence[Callable[[], Any]], is_enough: Callable[[list[Any]], bool]
) -> list[Any]:
    """Run *works* in threads until *is_enough*. The others run on, and are ignored.

    Returns what they returned or raised, in the order in which they ended.
    """
    ended: SimpleQueue[Any] = SimpleQueue()
    for work in works:
        _start_thread_for(work, ended)
    outcomes: list[Any] = []
    while len(outcomes) < len(works) and not is_enough(outcomes):
        outcomes.append(ended.get())
    return outcomes


def _start_thread_for(work: Callable[[], Any], ended: "SimpleQueue[Any]") -> None:
    try:
        start_thread(functools.partial(_put_outcome, work, ended), "dibs ask")
    except RuntimeError:  # no more threads: one after the other
        _put_outcome(work, ended)


def _put_outcome(work: Callable[[], Any], ended: "SimpleQueue[Any]") -> None:
    try:
        ended.put(work())
    except BaseException as error:
        ended.put(error)
