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
``cached(load)``                      a function that takes a name and returns its value, kept in
                                      the store; ``load(name)`` where it is not (likewise)
``many(load)``                        the same for a list of names, which returns a dict;
                                      ``load(names)`` gets those that are missing (likewise)
``app``                               an ASGI application with the guard around it
``run``                               runs a coroutine in the event loop that it is for, if that
                                      is not asyncio's own; of the class
====================================  ====================================================

``pair_on`` is called in the thread that will use it. Systems without ``take`` cannot wait: the
floor and valkey-glide have commands, but no lock. Caches have ``cached`` and nothing else,
guards ``app``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any

TTL = 5
"""Seconds every key is taken for. Nothing lives that long; the key only has to have an end."""

KEPT = 600
"""Seconds every cached value is kept: longer than any run."""

LOCK_TTL = 3
"""Seconds for which a loader may exclude the others, unless it renews its lock."""

THREADS, TASKS = "threads", "asyncio"


@dataclass(frozen=True)
class System:
    """One row: its name, threads or asyncio, its module, what must be installed."""

    name: str
    mode: str
    module: str
    needs: str
    package: str
    variant: str = ""
    """Which of a file's classes, where there are several: ``Local`` for ``LocalTasks``."""
    source: str = ""
    """Where another version of dibs is, for the same row of an earlier version."""

    @property
    def label(self) -> str:
        return f"{self.mode} {self.name}"

    def absence(self) -> str | None:
        """Why it cannot be measured here, or None."""
        if not _is_installed(self.needs):
            return f"{self.name} ({self.mode}): {self.package} is not installed"
        return None

    def opener(self) -> Any:
        """Its ``Threads`` or ``Tasks`` class; imports the system, so only a worker may ask."""
        module = import_module(f"{__name__}.{self.module}")
        return getattr(module, self.variant + ("Threads" if self.mode == THREADS else "Tasks"))


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package around it is missing
        return False


BEFORE = os.environ.get("DIBS_BEFORE", "")
"""``<folder>/src`` of another version of dibs, measured beside this one in the same run."""


def with_before(*systems: System) -> tuple[System, ...]:
    """Each system; behind each of ours the same of the version in ``DIBS_BEFORE``, if given."""
    both = [
        (each, replace(each, name=f"{each.name} (before)", source=BEFORE))
        if BEFORE and each.name.startswith("dibs")
        else (each,)
        for each in systems
    ]
    return tuple(each for pair in both for each in pair)


FLOOR, LOCK, PRL, GLIDE, DIBS, UVLOOP, RENEWED = (
    "raw floor",
    "redis-py Lock",
    "python-redis-lock",
    "valkey-glide",
    "dibs",
    "dibs, uvloop",
    "dibs, renew=True",
)

LEASES = with_before(
    System(FLOOR, THREADS, "floor", "hiredis", "hiredis"),
    System(LOCK, THREADS, "redis_py", "redis", "redis"),
    System(PRL, THREADS, "python_redis_lock", "redis_lock", "python-redis-lock"),
    System(GLIDE, THREADS, "glide_threads", "glide_sync", "valkey-glide-sync"),
    System(DIBS, THREADS, "ours", "dibs", "dibs"),
    System(FLOOR, TASKS, "floor", "hiredis", "hiredis"),
    System(LOCK, TASKS, "redis_py", "redis", "redis"),
    System(GLIDE, TASKS, "glide_tasks", "glide", "valkey-glide"),
    System(DIBS, TASKS, "ours", "dibs", "dibs"),
    System(UVLOOP, TASKS, "ours", "uvloop", "uvloop", "Uvloop"),
    System(RENEWED, TASKS, "ours", "dibs", "dibs", "Renewed"),
)
"""Who can take a lease, in the order of the tables."""

LADDER = (
    System(FLOOR, TASKS, "floor", "hiredis", "hiredis"),
    System("+ tokens, packing", TASKS, "ladder", "hiredis", "hiredis", "Packed"),
    System("+ async with", TASKS, "ladder", "hiredis", "hiredis", "Block"),
    System("+ deadline, table, lease", TASKS, "ladder", "hiredis", "hiredis", "State"),
    System("+ keyword options", TASKS, "ladder", "hiredis", "hiredis", "Options"),
    System(DIBS, TASKS, "ours", "dibs", "dibs"),
)
"""From the floor to dibs, one step more in each row."""

LIMITED = "dibs limit=3"

LIMITS = (
    System(DIBS, THREADS, "ours", "dibs", "dibs"),
    System(LIMITED, THREADS, "ours", "dibs", "dibs", "Limited"),
    System(DIBS, TASKS, "ours", "dibs", "dibs"),
    System(LIMITED, TASKS, "ours", "dibs", "dibs", "Limited"),
)
"""A lease that one may hold, and one that three may."""

LISTENING = with_before(
    System("dibs, no listener", TASKS, "ours", "dibs", "dibs"),
    System("a function", TASKS, "ours_listeners", "dibs", "dibs", "Nothing"),
    System(
        "prometheus",
        TASKS,
        "ours_listeners",
        "prometheus_client",
        "prometheus-client",
        "Prometheus",
    ),
    System("the console's figures", TASKS, "ours_listeners", "dibs", "dibs", "Console"),
    System("logging, INFO", TASKS, "ours_listeners", "dibs", "dibs", "Logging"),
    System("logging, DEBUG", TASKS, "ours_listeners", "dibs", "dibs", "AllLogging"),
    System("structlog, INFO", TASKS, "ours_listeners", "structlog", "structlog", "Structlog"),
    System("structlog, DEBUG", TASKS, "ours_listeners", "structlog", "structlog", "AllStructlog"),
    System("sentry", TASKS, "ours_listeners", "sentry_sdk", "sentry-sdk", "Sentry"),
    System(
        "opentelemetry, no SDK",
        TASKS,
        "ours_listeners",
        "opentelemetry",
        "opentelemetry-sdk",
        "OpenTelemetry",
    ),
    System(
        "opentelemetry, not sampled",
        TASKS,
        "ours_listeners",
        "opentelemetry",
        "opentelemetry-sdk",
        "Unsampled",
    ),
    System(
        "a bare span, not sampled",
        TASKS,
        "ours_listeners",
        "opentelemetry",
        "opentelemetry-sdk",
        "BareUnsampled",
    ),
    System(
        "opentelemetry, sampled",
        TASKS,
        "ours_listeners",
        "opentelemetry",
        "opentelemetry-sdk",
        "Sampled",
    ),
    System(
        "a bare span, sampled",
        TASKS,
        "ours_listeners",
        "opentelemetry",
        "opentelemetry-sdk",
        "BareSpan",
    ),
    System(
        "opentelemetry, metrics",
        TASKS,
        "ours_listeners",
        "opentelemetry",
        "opentelemetry-sdk",
        "Metrics",
    ),
)
"""dibs with one listener each; behind OpenTelemetry's, what its SDK costs without us."""

WAITERS = tuple(each for each in LEASES if each.name in (LOCK, PRL, DIBS, f"{DIBS} (before)"))
"""Who can wait for one."""


GET, DOGPILE, CASHEWS, CASHEWS_LOCK, CASHEWS_LOCAL, AIOCACHE, SEED, CACHED, CACHED_LOCAL = (
    "redis-py GET + json.loads",
    "dogpile.cache",
    "cashews",
    "cashews lock=True",
    "cashews client_side=True",
    "aiocache cached_stampede",
    "the seed's algorithm",
    "dibs cached",
    "dibs cached, local=True",
)

HITS = with_before(
    System(GET, THREADS, "redis_get", "redis", "redis"),
    System(DOGPILE, THREADS, "dogpile_cache", "dogpile.cache", "dogpile.cache"),
    System(CACHED, THREADS, "ours_cached", "dibs", "dibs"),
    System(CACHED_LOCAL, THREADS, "ours_cached", "dibs", "dibs", "Local"),
    System(GET, TASKS, "redis_get", "redis", "redis"),
    System(CASHEWS, TASKS, "cashews_cache", "cashews", "cashews[redis]"),
    System(CASHEWS_LOCK, TASKS, "cashews_cache", "cashews", "cashews[redis]", "Lock"),
    System(CACHED, TASKS, "ours_cached", "dibs", "dibs"),
    System(CASHEWS_LOCAL, TASKS, "cashews_cache", "cashews", "cashews[redis]", "Local"),
    System(CACHED_LOCAL, TASKS, "ours_cached", "dibs", "dibs", "Local"),
)
"""Who can read a cached value, in the order of the tables."""

CACHED_MANY, ONE_BY_ONE, CASHEWS_MANY, DOGPILE_MANY = (
    "dibs cached_many",
    "dibs cached, 100 calls at once",
    "cashews get_many, set_many",
    "dogpile.cache get_or_create_multi",
)

MANY = (
    System(DOGPILE_MANY, THREADS, "dogpile_cache", "dogpile.cache", "dogpile.cache"),
    System(CACHED_MANY, THREADS, "ours_cached", "dibs", "dibs"),
    System(CASHEWS_MANY, TASKS, "cashews_cache", "cashews", "cashews[redis]"),
    System(ONE_BY_ONE, TASKS, "ours_cached", "dibs", "dibs", "OneByOne"),
    System(CACHED_MANY, TASKS, "ours_cached", "dibs", "dibs"),
)
"""Who can read many cached values at once, and load what is missing."""

STAMPEDE = (
    System(SEED, TASKS, "seed_menu", "redis", "redis"),
    System(AIOCACHE, TASKS, "aiocache_stampede", "aiocache", "aiocache[redis]"),
    System(CASHEWS, TASKS, "cashews_cache", "cashews", "cashews[redis]"),
    System(CASHEWS_LOCK, TASKS, "cashews_cache", "cashews", "cashews[redis]", "Lock"),
    System(CACHED, TASKS, "ours_cached", "dibs", "dibs"),
)
"""Who says something about many that miss at once."""


BARE, HEADER, IDEMKIT, REPLAY, RELEASE = (
    "no guard",
    "asgi-idempotency-header",
    "idemkit",
    "dibs, replay",
    "dibs, release",
)

GUARDS = with_before(
    System(BARE, TASKS, "guarded", "dibs", "dibs"),
    System(
        HEADER,
        TASKS,
        "guarded",
        "idempotency_header_middleware",
        "asgi-idempotency-header",
        "Header",
    ),
    System(IDEMKIT, TASKS, "guarded", "idemkit", "idemkit", "Idemkit"),
    System(REPLAY, TASKS, "guarded", "dibs", "dibs", "Replay"),
    System(RELEASE, TASKS, "guarded", "dibs", "dibs", "Release"),
)
"""Who can stand before an endpoint; the last one does not keep answers."""


def find(name: str, mode: str) -> System:
    """The system of that name for threads or for asyncio."""
    known = (*LEASES, *LADDER, *LIMITS, *LISTENING, *HITS, *MANY, *STAMPEDE, *GUARDS)
    return next(system for system in known if (system.name, system.mode) == (name, mode))
