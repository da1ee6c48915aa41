"""After a fork, the child opens its own connections and leaves its parent's alone.

Only the thread that forks continues in the child. A lock that another thread holds at that moment
stays locked there for ever. So each lock of dibs is recreated in the child, or no other thread
holds it during the fork.
"""

import codecs
import contextlib
import os
import threading
import weakref
from typing import Protocol

from ._locks import Guard

# Name resolution imports this codec at its first use, on a thread that opens a connection. A module
# is locked while it is imported: a child that is forked at that moment could resolve no name.
codecs.lookup("idna")


class Reopened(Protocol):
    """Something that holds connections, leases or a lock."""

    def open(self) -> None:
        """Start afresh. What was held before belongs to the parent, and is not touched."""
        ...


_all: "weakref.WeakSet[Reopened]" = weakref.WeakSet()


def reopen_after_fork(*parts: Reopened) -> None:
    """Have `open()` called on each of *parts* in every forked child."""
    _all.update(parts)


def _after_fork() -> None:
    for part in list(_all):
        part.open()


class RenewedLock:
    """A lock that is free in a forked child, even if the parent holds it. Not re-entrant."""

    def __init__(self) -> None:
        self.open()
        reopen_after_fork(self)

    def open(self) -> None:
        """Create the lock: at construction, and in a forked child."""
        self.lock = threading.Lock()
        """Taken by `try_lock`, and released, in one function."""


_locks: set["weakref.ref[Guard]"] = set()
_taken: list[Guard] = []
"""What the thread that forks has taken."""


def fork_safe_lock() -> Guard:
    """Return a lock that a fork waits for: in the child it is free.

    For short calls, also of other libraries, whose locks cannot be recreated: while no thread
    has this lock, none is inside them on our behalf. Re-entrant, because a signal handler may
    interrupt the thread that has it.
    """
    lock = Guard()
    _locks.add(weakref.ref(lock, _locks.discard))
    return lock


def _take_locks() -> None:
    candidates = [reference() for reference in list(_locks)]
    # In one order: two threads may fork at the same time.
    locks = sorted([lock for lock in candidates if lock is not None], key=id)
    for lock in locks:
        # A `for`, because Python does not look for signals between its steps; see `_locks.py`.
        for _ in iter(lock.acquire, None):
            _taken.append(lock)
            break


def _give_locks_back() -> None:
    with contextlib.suppress(IndexError):
        for lock in iter(_taken.pop, None):
            lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_take_locks, after_in_parent=_give_locks_back, after_in_child=_give_locks_back
    )
    os.register_at_fork(after_in_child=_after_fork)
