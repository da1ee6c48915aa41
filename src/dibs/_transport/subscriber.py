"""The connection on which the server reports changes of keys to the threads link."""

import threading
from collections import deque
from time import monotonic
from typing import Any

import hiredis

from .._core.capabilities import NO_OP
from .._core.connection import Allowance
from .._core.request import Reply, Request
from .._core.watch import Tracked, read_tracked, tracked
from .faults import BELOW
from .thread_connection import Silent, ThreadConnection
from .watchers import Watchers

_PING_EVERY = 1.0
"""Seconds of silence after which the server is asked for a sign of life."""


class _Asked:
    """A request whose reply the reading thread will bring."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.replies: list[Reply] = []
        self.done = threading.Event()
        self.error: BaseException | None = None


class Subscriber:
    """One thread reads; any thread may ask. When its connection breaks, every watcher is woken.

    A connection that has gone silent is given up: whoever asks in vain ends it, and so does a
    ping without an answer. A new one takes its place at the next request.
    """

    def __init__(self, connection: ThreadConnection, watchers: Watchers, budget: float) -> None:
        self.is_alive = True
        self.pushes = connection.pushes
        self._is_tracking = False
        self._connection = connection
        self._watchers = watchers
        self._budget = budget
        self._asked: deque[_Asked] = deque()
        self._guard = threading.RLock()
        connection.look_every(_PING_EVERY)
        threading.Thread(target=self._run, name="dibs subscriber", daemon=True).start()

    def track(self, request: Request) -> Tracked:
        """The replies; a later change of its key is reported. Silent, EOFError: no replies."""
        with self._guard:
            first, self._is_tracking = not self._is_tracking, True
        replies = self._ask(tracked(request, first=first))
        return read_tracked(replies, request, pushes=self.pushes)

    def _ask(self, request: Request) -> list[Reply]:
        asked = self._write(request)
        allowance = Allowance(self._budget)
        since = monotonic()
        while not asked.done.wait(allowance.slice):
            elapsed, since = monotonic() - since, monotonic()
            if allowance.spend(elapsed):
                self.close()
                raise Silent
        if asked.error is not None:
            raise EOFError
        return asked.replies

    def _write(self, request: Request) -> _Asked:
        with self._guard:
            if not self.is_alive:
                raise EOFError
            asked = _Asked(request)
            self._asked.append(asked)
            self._connection.write(request)
            return asked

    def _run(self) -> None:
        try:
            while True:
                self._take(self._next())
        except (*BELOW, IndexError) as error:  # IndexError: a reply to nothing
            self._end(error)

    def _next(self) -> Any:
        """The next reply or push. Silent: not even a ping was answered."""
        try:
            return self._connection.read_any()
        except Silent:
            if not self._asked:
                self._write(NO_OP)
            return self._connection.read_any()

    def _take(self, reply: Any) -> None:
        if type(reply) is hiredis.PushNotification:
            self._watchers.pushed(reply)
            return
        asked = self._asked[0]
        asked.replies.append(reply)
        if len(asked.replies) == asked.request.replies:
            self._asked.popleft()
            asked.done.set()

    def _end(self, error: BaseException) -> None:
        with self._guard:
            self.is_alive = False
            asked, self._asked = list(self._asked), deque()
        for each in asked:
            each.error = error
            each.done.set()
        self._watchers.wake_all()
        self._connection.close()

    def close(self) -> None:
        """End the thread; a new subscriber is needed."""
        self.is_alive = False
        self._connection.hang_up()

    def abandon(self) -> None:
        """In a forked child: the thread does not run here; close our copy of the socket."""
        self.is_alive = False
        self._connection.close()
