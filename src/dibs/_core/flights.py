"""Flights that wait for one another, and whether that can ever end."""

from typing import Protocol

from ..errors import UsageError


class Waiting(Protocol):
    """A piece of work that may wait for another one."""

    @property
    def awaits(self) -> "Waiting | None":
        """The one that it waits for."""
        ...


def refuse_cycle(flight: Waiting) -> None:
    """UsageError: what *flight* waits for waits, in the end, for *flight* itself.

    With threads two flights may begin to wait for each other at the same time. Each says whom it
    waits for before it looks, so at least one of them sees the other.
    """
    seen: list[Waiting] = [flight]
    at = flight.awaits
    while at is not None and at is not flight:
        if any(at is each for each in seen):
            return  # others go round in a circle, and have got the error
        seen.append(at)
        at = at.awaits
    if at is flight:
        raise UsageError("the load of this value requests the value itself: a deadlock")
