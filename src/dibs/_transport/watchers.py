"""Callbacks for changes of keys."""

import threading
from collections.abc import Callable

from .._core.request import Reply, Request
from .._core.watch import read_push

Wake = Callable[[], None]


class Watchers:
    """Key → the callbacks to call when it changes. They do not block; any thread may call them."""

    def __init__(self) -> None:
        self._wakes: dict[bytes, dict[Wake, None]] = {}
        """In the order in which they came: who watches first is woken first."""
        self._guard = threading.RLock()  # re-entrant: a signal handler may use dibs, too

    def __bool__(self) -> bool:
        return bool(self._wakes)

    def add(self, key: bytes, wake: Wake) -> None:
        """Call *wake* when *key* changes, or when a change may have been missed."""
        with self._guard:
            self._wakes.setdefault(key, {})[wake] = None

    def add_all(self, asked: list[tuple[Request, Wake]]) -> list[Request]:
        """Call each *wake* when the key of its request changes. Returns the requests."""
        for request, wake in asked:
            self.add(request.key, wake)
        return [request for request, _ in asked]

    def discard(self, key: bytes, wake: Wake) -> None:
        """Do not call *wake* any more."""
        with self._guard:
            wakes = self._wakes.get(key)
            if wakes is not None:
                wakes.pop(wake, None)
                if not wakes:
                    del self._wakes[key]

    def pushed(self, push: list[Reply]) -> None:
        """Wake those who watch a key that this push of the server names."""
        keys = read_push(push)
        with self._guard:
            known = list(self._wakes) if keys is None else keys
            wakes = [wake for key in known for wake in self._wakes.get(key, ())]
        for wake in wakes:
            wake()

    def changed(self, key: bytes) -> None:
        """Wake those who watch *key*: this process changed it."""
        self.pushed([b"invalidate", [key]])

    def wake_all(self) -> None:
        """Wake all: a change may have been missed."""
        with self._guard:
            everybody = [wake for wakes in self._wakes.values() for wake in wakes]
        for wake in everybody:
            wake()
