"""Who wants to know when a key changes."""

from collections.abc import Callable

from .._core.request import Reply
from .._core.watch import read_push

Wake = Callable[[], None]


class Watchers:
    """Key → those to wake. Waking costs nothing that waits, so it may happen on any thread."""

    def __init__(self) -> None:
        self._wakes: dict[bytes, set[Wake]] = {}

    def add(self, key: bytes, wake: Wake) -> None:
        """*wake* is called at the next change of *key*, or when a change may have been missed."""
        self._wakes.setdefault(key, set()).add(wake)

    def discard(self, key: bytes, wake: Wake) -> None:
        """*wake* is not called any more."""
        wakes = self._wakes.get(key)
        if wakes is not None:
            wakes.discard(wake)
            if not wakes:
                self._wakes.pop(key, None)

    def pushed(self, push: list[Reply]) -> None:
        """The server said what changed."""
        keys = read_push(push)
        for key in list(self._wakes) if keys is None else keys:
            for wake in list(self._wakes.get(key, ())):
                wake()

    def wake_all(self) -> None:
        """A change may have been missed: everybody looks for themselves."""
        for wakes in list(self._wakes.values()):
            for wake in list(wakes):
                wake()
