"""Counting what is used of a key, and functions that may be called so often."""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, ParamSpec, TypeVar

from .._core.capabilities import must_allow
from .._core.connection import Outage
from .._core.keys import Template, answering, expand, public_name
from .._core.lease import about_key
from .._core.request import Request
from .._core.throttle import (
    UNGUARDED_USAGE,
    ClockElsewhere,
    QuotaOptions,
    ThrottleOptions,
    UsageOutcome,
    quota_request,
    read_quota,
    read_throttle,
    throttle_request,
)
from .._system import time
from .._tasks import maybe_await, monotonic, sleep
from ..errors import Busy, UsageError
from .leases import AsyncLeases

P = ParamSpec("P")
T = TypeVar("T")


class UsageCall(NamedTuple):
    """What one call asks for."""

    key: bytes
    text: str
    given_name: str | None
    options: ThrottleOptions | QuotaOptions
    cost: int = 1
    wait: float = 0.0

    @property
    def name(self) -> str:
        """What events and errors call the key."""
        return public_name(self.text) if self.given_name is None else self.given_name

    def busy(self, refusal: UsageOutcome) -> Busy:
        """Return the error for a caller who comes too often."""
        return Busy(self.text, refusal.reset, None, self.name, state="throttled")


class AsyncThrottling:
    """What is left of a key, when a call of `throttle` or `quota` was counted."""

    def __init__(self, leases: AsyncLeases, call: UsageCall, outcome: UsageOutcome) -> None:
        self._leases = leases
        self._call = call
        self._outcome = outcome
        self._counted = call.cost if outcome.guarded else None

    @property
    def left(self) -> int:
        """How many units may follow at once."""
        return self._outcome.left

    @property
    def reset(self) -> float:
        """Seconds until there is one more; of a quota, until its period ends."""
        return self._outcome.reset

    @property
    def guarded(self) -> bool:
        """False: nothing was counted, because Redis was unavailable and the policy is "open"."""
        return self._outcome.guarded

    async def settle(self, cost: int) -> None:
        """Correct what was counted, once it is known what the call has really cost.

        Less is given back. More is taken, also beyond what is left; of a quota only as long as its
        period lasts. Does nothing for a call that is not guarded.

        Raises:
            Unavailable: Redis is unavailable and the policy is "closed".
            UsageError: *cost* is no whole number of 0 or more.
        """
        if type(cost) is not int or cost < 0:
            raise UsageError(f"cost must be a whole number, 0 or more, not {cost!r}")
        if self._counted is None or cost == self._counted:
            return
        change = self._call._replace(cost=cost - self._counted)
        self._counted = cost
        self._outcome = await _ask(self._leases, change, settles=self._outcome)

    def __repr__(self) -> str:
        state = f"left={self.left} reset={self.reset:.3g}" if self.guarded else "unguarded"
        return f"<{type(self).__name__} of {self._call.name!r}: {state}>"


async def throttle(leases: AsyncLeases, call: UsageCall) -> UsageOutcome:
    """Count a call, and wait for its turn. Raises Unavailable if the policy says so."""
    call.options.check_cost(call.cost)
    outcome = await _ask(leases, call, settles=None)
    if not outcome.passed:
        leases.events.emit("throttled", call.name, retry_after=outcome.reset)
        return outcome
    if outcome.delay:
        await _wait_for_turn(leases, call, outcome)
    if leases.events.wants["passed"]:
        leases.events.emit("passed", call.name, guarded=outcome.guarded, waited=outcome.delay)
    return outcome


async def _wait_for_turn(leases: AsyncLeases, call: UsageCall, outcome: UsageOutcome) -> None:
    """Sleep until it is the turn of *call*. One that gives up gives back what it has taken."""
    try:
        await sleep(outcome.delay)
    except BaseException:
        unused = call._replace(cost=-call.cost)
        leases.ends.add(lambda: _ask(leases, unused, settles=outcome))
        raise


async def _ask(
    leases: AsyncLeases, call: UsageCall, settles: UsageOutcome | None
) -> UsageOutcome:
    """Send one request. *settles*: it corrects a call that had this outcome."""
    store = leases.store
    now = monotonic()
    store.must_be_open()
    try:
        engine = store.transport.engine
        if engine is None:
            now, engine = await store.opened()
        if engine.refused:
            must_allow(engine, "throttle")
        outcome = await _send(leases, call, settles, now)
    except Outage as outage:
        if not outage.sent:
            await sleep(0)  # a caller that tries again and again must not starve the others
        store.outage(call.name, outage.cause, call.options.on_outage)
        return UNGUARDED_USAGE
    except UsageError as error:
        raise about_key(error, call.name) from None
    if store.outages.is_open:
        store.outages.served(now)
    return outcome


async def _send(
    leases: AsyncLeases, call: UsageCall, settles: UsageOutcome | None, now: float
) -> UsageOutcome:
    options, token = call.options, leases.new_token()
    if isinstance(options, ThrottleOptions):
        wait = call.wait if settles is None else None
        request = throttle_request(call.key, token, options, call.cost, wait)
        return read_throttle(await leases.store.ask(request, now))
    period = None if settles is None else settles.period

    def request_at(moment: float) -> Request:
        return quota_request(call.key, token, options, moment, call.cost, period)

    try:
        return read_quota(await leases.store.ask(request_at(time()), now))
    except ClockElsewhere as elsewhere:  # this machine's clock is days away from the server's
        return read_quota(await leases.store.ask(request_at(elsewhere.now), now))


def throttled(
    function: Callable[P, Coroutine[Any, Any, T]],
    leases: AsyncLeases,
    namespace: str,
    template: str,
    options: ThrottleOptions,
    wait: float,
    busy: Callable[..., Any] | None,
) -> Callable[P, Coroutine[Any, Any, T]]:
    """Return *function*, counted at each call. Raises UsageError if it lacks a field."""
    key_of = Template(template, function)
    answer = None if busy is None else answering(busy, function, "busy")

    @functools.wraps(function)
    async def counted(*args: P.args, **kwargs: P.kwargs) -> T:
        key = key_of(args, kwargs)
        call = UsageCall(expand(namespace, key), key, template, options, wait=wait)
        outcome = await throttle(leases, call)
        if outcome.passed:
            return await function(*args, **kwargs)
        error = call.busy(outcome)
        if answer is None:
            raise error
        return await maybe_await(answer(error, args, kwargs))

    return counted
