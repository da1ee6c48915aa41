"""The two decorators that every framework has; how a view is wrapped is the framework's."""

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from .._core.keys import Seconds
from .._core.options import After, OnError, OutagePolicy
from .bodies import LIMIT
from .policy import KeyUse, Policy

F = TypeVar("F", bound=Callable[..., Any])
Guard = Callable[[Policy, Callable[..., Any]], Callable[..., Any]]


class Once:
    """`@once(window=…)`: do what a view does once for each submission."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard

    def __call__(
        self,
        *,
        window: Seconds,
        after: After = "release",
        on_error: OnError = "release",
        message: str | None = None,
        key: KeyUse = "never",
        by: Iterable[str] = (),
        keyless: After | None = None,
        keyless_window: Seconds | None = None,
        header: str = "Idempotency-Key",
        wait: Seconds = 0,
        lease: Seconds | None = None,
        on_outage: OutagePolicy | None = None,
        most: int = 256 * 1024,
        body_limit: int = LIMIT,
        docs: str | None = None,
    ) -> Callable[[F], F]:
        """The options are those of a `Policy`. UsageError: one of them makes no sense."""
        policy = Policy(
            window=window,
            after=after,
            on_error=on_error,
            message=message,
            key=key,
            by=(by,) if isinstance(by, str) else tuple(by),
            keyless=keyless,
            keyless_window=keyless_window,
            header=header,
            wait=wait,
            lease=lease,
            on_outage=on_outage,
            most=most,
            body_limit=body_limit,
            docs=docs,
        )
        guard: Any = self._guard
        return functools.partial(guard, policy)


class PreventDuplicateSubmit:
    """`@prevent_duplicate_submit(interval=…)`: refuse a second one while the first is at work."""

    def __init__(self, guard: Guard) -> None:
        self._once = Once(guard)

    def __call__(
        self, *, interval: Seconds, message: str | None = None, by: Iterable[str] = ()
    ) -> Callable[[F], F]:
        """Refuse the same submission of the same user while the first is at work, with a 429.

        *interval*: for how long, if the first one died. It is kept alive while it works, however
        long that takes, and free as soon as it is done. *by*: as in a `Policy`.
        """
        return self._once(window=interval, message=message, by=by)
