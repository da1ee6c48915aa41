"""One visitor's door: a key, the people who want it, and the windows in which they are watched."""

import asyncio
import dataclasses
from contextvars import ContextVar
from time import monotonic
from typing import Any, NamedTuple

from dibs import AsyncDibs, AsyncLease, Busy, Event

PEOPLE = ("ann", "ben")
_BACKLOG = 200
"""How many messages a slow window may be behind before it misses some."""

at_door: ContextVar["Door | None"] = ContextVar("at_door", default=None)
"""Whose door the current task is about: an event carries a name, never a key."""

Message = dict[str, Any]


class Freed(NamedTuple):
    """The end of a lease."""

    at: float
    """By the local monotonic clock."""
    ran_out: bool
    """False: somebody let go."""


class Visit:
    """One person's way through the door: asks, is let in or turned away, stays, leaves.

    In until the lease ends, or until `leave` is called: so it is over within wait + ttl.
    """

    def __init__(self, door: "Door", dibs: AsyncDibs, *, ttl: float, wait: float) -> None:
        self.ttl = ttl
        self.wait = wait
        self.lease: AsyncLease | None = None
        self.busy: Busy | None = None
        self.freed: Freed | None = None
        """The end of the lease that it waited for."""
        self.answered = asyncio.Event()
        self._door = door
        self._asked_at = monotonic()
        self._answered_at = 0.0
        self._left_at: float | None = None
        self._told_to_leave = asyncio.Event()
        self.task = asyncio.create_task(self._run(dibs))

    async def _run(self, dibs: AsyncDibs) -> None:
        at_door.set(self._door)
        try:
            async with dibs.hold(self._door.key, ttl=self.ttl, wait=self.wait) as lease:
                await self._stay(lease)
        except Busy as busy:
            self._turned_away(busy)
        finally:
            self.answered.set()
            self._door.changed()

    async def _stay(self, lease: AsyncLease) -> None:
        self.lease = lease
        self._answer()
        ends_at = self._answered_at + lease.remaining
        freed = self._door.freed
        self.freed = freed if self.wait and freed and freed.at >= self._asked_at else None
        try:
            await asyncio.wait_for(self._told_to_leave.wait(), lease.remaining)
        except TimeoutError:
            pass  # the time is up: what follows is a late release, and dibs will say so
        self._left_at = min(monotonic(), ends_at)
        if lease.guarded:
            self._door.freed = Freed(self._left_at, ran_out=lease.lost)

    def _turned_away(self, busy: Busy) -> None:
        self.busy = busy
        self._answer()

    def _answer(self) -> None:
        self._answered_at = monotonic()
        self.answered.set()
        self._door.changed()

    @property
    def over(self) -> bool:
        """True: this person neither has the key nor waits for it."""
        return self.task.done()

    def check(self) -> None:
        """Nothing, unless the visit has failed: then what it failed with."""
        if self.over and not self.task.cancelled():
            self.task.result()

    async def leave(self) -> None:
        """Let go, or stop waiting. Returns when it is done."""
        self._told_to_leave.set()
        if self.lease is None:
            self.task.cancel()
        await asyncio.wait([self.task])

    def report(self) -> Message:
        """How it stands with this person, now."""
        facts: Message = {"ttl": self.ttl, "wait": self.wait}
        if self.lease is not None:
            return facts | self._report_lease(self.lease)
        if self.busy is not None:
            left = self.busy.retry_after - (monotonic() - self._answered_at)
            facts |= {"retry_after": self.busy.retry_after, "holder": self.busy.holder}
            facts |= {"left": max(left, 0.0)}
            return facts | {"is": "refused", "took": self._answered_at - self._asked_at}
        if self.over:
            return facts | {"is": "left", "how": "gave up"}
        return facts | {"is": "waiting", "left": self.wait - (monotonic() - self._asked_at)}

    def _report_lease(self, lease: AsyncLease) -> Message:
        facts = {"guarded": lease.guarded, "took": self._answered_at - self._asked_at}
        if self._left_at is None:
            freed = self.freed
            facts |= {"is": "in", "remaining": lease.remaining}
            facts |= {"after_release": freed and self._answered_at - freed.at}
            return facts | {"ran_out": freed and freed.ran_out}
        how = "late" if lease.lost else "released" if lease.guarded else "unguarded"
        return facts | {"is": "left", "how": how, "held": self._left_at - self._answered_at}


class Door:
    """One visitor's key, with at most one visit of each person, and any number of windows."""

    def __init__(self, visitor: str) -> None:
        self.key = f"playground:{visitor}:door"
        self.visits: dict[str, Visit] = {}
        self.last: str | None = None
        """Who asked last."""
        self.freed: Freed | None = None
        """The end of the last lease."""
        self._windows: set[asyncio.Queue[Message | None]] = set()

    def enter(self, person: str, dibs: AsyncDibs, *, ttl: float, wait: float) -> Visit | None:
        """A new visit. None: this person is still in, or still waits."""
        visit = self.visits.get(person)
        if visit is not None and not visit.over:
            return None
        self.last = person
        self.visits[person] = Visit(self, dibs, ttl=ttl, wait=wait)
        self.changed()
        return self.visits[person]

    async def clear(self) -> None:
        """Everybody leaves."""
        for visit in self.visits.values():
            await visit.leave()

    @property
    def idle(self) -> bool:
        """True: nobody is in, waits or watches; the door may be forgotten."""
        return not self._windows and all(visit.over for visit in self.visits.values())

    def report(self) -> Message:
        """How it stands with everybody, now."""
        away = {"is": "away"}
        people = {
            person: self.visits[person].report() if person in self.visits else away
            for person in PEOPLE
        }
        return {"key": self.key, "people": people, "last": self.last}

    # ---- watching

    def open_window(self) -> "asyncio.Queue[Message | None]":
        """Where events arrive from now on, and None when something has changed."""
        window: asyncio.Queue[Message | None] = asyncio.Queue(_BACKLOG)
        self._windows.add(window)
        return window

    def close_window(self, window: "asyncio.Queue[Message | None]") -> None:
        """Nothing arrives there any more."""
        self._windows.discard(window)

    def heard(self, person: str, event: Event) -> None:
        """dibs has said something to *person*."""
        facts = dataclasses.asdict(event)
        self._show({"who": person} | {k: v for k, v in facts.items() if v is not None})

    def changed(self) -> None:
        """Everybody who watches should look again."""
        self._show(None)

    def _show(self, message: Message | None) -> None:
        for window in self._windows:
            if not window.full():
                window.put_nowait(message)
