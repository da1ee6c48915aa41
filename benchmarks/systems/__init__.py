"""The systems measured, one file each, every one behind the same few verbs.

A file has a class ``Threads``, a class ``Tasks``, or both. ``callers`` is how many will share the
client, for a client that must know the size of its pool.

====================================  ====================================================
``Threads(port, callers)``            a client for threads; ``close()``
``await Tasks.open(port, callers)``   a client for asyncio; ``await aclose()``
``pair_on(key)``                      a step that acquires and releases ``key`` once, or raises
``take(key, wait)``                   acquire, patient for ``wait`` seconds: a step that
                                      releases, or None (awaited for ``Tasks``)
``refused(key)``                      whether a held key is refused at once (likewise)
``served(key)``                       one pair under the outage policy of the system: whether
                                      the server truly served it (likewise)
====================================  ====================================================

``pair_on`` is called in the thread that will use it. Systems without ``take`` cannot wait: the
floor and valkey-glide have commands, but no lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

TTL = 5
"""Seconds every key is taken for. Nothing lives that long; the key only has to have an end."""

THREADS, TASKS = "threads", "asyncio"


@dataclass(frozen=True)
class System:
    """One row: what it is called, which world it lives in, where it is, what must be installed."""

    name: str
    world: str
    module: str
    needs: str
    package: str

    @property
    def label(self) -> str:
        return f"{self.world} {self.name}"

    def absence(self) -> str | None:
        """Why it cannot be measured here, or None."""
        if find_spec(self.needs) is None:
            return f"{self.name} ({self.world}): {self.package} is not installed"
        return None

    def opener(self) -> Any:
        """Its ``Threads`` or ``Tasks`` class; imports the system, so only a worker may ask."""
        module = import_module(f"{__name__}.{self.module}")
        return getattr(module, "Threads" if self.world == THREADS else "Tasks")


FLOOR, LOCK, PRL, GLIDE, DIBS = (
    "raw floor",
    "redis-py Lock",
    "python-redis-lock",
    "valkey-glide",
    "dibs",
)

LEASES = (
    System(FLOOR, THREADS, "floor", "hiredis", "hiredis"),
    System(LOCK, THREADS, "redis_py", "redis", "redis"),
    System(PRL, THREADS, "python_redis_lock", "redis_lock", "python-redis-lock"),
    System(GLIDE, THREADS, "glide_threads", "glide_sync", "valkey-glide-sync"),
    System(DIBS, THREADS, "ours", "dibs", "dibs"),
    System(FLOOR, TASKS, "floor", "hiredis", "hiredis"),
    System(LOCK, TASKS, "redis_py", "redis", "redis"),
    System(GLIDE, TASKS, "glide_tasks", "glide", "valkey-glide"),
    System(DIBS, TASKS, "ours", "dibs", "dibs"),
)
"""Who can take a lease, in the order of the tables."""

WAITERS = tuple(system for system in LEASES if system.name in (LOCK, PRL, DIBS))
"""Who can wait for one."""


def find(name: str, world: str) -> System:
    """The system of that name in that world."""
    return next(system for system in LEASES if (system.name, system.world) == (name, world))
