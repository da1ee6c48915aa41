"""Submitted twice, done once: a claim, and the `with` block around it."""

# pyright: reportPrivateUsage=false
# A claim and its lease are one thing in two files: what the claim touches is not for users.

import contextlib
from time import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from .. import claims
from .._core.capabilities import must_allow
from .._core.causes import cause_for
from .._core.lease import Holding, Plan, milliseconds
from .._core.once import (
    Met,
    Replay,
    Terms,
    done_record,
    framed,
    judge,
    met,
    read_claim,
    running_record,
)
from .._tasks import monotonic
from ..errors import Duplicate, Mismatch, UsageError
from .lease import AsyncLease

if TYPE_CHECKING:
    from .ledger import AsyncLedger

V = TypeVar("V")


class AsyncClaim:
    """A submission that is yours to do, or (`replayed`) one that was done: see `result`.

    It is kept alive while you work, however long that takes. What it leaves behind is decided by
    `after` where the block ends well, by `on_error` where it raises.
    """

    __slots__ = ("__weakref__", "_lease", "_plan", "_released", "_terms", "replayed", "result")

    def __init__(self, plan: Plan, terms: Terms, lease: AsyncLease | None, result: Any) -> None:
        self.replayed = lease is None
        """True: it was done before, and `result` is what came of it. Do not do it again."""
        self.result: Any = result
        """What was handed to `complete`, now or by the first one."""
        self._plan = plan
        self._terms = terms
        self._lease = lease
        self._released = False
        if lease is not None:
            claims.opened(self)

    @property
    def key(self) -> str:
        """What is called dibs on."""
        return self._plan.text

    @property
    def name(self) -> str:
        """What events and sentences call the key."""
        return self._plan.name

    @property
    def guarded(self) -> bool:
        """False: the store was out and the policy let you through; nobody else is kept out."""
        return self._lease is None or self._lease.guarded

    @property
    def lost(self) -> bool:
        """True: it could not be kept alive; somebody else may be doing the same."""
        return self._lease is not None and self._lease.lost

    @property
    def is_open(self) -> bool:
        """True: it is running."""
        return self._lease is not None and not self._lease._is_over

    def complete(self, value: V) -> V:
        """Say what came of it; *value* is handed back. It is kept at the end of the block."""
        if self.replayed:
            raise UsageError("this claim is a replay: it was completed by somebody else")
        self.result = value
        self._released = False
        return value

    def release(self) -> None:
        """Leave nothing behind at the end of the block: whoever submits it next may do it."""
        self._released = True

    async def finish(self) -> bool:
        """End it now, as the end of the block would. False: it was over, or lost, or unguarded.

        UsageError: the result cannot be kept; duplicates are refused all the same.
        """
        if not self.is_open:
            return False
        if self._released or self._terms.after == "release":
            return await self._end(b"")
        if self._terms.after == "hold" or self.result is _NOTHING:
            return await self._leave(b"")
        try:
            result = framed(self._terms, self.result, time(), self._lasted)
        except BaseException:  # an interrupted one as well: it was done, and must not be done again
            await self._leave(b"")
            raise
        return await self._leave(result)

    async def fail(self) -> bool:
        """End it now, as an exception would. False: it was over, or lost, or unguarded."""
        if not self.is_open:
            return False
        if self._released or self._terms.on_error == "release":
            return await self._end(b"")
        return await self._leave(b"")

    @property
    def _lasted(self) -> float:
        assert self._lease is not None
        return monotonic() - self._lease._since

    async def _leave(self, result: bytes) -> bool:
        """The key stays taken for the rest of the window; where that is over, nothing stays."""
        assert self._lease is not None
        rest = self._terms.window - self._lasted
        if rest <= 0:
            return await self._end(b"")
        return await self._end(done_record(self._lease._token, result), milliseconds(rest))

    async def _end(self, left: bytes, left_ms: int = 0) -> bool:
        lease = self._lease
        assert lease is not None
        if lease._ledger.is_closed:
            self.leak("closed")
            return False
        claims.closed(self)
        ended = await lease._end("completed" if left else "released", left, left_ms)
        if lease._is_undelivered:
            cause = cause_for("outage")
            lease._ledger.tell("leaked", self.name, held=self._lasted, cause=cause)
        return ended

    def leak(self, cause: str) -> None:
        """Stop keeping it alive: its key is free when its lease runs out. *cause*: a code."""
        claims.closed(self)
        lease = self._lease
        if self.is_open and lease is not None and lease._ledger.owns(lease):
            held = lease._let_go()
            lease._ledger.tell("leaked", self.name, held=held, cause=cause_for(cause))

    def __del__(self) -> None:
        # Nobody can end it any more. At the very end of the program there may be nobody to tell.
        # Listeners are told later: this runs wherever garbage is collected, also inside a listener
        # that holds a lock.
        lease = self._lease
        if lease is None:
            return
        with contextlib.suppress(Exception):
            claims.closed(self)
            if self.is_open and lease._ledger.owns(lease):
                lease._ledger.dropped.append((self.name, lease._let_go()))

    def __repr__(self) -> str:
        if self._lease is None:
            state = "replayed"
        else:
            state = "lost" if self.lost else "running" if self.is_open else "over"
        guarded = "" if self.guarded else ", unguarded"
        return f"<{type(self).__name__} {self.name!r}: {state}{guarded}>"


class _Nothing:
    def __repr__(self) -> str:
        return "nothing yet"


_NOTHING: Any = _Nothing()
_IN_USE = "this claim is in use already; call claim() for each with block"


async def take_claim(
    ledger: "AsyncLedger", plan: Plan, terms: Terms, fingerprint: bytes
) -> AsyncClaim:
    """A claim, ours or replayed. Duplicate, Mismatch: somebody was first. Unavailable: policy.

    With `plan.wait` a duplicate of one that runs waits for its end: it is replayed, or takes over.
    """
    since = monotonic()
    outcome = await _ask(ledger, plan, terms, fingerprint)
    if type(outcome) is Duplicate and plan.wait and outcome.state == "running":
        outcome = await _wait(ledger, plan, terms, fingerprint, outcome)
    waited = monotonic() - since if plan.wait else None
    if isinstance(outcome, AsyncLease):
        await _check_end(ledger, terms, outcome)
        return _taken(ledger, plan, terms, outcome, waited)
    if isinstance(outcome, Replay):
        ledger.tell("replayed", plan.name, waited=waited)
        return AsyncClaim(plan, terms, None, outcome.value)
    if isinstance(outcome, Duplicate):
        facts: dict[str, Any] = {"retry_after": outcome.retry_after, "state": outcome.state}
        ledger.tell("duplicate", plan.name, waited=waited, **facts)
    else:
        ledger.tell("mismatch", plan.name)
    raise outcome


async def _check_end(ledger: "AsyncLedger", terms: Terms, lease: AsyncLease) -> None:
    """Nothing, if the claim can be ended as *terms* say. UsageError: not here; it is released."""
    engine = ledger.link.engine
    if engine is None or not engine.refused:
        return
    leaves = terms.after != "release" or terms.on_error != "release"
    try:
        must_allow(engine, "complete" if leaves else "renew")
    except UsageError:
        await lease.release()
        raise


def _taken(
    ledger: "AsyncLedger", plan: Plan, terms: Terms, lease: AsyncLease, waited: float | None
) -> AsyncClaim:
    if lease.guarded:
        try:
            ledger.renewer.keep(lease)
        except BaseException:  # no thread to be had, or a signal handler raised
            lease._give_up()
            raise
    if ledger.listeners:
        ledger.tell("claimed", plan.name, guarded=lease.guarded, waited=waited)
    return AsyncClaim(plan, terms, lease, _NOTHING)


async def _ask(
    ledger: "AsyncLedger", plan: Plan, terms: Terms, fingerprint: bytes
) -> AsyncLease | Replay | Duplicate | Mismatch:
    """One try: a lease, or the answer to the second one."""
    known = ledger.known_record(plan.key)
    if known is not None:  # it runs in this very process: nobody needs to be asked
        found = met(*known)
    else:
        record = running_record(ledger.new_token(), fingerprint, time())
        outcome = await ledger.acquire(plan, record, read_claim)
        if isinstance(outcome, AsyncLease):
            return outcome
        # A Holding: another thread was quicker, between the two looks.
        found = Met("running", outcome.remaining) if isinstance(outcome, Holding) else outcome
    return judge(terms, plan, fingerprint, found, time())


async def _wait(
    ledger: "AsyncLedger", plan: Plan, terms: Terms, fingerprint: bytes, running: Duplicate
) -> AsyncLease | Replay | Duplicate | Mismatch:
    """What comes of it at the end of the first one, or of our patience (*running*)."""

    async def attempt(plan: Plan) -> AsyncLease | Replay | Duplicate | Mismatch | Holding:
        outcome = await _ask(ledger, plan, terms, fingerprint)
        if isinstance(outcome, Duplicate) and outcome.state == "running":
            return Holding(outcome.retry_after, None)
        return outcome

    outcome = await ledger.waiters.take(plan, attempt)
    if not isinstance(outcome, Holding):
        return outcome
    return Duplicate(plan.text, outcome.remaining, "running", running.message, plan.name)


class AsyncClaiming:
    """`async with dibs.claim(…) as claim:`; taken at the top, ended at the end."""

    __slots__ = ("_claim", "_fingerprint", "_given", "_ledger", "_plan", "_terms")

    def __init__(
        self,
        ledger: "AsyncLedger",
        plan: Plan,
        terms: Terms,
        fingerprint: bytes,
        given: AsyncClaim | None = None,
    ) -> None:
        self._ledger = ledger
        self._plan = plan
        self._terms = terms
        self._fingerprint = fingerprint
        self._given = given
        """It was taken already, for this block."""
        self._claim: AsyncClaim | None = None

    async def __aenter__(self) -> AsyncClaim:
        if self._claim is not None:
            raise UsageError(_IN_USE)
        claim, self._given = self._given, None
        if claim is None:
            claim = await take_claim(self._ledger, self._plan, self._terms, self._fingerprint)
        if self._claim is not None:  # somebody was quicker, with this very object
            claim.release()
            await claim.finish()
            raise UsageError(_IN_USE)
        self._claim = claim
        return claim

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        claim, self._claim = self._claim, None
        assert claim is not None
        if error is None:
            await claim.finish()
            return
        try:
            await claim.fail()
        except Exception as failure:
            # The body's own exception must reach the caller; this one rides along.
            error.add_note(f"dibs could not end {self._plan.name}: {failure}")
