"""Locks and threads that a signal handler which raises leaves in order.

Python looks for signals after each call, and where a function begins. A handler that raises there
(Ctrl-C, the time limits of job queues) ends the caller between two instructions. A lock that was
just acquired would stay so, unless its release was prepared in the same step. What is written in C
is one step; a `for` loop looks for signals only where it goes back.
"""

import _thread
import contextlib
import functools
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ._system import monotonic

__all__ = ["Guard", "Signal", "start_thread", "try_lock"]

if TYPE_CHECKING or sys.version_info[:2] != (3, 14):
    Guard = threading.RLock
    """What two threads must not change at once. Re-entrant: a signal handler may use dibs, too."""
else:

    class Guard(type(threading.RLock())):
        """The same on Python 3.14, which looks for signals between `__enter__` and the block.

        It does not where a function that is written in Python returns. `__exit__` is the lock's.
        """

        __slots__ = ()

        def __enter__(self) -> bool:
            for is_acquired in iter(self.acquire, None):
                return is_acquired
            raise StopIteration  # by a signal handler, while this waited


def try_lock(lock: threading.Lock, patience: float = 0.0) -> bool:
    """Acquire *lock*. False: it has not become free within *patience* seconds.

    The caller's `try` is entered before Python looks for signals again.
    """
    for is_acquired in iter(functools.partial(lock.acquire, timeout=patience), None):
        return is_acquired
    raise StopIteration  # by a signal handler, while this waited


class Signal:
    """Set by any thread, waited for by one.

    Made of one lock that only the waiter takes: a signal handler may set it while its own thread
    is anywhere in here, or raise. (`threading.Event` has a lock that such a handler would wait for,
    or leave locked; then whoever sets it would wait for ever.)
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
        """Return True if it was set. False: *seconds* are over."""
        until = monotonic() + seconds
        # A release of before the last `clear` may wake us: look at the flag, and wait on.
        while not self._is_set and (remaining := until - monotonic()) > 0:
            self._lock.acquire(timeout=min(remaining, threading.TIMEOUT_MAX))
        return self._is_set


def start_thread(work: Callable[[], object], name: str) -> threading.Thread:
    """Start a daemon thread, and wait until it has begun. RuntimeError: the system has none.

    It is started by another thread, where no signal handler runs: one that raises in
    `Thread.start` can keep that thread, or on 3.14 all later ones, from ever running.
    """
    thread = threading.Thread(target=work, name=name, daemon=True)
    has_begun = threading.Lock()
    has_begun.acquire()
    errors: list[BaseException] = []
    _thread.start_new_thread(_start_and_report, (thread, has_begun, errors))
    has_begun.acquire()
    for error in errors:
        raise error
    return thread


def _start_and_report(
    thread: threading.Thread, has_begun: threading.Lock, errors: list[BaseException]
) -> None:
    try:
        thread.start()
    except BaseException as error:
        errors.append(error)
    finally:
        has_begun.release()
