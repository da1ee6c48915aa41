"""Claiming a submission, the `with` block around it, and functions whose calls are claimed."""

import functools
import inspect
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

from .. import claims
from .._core.capabilities import must_allow
from .._core.done import Refused
from .._core.fingerprint import fingerprint
from .._core.handover import UNGUARDED, Elsewhere
from .._core.keys import Fields, Template, answering, expand
from .._core.lease import HoldCall, Holding, LeaseState
from .._core.once import (
    NO_PAYLOAD,
    ExistingClaim,
    Replay,
    answer_duplicate,
    read_claim,
    read_record,
    running_record,
    since_in,
)
from .._core.options import ClaimOptions, HoldOptions
from .._system import time
from .._tasks import monotonic, result_of
from ..errors import Duplicate, LeaseLost, Mismatch, UsageError
from .claim import NOTHING, AsyncClaim, R
from .handover import resume
from .leases import NOT_OURS, AsyncLeases
from .within import AsyncWithin

P = ParamSpec("P")
T = TypeVar("T")
Outcome = LeaseState | Replay | Duplicate | Mismatch | LeaseLost

_IN_USE = "this claim is already in use; call claim() for each with block"


class Submission(NamedTuple):
    """What one call of `claim` or `once` submits."""

    call: HoldCall
    options: ClaimOptions
    seen: bytes
    """The fingerprint of the payload."""
    note: bytes = b""
    secret: bytes | None = None
    """It was claimed by another process, which has detached it."""


async def take_claim(leases: AsyncLeases, submission: Submission) -> AsyncClaim[Any]:
    """A claim, ours or replayed. Duplicate, Mismatch: somebody was first. Unavailable: policy.

    With `wait` a duplicate of one that runs waits for its end: it is replayed, or takes over.
    LeaseLost: it was to be continued, and its key is free.
    """
    call, options, *_ = submission
    events, since = leases.events, monotonic()
    outcome = await _ask(leases, submission)
    if type(outcome) is Duplicate and options.wait and outcome.state == "running":
        outcome = await _wait(leases, submission, outcome)
    waited = monotonic() - since if options.wait else None
    if isinstance(outcome, LeaseState):
        await _check_end(leases, options, outcome)
        return _taken(leases, submission, outcome, waited)
    if isinstance(outcome, Replay):
        events.emit("replayed", call.name, waited=waited)
        return AsyncClaim(leases, call, options, None, outcome.value)
    if isinstance(outcome, Duplicate):
        facts: dict[str, Any] = {"retry_after": outcome.retry_after, "state": outcome.state}
        events.emit("duplicate", call.name, waited=waited, **facts)
    elif isinstance(outcome, LeaseLost):
        events.emit("lost", call.name, cause=NOT_OURS)
    else:
        events.emit("mismatch", call.name)
    raise outcome


async def _check_end(leases: AsyncLeases, options: ClaimOptions, lease: LeaseState) -> None:
    """Nothing, if the claim can be ended as it should be. UsageError: it cannot; it is released."""
    engine = leases.store.transport.engine
    if engine is None or not engine.refused:
        return
    leaves = options.after != "release" or options.on_error != "release"
    try:
        must_allow(engine, "complete" if leaves else "renew")
    except UsageError:
        await leases.end(lease)
        raise


def _taken(
    leases: AsyncLeases, submission: Submission, lease: LeaseState, waited: float | None
) -> AsyncClaim[Any]:
    call, options, *_ = submission
    # Made before its lease is renewed: if a signal handler raises, it is collected, and ends that.
    secret = None if lease.guarded or submission.secret == UNGUARDED else submission.secret
    claim = AsyncClaim(leases, call, options, lease, NOTHING, secret)
    try:
        if lease.guarded:
            leases.renewer.keep(lease)
        if leases.events.listeners:
            kind = "claimed" if submission.secret is None else "resumed"
            leases.events.emit(kind, call.name, guarded=lease.guarded, waited=waited)
    except BaseException:  # no thread to be had, or a signal handler raised
        claims.closed(claim)
        leases.release_unused(lease)
        raise
    return claim


async def _ask(leases: AsyncLeases, submission: Submission) -> Outcome:
    """One try: a lease, or the answer to the second one."""
    call, options, seen, note, secret = submission
    if secret is not None:
        return await _resume(leases, call, options, secret)
    known = leases.known_record(call.key)
    if known is not None:  # it runs in this very process: nobody needs to be asked
        found = read_record(*known)
    else:
        record = running_record(leases.new_token(), seen, time(), note)
        outcome = await leases.acquire(call, record, read_claim)
        if isinstance(outcome, LeaseState):
            return outcome
        if isinstance(outcome, Holding):  # another thread was quicker, between the two looks
            found = ExistingClaim("running", outcome.remaining, note=outcome.note)
        else:
            found = outcome
    return answer_duplicate(options, call, seen, found)


async def _resume(
    leases: AsyncLeases, call: HoldCall, options: ClaimOptions, secret: bytes
) -> Outcome:
    """Continue what was detached. What is in its place is answered as to any duplicate."""
    outcome = await resume(leases, call, secret)
    if isinstance(outcome, Elsewhere):
        if outcome.value is None:
            return LeaseLost(call.text, None, call.name)
        found = read_record(outcome.value, outcome.left)
        return answer_duplicate(options, call, NO_PAYLOAD, found)
    since = since_in(outcome.token)
    outcome.elsewhere = max(time() - since, 0.0) if since else 0.0
    return outcome


async def _wait(leases: AsyncLeases, submission: Submission, running: Duplicate) -> Outcome:
    """The outcome when the first one has ended, or when `wait` is over (*running*)."""

    async def attempt(call: HoldCall) -> Outcome | Holding:
        outcome = await _ask(leases, submission)
        if isinstance(outcome, Duplicate) and outcome.state == "running":
            return Holding(outcome.retry_after, None, outcome.note)
        return outcome

    call = submission.call
    outcome = await leases.waiters.take(call, attempt)
    if not isinstance(outcome, Holding):
        return outcome
    said = (running.message, call.name, outcome.note)
    return Duplicate(call.text, outcome.remaining, "running", *said)


class AsyncClaiming(Generic[R]):
    """`async with dibs.claim(…) as claim:`; taken at the top, ended at the end."""

    __slots__ = ("_claim", "_given", "_leases", "_submission")

    def __init__(self, leases: AsyncLeases, submission: Submission) -> None:
        self._leases = leases
        self._submission = submission
        self._given: AsyncClaim[R] | None = None
        """It was taken already, for this block."""
        self._claim: AsyncClaim[R] | None = None

    async def take(self) -> AsyncClaim[R]:
        """Claim before the block begins; raises what entering it raises."""
        self._given = claim = await take_claim(self._leases, self._submission)
        return claim

    async def __aenter__(self) -> AsyncClaim[R]:
        if self._claim is not None:
            raise UsageError(_IN_USE)
        claim = self._given or await self.take()
        self._given = None
        if self._claim is not None:  # another task or thread entered the same object first
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
            await claim.end("returned")
            return
        try:
            await claim.fail()
        except Exception as failure:
            # The body's own exception must reach the caller; this one is added as a note.
            error.add_note(f"dibs could not end the claim on {claim.name}: {failure}")


def once(
    function: Callable[P, Coroutine[Any, Any, T]],
    leases: AsyncLeases,
    namespace: str,
    template: str,
    options: ClaimOptions,
    holding: HoldOptions,
    payload: tuple[str, ...],
    duplicate: Callable[..., Any] | None,
    new_claiming: Callable[..., AsyncClaiming[Any]],
    within: AsyncWithin | None,
) -> Callable[P, Coroutine[Any, Any, T]]:
    """*function*, claimed at each call. UsageError: it lacks a field of *template* or *payload*.

    *holding*: how the key is held while the function runs. *within*: opens the transaction in which
    it runs.
    """
    shown = function if within is None else within.shown(function)
    key_of = Template(template, shown)
    fields = Fields(payload, shown) if payload else None
    answer = None if duplicate is None else answering(duplicate, shown, "duplicate")

    @functools.wraps(shown)
    async def claimed(*args: P.args, **kwargs: P.kwargs) -> T:
        key = key_of(args, kwargs)
        call = HoldCall(expand(namespace, key), key, template, holding)
        seen = NO_PAYLOAD if fields is None else fingerprint(fields(args, kwargs))
        claiming, since = new_claiming(leases, Submission(call, options, seen)), monotonic()
        try:
            claim = await claiming.take()
        except Duplicate as error:  # one that the function itself raises is not answered
            if answer is None:
                raise
            return await result_of(answer(error, args, kwargs))
        async with claiming:
            if claim.replayed:
                return claim.result
            if within is None:
                result: Any = await function(*args, **kwargs)
                claim.complete(result)
                return result
            wait = since + options.wait - monotonic()
            result = await within.call(claim, claim.recording(), function, args, kwargs, wait)
            if not isinstance(result, Refused):
                return result
        if answer is not None and isinstance(result.error, Duplicate):
            return await result_of(answer(result.error, args, kwargs))
        raise result.error

    if within is not None:
        claimed.__signature__ = inspect.signature(shown)  # type: ignore[attr-defined]
    return claimed
