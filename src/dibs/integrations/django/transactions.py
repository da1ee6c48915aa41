"""Transactions of Django for `within=` and around guarded views, and fences for its rows."""

# pyright: basic
# Django has no types.

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from django.db import transaction

from ..._internal_api import checked_fence, open_in_django
from ...errors import LeaseLost

if TYPE_CHECKING:
    from ... import AsyncLease, Lease


class _Atomic:
    """Opens `transaction.atomic` with some arguments."""

    yields_nothing = True

    def __init__(self, using: str | None, *, durable: bool) -> None:
        self._using = using
        self._durable = durable

    def __call__(self) -> AbstractContextManager[None]:
        manager: Any = transaction.atomic(using=self._using, durable=self._durable)
        return manager


def atomic(
    using: str | None = None, *, durable: bool = False
) -> Callable[[], AbstractContextManager[None]]:
    """Open `transaction.atomic` for `once(within=atomic())`, with types.

    Args:
        using: The alias of the database.
        durable: Raise RuntimeError inside another transaction.
    """
    return _Atomic(using, durable=durable)


def when_committed(committed: Callable[[], object], rolled_back: Callable[[], object]) -> None:
    """Call *committed* when the transactions around the caller have committed; now, without one.

    *rolled_back* is called in its place, also if a COMMIT fails. Both run before Django continues.
    """
    waiting, outcomes = open_in_django(), list[bool]()

    def ended(is_committed: bool) -> None:  # noqa: FBT001 - a callback
        outcomes.append(is_committed)
        if len(outcomes) == len(waiting):
            (committed if all(outcomes) else rolled_back)()

    for each in waiting:
        if not each.on_end(ended):
            ended(is_committed=True)  # its end cannot be seen
    if not waiting:
        committed()


def fenced(rows: Any, lease: "Lease | AsyncLease", **values: object) -> None:
    """Set *values* in the one row of the queryset *rows*, unless a later holder has written.

    Its field `fence` gets the fence of *lease*: `fenced(Account.objects.filter(pk=7), lease,
    balance=100)`, in one statement.

    Raises:
        LeaseLost: A later holder has written; nothing was changed.
        LookupError: There is no row.
        UsageError: *lease* has no fence.
    """
    fence = checked_fence(lease)
    if rows.filter(fence__lte=fence).update(fence=fence, **values):
        return
    if not rows.exists():
        raise LookupError("there is no row to write to")
    raise LeaseLost(lease.key, fence)
