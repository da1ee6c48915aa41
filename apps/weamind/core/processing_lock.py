"""The processing lock with the functions of the seeds, for threads; `turns.py` has it for tasks."""

import threading
from contextlib import suppress
from contextvars import ContextVar

from dibs import Dibs

from .config import read_store_settings
from .lock_log import Held, LockLog, key_of, type_of
from .metrics import Metrics, metrics

NAME = "processing:user:{userId}"
_asker: ContextVar[tuple[str, str]] = ContextVar("asker", default=("", ""))
_latest: ContextVar[Held | None] = ContextVar("latest", default=None)
_refused: ContextVar[str] = ContextVar("refused", default="")


class ProcessingLockService:
    """The lock for threads. Any thread may release what another one acquired."""

    def __init__(
        self, target: object = None, *, at_least: float = 0.0, counted_in: Metrics = metrics
    ) -> None:
        """*target*: as for Dibs; None: `REDIS_URL`, read at the first use (SettingsError)."""
        self._target, self._at_least, self._metrics = target, at_least, counted_in
        self._log = LockLog(counted_in)
        self._dibs: Dibs | None = None
        self._guard = threading.Lock()
        self._held: list[Held] = []

    def try_acquire_lock(self, key: str, timeout_seconds: float) -> bool:
        """True: it is yours for *timeout_seconds*, or the store is out. False: it is taken."""
        with self._guard:
            dibs = self._dibs = self._dibs or Dibs(self._target or read_store_settings().redis_url)
        stays = min(self._at_least, timeout_seconds)
        lease = dibs.try_hold(key, ttl=timeout_seconds, at_least=stays, name=NAME)
        asked, kind = _asker.get()
        held = self._log.attempt(key, lease, kind if asked == key else "unknown")
        _refused.set("" if held else key)
        if held is not None:
            _latest.set(held)
            with self._guard:
                self._held = [each for each in self._held if each.may_be_released()] + [held]
        return held is not None

    def release_lock(self, key: str) -> None:
        """Release what this caller has, else, unless it was refused, the oldest. Never raises."""
        with self._guard:
            mine, line = _latest.get(), [each for each in self._held if each.key == key]
            if mine not in line:
                mine = line[0] if line and _refused.get() != key else None
            self._held = [each for each in self._held if each is not mine]
        released: object = False
        if mine is not None:
            with suppress(Exception):  # its time runs out by itself
                released = mine.lease.release()
        self._log.end(mine, released=released)

    def build_actor_key(self, source: object) -> str | None:
        """`processing:user:{userId}`; None, and a warning without names: there is no user id."""
        key = key_of(source)
        _asker.set((key or "", type_of(source)))
        return key

    def close(self) -> None:
        """Close the connections; the next use opens new ones."""
        with self._guard:
            dibs, self._dibs = self._dibs, None
        if dibs is not None:
            dibs.close()


processing_lock_service = ProcessingLockService()
