# Printed from src/dibs/_async/exclusive.py by tools/unasync.py – do not edit.
"""A function that runs once at a time for each key."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from .._core.keys import Template
from .._core.lease import Plan
from .._threads import settle
from ..errors import Busy
from .lease import Hold, Lease
from .ledger import Ledger

P = ParamSpec("P")
T = TypeVar("T")


def one_at_a_time(
    function: Callable[P, T],
    ledger: Ledger,
    template: str,
    plan_of: Callable[[str], Plan],
    busy: Callable[[Busy], Any] | None,
) -> Callable[P, T]:
    """*function*, held at each call. UsageError: it lacks a field of *template*."""
    key_of = Template(template, function)

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        plan = plan_of(key_of(args, kwargs))
        outcome = ledger.take(plan)
        if isinstance(outcome, Lease):
            with Hold(ledger, plan, outcome):
                return function(*args, **kwargs)
        error = Busy(plan.text, outcome.remaining, outcome.holder, plan.name)
        if busy is None:
            raise error
        return settle(busy(error))

    return guarded
