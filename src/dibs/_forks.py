"""After a fork, the child opens its own connections and leaves its parent's alone."""

import os
import weakref
from typing import Protocol


class Reopened(Protocol):
    """Something that holds connections or leases."""

    def open(self) -> None:
        """Begin anew. What was held before belongs to the parent, and is not touched."""
        ...


_all: "weakref.WeakSet[Reopened]" = weakref.WeakSet()


def reopen_after_fork(*parts: Reopened) -> None:
    """Have `open()` called on each of *parts* in every forked child."""
    _all.update(parts)


def _after_fork() -> None:
    for part in list(_all):
        part.open()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
