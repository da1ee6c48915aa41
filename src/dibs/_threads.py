"""What differs between asyncio and threads, the threads half. `_tasks.py` has the same names."""

import contextlib
import inspect
import socket
import threading
from collections.abc import Callable
from time import monotonic, sleep
from typing import Any, TypeVar

import redis

from ._links import adopted
from ._links.pooled import PooledLink as Link
from .errors import Unavailable, UsageError

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
    "fits",
    "hang_up",
    "monotonic",
    "off_loop",
    "redis",
    "settle",
    "sleep",
    "within",
    "world",
]

Q = TypeVar("Q")
WRONG_WORLD = "Dibs wraps plain functions; async ones need an AsyncDibs, generators cannot be held"


class Signal:
    """Set once by anybody, waited for by one thread."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """Wake the waiter, now or when it comes."""
        self._event.set()

    def clear(self) -> None:
        """Forget that it was set."""
        self._event.clear()

    def wait(self, seconds: float) -> bool:
        """True: it was set. False: *seconds* are over."""
        return self._event.wait(max(seconds, 0))


Guard = threading.Lock
"""What two threads must not change at once."""


class Background:
    """A piece of work beside the callers, one at a time, that ends by itself or by `stop`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: threading.Thread | None = None

    def start(self, work: Callable[[], None]) -> None:
        """Start *work*. The caller knows that it is not running."""
        self._thread = threading.Thread(target=work, name=self._name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Wait until it has ended. A thread cannot be told to: its work must see that it should."""
        thread, self._thread = self._thread, None
        if thread is not None and thread is not threading.current_thread():
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


_PROCESS = object()


def world() -> object:
    """Where background work runs, and ends with: the process."""
    return _PROCESS


def hang_up(connection: Any) -> None:
    """End the connection under a thread that waits for it: that one sees it closed."""
    with contextlib.suppress(OSError, UsageError):
        # Not the method of a TLS socket: that one would change what the other thread uses.
        socket.socket.shutdown(adopted.socket_of(connection), socket.SHUT_RDWR)
