# Generated from src/dibs/_async/unit_of_work.py by unasync.py – do not edit.
"""What waits for the end of a transaction, and how it is carried out: see `_core/unit_of_work.py`.

A transaction that dibs opens has an `OpenedUnit`. One that was given (`claim.within`,
`until=`) is followed by `given_unit`: by the events of its session, or by looking at it, where the
driver has none.
"""

import contextlib
import functools
import logging
import weakref
from collections.abc import Callable
from typing import Any

from .._core.done_table import WRONG_HALF
from .._core.lease import HoldCall, LeaseState
from .._core.unit_of_work import (
    AT_ONCE,
    NO_TRANSACTION,
    Outcome,
    Unit,
    around,
    current,
    enter,
    leave,
    use,
)
from .._databases import Transaction, transaction_of
from .._forks import reopen_after_fork
from .._threads import KIND, current_loop, hand_over, maybe_await, monotonic, sleep
from ..errors import LeaseLost, Unavailable, UsageError
from .lease_table import Leases

_log = logging.getLogger("dibs")
reopen_after_fork(use)

_LOOK_EVERY = 0.05
"""Seconds from one look to the next at a transaction that does not say when it ends."""


def lost_error(state: LeaseState) -> LeaseLost:
    """Return the error for the holder of a lease that ended before it was released."""
    return LeaseLost(state.call.text, state.fence, state.call.name)


# ---- effects


class Effect:
    """One effect: *work* is called with the outcome of the unit.

    With the savepoint in which it was added, it is dropped; or *undone* takes the place of *work*.
    """

    def __init__(
        self,
        leases: Leases,
        key: bytes,
        since: float,
        work: Callable[[Outcome], Any],
        undone: Callable[[Outcome], Any] | None = None,
    ) -> None:
        self.owner: object = leases
        self.key = key
        self.since = since
        self.kind = KIND
        self._work = work
        self._undone = undone
        self._queue = leases.ends
        self._calls = leases.calls
        self._store = leases.store
        self._loop = current_loop()

    def check(self) -> None:
        """Return: it does not keep the transaction from its commit."""

    def undo(self, unit: Unit) -> None:
        """Drop it, or have something else wait in its place."""
        if self._undone is not None:
            self._work = self._undone
        elif unit.take_back(self):
            self.carry_out_later("rolled_back")

    def carry_out(self, outcome: Outcome) -> None:
        """Do it, as the transaction has ended. What needs a closed client is a WARNING."""
        if self.key and self._store.is_closed:
            _log.warning(
                "a client was closed inside of a transaction; what waited for the end of that is "
                "not sent: a lease ends with its ttl, a value is not invalidated again"
            )
        else:
            self._work(outcome)

    def carry_out_later(self, outcome: Outcome) -> None:
        """The same in the background, where it belongs; its errors are logged."""
        hand_over(self._loop, self._queue, functools.partial(_carry_out_one, self, outcome))

    def carry_out_all(self, unit: Unit) -> None:
        """Do all that waits in *unit*."""

        def work(begin: Callable[[], None]) -> None:
            begin()
            carry_out(unit)

        self._calls.run(work, lambda _: None)

    def carry_out_all_later(self, unit: Unit) -> None:
        """Do all that waits in *unit*, in the background."""
        hand_over(self._loop, self._queue, functools.partial(carry_out, unit))


class Release(Effect):
    """The release of a lease, which is renewed until then.

    Also if it was released in a savepoint that is rolled back: it may guard older rows.
    """

    def __init__(self, leases: Leases, lease: LeaseState, keep: object) -> None:
        """*keep*: what would end the lease if it were collected before."""
        super().__init__(leases, lease.call.key, lease.since, self._release, self._release)
        self._leases = leases
        self._keep = keep
        self.lease = lease

    def check(self) -> None:
        """Raise LeaseLost if the lease was lost, and its holder does not ignore that."""
        lease = self.lease
        if lease.call.options.on_late != "ignore" and lease.is_lost_at(monotonic()):
            raise lost_error(lease)

    def fits(self, call: HoldCall) -> bool:
        """Return whether *call* may have this lease again."""
        lease, options = self.lease, call.options
        needs_fence = options.fence_prefix is not None and lease.fence is None
        return options.limit == lease.call.options.limit and not needs_fence

    def _release(self, outcome: Outcome) -> None:
        self._leases.end(self.lease)


def _carry_out_one(effect: Any, outcome: Outcome) -> None:
    try:
        maybe_await(effect.carry_out(outcome))
    except Exception as error:  # the transaction has ended: no one else can be told
        _log.error("what waited for the end of a transaction failed", exc_info=error)


def carry_out(unit: Unit) -> None:
    """Carry out what waited for the end of *unit*, all of it, whatever one raises."""
    outcome, interrupted = unit.outcome, None
    if outcome is None:
        return
    for effect in unit.effects():
        if getattr(effect, "kind", KIND) != KIND:  # of the other half of dibs
            getattr(effect, "carry_out_later")(outcome)  # noqa: B009
            continue
        try:
            _carry_out_one(effect, outcome)
        except BaseException as error:  # cancelled, or a signal handler raised
            interrupted = error
    if interrupted is not None:
        raise interrupted


# ---- units


_units: "weakref.WeakValueDictionary[int, Unit]" = weakref.WeakValueDictionary()
"""By the identity of their connection or session."""


class OpenedUnit:
    """The unit of a transaction that is opened and ended here; it is the current one until then."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._unit = _new_unit(transaction)
        self._is_left = False
        """The context manager has ended, and a transaction around it is open."""
        _watch_savepoints(self._unit, transaction)
        enter(self._unit)

    def check(self) -> None:
        """Return if it may commit. Raises LeaseLost if a lease that guarded the work was lost."""
        self._unit.check()

    def on_end(self, committed: bool) -> None:  # noqa: FBT001 - a callback
        """The outermost transaction has ended; called in the user's commit."""
        if self._unit.outcome is None:
            outcome: Outcome = "committed" if committed else "rolled_back"
            (decide_later if self._is_left else Unit.decide)(self._unit, outcome)

    def decide(self, outcome: Outcome) -> None:
        """The transaction has ended; what was said before counts."""
        self._unit.decide(outcome)

    def left(
        self, *, is_watched: bool, is_committed: bool, look: Callable[[Unit], None] | None = None
    ) -> None:
        """The context manager has ended without an error.

        Unless that was a commit, a transaction around it decides: one whose unit is known; or one
        that says when it ends (*is_watched*); or one at which *look* looks.
        """
        unit = self._unit
        if unit.outcome is None and is_committed:
            unit.decide("committed")
        elif unit.outcome is None and (outer := around(unit)) is not None:
            unit.hand_to(outer)
            unit.decide("unknown")
        elif unit.outcome is None and is_watched:
            self._is_left = True
        elif unit.outcome is None and look is not None and self._transaction.end == "open":
            look(unit)
        else:
            unit.decide("unknown")

    def carry_out(self) -> None:
        """Carry out what has waited, if that was not done; and leave the unit.

        It goes on if its caller is cancelled.
        """
        leave(self._unit)
        own = [each for each in self._unit.waiting if getattr(each, "kind", KIND) == KIND]
        try:
            if own:
                getattr(own[0], "carry_out_all")(self._unit)  # noqa: B009
        finally:  # the rest: none, unless it was cancelled before it began
            carry_out(self._unit)


def given_unit(leases: Leases, transaction: Transaction) -> Unit:
    """Return the unit of a transaction that its caller ends; a new one follows it."""
    known = _units.get(id(transaction.identity))
    while known is not None and not (known.is_open and _is_of(known, transaction)):
        known = known.outer
    if known is not None:
        return known
    unit = _new_unit(transaction)
    _follow(unit, leases, transaction)
    return unit


def _new_unit(transaction: Transaction) -> Unit:
    unit = Unit(current(), id(transaction.identity))
    use.has_begun = True
    _units[id(transaction.identity)] = unit
    return unit


def _is_of(unit: Unit, transaction: Transaction) -> bool:
    return unit.identity == id(transaction.identity)


def _follow(unit: Unit, leases: Leases, transaction: Transaction) -> None:
    """Have *unit* end with *transaction*."""

    def ended(committed: bool) -> None:  # noqa: FBT001 - a callback
        decide_later(unit, "committed" if committed else "rolled_back")

    if transaction.on_end(ended):
        transaction.before_commit(unit.check)
        _watch_savepoints(unit, transaction)
        _end_if_dropped(unit, transaction.identity)
    else:
        unit.says_when = False
        look_at(unit, leases, transaction)


def decide_later(unit: Unit, outcome: Outcome) -> None:
    """The transaction has ended. Do not block, because this is called in the user's commit."""
    unit.decide(outcome)
    first: Any = next(iter(unit.waiting), None)
    if first is not None:
        first.carry_out_all_later(unit)


def _end_if_dropped(unit: Unit, identity: Any) -> None:
    """Have *unit* end if a session is collected that was never closed."""
    with contextlib.suppress(TypeError):
        known = weakref.ref(identity, lambda _: decide_later(unit, "rolled_back"))
        unit.is_over = lambda: known() is None


def look_at(unit: Unit, leases: Leases, transaction: Transaction) -> None:
    """Have *unit* end with *transaction*, which does not say when that is."""
    unit.is_over = lambda: transaction.end != "open"
    leases.following.spawn(functools.partial(_look_at, unit))


def _look_at(unit: Unit) -> None:
    """Carry out what waits in *unit* when its transaction is over."""
    while unit.is_open:
        sleep(_LOOK_EVERY)
    carry_out(unit)


def _watch_savepoints(unit: Unit, transaction: Transaction) -> None:
    def watch(effect: Any) -> None:
        def ended(committed: bool) -> None:  # noqa: FBT001 - a callback
            if not committed and unit.outcome is None:
                unit.loaded.clear()
                effect.undo(unit)

        if transaction.is_in_savepoint:
            transaction.on_end(ended)

    if type(transaction).on_end is not Transaction.on_end:
        unit.watch_savepoint = watch


# ---- leases


def wait_for_unit(leases: Leases, lease: LeaseState, keep: object = None) -> bool:
    """Have *lease* released at the end of its unit. False: it ends now.

    *keep*: what would end it if it were collected before.
    """
    home = lease.home
    unit = home if home is not None and home.is_open else current()
    if (
        unit is None
        or home is AT_ONCE
        or lease.is_over
        or not lease.guarded
        or lease.is_lost_at(monotonic())
    ):
        return False
    if not unit.add(Release(leases, lease, keep)):
        return False
    lease.home = unit
    if unit.says_when and not lease.call.options.renew:
        with contextlib.suppress(Unavailable):  # no thread: it is checked before the commit
            leases.renewer.keep(lease)
    return True


def is_waiting(leases: Leases, lease: LeaseState) -> bool:
    """Return whether *lease* was released, and waits for the end of its unit."""
    effect = pending(leases, lease.call.key, lease.home)
    return isinstance(effect, Release) and effect.lease is lease


def release(leases: Leases, lease: LeaseState) -> bool:
    """End it, or have it end with its unit. False: it was lost, or released before."""
    if is_waiting(leases, lease):
        return False
    return wait_for_unit(leases, lease) or leases.end(lease)


def take(leases: Leases, call: HoldCall, unit: Unit | None) -> Any:
    """Return what `leases.take` returns.

    A lease that waits in *unit*, or around it, is continued.
    """
    effect = pending(leases, call.key, unit)
    if isinstance(effect, Release) and effect.fits(call):
        lease = continued(leases, call, effect, effect.lease)
        if lease is not None:
            return lease
    return leases.take(call)


def pending(leases: Leases, key: bytes, unit: Unit | None) -> Any:
    """Return the lease or claim of *key* that has ended inside *unit*, or around it, and waits."""
    while unit is not None:
        effect = unit.pending(leases, key)
        if effect is not None:
            return effect
        unit = unit.outer
    return None


def continued(
    leases: Leases, call: HoldCall, effect: Any, before: LeaseState
) -> LeaseState | None:
    """Return the lease *before*, whose end waits as *effect*, for *call*.

    None: it was lost, or ended.
    """
    lease = before.continued(call, monotonic())
    if before.home is None or not before.home.take_back(effect):
        return None
    before.is_over = True
    leases.table[lease.entry] = lease
    try:
        leases.extend(lease, call.options.ttl)
    except BaseException:
        wait_for_unit(leases, lease)
        raise
    return None if lease.is_lost else lease


# ---- claims


class Ending(Effect):
    """The end of a claim, of which others hear when the transaction around it has ended."""

    def __init__(
        self,
        leases: Leases,
        claim: Any,
        lease: LeaseState,
        done: bytes | None,
        undone: bytes | None,
    ) -> None:
        """*done*, *undone*: what it leaves after a commit, or else; None: nothing."""
        super().__init__(leases, lease.call.key, lease.since, self._end)
        self._claim = claim
        self._left_undone = undone
        self.done = done
        self.lease = lease

    def undo(self, unit: Unit) -> None:
        """It ends as if it had raised; no one else has it before, for it may guard older rows."""
        self.done = self._left_undone

    def _end(self, outcome: Outcome) -> None:
        result = self.done if outcome == "committed" else self._left_undone
        self._claim.end_now(result)


def unit_of_claim(lease: LeaseState) -> Unit | None:
    """Return the unit with which a claim ends. None: it ends now."""
    home = lease.home
    if home is None or home.is_open:
        return home or current()
    if home.outcome != "committed":
        _log.warning("%s: it ended after the transaction in which it began", lease.call.name)
    return current()


# ---- until=


def check_until(until: Any) -> None:
    """Raise UsageError if it is neither "block" nor a transaction that dibs knows, of this half."""
    if until is None or until == "block":
        return
    if isinstance(until, str):
        raise UsageError(f'until must be "block" or a session or connection, not {until!r}')
    if transaction_of(until).kind != KIND:
        raise UsageError(WRONG_HALF)
    use.has_begun = True


def unit_until(leases: Leases, until: Any) -> Unit | None:
    """Return the unit of the transaction that is open on *until*. None: none is."""
    transaction = transaction_of(until)
    return given_unit(leases, transaction) if transaction.note() else None


# ---- after_commit


def after_commit(leases: Leases, function: Callable[[], Any]) -> None:
    """Have *function* called after the commit. Raises UsageError if there is no transaction."""

    def call(outcome: Outcome) -> None:
        if outcome == "committed":
            maybe_await(function())
        elif outcome == "unknown":
            _log.warning("whether a transaction has committed is not known: %s", _NOT_CALLED)

    unit = current() if use.has_begun else None
    if unit is None or not unit.call(Effect(leases, b"", monotonic(), call)):
        raise UsageError(NO_TRANSACTION)


_NOT_CALLED = "what after_commit was given is not called"
