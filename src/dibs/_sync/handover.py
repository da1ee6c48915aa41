# Generated from src/dibs/_async/handover.py by unasync.py – do not edit.
"""Detach a lease or a claim, and continue it in another process."""

from .._core.breaker import Outage
from .._core.capabilities import must_allow
from .._core.causes import cause_for
from .._core.handover import (
    UNGUARDED,
    Elsewhere,
    Verb,
    hand_back_request,
    lend,
    read_resume,
    resume_request,
    token_for,
    with_secret_of,
)
from .._core.keys import milliseconds
from .._core.lease import HoldCall, LeaseState, extend_request, secret_of
from .._threads import monotonic
from ..errors import DibsError, LeaseLost, Unavailable, UsageError
from .leases import NOT_OURS, Leases

_NOT_GUARDED = cause_for("handed_over")


def lost_error(state: LeaseState) -> LeaseLost:
    """The error for the holder of a lease that ended before it was released."""
    return LeaseLost(state.call.text, state.fence, state.call.name)


# ---- detaching


def detach(leases: Leases, lease: LeaseState, verb: Verb, ttl: float) -> str:
    """Keep the key for *ttl* without anybody renewing it; the token with which it is continued.

    LeaseLost: it has ended. Unavailable: the store is out and the policy is "closed". One that was
    lent raises neither: its token may have been used.
    """
    if lease.is_lent:
        return _let_go(leases, lease, verb, ttl)
    if lease.is_detached:
        raise UsageError(f"this {verb} was detached before")
    if lease.is_over and not lease.is_lost:
        raise UsageError(f"this {verb} has ended; detach it before it ends")
    if lease.is_lost_at(monotonic()):
        raise lost_error(lease)
    if lease.call.options.limit is not None:
        raise UsageError("a lease with limit= cannot be detached")
    secret = UNGUARDED
    if lease.guarded:
        secret = _hand_over(leases, lease, ttl)
    held = leases.drop(lease)
    lease.is_detached = True
    leases.waiters.wake_next(lease.call.key)
    leases.events.emit("detached", lease.call.name, held=held, guarded=lease.guarded)
    return token_for(verb, secret)


def _hand_over(leases: Leases, lease: LeaseState, ttl: float) -> bytes:
    """Give the key a secret that nobody renews. With the policy "open" an outage is no error."""
    token = leases.new_token()
    try:
        leases.renewer.confirm(lease)
        value, until = with_secret_of(token, lease.token), lease.deadline
        if not leases.renewer.change(lease, value, ttl, until):
            raise lost_error(lease)
    except Outage as outage:
        call = lease.call
        leases.events.emit("outage", call.name, cause=outage.cause)
        if call.options.on_outage == "closed":
            raise Unavailable(outage.cause, call.name) from None
    return secret_of(token)


def _let_go(leases: Leases, lease: LeaseState, verb: Verb, ttl: float) -> str:
    """The token of a lent lease is delivered: keep the key for *ttl*, unless it is continued."""
    token, call = lend(lease, verb), lease.call
    held = leases.drop(lease)
    lease.is_detached = False  # if this is cancelled, the key must not be released
    try:
        if lease.guarded and not lease.is_lost:
            leases.renewer.confirm(lease)
            now, engine = leases.store.opened()
            request = extend_request(engine, call.key, lease.token, milliseconds(ttl))
            leases.store.ask(request, now)
    except Outage as outage:  # the key is free after one lease; it is claimed again where it runs
        leases.events.emit("outage", call.name, cause=outage.cause)
    lease.is_detached = True
    leases.waiters.wake_next(call.key)
    leases.events.emit("detached", call.name, held=held, guarded=lease.guarded)
    return token


def reattach(leases: Leases, lease: LeaseState) -> bool:
    """Make a detached lease ours again, to end it: whoever was to continue it will not.

    False: it was not detached here. One that is continued already has another secret, so that
    ending it has no effect.
    """
    if not lease.is_detached or not leases.owns(lease):
        return False
    lease.is_detached = lease.is_over = False
    return True


# ---- continuing


def resume(leases: Leases, call: HoldCall, secret: bytes) -> LeaseState | Elsewhere:
    """Continue what was detached with *secret*; or what the key has instead.

    Unavailable: the store is out and the policy is "closed".
    """
    store, token, now = leases.store, leases.new_token(), monotonic()
    store.must_be_open()
    if secret == UNGUARDED:
        return leases.unguarded(call, token, now, _NOT_GUARDED)
    try:
        now, engine = store.opened()
        must_allow(engine, "renew")
        replies = store.ask(resume_request(call.key, call.options, secret, token), now)
    except Outage as outage:
        if outage.sent:
            _hand_back(leases, call, secret, token)
        return leases.unguarded(call, token, now, outage.cause)
    except DibsError:
        raise
    except BaseException:
        # Cancelled, or a signal handler raised: it may be ours, and nobody would know.
        _hand_back(leases, call, secret, token)
        raise
    outcome = read_resume(replies, call.options)
    if isinstance(outcome, Elsewhere):
        return outcome
    lease = LeaseState(call, outcome.value, now)
    lease.fence = outcome.fence
    leases.enter(lease, now)
    if monotonic() >= lease.deadline:
        try:
            leases.catch_up(lease)
        except BaseException:
            leases.drop(lease)
            _hand_back(leases, call, secret, token)
            raise
    return lease


def _hand_back(leases: Leases, call: HoldCall, secret: bytes, token: bytes) -> None:
    leases.store.transport.post(hand_back_request(call.key, call.options, secret, token))


def resume_hold(leases: Leases, call: HoldCall, secret: bytes) -> LeaseState:
    """Continue a lease. LeaseLost: it expired, or was released or taken over."""
    outcome = resume(leases, call, secret)
    if isinstance(outcome, Elsewhere):
        leases.events.emit("lost", call.name, cause=NOT_OURS)
        raise LeaseLost(call.text, None, call.name)
    if leases.events.listeners:
        leases.events.emit("resumed", call.name, guarded=outcome.guarded, fence=outcome.fence)
    return outcome
