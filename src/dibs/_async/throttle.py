"""Counting what is used of a key, and functions that may be called so often."""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, ParamSpec, TypeVar, Unpack

from .._core.capabilities import Use, must_allow
from .._core.connection import Outage
from .._core.keys import (
    OnBusy,
    Seconds,
    Template,
    answering,
    expand,
    patience,
    public_name,
)
from .._core.lease import about_key
from .._core.lease_value import secret_of
from .._core.options import Remembered, Settings, takes
from .._core.throttle import (
    UNGUARDED_USAGE,
    ClockElsewhere,
    QuotaKeywords,
    QuotaOptions,
    ThrottleKeywords,
    ThrottleOptions,
    UsageOutcome,
    quota_request,
    read_quota,
    read_throttle,
    settle_request,
    settle_window_request,
    throttle_request,
    window_request,
)
from .._system import time
from .._tasks import check_function, maybe_await, monotonic, must_await, sleep
from ..errors import Busy, UsageError
from .lease_table import AsyncLeases

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
    def needs(self) -> Use:
        """Return what the server has to allow."""
        options = self.options
        return "window" if isinstance(options, ThrottleOptions) and options.exact else "throttle"

    @property
    def name(self) -> str:
        """Return what events and errors call the key."""
        return public_name(self.text) if self.given_name is None else self.given_name

    def busy(self, refusal: UsageOutcome) -> Busy:
        """Return the error for a caller who comes too often."""
        return Busy(self.text, refusal.reset, None, self.name, state="throttled")


class Settlement(NamedTuple):
    """A call that was counted, and what it has really cost."""

    outcome: UsageOutcome
    before: int
    cost: int
    is_unused: bool = False
    """There was no such call after all: rates that count calls are given back as well."""


class AsyncThrottling:
    """What is left of a key, when a call of `throttle` or `quota` was counted."""

    def __init__(self, leases: AsyncLeases, call: UsageCall, outcome: UsageOutcome) -> None:
        self._leases = leases
        self._call = call
        self._outcome = outcome
        self._counted: int | None = call.cost if outcome.guarded else None

    @property
    def left(self) -> int:
        """Return how many units may follow at once."""
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
        change = Settlement(self._outcome, self._counted, cost)
        self._counted = cost
        settled = await _ask(self._leases, self._call, change)
        # A second settlement is about the same request, in the same period.
        before = self._outcome
        self._outcome = settled._replace(request=before.request, period=before.period)

    def __repr__(self) -> str:
        state = f"left={self.left} reset={self.reset:.3g}" if self.guarded else "unguarded"
        return f"<{type(self).__name__} of {self._call.name!r}: {state}>"


async def throttle(leases: AsyncLeases, call: UsageCall) -> UsageOutcome:
    """Count a call, and wait for its turn. Raises Unavailable if the policy says so."""
    call.options.check_cost(call.cost)
    outcome = await _ask(leases, call, None)
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
        unused = Settlement(outcome, call.cost, 0, is_unused=True)
        leases.ends.add(lambda: _ask(leases, call, unused))
        raise


async def _ask(leases: AsyncLeases, call: UsageCall, change: Settlement | None) -> UsageOutcome:
    """Send one request: to count *call*, or to change what was counted."""
    store = leases.store
    now = monotonic()
    store.enter()
    try:
        engine = store.transport.engine
        if engine is None:
            now, engine = await store.opened()
        if engine.refused:
            must_allow(engine, call.needs)
        token = leases.new_token()
        counted = await _send(leases, call, token, change, now)
        outcome = counted._replace(request=secret_of(token))
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
    leases: AsyncLeases, call: UsageCall, token: bytes, change: Settlement | None, now: float
) -> UsageOutcome:
    options, key = call.options, call.key
    if isinstance(options, QuotaOptions):
        return await _send_quota(leases, call, options, token, change, now)
    if change is None:
        count = window_request if options.exact else throttle_request
        request = count(key, token, options, call.cost, call.wait)
    elif options.exact:
        request = settle_window_request(
            key, options, change.outcome.request, change.before, change.cost
        )
    else:
        more = change.cost - change.before
        request = settle_request(key, token, options, more, is_unused=change.is_unused)
    return leases.store.read(read_throttle, await leases.store.ask(request, now))


async def _send_quota(
    leases: AsyncLeases,
    call: UsageCall,
    options: QuotaOptions,
    token: bytes,
    change: Settlement | None,
    now: float,
) -> UsageOutcome:
    cost = call.cost if change is None else change.cost - change.before
    period = None if change is None else change.outcome.period

    async def count(moment: float) -> UsageOutcome | ClockElsewhere:
        request = quota_request(call.key, token, options, moment, cost, period)
        return leases.store.read(read_quota, await leases.store.ask(request, now))

    outcome = await count(time())
    if isinstance(outcome, ClockElsewhere):  # this machine's clock is days away from the server's
        outcome = await count(outcome.now)
    if isinstance(outcome, ClockElsewhere):
        raise Outage("the clock of the server jumps", sent=True, code="protocol")
    return outcome


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


class AsyncCounting:
    """The verbs that count what is used of a key."""

    def __init__(self, settings: Settings, leases: AsyncLeases) -> None:
        self._counted_namespace = settings.namespace
        self._counted_leases = leases
        throttling = functools.partial(ThrottleOptions, settings)
        self._throttle_options = Remembered(AsyncCounting.throttle, throttling)
        self._throttled_options = Remembered(AsyncCounting.throttled, throttling)
        quota = functools.partial(QuotaOptions, settings)
        self._quota_options = Remembered(AsyncCounting.quota, quota)

    @takes(ThrottleKeywords, ThrottleOptions)
    def throttle(
        self,
        key: str,
        *,
        cost: int = 1,
        wait: Seconds = 0,
        name: str | None = None,
        **options: Unpack[ThrottleKeywords],
    ) -> Coroutine[Any, Any, AsyncThrottling]:
        """Count a call of *key*: *limit* units each *per*, with a burst.

        Args:
            key: The key, without the namespace.
            cost: How many units the call uses, all or none. 0: look, and count nothing.
            wait: How long to wait for a turn. Those who wait are served in order of arrival.
            name: What events and errors call the key, as in `hold`.

        Returns:
            What is left; its `settle` corrects the cost.

        Raises:
            Busy: Too much for now. `retry_after` is when the call is allowed, `state` "throttled".
            Unavailable: Redis is unavailable and the policy is "closed".
            UsageError: An option is invalid, or the cost is more than a burst.
        """
        chosen = self._throttle_options(options)
        return must_await(self._use(key, name, chosen, cost, patience(wait)))

    @takes(QuotaKeywords, QuotaOptions)
    def quota(
        self, key: str, *, cost: int = 1, name: str | None = None, **options: Unpack[QuotaKeywords]
    ) -> Coroutine[Any, Any, AsyncThrottling]:
        """Count a call of *key*: *limit* units each day, week or month of the calendar.

        Args:
            key: The key, without the namespace.
            cost: How many units the call uses, all or none. 0: look, and count nothing.
            name: What events and errors call the key, as in `hold`.

        Returns:
            What is left; its `settle` corrects the cost.

        Raises:
            Busy: Fewer units are left. `retry_after` is when the period ends, `state` "throttled".
            Unavailable: Redis is unavailable and the policy is "closed".
            UsageError: An option is invalid, or the cost is more than the limit.
        """
        return must_await(self._use(key, name, self._quota_options(options), cost, 0.0))

    async def _use(
        self,
        key: str,
        name: str | None,
        options: ThrottleOptions | QuotaOptions,
        cost: int,
        wait: float,
    ) -> AsyncThrottling:
        data = expand(self._counted_namespace, key)
        call = UsageCall(data, key, name, options, options.check_cost(cost), wait)
        outcome = await throttle(self._counted_leases, call)
        if not outcome.passed:
            raise call.busy(outcome)
        return AsyncThrottling(self._counted_leases, call, outcome)

    async def _throttle(
        self, key: str, name: str, options: ThrottleKeywords, cost: int
    ) -> UsageOutcome:
        """Count a call for an integration, which reports to its clients how many calls are left."""
        chosen = self._throttle_options(options)
        data = expand(self._counted_namespace, key)
        call = UsageCall(data, key, name, chosen, chosen.check_cost(cost))
        return await throttle(self._counted_leases, call)

    @takes(ThrottleKeywords, ThrottleOptions)
    def throttled(
        self,
        template: str,
        *,
        wait: Seconds = 0,
        busy: OnBusy | None = None,
        **options: Unpack[ThrottleKeywords],
    ) -> Callable[[Callable[P, Coroutine[Any, Any, T]]], Callable[P, Coroutine[Any, Any, T]]]:
        """Limit the calls for each key: `@dibs.throttled("sms:{user}", limit=5, per=60)`.

        Args:
            template: The key, with fields for the arguments of the call.
            wait: How long a call waits for its turn.
            busy: As in `exclusive`.

        Raises:
            UsageError: An option is invalid, or the function lacks a field.
        """
        chosen = self._throttled_options(options)
        waits = patience(wait)

        def decorate(
            function: Callable[P, Coroutine[Any, Any, T]],
        ) -> Callable[P, Coroutine[Any, Any, T]]:
            check_function(function)
            namespace = self._counted_namespace
            return throttled(
                function, self._counted_leases, namespace, template, chosen, waits, busy
            )

        return decorate
