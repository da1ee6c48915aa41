"""Who wants to know when a key changes."""

import threading
from collections.abc import Callable

from .._core.request import Reply
from .._core.watch import read_push

Wake = Callable[[], None]


class Watchers:
    """Key → those to wake. Waking costs nothing that waits, so it may happen on any thread."""

    def __init__(self) -> None:
        self._wakes: dict[bytes, set[Wake]] = {}
        self._guard = threading.RLock()  # a signal handler may use dibs, too

    def __bool__(self) -> bool:
        return bool(self._wakes)

    def add(self, key: bytes, wake: Wake) -> None:
        """*wake* is called at the next change of *key*, or when a change may have been missed."""
        with self._guard:
            self._wakes.setdefault(key, set()).add(wake)

    def discard(self, key: bytes, wake: Wake) -> None:
        """*wake* is not called any more."""
        with self._guard:
            wakes = self._wakes.get(key)
            if wakes is not None:
                wakes.discard(wake)
                if not wakes:
                    del self._wakes[key]

    def pushed(self, push: list[Reply]) -> None:
        """The server said what changed."""
        keys = read_push(push)
        with self._guard:
            known = list(self._wakes) if keys is None else keys
            wakes = [wake for key in known for wake in self._wakes.get(key, ())]
        for wake in wakes:
            wake()

    def wake_all(self) -> None:
        """A change may have been missed: everybody looks for themselves."""
        with self._guard:
            everybody = [wake for wakes in self._wakes.values() for wake in wakes]
        for wake in everybody:
            wake()
