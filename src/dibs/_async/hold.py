"""A lease that is held: extend, release, detach, and continue in another process."""

import contextlib
import functools
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Generic, Literal, ParamSpec, TypeVar

from .._core.capabilities import must_allow
from .._core.causes import cause_for
from .._core.connection import Outage
from .._core.keys import Seconds, Template, answering, expand, milliseconds, seconds
from .._core.lease import (
    UNGUARDED,
    HeldElsewhere,
    HoldCall,
    Holding,
    LeaseState,
    Verb,
    detached_permit,
    extend_request,
    give_permit_request,
    hand_back_request,
    keep_permit_request,
    lend,
    read_resume,
    resume_request,
    token_for,
    with_secret_of,
)
from .._core.lease_value import secret_of
from .._core.options import HoldOptions
from .._core.unit_of_work import AT_ONCE, Unit, current, use
from .._tasks import Body, maybe_await, monotonic, must_await
from ..errors import Busy, DibsError, LeaseLost, Unavailable, UsageError, duration_text
from .entered import AsyncEntered
from .lease_table import NOT_OURS, AsyncLeases
from .unit_of_work import lost_error, release, take, unit_until, wait_for_unit

_NOT_GUARDED = cause_for("handed_over")


def released_error(state: LeaseState) -> LeaseLost:
    """Return the error for a caller that goes on with a lease after its release."""
    return LeaseLost(state.call.text, state.fence, state.call.name, "released")


# ---- detaching


async def detach_lease(leases: AsyncLeases, lease: LeaseState, verb: Verb, ttl: float) -> str:
    """Keep the key for *ttl* without renewing it; return the token to continue it with.

    LeaseLost: it has ended. Unavailable: the store is out and the policy is "closed". One that was
    lent raises neither: its token may have been used.
    """
    if lease.is_lent:
        return await _let_go(leases, lease, verb, ttl)
    if lease.is_detached:
        raise UsageError(f"this {verb} was detached before")
    if lease.is_over and not lease.is_lost:
        raise UsageError(f"this {verb} has ended; detach it before it ends")
    if lease.is_lost_at(monotonic()):
        raise lost_error(lease)
    secret = UNGUARDED
    if lease.guarded:
        is_permit = lease.call.options.limit is not None
        secret = await (_give_permit if is_permit else _hand_over)(leases, lease, ttl)
    held = leases.drop(lease)
    lease.is_detached = True
    leases.waiters.wake_next(lease.call.key)
    leases.events.emit("detached", lease.call.name, held=held, guarded=lease.guarded)
    return token_for(verb, secret)


async def _hand_over(leases: AsyncLeases, lease: LeaseState, ttl: float) -> bytes:
    """Give the key a secret that is not renewed. With "open" an outage is no error."""
    token = leases.new_token()
    try:
        await leases.renewer.confirm(lease)
        value, until = with_secret_of(token, lease.token), lease.deadline
        if not await leases.renewer.change(lease, value, ttl, until):
            raise lost_error(lease)
    except Outage as outage:
        call = lease.call
        leases.events.emit("outage", call.name, cause=outage.cause)
        if call.options.on_outage == "closed":
            raise Unavailable(outage.cause, call.name) from None
    return secret_of(token)


async def _give_permit(leases: AsyncLeases, lease: LeaseState, ttl: float) -> bytes:
    """Return the same for a permit."""
    lease.is_over = True  # or a renewal would look for a token that it does not have any more
    try:
        return await _rename_permit(leases, lease, ttl)
    except BaseException:
        lease.is_over = False
        if lease.call.options.renew:
            leases.renewer.keep(lease)
        raise


async def _rename_permit(leases: AsyncLeases, lease: LeaseState, ttl: float) -> bytes:
    call, secret = lease.call, secret_of(leases.new_token())
    is_closed = call.options.on_outage == "closed"
    until = 0.0 if is_closed else lease.deadline
    try:
        now, _ = await leases.store.opened()
        request = give_permit_request(lease, secret, milliseconds(ttl), until)
        reply = await leases.store.ask(request, now)
        outcome = leases.store.read(read_resume, reply, call.options)
    except Outage as outage:
        leases.events.emit("outage", call.name, cause=outage.cause)
        if is_closed:
            leases.store.transport.post(keep_permit_request(lease, secret))
            raise Unavailable(outage.cause, call.name) from None
    except DibsError:
        raise
    except BaseException:  # cancelled: it stays ours
        leases.store.transport.post(keep_permit_request(lease, secret))
        raise
    else:
        if isinstance(outcome, HeldElsewhere):
            raise lost_error(lease)
    lease.token = detached_permit(secret)
    return secret


async def _let_go(leases: AsyncLeases, lease: LeaseState, verb: Verb, ttl: float) -> str:
    """The token of a lent lease is delivered: keep the key for *ttl*, unless it is continued."""
    token, call = lend(lease, verb), lease.call
    held = leases.drop(lease)
    lease.is_detached = False  # if this is cancelled, the key must not be released
    try:
        if lease.guarded and not lease.is_lost:
            await leases.renewer.confirm(lease)
            now, engine = await leases.store.opened()
            request = extend_request(engine, call.key, lease.token, milliseconds(ttl))
            await leases.store.ask(request, now)
    except Outage as outage:  # the key is free after one lease; it is claimed again where it runs
        leases.events.emit("outage", call.name, cause=outage.cause)
    lease.is_detached = True
    leases.waiters.wake_next(call.key)
    leases.events.emit("detached", call.name, held=held, guarded=lease.guarded)
    return token


def reattach(leases: AsyncLeases, lease: LeaseState) -> bool:
    """Make a detached lease ours again, to end it: no process will continue it.

    False: it was not detached here. One that is continued already has another secret, so that
    ending it has no effect.
    """
    if not lease.is_detached or not leases.owns(lease):
        return False
    lease.is_detached = lease.is_over = False
    return True


# ---- continuing


async def resume(leases: AsyncLeases, call: HoldCall, secret: bytes) -> LeaseState | HeldElsewhere:
    """Continue what was detached with *secret*; or what the key has instead.

    Unavailable: the store is out and the policy is "closed".
    """
    store, token, now = leases.store, leases.new_token(), monotonic()
    store.enter()
    if secret == UNGUARDED:
        return leases.unguarded(call, token, now, _NOT_GUARDED)
    try:
        now, engine = await store.opened()
        must_allow(engine, "renew" if call.options.limit is None else "limit")
        replies = await store.ask(resume_request(call.key, call.options, secret, token), now)
        outcome = store.read(read_resume, replies, call.options)
    except Outage as outage:
        if outage.sent:
            _hand_back(leases, call, secret, token)
        return leases.unguarded(call, token, now, outage.cause)
    except DibsError:
        raise
    except BaseException:
        # Cancelled, or a signal handler raised: it may be ours, and would not be released.
        _hand_back(leases, call, secret, token)
        raise
    if isinstance(outcome, HeldElsewhere):
        return outcome
    lease = LeaseState(call, outcome.value, now)
    lease.fence = outcome.fence
    leases.enter(lease, now)
    if monotonic() >= lease.deadline:
        try:
            is_ours = await leases.catch_up(lease)
        except BaseException:
            leases.drop(lease)
            _hand_back(leases, call, secret, token)
            raise
        if not is_ours:
            leases.lose(lease, NOT_OURS)
    return lease


def _hand_back(leases: AsyncLeases, call: HoldCall, secret: bytes, token: bytes) -> None:
    leases.store.transport.post(hand_back_request(call.key, call.options, secret, token))


async def resume_hold(leases: AsyncLeases, call: HoldCall, secret: bytes) -> LeaseState:
    """Continue a lease. Raises LeaseLost if it expired, or was released or taken over."""
    outcome = await resume(leases, call, secret)
    if isinstance(outcome, HeldElsewhere):
        leases.events.emit("lost", call.name, cause=NOT_OURS)
        raise LeaseLost(call.text, None, call.name)
    if leases.events.listeners:
        leases.events.emit("resumed", call.name, guarded=outcome.guarded, fence=outcome.fence)
    return outcome


P = ParamSpec("P")
T = TypeVar("T")


class AsyncLease:
    """A key that you hold until `remaining` is 0, or until you release it.

    The local clock decides whether you still hold it: the lease expires one ttl after it was
    requested, unless a renewal was confirmed, whether or not the server answers.
    """

    __slots__ = ("__weakref__", "_leases", "_state")

    def __init__(self, leases: AsyncLeases, state: LeaseState) -> None:
        self._leases = leases
        self._state = state

    @property
    def key(self) -> str:
        """The key as you wrote it, without the namespace."""
        return self._state.call.text

    @property
    def token(self) -> str:
        """The value of the key on the server. A process that has it can release the lease."""
        return self._state.token.decode()

    @property
    def fence(self) -> int | None:
        """A number that grows with every lease of this key, or None without `fence=True`."""
        return self._state.fence

    @property
    def guarded(self) -> bool:
        """Return whether Redis granted it; if not, other holders are not excluded."""
        return self._state.guarded

    @property
    def remaining(self) -> float:
        """Seconds until it expires, by the local clock; 0.0 if it has ended."""
        if self._state.is_over or self.lost:
            return 0.0
        return max(self._state.deadline - monotonic(), 0.0)

    @property
    def lost(self) -> bool:
        """Return whether you do not hold it any more, so stop writing.

        It expired or was taken over, or its block has ended, or you released it: `check()` says
        which.
        """
        return self._state.is_over or self._has_expired()

    def _has_expired(self) -> bool:
        """Return whether it ended before it was released."""
        return self._state.is_lost_at(monotonic())

    def check(self) -> None:
        """Return if you still hold the lease.

        Raises:
            LeaseLost: You do not: it is lost, or was released.
        """
        if self._has_expired():
            raise lost_error(self._state)
        if self._state.is_over:
            raise released_error(self._state)

    def extend(self, ttl: Seconds) -> Coroutine[Any, Any, bool]:
        """Keep it for at least *ttl* from now; it is never shortened.

        Returns:
            False if it was not extended; call `check()` before you go on.

        Raises:
            Unavailable: Redis is unavailable and the policy of its `hold` is "closed". You hold
                the lease until `remaining` is 0 all the same.
        """
        return must_await(self._leases.extend(self._state, seconds(ttl, "ttl")))

    def release(self) -> Coroutine[Any, Any, bool]:
        """Release the key.

        With `at_least` the key stays taken until that time is over; the call does not wait for it.
        If Redis does not answer, the release is sent when Redis is available again, unless the
        lease has expired by then. Inside a transaction that dibs knows, it is released after that.

        Returns:
            False if you no longer held it. The key of another holder is not touched.
        """
        if use.has_begun:
            return must_await(release(self._leases, self._state))
        return must_await(self._leases.end(self._state))

    async def detach(self, *, ttl: Seconds) -> str:
        """Hand it over to another process, which continues it with `hold(key, token=…)`.

        The key stays taken for *ttl*. This process no longer renews or releases it, unless the
        block ends by an exception before another process has continued it.

        Returns:
            The token.

        Raises:
            LeaseLost: It had ended.
            Unavailable: Redis is unavailable and the policy is "closed".
        """
        return await detach_lease(self._leases, self._state, "hold", seconds(ttl, "ttl"))

    def __repr__(self) -> str:
        state = self._state
        if state.is_over:
            shown = "lost" if state.is_lost else "detached" if state.is_detached else "released"
        else:
            shown = "lost" if self.lost else f"ends in {duration_text(self.remaining)}"
        guarded = "" if state.guarded else ", unguarded"
        fence = "" if state.fence is None else f", fence {state.fence}"
        return f"<AsyncLease {state.call.name!r}: {shown}{fence}{guarded}>"


class AsyncRenewedLease(AsyncLease):
    """A lease that is renewed as long as the caller refers to it."""

    __slots__ = ("_was_lost",)

    def __init__(self, leases: AsyncLeases, state: LeaseState) -> None:
        self._leases = leases
        self._state = state
        self._was_lost = False

    def _has_expired(self) -> bool:
        """The same. It stays so where a renewal is confirmed that was under way at its deadline.

        Its holder may have stopped.
        """
        self._was_lost = self._was_lost or self._state.is_lost_at(monotonic())
        return self._was_lost

    def __del__(self) -> None:
        # It can no longer be released. Listeners get it later: this runs wherever garbage is
        # collected, also inside a listener that holds a lock.
        state = getattr(self, "_state", None)  # not there if a signal handler raised in __init__
        if state is None or state.is_over or state.is_lost:
            return
        with contextlib.suppress(Exception):
            if self._leases.owns(state):
                dropped = (state.call.name, self._leases.drop(state))
                self._leases.events.dropped.append(dropped)


def busy_error(leases: AsyncLeases, call: HoldCall, holding: Holding) -> Busy:
    """Return the error for a caller whose key another holder has."""
    is_here, options = leases.held_here(call.key) is not None, call.options
    return Busy(
        call.text, holding.remaining, holding.holder, call.name, is_here, holding.state,
        limit=options.limit, waited=options.wait,
    )  # fmt: skip


class AsyncHold(AsyncEntered):
    """`async with dibs.hold(…) as lease:`; taken at the top, released at the end."""

    __slots__ = ("_body", "_call", "_given", "_lease", "_leases", "_secret", "_state", "_until")

    _verb = "hold"
    _instead = "; try_hold() returns a lease or None, and exclusive() decorates"

    def __init__(
        self,
        leases: AsyncLeases,
        call: HoldCall,
        given: LeaseState | None = None,
        secret: bytes | None = None,
        until: Any = None,
    ) -> None:
        self._leases = leases
        self._call = call
        self._given = given
        """It was taken already, for this block."""
        self._secret = secret
        """It was taken by another process, which has detached it."""
        self._until = until
        """The transaction that is open when its block ends, or "block"; None: the one around it."""
        self._state: LeaseState | None = None
        self._body: Body | None = None
        self._lease: AsyncLease | None = None
        self._is_entered = False

    @property
    def _named(self) -> str:
        return f"of {self._call.name}"

    async def take(self) -> Holding | None:
        """Take it before the block begins. None: it is taken; or else who has it."""
        self._is_entered, since = True, monotonic()
        outcome = await self._take()
        if self._leases.events.wants_holds:
            self._leases.events.taken(self._call, outcome, since)
        if isinstance(outcome, Holding):
            return outcome
        self._given = outcome
        return None

    async def is_taken(self) -> bool:
        """Take it before the block begins. False: another holder has the key."""
        return self._secret is not None or await self.take() is None

    async def _take(self) -> LeaseState | Holding:
        """Return a lease, perhaps one that waits for the end of a transaction; or who has it."""
        if not use.has_begun:
            return await self._leases.take(self._call)
        is_given = self._until not in (None, "block")
        unit = self._unit() if is_given else current()
        return await take(self._leases, self._call, unit)

    def _unit(self) -> Unit | None:
        """Return the unit of `until`. None: no transaction is open there."""
        return unit_until(self._leases, self._until)

    async def __aenter__(self) -> AsyncLease:
        leases, call = self._leases, self._call
        self._is_entered = True
        if self._secret is not None:
            outcome = await resume_hold(leases, call, self._secret)
        elif self._given is not None:
            outcome = self._given
        else:
            is_wanted = leases.events.wants_holds
            since = monotonic() if is_wanted else 0.0
            outcome = await (self._take() if use.has_begun else leases.take(call))
            if is_wanted:
                leases.events.taken(call, outcome, since)
        if isinstance(outcome, Holding):
            raise busy_error(leases, call, outcome)
        if self._state is not None:
            await leases.end(outcome)
            raise UsageError("this hold is already in use; call hold() for each with block")
        self._state = outcome
        if self._until == "block" and outcome.home is None:
            outcome.home = AT_ONCE  # also for `lease.release()`
        if not call.options.renew or not outcome.guarded:
            return AsyncLease(leases, outcome)
        # Referred to here, because a block may not care for its lease. Made before it is renewed:
        # if a signal handler raises, it is collected, and ends that.
        lease = self._lease = AsyncRenewedLease(leases, outcome)
        self._keep_alive(outcome)
        return lease

    def or_none(self) -> "AsyncHoldOrNone[AsyncLease]":
        """Enter the block with None if another holder has the key, instead of raising Busy."""
        return AsyncHoldOrNone(self)

    def _keep_alive(self, state: LeaseState) -> None:
        """Have the lease renewed, and the body stopped when it is lost all the same."""
        self._body = state.body = Body()
        try:
            self._leases.renewer.keep(state)
        except BaseException:  # no thread to be had, or a signal handler raised
            self._state = self._body = None
            self._leases.release_unused(state)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        state, self._state = self._state, None
        assert state is not None
        body = self._body
        is_inside = use.has_begun and self._find_unit(state)
        if (
            error is None
            and not is_inside
            and self._call.options.on_late != "raise"
            and (body is None or (state.successor is None and not body.is_stopped))
        ):
            self._body = state.body = None
            await self._leases.end(state)
        else:
            await self._leave(state, error, is_inside=is_inside)

    def _find_unit(self, state: LeaseState) -> bool:
        """Return whether it ends with a transaction: that of `until`, or the one around it."""
        if self._until is not None and state.home is None:
            state.home = self._unit()
        return state.home is not AT_ONCE and (state.home is not None or current() is not None)

    async def _leave(
        self, state: LeaseState, error: BaseException | None, *, is_inside: bool
    ) -> None:
        body, self._body = self._body, None
        if error is not None and state.is_detached:
            reattach(self._leases, state)  # its token may never reach another process
        is_stopped = body is not None and await body.leave(error)
        state.body = None
        if is_stopped:
            with contextlib.suppress(DibsError):
                await self._leases.end(state)
            raise lost_error(state) from error
        try:
            if not (is_inside and wait_for_unit(self._leases, state, self._lease)):
                await self._leases.end(state)
        except Exception as failure:
            if error is None:
                raise
            # The body's own exception must reach the caller; this one is added as a note.
            error.add_note(f"dibs could not release {state.call.name}: {failure}")
        finally:
            if body is not None:
                body.resume()
        on_late = state.call.options.on_late or ("raise" if is_inside else "ignore")
        if error is None and on_late == "raise" and state.is_lost_at(monotonic()):
            raise lost_error(state)


H = TypeVar("H")


class AsyncHoldOrNone(Generic[H]):
    """`async with dibs.hold(…).or_none() as lease:` tells, in place of raising Busy."""

    __slots__ = ("_hold", "_is_held")

    def __init__(self, hold: Any) -> None:
        self._hold = hold
        self._is_held = False

    async def __aenter__(self) -> H | None:
        if not await self._hold.is_taken():
            return None
        self._is_held = True
        return await self._hold.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_held:
            await self._hold.__aexit__(kind, error, traceback)


def exclusive(
    function: Callable[P, Coroutine[Any, Any, T]],
    leases: AsyncLeases,
    namespace: str,
    template: str,
    options: HoldOptions,
    busy: Callable[..., Any] | None,
    new_hold: Callable[..., AsyncHold],
    until: Literal["block"] | None,
) -> Callable[P, Coroutine[Any, Any, T]]:
    """Return *function*, held at each call. Raises UsageError if it lacks a field of *template*."""
    key_of = Template(template, function)
    answer = None if busy is None else answering(busy, function, "busy")

    @functools.wraps(function)
    async def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        key = key_of(args, kwargs)
        call = HoldCall(expand(namespace, key), key, template, options)
        hold = new_hold(leases, call, until=until)
        refusal = await hold.take()
        if refusal is None:
            async with hold:
                return await function(*args, **kwargs)
        error = busy_error(leases, call, refusal)
        if answer is None:
            raise error
        return await maybe_await(answer(error, args, kwargs))

    return guarded
