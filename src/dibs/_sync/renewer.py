# Printed from src/dibs/_async/renewer.py by tools/unasync.py – do not edit.
"""Keeps leases alive: one timer for all of them, renewals that are due together in one write."""

# pyright: reportPrivateUsage=false
# A lease and its keeper are one thing in two files: what the keeper touches is not for users.

import functools
import heapq
import itertools
import logging
import math
import weakref
from typing import TYPE_CHECKING, Any

from .._core.breaker import Outage
from .._core.causes import cause_for
from .._core.lease import extend_request, milliseconds, read_extend, value_request
from .._threads import Background, Body, Signal, monotonic
from ..errors import UsageError
from .lease import NOT_OURS

if TYPE_CHECKING:
    from .held import Entry
    from .lease import Lease
    from .ledger import Ledger

_AGAIN = 1 / 12
"""After a renewal that failed: how much of the ttl to wait before the next try."""

_SWEEP = 128
"""How many entries the agenda may have before it is looked through for leases that are over."""

_AFTER_ERROR = 0.1
"""After an error that nobody expected: seconds until the next look at the agenda."""

_TOO_LATE = cause_for("expired")

_log = logging.getLogger("dibs")


class Renewer:
    """Renews each lease after a third of its ttl; tells those whose renewal fails for too long.

    It refers to leases weakly: one that nobody else has any more is not kept alive.
    """

    def __init__(self, ledger: "Ledger") -> None:
        self._ledger = ledger
        self._agenda: list[tuple[float, int, weakref.ref[Lease]]] = []
        self._doubtful: list[Entry] = []
        self._sweep_at = _SWEEP
        self._numbers = itertools.count()
        self._wake = Signal()
        self._work = Background("dibs keeper")
        self._run_number = 0
        """The run that is at work; one that was started earlier ends when it sees another."""
        self._is_running = False
        self._closed = False

    def keep_with_body(self, lease: "Lease") -> None:
        """The same, and stop the body, which calls this, when the lease is lost."""
        lease._body = Body(functools.partial(_lose_late, weakref.ref(lease)))
        lease._body.stop_at(lease._deadline)
        self.keep(lease)

    def keep(self, lease: "Lease") -> None:
        """Keep *lease* alive until it is released or its max_hold is over.

        RuntimeError: no thread could be started for it.
        """
        with self._ledger.guard:
            number = self._plan_next(lease, lease._since + lease._plan.ttl / 3)
            agenda = self._agenda
            is_next = agenda[0][1] == number or len(agenda) > self._sweep_at
        # Else it sleeps on: waking a thread costs more than the whole lease.
        if is_next or not self._is_running or self._work.is_cut_off:
            self._make_run(wake=is_next)

    def check(self, entry: "Entry") -> None:
        """Ask the store whether *entry* still holds; nobody waits for the answer."""
        self._doubtful.append(entry)
        try:
            self._make_run(wake=True)
        except RuntimeError:  # no thread: the next refusal tries again
            self._doubtful.clear()

    def _make_run(self, *, wake: bool) -> None:
        """Make sure that somebody looks at the agenda."""
        with self._ledger.guard:
            if self._is_running and not self._work.is_cut_off:
                if wake:
                    self._wake.set()
                return
            self._is_running = True
            self._run_number += 1
            self._wake.set()  # a run before this one sees that it is not wanted any more
            self._wake = Signal()
            run = functools.partial(self._run, self._run_number, self._wake)
        try:
            self._work.start(run)
        except BaseException:
            # Whoever comes next tries again. A run that did start goes on, until then.
            self._is_running = False
            raise

    def close(self) -> None:
        """Stop renewing."""
        self._closed = True
        self._wake.set()
        self._work.stop()

    def abandon(self) -> None:
        """In a forked child: the leases are the parent's."""
        self._agenda = []
        self._doubtful = []
        self._is_running = False
        self._wake = Signal()
        self._work.abandon()

    def _plan_next(self, lease: "Lease", at: float) -> int:
        number = next(self._numbers)
        heapq.heappush(self._agenda, (min(at, lease._deadline), number, weakref.ref(lease)))
        return number

    def _run(self, number: int, wake: Signal) -> None:
        try:
            while self._goes_on(number):
                try:
                    self._step(wake)
                except Exception:
                    _log.exception("dibs could not renew its leases; it tries again")
                    wake.wait(_AFTER_ERROR)
        finally:
            with self._ledger.guard:
                if number == self._run_number:
                    self._is_running = False

    def _goes_on(self, number: int) -> bool:
        # Decided in one step with saying so: who comes a moment later starts another run.
        with self._ledger.guard:
            if number != self._run_number:
                return False
            has_work = bool(self._agenda or self._doubtful)
            self._is_running = has_work and not self._closed
            return self._is_running

    def _step(self, wake: Signal) -> None:
        """What is due now; if nothing is, wait for it."""
        wake.clear()
        now = monotonic()
        due = self._due(now)
        if self._ledger.dropped:
            self._ledger.tell_dropped()
        if due:
            self._renew(due, now)
        elif self._doubtful:
            self._check_all()
        elif self._agenda:
            wake.wait(self._agenda[0][0] - now)

    def _due(self, now: float) -> "list[Lease]":
        due: list[Lease] = []
        with self._ledger.guard:
            if len(self._agenda) > self._sweep_at:
                self._sweep()
            while self._agenda:
                at, _, ref = self._agenda[0]
                lease = ref()
                is_over = lease is None or lease._is_over or lease._is_lost
                if at > now and not is_over:
                    break
                heapq.heappop(self._agenda)
                if lease is not None and not is_over:
                    due.append(lease)
        for lease in due:
            if now >= lease._deadline:
                lease._lose(_TOO_LATE)
        return [lease for lease in due if not lease._is_lost]

    def _sweep(self) -> None:
        """Forget leases that are over: behind one that lives long they would pile up."""
        leases = [(entry, entry[2]()) for entry in self._agenda]
        alive = [entry for entry, lease in leases if lease is not None and not lease._is_over]
        heapq.heapify(alive)
        self._agenda = alive
        self._sweep_at = 2 * len(alive) + _SWEEP

    def _check_all(self) -> None:
        """Have those keys another value than ours, or none? Then we have lost them."""
        entries, self._doubtful = self._doubtful, []
        now = monotonic()
        try:
            self._ledger.opened()
            requests = [value_request(entry._plan.key) for entry in entries]
            values = self._ledger.ask_all(requests, now)
        except (Outage, UsageError):
            return  # not known: what was promised locally stands
        for entry, value in zip(entries, values, strict=True):
            if not isinstance(value, Outage | UsageError):  # nor may a user without GET lose it
                self._ledger.held.found(entry, value)

    def _renew(self, leases: "list[Lease]", now: float) -> None:
        """One write for all of them. A lease at the end of its max_hold is left to run out."""
        kept: list[tuple[Lease, float]] = []
        for lease in leases:
            until = self._renewed_until(lease, now)
            if lease._asked_until > until:  # it is being extended, by its holder
                self._plan_next(lease, now + lease._plan.ttl * _AGAIN)
            elif until > lease._deadline + 0.001:
                kept.append((lease, until - now))
            else:
                self._plan_next(lease, self._next_look(lease))
        if not kept:
            return
        try:
            engine = self._ledger.link.ready(now)
            requests = [
                extend_request(engine, lease._plan.key, lease._token, milliseconds(ttl))
                for lease, ttl in kept
            ]
            replies = self._ledger.ask_all(requests, now)
        except Outage as outage:
            self._retry(kept, outage.cause)
            return
        except UsageError as error:
            self._retry(kept, cause_for("denied", str(error)))
            return
        except BaseException:
            # Cancelled with its loop, or an error that nobody expected: they stay on the agenda.
            for lease, _ in kept:
                self._plan_next(lease, now)
            raise
        for (lease, ttl), reply in zip(kept, replies, strict=True):
            if isinstance(reply, Outage):
                self._retry([(lease, ttl)], reply.cause)
            else:
                self._read(lease, ttl, reply, now)

    def _renewed_until(self, lease: "Lease", now: float) -> float:
        """How far a renewal now would bring it: its ttl, but not past its max_hold."""
        plan = lease._plan
        most = math.inf if plan.max_hold is None else lease._since + plan.max_hold
        return min(now + plan.ttl, most)

    def _next_look(self, lease: "Lease") -> float:
        """A renewal would not lengthen it now: it was extended, or its max_hold is over."""
        plan = lease._plan
        if plan.max_hold is not None and lease._deadline >= lease._since + plan.max_hold - 0.001:
            return lease._deadline
        return lease._deadline - plan.ttl * 2 / 3

    def _read(self, lease: "Lease", ttl: float, reply: Any, now: float) -> None:
        if lease._is_over:
            return
        if isinstance(reply, UsageError) or not read_extend(reply):
            refused = isinstance(reply, UsageError)
            lease._lose(cause_for("denied", str(reply)) if refused else NOT_OURS)
            return
        lease._kept_until(now + ttl)
        self._plan_next(lease, now + lease._plan.ttl / 3)
        self._ledger.tell("renewed", lease._plan.name)

    def _retry(self, kept: "list[tuple[Lease, float]]", cause: str) -> None:
        now = monotonic()
        for lease, _ in kept:
            self._plan_next(lease, now + lease._plan.ttl * _AGAIN)
            self._ledger.tell("outage", lease._plan.name, cause=cause)


def _lose_late(ref: "weakref.ref[Lease]") -> None:
    """The deadline of a lease is over, if anybody still has it."""
    lease = ref()
    if lease is not None:
        lease._lose(_TOO_LATE)
