# Generated from src/dibs/_async/throttle.py by unasync.py – do not edit.
"""Counting calls of a key, and functions that may be called so often."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar

from .._core.capabilities import must_allow
from .._core.connection import Outage
from .._core.keys import Template, answering, expand, public_name
from .._core.lease import about_key
from .._core.throttle import (
    UNGUARDED_THROTTLING,
    ThrottleOptions,
    Throttling,
    read_throttle,
    throttle_request,
)
from .._threads import maybe_await, monotonic, sleep
from ..errors import Busy, UsageError
from .leases import Leases

P = ParamSpec("P")
T = TypeVar("T")


class ThrottleCall(NamedTuple):
    """What one call asks for."""

    key: bytes
    text: str
    given_name: str | None
    options: ThrottleOptions

    @property
    def name(self) -> str:
        """What events and errors call the key."""
        return public_name(self.text) if self.given_name is None else self.given_name

    def busy(self, refusal: Throttling) -> Busy:
        """The error for a caller who comes too often."""
        return Busy(self.text, refusal.reset, None, self.name, state="throttled")


def throttle(leases: Leases, call: ThrottleCall) -> Throttling:
    """Count a call; one round trip. Unavailable: the policy says so."""
    store, events = leases.store, leases.events
    now = monotonic()
    store.enter()
    try:
        engine = store.transport.engine
        if engine is None:
            now, engine = store.opened()
        if engine.refused:
            must_allow(engine, "throttle")
        request = throttle_request(call.key, leases.new_token(), call.options)
        outcome = store.read(read_throttle, store.ask(request, now))
    except Outage as outage:
        if not outage.sent:
            sleep(0)  # a caller that tries again and again must not starve the others
        store.outage(call.name, outage.cause, call.options.on_outage)
        outcome = UNGUARDED_THROTTLING
    except UsageError as error:
        raise about_key(error, call.name) from None
    else:
        if store.outages.is_open:
            store.outages.served(now)
    if not outcome.passed:
        events.emit("throttled", call.name, retry_after=outcome.reset)
    elif events.wants["passed"]:
        events.emit("passed", call.name, guarded=outcome.guarded)
    return outcome


def throttle_or_raise(leases: Leases, call: ThrottleCall) -> None:
    """Count a call. Busy: one too many."""
    outcome = throttle(leases, call)
    if not outcome.passed:
        raise call.busy(outcome)


def throttled(
    function: Callable[P, T],
    leases: Leases,
    namespace: str,
    template: str,
    options: ThrottleOptions,
    busy: Callable[..., Any] | None,
) -> Callable[P, T]:
    """*function*, counted at each call. UsageError: it lacks a field of *template*."""
    key_of = Template(template, function)
    answer = None if busy is None else answering(busy, function, "busy")

    @functools.wraps(function)
    def counted(*args: P.args, **kwargs: P.kwargs) -> T:
        key = key_of(args, kwargs)
        call = ThrottleCall(expand(namespace, key), key, template, options)
        outcome = throttle(leases, call)
        if outcome.passed:
            return function(*args, **kwargs)
        error = call.busy(outcome)
        if answer is None:
            raise error
        return maybe_await(answer(error, args, kwargs))

    return counted
