"""Connecting to a server that is out, in a background thread."""

import threading
from collections.abc import Callable

from .._core.breaker import PROBE_EVERY
from .opening import Opening
from .thread_connection import ThreadConnection

_MAX_ATTEMPTS = 4
"""Attempts at the same time."""


class Probe:
    """Opens connections until one can be used.

    An attempt that hangs does not delay the next one: on a network that loses packets the newest
    attempt is often the first to succeed.
    """

    def __init__(
        self,
        connect: Callable[[], ThreadConnection],
        recover: Callable[[ThreadConnection], bool],
        restart_server: Callable[[], None],
        is_needed: Callable[[], bool],
        limit: float,
    ) -> None:
        self._connect = connect
        self._recover = recover
        self._restart_server = restart_server
        self._is_needed = is_needed
        self._pause = limit / _MAX_ATTEMPTS
        self._changed = threading.Event()
        self._guard = threading.RLock()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def start(self) -> None:
        """Start, unless it runs. If no thread can be started, the next call tries again."""
        with self._guard:
            if self._thread is not None or self._is_closed:
                return
            thread = threading.Thread(target=self._run, name="dibs probe", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return
            self._thread = thread

    def close(self) -> None:
        """End the thread, which is a daemon: if an attempt hangs, it is not waited for."""
        self._is_closed = True
        self._changed.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=0.1)

    def _run(self) -> None:
        attempts: list[Opening] = []
        try:
            while not self._is_closed:
                if len(attempts) < _MAX_ATTEMPTS:
                    attempts.append(attempt := Opening(self._connect, self._ended))
                    attempt.start()
                self._changed.wait(self._pause)
                self._changed.clear()
                if self._has_recovered(attempts):
                    return
        finally:
            with self._guard:
                self._thread = None
            for attempt in attempts:
                attempt.cancel()
            # A `start` that was called while this thread was ending has started nothing.
            if self._is_needed():
                self.start()

    def _ended(self, attempt: Opening) -> None:
        self._changed.set()

    def _has_recovered(self, attempts: list[Opening]) -> bool:
        """True: the server is back. Otherwise remove the attempts that failed, and pause."""
        ended = [attempt for attempt in attempts if attempt.wait(0)]
        for attempt in ended:
            attempts.remove(attempt)
            connection = attempt.take()
            if connection is not None and self._is_usable(connection):
                return True
        if ended and not self._is_closed:
            self._changed.wait(PROBE_EVERY)
            self._restart_server()
        return False

    def _is_usable(self, connection: ThreadConnection) -> bool:
        try:
            usable = self._recover(connection)
        except Exception:  # whatever it is: this thread has to go on
            usable = False
        if not usable:
            connection.close()
        return usable
