"""A lease that is held, and the `with` block around it."""

import contextlib
from collections.abc import Coroutine
from types import TracebackType
from typing import TYPE_CHECKING

from .._core.breaker import Outage
from .._core.causes import cause_for
from .._core.engine import Engine
from .._core.keys import Seconds, seconds
from .._core.lease import (
    Plan,
    extend_request,
    milliseconds,
    read_extend,
    release_request,
    shorten_request,
)
from .._core.once import complete_request, read_complete
from .._core.request import REPEATED, ErrorReply, Request
from .._tasks import Body, monotonic
from ..errors import Busy, DibsError, LeaseLost, Unavailable, UsageError
from ..events import Kind

if TYPE_CHECKING:
    from .ledger import AsyncLedger

NOT_OURS = cause_for("taken")


class AsyncLease:
    """A key that is yours until `remaining` is 0, or until you release it.

    Whether it is still yours is decided by the local clock: it is lost at the moment it was asked
    for plus its ttl, unless a renewal was confirmed, whether or not the server answers.
    """

    __slots__ = (
        "__weakref__", "_asked_until", "_body", "_confirmed_at", "_deadline", "_is_lost",
        "_is_over", "_is_undelivered", "_ledger", "_plan", "_since", "_stays_until", "_token",
        "fence", "guarded",
    )  # fmt: skip

    def __init__(
        self,
        ledger: "AsyncLedger",
        plan: Plan,
        token: bytes,
        since: float,
        *,
        fence: int | None = None,
        guarded: bool = True,
    ) -> None:
        self.fence = fence
        """A number that grows with every lease of this key; None: not asked for (`fence=True`)."""
        self.guarded = guarded
        """False: the store was out and the policy let you through; nobody else is kept out."""
        self._ledger = ledger
        self._plan = plan
        self._token = token
        self._since = self._confirmed_at = since
        self._deadline = since + plan.ttl
        self._asked_until = 0.0
        self._is_over = False
        self._is_lost = False
        self._is_undelivered = False
        self._body: Body | None = None
        if plan.at_least:
            # From now on, not from the request: a slow reply must not shorten it.
            self._stays_until = monotonic() + plan.at_least

    @property
    def key(self) -> str:
        """What is called dibs on."""
        return self._plan.text

    @property
    def token(self) -> str:
        """Proof of ownership. A secret only in so far as whoever has it can release the lease."""
        return self._token.decode()

    @property
    def remaining(self) -> float:
        """Seconds until it ends by itself; 0.0: it has ended."""
        return 0.0 if self._is_over else max(self._deadline - monotonic(), 0.0)

    @property
    def lost(self) -> bool:
        """True: it ended before you released it; somebody else may hold the key. Stop writing."""
        if self._is_over or not self.guarded:
            return self._is_lost
        return self._is_lost or monotonic() >= self._deadline

    def check(self) -> None:
        """Nothing, while the lease is yours. LeaseLost: it is not."""
        if self.lost:
            raise LeaseLost(self.key, self.fence, self._plan.name)

    async def extend(self, ttl: Seconds) -> bool:
        """Keep it for *ttl* from now on. False: not kept; look at `lost` before you go on.

        Unavailable: the store is out and the policy is "closed".
        """
        ttl = seconds(ttl, "ttl")
        if self._is_over or self.lost or self._ledger.is_closed:
            return False
        now = monotonic()
        if not self.guarded:
            self._deadline = now + ttl
            return True
        try:
            return await self._extend(ttl, now)
        except Outage as outage:
            self._ledger.tell("outage", self._plan.name, cause=outage.cause)
            if self._plan.on_outage == "closed":
                raise Unavailable(outage.cause, self._plan.name) from None
            return False

    async def _extend(self, ttl: float, now: float) -> bool:
        engine = await self._ledger.link.ready(now)
        request = extend_request(engine, self._plan.key, self._token, milliseconds(ttl))
        self._asked_until = now + ttl  # a renewal that overtakes the reply must not cut it short
        try:
            is_ours = read_extend(await self._ledger.ask(request, now))
        finally:
            self._asked_until = 0.0
        if not is_ours:
            self._lose(NOT_OURS)
            return False
        self._kept_until(now + ttl)
        return True

    def _kept_until(self, deadline: float) -> None:
        """The server has confirmed that it is ours until *deadline*."""
        self._deadline = deadline
        self._confirmed_at = monotonic()
        if self._body is not None:
            self._body.stop_at(deadline)

    def _lose(self, cause: str) -> None:
        """It is lost: say so, and stop the body."""
        if self._is_lost or self._is_over:
            return
        self._is_lost = True
        self._ledger.held.forget(self, self._plan.key)
        held = monotonic() - self._since
        self._ledger.tell("lost", self._plan.name, held=held, cause=cause)
        self._ledger.waiters.wake_next(self._plan.key)
        if self._body is not None:
            self._body.stop()

    def release(self) -> Coroutine[object, object, bool]:
        """Give the key back. False: it was not yours any more; nobody's key was touched.

        With `at_least` the key stays taken until that is over; nobody needs to wait for it here.
        Where the store does not answer the release is not lost: it is delivered when the store is
        back, as long as the lease would still run.
        """
        return self._end("released")

    async def _end(self, ended: Kind, left: bytes = b"", left_ms: int = 0) -> bool:
        """It is over: the key is free, or *left* takes its place. False: it was not ours any more,
        or (`_is_undelivered`) the store was out.
        """
        if self._is_over or self._ledger.is_closed:
            return False
        ledger, plan = self._ledger, self._plan
        now = monotonic()
        self._is_lost = was_lost = self._is_lost or (self.guarded and now >= self._deadline)
        self._is_over = True
        ledger.held.forget(self, plan.key)
        if not self.guarded:
            ledger.tell(ended, plan.name, held=now - self._since, guarded=False)
            return False
        stays = plan.at_least and self._stays_until - now
        given = False
        try:
            engine = ledger.link.engine or await ledger.link.ready(now)
            if left:
                request = self._completion(engine, left, left_ms)
            elif stays > 0:
                request = self._shortening(engine, stays)
            else:
                request = release_request(engine, plan.key, self._token, self._deadline)
            reply = await ledger.link.send(request, now)
            if type(reply) is ErrorReply:
                reply = await ledger.check_reply(request, reply, now)
            if left:  # what was left has been left, even by one who had given up hope
                given = read_complete(reply, self._token, left)
            else:
                given = (reply in (1, REPEATED) or read_extend(reply)) and not was_lost
            self._is_lost = not given
            if given and stays > 0 and not left:
                ledger.held.keep(self, now + stays)
        except Outage as outage:
            ledger.tell("outage", plan.name, cause=outage.cause)
            self._is_undelivered = True
            return False
        finally:
            if ledger.waiters.queues:
                ledger.waiters.wake_next(plan.key)
        if ledger.listeners:
            kind = ended if given else "late"
            ledger.tell(kind, plan.name, held=now - self._since, guarded=True)
        return given

    def _completion(self, engine: Engine, left: bytes, ms: int) -> Request:
        return complete_request(engine, self._plan.key, self._token, left, ms, self._deadline)

    def _shortening(self, engine: Engine, stays: float) -> Request:
        ms = milliseconds(stays)
        return shorten_request(engine, self._plan.key, self._token, ms, self._deadline)

    def _let_go(self) -> float:
        """Stop keeping it: it runs out by itself. How long it was held."""
        self._is_over = True
        self._ledger.held.forget(self, self._plan.key)
        return monotonic() - self._since

    def _give_up(self) -> None:
        """Nobody can use it after all: have the key released, without waiting for it."""
        if not self._is_over:
            self._let_go()
            if self.guarded:
                self._ledger.release_later(self._plan.key, self._token)

    def _become_inherited(self) -> None:
        """In a forked child: this lease is the parent's."""
        self._is_over = self._is_lost = True

    def __repr__(self) -> str:
        if self._is_over:
            state = "lost" if self._is_lost else "released"
        else:
            state = "lost" if self.lost else f"ends in {self.remaining:.3g} s"
        guarded = "" if self.guarded else ", unguarded"
        fence = "" if self.fence is None else f", fence {self.fence}"
        return f"<AsyncLease {self._plan.name!r}: {state}{fence}{guarded}>"


class AsyncRenewedLease(AsyncLease):
    """A lease that is kept alive – as long as anybody but dibs itself refers to it."""

    __slots__ = ()

    def __del__(self) -> None:
        # Nobody can release it any more. Listeners are told later: this runs wherever garbage is
        # collected, also inside a listener that holds a lock.
        if self._is_over or self._is_lost:
            return
        with contextlib.suppress(Exception):
            if self._ledger.owns(self):
                self._ledger.dropped.append((self._plan.name, self._let_go()))


class AsyncHold:
    """`async with dibs.hold(…) as lease:`; taken at the top, released at the end."""

    __slots__ = ("_given", "_lease", "_ledger", "_plan")

    def __init__(self, ledger: "AsyncLedger", plan: Plan, given: AsyncLease | None = None) -> None:
        self._ledger = ledger
        self._plan = plan
        self._given = given
        """It was taken already, for this block."""
        self._lease: AsyncLease | None = None

    async def __aenter__(self) -> AsyncLease:
        plan = self._plan
        outcome = self._given or await self._ledger.take(plan)
        if not isinstance(outcome, AsyncLease):
            raise Busy(plan.text, outcome.remaining, outcome.holder, plan.name)
        if self._lease is not None:
            await outcome.release()
            raise UsageError("this hold is in use already; call hold() for each with block")
        self._lease = outcome
        if plan.renew and outcome.guarded:
            try:
                self._ledger.renewer.keep_with_body(outcome)
            except BaseException:  # no thread to be had, or a signal handler raised
                self._lease = None
                outcome._give_up()  # pyright: ignore[reportPrivateUsage]
                raise
        return outcome

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        lease, self._lease = self._lease, None
        assert lease is not None
        body = lease._body  # pyright: ignore[reportPrivateUsage]
        if body is not None and await body.leave(error):
            with contextlib.suppress(DibsError):
                await lease.release()
            raise LeaseLost(lease.key, lease.fence, self._plan.name) from error
        try:
            await lease.release()
        except Exception as failure:
            if error is None:
                raise
            # The body's own exception must reach the caller; this one rides along.
            error.add_note(f"dibs could not release {self._plan.name}: {failure}")
        finally:
            if body is not None:
                body.resume()
        if error is None and self._plan.on_late == "raise" and lease.lost:
            raise LeaseLost(lease.key, lease.fence, self._plan.name)
