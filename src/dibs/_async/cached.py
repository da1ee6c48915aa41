"""A function whose results are cached, and its verbs."""

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Generic, ParamSpec, TypeVar

from .._core.cache import CacheKeys, Found, LoadRequest, cache_keys, remember_keys
from .._core.cache_options import CacheOptions
from .._core.keys import Template, fields_of
from .._core.options import Settings
from .._tasks import returning_awaitables
from ..errors import UsageError
from .cache import AsyncCache

P = ParamSpec("P")
T = TypeVar("T")


_ABOVE = "put @cached above @classmethod: below it, Python 3.13 and later do not tell the class"


def inner(function: Any) -> Any:
    """The function itself, where *function* is a classmethod or a staticmethod."""
    return function.__func__ if type(function) in (classmethod, staticmethod) else function


@returning_awaitables
class AsyncCached(Generic[P, T]):
    """Call it like the function; its verbs take the same arguments."""

    def __init__(
        self,
        function: Callable[P, Coroutine[Any, Any, T]],
        cache: AsyncCache,
        settings: Settings,
        template: str,
        options: CacheOptions,
        lock_key: str | None,
        tags: tuple[str, ...] = (),
    ) -> None:
        self._kind = type(function)
        self._function = function = inner(function)
        # Without `updated`: after a look at `__dict__`, Python 3.11 reads every field slower.
        functools.update_wrapper(self, function, updated=())
        for name, value in getattr(function, "__dict__", {}).items():
            setattr(self, name, value)
        self._takes_class = next(iter(inspect.signature(function).parameters), "") == "cls"
        self._cache = cache
        self._settings = settings
        self._template = template
        self._options = options
        self._key_of = Template(template, function)
        self._lock_of = None if lock_key is None else Template(lock_key, function)
        self._tags_of = [Template(tag, function) for tag in tags]
        fields = fields_of(template)
        self._is_placed_by_key = lock_key is None and all(
            field in fields for tag in tags for field in fields_of(tag)
        )
        self._keys: dict[str, CacheKeys] = {}
        self._bound: tuple[Any, ...] = ()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        """The value, cached or loaded. What the function raises, if it has to be loaded."""
        if self._bound:
            args = (*self._bound, *args)  # pyright: ignore[reportAssignmentType]
        keys = self._keys.get(self._key_of(args, kwargs)) or self._keys_of(args, kwargs)
        return self._cache.get(keys, self._function, args, kwargs)

    def invalidate(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, bool]:
        """Delete the value; a load under way is not stored, later readers get fresh data.

        False: Redis is unavailable; it is deleted when Redis is available again.
        """
        if self._lacks_class(args):
            return self._cache.invalidate(self._request_without_class(args, kwargs).keys)
        return self._cache.invalidate(self._request(args, kwargs).keys)

    def refresh(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        """The value, loaded now; other callers read the old one until it is there."""
        if self._lacks_class(args):
            raise UsageError(_ABOVE)
        return self._cache.refresh(self._request(args, kwargs))

    def peek(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, Found[T] | None]:
        """What is stored, fresh or stale, with its age; None: nothing. Never loads."""
        return self._cache.peek(self._request(args, kwargs).keys)

    def set(self, *args: Any, value: T, **kwargs: Any) -> Coroutine[Any, Any, bool]:
        """Store *value* for these arguments, as if it had just been loaded.

        A load under way is not stored. False: Redis is unavailable; what it has is deleted when it
        is available again.
        """
        if "value" in inspect.signature(self._function).parameters:
            raise UsageError("this function has a parameter named value: it has no set")
        return self._cache.put(self._request(args, kwargs).keys, value)

    def __get__(self, instance: object, owner: type | None = None) -> "AsyncCached[..., T]":
        """A method's cache: `self` is an argument like any other, and so is a class."""
        first = owner or type(instance) if self._kind is classmethod else instance
        if first is None or self._kind is staticmethod:
            return self
        bound = object.__new__(type(self))
        bound.__dict__.update(self.__dict__)
        bound._bound = (first,)
        return bound

    def _lacks_class(self, args: tuple[Any, ...]) -> bool:
        """True: called as `Class.function.invalidate`, and the class is not known."""
        return self._takes_class and not self._bound and not isinstance(next(iter(args), 0), type)

    def _request_without_class(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> LoadRequest:
        """Enough to find the value, if its key does not depend on the class."""
        try:
            return self._request((None, *args), kwargs)
        except UsageError:
            raise UsageError(_ABOVE) from None

    def _request(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> LoadRequest:
        if self._bound:
            args = (*self._bound, *args)
        keys = self._keys_of(args, kwargs)
        return LoadRequest(keys, self._function, args, kwargs)

    def _keys_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CacheKeys:
        """Where the value of this call lives."""
        text = self._key_of(args, kwargs)
        lock_key = None if self._lock_of is None else self._lock_of(args, kwargs)
        tags = [tag(args, kwargs) for tag in self._tags_of]
        keys = cache_keys(self._settings, self._options, self._template, text, lock_key, tags)
        if self._is_placed_by_key:
            remember_keys(self._keys, text, keys)
        return keys

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._template!r}, ttl {self._options.ttl:g} s>"
