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
    """The faults to come, by route."""

    def __init__(self) -> None:
        self._next: dict[str, list[Fault]] = {}
        self._over = asyncio.Event()

    def add(self, route: str, fault: Fault) -> None:
        """Add a fault, which follows the earlier ones of its route."""
        self._next.setdefault(route, []).append(fault)

    def take(self, route: str) -> Fault | None:
        """The fault of this call, if any; it is counted down."""
        waiting = self._next.get(route)
        if not waiting:
            return None
        waiting[0].times -= 1
        return waiting[0] if waiting[0].times else waiting.pop(0)

    async def delay(self, fault: Fault) -> None:
        """Delay an answer, but not beyond the end of the platform."""
        try:
            await asyncio.wait_for(self._over.wait(), fault.delay)
        except TimeoutError:
            pass

    def end(self) -> None:
        """End all delays."""
        self._over.set()


def refuse(fault: Fault | None) -> None:
    """Raise the refusal of this fault, if it has one, before anything is done."""
    if fault is not None and fault.status is not None:
        words = _WORDS.get(fault.status, "The request was refused")
        raise Refusal(fault.status, words)
