# Generated from src/dibs/_async/lease_table.py by unasync.py – do not edit.
"""Acquire, extend and release a lease: the one way to each, for every verb."""

import contextlib
import logging
import math
from collections.abc import Callable
from typing import TypeVar

from .._core.capabilities import Engine, must_allow
from .._core.causes import cause_for
from .._core.claim import (
    COMPLETED,
    REFUSED,
    ClaimRecord,
    DoneRequest,
    EndingVerdict,
    NoRoom,
    complete_request,
    first_write,
    next_write,
    no_room,
    read_complete,
    read_write,
    warning_for,
    write_request,
)
from .._core.connection import Outage
from .._core.keys import milliseconds
from .._core.lease import (
    WON,
    HoldCall,
    Holding,
    LeaseState,
    Won,
    about_key,
    acquire_request,
    end_request,
    free_request,
    is_wrong_type,
    keep_request,
    peek_permits,
    peek_request,
    read_acquire,
    read_end,
    read_extend,
    read_peek,
    read_peek_permits,
    read_permit,
    release_request,
    script_request,
)
from .._core.request import REPEATED, ErrorReply, Reply, Request, together
from .._events import EventSink
from .._process_state import Identity
from .._threads import (
    BackgroundTasks,
    ContinuedCalls,
    WorkQueue,
    deliver_behind,
    monotonic,
    sleep,
)
from ..errors import DibsError, Unavailable, UsageError
from .renewer import Renewer
from .store import CLOSED, Store
from .waiters import Waiters

M = TypeVar("M")

_log = logging.getLogger("dibs")

NOT_OURS = cause_for("taken")
_SWEEP = 128
"""How many entries there may be before they are looked through for old ones."""
_UNCONFIRMED = 1.0
"""After how many seconds without a reply of the store an entry that refuses others is checked."""


class Leases:
    """Takes leases, and knows which of them this process has."""

    def __init__(self, store: Store, events: EventSink) -> None:
        self.store = store
        self.events = events
        self.waiters = Waiters(store, self.held_here, lambda: self.identity.waiter)
        self.renewer = Renewer(store, events, self.lose, self.found)
        self.ends = WorkQueue()
        """Ends of claims whose transaction has ended after them."""
        self.following = BackgroundTasks()
        """Looks at transactions that do not say when they end."""
        self.calls = ContinuedCalls()
        """Calls of `once` functions whose callers may be cancelled."""
        self.table: dict[bytes, LeaseState] = {}
        """Key → the lease that this process has of it, or had until a moment ago."""
        self._identify()

    def _identify(self) -> None:
        self._sweep_at = _SWEEP
        self.identity = Identity()
        self.new_token = self.identity.new_token

    def open(self) -> None:
        """In a forked child: the leases are the parent's, and tokens must not be the same."""
        for lease in self.table.values():
            lease.is_over = lease.is_lost = True
        self.table = {}
        self._identify()
        self.ends = WorkQueue()
        self.following = BackgroundTasks()
        self.waiters.open()
        self.renewer.open()

    # ---- taking

    def take(self, call: HoldCall) -> LeaseState | Holding:
        """Return a lease; or who has it, at once or after `wait`. Unavailable: the policy says so.

        The caller reports it (`events.taken`): one coroutine less than if this did.
        """
        options = call.options
        if options.wait:
            return self.waiters.take(call, self.attempt)
        return self.acquire(call, None, read_acquire if options.limit is None else read_permit)

    def attempt(self, call: HoldCall) -> LeaseState | Holding:
        """Try once. If this process holds the key, the answer needs no request."""
        return self.acquire(call, None, read_acquire if call.options.limit is None else read_permit)

    def acquire(
        self,
        call: HoldCall,
        token: bytes | None,
        read: Callable[[list[Reply], bytes], Won | M],
        more: Request | None = None,
        *,
        is_last: bool = False,
    ) -> LeaseState | Holding | M:
        """Return a lease, or what *read* returns for the current value. *token*: None makes one.

        *more* is executed after it, in the same write: its reply is the last that *read* gets. If
        the reply comes when the lease is over, the key is acquired again, once (*is_last*).
        """
        now = monotonic()
        store, key, options = self.store, call.key, call.options
        store.enter()
        if key in self.table and options.limit is None:
            here = self.refusal(key, now)
            if here is not None:
                return here
        if token is None:
            token = self.new_token()
        try:
            engine = store.transport.engine
            if engine is None:
                now, engine = store.opened()
            if options.is_usual:
                request = acquire_request(engine, key, token, options.ttl_ms)
            else:
                request = script_request(call, token)
            if more is not None:
                request = together([request, store.prepared(more, now)])
            if engine.whole_scripts or engine.refused or store.scripts.whole_until:
                request = self._allowed(engine, call, request, now)
            replies = store.transport.send(request, now)
            if type(replies[0]) is ErrorReply:
                replies = store.check_reply(request, replies, now)
            # Nothing in its place: it was free, and there is no fence.
            outcome = WON if replies[0] is None else store.read(read, replies, token)
        except Outage as outage:
            if outage.sent:
                self.release_later(call, token)
            else:
                sleep(0)  # a caller that tries again and again must not starve the others
            return self.unguarded(call, token, now, outage.cause)
        except UsageError as error:
            raise about_key(error, call.name) from None
        except DibsError:
            raise
        except BaseException:
            # Cancelled, or a signal handler raised: the key may be ours, and would not be released.
            self.release_later(call, token)
            raise
        if not isinstance(outcome, Won):
            if store.transport.may_arrive_late:
                self.release_later(call, token)
            return outcome
        lease = LeaseState(call, token, now)
        lease.fence = outcome.fence
        self.enter(lease, now)
        if monotonic() >= lease.deadline:
            try:
                is_ours = self.catch_up(lease)
            except BaseException:
                self.release_unused(lease)
                raise
            if not is_ours and not is_last:
                self.forget(lease)
                return self.acquire(call, token, read, more, is_last=True)
            if not is_ours:
                self.lose(lease, NOT_OURS)
        return lease

    def enter(self, lease: LeaseState, now: float) -> None:
        """*lease* is ours, as the store has just said."""
        at_least = lease.call.options.at_least
        if at_least:
            # From now on, not from the request: a slow reply must not shorten it.
            lease.stays_until = monotonic() + at_least
        self.table[lease.entry] = lease
        if self.store.outages.is_open:
            self.store.outages.served(now)
        if len(self.table) > self._sweep_at:
            self._sweep(now)

    def catch_up(self, lease: LeaseState) -> bool:
        """Keep a lease whose reply came late, from now on. False: its key is no longer ours.

        Opening a connection took longer than the lease, or this process was stopped.
        """
        with contextlib.suppress(Outage, UsageError):
            return self._extend(lease, lease.call.options.ttl, monotonic())
        return True

    def _allowed(self, engine: Engine, call: HoldCall, request: Request, now: float) -> Request:
        """Return *request*, in the form that the server takes.

        Raises UsageError if it refuses what comes later.
        """
        options = call.options
        if options.limit is not None:
            must_allow(engine, "limit")  # with it, permits can be renewed
        elif options.renew:
            must_allow(engine, "renew")
        if options.fence_prefix is not None:
            must_allow(engine, "fence")
        return self.store.prepared(request, now)

    def unguarded(self, call: HoldCall, token: bytes, now: float, cause: str) -> LeaseState:
        """Return an unguarded lease, for an outage.

        Raises Unavailable if the policy is "closed".
        """
        self.store.outage(call.name, cause, call.options.on_outage)
        lease = LeaseState(call, token, now)
        lease.guarded = False
        return lease

    # ---- keeping

    def extend(self, lease: LeaseState, ttl: float) -> bool:
        """Keep it for *ttl* from now on, or as long as it has, if that is longer.

        False: not kept. Unavailable: the policy says so.
        """
        now = monotonic()
        if lease.is_over or lease.is_lost_at(now) or self.store.is_closed:
            return False
        if not lease.guarded:
            lease.deadline = max(now + ttl, lease.deadline)
            return True
        try:
            is_ours = self._extend(lease, ttl, now)
        except Outage as outage:
            call = lease.call
            self.events.emit("outage", call.name, cause=outage.cause)
            if call.options.on_outage == "closed":
                raise Unavailable(outage.cause, call.name) from None
            return False
        if not is_ours:
            self.lose(lease, NOT_OURS)
        return is_ours

    def _extend(self, lease: LeaseState, ttl: float, now: float) -> bool:
        engine = self.store.transport.ready(now)
        until = max(now + ttl, lease.deadline)
        request = keep_request(engine, lease, lease.token, milliseconds(until - now))
        lease.asked_until = until  # a renewal that overtakes the reply must not cut it short
        try:
            is_ours = self.store.read(read_extend, self.store.ask(request, now))
        finally:
            lease.asked_until = 0.0
        if is_ours:
            lease.keep_until(until, monotonic())
        return is_ours

    def lose(self, lease: LeaseState, cause: str) -> None:
        """It is lost: report it, let the next one try, and stop the body."""
        if lease.is_lost or lease.is_over:
            return
        lease.is_lost = True
        self.forget(lease)
        if not (lease.is_kept or lease.is_lent):  # a lent one is continued elsewhere
            name, held = lease.call.name, monotonic() - lease.since
            _log.warning("%s: the lease was lost after %.1f s: %s", name, held, cause)
            self.events.emit("lost", name, held=held, cause=cause)
        self.waiters.wake_next(lease.call.key)
        if lease.body is not None:
            lease.body.stop()

    # ---- giving back

    def end(self, lease: LeaseState, write: Callable[[bytes], Request] | None = None) -> bool:
        """End it and free its key. False: it was lost, or (`is_undelivered`) no answer came.

        *write* makes of its token a request that also does something else.
        """
        store = self.store
        if lease.successor is not None:
            self._confirm_value(lease)
        if lease.is_over or store.is_closed:
            return False
        call, now = lease.call, monotonic()
        was_lost = self._close(lease, now)
        if not lease.guarded:
            self.events.ended("released", call.name, now - lease.since, guarded=False)
            return False
        try:
            if write is None:
                engine = store.transport.engine or store.transport.ready(now)
                if lease.stays_until > now or call.options.limit is not None:
                    request = end_request(engine, lease, now)
                else:
                    request = release_request(engine, call.key, lease.token, lease.deadline)
            else:
                request = write(lease.token)
            reply = store.transport.send(request, now)
            if type(reply) is ErrorReply:
                reply = store.check_reply(request, reply, now)
            given = reply in (1, REPEATED) or store.read(read_end, reply, lease.token)
            given = given and not was_lost
            lease.is_lost = not given
            if given and lease.stays_until > now:
                self._keep(lease)
        except Outage as outage:
            self.events.emit("outage", call.name, cause=outage.cause)
            lease.is_undelivered = True
            return False
        finally:
            if self.waiters.queues:
                self.waiters.wake_next(call.key)
        kind = "released" if given else "late"
        if self.events.wants[kind]:
            self.events.ended(kind, call.given_name or call.name, now - lease.since, guarded=True)
        return given

    def _close(self, lease: LeaseState, now: float) -> bool:
        """It is over for this process. True: it was lost before."""
        lease.is_lost = was_lost = lease.is_lost or (lease.guarded and now >= lease.deadline)
        lease.is_over = True
        if self.table.get(lease.entry) is lease:  # as `forget` does, without a call
            self.table.pop(lease.entry, None)
        return was_lost

    def complete(self, lease: LeaseState, result: bytes, ms: int) -> bool:
        """Its work was done: a record takes its place for *ms*, with *result* if there is one.

        False: another has the key, or (`is_undelivered`) the store was out; then it is recorded as
        done when the store is back.
        """
        if lease.successor is not None:
            with contextlib.suppress(Outage):  # the next request meets it
                self.renewer.confirm(lease)
        if lease.is_over or self.store.is_closed:
            return False
        call, now = lease.call, monotonic()
        self._close(lease, now)
        if not lease.guarded:
            self.events.ended("completed", call.name, now - lease.since, guarded=False)
            return False
        record = ClaimRecord(lease.token, result, ms)
        try:
            verdict = self._write(lease, record, now)
        except Outage as outage:
            self.events.emit("outage", call.name, cause=outage.cause)
            lease.is_undelivered = True
            for request in self._done_requests(lease, record):
                self.store.transport.deliver_later(request)
            return False
        except UsageError:
            raise
        except BaseException:  # cancelled, or a signal handler raised: it was done all the same
            for request in self._done_requests(lease, record):
                deliver_behind(self.store.transport, request)
            raise
        finally:
            if self.waiters.queues:
                self.waiters.wake_next(call.key)
        lease.is_lost = verdict.kind == "late"
        if self.events.wants[verdict.kind]:
            held, name = now - lease.since, call.given_name or call.name
            if verdict.code is None:
                self.events.ended(verdict.kind, name, held, guarded=True)
            else:
                cause = cause_for(verdict.code)
                self.events.emit(verdict.kind, name, held=held, guarded=True, cause=cause)
        return not lease.is_lost

    def copy(self, lease: LeaseState, result: bytes, ms: int) -> bool:
        """Its work is recorded in a database: leave a copy of that for *ms* in place of the key.

        False: that could not be done; the key is free, and the database answers.
        """
        if lease.successor is not None:
            self._confirm_value(lease)
        if lease.is_over or self.store.is_closed:
            return False
        now, record = monotonic(), ClaimRecord(lease.token, result, ms)
        self._close(lease, now)  # a renewal must not take the copy for another's
        if not lease.guarded or not self._is_copied(lease, record, now):
            lease.is_over = False
            return self.end(lease)
        lease.is_lost = False
        if self.waiters.queues:
            self.waiters.wake_next(lease.call.key)
        self.events.ended("completed", lease.call.name, now - lease.since, guarded=True)
        return True

    def _is_copied(self, lease: LeaseState, record: ClaimRecord, now: float) -> bool:
        value = record.value("result" if record.result else "done")
        try:
            engine = self.store.transport.engine or self.store.transport.ready(now)
            key = lease.call.key
            request = complete_request(engine, key, record.claim, value, record.ms, 0.0)
            reply = self.store.transport.send(request, now)
            if type(reply) is ErrorReply:
                reply = self._served(request, reply, now)
            return self.store.read(read_complete, reply, record.claim, value)
        except (Outage, UsageError):
            return False
        except BaseException:  # cancelled, or a signal handler raised
            self.release_later(lease.call, lease.token)
            raise

    def _write(self, lease: LeaseState, record: ClaimRecord, now: float) -> EndingVerdict:
        """Write *record*, as `next_write` decides. Raises Outage if not known.

        Raises UsageError if refused.
        """
        store, refusal = self.store, None
        engine = store.transport.engine or store.transport.ready(now)
        write = first_write(record)
        while True:
            value = record.value(write.left)
            request = write_request(engine, lease.call.key, record, write, value, lease.deadline)
            try:
                reply = store.transport.send(request, now)
                if type(reply) is ErrorReply:
                    reply = self._served(request, reply, now)
                met = store.read(read_write, write, record, value, reply)
            except (NoRoom, UsageError) as error:
                met, refusal = REFUSED, refusal or error
            step = next_write(record, write, met)
            if isinstance(step, EndingVerdict):
                if step is not COMPLETED:
                    _log.warning("%s: %s", lease.call.name, warning_for(step, refusal))
                return step
            if step is None:
                assert refusal is not None
                raise refusal
            write, now = step, monotonic()

    def _served(self, request: Request, error: ErrorReply, now: float) -> Reply:
        """Return the reply after *error*. NoRoom: the same request would be refused again."""
        if (refusal := no_room(error)) is not None:
            raise refusal
        return self.store.check_reply(request, error, now)

    def _done_requests(self, lease: LeaseState, record: ClaimRecord) -> list[Request]:
        """Return requests that record it as *done*, whichever value its key has by then.

        After a request with the result that may yet be executed, they change nothing.
        """
        until = monotonic() + record.ms / 1000
        values = filter(None, (lease.token, lease.successor))
        key = lease.call.key
        return [DoneRequest(key, record._replace(claim=value), until) for value in values]

    def _confirm_value(self, lease: LeaseState) -> None:
        """The value of the key was being changed: find out whether it was."""
        try:
            self.renewer.confirm(lease)
        except Outage:
            self.release_later(lease.call, lease.successor or lease.token)

    def drop(self, lease: LeaseState) -> float:
        """Stop renewing it: it expires. Returns how long it was held."""
        lease.is_over = True
        self.forget(lease)
        return monotonic() - lease.since

    def release_unused(self, lease: LeaseState) -> None:
        """Have the key of a lease that cannot be used released, without waiting for it."""
        if not lease.is_over:
            self.drop(lease)
            if lease.guarded:
                self.release_later(lease.call, lease.token)

    def release_later(self, call: HoldCall, token: bytes) -> None:
        """Release a key that may have been acquired, now or when the store is back.

        However late that is: a server that was stopped executes the acquire when it resumes.
        """
        transport = self.store.transport
        if transport.engine is not None:
            transport.post(free_request(transport.engine, call, token, math.inf))

    # ---- the table

    def held_here(self, key: bytes) -> Holding | None:
        """Return who has *key*, if it is this process."""
        now = monotonic()
        lease = self._known(key, now)
        return None if lease is None else self._holding(lease, now)

    def _holding(self, lease: LeaseState, now: float) -> Holding:
        state = "cooling" if lease.is_kept else "held"
        return Holding(lease.deadline - now, self.identity.holder, None, state)

    def known_record(self, key: bytes) -> tuple[bytes, float] | None:
        """Return the value of *key* and for how long, where this process itself has written it."""
        if self.store.is_closed:
            raise UsageError(CLOSED)
        now = monotonic()
        lease = self._known(key, now)
        if lease is None:
            return None
        self._confirm(lease, now)
        return lease.token, lease.deadline - now

    def refusal(self, key: bytes, now: float) -> Holding | None:
        """Return what `held_here` returns, for a caller who is refused because of it."""
        lease = self._known(key, now)
        if lease is None:
            return None
        self._confirm(lease, now)
        return self._holding(lease, now)

    def _known(self, key: bytes, now: float) -> LeaseState | None:
        lease = self.table.get(key)
        return None if lease is None or lease.is_over or lease.deadline <= now else lease

    def _confirm(self, lease: LeaseState, now: float) -> None:
        """Have the store asked whether the key is still ours, at most once a second.

        The caller does not wait for it. If another program deleted the key, the lease is lost,
        and the next caller may try.
        """
        if now - lease.confirmed_at > _UNCONFIRMED:
            lease.confirmed_at = now
            self.renewer.check(lease)

    def found(self, lease: LeaseState, value: object) -> None:
        """The key of *lease* has *value*. Lost, if that is not ours.

        *lease* was in the table before the store was asked: the answer is not older than it is.
        """
        if not lease.is_over and not lease.is_ours(value):
            self.lose(lease, NOT_OURS)

    def _keep(self, lease: LeaseState) -> None:
        """*lease* was released, but its key stays taken."""
        state = LeaseState(lease.call, lease.token, lease.stays_until - lease.call.options.at_least)
        state.deadline = lease.stays_until
        state.is_kept = True
        self.table.setdefault(state.entry, state)

    def forget(self, lease: LeaseState) -> None:
        """Forget *lease*, which has ended."""
        if self.table.get(lease.entry) is lease:
            self.table.pop(lease.entry, None)

    def _sweep(self, now: float) -> None:
        """Forget what has expired without being released."""
        for key in list(self.table):
            if self._known(key, now) is None:
                self.table.pop(key, None)
        self._sweep_at = 2 * len(self.table) + _SWEEP

    def owns(self, lease: LeaseState) -> bool:
        """Return False if this is a forked child, and *lease* is its parent's."""
        return self.identity.made(lease.token)


def peek(leases: Leases, key: bytes, name: str) -> Holding | None:
    """Return who has *key*, and for how long; None: it is free.

    Raises Unavailable if the store is out.
    """
    store, lease = leases.store, leases.table.get(key)
    try:
        now, _ = store.opened()
        request = peek_request(key)
        replies = store.transport.send(request, now)
        if is_wrong_type(replies[0]):
            reply = store.ask(peek_permits(key), now)
            return store.read(read_peek_permits, reply)
        replies = store.check_reply(request, replies, now)
        holding = store.read(read_peek, replies)
    except Outage as outage:
        leases.events.emit("outage", name, cause=outage.cause)
        if store.is_disabled:
            return None
        raise Unavailable(outage.cause, name) from None
    if lease is not None:
        leases.found(lease, replies[0])
    return holding
