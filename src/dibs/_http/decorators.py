"""The decorators that guard a view, the same for every framework; and views that escape them.

`@once(…)` above `@app.post(…)` would guard nothing: the framework has registered the plain function
by then. So the decorators remember what they were applied to, and an application that would call
such a function itself is an error.
"""

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, Unpack, overload

from .._core.keys import Seconds
from .._core.keywords import refuse_unknown
from ..errors import UsageError
from .policy import Policy, PolicyKeywords

F = TypeVar("F", bound=Callable[..., Any])
P = ParamSpec("P")
T = TypeVar("T")
X = TypeVar("X")
TransactionOpener = (
    Callable[[], AbstractContextManager[X, Any]] | Callable[[], AbstractAsyncContextManager[X, Any]]
)
"""Opens a transaction: `sessionmaker.begin`, `transaction.atomic`."""


class GuardMaker(Protocol):
    """How a framework wraps a view."""

    def __call__(
        self,
        policy: Policy,
        view: Callable[..., Any],
        within: TransactionOpener[Any] | None = None,
        /,
    ) -> Callable[..., Any]:
        """Return *view*, run under a claim; in a transaction, if *within* opens one."""
        ...


_POLICY = "__dibs_policy__"
_inside: "weakref.WeakSet[Callable[..., Any]]" = weakref.WeakSet()
"""The functions that guards were applied to, and those that they wrap."""


def check_registered(views: Iterable[object]) -> None:
    """UsageError: one of these *views*, which an application calls, is inside of a guard."""
    for view in views:
        if is_inside_of_a_guard(view):
            name = getattr(view, "__qualname__", repr(view))
            order = "write its route above @once (or its other guard), not below"
            raise UsageError(f"{name!r} is registered without its guard: {order}")


def is_inside_of_a_guard(view: Any) -> bool:
    """True: a guard was applied to this function, so calling it directly bypasses the guard."""
    try:
        return view in _inside
    except TypeError:  # not hashable, or without weak references: no function
        return False


def attach_policy(guarded: Any, policy: Policy) -> Any:
    """Return *guarded*, by which its policy can be found."""
    with contextlib.suppress(AttributeError):  # a bound method
        setattr(guarded, _POLICY, policy)
    return guarded


def policy_of(view: object) -> Policy | None:
    """Return the policy of *view*, or of the guarded view that it wraps.

    None: it is not guarded.
    """
    return getattr(view, _POLICY, None)


def check_single(view: object) -> None:
    """Raise UsageError if *view* is guarded already."""
    if policy_of(view) is not None:
        name = getattr(view, "__qualname__", repr(view))
        raise UsageError(f"{name!r} is guarded already: use one guard for each view")


def remember(view: Any) -> None:
    """A guard was applied to *view*."""
    while view is not None:
        try:
            _inside.add(view)
        except TypeError:
            return
        view = getattr(view, "__wrapped__", None)


class Once:
    """The decorator `@once(window=…)` or `@once(policy)`: run a view once for each submission."""

    def __init__(self, guard: GuardMaker) -> None:
        """*guard*: how the framework wraps a view."""
        self._guard = guard

    @overload
    def __call__(self, policy: Policy, *, within: None = None) -> Callable[[F], F]: ...
    @overload
    def __call__(
        self, *, within: None = None, **options: Unpack[PolicyKeywords]
    ) -> Callable[[F], F]: ...
    @overload  # Django: there is nothing to hand over
    def __call__(  # type: ignore[overload-overlap]
        self, policy: Policy, *, within: TransactionOpener[None]
    ) -> Callable[[F], F]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, *, within: TransactionOpener[None], **options: Unpack[PolicyKeywords]
    ) -> Callable[[F], F]: ...
    @overload
    def __call__(
        self, policy: Policy, *, within: TransactionOpener[X]
    ) -> Callable[[Callable[Concatenate[X, P], T]], Callable[P, T]]: ...
    @overload
    def __call__(
        self, *, within: TransactionOpener[X], **options: Unpack[PolicyKeywords]
    ) -> Callable[[Callable[Concatenate[X, P], T]], Callable[P, T]]: ...
    def __call__(
        self,
        policy: Policy | None = None,
        *,
        within: TransactionOpener[Any] | None = None,
        **options: Any,
    ) -> Any:
        """Guard a view: it runs once for each submission.

        Args:
            policy: The options in one object.
            within: Opens a transaction of your database, such as `sessionmaker.begin`. The view
                gets what it yields as its first argument. What the view writes, its key and its
                response commit together, before the response is sent; an exception, and a
                response that is not final, roll back.
            options: In place of a policy: its options, all but `route` and `exempt`.

        Raises:
            UsageError: An option is invalid.
        """
        return functools.partial(self._apply, _policy_of(policy, options), within)

    def _apply(self, policy: Policy, within: TransactionOpener[Any] | None, view: Any) -> Any:
        if within is not None and policy.store == "all":
            raise UsageError(
                'store="all" stores failures, which within= rolls back with their record'
            )
        check_single(view)
        guarded = self._guard(policy, view, within)
        remember(view)
        return attach_policy(guarded, policy)


def _policy_of(policy: Policy | None, options: dict[str, Any]) -> Policy:
    if policy is None:
        refuse_unknown("once", options, PolicyKeywords, "policy", "within")
        return Policy(**options)
    if options:
        raise UsageError("pass a Policy or its options, not both")
    if policy.route or policy.exempt:
        raise UsageError("the policy of a decorator has no route: the view has one already")
    return policy


class PreventDuplicateSubmit:
    """The decorator `@prevent_duplicate_submit(interval=…)`: refuse a second concurrent submit."""

    def __init__(self, guard: GuardMaker) -> None:
        """*guard*: how the framework wraps a view."""
        self._once = Once(guard)

    def __call__(
        self, *, interval: Seconds, message: str | None = None, by: Iterable[str] = ()
    ) -> Callable[[F], F]:
        """Refuse a duplicate with a 429 while the first submission of the same user is running.

        While the view runs the key is renewed, and when the view returns the key is released.

        Args:
            interval: After how many seconds the key is free again if the process dies.
            message: As in a `Policy`.
            by: As in a `Policy`.
        """
        return self._once(window=interval, message=message, by=by)
