"""Keeps leases alive: one timer for all of them, renewals that are due together in one write.

A lease of 6 s that ends while its renewal is on the way:

    0.0  The acquire is written, and its reply says that the key is ours: until 6.0 by our clock,
         the time of the request plus the ttl. The server counts from a later moment.
    2.0  A third of the ttl: the renewal is written, and the server falls silent.
    2.5  A twelfth later it is tried again, and again, as long as the store is out.
    5.9  The server executes a renewal: it holds the key for us until 11.9. The reply is delayed.
    6.0  No renewal was confirmed, so the lease is lost: `lost` is True, and a task is cancelled.
         No other process has the key yet; it looks here as if no renewal had ever arrived.
    6.1  The reply comes. A lease that is lost stays lost, as its body was stopped for it.

A reply before 6.0 would have moved the end to 11.9 at most, counted from when it was asked for.
"""

import contextlib
import functools
import heapq
import itertools
import logging
import math
from collections import deque
from collections.abc import Callable
from typing import Any

from .._core.capabilities import Engine, must_allow
from .._core.causes import cause_for
from .._core.claim import complete_request, read_complete
from .._core.connection import Outage
from .._core.keys import milliseconds
from .._core.lease import (
    LeaseState,
    keep_request,
    never_shortens,
    read_extend,
    value_request,
)
from .._core.request import Request
from .._events import EventSink
from .._tasks import Background, Deadlines, Guard, LoopWatch, Signal, monotonic
from ..errors import Unavailable, UsageError
from .store import AsyncStore

_AGAIN = 1 / 12
"""After a renewal that failed: how much of the ttl to wait before the next try."""

_SWEEP = 128
"""How many entries there may be before they are looked through for leases that are over."""

_LATE = 0.3
"""Seconds by which a renewal must be late before it is reported."""

_AFTER_ERROR = 0.1
"""After an unexpected error: seconds until the next look at the heap."""

TOO_LATE = cause_for("expired")
_TAKEN = cause_for("taken")

_log = logging.getLogger("dibs")


class AsyncRenewer:
    """Renews each lease after a third of its ttl; says which ones are lost."""

    def __init__(
        self,
        store: AsyncStore,
        events: EventSink,
        lose: Callable[[LeaseState, str], None],
        found: Callable[[LeaseState, object], None],
    ) -> None:
        self._store = store
        self._events = events
        self._lose = lose
        """Called with a lease that could not be renewed in time, and why."""
        self._found = found
        """Called with a lease that was to be checked, and the value of its key."""
        self._closed = False
        self._numbers = itertools.count()
        self._watch = LoopWatch(self.overdue)
        self._run_number = 0
        """The current run; one that was started earlier ends when it sees another."""
        self.open()

    def open(self) -> None:
        """Begin without leases; again in a forked child."""
        self._new: deque[LeaseState] = deque()
        """Leases that are not planned yet. None of them is due before `_looks_at`."""
        self._looks_at = math.inf
        """When the run looks at them by itself; inf: it does not, or is busy."""
        self._heap: list[tuple[float, int, LeaseState]] = []
        """Those that are planned: when they are due, a number, and the lease."""
        self._due: list[LeaseState] = []
        """Those that are being renewed."""
        self._doubtful: list[LeaseState] = []
        self._most_new = self._sweep_at = _SWEEP
        self._deadlines = Deadlines(self._expire)
        self._wake = Signal()
        self._work = Background("dibs renewer")
        self._is_running = False
        self.guard = Guard()

    def keep(self, lease: LeaseState) -> None:
        """Keep *lease* alive until it is released or its max_hold is over.

        Unavailable: no thread could be started for it.
        """
        new = self._new
        new.append(lease)
        is_next = lease.since + lease.call.options.renew_after < self._looks_at
        # Else the run sees it in time. Most leases end before that, and cost nothing more.
        if is_next or len(new) > self._most_new or self._work.is_cut_off():
            try:
                self._make_run(wake=is_next)
            except RuntimeError as error:  # as when the interpreter shuts down
                raise Unavailable(cause_for("no_thread"), lease.call.name) from error

    def check(self, entry: LeaseState) -> None:
        """Ask the store whether *entry* still holds, without waiting for the answer."""
        self._doubtful.append(entry)
        try:
            self._make_run(wake=True)
        except RuntimeError:  # no thread: the next refusal tries again
            self._doubtful.clear()

    def _make_run(self, *, wake: bool) -> None:
        """Make sure that a run looks at the heap, with all leases in it."""
        with self.guard:
            self._plan_new()
            if self._is_running and not self._work.is_cut_off():
                if wake:
                    self._wake.set()
                return
            self._run_number += 1
            self._wake.set()  # a run before this one sees that it is no longer wanted
            self._wake = Signal()
            looks_at = self._heap[0][0] if self._heap else math.inf
            run = functools.partial(self._run, self._run_number, self._wake)
        try:  # a signal handler may raise anywhere
            self._is_running, self._looks_at = True, looks_at
            self._work.start(run)
            self._watch.begin()  # not in the run: a body that blocks may keep that from beginning
        except BaseException:
            # The next caller tries again. A run that did start goes on, until then.
            self._is_running, self._looks_at = False, math.inf
            raise

    async def aclose(self) -> None:
        """Stop renewing."""
        self._closed = True
        self._watch.end()
        self._wake.set()
        await self._work.stop()

    def overdue(self, now: float) -> tuple[str, float, float] | None:
        """Return a lease that should have been renewed before: see `LoopWatch`, which calls it."""
        first = [at for at, _, _ in self._heap[:1]]
        if now - min([self._looks_at, *first]) < _LATE:
            return None
        planned = [(at, lease) for at, _, lease in list(self._heap)]
        new = [(each.since + each.call.options.renew_after, each) for each in list(self._new)]
        for at, lease in planned + new:
            ttl, left = lease.call.options.ttl, lease.deadline - now
            if now - at > max(ttl / 3, _LATE) and not lease.is_over and not lease.is_lost:
                return lease.call.name, now - at, max(left, 0.0)
        return None

    # ---- a lease whose value changes

    async def change(self, lease: LeaseState, value: bytes, ttl: float, until: float = 0.0) -> bool:
        """Give the key *value* for *ttl*, if it is still ours. False: it is not; it is lost.

        Outage: not known. The next renewal, or the end of the lease, makes sure of it; with
        *until*, it is also delivered as soon as the store answers, before that time.
        """
        now = monotonic()
        if not await self._change(lease, value, ttl, now, until):
            return False
        lease.keep_until(now + ttl, monotonic())
        return True

    async def confirm(self, lease: LeaseState) -> None:
        """Make sure which value the key has, before it is compared again.

        Raises Outage if not known.
        """
        if lease.successor is not None and lease.guarded:
            await self._change(lease, lease.successor, lease.call.options.ttl, monotonic())

    async def _change(
        self, lease: LeaseState, value: bytes, ttl: float, now: float, until: float = 0.0
    ) -> bool:
        if self._store.is_closed:
            return False
        engine = await self._store.transport.ready(now)
        must_allow(engine, "complete")
        before, key = lease.token, lease.call.key
        lease.successor, lease.asked_until = value, now + ttl
        request = complete_request(engine, key, before, value, milliseconds(ttl), until)
        try:
            reply = await self._store.ask(request, now)
        finally:
            lease.asked_until = 0.0
        is_ours = self._store.read(read_complete, reply, before, value)
        if is_ours:
            lease.became(value)
        elif lease.token == before:  # else it was changed again, meanwhile
            self._lose(lease, _TAKEN)
        return is_ours

    # ---- what is due

    def _plan_new(self) -> None:
        """Plan those that are not over by now."""
        before = len(self._heap)
        while self._new:
            lease = self._new.popleft()
            if not lease.is_over:
                self._plan_next(lease, lease.since + lease.call.options.renew_after)
                if lease.body is not None:
                    self._deadlines.by(lease.deadline)
        self._most_new = 4 * (len(self._heap) - before) + _SWEEP
        if len(self._heap) > self._sweep_at:
            self._sweep()

    def _plan_next(self, lease: LeaseState, at: float) -> None:
        heapq.heappush(self._heap, (min(at, lease.deadline), next(self._numbers), lease))

    async def _run(self, number: int, wake: Signal) -> None:
        try:
            while self._goes_on(number):
                try:
                    await self._step(wake)
                except Exception:
                    _log.exception("dibs: renewing leases failed; it will be retried")
                    await wake.wait(_AFTER_ERROR)
        finally:
            with self.guard:
                if number == self._run_number:
                    self._is_running, self._looks_at = False, math.inf
                    with contextlib.suppress(RuntimeError):  # no loop runs, and so no body
                        self._plan_new()  # it was cancelled, they were not: they have deadlines

    def _goes_on(self, number: int) -> bool:
        # Decided in one step with saying so: who comes a moment later starts another run.
        with self.guard:
            if number != self._run_number:
                return False
            self._looks_at = math.inf
            has_work = bool(self._heap or self._new or self._doubtful)
            self._is_running = has_work and not self._closed
            return self._is_running

    async def _step(self, wake: Signal) -> None:
        """Do what is due now; if nothing is, wait for it."""
        wake.clear()
        now = monotonic()
        due = self._pop_due(now)
        if self._events.dropped:
            self._events.emit_dropped()
        if due:
            await self._renew(due, now)
        elif self._doubtful:
            await self._check_all()
        elif (at := self._will_look(wake)) < math.inf and not self._new:
            await wake.wait(at - now)

    def _will_look(self, wake: Signal) -> float:
        """From now on, who comes with a lease that is not due before need not wake the run."""
        with self.guard:
            at = self._heap[0][0] if self._heap else math.inf
            if wake is self._wake:  # else there is another run
                self._looks_at = at
            return at

    def _pop_due(self, now: float) -> list[LeaseState]:
        due: list[LeaseState] = []
        with self.guard:
            self._plan_new()
            self._due = due
            while self._heap and self._heap[0][0] <= now:
                _, _, lease = heapq.heappop(self._heap)
                if not lease.is_over and not lease.is_lost:
                    due.append(lease)
        for lease in due:
            if now >= lease.deadline:
                self._lose(lease, TOO_LATE)
        return [lease for lease in due if not lease.is_lost]

    def _expire(self, now: float) -> float:
        """Lose leases whose bodies have to be stopped. Returns the next deadline of one."""
        leases = [lease for _, _, lease in self._heap] + self._due
        alive = [lease for lease in leases if lease.body is not None and not lease.is_over]
        for lease in alive:
            if lease.deadline <= now:
                self._lose(lease, TOO_LATE)
        return min([lease.deadline for lease in alive if not lease.is_lost], default=math.inf)

    def _sweep(self) -> None:
        """Forget leases that are over: behind one that lives long they would pile up."""
        alive = [entry for entry in self._heap if not entry[2].is_over]
        heapq.heapify(alive)
        self._heap = alive
        self._sweep_at = 2 * len(alive) + _SWEEP

    async def _check_all(self) -> None:
        """Have those keys another value than ours, or none? Then we have lost them."""
        entries, self._doubtful = self._doubtful, []
        now = monotonic()
        try:
            await self._store.opened()
            requests = [value_request(entry.call.key) for entry in entries]
            values = await self._store.ask_all(requests, now)
        except (Outage, UsageError):
            return  # not known: what was promised locally stands
        for entry, value in zip(entries, values, strict=True):
            if not isinstance(value, Outage | UsageError):  # nor may a user without GET lose it
                self._found(entry, value)

    async def _renew(self, leases: list[LeaseState], now: float) -> None:
        """One write for all of them. A lease at the end of its max_hold is left to expire."""
        kept: list[tuple[LeaseState, float]] = []
        for lease in leases:
            until = self._renewed_until(lease, now)
            if lease.asked_until > until:  # it is being extended, by its holder
                self._plan_next(lease, now + lease.call.options.ttl * _AGAIN)
            elif until > lease.deadline + 0.001:
                kept.append((lease, until - now))
            else:
                self._plan_next(lease, self._next_look(lease))
        if not kept:
            return
        try:
            engine = await self._store.transport.ready(now)
            values = [(lease.token, lease.successor) for lease, _ in kept]
            requests = [
                _renewal(engine, lease, *value, milliseconds(ttl))
                for (lease, ttl), value in zip(kept, values, strict=True)
            ]
            replies = await self._store.ask_all(requests, now)
        except Outage as outage:
            self._retry(kept, outage.cause)
            return
        except UsageError as error:
            self._retry(kept, cause_for("denied", str(error)))
            return
        except BaseException:
            # Cancelled with its loop, or an unexpected error: they stay in the heap.
            for lease, _ in kept:
                self._plan_next(lease, now)
            raise
        for (lease, ttl), value, reply in zip(kept, values, replies, strict=True):
            if isinstance(reply, Outage):
                self._retry([(lease, ttl)], reply.cause)
            elif lease.successor is None and lease.token == value[0]:
                self._read(lease, ttl, reply, now)
            elif not lease.is_over:
                self._read_changed(lease, *value, reply)

    def _renewed_until(self, lease: LeaseState, now: float) -> float:
        """Return how far a renewal now would bring it: its ttl, but not past its max_hold."""
        options = lease.call.options
        most = math.inf if options.max_hold is None else lease.since + options.max_hold
        return min(now + options.ttl, most)

    def _next_look(self, lease: LeaseState) -> float:
        """Return a renewal would not lengthen it now: it was extended, or its max_hold is over."""
        options = lease.call.options
        if (
            options.max_hold is not None
            and lease.deadline >= lease.since + options.max_hold - 0.001
        ):
            return lease.deadline
        return lease.deadline - options.ttl * 2 / 3

    def _read_changed(
        self, lease: LeaseState, token: bytes, successor: bytes | None, reply: Any
    ) -> None:
        """The value of the key is being changed: what was said of *token* may not be true."""
        if successor is not None and successor == lease.successor:
            if not self._store.read(read_complete, reply, token, successor):
                self._lose(lease, _TAKEN)
                return
            lease.became(successor)
        self._plan_next(lease, monotonic())

    def _read(self, lease: LeaseState, ttl: float, reply: Any, now: float) -> None:
        if lease.is_over:
            return
        if isinstance(reply, UsageError) or not self._store.read(read_extend, reply):
            refused = isinstance(reply, UsageError)
            self._lose(lease, cause_for("denied", str(reply)) if refused else _TAKEN)
            return
        until, engine = now + ttl, self._store.transport.engine
        if engine is not None and never_shortens(engine):
            until = max(until, lease.deadline)  # it was extended meanwhile, on another connection
        lease.keep_until(until, monotonic())
        self._plan_next(lease, now + lease.call.options.renew_after)
        self._events.emit("renewed", lease.call.name)

    def _retry(self, kept: list[tuple[LeaseState, float]], cause: str) -> None:
        now = monotonic()
        for lease, _ in kept:
            self._plan_next(lease, now + lease.call.options.ttl * _AGAIN)
            self._events.emit("outage", lease.call.name, cause=cause)


def _renewal(
    engine: Engine, lease: LeaseState, token: bytes, successor: bytes | None, ttl_ms: int
) -> Request:
    """Keep the key; where its value is being changed, make sure first that it is."""
    if successor is None:
        return keep_request(engine, lease, token, ttl_ms)
    return complete_request(engine, lease.call.key, token, successor, ttl_ms, 0.0)
