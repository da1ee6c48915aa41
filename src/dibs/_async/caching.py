"""The verbs for cached values: what a client has of them."""

import functools
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, ParamSpec, TypeVar, Unpack

from .._core.cache import DAY, cache_keys, lock_of
from .._core.cache_options import CacheKeywords, CacheOptions, template_first
from .._core.keys import check_fields, check_ignored, expand, public_name
from .._core.options import Remembered, Settings, takes
from .._core.shapes import returned_type, returned_values_type
from .._core.tags import checked_tags, tag_key
from .._tasks import check_function
from ..errors import UsageError
from .cache import AsyncCache
from .cached import AsyncCached, inner
from .cached_many import AsyncCachedMany

P = ParamSpec("P")
T = TypeVar("T")


class AsyncCaching:
    """Functions whose results are cached, and values by their keys and tags."""

    def __init__(self, settings: Settings, cache: AsyncCache) -> None:
        self._settings = settings
        self._cache = cache
        caching = functools.partial(CacheOptions, settings)
        self._cached_options = Remembered(AsyncCaching.cached, caching)
        self._cached_many_options = Remembered(AsyncCaching.cached_many, caching)
        self._load_options = Remembered(AsyncCaching.get_or_load, caching)

    @template_first
    @takes(CacheKeywords, CacheOptions)
    def cached(
        self,
        template: str,
        *,
        lock_key: str | None = None,
        tags: Iterable[str] = (),
        ignore: Iterable[str] = (),
        **options: Unpack[CacheKeywords],
    ) -> Callable[[Callable[P, Coroutine[Any, Any, T]]], AsyncCached[P, T]]:
        """Cache a function's results: `@dibs.cached("menu:{branch_id}", ttl=180, jitter=0.2)`.

        One caller loads, in one process; all others wait for it, at most for *wait*. *template*:
        the key, with fields for the arguments of the call. *lock_key*: the template of the key
        that is locked during a load. *tags*: templates of tags, by which many values are
        invalidated at once. *ignore*: arguments that make no difference, where the template has no
        field. UsageError: an option is invalid, or the template has no field.
        """
        self._cached_options(options)
        listed = checked_tags(tags)

        def decorate(function: Callable[P, Coroutine[Any, Any, T]]) -> AsyncCached[P, T]:
            check_function(inner(function))
            of: Any = options.get("type")
            of = returned_type(inner(function)) if of is None else of
            made = self._cached_options({**options, "type": of})
            ignored = check_ignored(template, inner(function), ignore)
            check_fields(template, inner(function), ignored)
            return AsyncCached(
                function, self._cache, self._settings, template, made, lock_key, listed
            )

        return decorate

    @template_first
    @takes(CacheKeywords, CacheOptions)
    def cached_many(
        self, template: str, *, tags: Iterable[str] = (), **options: Unpack[CacheKeywords]
    ) -> Callable[[Callable[P, Coroutine[Any, Any, T]]], AsyncCachedMany[P, T]]:
        """Cache what a function of many items returns for each: one read, one call for the rest.

        `@dibs.cached_many("menu:{branch_id}", ttl=180)` above `menus(branch_ids) -> dict[str,
        Menu]`. The first parameter is the list; the field that is no parameter stands for an item
        of it. *type*: that of one value. *tags*: as in `cached`. UsageError: an option is invalid.
        """
        self._cached_many_options(options)
        listed = checked_tags(tags)

        def decorate(function: Callable[P, Coroutine[Any, Any, T]]) -> AsyncCachedMany[P, T]:
            check_function(function)
            of: Any = options.get("type")
            of = returned_values_type(function) if of is None else of
            made = self._cached_many_options({**options, "type": of})
            return AsyncCachedMany(function, self._cache, self._settings, template, made, listed)

        return decorate

    @takes(CacheKeywords, CacheOptions)
    async def get_or_load(
        self,
        key: str,
        loader: Callable[[], Coroutine[Any, Any, T]],
        *,
        lock_key: str | None = None,
        tags: Iterable[str] = (),
        name: str | None = None,
        **options: Unpack[CacheKeywords],
    ) -> T:
        """The value of *key*; if there is none, what *loader* returns, stored for *ttl*.

        *lock_key*: the key that is locked during a load. *tags*: as in `cached`, without fields.
        *name*: what events call the key, as in `hold`. UsageError: an option is invalid.
        """
        chosen = self._load_options(options)
        if not callable(loader):
            raise UsageError("loader must be a function: pass the function itself, without ()")
        called = public_name(key) if name is None else name
        listed = checked_tags(tags) if tags else ()
        keys = cache_keys(self._settings, chosen, called, key, lock_key, listed)
        return await self._cache.get(keys, loader, (), {})

    async def invalidate(
        self, key: str, *, lock_key: str | None = None, name: str | None = None
    ) -> bool:
        """Delete the cached value of *key*, as `invalidate` of a cached function does.

        False: Redis is unavailable; the value is deleted when Redis is available again. UsageError:
        the key holds something else than a cached value.
        """
        space, called = self._settings.namespace, public_name(key) if name is None else name
        data = expand(space, key)
        lock = lock_of(space, data) if lock_key is None else expand(space, lock_key)
        return await self._cache.delete(data, lock, called, DAY, self._settings.on_outage)

    async def invalidate_tag(self, tag: str) -> bool:
        """Invalidate every value that has *tag*, in all processes, by one command.

        False: Redis is unavailable; it is done when Redis is available again.
        """
        key = tag_key(self._settings.namespace, tag)
        return await self._cache.invalidate_tag(key, self._settings.on_outage)
