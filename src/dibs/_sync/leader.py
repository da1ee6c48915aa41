# Generated from src/dibs/_async/leader.py by unasync.py – do not edit.
"""Leader election: one process holds a key and renews it, all others wait until it is theirs."""

import logging
from collections.abc import Callable
from types import TracebackType

from .._core.keys import public_name
from .._core.lease import GuardedBody, HoldCall, Holding, LeaseState
from .._core.options import HoldOptions
from .._threads import monotonic, sleep
from ..errors import Unavailable, UsageError
from .entered import Entered
from .hold import Hold, Lease, busy_error
from .lease_table import Leases

_log = logging.getLogger("dibs")

_PAUSE = 0.5
"""While Redis is unavailable: seconds until a candidate tries again."""


def leader_name(key: str) -> str:
    """Return what events and log lines call an election: its key, up to the first colon."""
    return public_name(key) if ":" in key else key


class Leadership(Entered):
    """`with dibs.leader(…) as leader:`; waits until elected, resigns at the end."""

    _verb = "leader"

    def __init__(
        self, leases: Leases, call: HoldCall, options: Callable[[float], HoldOptions]
    ) -> None:
        self._leases = leases
        self._call = call
        self._options = options
        """Makes the options of a candidate that waits for so many seconds."""
        self._is_entered = self._is_used = False
        self._hold: Hold | None = None
        self._state: LeaseState | None = None
        self._is_deposed = False

    @property
    def _named(self) -> str:
        return f"of {self._call.name}"

    def __enter__(self) -> Lease:
        self._is_entered = True
        if self._is_used:
            raise UsageError("this leader() is already in use; call it for each with block")
        self._is_used, since = True, monotonic()
        try:
            state = self._elected(since)
            self._hold = hold = Hold(self._leases, self._call, state)
            lease = hold.__enter__()
        except BaseException:
            self._is_used = False
            raise
        self._state, self._is_deposed = lease._state, False  # pyright: ignore[reportPrivateUsage]
        self._report_elected(self._state, monotonic() - since)
        if self._state.body is not None:
            self._state.body = _LeadingBody(self._state.body, self._report_deposed)
        return lease

    def _elected(self, since: float) -> LeaseState:
        """Return a lease. Raises Busy if the wait is over.

        Raises Unavailable if it is over, and Redis is unavailable.
        """
        deadline, call = since + self._call.options.wait, self._call
        while True:
            try:
                outcome = self._leases.waiters.take(call, self._leases.attempt)
            except Unavailable:
                remaining = deadline - monotonic()
                if remaining <= 0:
                    raise
                sleep(min(_PAUSE, remaining))
                remaining = max(deadline - monotonic(), 0.0)
                call = HoldCall(call.key, call.text, call.given_name, self._options(remaining))
                continue
            if isinstance(outcome, Holding):
                raise busy_error(self._leases, self._call, outcome)
            return outcome

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        hold, state, self._is_used = self._hold, self._state, False
        assert hold is not None
        assert state is not None
        try:
            hold.__exit__(kind, error, traceback)
        finally:
            if self._leases.owns(state):  # in a forked child nothing ends: its parent leads
                self._report_end(state)

    def _report_end(self, state: LeaseState) -> None:
        if not state.is_lost:
            self._report_resigned(state)
        elif not self._is_deposed:
            self._report_deposed()

    # ---- every change is an event and a log line

    def _report_elected(self, state: LeaseState, waited: float) -> None:
        name = self._call.name
        _log.info("%s: elected leader after %.1f s, fence %s", name, waited, state.fence)
        facts = {"guarded": state.guarded, "fence": state.fence}
        self._leases.events.emit("elected", name, waited=waited, **facts)

    def _report_resigned(self, state: LeaseState) -> None:
        name, held = self._call.name, monotonic() - state.since
        _log.info("%s: resigned as leader after %.1f s", name, held)
        self._leases.events.emit("resigned", name, held=held, fence=state.fence)

    def _report_deposed(self) -> None:
        state = self._state
        assert state is not None
        self._is_deposed = True
        name, held = self._call.name, monotonic() - state.since
        _log.warning("%s: deposed as leader after %.1f s: the lease was lost", name, held)
        self._leases.events.emit("deposed", name, held=held, fence=state.fence)


class _LeadingBody:
    """The body of a leader. When it is stopped because the lease is lost, that is reported."""

    def __init__(self, body: GuardedBody, deposed: Callable[[], None]) -> None:
        self._body = body
        self._deposed = deposed

    def stop(self) -> None:
        """Stop it now."""
        self._deposed()
        self._body.stop()
