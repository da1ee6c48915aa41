# Printed from src/dibs/_async/claim.py by tools/unasync.py – do not edit.
"""Submitted twice, done once: a claim, the `with` block around it, and functions that claim."""

import contextlib
import functools
from collections.abc import Callable
from time import time
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from .. import claims
from .._core.capabilities import must_allow
from .._core.causes import cause_for
from .._core.fingerprint import fingerprint
from .._core.keys import Fields, Template, expand, milliseconds
from .._core.lease import HoldCall, Holding, LeaseState
from .._core.once import (
    NO_PAYLOAD,
    ExistingClaim,
    Replay,
    done_record,
    framed,
    judge,
    read_claim,
    read_record,
    running_record,
)
from .._core.options import ClaimOptions, HoldOptions
from .._threads import monotonic, settle
from ..errors import Duplicate, Mismatch, UsageError
from .leases import Leases

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V")


class Claim:
    """A submission that is yours to do, or (`replayed`) one that was done: see `result`.

    It is kept alive while you work, however long that takes. What it leaves behind is decided by
    `after` where the block ends well, by `on_error` where it raises.
    """

    __slots__ = (
        "__weakref__", "_call", "_lease", "_leases", "_options", "_released", "replayed", "result",
    )  # fmt: skip

    def __init__(
        self,
        leases: Leases,
        call: HoldCall,
        options: ClaimOptions,
        lease: LeaseState | None,
        result: Any,
    ) -> None:
        self.replayed = lease is None
        """True: it was done before, and `result` is what came of it. Do not do it again."""
        self.result: Any = result
        """What was handed to `complete`, now or by the first one."""
        self._leases = leases
        self._call = call
        self._options = options
        self._lease = lease
        self._released = False
        if lease is not None:
            claims.opened(self)

    @property
    def key(self) -> str:
        """What is called dibs on."""
        return self._call.text

    @property
    def name(self) -> str:
        """What events and sentences call the key."""
        return self._call.name

    @property
    def guarded(self) -> bool:
        """False: the store was out and the policy let you through; nobody else is kept out."""
        return self._lease is None or self._lease.guarded

    @property
    def lost(self) -> bool:
        """True: it could not be kept alive; somebody else may be doing the same."""
        return self._lease is not None and self._lease.is_lost_at(monotonic())

    @property
    def is_open(self) -> bool:
        """True: it is running."""
        return self._lease is not None and not self._lease.is_over

    def complete(self, value: V) -> V:
        """Say what came of it; *value* is handed back. It is kept at the end of the block."""
        if self.replayed:
            raise UsageError("this claim is a replay: its result is already known")
        self.result = value
        self._released = False
        return value

    def release(self) -> None:
        """Leave nothing behind at the end of the block: whoever submits it next may do it."""
        self._released = True

    def finish(self) -> bool:
        """End it now, as the end of the block would. False: it was over, or lost, or unguarded.

        UsageError: the result cannot be kept; duplicates are refused all the same.
        """
        if not self.is_open:
            return False
        if self._released or self._options.after == "release":
            return self._end(b"")
        if self._options.after == "hold" or self.result is _NOTHING:
            return self._leave(b"")
        try:
            result = framed(self._options, self.result, time(), self._lasted)
        except BaseException:  # an interrupted one as well: it was done, and must not be done again
            self._leave(b"")
            raise
        return self._leave(result)

    def fail(self) -> bool:
        """End it now, as an exception would. False: it was over, or lost, or unguarded."""
        if not self.is_open:
            return False
        if self._released or self._options.on_error == "release":
            return self._end(b"")
        return self._leave(b"")

    @property
    def _lasted(self) -> float:
        assert self._lease is not None
        return monotonic() - self._lease.since

    def _leave(self, result: bytes) -> bool:
        """The key stays taken for the rest of the window; where that is over, nothing stays."""
        assert self._lease is not None
        rest = self._options.window - self._lasted
        if rest <= 0:
            return self._end(b"")
        return self._end(done_record(self._lease.token, result), milliseconds(rest))

    def _end(self, left: bytes, left_ms: int = 0) -> bool:
        lease, leases = self._lease, self._leases
        assert lease is not None
        if leases.store.is_closed:
            self.leak("closed")
            return False
        claims.closed(self)
        ended = leases.end(lease, "completed" if left else "released", left, left_ms)
        if lease.is_undelivered:
            cause = cause_for("outage")
            leases.events.emit("leaked", self.name, held=self._lasted, cause=cause)
        return ended

    def leak(self, cause: str) -> None:
        """Stop keeping it alive: its key is free when its lease runs out. *cause*: a code."""
        claims.closed(self)
        lease, leases = self._lease, self._leases
        if lease is not None and not lease.is_over and leases.owns(lease):
            held = leases.drop(lease)
            leases.events.emit("leaked", self.name, held=held, cause=cause_for(cause))

    def __del__(self) -> None:
        # Nobody can end it any more. At the very end of the program there may be nobody to tell.
        # Listeners get it later: this runs wherever garbage is collected, also inside a listener
        # that holds a lock.
        lease = getattr(self, "_lease", None)  # not there if a signal handler raised in __init__
        if lease is None:
            return
        with contextlib.suppress(Exception):
            leases = self._leases
            claims.closed(self)
            if not lease.is_over and leases.owns(lease):
                leases.events.dropped.append((self.name, leases.drop(lease)))

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
_IN_USE = "this claim is already in use; call claim() for each with block"


def take_claim(
    leases: Leases, call: HoldCall, options: ClaimOptions, seen: bytes
) -> Claim:
    """A claim, ours or replayed. Duplicate, Mismatch: somebody was first. Unavailable: policy.

    *seen*: the fingerprint of the payload. With `wait` a duplicate of one that runs waits for its
    end: it is replayed, or takes over.
    """
    events, since = leases.events, monotonic()
    outcome = _ask(leases, call, options, seen)
    if type(outcome) is Duplicate and options.wait and outcome.state == "running":
        outcome = _wait(leases, call, options, seen, outcome)
    waited = monotonic() - since if options.wait else None
    if isinstance(outcome, LeaseState):
        _check_end(leases, options, outcome)
        return _taken(leases, call, options, outcome, waited)
    if isinstance(outcome, Replay):
        events.emit("replayed", call.name, waited=waited)
        return Claim(leases, call, options, None, outcome.value)
    if isinstance(outcome, Duplicate):
        facts: dict[str, Any] = {"retry_after": outcome.retry_after, "state": outcome.state}
        events.emit("duplicate", call.name, waited=waited, **facts)
    else:
        events.emit("mismatch", call.name)
    raise outcome


def _check_end(leases: Leases, options: ClaimOptions, lease: LeaseState) -> None:
    """Nothing, if the claim can be ended as it should be. UsageError: it cannot; it is released."""
    engine = leases.store.transport.engine
    if engine is None or not engine.refused:
        return
    leaves = options.after != "release" or options.on_error != "release"
    try:
        must_allow(engine, "complete" if leaves else "renew")
    except UsageError:
        leases.end(lease)
        raise


def _taken(
    leases: Leases,
    call: HoldCall,
    options: ClaimOptions,
    lease: LeaseState,
    waited: float | None,
) -> Claim:
    # Made before its lease is renewed: if a signal handler raises, it is collected, and ends that.
    claim = Claim(leases, call, options, lease, _NOTHING)
    try:
        if lease.guarded:
            leases.renewer.keep(lease)
        if leases.events.listeners:
            leases.events.emit("claimed", call.name, guarded=lease.guarded, waited=waited)
    except BaseException:  # no thread to be had, or a signal handler raised
        claims.closed(claim)
        leases.release_unused(lease)
        raise
    return claim


def _ask(
    leases: Leases, call: HoldCall, options: ClaimOptions, seen: bytes
) -> LeaseState | Replay | Duplicate | Mismatch:
    """One try: a lease, or the answer to the second one."""
    known = leases.known_record(call.key)
    if known is not None:  # it runs in this very process: nobody needs to be asked
        found = read_record(*known)
    else:
        record = running_record(leases.new_token(), seen, time())
        outcome = leases.acquire(call, record, read_claim)
        if isinstance(outcome, LeaseState):
            return outcome
        if isinstance(outcome, Holding):  # another thread was quicker, between the two looks
            found = ExistingClaim("running", outcome.remaining)
        else:
            found = outcome
    return judge(options, call, seen, found, time())


def _wait(
    leases: Leases, call: HoldCall, options: ClaimOptions, seen: bytes, running: Duplicate
) -> LeaseState | Replay | Duplicate | Mismatch:
    """What comes of it at the end of the first one, or of our patience (*running*)."""

    def attempt(call: HoldCall) -> LeaseState | Replay | Duplicate | Mismatch | Holding:
        outcome = _ask(leases, call, options, seen)
        if isinstance(outcome, Duplicate) and outcome.state == "running":
            return Holding(outcome.retry_after, None)
        return outcome

    outcome = leases.waiters.take(call, attempt)
    if not isinstance(outcome, Holding):
        return outcome
    return Duplicate(call.text, outcome.remaining, "running", running.message, call.name)


class Claiming:
    """`with dibs.claim(…) as claim:`; taken at the top, ended at the end."""

    __slots__ = ("_call", "_claim", "_given", "_leases", "_options", "_seen")

    def __init__(
        self,
        leases: Leases,
        call: HoldCall,
        options: ClaimOptions,
        seen: bytes,
        given: Claim | None = None,
    ) -> None:
        self._leases = leases
        self._call = call
        self._options = options
        self._seen = seen
        self._given = given
        """It was taken already, for this block."""
        self._claim: Claim | None = None

    def __enter__(self) -> Claim:
        if self._claim is not None:
            raise UsageError(_IN_USE)
        claim, self._given = self._given, None
        if claim is None:
            claim = take_claim(self._leases, self._call, self._options, self._seen)
        if self._claim is not None:  # somebody was quicker, with this very object
            claim.release()
            claim.finish()
            raise UsageError(_IN_USE)
        self._claim = claim
        return claim

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        claim, self._claim = self._claim, None
        assert claim is not None
        if error is None:
            claim.finish()
            return
        try:
            claim.fail()
        except Exception as failure:
            # The body's own exception must reach the caller; this one rides along.
            error.add_note(f"dibs could not end the claim on {self._call.name}: {failure}")


def once(
    function: Callable[P, T],
    leases: Leases,
    namespace: str,
    template: str,
    options: ClaimOptions,
    holding: HoldOptions,
    payload: tuple[str, ...],
    duplicate: Callable[[Duplicate], Any] | None,
) -> Callable[P, T]:
    """*function*, claimed at each call. UsageError: it lacks a field of *template* or *payload*.

    *holding*: how the key is held while the function runs.
    """
    key_of = Template(template, function)
    fields = Fields(payload, function) if payload else None

    @functools.wraps(function)
    def claimed(*args: P.args, **kwargs: P.kwargs) -> T:
        key = key_of(args, kwargs)
        call = HoldCall(expand(namespace, key), key, template, holding)
        seen = NO_PAYLOAD if fields is None else fingerprint(fields(args, kwargs))
        try:
            claim = take_claim(leases, call, options, seen)
        except Duplicate as error:  # one that the function itself raises is not answered
            if duplicate is None:
                raise
            return settle(duplicate(error))
        with Claiming(leases, call, options, seen, claim):
            if claim.replayed:
                return claim.result
            result: Any = function(*args, **kwargs)
            claim.complete(result)
            return result

    return claimed
