"""Transactions of Django for `within=`."""

# pyright: basic
# Django has no types.

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from django.db import transaction


class _Atomic:
    """Opens `transaction.atomic` with some arguments."""

    yields_nothing = True

    def __init__(self, using: str | None, *, durable: bool) -> None:
        self._using = using
        self._durable = durable

    def __call__(self) -> AbstractContextManager[None]:
        block: Any = transaction.atomic(using=self._using, durable=self._durable)
        return block


def atomic(
    using: str | None = None, *, durable: bool = False
) -> Callable[[], AbstractContextManager[None]]:
    """For `once(within=atomic())`: `transaction.atomic` with these arguments, and typed.

    *using*: the alias of the database. *durable*: RuntimeError inside of another transaction.
    """
    return _Atomic(using, durable=durable)
