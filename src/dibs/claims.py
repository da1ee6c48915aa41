"""The claims that are open here: in this task or thread, and in this process.

A claim is open from its `with` until its end. One that is never ended, because its `__enter__`
has no `__exit__`, is renewed for as long as anything refers to it, and leaked after that.
`clear_current_claims()` at the end of a request or job makes sure that nothing is left open.
"""

import asyncio
import os
import threading
import weakref
from contextvars import ContextVar
from typing import NamedTuple, Protocol


class OpenClaim(Protocol):
    """What is known here of a claim."""

    @property
    def name(self) -> str:
        """Return what events call its key."""
        ...

    def leak(self, cause: str) -> None:
        """Stop renewing it, because of *cause* (a code): the key is free when it expires."""
        ...


class _Opened(NamedTuple):
    claim: "weakref.ref[OpenClaim]"
    """Weak: connections and timers that are made inside a claim keep its context for ever."""
    by: int
    """Which task or thread."""


_here: ContextVar[tuple[_Opened, ...]] = ContextVar("dibs_claims", default=())
_everywhere: set[int] = set()

if hasattr(os, "register_at_fork"):  # what is open is the parent's
    os.register_at_fork(after_in_child=_everywhere.clear)


def current_claims() -> tuple[OpenClaim, ...]:
    """Return the claims that this task or thread has open, the oldest first.

    They include those of its creator: a task begins with what its creator had open.
    """
    return tuple([claim for claim, _ in _open_here()])


def open_claims() -> int:
    """Return how many claims this process has open."""
    return len(_everywhere)


def clear_current_claims() -> int:
    """Give up the claims that this task or thread opened and did not end.

    Nothing is sent: they are no longer renewed and expire, each with a `leaked` event. Those of its
    creator are left alone: they may still be in use.

    Returns:
        How many there were.
    """
    me = _current_owner()
    mine = [claim for claim, by in _open_here() if by == me]
    for claim in mine:
        claim.leak("cleared")
    return len(mine)


def opened(claim: OpenClaim) -> None:
    """*claim* is open from now on."""
    _everywhere.add(id(claim))
    mine = _Opened(weakref.ref(claim), _current_owner())
    before = _here.get()
    _here.set((*filter(_is_open, before), mine) if before else (mine,))


def closed(claim: OpenClaim) -> None:
    """*claim* is no longer open. It may be closed elsewhere than it was opened."""
    _everywhere.discard(id(claim))  # from the context it goes when the next one is opened


def _open_here() -> list[tuple[OpenClaim, int]]:
    claims = [(each.claim(), each.by) for each in _here.get()]
    return [(claim, by) for claim, by in claims if claim is not None and id(claim) in _everywhere]


def _is_open(opened: _Opened) -> bool:
    claim = opened.claim()
    return claim is not None and id(claim) in _everywhere


def _current_owner() -> int:
    """Return this task, or else this thread."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return threading.get_ident() if task is None else id(task)
