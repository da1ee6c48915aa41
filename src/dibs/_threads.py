"""What differs between asyncio and threads, the threads half. `_tasks.py` has the same names."""

import contextlib
import inspect
import threading
from collections.abc import Callable
from time import monotonic, sleep
from typing import Any, TypeVar

import redis

from ._links.pooled import PooledLink as Link
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
WRONG_WORLD = "Dibs wraps plain functions; async ones need an AsyncDibs, generators cannot be held"


class Signal:
    """Set by anybody, waited for by one thread.

    Made of one lock that only the waiter takes: a signal handler may set it while its own thread
    is anywhere in here. (`threading.Event` has a lock that such a handler would wait for.)
    """

    __slots__ = ("_is_set", "_lock")

    def __init__(self) -> None:
        self._is_set = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Wake the waiter, now or when it comes."""
        self._is_set = True
        with contextlib.suppress(RuntimeError):  # it is released already
            self._lock.release()

    def clear(self) -> None:
        """Forget that it was set."""
        self._is_set = False
        self._lock.acquire(blocking=False)

    def wait(self, seconds: float) -> bool:
        """True: it was set. False: *seconds* are over."""
        until = monotonic() + seconds
        # A release of before the last `clear` may wake us: look at the flag, and wait on.
        while not self._is_set and (left := until - monotonic()) > 0:
            self._lock.acquire(timeout=min(left, threading.TIMEOUT_MAX))
        return self._is_set


Guard = threading.RLock
"""What two threads must not change at once. Re-entrant: a signal handler may use dibs as well."""


def current_loop() -> object:
    """None: all threads are in one world, and none of them ends without a word."""
    return None


class Background:
    """A piece of work beside the callers, one at a time, that ends by itself or by `stop`."""

    is_cut_off = False
    """A thread always comes to its end."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: threading.Thread | None = None

    def start(self, work: Callable[[], None]) -> None:
        """Start *work*. RuntimeError: the system has no thread for it."""
        self._thread = threading.Thread(target=work, name=self._name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Wait until it has ended. A thread cannot be told to: its work must see that it should."""
        thread, self._thread = self._thread, None
        # Not alive: it has ended, or could never be started.
        if thread is not None and thread.is_alive() and thread is not threading.current_thread():
            thread.join(timeout=5)

    def abandon(self) -> None:
        """In a forked child: it does not run here."""
        self._thread = None


class Body:
    """The thread inside a `with` block: it cannot be stopped, it looks at `lease.lost`."""

    __slots__ = ()

    def __init__(self, on_deadline: Callable[[], None]) -> None:
        pass

    def stop_at(self, deadline: float) -> None:
        """Nothing: the keeper's thread looks at the deadline as well."""

    def stop(self) -> None:
        """Nothing: a thread cannot be stopped."""

    def leave(self, error: BaseException | None) -> bool:
        """False: we never ended it."""
        return False

    def resume(self) -> None:
        """Nothing: nobody can cancel a thread."""


class Flight:
    """One piece of work for all who want its result. The first to join does it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._guard = threading.Lock()
        self._has_begun = False
        self._done = threading.Event()
        self._result: Any = None
        self._error: BaseException | None = None

    @property
    def is_open(self) -> bool:
        """True: there is still something to join."""
        return not self._done.is_set()

    def join(self) -> Any:
        """The result, or the error."""
        with self._guard:
            is_first, self._has_begun = not self._has_begun, True
        if is_first:
            return self._do()
        self._done.wait()
        if self._error is None:
            return self._result
        if isinstance(self._error, Exception):
            raise self._error
        raise Unavailable("the load was interrupted")

    def _do(self) -> Any:
        try:
            self._result = self._work()
            return self._result
        except BaseException as error:
            self._error = error
            raise
        finally:
            self._done.set()

    def land(self) -> None:
        """Nothing: a thread cannot be ended from outside."""


class Crew:
    """Work that nobody waits for."""

    def spawn(self, work: Callable[[], Any]) -> None:
        """Start *work* on a thread. Its errors are its own business."""

        def run() -> None:
            with contextlib.suppress(Exception):
                work()

        threading.Thread(target=run, name="dibs crew", daemon=True).start()

    def stop(self) -> None:
        """Nothing: threads end by themselves."""


class Together:
    """Threads ask for themselves: each has a connection of its own, and waiting costs more."""

    def ask(self, key: bytes, question: Callable[[Q], Any], about: Q) -> Any:
        """The answer to *question*."""
        return question(about)


def within(seconds: float, work: Callable[[], Any]) -> Any:
    """What *work* returns, however long it takes: a thread cannot be stopped."""
    return work()


def settle(value: Any) -> Any:
    """*value*."""
    return value


def off_loop(work: Callable[..., Any], *args: Any) -> Any:
    """Run *work*."""
    return work(*args)


def fits(function: Callable[..., Any]) -> bool:
    """True: a decorator of this world can wrap *function*."""
    return callable(function) and not (
        inspect.iscoroutinefunction(function)
        or inspect.isasyncgenfunction(function)
        or inspect.isgeneratorfunction(function)
    )
