"""The claims that are open here: in this task or thread, and in this process.

A claim is open from its `with` until its end. One that is never ended – a generator that nobody
finishes, an `__enter__` without its `__exit__` – is leaked: its key stays taken for as long as
this process lives. `clear_current_claims()` at the end of a request or job makes sure of that.
"""

import os
from contextvars import ContextVar
from typing import Protocol


class OpenClaim(Protocol):
    """What is known here of a claim."""

    @property
    def name(self) -> str:
        """What events call its key."""
        ...

    def leak(self, cause: str) -> None:
        """Stop keeping it alive: its key is free when its lease runs out."""
        ...


_here: ContextVar[tuple[OpenClaim, ...]] = ContextVar("dibs_claims", default=())
_everywhere: set[int] = set()

if hasattr(os, "register_at_fork"):  # what is open is the parent's
    os.register_at_fork(after_in_child=_everywhere.clear)


def current_claims() -> tuple[OpenClaim, ...]:
    """The claims that this task or thread has open, the oldest first.

    With those of whoever started it: a task begins with what its creator had open.
    """
    return tuple([claim for claim in _here.get() if id(claim) in _everywhere])


def open_claims() -> int:
    """How many claims this process has open."""
    return len(_everywhere)


def clear_current_claims() -> int:
    """Give up the claims that this task or thread still has open; how many there were.

    Nothing is sent: they are not kept alive any more and run out, each with a `leaked` event.
    """
    claims = current_claims()
    _here.set(())
    for claim in claims:
        claim.leak("cleared")
    return len(claims)


def opened(claim: OpenClaim) -> None:
    """*claim* is open from now on."""
    _everywhere.add(id(claim))
    _here.set((*current_claims(), claim))


def closed(claim: OpenClaim) -> None:
    """*claim* is not open any more. It may be closed elsewhere than it was opened."""
    _everywhere.discard(id(claim))
    here = _here.get()
    if here and claim in here:
        _here.set(tuple([each for each in here if each is not claim]))
