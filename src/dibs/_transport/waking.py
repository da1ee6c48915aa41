"""What wakes a thread that waits."""

import contextlib
import threading

from .._system import monotonic


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
        """True: it was set. False: *seconds* are over."""
        until = monotonic() + seconds
        # A release of before the last `clear` may wake us: look at the flag, and wait on.
        while not self._is_set and (remaining := until - monotonic()) > 0:
            self._lock.acquire(timeout=min(remaining, threading.TIMEOUT_MAX))
        return self._is_set
