"""The connection on which the server tells the threads link what changed."""

import threading
from collections import deque
from time import monotonic
from typing import Any

import hiredis

from .._core.request import Reply, Request
from .._core.watch import Tracked, read_tracked, tracked
from .faults import BELOW
from .watchers import Watchers
from .wire import Wire


class _Asked:
    """A request whose reply the listening thread will bring."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.replies: list[Reply] = []
        self.done = threading.Event()
        self.error: BaseException | None = None


class Listener:
    """One thread reads; any thread may ask. When its connection breaks, every watcher is woken."""

    def __init__(self, wire: Wire, watchers: Watchers) -> None:
        self.is_alive = True
        self.pushes = wire.pushes
        self._is_tracking = False
        self._wire = wire
        self._watchers = watchers
        self._asked: deque[_Asked] = deque()
        self._guard = threading.Lock()
        wire.set_patience(None)
        threading.Thread(target=self._listen, name="dibs listener", daemon=True).start()

    def track(self, request: Request, deadline: float) -> Tracked:
        """The replies; a later change of its key is told. TimeoutError, EOFError: no replies."""
        replies = self._ask(request, deadline)
        return read_tracked(replies, request, pushes=self.pushes)

    def _ask(self, request: Request, deadline: float) -> list[Reply]:
        with self._guard:
            if not self.is_alive:
                raise EOFError
            asked = _Asked(tracked(request, first=not self._is_tracking))
            self._is_tracking = True
            self._asked.append(asked)
            self._wire.write(asked.request)
        if not asked.done.wait(max(deadline - monotonic(), 0.001)):
            raise TimeoutError
        if asked.error is not None:
            raise EOFError
        return asked.replies

    def _listen(self) -> None:
        try:
            while True:
                self._take(self._wire.read_any())
        except (*BELOW, IndexError) as error:  # IndexError: a reply to nothing
            self._end(error)

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
        self._wire.close()

    def close(self) -> None:
        """End the thread."""
        self._wire.hang_up()

    def abandon(self) -> None:
        """In a forked child: the thread does not run here; close our copy of the socket."""
        self.is_alive = False
        self._wire.close()
