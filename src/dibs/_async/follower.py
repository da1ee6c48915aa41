"""Waiting for a load in another process: until it is over, or it is time to look or to give up."""

from typing import TYPE_CHECKING

from .._core.breaker import Outage
from .._core.cache import Reading, Slot, follow_request, read_follow
from .._core.watch import Tracked, Watching, read_watch, watch_request
from .._tasks import Signal, monotonic
from .loader import LoadRequest

if TYPE_CHECKING:
    from .ledger import AsyncLedger

_LOOK_AGAIN = 5.0
"""A push can be lost: how long to trust that none has come, in seconds."""
_JUST_AFTER = 0.002
"""An expiry is not announced; look this much after it."""


class AsyncFollower:
    """Follows the loads of other processes."""

    def __init__(self, ledger: "AsyncLedger") -> None:
        self._ledger = ledger

    async def follow(self, want: LoadRequest, reading: Reading, give_up: float) -> None:
        """Until the other load is over, as far as we are told, or it is time to look or give up."""
        recipe, slot = want.recipe, want.slot
        signal = Signal()
        link = self._ledger.link
        try:
            watching = await self._watch_mark(slot, reading, signal)
            marked = watching is not None
            if watching is None:
                watching = await link.watch(slot.lock, signal.set, monotonic())
            while True:
                pause = _LOOK_AGAIN if watching.tracked else recipe.poll
                pause = min(watching.remaining + _JUST_AFTER, pause, give_up - monotonic())
                woken = await signal.wait(pause)
                is_over = watching.remaining <= 0 or monotonic() >= give_up
                if is_over or not watching.tracked or (woken and marked):
                    return
                signal.clear()
                watching = await self._look_again(slot, signal, woken=woken)
        except Outage:
            pass  # the next claim meets it again, and decides
        finally:
            link.unwatch(slot.key, signal.set)
            link.unwatch(slot.lock, signal.set)

    async def _watch_mark(self, slot: Slot, reading: Reading, signal: Signal) -> Watching | None:
        """None: no mark stands for the load (there is an old value, or somebody deleted it)."""
        if reading.state != "missing":
            return None
        request = follow_request(slot)
        return read_follow(await self._ledger.link.track(request, signal.set, monotonic()))

    async def _look_again(self, slot: Slot, signal: Signal, *, woken: bool) -> Watching:
        """Is the lock still held? A push that woke us has to be asked for again."""
        if woken:
            return await self._ledger.link.watch(slot.lock, signal.set, monotonic())
        pttl = await self._ledger.link.send(watch_request(slot.lock), monotonic())
        return read_watch(Tracked([pttl], tracked=True))
