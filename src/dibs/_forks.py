"""What a forked child inherits and must not use: its parent's connections and leases."""

import os
import weakref
from typing import Protocol


class Inheritable(Protocol):
    """Something that holds connections or leases."""

    def abandon(self) -> None:
        """In a forked child: forget all that is the parent's."""
        ...


_all: "weakref.WeakSet[Inheritable]" = weakref.WeakSet()


def remember(thing: Inheritable) -> None:
    """*thing* is told when it wakes up in a forked child."""
    _all.add(thing)


def _after_fork() -> None:
    for thing in list(_all):
        thing.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
