# Printed from src/dibs/_async/cached.py by tools/unasync.py – do not edit.
"""A function whose results are cached, and its three verbs."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

from .._core.cache import Recipe, Slot, slot_of
from .._core.keys import Template
from .._threads import returning_awaitables
from ..errors import UsageError
from .cache import Cache
from .loader import LoadRequest

P = ParamSpec("P")
T = TypeVar("T")

_MOST_SLOTS = 10_000
"""Keys whose place in the store is remembered for each function; working it out is not cheap."""


_ABOVE = "put @cached above @classmethod: below it, Python 3.13 and later do not tell the class"


def inner(function: Any) -> Any:
    """The function itself, where *function* is a classmethod or a staticmethod."""
    return function.__func__ if type(function) in (classmethod, staticmethod) else function


@returning_awaitables
class Cached(Generic[P, T]):
    """Call it like the function; `invalidate` and `refresh` take the same arguments."""

    def __init__(
        self,
        function: Callable[P, T],
        cache: Cache,
        recipe: Recipe,
        namespace: str,
        lock_key: str | None,
    ) -> None:
        self._kind = type(function)
        self._function = function = inner(function)
        functools.update_wrapper(self, function)
        self._takes_class = next(iter(inspect.signature(function).parameters), "") == "cls"
        self._cache = cache
        self._recipe = recipe
        self._namespace = namespace
        self._key_of = Template(recipe.name, function)
        self._lock_of = None if lock_key is None else Template(lock_key, function)
        self._slots: dict[str, Slot] = {}
        self._bound: tuple[Any, ...] = ()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """The value, cached or loaded. What the function raises, if it has to be loaded."""
        if self._bound:
            args = (*self._bound, *args)  # pyright: ignore[reportAssignmentType]
        slot = self._slots.get(self._key_of(args, kwargs)) or self._slot(args, kwargs)
        return self._cache.get(self._recipe, slot, self._function, args, kwargs)

    def invalidate(self, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Delete the value; a load under way is not stored, later readers get fresh data.

        False: the store is out; it is deleted when the store is back.
        """
        if self._lacks_class(args):
            return self._cache.invalidate(self._want_without_class(args, kwargs))
        return self._cache.invalidate(self._want(args, kwargs))

    def refresh(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """The value, loaded now; everybody reads the old one meanwhile."""
        if self._lacks_class(args):
            raise UsageError(_ABOVE)
        return self._cache.refresh(self._want(args, kwargs))

    def __get__(self, instance: object, owner: type | None = None) -> "Cached[..., T]":
        """A method's cache: `self` is an argument like any other, and so is a class."""
        first = owner or type(instance) if self._kind is classmethod else instance
        if first is None or self._kind is staticmethod:
            return self
        bound = object.__new__(type(self))
        bound.__dict__.update(self.__dict__)
        bound._bound = (first,)
        return bound

    def _lacks_class(self, args: tuple[Any, ...]) -> bool:
        """True: called as `Class.function.invalidate`, and nobody told us the class."""
        return self._takes_class and not self._bound and not isinstance(next(iter(args), 0), type)

    def _want_without_class(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> LoadRequest:
        """Enough to find the value, if its key does not depend on the class."""
        try:
            return self._want((None, *args), kwargs)
        except UsageError:
            raise UsageError(_ABOVE) from None

    def _want(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> LoadRequest:
        if self._bound:
            args = (*self._bound, *args)
        slot = self._slot(args, kwargs)
        return LoadRequest(self._recipe, slot, self._function, args, kwargs)

    def _slot(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Slot:
        """Where the value of this call lives."""
        text = self._key_of(args, kwargs)
        if self._lock_of is not None:  # made from other arguments, perhaps: not remembered
            return slot_of(self._namespace, text, self._lock_of(args, kwargs))
        if len(self._slots) >= _MOST_SLOTS:
            self._slots.clear()
        slot = self._slots[text] = slot_of(self._namespace, text, None)
        return slot

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._recipe.name!r}, ttl {self._recipe.ttl:g} s>"
