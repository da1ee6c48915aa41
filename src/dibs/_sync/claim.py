# Generated from src/dibs/_async/claim.py by unasync.py – do not edit.
"""Claims: the claim, the `with` block around it, and functions whose calls are claimed."""

import contextlib
import logging
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .. import claims
from .._core.causes import cause_for
from .._core.claim import How, Left, encoded_note, framed, left_by, with_note
from .._core.connection import Outage
from .._core.keys import Seconds, fingerprint, milliseconds, seconds
from .._core.lease import HoldCall, LeaseState, settle_request
from .._core.lease_value import note_in
from .._core.options import ClaimOptions
from .._core.unit_of_work import Unit, current, use
from .._events import EventSink
from .._system import time
from .._threads import maybe_await, monotonic, must_await
from ..errors import UsageError
from .claim_within import ClaimWithin
from .entered import Entered
from .hold import detach_lease, reattach
from .lease_table import Leases
from .transaction import Recording

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    R = TypeVarWithDefault("R", default=Any)
else:
    R = TypeVar("R")
import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, ParamSpec, TypeVar

from .._core.capabilities import must_allow
from .._core.claim import (
    NO_PAYLOAD,
    ExistingClaim,
    Replay,
    answer_duplicate,
    answer_recorded,
    done_elsewhere,
    fingerprint_in,
    read_claim,
    read_record,
    running_record,
    seems_dead,
    since_in,
)
from .._core.done_table import Recorded, RefusedByTable
from .._core.keys import Fields, Template, answering, expand
from .._core.lease import UNGUARDED, HeldElsewhere, Holding
from .._core.options import HoldOptions
from .._core.signatures import signature_of
from ..errors import Duplicate, LeaseLost, Mismatch
from .committed_rows import Records, TableQuery
from .hold import resume
from .lease_table import NOT_OURS
from .transaction import Within, open_writers
from .unit_of_work import Ending, continued, pending, unit_of_claim

_log = logging.getLogger("dibs")


class _Nothing:
    def __repr__(self) -> str:
        return "nothing yet"


NO_RESULT: Any = _Nothing()
"""No result yet."""


class Claim(Generic[R]):
    """A submission that you process, or (`replayed`) one that was processed: see `result`.

    It is renewed while the block runs, however long that takes. At the end of the block `after`
    says what it leaves behind; if the block raises, `on_error` does.
    """

    __slots__ = (
        "__weakref__", "_call", "_is_waiting", "_lease", "_leases", "_options", "_recording",
        "_released", "_secret", "replayed", "result",
    )  # fmt: skip

    def __init__(
        self,
        leases: Leases,
        call: HoldCall,
        options: ClaimOptions,
        lease: LeaseState | None,
        result: R,
        secret: bytes | None = None,
    ) -> None:
        self.replayed = lease is None
        """True: it was processed before, and `result` is its result. Do not process it again."""
        self.result: R = result
        """The value passed to `complete`, now or by the first submission."""
        self._leases = leases
        self._call = call
        self._options = options
        self._lease = lease
        self._released = False
        self._is_waiting = False
        """It has ended, and others are told after the transaction around it."""
        self._recording: Recording | None = None
        """Its record in a database."""
        self._secret = secret
        """Of a claim that was to be continued here, and is not guarded: the key still has it."""
        if lease is not None:
            claims.opened(self)

    @property
    def key(self) -> str:
        """The key as you wrote it, without the namespace."""
        return self._call.text

    @property
    def name(self) -> str:
        """Return what events and messages call the key."""
        return self._call.name

    @property
    def guarded(self) -> bool:
        """Return whether Redis granted it; if not, duplicates are not refused."""
        return self._lease is None or self._lease.guarded

    @property
    def lost(self) -> bool:
        """Return whether it could not be renewed; the same submission may run elsewhere."""
        return self._lease is not None and self._lease.is_lost_at(monotonic())

    @property
    def is_open(self) -> bool:
        """Return whether it is running."""
        return self._lease is not None and not self._lease.is_over

    def complete(self, value: R) -> R:
        """Set the result and return *value*; it is stored at the end of the block."""
        if self.replayed:
            raise UsageError("this claim is a replay: its result is already known")
        if self._lease is not None and self._lease.is_detached:
            raise UsageError("this claim was detached: complete it where it is continued")
        self.result = value
        self._released = False
        return value

    def release(self) -> None:
        """Leave nothing behind at the end of the block: the next submission is processed."""
        self._released = True

    def finish(self) -> bool:
        """End it now, as the end of the block would.

        Returns:
            False if it had ended, or is not recorded.

        Raises:
            UsageError: The result cannot be stored; duplicates are refused all the same.
        """
        return must_await(self.end("returned"))

    def fail(self) -> bool:
        """End it now, as an exception would.

        A claim that was detached is ended as well, unless another process has continued it.

        Returns:
            False if it had ended, was lost, or is unguarded.
        """
        if self._lease is not None and self._lease.is_detached:
            reattach(self._leases, self._lease)
        return self.end("raised")

    def end(self, how: How) -> bool:
        """End it now, as its body ended; `release` goes before that. For integrations."""
        lease, options = self._lease, self._options
        if lease is None or lease.is_over or (lease.successor and not self._settled()):
            return False
        if self._recording is not None:
            claims.closed(self)
            self._settle(1)  # the database answers
            return self._recording.end(self)
        effect = self._left(how)
        if effect == "untouched" or self._is_waiting:
            return False
        result = None if effect == "nothing" else b""
        unit = unit_of_claim(lease) if use.has_begun else None
        if effect == "result":
            try:
                result = framed(options, self.result, time(), self._lasted)
            except BaseException:  # an interrupted one as well: it must not be done again
                self._end(b"", unit)
                raise
        return self._end(result, unit)

    def _left(self, how: How) -> Left:
        options = self._options
        return left_by(
            "released" if self._released else how, options.after, options.on_error,
            has_result=self.result is not NO_RESULT, work=options.work,
            lost=options.work != "submission" and self.lost,
        )  # fmt: skip

    # ---- with a database

    def within(self, transaction: Any = None, *, using: str | None = None) -> ClaimWithin:
        """Record it in *transaction*, which commits it with the work, or rolls back both.

        The block gets what an earlier transaction has recorded (`replayed`, `result`).

        Args:
            transaction: An open transaction of your database.
            using: The alias of a Django database, whose transaction is not passed.

        Raises:
            Duplicate: It runs in another transaction, or is done.
            Mismatch: It was recorded with another payload.
            UsageError: The transaction would never commit, or there is no table.
        """
        return ClaimWithin(self, self.recording(), transaction, using)

    def recording(self, row: bytes | None = None) -> Recording:
        """Record it in a database from now on, under its own key or that of *row*.

        Raises:
            UsageError: It has a record already, or has ended.
        """
        if self._lease is None or self._lease.is_over or self._recording is not None:
            raise UsageError("this claim is a replay, has ended, or is recorded already")
        self._recording = Recording(self._leases, self._lease, self._options, row)
        return self._recording

    @property
    def is_released(self) -> bool:
        """Return whether `release` was called."""
        return self._released

    def encoded(self) -> bytes | None:
        """Return the result as it is stored, or None if there is none.

        Raises:
            UsageError: The codec cannot encode it.
        """
        if self._options.after != "replay" or self._released or self.result is NO_RESULT:
            return None
        return framed(self._options, self.result, time(), self._lasted)

    # ---- while it runs

    @property
    def note(self) -> str | None:
        """The text for duplicates."""
        lease = self._lease
        return None if lease is None else note_in(lease.successor or lease.token)

    def set_note(self, note: str | None) -> bool:
        """Set the text for duplicates (`Duplicate.note`): at most 200 characters, or None.

        Returns:
            False if it had ended, was lost, is unguarded, or Redis did not answer; in the last case
            the next renewal sends the text.

        Raises:
            UsageError: Not a text, or too long.
        """
        ending, lease = encoded_note(note), self._lease
        if lease is None or not self._settled() or not lease.guarded:
            return False
        try:
            value = with_note(lease.token, ending)
            return self._leases.renewer.change(lease, value, self._call.options.ttl)
        except Outage as outage:
            self._leases.events.emit("outage", self.name, cause=outage.cause)
            return False

    def detach(self, *, ttl: Seconds) -> str:
        """Hand it over to another process, which continues it with `claim(key, token=…)`.

        The key stays claimed for *ttl*. This process no longer renews or ends it, unless the block
        ends by an exception before another process has continued it.

        Returns:
            The token.

        Raises:
            LeaseLost: It was lost.
            Unavailable: Redis is unavailable and the policy is "closed".
        """
        if self._lease is None:
            raise UsageError("this claim is a replay: there is nothing to hand over")
        token = detach_lease(self._leases, self._lease, "claim", seconds(ttl, "ttl"))
        claims.closed(self)
        return token

    def _settled(self) -> bool:
        """Return whether it is open; if so, the value of its key is known."""
        if self._lease is not None and self._lease.successor is not None and self.is_open:
            with contextlib.suppress(Outage):  # the next request meets it, and reports it
                self._leases.renewer.confirm(self._lease)
        return self.is_open

    # ---- its end

    @property
    def _lasted(self) -> float:
        assert self._lease is not None
        return monotonic() - self._lease.since + self._lease.elsewhere

    def _end(self, result: bytes | None, unit: Unit | None) -> bool:
        """None: leave nothing. Else a record, for the window from now on. *unit*: after its end."""
        lease, leases = self._lease, self._leases
        assert lease is not None
        if unit is not None and lease.guarded:
            # A rollback takes its work along, so that it ends as if it had raised.
            undone = None if self._left("raised") == "nothing" else b""
            if unit.add(Ending(leases, self, lease, result, undone)):
                claims.closed(self)
                lease.home, self._is_waiting = unit, True
                return True
        return self.end_now(result)

    def end_now(self, result: bytes | None) -> bool:
        """End it by *result*, whatever is around it; None: leave nothing."""
        lease, leases = self._lease, self._leases
        assert lease is not None
        if leases.store.is_closed:
            self.leak("closed")
            return False
        claims.closed(self)
        self._settle(1 if result is None else milliseconds(self._options.window))
        if result is None:
            ended = leases.end(lease)
        else:
            ended = leases.complete(lease, result, milliseconds(self._options.window))
        if lease.is_undelivered:
            cause = cause_for("outage")
            leases.events.emit("leaked", self.name, held=self._lasted, cause=cause)
        return ended

    def _settle(self, ms: int) -> None:
        """Free the key after *ms*: the claim was to be continued here, and could not be."""
        if self._secret is not None and self._lease is not None:
            request = settle_request(self._call.key, self._secret, self._lease.token, ms)
            self._leases.store.transport.post(request)

    def leak(self, cause: str) -> None:
        """Stop renewing it, because of *cause* (a code): the key is free when the lease expires."""
        claims.closed(self)
        lease, leases = self._lease, self._leases
        if lease is not None and not lease.is_over and leases.owns(lease):
            held = leases.drop(lease)
            leases.events.emit("leaked", self.name, held=held, cause=cause_for(cause))

    def __del__(self) -> None:
        # It can no longer be ended. When the interpreter shuts down, listeners may be gone.
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
            ended = "detached" if self._lease.is_detached else "over"
            state = "lost" if self.lost else "running" if self.is_open else ended
        guarded = "" if self.guarded else ", unguarded"
        return f"<{type(self).__name__} {self.name!r}: {state}{guarded}>"


P = ParamSpec("P")
T = TypeVar("T")
ClaimOutcome = LeaseState | Replay | Duplicate | Mismatch | LeaseLost

_IN_USE = "this claim is already in use; call claim() for each with block"


class ClaimCall(NamedTuple):
    """What one call of `claim` or `once` submits."""

    call: HoldCall
    options: ClaimOptions
    seen: bytes
    """The fingerprint of the payload."""
    note: bytes = b""
    secret: bytes | None = None
    """It was claimed by another process, which has detached it."""
    table: TableQuery | None = None
    """Knows what was committed, if the work and its record are one transaction."""


def take_claim(leases: Leases, submission: ClaimCall) -> Claim[Any]:
    """A claim, ours or replayed. Duplicate, Mismatch: another was first. Unavailable: policy.

    With `wait` a duplicate of one that runs waits for its end: it is replayed, or takes over.
    LeaseLost: it was to be continued, and its key is free.
    """
    call, options, *_ = submission
    events, since = leases.events, monotonic()
    outcome = _ask(leases, submission)
    if type(outcome) is Duplicate and options.wait and outcome.state == "running":
        outcome = _wait(leases, submission, outcome)
    waited = monotonic() - since if options.wait else None
    if isinstance(outcome, LeaseState):
        _check_end(leases, outcome)
        return _taken(leases, submission, outcome, waited)
    table = submission.table
    source = "table" if table is not None and table.has_answered else None
    if isinstance(outcome, Replay):
        events.emit("replayed", call.name, waited=waited, source=source)
        return Claim(leases, call, options, None, outcome.value)
    if isinstance(outcome, Duplicate):
        facts: dict[str, Any] = {"retry_after": outcome.retry_after, "state": outcome.state}
        events.emit("duplicate", call.name, waited=waited, source=source, **facts)
    elif isinstance(outcome, LeaseLost):
        events.emit("lost", call.name, cause=NOT_OURS)
    else:
        events.emit("mismatch", call.name, source=source)
    raise outcome


def _check_end(leases: Leases, lease: LeaseState) -> None:
    """Nothing, if the claim can be ended as it should be.

    Raises UsageError if it cannot; it is released.
    """
    engine = leases.store.transport.engine
    if engine is None or not engine.refused:
        return
    try:
        must_allow(engine, "complete")
    except UsageError:
        leases.end(lease)
        raise


def _taken(
    leases: Leases, submission: ClaimCall, lease: LeaseState, waited: float | None
) -> Claim[Any]:
    call, options, *_ = submission
    # Made before its lease is renewed: if a signal handler raises, it is collected, and ends that.
    secret = None if lease.guarded or submission.secret == UNGUARDED else submission.secret
    claim = Claim(leases, call, options, lease, NO_RESULT, secret)
    try:
        if lease.guarded:
            leases.renewer.keep(lease)
        if use.has_begun and lease.home is None:
            lease.home = current()
        if leases.events.listeners:
            kind = "claimed" if submission.secret is None else "resumed"
            leases.events.emit(kind, call.name, guarded=lease.guarded, waited=waited)
    except BaseException:  # no thread to be had, or a signal handler raised
        claims.closed(claim)
        leases.release_unused(lease)
        raise
    return claim


def _ask(leases: Leases, submission: ClaimCall) -> ClaimOutcome:
    """Return one try: a lease, or the answer to the second one."""
    call, options, seen, note, secret, table = submission
    if secret is not None:
        return _resume(leases, call, options, secret)
    if use.has_begun and isinstance(ending := pending(leases, call.key, current()), Ending):
        return _again(leases, submission, ending)
    known = leases.known_record(call.key)
    if known is not None:  # it runs in this process: no request is needed
        existing = read_record(*known)
    else:
        record = running_record(leases.new_token(), seen, time(), note)
        outcome = leases.acquire(call, record, read_claim)
        if isinstance(outcome, LeaseState):
            return outcome
        if isinstance(outcome, Holding):  # another thread was quicker, between the two looks
            existing = ExistingClaim("running", outcome.remaining, note=outcome.note)
        else:
            existing = outcome
            if table is not None and seems_dead(options, existing):
                recorded = table.ask(call.key)
                if recorded is not None:
                    return _answer_committed(leases, submission, existing, recorded)
    return answer_duplicate(options, call, seen, existing)


def _again(leases: Leases, submission: ClaimCall, ending: Ending) -> ClaimOutcome:
    """The answer to a claim whose key has ended in the same transaction, of which others wait."""
    call, options, seen, *_ = submission
    if ending.done is None:  # it leaves nothing: the key is claimed again
        lease = continued(leases, call, ending, ending.lease)
        return _ask(leases, submission) if lease is None else lease
    fingerprint = fingerprint_in(ending.lease.token)
    existing = ExistingClaim("done", options.window, fingerprint, result=ending.done)
    return answer_duplicate(options, call, seen, existing)


def _answer_committed(
    leases: Leases, submission: ClaimCall, running: ExistingClaim, recorded: Recorded
) -> ClaimOutcome:
    """The answer to a duplicate of what was committed; others get it from Redis from now on."""
    call, options, seen, *_ = submission
    engine = leases.store.transport.engine
    request = None if engine is None else done_elsewhere(engine, call.key, running, recorded)
    if request is not None:
        leases.store.transport.post(request)
    return answer_recorded(options, call, seen, recorded)


def _resume(
    leases: Leases, call: HoldCall, options: ClaimOptions, secret: bytes
) -> ClaimOutcome:
    """Continue what was detached. What is in its place is answered as to any duplicate."""
    outcome = resume(leases, call, secret)
    if isinstance(outcome, HeldElsewhere):
        if outcome.value is None:
            return LeaseLost(call.text, None, call.name)
        record = read_record(outcome.value, outcome.left)
        return answer_duplicate(options, call, NO_PAYLOAD, record)
    since = since_in(outcome.token)
    outcome.elsewhere = max(time() - since, 0.0) if since else 0.0
    return outcome


def _wait(leases: Leases, submission: ClaimCall, running: Duplicate) -> ClaimOutcome:
    """Return the outcome when the first one has ended, or when `wait` is over (*running*)."""

    def attempt(call: HoldCall) -> ClaimOutcome | Holding:
        outcome = _ask(leases, submission)
        if isinstance(outcome, Duplicate) and outcome.state == "running":
            return Holding(outcome.retry_after, None, outcome.note)
        return outcome

    call = submission.call
    outcome = leases.waiters.take(call, attempt)
    if not isinstance(outcome, Holding):
        return outcome
    details = (running.message, call.name, outcome.note)
    return Duplicate(call.text, outcome.remaining, "running", *details)


class Claiming(Entered, Generic[R]):
    """`with dibs.claim(…) as claim:`; taken at the top, ended at the end."""

    __slots__ = ("_claim", "_given", "_leases", "_submission")

    _verb = "claim"
    _instead = "; once() decorates"

    def __init__(self, leases: Leases, submission: ClaimCall) -> None:
        self._leases = leases
        self._submission = submission
        self._given: Claim[R] | None = None
        """It was taken already, for this block."""
        self._claim: Claim[R] | None = None
        self._is_entered = False

    @property
    def _named(self) -> str:
        return f"of {self._submission.call.name}"

    def take(self) -> Claim[R]:
        """Claim before the block begins; raises what entering it raises."""
        self._is_entered = True
        self._given = claim = take_claim(self._leases, self._submission)
        return claim

    def __enter__(self) -> Claim[R]:
        self._is_entered = True
        if self._claim is not None:
            raise UsageError(_IN_USE)
        claim = self._given or self.take()
        self._given = None
        if self._claim is not None:  # another task or thread entered the same object first
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
            claim.end("returned")
            return
        try:
            claim.fail()
        except Exception as failure:
            # The body's own exception must reach the caller; this one is added as a note.
            error.add_note(f"dibs could not end the claim on {claim.name}: {failure}")


def once(
    function: Callable[P, T],
    leases: Leases,
    namespace: str,
    template: str,
    options: ClaimOptions,
    holding: HoldOptions,
    payload: tuple[str, ...],
    duplicate: Callable[..., Any] | None,
    new_claiming: Callable[..., Claiming[Any]],
    within: Within | None,
    *,
    goes_on: bool,
) -> Callable[P, T]:
    """*function*, claimed at each call. UsageError: it lacks a field of *template* or *payload*.

    *holding*: how the key is held while the function runs. *within*: opens the transaction in which
    it runs. *goes_on*: also when its caller is cancelled; not inside of a transaction, whose
    connection its caller gives back.
    """
    shown = function if within is None else within.shown(function)
    key_of = Template(template, shown)
    fields = Fields(payload, shown) if payload else None
    answer = None if duplicate is None else answering(duplicate, shown, "duplicate")

    records = None if within is None else Records(within)
    call_function: Callable[..., T] = function

    def run(args: Any, kwargs: Any, begin: Callable[[], None]) -> Any:
        key = key_of(args, kwargs)
        call = HoldCall(expand(namespace, key), key, template, holding)
        seen = NO_PAYLOAD if fields is None else fingerprint(fields(args, kwargs))
        table = None if records is None else TableQuery(records.find)
        submission, since = ClaimCall(call, options, seen, table=table), monotonic()
        claiming = new_claiming(leases, submission)
        try:
            claim = claiming.take()
        except Duplicate as error:  # one that the function itself raises is not answered
            if answer is None:
                raise
            return maybe_await(answer(error, args, kwargs))
        begin()
        with claiming:
            if claim.replayed:
                return claim.result
            if within is None:
                result: Any = call_function(*args, **kwargs)
                claim.complete(result)
                return result
            wait = since + options.wait - monotonic()
            result = within.call(claim, claim.recording(), function, args, kwargs, wait)
            if not isinstance(result, RefusedByTable):
                return result
        if answer is not None and isinstance(result.error, Duplicate):
            return maybe_await(answer(result.error, args, kwargs))
        raise result.error

    @functools.wraps(shown)
    def claimed(*args: P.args, **kwargs: P.kwargs) -> T:
        # One that belongs to a transaction around it must end before that does.
        belongs = within is None and use.has_begun and current() is not None
        if not goes_on or belongs or open_writers():
            return run(args, kwargs, _do_nothing)
        since = monotonic()

        def failed(error: BaseException | None) -> None:
            if not isinstance(error, Duplicate | Mismatch):  # nobody is left to be refused
                _report_failure(leases.events, template, monotonic() - since, error)

        return leases.calls.run(functools.partial(run, args, kwargs), failed)

    if within is not None:
        claimed.__signature__ = signature_of(shown)  # type: ignore[attr-defined]
    return claimed


def _do_nothing() -> None:
    return None


def _report_failure(events: EventSink, name: str, took: float, error: BaseException | None) -> None:
    """Report a failure that no caller gets. None: it was cancelled."""
    cause = cause_for("raised") if error is not None else cause_for("stopped", _CANCELLED_AS_WELL)
    message = "%s: its caller was cancelled; it went on, and failed after %.1f s: %s"
    _log.error(message, name, took, cause, exc_info=error)
    events.emit("failed", name, cause=cause)  # without `took`: that is the time of schedules


_CANCELLED_AS_WELL = "the client was closed, or the event loop ended, before it did"
