"""A function that loads many values in one call, each of them cached under a key of its own."""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Generic, ParamSpec, TypeVar

from .._core.cache import CacheKeys, ManyRequest, cache_keys, remember_keys
from .._core.cache_options import CacheOptions
from .._core.items import ItemTemplate
from .._core.keys import fields_of
from .._core.options import Settings
from .._tasks import returning_awaitables
from ..errors import DibsError, UsageError
from .cache import AsyncCache

P = ParamSpec("P")
T = TypeVar("T")


@returning_awaitables
class AsyncCachedMany(Generic[P, T]):
    """Call it like the function; it is called for the items that are missing, and only once."""

    def __init__(
        self,
        function: Callable[P, Coroutine[Any, Any, T]],
        cache: AsyncCache,
        settings: Settings,
        template: str,
        options: CacheOptions,
        tags: tuple[str, ...] = (),
    ) -> None:
        if 0 < options.stale_after < options.load_timeout:
            raise UsageError(
                "cached_many waits for the end of a load: stale_after must be 0 or None"
            )
        self._function = function
        functools.update_wrapper(self, function)
        self._cache = cache
        self._settings = settings
        self._template = ItemTemplate(template, function)
        self._options = options
        self._tags_of = [self._template.for_items(tag) for tag in tags]
        fields = fields_of(template)
        self._is_placed_by_key = all(field in fields for tag in tags for field in fields_of(tag))
        self._keys: dict[str, CacheKeys] = {}
        self._bound: tuple[Any, ...] = ()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        """A dict with the value of each item, cached or loaded, in the order of the items.

        Items for which the function returned nothing are not in it. What the function raises.
        """
        return self._cache.get_many(self._request((*self._bound, *args), kwargs))  # type: ignore[return-value]

    async def invalidate(self, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Delete the values of these items, as `invalidate` does; all, whatever one raises."""
        many = self._request((*self._bound, *args), kwargs)
        done, failed = True, None
        for keys in many.keys.values():
            try:
                done = await self._cache.invalidate(keys) and done
            except DibsError as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return done

    def __get__(self, instance: object, owner: type | None = None) -> "AsyncCachedMany[..., T]":
        """A method's cache: `self` is an argument like any other."""
        if instance is None:
            return self
        bound = object.__new__(type(self))
        bound.__dict__.update(self.__dict__)
        bound._bound = (instance,)
        return bound

    def _request(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ManyRequest:
        template = self._template
        keys = {
            item: self._place(template.key(item, args, kwargs), item, args, kwargs)
            for item in template.items(args, kwargs)
        }

        def load(items: list[Any]) -> Any:
            # A list of its own, which the function may change.
            given, named = template.arguments(list(items), args, kwargs)
            return self._function(*given, **named)

        return ManyRequest(template.text, self._options, keys, load)

    def _place(
        self, text: str, item: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> CacheKeys:
        keys = self._keys.get(text)
        if keys is not None:
            return keys
        given, named = self._template.of_item(item, args, kwargs)
        tags = [tag(given, named) for tag in self._tags_of]
        name = self._template.text
        keys = cache_keys(self._settings, self._options, name, text, None, tags)
        if self._is_placed_by_key:
            remember_keys(self._keys, text, keys)
        return keys

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._template.text!r}, ttl {self._options.ttl:g} s>"
