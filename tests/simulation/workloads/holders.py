"""The leases of one key in all processes: how many may there be at once?"""

from typing import NamedTuple

from dibs._async.hold import AsyncLease

from ..system import CLOCK, Process
from ..world import World


class Entry(NamedTuple):
    """A lease that a body has."""

    lease: AsyncLease
    process: Process
    since: float


class Holders:
    """Of the leases of a key that are guarded and not lost, *limit* exist at any moment."""

    def __init__(self, world: World, key: str, limit: int = 1) -> None:
        self._world = world
        self._key = key
        self._limit = limit
        self._entries: list[Entry] = []
        self._fences = [0]

    def enter(self, lease: AsyncLease, process: Process) -> Entry:
        """*lease* was granted."""
        entry = Entry(lease, process, CLOCK.now)
        self._entries.append(entry)
        self._world.note("enter", self._key, process.name)
        self._world.counts["held"] += 1
        if not lease.guarded:
            self._world.violate(f"{self._key}: {process} is unguarded, with on_outage='closed'")
        self.check()
        self._check_fence(entry)
        return entry

    def check(self) -> None:
        """No more than the limit have it, unless the server lost what it knew of one."""
        sure = [each for each in self._entries if self._is_sure(each)]
        if len(sure) > self._limit and not self._world.has_lost(min(each.since for each in sure)):
            owners = ", ".join(f"{each.process} ({each.lease.remaining:.2f} s)" for each in sure)
            self._world.violate(f"{self._key}: {len(sure)} of {self._limit} have it: {owners}")

    def _is_sure(self, entry: Entry) -> bool:
        return not entry.process.is_dead and not entry.lease.lost

    def _check_fence(self, entry: Entry) -> None:
        """Fences come from the server's clock, so they grow even if it loses all its data.

        Unless what it lost was granted already, and its reply comes after that to a later one.
        """
        fence = entry.lease.fence
        if fence is None or not self._is_sure(entry):
            return
        # Of several permits, the reply to an earlier one may come later.
        is_wrong = fence in self._fences if self._limit > 1 else fence <= self._fences[-1]
        self._fences.append(fence)
        if is_wrong and not self._world.has_lost_what_it_wrote_at(fence / 1e6):
            self._world.violate(f"{self._key}: the fence of {entry.process} does not grow")

    def leave(self, entry: Entry) -> None:
        """The body has ended."""
        self._entries.remove(entry)
        self._world.note("leave", self._key, entry.process.name)
