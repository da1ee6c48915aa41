"""A function whose calls are submissions: the second of two equal ones is not done."""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from .._core.fingerprint import fingerprint
from .._core.keys import Fields, Template
from .._core.lease import Plan
from .._core.once import NO_PAYLOAD, Terms
from .._tasks import settle
from ..errors import Duplicate
from .claim import AsyncClaiming, take_claim
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
    duplicate: Callable[[Duplicate], Any] | None,
) -> Callable[P, Coroutine[Any, Any, T]]:
    """*function*, claimed at each call. UsageError: it lacks a field of *template* or *payload*."""
    key_of = Template(template, function)
    fields = Fields(payload, function) if payload else None

    @functools.wraps(function)
    async def once(*args: P.args, **kwargs: P.kwargs) -> T:
        plan = plan_of(key_of(args, kwargs))
        seen = NO_PAYLOAD if fields is None else fingerprint(fields(args, kwargs))
        try:
            claim = await take_claim(ledger, plan, terms, seen)
        except Duplicate as error:  # one that the function itself raises is not answered
            if duplicate is None:
                raise
            return await settle(duplicate(error))
        async with AsyncClaiming(ledger, plan, terms, seen, claim):
            if claim.replayed:
                return claim.result
            result: Any = await function(*args, **kwargs)
            claim.complete(result)
            return result

    return once
