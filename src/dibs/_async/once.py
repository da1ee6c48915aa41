"""A function whose calls are submissions: the second of two equal ones is not done."""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from .._core.fingerprint import fingerprint
from .._core.keys import Fields, Template
from .._core.lease import Plan
from .._core.once import NO_PAYLOAD, Terms
from .claim import AsyncClaiming
from .ledger import AsyncLedger

P = ParamSpec("P")
T = TypeVar("T")


def submitted_once(
    function: Callable[P, Coroutine[Any, Any, T]],
    ledger: AsyncLedger,
    template: str,
    plan_of: Callable[[str], Plan],
    terms: Terms,
    payload: tuple[str, ...],
) -> Callable[P, Coroutine[Any, Any, T]]:
    """*function*, claimed at each call. UsageError: it lacks a field of *template* or *payload*."""
    key_of = Template(template, function)
    fields = Fields(payload, function) if payload else None

    @functools.wraps(function)
    async def once(*args: P.args, **kwargs: P.kwargs) -> T:
        plan = plan_of(key_of(args, kwargs))
        seen = NO_PAYLOAD if fields is None else fingerprint(fields(args, kwargs))
        async with AsyncClaiming(ledger, plan, terms, seen) as claim:
            if claim.replayed:
                return claim.result
            result: Any = await function(*args, **kwargs)
            claim.complete(result)
            return result

    return once
