"""python-redis-lock: ``SET NX`` and a ``BLPOP`` that the release wakes. Threads only.

Its times are whole seconds, and it refuses a wait longer than the expiry (``TimeoutTooLarge``), so
the expiry is stretched to the wait.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import redis
import redis_lock

from . import TTL
from .redis_py import SPARE_CONNECTIONS


class Threads:
    def __init__(self, port: int, callers: int) -> None:
        self.client = redis.Redis(port=port, max_connections=callers + SPARE_CONNECTIONS)

    def pair_on(self, key: str) -> Callable[[], None]:
        def pair() -> None:
            lock = redis_lock.Lock(self.client, key, expire=TTL)
            if not lock.acquire(blocking=False):
                raise AssertionError(f"{key} was not free")
            lock.release()

        return pair

    def take(self, key: str, wait: float) -> Callable[[], object] | None:
        whole = math.ceil(wait)
        lock = redis_lock.Lock(self.client, key, expire=max(TTL, whole))
        taken = lock.acquire(timeout=whole) if whole else lock.acquire(blocking=False)
        return lock.release if taken else None

    def close(self) -> None:
        self.client.close()
