# Generated from src/dibs/_async/follower.py by unasync.py – do not edit.
"""Waiting for a load in another process: until it is over, or it is time to look or to give up."""

from .._core.breaker import Outage
from .._core.cache import CacheKeys, LoadRequest, Reading, follow_request, read_follow
from .._core.watch import Tracked, Watching, read_watch, watch_request
from .._threads import Signal, monotonic
from .store import Store

_LOOK_AGAIN = 5.0
"""A push can be lost: how long to trust that none has come, in seconds."""
_JUST_AFTER = 0.002
"""An expiry is not announced; look this much after it."""


class Follower:
    """Follows the loads of other processes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def follow(self, want: LoadRequest, reading: Reading, deadline: float) -> None:
        """Until the other load is over, as far as we know, or it is time to look or give up."""
        options, keys = want.options, want.keys
        signal = Signal()
        transport = self._store.transport
        try:
            watching = self._watch_mark(keys, reading, signal)
            marked = watching is not None
            if watching is None:
                watching = transport.watch(keys.lock, signal.set, monotonic())
            while True:
                pause = _LOOK_AGAIN if watching.tracked else options.poll
                pause = min(watching.remaining + _JUST_AFTER, pause, deadline - monotonic())
                woken = signal.wait(pause)
                is_over = watching.remaining <= 0 or monotonic() >= deadline
                if is_over or not watching.tracked or (woken and marked):
                    return
                signal.clear()
                watching = self._look_again(keys, signal, woken=woken)
        except Outage:
            pass  # the next claim meets it again, and decides
        finally:
            transport.unwatch(keys.key, signal.set)
            transport.unwatch(keys.lock, signal.set)

    def _watch_mark(
        self, keys: CacheKeys, reading: Reading, signal: Signal
    ) -> Watching | None:
        """None: no mark stands for the load (there is an old value, or somebody deleted it)."""
        if reading.state != "missing":
            return None
        request = follow_request(keys)
        return read_follow(self._store.transport.track(request, signal.set, monotonic()))

    def _look_again(self, keys: CacheKeys, signal: Signal, *, woken: bool) -> Watching:
        """Is the lock still held? A push that woke us has to be asked for again."""
        if woken:
            return self._store.transport.watch(keys.lock, signal.set, monotonic())
        pttl = self._store.transport.send(watch_request(keys.lock), monotonic())
        return read_watch(Tracked([pttl], tracked=True))
