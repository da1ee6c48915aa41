# Generated from src/dibs/_async/hold_all.py by unasync.py – do not edit.
"""Several keys, taken together or not at all."""

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from .._core.connection import Outage
from .._core.keys import Seconds
from .._core.lease import HoldCall, Holding, LeaseState
from .._core.lease_group import InTheWay, all_request, in_order, read_all, together
from .._core.unit_of_work import Unit, current, use
from .._threads import gather, monotonic, must_await, sleep
from ..errors import Busy, DibsError
from .entered import Entered
from .hold import HoldOrNone, Lease, busy_error
from .lease_table import Leases
from .unit_of_work import Release, pending, wait_for_unit
from .unit_of_work import take as take_in_unit

# ---- taking


def _attempt(leases: Leases, calls: list[HoldCall]) -> list[LeaseState] | InTheWay:
    """Return all of them, or the one in the way; those that were taken before it are released."""
    engine = leases.store.transport.engine
    if engine is None:
        try:
            _, engine = leases.store.opened()
        except Outage:  # what is asked next meets it, and the policy decides
            engine = None
    ordered = in_order(calls)
    groups = [[call] for call in ordered]
    if engine is not None:
        groups = together(calls, engine, is_cluster=leases.store.is_cluster)
    taken: list[LeaseState] = []
    try:
        for group in groups:
            outcome = _acquire(leases, group)
            if isinstance(outcome, InTheWay):
                _give_back(leases, taken)
                return outcome
            taken += outcome
    except BaseException:
        for lease in taken:
            leases.release_unused(lease)
        raise
    return taken


def _acquire(leases: Leases, calls: list[HoldCall]) -> list[LeaseState] | InTheWay:
    """Return all keys of one request."""
    if len(calls) == 1:
        outcome = leases.attempt(calls[0])
        return InTheWay(calls[0], outcome) if isinstance(outcome, Holding) else [outcome]
    store, now = leases.store, monotonic()
    store.enter()
    for call in calls:
        if call.key in leases.table and (here := leases.refusal(call.key, now)) is not None:
            return InTheWay(call, here)
    token = leases.new_token()
    try:
        now, _ = store.opened()
        reply = store.ask(all_request(calls, token), now)
        fences = store.read(read_all, reply, calls)
    except Outage as outage:
        if outage.sent:
            _release_later(leases, calls, token)
        else:
            sleep(0)  # a caller that tries again and again must not starve the others
        return [leases.unguarded(call, token, now, outage.cause) for call in calls]
    except DibsError:
        raise
    except BaseException:  # cancelled, or a signal handler raised: they may be ours
        _release_later(leases, calls, token)
        raise
    if isinstance(fences, InTheWay):
        if store.transport.may_arrive_late:
            _release_later(leases, calls, token)
        return fences
    taken: list[LeaseState] = []
    for call, fence in zip(calls, fences, strict=True):
        lease = LeaseState(call, token, now)
        lease.fence = fence
        leases.enter(lease, now)
        taken.append(lease)
    return taken


def _release_later(leases: Leases, calls: list[HoldCall], token: bytes) -> None:
    for call in calls:
        leases.release_later(call, token)


def _give_back(leases: Leases, taken: list[LeaseState]) -> None:
    gather([functools.partial(leases.end, lease) for lease in reversed(taken)])


def _one_by_one(
    leases: Leases, calls: list[HoldCall], deadline: float
) -> list[LeaseState] | InTheWay:
    """Wait for each of them in turn, keeping those before: so no caller starves or deadlocks."""
    taken: list[LeaseState] = []
    try:
        for call in in_order(calls):
            left = max(deadline - monotonic(), 0.001)
            waiting = HoldCall(call.key, call.text, call.given_name, call.options.waiting(left))
            outcome = leases.take(waiting)
            if isinstance(outcome, Holding):
                _give_back(leases, taken)
                return InTheWay(call, outcome)
            taken.append(outcome)
            if outcome.guarded:
                leases.renewer.keep(outcome)
        return _begun_now(leases, calls, taken)
    except BaseException:
        for lease in taken:
            leases.release_unused(lease)
        raise


def _begun_now(
    leases: Leases, calls: list[HoldCall], waited: list[LeaseState]
) -> list[LeaseState]:
    """Return the leases *waited*, each with its whole ttl and no more renewed than *calls* say."""
    by_key = {call.key: call for call in calls}
    for place, before in enumerate(waited):
        if not before.guarded:
            continue
        lease = waited[place] = before.continued(by_key[before.call.key], monotonic())
        before.is_over = True
        leases.table[lease.entry] = lease
    works = [functools.partial(leases.extend, lease, lease.call.options.ttl) for lease in waited]
    gather(works)
    return waited


def take_all(
    leases: Leases, calls: list[HoldCall], unit: Unit | None
) -> list[LeaseState] | InTheWay:
    """All of them, at once or after `wait`; or the one in the way. Unavailable: the policy says so.

    Those that wait for the end of *unit*, or of one around it, are continued.
    """
    continued: list[LeaseState] = []
    wanted: list[HoldCall] = []
    for call in calls:
        effect = None if unit is None else pending(leases, call.key, unit)
        if isinstance(effect, Release) and effect.fits(call):
            outcome = take_in_unit(leases, call, unit)
            if isinstance(outcome, LeaseState):
                continued.append(outcome)
                continue
        wanted.append(call)
    deadline = monotonic() + calls[0].options.wait
    try:
        outcome = _attempt(leases, wanted) if wanted else []
        if isinstance(outcome, InTheWay) and calls[0].options.wait:
            outcome = _one_by_one(leases, wanted, deadline)
    except BaseException:
        _wait_again(leases, continued)
        raise
    if isinstance(outcome, InTheWay):
        _wait_again(leases, continued)
        return outcome
    return continued + outcome


def _wait_again(leases: Leases, continued: list[LeaseState]) -> None:
    for lease in continued:
        if not wait_for_unit(leases, lease):
            leases.release_unused(lease)


# ---- the block


class LeaseGroup(Mapping[str, Lease]):
    """The leases of several keys: `leases["seat:1"].fence`."""

    def __init__(self, leases: dict[str, Lease]) -> None:
        self._leases = leases

    def __getitem__(self, key: str) -> Lease:
        return self._leases[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._leases)

    def __len__(self) -> int:
        return len(self._leases)

    @property
    def guarded(self) -> bool:
        """Return whether Redis granted all of them."""
        return all(lease.guarded for lease in self._leases.values())

    @property
    def remaining(self) -> float:
        """Seconds until the first of them expires; 0.0 if one has ended."""
        return min(lease.remaining for lease in self._leases.values())

    @property
    def lost(self) -> bool:
        """Return whether you do not hold all of them any more."""
        return any(lease.lost for lease in self._leases.values())

    def check(self) -> None:
        """Return if you still hold all of them.

        Raises:
            LeaseLost: You do not: one is lost, or was released.
        """
        for lease in self._leases.values():
            lease.check()

    def extend(self, ttl: Seconds) -> bool:
        """Keep all of them for at least *ttl* from now.

        Returns:
            False if one was not extended.

        Raises:
            Unavailable: As `extend` of a lease.
        """
        return must_await(self._each(lambda lease: lease.extend(ttl)))

    def release(self) -> bool:
        """Release all of them.

        Returns:
            False if you no longer held one of them.
        """
        return must_await(self._each(lambda lease: lease.release()))

    def _each(self, work: Callable[[Lease], bool]) -> bool:
        works = [functools.partial(work, lease) for lease in self._leases.values()]
        outcomes = gather(works)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome
        return all(outcomes)

    def __repr__(self) -> str:
        return f"<LeaseGroup of {len(self)}: {[*self._leases.values()]}>"


class HoldAll(Entered):
    """`with dibs.hold_all([…]) as leases:`; taken at the top, released at the end."""

    __slots__ = ("_calls", "_leases", "_new_hold", "_stack", "_states")

    _verb = "hold_all"

    def __init__(
        self, leases: Leases, calls: list[HoldCall], new_hold: Callable[..., Any]
    ) -> None:
        self._leases = leases
        self._calls = calls
        self._new_hold = new_hold
        self._states: list[LeaseState] | None = None
        self._stack: ExitStack | None = None
        self._is_entered = False

    @property
    def _named(self) -> str:
        return f"of {len(self._calls)} keys"

    def or_none(self) -> HoldOrNone[LeaseGroup]:
        """Enter the block with None if one of the keys is not free, instead of raising Busy."""
        return HoldOrNone(self)

    def is_taken(self) -> bool:
        """Take them before the block begins. False: one is not free."""
        return isinstance(self._take(), list)

    def _take(self) -> list[LeaseState] | Busy:
        self._is_entered, since, events = True, monotonic(), self._leases.events
        unit = current() if use.has_begun else None
        outcome = take_all(self._leases, self._calls, unit)
        if isinstance(outcome, InTheWay):
            call, holding = outcome
            events.taken(call, holding, since)
            return busy_error(self._leases, call, holding)
        for state in outcome:
            events.taken(state.call, state, since)
        self._states = outcome
        return outcome

    def __enter__(self) -> LeaseGroup:
        states = self._states or self._take()
        if isinstance(states, Busy):
            raise states
        by_key = {state.call.key: state for state in states}
        held: dict[str, Lease] = {}
        try:
            with ExitStack() as stack:
                for call in self._calls:
                    hold = self._new_hold(self._leases, call, by_key[call.key])
                    held[call.text] = stack.enter_context(hold)
                self._stack = stack.pop_all()
        except BaseException:
            for state in states:
                self._leases.release_unused(state)
            raise
        self._states = states
        return LeaseGroup(held)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        stack, states = self._stack, self._states
        assert stack is not None
        assert states is not None
        self._stack = self._states = None
        if not use.has_begun and all(state.body is None for state in states):
            _give_back(self._leases, states)  # in one write; else each by its own rules
        stack.__exit__(kind, error, traceback)
