"""Faults of LINE's API, on demand: the next calls of a route are refused, or answered late."""

import asyncio
from dataclasses import dataclass

from .refusals import Refusal

_WORDS = {
    429: "The API rate limit has been exceeded. Try again later.",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


@dataclass
class Fault:
    """What happens to the next calls of one route."""

    status: int | None
    delay: float
    times: int


class Faults:
    """What goes wrong next."""

    def __init__(self) -> None:
        self._next: dict[str, list[Fault]] = {}
        self._over = asyncio.Event()

    def add(self, route: str, fault: Fault) -> None:
        """It happens when the ones before it have happened."""
        self._next.setdefault(route, []).append(fault)

    def take(self, route: str) -> Fault | None:
        """What happens to this call; one less is to come."""
        waiting = self._next.get(route)
        if not waiting:
            return None
        waiting[0].times -= 1
        return waiting[0] if waiting[0].times else waiting.pop(0)

    async def delay(self, fault: Fault) -> None:
        """The answer, which stands already, comes late; but no later than the end."""
        try:
            await asyncio.wait_for(self._over.wait(), fault.delay)
        except TimeoutError:
            pass

    def end(self) -> None:
        """End all delays."""
        self._over.set()


def refuse(fault: Fault | None) -> None:
    """Refusal, if there is to be one: nothing has been done then."""
    if fault is not None and fault.status is not None:
        words = _WORDS.get(fault.status, "The request was refused")
        raise Refusal(fault.status, words)
