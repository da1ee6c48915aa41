"""What differs between asyncio and threads, the threads half. `_tasks.py` has the same names."""

import _thread
import contextlib
import functools
import inspect
import math
import socket
import threading
import weakref
from collections import deque
from collections.abc import Callable
from time import sleep
from typing import Any, TypeVar

import redis

from ._core.cache import refuse_cycle
from ._core.causes import cause_for
from ._core.keys import function_error
from ._locks import Guard, Signal, start_thread, try_lock
from ._system import monotonic
from ._transport import redis_internals
from ._transport.concurrency import ends_thread as ends_task
from ._transport.concurrency import gather_in_turn as gather
from ._transport.concurrency import gather_threads_until as gather_until
from ._transport.pooled import PooledTransport as Transport
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
KIND = "threads"
current_task = threading.current_thread
_WRONG_KIND = (
    "Dibs wraps plain functions; async ones need an AsyncDibs, and a class cannot be wrapped"
)


class Background:
    """A background thread, one at a time, that ends by itself or by `stop`."""

    is_cut_off: Callable[[], bool] = bool
    """False: a thread always comes to its end."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: threading.Thread | None = None

    def start(self, work: Callable[[], None]) -> None:
        """Start *work*. Raises RuntimeError if the system has no thread for it."""
        self._thread = start_thread(work, self._name)

    def stop(self) -> None:
        """Wait until it has ended. A thread cannot be cancelled: its work must check."""
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=5)


class LoopBinding:
    """Does nothing: a client belongs to all threads."""

    __slots__ = ()

    def open(self) -> None:
        """Do nothing."""

    def enter(self) -> None:
        """Do nothing."""

    def start_behind(self, work: Callable[[], object]) -> bool:
        """Start *work*; called wherever garbage is collected, so nothing is waited for.

        False: the system has no thread for it.
        """
        try:
            start = functools.partial(
                start_thread, functools.partial(_suppress_errors, work), "dibs close"
            )
            _thread.start_new_thread(_suppress_errors, (start,))
        except RuntimeError:
            return False
        return True


def _suppress_errors(work: Callable[[], object]) -> None:
    with contextlib.suppress(Exception):
        work()


class LoopWatch:
    """Does nothing: there is no event loop that could be blocked."""

    __slots__ = ()

    def __init__(self, overdue: Callable[[float], tuple[str, float, float] | None]) -> None:
        pass

    def begin(self) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""


class Deadlines:
    """Nothing: the renewer's thread looks at deadlines."""

    __slots__ = ()

    def __init__(self, look: Callable[[float], float]) -> None:
        pass

    def by(self, deadline: float) -> None:
        """Do nothing."""


class Body:
    """The thread inside a `with` block: it cannot be stopped, it looks at `lease.lost`."""

    __slots__ = ()

    is_stopped = False

    def stop(self) -> None:
        """Do nothing: a thread cannot be stopped."""

    def leave(self, error: BaseException | None) -> bool:
        """Return False if we never ended it."""
        return False

    def resume(self) -> None:
        """Do nothing: a thread cannot be cancelled."""


class _Here(threading.local):
    """What this thread does."""

    flight: "Flight | None" = None


_here = _Here()


_LOOK_AGAIN = 1.0
"""Seconds after which who waits for a flight looks again: a signal handler may have raised before
all were woken."""


class Flight:
    """One piece of work for all who want its result. The first to join does it.

    *ended* is called with the flight when it is over.
    """

    def __init__(
        self, work: Callable[[], Any], ended: Callable[["Flight"], None] | None = None
    ) -> None:
        self.awaits: Flight | None = None
        """The flight that the work of this one waits for."""
        self.origins: tuple[object, ...] | None = None
        """What those who join it are linked to in a trace; None: it has loaded nothing."""
        self._work = work
        self._ended = ended
        self._has_begun = self._is_done = False
        self._waiting: list[Signal] = []
        self._deadline = math.inf
        self._result: Any = None
        self._error: BaseException | None = None

    @property
    def is_open(self) -> bool:
        """Return True if there is still something to join."""
        return not self._is_done and monotonic() < self._deadline

    @property
    def is_orphaned(self) -> bool:
        """Return False if a thread needs no event loop."""
        return False

    def join(self) -> Any:
        """Return the result, or the error. UsageError: the flight waits for this caller.

        TimeoutError: its load takes too long. It cannot be stopped; the next caller loads again.
        """
        if not self._has_begun:
            # Without a call between them: no other thread has run, and no signal handler raised.
            self._has_begun = True
            try:
                return self._do_flight()
            except BaseException as error:
                self._error = error
                raise
            finally:
                self._is_done = True
                self._end()
        mine = _here.flight
        if mine is None:
            return self._wait()
        mine.awaits = self
        try:
            refuse_cycle(mine)
            return self._wait()
        finally:
            mine.awaits = None

    def _do_flight(self) -> Any:
        outer, _here.flight = _here.flight, self
        try:
            if outer is not None:
                outer.awaits = self
            self._result = self._work()
            return self._result
        finally:
            _here.flight = outer
            if outer is not None:
                outer.awaits = None

    def _end(self) -> None:
        self._wake_all()
        if self._ended is not None:
            self._ended(self)

    def _wake_all(self) -> None:
        for each in self._waiting:
            each.set()

    def _wait(self) -> Any:
        woken = Signal()
        self._waiting.append(woken)
        while not self._is_done:
            remaining = self._deadline - monotonic()
            if remaining <= 0:
                raise TimeoutError
            woken.wait(min(remaining, _LOOK_AGAIN))
            woken.clear()
        if self._error is None:
            return self._result
        if isinstance(self._error, Exception):
            raise self._error
        raise Unavailable(cause_for("load_cancelled", "the load was interrupted"))

    def limit(self, deadline: float) -> None:
        """Let callers wait until *deadline* at most."""
        self._deadline = deadline
        self._wake_all()

    def cancel(self) -> None:
        """Do nothing: a thread cannot be ended from outside."""


def current_flight() -> Flight | None:
    """Return the flight whose work this is."""
    return _here.flight


def is_cancellation(error: BaseException) -> bool:
    """Return True if the thread is interrupted, not only what it called."""
    return not isinstance(error, Exception)


class ContinuedCalls:
    """Calls as they are: a thread cannot be cancelled."""

    def run(self, work: Callable[[Callable[[], None]], Any], failed: Callable[[Any], None]) -> Any:
        """Return what *work* returns or raises."""
        return work(_do_nothing)

    def finish(self, seconds: float) -> None:
        """Do nothing: the caller of each call waits for it."""


def _do_nothing() -> None:
    return None


_MOST_THREADS = 64
"""Pieces of work that go on at the same time, at most, for each `BackgroundTasks`."""


class BackgroundTasks:
    """Work in the background."""

    is_orphaned = False

    def __init__(self) -> None:
        # Weakly: what a raising signal handler has dropped counts no more.
        self._running: weakref.WeakSet[_BackgroundTask] = weakref.WeakSet()
        self._guard = Guard()

    def spawn(self, work: Callable[[], Any]) -> bool:
        """Start *work* on a thread. Its errors are its own business. False: there are too many."""
        task = _BackgroundTask(work)
        with self._guard:
            if len(self._running) >= _MOST_THREADS:
                return False
            self._running.add(task)
        try:
            start_thread(task.run, "dibs task")
        except RuntimeError:  # the system has no thread for us
            return False
        return True

    def stop(self) -> None:
        """Do nothing: threads end by themselves."""


class _BackgroundTask:
    """A piece of work that exists until it is done."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work

    def run(self) -> None:
        """Do it."""
        _suppress_errors(self._work)


class WorkQueue:
    """Work in the background, done in turn by one thread. None of it is refused.

    No lock is waited for where work is added: that may be in a signal handler, or wherever garbage
    is collected.
    """

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], Any]] = deque()
        self._turn = threading.Lock()
        """Of the one thread that works."""
        self._is_starting = False

    def add(self, work: Callable[[], Any]) -> None:
        """Have *work* done. Its errors are its own business."""
        self._waiting.append(work)
        if self._turn.locked() or self._is_starting:
            return  # the thread that works looks once more after its turn
        self._is_starting = True
        try:
            start_thread(self._work, "dibs queue")
        except RuntimeError:  # the system has no thread for us: it is done here
            self._work()
        except BaseException:  # a signal handler raised; the next one starts a thread
            self._is_starting = False
            raise

    def _work(self, patience: float = 0.0) -> None:
        """Do all that waits, when it is the turn of this thread; not if others have it longer."""
        self._is_starting = False
        while try_lock(self._turn, patience):
            try:
                while self._waiting:
                    with contextlib.suppress(Exception):
                        self._waiting.popleft()()
            finally:
                self._turn.release()
            if not self._waiting:
                return

    def finish(self) -> None:
        """Wait until it is done, or takes too long."""
        self._work(patience=5.0)


def hand_over(loop: Any, queue: WorkQueue, work: Callable[[], Any]) -> None:
    """Have *work* done in a thread."""
    queue.add(work)


class Coalescer:
    """Threads ask for themselves: each has a separate connection, and waiting costs more."""

    def ask(self, key: bytes, question: Callable[[Q], Any], about: Q) -> Any:
        """The answer to *question*."""
        return question(about)


def within(seconds: float, work: Callable[[], Any]) -> Any:
    """Return what *work* returns, however long it takes: a thread cannot be stopped.

    But callers that wait for its flight wait no longer than *seconds*.
    """
    flight = _here.flight
    if flight is None:
        return work()
    flight.limit(monotonic() + seconds)
    try:
        return work()
    finally:
        flight.limit(math.inf)


def current_loop() -> object:
    """Return what all work here depends on: nothing that could end before the process."""
    return threading


def maybe_await(value: Any) -> Any:
    """Return *value*: threads await nothing."""
    return value


def off_loop(work: Callable[..., Any], *args: Any) -> Any:
    """Run *work* here: there is no event loop to leave."""
    return work(*args)


def must_await(result: Q) -> Q:
    """Return *result*: with threads there is nothing to forget."""
    return result


def check_function(function: Callable[..., Any]) -> None:
    """Raise UsageError if a decorator cannot wrap *function*."""
    if (
        not callable(function)
        or type(function) is staticmethod
        or getattr(function, "returns_awaitable", False)
        or inspect.iscoroutinefunction(function)
        or inspect.isasyncgenfunction(function)
        or inspect.isgeneratorfunction(function)
        or inspect.isclass(function)
    ):
        raise UsageError(function_error(function, _WRONG_KIND))


def mark_coroutine(kind: type[Q]) -> type[Q]:
    """Return the class as it is: calling its objects gives results."""
    return kind


def shutdown(connection: Any) -> None:
    """Shut the socket down: a thread that is reading from it sees end-of-file."""
    with contextlib.suppress(OSError, UsageError):
        # Not the method of a TLS socket, which would change the object that the other thread uses.
        socket.socket.shutdown(redis_internals.socket_of(connection), socket.SHUT_RDWR)


def deliver_behind(transport: Any, request: Any) -> None:
    """Have *request* delivered after the one that was interrupted: it is in the outbox."""
    transport.deliver_later(request)
