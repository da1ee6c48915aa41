"""A lease that is held, the `with` block around it, and functions that run one at a time."""

import contextlib
import functools
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from .._core.keys import Seconds, Template, answering, expand, seconds
from .._core.lease import HoldCall, Holding, LeaseState
from .._core.options import HoldOptions
from .._tasks import Body, monotonic, must_await, result_of
from ..errors import Busy, DibsError, UsageError, duration_text
from .handover import detach, lost_error, reattach, resume_hold
from .leases import AsyncLeases

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
        """The value of the key on the server. Whoever has it can release the lease."""
        return self._state.token.decode()

    @property
    def fence(self) -> int | None:
        """A number that grows with every lease of this key; None: not requested (`fence=True`)."""
        return self._state.fence

    @property
    def guarded(self) -> bool:
        """False: Redis was unavailable and the policy let you through; nobody is excluded."""
        return self._state.guarded

    @property
    def remaining(self) -> float:
        """Seconds until it expires, by the local clock; 0.0: it has ended."""
        return 0.0 if self._state.is_over else max(self._state.deadline - monotonic(), 0.0)

    @property
    def lost(self) -> bool:
        """True: it ended before you released it; another holder may have the key. Stop writing."""
        return self._state.is_lost_at(monotonic())

    def check(self) -> None:
        """Return if you still hold the lease. LeaseLost: you do not."""
        if self.lost:
            raise lost_error(self._state)

    def extend(self, ttl: Seconds) -> Coroutine[Any, Any, bool]:
        """Extend it to *ttl* from now. False: not extended; check `lost` before you go on.

        Unavailable: Redis is unavailable and the policy is "closed". True: extended.
        """
        return must_await(self._leases.extend(self._state, seconds(ttl, "ttl")))

    def release(self) -> Coroutine[Any, Any, bool]:
        """Release the key. False: you did not hold it any more; no other holder's key is touched.

        With `at_least` the key stays taken until that time is over; the call does not wait for it.
        If Redis does not answer, the release is sent when Redis is available again, unless the
        lease has expired by then.
        """
        return self._leases.end(self._state)

    async def detach(self, *, ttl: Seconds) -> str:
        """Hand it over to another process, which continues it with `hold(key, token=…)`.

        The key stays taken for *ttl*; this process neither renews nor releases it any more, unless
        the block ends by an exception before another process has continued it. Returns the token.
        LeaseLost: it had ended. Unavailable: Redis is unavailable and the policy is "closed".
        """
        return await detach(self._leases, self._state, "hold", seconds(ttl, "ttl"))

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
    """A lease that is kept alive – as long as anybody but dibs itself refers to it."""

    __slots__ = ("_was_lost",)

    def __init__(self, leases: AsyncLeases, state: LeaseState) -> None:
        super().__init__(leases, state)
        self._was_lost = False

    @property
    def lost(self) -> bool:
        """True: it ended before you released it; another holder may have the key. Stop writing.

        It stays lost, also where a renewal that was under way at its deadline is confirmed: you
        may have stopped.
        """
        self._was_lost = self._was_lost or self._state.is_lost_at(monotonic())
        return self._was_lost

    def __del__(self) -> None:
        # Nobody can release it any more. Listeners get it later: this runs wherever garbage is
        # collected, also inside a listener that holds a lock.
        state = self._state
        if state.is_over or state.is_lost:
            return
        with contextlib.suppress(Exception):
            if self._leases.owns(state):
                dropped = (state.call.name, self._leases.drop(state))
                self._leases.events.dropped.append(dropped)


def busy_error(leases: AsyncLeases, call: HoldCall, holding: Holding) -> Busy:
    """The error for a caller whose key another holder has."""
    is_here = leases.held_here(call.key) is not None
    return Busy(call.text, holding.remaining, holding.holder, call.name, is_here)


class AsyncHold:
    """`async with dibs.hold(…) as lease:`; taken at the top, released at the end."""

    __slots__ = ("_body", "_call", "_given", "_lease", "_leases", "_secret", "_state")

    def __init__(
        self,
        leases: AsyncLeases,
        call: HoldCall,
        given: LeaseState | None = None,
        secret: bytes | None = None,
    ) -> None:
        self._leases = leases
        self._call = call
        self._given = given
        """It was taken already, for this block."""
        self._secret = secret
        """It was taken by another process, which has detached it."""
        self._state: LeaseState | None = None
        self._body: Body | None = None

    async def take(self) -> Holding | None:
        """Take it before the block begins. None: it is taken; or else who has it."""
        since = monotonic()
        taken = await self._leases.take(self._call)
        if self._leases.events.wants_holds:
            self._leases.events.taken(self._call, taken, since)
        if isinstance(taken, Holding):
            return taken
        self._given = taken
        return None

    async def __aenter__(self) -> AsyncLease:
        leases, call = self._leases, self._call
        if self._secret is not None:
            taken = await resume_hold(leases, call, self._secret)
        elif self._given is not None:
            taken = self._given
        else:
            is_wanted = leases.events.wants_holds
            since = monotonic() if is_wanted else 0.0
            taken = await leases.take(call)
            if is_wanted:
                leases.events.taken(call, taken, since)
        if isinstance(taken, Holding):
            raise busy_error(leases, call, taken)
        if self._state is not None:
            await leases.end(taken)
            raise UsageError("this hold is already in use; call hold() for each with block")
        self._state = taken
        if not call.options.renew or not taken.guarded:
            return AsyncLease(leases, taken)
        # Referred to here, because a block may not care for its lease. Made before it is renewed:
        # if a signal handler raises, it is collected, and ends that.
        lease = self._lease = AsyncRenewedLease(leases, taken)
        self._keep_alive(taken)
        return lease

    def _keep_alive(self, state: LeaseState) -> None:
        """Have the lease renewed, and the body stopped when it is lost all the same."""
        self._body = state.body = Body(self._leases.lose, state, self._leases.deadlines)
        try:
            state.body.stop_at(state.deadline)
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
        if (
            error is None
            and self._call.options.on_late == "ignore"
            and (body is None or (state.successor is None and not body.end()))
        ):
            self._body = state.body = None
            await self._leases.end(state)
        else:
            await self._leave(state, error)

    async def _leave(self, state: LeaseState, error: BaseException | None) -> None:
        body, self._body = self._body, None
        if error is not None and state.is_detached:
            reattach(self._leases, state)  # whoever was to continue it may never get its token
        if body is not None and await body.leave(error):
            with contextlib.suppress(DibsError):
                await self._leases.end(state)
            raise lost_error(state) from error
        try:
            await self._leases.end(state)
        except Exception as failure:
            if error is None:
                raise
            # The body's own exception must reach the caller; this one is added as a note.
            error.add_note(f"dibs could not release {state.call.name}: {failure}")
        finally:
            if body is not None:
                state.body = None
                body.resume()
        is_checked = error is None and state.call.options.on_late == "raise"
        if is_checked and state.is_lost_at(monotonic()):
            raise lost_error(state)


def exclusive(
    function: Callable[P, Coroutine[Any, Any, T]],
    leases: AsyncLeases,
    namespace: str,
    template: str,
    options: HoldOptions,
    busy: Callable[..., Any] | None,
    new_hold: Callable[..., AsyncHold],
) -> Callable[P, Coroutine[Any, Any, T]]:
    """*function*, held at each call. UsageError: it lacks a field of *template*."""
    key_of = Template(template, function)
    answer = None if busy is None else answering(busy, function, "busy")

    @functools.wraps(function)
    async def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        key = key_of(args, kwargs)
        call = HoldCall(expand(namespace, key), key, template, options)
        hold = new_hold(leases, call)
        refusal = await hold.take()
        if refusal is None:
            async with hold:
                return await function(*args, **kwargs)
        error = busy_error(leases, call, refusal)
        if answer is None:
            raise error
        return await result_of(answer(error, args, kwargs))

    return guarded
