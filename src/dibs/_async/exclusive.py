"""A function that runs once at a time for each key."""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from .._core.keys import Template
from .._core.lease import Plan
from .._tasks import settle
from ..errors import Busy
from .lease import AsyncHold, AsyncLease
from .ledger import AsyncLedger

P = ParamSpec("P")
T = TypeVar("T")


def one_at_a_time(
    function: Callable[P, Coroutine[Any, Any, T]],
    ledger: AsyncLedger,
    template: str,
    plan_of: Callable[[str], Plan],
    busy: Callable[[Busy], Any] | None,
) -> Callable[P, Coroutine[Any, Any, T]]:
    """*function*, held at each call. UsageError: it lacks a field of *template*."""
    key_of = Template(template, function)

    @functools.wraps(function)
    async def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        plan = plan_of(key_of(args, kwargs))
        outcome = await ledger.take(plan)
        if isinstance(outcome, AsyncLease):
            async with AsyncHold(ledger, plan, outcome):
                return await function(*args, **kwargs)
        error = Busy(plan.text, outcome.remaining, outcome.holder, plan.name)
        if busy is None:
            raise error
        return await settle(busy(error))

    return guarded
