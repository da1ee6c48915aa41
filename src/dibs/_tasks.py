"""What differs between asyncio and threads, the asyncio half. `_threads.py` has the same names."""

import asyncio
import contextlib
import inspect
import logging
import math
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from time import sleep as sleep_in_thread
from typing import Any, ClassVar, TypeVar

import redis.asyncio as redis

from ._core.cache import refuse_cycle
from ._core.causes import cause_for
from ._core.keys import function_error
from ._locks import Signal as ThreadSignal
from ._locks import start_thread
from ._system import monotonic
from ._transport.concurrency import LoopBinding, ends_task, running_loop, start_task
from ._transport.concurrency import gather_tasks as gather
from ._transport.concurrency import gather_tasks_until as gather_until
from ._transport.multiplexed import MultiplexedTransport as Transport
from .errors import Unavailable, UsageError

__all__ = [
    "KIND",
    "Background",
    "BackgroundTasks",
    "Body",
    "Coalescer",
    "ContinuedCalls",
    "Deadlines",
    "Flight",
    "Guard",
    "LoopBinding",
    "LoopWatch",
    "Signal",
    "Transport",
    "WorkQueue",
    "check_function",
    "current_flight",
    "current_loop",
    "current_task",
    "deliver_behind",
    "ends_task",
    "gather",
    "gather_until",
    "hand_over",
    "is_cancellation",
    "mark_coroutine",
    "maybe_await",
    "monotonic",
    "must_await",
    "off_loop",
    "redis",
    "shutdown",
    "sleep",
    "within",
]  # fmt: skip

Q = TypeVar("Q")
_log = logging.getLogger("dibs")
sleep = asyncio.sleep
KIND = "asyncio"
current_task = asyncio.current_task
_WRONG_KIND = (
    "AsyncDibs wraps async functions; plain ones need a Dibs, and a class cannot be wrapped"
)


class Signal:
    """Set once by any task, waited for by one."""

    __slots__ = ("_is_set", "_waiter")

    def __init__(self) -> None:
        self._is_set = False
        self._waiter: asyncio.Future[None] | None = None

    def set(self) -> None:
        """Wake the waiter, now or when it comes."""
        self._is_set = True
        waiter = self._waiter
        # If its loop was closed meanwhile, there is no task to wake.
        if waiter is not None and not waiter.done() and not waiter.get_loop().is_closed():
            waiter.set_result(None)

    def clear(self) -> None:
        """Forget that it was set."""
        self._is_set = False

    async def wait(self, seconds: float) -> bool:
        """Return True if it was set. False: *seconds* are over."""
        if not self._is_set and seconds > 0:
            loop = asyncio.get_running_loop()
            self._waiter = waiter = loop.create_future()
            timer = loop.call_later(seconds, _finish_waiter, waiter)
            try:
                await waiter
            finally:
                timer.cancel()
                self._waiter = None
        return self._is_set


def _finish_waiter(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


Guard = contextlib.nullcontext
"""No lock is needed: between two awaits no other task runs."""


class Background:
    """A background task, one at a time, that ends by itself or by `stop`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._task: asyncio.Task[None] | None = None
        self.is_cut_off: Callable[[], bool] = bool
        """True: its event loop was closed. If it had not ended before, it never will."""

    def start(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start *work*. The caller knows that it is not running."""
        self._task = start_task(work(), self._name)
        self.is_cut_off = self._task.get_loop().is_closed

    async def stop(self) -> None:
        """End it, and wait until it has ended."""
        task, self._task = self._task, None
        if task is not None and not task.done() and not task.get_loop().is_closed():
            task.cancel()
            await asyncio.wait([task])


class LoopWatch:
    """Reports that an event loop is blocked while leases have to be renewed in it.

    The loop itself cannot. One thread for all loops of the process looks once a second; it is
    started with the first lease that is renewed, and ends when all clients are closed.
    """

    _thread: ClassVar[threading.Thread | None] = None

    def __init__(self, overdue: Callable[[float], tuple[str, float, float] | None]) -> None:
        """*overdue* is called in the thread when the renewal of a lease is late.

        It gets the name of the lease, the seconds by which the renewal is late, and those until the
        lease expires.
        """
        self._overdue = overdue
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread_id = 0
        self._is_reported = False

    def begin(self) -> None:
        """Watch the loop that runs here."""
        self._loop, self._thread_id = asyncio.get_running_loop(), threading.get_ident()
        _watches.add(self)
        thread = LoopWatch._thread
        if thread is None or not thread.is_alive():
            with contextlib.suppress(RuntimeError):  # no thread to be had: nothing is reported
                LoopWatch._thread = start_thread(_watch_loops, "dibs loop watch")

    def end(self) -> None:
        """Stop: nothing is left to renew."""
        _watches.discard(self)

    def look(self) -> None:
        """Report a loop that is blocked, once; in the thread."""
        if self._loop is not None and self._loop.is_closed():  # `begin` follows in the next one
            self.end()
            return
        overdue = self._overdue(monotonic())
        if overdue is None:
            self._is_reported = False
        elif not self._is_reported and not self._loop_answers():
            self._is_reported = True
            frames = sys._current_frames()  # pyright: ignore[reportPrivateUsage]
            frame = frames.get(self._thread_id)
            stack = "\n" + "".join(traceback.format_stack(frame, _FRAMES))
            _log.warning(_BLOCKED, *overdue, stack)

    def _loop_answers(self) -> bool:
        """Return whether the loop runs callbacks.

        It waits in slices: a process that was stopped, with this thread in it, loses only one of
        them.
        """
        answer = ThreadSignal()
        try:
            assert self._loop is not None
            self._loop.call_soon_threadsafe(answer.set)
        except RuntimeError:  # it is closed
            return True
        return any(answer.wait(_SLICE) for _ in range(_SLICES))


_watches: weakref.WeakSet[LoopWatch] = weakref.WeakSet()
_LOOK_EVERY, _SLICE, _SLICES, _FRAMES = 1.0, 0.05, 10, 8
_BLOCKED = (
    "%s: its lease cannot be renewed because the event loop is blocked; its renewal was due "
    "%.1f s ago, and it runs out in %.1f s. Run what blocks in a thread (asyncio.to_thread). "
    "The loop is at:%s"
)


def _look_at_loops() -> None:
    # A function of its own: while the thread sleeps, no name may keep a watch and its client.
    with contextlib.suppress(RuntimeError):  # the set was changed meanwhile
        [watch.look() for watch in list(_watches)]


def _watch_loops() -> None:
    while _watches:
        sleep_in_thread(_LOOK_EVERY)
        _look_at_loops()


class Deadlines:
    """Looks for leases that have expired: one timer for all, set for the earliest deadline."""

    def __init__(self, look: Callable[[float], float]) -> None:
        """*look* gets the time, and returns the next deadline."""
        self._look = look
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._at = math.inf

    def by(self, deadline: float) -> None:
        """Look at *deadline*, or before."""
        if deadline < self._at or self._loop is not asyncio.get_running_loop():
            self._set(deadline)

    def _set(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._at, self._loop = at, asyncio.get_running_loop()
        self._timer = self._loop.call_later(max(at - monotonic(), 0), self._fire)

    def _fire(self) -> None:
        self._at, self._timer = math.inf, None
        deadline = self._look(monotonic())
        if deadline < self._at:
            self._set(deadline)


_LOST = "a lease of dibs was lost"
"""Why a body is cancelled. Then also the calls in it stop that would go on."""


class Body:
    """The task inside a `with` block: it is cancelled when its lease is lost."""

    __slots__ = ("_before", "_cancelled", "_has_moved", "_task", "is_stopped")

    def __init__(self) -> None:
        task = asyncio.current_task()
        # Weakly: a task whose event loop was closed must be collected, for its lease to end.
        self._task = None if task is None else weakref.ref(task)
        self._before = 0 if task is None else task.cancelling()
        self._cancelled: asyncio.CancelledError | None = None
        self.is_stopped = False
        """We have stopped it, so that it must `leave`."""
        self._has_moved = False
        """The task that entered it had ended: the body learns of the loss when it leaves."""

    def stop(self) -> None:
        """Cancel the body now."""
        task = None if self._task is None else self._task()
        if self.is_stopped or (task is not None and task.get_loop().is_closed()):
            return
        self.is_stopped = True
        if task is None or task.done():  # an exit stack was handed to another task
            self._has_moved = True
        else:
            task.cancel(_LOST)

    async def leave(self, error: BaseException | None) -> bool:
        """The body has ended, by *error*. True: our cancellation ended it, or should have.

        False also if another caller cancels the task as well: that cancellation goes first.
        Where it has arrived here, `resume` raises it again.
        """
        if self._has_moved:
            return not isinstance(error, asyncio.CancelledError)
        task = None if self._task is None else self._task()
        if not self.is_stopped or task is None:
            return False
        arrived: asyncio.CancelledError | None = None
        if not isinstance(error, asyncio.CancelledError):
            try:
                # Our cancellation is still on its way to the next await; it must not leave.
                await asyncio.sleep(0)
            except asyncio.CancelledError as cancelled:
                arrived = cancelled
        if task.uncancel() <= self._before:
            return True
        self._cancelled = arrived
        return False

    def resume(self) -> None:
        """Raise the cancellation by another caller that `leave` has met."""
        cancelled, self._cancelled = self._cancelled, None
        if cancelled is not None:
            raise cancelled


_flight: ContextVar["Callable[[], Flight | None]"] = ContextVar("dibs_flight")
"""The flight whose work this is. Weakly: timers and tasks keep a copy, long after it is over."""


class Flight:
    """One piece of work for all who want its result. It continues without any one of them.

    It runs in a separate task, so that one caller's cancellation does not end it; when the
    last one leaves, it is cancelled. *ended* is called with the flight when it is over.
    """

    __slots__ = ("__weakref__", "_joined", "_loop", "_task", "_worker", "awaits", "origins")

    def __init__(
        self,
        work: Callable[[], Coroutine[Any, Any, Any]],
        ended: Callable[["Flight"], None] | None = None,
    ) -> None:
        self.awaits: Flight | None = None
        """The flight that the work of this one waits for."""
        self.origins: tuple[object, ...] | None = None
        """What those who join it are linked to in a trace; None: it has loaded nothing."""
        self._joined = 0
        self._worker: asyncio.Task[Any] | None = None
        self._loop = running_loop()
        self._task = self._loop.create_task(self._run(work), name="dibs flight")
        self._task.add_done_callback(_see_error)
        if ended is not None:
            self._task.add_done_callback(lambda _: ended(self))

    async def _run(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        self._worker = asyncio.current_task()
        _flight.set(weakref.ref(self))
        return await work()

    @property
    def is_open(self) -> bool:
        """Return True if there is still something to join."""
        return not self._task.done() and not self._task.cancelling() and not self.is_orphaned

    @property
    def is_orphaned(self) -> bool:
        """Return True if its event loop was closed before it was done; it will never end."""
        return self._loop is not asyncio.get_running_loop() and not self._task.done()

    async def join(self) -> Any:
        """The result, or the error. UsageError: the flight waits for this caller."""
        mine = _flight.get(_no_flight)()
        if mine is None or mine._worker is not asyncio.current_task():
            return await self._join()
        mine.awaits = self
        try:
            refuse_cycle(mine)
            return await self._join()
        finally:
            mine.awaits = None

    async def _join(self) -> Any:
        self._joined += 1
        try:
            await asyncio.wait([self._task])
        finally:
            self._joined -= 1
            if not self._joined and not self._task.done():
                self._task.cancel()
        if self._task.cancelled():
            raise Unavailable(cause_for("load_cancelled"))
        return self._task.result()

    async def cancel(self) -> None:
        """End it, and wait until it has ended."""
        if not self.is_orphaned:
            self._task.cancel()
            await asyncio.wait([self._task])


def _no_flight() -> None:
    return None


def current_flight() -> "Flight | None":
    """Return the flight whose work this is."""
    return _flight.get(_no_flight)()


def is_cancellation(error: BaseException) -> bool:
    """Return True if the task was cancelled."""
    return isinstance(error, asyncio.CancelledError)


def _see_error(task: "asyncio.Task[Any]") -> None:
    # The callers have the error; if none is left, a warning would be of no use.
    if not task.cancelled():
        task.exception()


class ContinuedCalls:
    """Calls that go on when their callers are cancelled, each in a separate task."""

    def __init__(self) -> None:
        self._left: set[asyncio.Task[Any]] = set()
        """Those that go on without their callers."""

    async def run(
        self,
        work: Callable[[Callable[[], None]], Coroutine[Any, Any, Any]],
        failed: Callable[[BaseException | None], None],
    ) -> Any:
        """Return what *work* returns or raises.

        It is called with what it calls when it must not be stopped any more: before that a caller
        that is cancelled stops it. *failed*: called with the error of work whose caller has left;
        None: it was cancelled later.
        """
        call, context = _ContinuedCall(), copy_context()
        loop = asyncio.get_running_loop()
        task = loop.create_task(call.run(work), name="dibs once", context=context)
        task.add_done_callback(call.wake)  # also where it is cancelled before it starts
        while not task.done():
            call.waiter = loop.create_future()
            try:
                await call.waiter
            except asyncio.CancelledError as error:
                if call.has_begun and error.args[:1] != (_LOST,):
                    self._leave(task, failed)
                    raise
                task.cancel(*error.args)
        _adopt_context(context)
        return task.result()

    def _leave(
        self, task: "asyncio.Task[Any]", failed: Callable[[BaseException | None], None]
    ) -> None:
        def ended(_: "asyncio.Task[Any]") -> None:
            self._left.discard(task)
            error = None if task.cancelled() else task.exception()
            if task.cancelled() or error is not None:
                failed(error)

        self._left.add(task)
        task.add_done_callback(ended)

    async def finish(self, seconds: float) -> None:
        """Wait until those have ended whose callers have left; after *seconds* they are cancelled.

        What was started in another event loop is not waited for, nor the one that waits.
        """
        loop, here = asyncio.get_running_loop(), asyncio.current_task()
        tasks = [task for task in self._left if task is not here and task.get_loop() is loop]
        if not tasks:
            return
        try:
            await asyncio.wait(tasks, timeout=seconds)
        finally:
            tasks = [task for task in tasks if not task.done()]
            for task in tasks:
                task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_LAST_STEPS)


class _ContinuedCall:
    """What a call and its caller share."""

    __slots__ = ("has_begun", "waiter")

    def __init__(self) -> None:
        self.has_begun = False
        self.waiter: asyncio.Future[None] | None = None

    async def run(self, work: Callable[[Callable[[], None]], Coroutine[Any, Any, Any]]) -> Any:
        try:
            return await work(self._begin)
        finally:  # the task is done when the caller is resumed: one turn of the loop is saved
            self.wake()

    def wake(self, _: object = None) -> None:
        """Resume the caller."""
        waiter = self.waiter
        if waiter is not None and not waiter.get_loop().is_closed():  # or there is no caller
            _finish_waiter(waiter)

    def _begin(self) -> None:
        self.has_begun = True


_LAST_STEPS = 1.0
"""Seconds that a call has to end after it was cancelled."""


def _adopt_context(context: Context) -> None:
    """Set the context variables of this task to what a call has left in *context*."""
    for variable, value in context.items():
        if variable.get(None) is not value:
            variable.set(value)


class BackgroundTasks:
    """Work in the background, all of it ended by `stop`."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def is_orphaned(self) -> bool:
        """True: the event loop in which work was started last is not the one that runs now."""
        return self._loop is not None and self._loop is not asyncio.get_running_loop()

    def spawn(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> bool:
        """Start *work*. Its errors are its own business. False: it was not started."""
        if self.is_orphaned:
            self._tasks = set()
        self._loop = asyncio.get_running_loop()
        task = start_task(work(), "dibs task")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_see_error)
        return True

    async def stop(self) -> None:
        """End all of it, and wait until it has ended."""
        tasks = [] if self.is_orphaned else list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


class WorkQueue(BackgroundTasks):
    """Work in the background. None of it is refused."""

    def add(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Have *work* done. Its errors are its own business."""
        self.spawn(work)

    async def finish(self) -> None:
        """Wait until it is done. What was started in another event loop is not waited for."""
        if self._tasks and not self.is_orphaned:
            await asyncio.wait(self._tasks)


def hand_over(loop: Any, queue: WorkQueue, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Have *work* done in *loop*, from anywhere. Nothing, if the loop was closed."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(queue.add, work)


_AGAIN: Any = object()
Batch = list["asyncio.Future[Any]"]
_MOST_SHARED = 10_000


class Coalescer:
    """Callers who ask for the same in one tick of the loop share one answer.

    The first of a tick asks at once, unless several asked for the key the last time. The others
    share a question that is sent when the tick is over, and never one that was sent before.
    """

    def __init__(self) -> None:
        self._asked: dict[bytes, Batch | None] = {}
        """What was asked for in this tick; None: by one caller only."""
        self._waiting: Batch = []
        """Those who ask when the tick is over."""
        self._shared: set[bytes] = set()
        """What several asked for the last time."""
        self._loop: asyncio.AbstractEventLoop | None = None

    async def ask(
        self, key: bytes, question: Callable[[Q], Coroutine[Any, Any, Any]], about: Q
    ) -> Any:
        """The answer to *question*, asked by this caller or by another one."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._asked, self._waiting = loop, {}, []
        while True:
            batches = self._asked
            if not batches:
                loop.call_soon(self._next_tick)
            if key not in batches and key not in self._shared:
                batches[key] = None
                return await question(about)
            batch = batches.get(key)
            if batch is None:
                batch = batches[key] = []
                return await self._ask_for_all(key, batch, question, about)
            batch.append(future := loop.create_future())
            answer = await future
            if answer is not _AGAIN:  # else the one who asked was cancelled, or failed
                return answer

    async def _ask_for_all(
        self, key: bytes, batch: Batch, question: Callable[[Q], Coroutine[Any, Any, Any]], about: Q
    ) -> Any:
        self._waiting.append(is_over := asyncio.get_running_loop().create_future())
        answer = _AGAIN
        try:
            await is_over
            answer = await question(about)
            return answer
        finally:
            if len(self._shared) >= _MOST_SHARED:
                self._shared.clear()
            (self._shared.add if batch else self._shared.discard)(key)
            for future in batch:
                if not future.done():
                    future.set_result(answer)

    def _next_tick(self) -> None:
        waiting, self._asked, self._waiting = self._waiting, {}, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


async def within(seconds: float, work: Callable[[], Any]) -> Any:
    """Return what *work* returns. Raises TimeoutError if it was cancelled, *seconds* were over."""
    async with asyncio.timeout(seconds):
        return await maybe_await(work())


def current_loop() -> object:
    """Return what all work here depends on: the event loop that runs."""
    return asyncio.get_running_loop()


async def maybe_await(value: Any) -> Any:
    """Return what *value* comes to: awaited, if it can be."""
    return await value if inspect.isawaitable(value) else value


async def off_loop(work: Callable[..., Any], *args: Any) -> Any:
    """Run blocking *work* without stopping the other tasks."""
    return await asyncio.to_thread(work, *args)


class _MustAwait(Coroutine[Any, Any, Q]):
    """A coroutine that cannot be taken for its result: `if dibs.try_hold(…)` would be true."""

    __slots__ = ("_coroutine",)

    def __init__(self, coroutine: Coroutine[Any, Any, Q]) -> None:
        self._coroutine = coroutine

    def send(self, value: Any, /) -> Any:
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Q]:
        return self._coroutine.__await__()

    def __bool__(self) -> bool:
        raise UsageError("write await before it: this is a coroutine, not its result")


must_await = _MustAwait


def check_function(function: Callable[..., Any]) -> None:
    """Raise UsageError if a decorator cannot wrap *function*."""
    if not (getattr(function, "returns_awaitable", False) or inspect.iscoroutinefunction(function)):
        raise UsageError(function_error(function, _WRONG_KIND))


def mark_coroutine(kind: type[Q]) -> type[Q]:
    """Let others see that calling an object of this class gives something to await."""
    kind.returns_awaitable = True  # type: ignore[attr-defined]
    mark: Any = getattr(inspect, "markcoroutinefunction", None)  # Python 3.12
    return kind if mark is None else mark(kind)


def shutdown(connection: Any) -> None:
    """Do nothing: a task that waits for a connection can be cancelled."""


def deliver_behind(transport: Any, request: Any) -> None:
    """Have *request* delivered after the one whose task was cancelled: on the same connection."""
    transport.post(request)
