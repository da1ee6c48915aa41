# Printed from src/dibs/_async/once.py by tools/unasync.py – do not edit.
"""A function whose calls are submissions: the second of two equal ones is not done."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from .._core.fingerprint import fingerprint
from .._core.keys import Fields, Template
from .._core.lease import Plan
from .._core.once import NO_PAYLOAD, Terms
from .._threads import settle
from ..errors import Duplicate
from .claim import Claiming, take_claim
from .ledger import Ledger

P = ParamSpec("P")
T = TypeVar("T")


def submitted_once(
    function: Callable[P, T],
    ledger: Ledger,
    template: str,
    plan_of: Callable[[str], Plan],
    terms: Terms,
    payload: tuple[str, ...],
    duplicate: Callable[[Duplicate], Any] | None,
) -> Callable[P, T]:
    """*function*, claimed at each call. UsageError: it lacks a field of *template* or *payload*."""
    key_of = Template(template, function)
    fields = Fields(payload, function) if payload else None

    @functools.wraps(function)
    def once(*args: P.args, **kwargs: P.kwargs) -> T:
        plan = plan_of(key_of(args, kwargs))
        seen = NO_PAYLOAD if fields is None else fingerprint(fields(args, kwargs))
        try:
            claim = take_claim(ledger, plan, terms, seen)
        except Duplicate as error:  # one that the function itself raises is not answered
            if duplicate is None:
                raise
            return settle(duplicate(error))
        with Claiming(ledger, plan, terms, seen, claim):
            if claim.replayed:
                return claim.result
            result: Any = function(*args, **kwargs)
            claim.complete(result)
            return result

    return once
