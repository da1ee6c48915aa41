"""Keeps leases alive: one timer for all of them, renewals that are due together in one write."""

# pyright: reportPrivateUsage=false
# A lease and its keeper are one thing in two files: what the keeper touches is not for users.

import heapq
import itertools
import math
from typing import TYPE_CHECKING, Any

from .._core.breaker import Outage
from .._core.causes import cause_for
from .._core.lease import extend_request, milliseconds, read_extend
from .._tasks import Background, Body, Signal, monotonic
from ..errors import UsageError

if TYPE_CHECKING:
    from .lease import AsyncLease
    from .ledger import AsyncLedger

_AGAIN = 1 / 12
"""After a renewal that failed: how much of the ttl to wait before the next try."""

_SWEEP = 128
"""How many entries the agenda may have before it is looked through for leases that are over."""

_TOO_LATE = cause_for("expired")
_NOT_OURS = cause_for("taken")


class AsyncKeeper:
    """Renews each lease after a third of its ttl; tells those whose renewal fails for too long."""

    def __init__(self, ledger: "AsyncLedger") -> None:
        self._ledger = ledger
        self._agenda: list[tuple[float, int, AsyncLease]] = []
        self._sweep_at = _SWEEP
        self._numbers = itertools.count()
        self._wake = Signal()
        self._work = Background("dibs keeper")
        self._is_running = False
        self._closed = False

    def keep_with_body(self, lease: "AsyncLease") -> None:
        """The same, and stop the body, which calls this, when the lease is lost."""
        lease._body = Body(lambda: lease._lose(_TOO_LATE))
        lease._body.stop_at(lease._deadline)
        self.keep(lease)

    def keep(self, lease: "AsyncLease") -> None:
        """Keep *lease* alive until it is released or its max_hold is over."""
        with self._ledger.guard:
            self._plan_next(lease, lease._since + lease._plan.ttl / 3)
            is_first, self._is_running = not self._is_running, True
            head = self._agenda[:1]
            is_next = not head or head[0][2] is lease or len(self._agenda) > self._sweep_at
        if is_next:  # else it sleeps on: waking a thread costs more than the whole lease
            self._wake.set()
        if is_first:
            self._work.start(self._run)

    async def aclose(self) -> None:
        """Stop renewing."""
        self._closed = True
        self._wake.set()
        await self._work.stop()

    def abandon(self) -> None:
        """In a forked child: the leases are the parent's."""
        self._agenda = []
        self._is_running = False
        self._wake = Signal()
        self._work.abandon()

    def _plan_next(self, lease: "AsyncLease", at: float) -> None:
        heapq.heappush(self._agenda, (min(at, lease._deadline), next(self._numbers), lease))

    async def _run(self) -> None:
        try:
            await self._keep_renewing()
        finally:
            self._is_running = False

    async def _keep_renewing(self) -> None:
        while self._goes_on():
            self._wake.clear()
            now = monotonic()
            due = self._due(now)
            if self._ledger.dropped:
                self._ledger.tell_dropped()
            if due:
                await self._renew(due, now)
            elif self._agenda:
                await self._wake.wait(self._agenda[0][0] - now)

    def _goes_on(self) -> bool:
        # Decided in one step with saying so: who comes a moment later starts another run.
        with self._ledger.guard:
            self._is_running = bool(self._agenda) and not self._closed
            return self._is_running

    def _due(self, now: float) -> "list[AsyncLease]":
        due: list[AsyncLease] = []
        if len(self._agenda) > self._sweep_at:
            self._sweep()
        while self._agenda and (self._agenda[0][0] <= now or self._agenda[0][2]._is_over):
            lease = heapq.heappop(self._agenda)[2]
            if lease._is_over or lease._is_lost:
                continue
            if now >= lease._deadline:
                lease._lose(_TOO_LATE)
            else:
                due.append(lease)
        return due

    def _sweep(self) -> None:
        """Forget leases that are over: behind one that lives long they would pile up."""
        with self._ledger.guard:
            self._agenda = [entry for entry in self._agenda if not entry[2]._is_over]
            heapq.heapify(self._agenda)
            self._sweep_at = 2 * len(self._agenda) + _SWEEP

    async def _renew(self, leases: "list[AsyncLease]", now: float) -> None:
        """One write for all of them. A lease at the end of its max_hold is left to run out."""
        kept: list[tuple[AsyncLease, float]] = []
        for lease in leases:
            until = self._renewed_until(lease, now)
            if until > lease._deadline + 0.001:
                kept.append((lease, until - now))
            else:
                self._plan_next(lease, self._next_look(lease))
        if not kept:
            return
        try:
            engine = await self._ledger.link.ready(now)
            requests = [
                extend_request(engine, lease._plan.key, lease._token, milliseconds(ttl))
                for lease, ttl in kept
            ]
            replies = await self._ledger.ask_all(requests, now)
        except Outage as outage:
            self._retry(kept, outage.cause)
            return
        except UsageError as error:
            self._retry(kept, cause_for("denied", str(error)))
            return
        for (lease, ttl), reply in zip(kept, replies, strict=True):
            if isinstance(reply, Outage):
                self._retry([(lease, ttl)], reply.cause)
            else:
                self._read(lease, ttl, reply, now)

    def _renewed_until(self, lease: "AsyncLease", now: float) -> float:
        """How far a renewal now would bring it: its ttl, but not past its max_hold."""
        plan = lease._plan
        most = math.inf if plan.max_hold is None else lease._since + plan.max_hold
        return min(now + plan.ttl, most)

    def _next_look(self, lease: "AsyncLease") -> float:
        """A renewal would not lengthen it now: it was extended, or its max_hold is over."""
        plan = lease._plan
        if plan.max_hold is not None and lease._deadline >= lease._since + plan.max_hold - 0.001:
            return lease._deadline
        return lease._deadline - plan.ttl * 2 / 3

    def _read(self, lease: "AsyncLease", ttl: float, reply: Any, now: float) -> None:
        if lease._is_over:
            return
        if isinstance(reply, UsageError) or not read_extend(reply):
            refused = isinstance(reply, UsageError)
            lease._lose(cause_for("denied", str(reply)) if refused else _NOT_OURS)
            return
        lease._kept_until(now + ttl)
        self._plan_next(lease, now + lease._plan.ttl / 3)
        self._ledger.tell("renewed", lease._plan.name)

    def _retry(self, kept: "list[tuple[AsyncLease, float]]", cause: str) -> None:
        now = monotonic()
        for lease, _ in kept:
            self._plan_next(lease, now + lease._plan.ttl * _AGAIN)
            self._ledger.tell("outage", lease._plan.name, cause=cause)
