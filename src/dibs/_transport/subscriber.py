"""The subscriber of the threads transport: a connection for notifications of changed keys."""

import contextlib
from collections import deque
from typing import Any

import hiredis

from .._core.capabilities import NO_OP
from .._core.connection import TimeLimit
from .._core.request import Reply, Request
from .._core.tracking import Tracked, read_tracked, tracked
from .._locks import Guard, Signal, start_thread
from .._system import monotonic
from .base import Watchers
from .connection_errors import CONNECTION_ERRORS
from .pool import Silent, ThreadConnection

_PING_AFTER = 4
"""Slices without a message after which the server is pinged, and after which a ping is lost."""
_SLICE = 0.25
"""In seconds. Short: a read that is interrupted by a signal, or because the process is stopped and
continued, begins anew, and with it the time that the kernel waits."""


class _PendingRequest:
    """A request whose replies the reading thread will set."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.replies: list[Reply] = []
        self.done = Signal()
        self.error: BaseException | None = None


class Subscriber:
    """One thread reads; any thread may send a request. A lost connection wakes every watcher.

    A connection is closed if a request or a ping gets no reply in time. The transport makes a new
    subscriber at the next request.
    """

    def __init__(self, connection: ThreadConnection, watchers: Watchers, budget: float) -> None:
        self.is_alive = False
        self.pushes = connection.pushes
        self._is_tracking = False
        self._connection = connection
        self._watchers = watchers
        self._budget = budget
        self._pending: deque[_PendingRequest] = deque()
        self._guard = Guard()

    def start(self) -> None:
        """Start the thread. Raises RuntimeError if the system has none for it."""
        self.is_alive = True
        start_thread(self._read_until_end, "dibs subscriber")

    def track(self, requests: list[Request]) -> list[Tracked]:
        """Send them and have later changes of their keys pushed.

        Raises Silent or EOFError if no replies.
        """
        with self._guard:
            pending = self._write_request(tracked(requests, first=not self._is_tracking))
            self._is_tracking = True
        return read_tracked(self._await_replies(pending), requests, pushes=self.pushes)

    def _await_replies(self, pending: _PendingRequest) -> list[Reply]:
        time_limit = TimeLimit(self._budget)
        since = monotonic()
        while not pending.done.wait(time_limit.slice):
            elapsed, since = monotonic() - since, monotonic()
            if time_limit.count(elapsed):
                self.close()
                raise Silent
        if pending.error is not None:
            raise EOFError
        return pending.replies

    def _write_request(self, request: Request) -> _PendingRequest:
        with self._guard:
            if not self.is_alive:
                raise EOFError
            pending = _PendingRequest(request)
            try:
                self._pending.append(pending)
                self._connection.write(request)
            except BaseException:  # replies would be taken for those to another request
                self.close()
                raise
            return pending

    def _read_until_end(self) -> None:
        try:
            self._connection.look_every(_SLICE)
            while True:
                self._handle_message(self._next_message())
        except (*CONNECTION_ERRORS, IndexError) as error:  # IndexError: a reply without a request
            self._end_with(error)

    def _next_message(self) -> Any:
        """Return the next reply or push. Raises Silent if not even a ping got a reply."""
        for number in range(1, 2 * _PING_AFTER):
            with contextlib.suppress(Silent):
                return self._connection.read_any()
            if number == _PING_AFTER and not self._pending:
                self._write_request(NO_OP)
        return self._connection.read_any()

    def is_behind(self, now: float) -> bool:
        """Return whether the thread is late in reading: the process was stopped, or is busy."""
        return now - self._connection.waits_since > 2 * _SLICE

    def _handle_message(self, reply: Any) -> None:
        if type(reply) is hiredis.PushNotification:
            self._watchers.pushed(reply)
            return
        pending = self._pending[0]
        pending.replies.append(reply)
        if len(pending.replies) == pending.request.replies:
            self._pending.popleft()
            pending.done.set()

    def _end_with(self, error: BaseException) -> None:
        with self._guard:
            self.is_alive = False
            pending, self._pending = list(self._pending), deque()
        for each in pending:
            each.error = error
            each.done.set()
        self._watchers.wake_all()
        self._connection.close()

    def close(self) -> None:
        """End the thread."""
        self.is_alive = False
        self._connection.shutdown()

    def close_copy(self) -> None:
        """In a forked child, where its thread does not run: close this process's copy."""
        self.is_alive = False
        self._connection.close()
