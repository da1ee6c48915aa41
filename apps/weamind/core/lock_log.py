"""What is counted and logged about the processing lock: no line and no label has an id."""

import logging
import secrets
import time
from dataclasses import dataclass

from dibs import AsyncLease, Lease
from dibs.integrations.linebot import actor_key

from .metrics import Metrics

_FORGOTTEN_AFTER = 120.0
"""Seconds after its acquire from which no caller releases a lock that has run out."""
_log = logging.getLogger("apps.weamind.core.processing_lock")


def key_of(source: object) -> str | None:
    """`processing:user:{userId}`; None, and a warning without names: there is no user id."""
    key = actor_key(source)
    if key is None:
        _log.warning("processing lock: the event has no user id; it runs without")
    return key


def type_of(source: object) -> str:
    """The type of *source*, as a label."""
    kind = getattr(source, "type", None)
    return kind if kind in ("user", "group", "room") else "unknown"


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """A lock that was acquired; its mark joins the lines of the log about it."""

    key: str
    lease: Lease | AsyncLease
    since: float
    mark: str

    def may_be_released(self) -> bool:
        """Whether its holder may yet come to release it."""
        return not self.lease.lost or time.monotonic() - self.since < _FORGOTTEN_AFTER


class LockLog:
    """Counts and logs attempts and releases, and says when Redis is lost and when it is back."""

    def __init__(self, counted_in: Metrics) -> None:
        self._counted = counted_in
        self._is_reached: bool | None = None

    def reached(self, *, is_reached: bool) -> None:
        """Log a line when Redis is reached for the first time, is lost, or is back."""
        before, self._is_reached = self._is_reached, is_reached
        if is_reached and not before:
            _log.info("connected to Redis")
        elif not is_reached and before is not False:
            _log.warning("Redis is unavailable: everybody is let through, without the lock")

    def attempt(self, key: str, lease: Lease | AsyncLease | None, source_type: str) -> Held | None:
        """An attempt has got *lease*, or met a lock."""
        self.reached(is_reached=lease is None or lease.guarded)
        status = "busy" if lease is None else "acquired" if lease.guarded else "unguarded"
        self._counted.lock_acquire.labels(status, source_type).inc()
        mark = secrets.token_hex(4)
        _log.debug("processing lock %s: %s", mark, "missed" if lease is None else "acquired")
        if lease is None:
            self._counted.lock_miss.inc()
            return None
        return Held(key, lease, time.monotonic(), mark)

    def end(self, held: Held | None, *, released: object) -> None:
        """*held* was released, or its time had run out."""
        if held is None:
            _log.debug("processing lock: nothing to release")
            return
        self._counted.lock_held.observe(time.monotonic() - held.since)
        if released:
            self._counted.lock_release.inc()
        elif held.lease.guarded:
            self._counted.lock_release_late.inc()
        word = "released" if released else "expired before its release"
        _log.debug("processing lock %s: %s", held.mark, word)
