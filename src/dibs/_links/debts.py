"""What must still be delivered to a server that is out."""

import threading
from collections import deque
from time import monotonic

from .._core.breaker import MOST_DEBTS
from .._core.request import Request


class Debts:
    """Requests that nobody waits for any more, but that must not be lost: releases, as a rule."""

    def __init__(self) -> None:
        self._owed: deque[Request] = deque(maxlen=MOST_DEBTS)
        self._guard = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._owed)

    def owe(self, request: Request) -> None:
        """Write it down, if it must be delivered. The oldest goes, if there are many."""
        if request.until > monotonic():
            with self._guard:
                self._owed.append(request)

    def take(self) -> list[Request]:
        """All that is still worth delivering; whoever takes it delivers it, or gives it back."""
        with self._guard:
            owed, self._owed = self._owed, deque[Request](maxlen=MOST_DEBTS)
        now = monotonic()
        return [request for request in owed if request.until > now]

    def give_back(self, requests: list[Request]) -> None:
        """They could not be delivered after all."""
        with self._guard:
            self._owed.extendleft(reversed(requests))
