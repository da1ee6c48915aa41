# Generated from src/dibs/_async/cached_functions.py by unasync.py – do not edit.
"""Functions whose results are cached: `cached`, `cached_many` and what they share."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    TypeVar,
    Unpack,
    overload,
)

from .._core.cache import (
    DAY,
    CacheKeys,
    Found,
    ItemTemplate,
    LoadRequest,
    ManyRequest,
    cache_keys,
    checked_tags,
    load_lock_key,
    remember_keys,
    tag_key,
)
from .._core.codec_types import returned_type, returned_values_type
from .._core.keys import Template, check_fields, check_ignored, expand, fields_of, public_name
from .._core.options import CacheKeywords, CacheOptions, Remembered, Settings, takes, template_first
from .._core.signatures import signature_of
from .._threads import check_function, mark_coroutine, must_await
from ..errors import DibsError, UsageError
from .cache import Cache

P = ParamSpec("P")
Q = ParamSpec("Q")
T = TypeVar("T")
First = TypeVar("First")


_ABOVE = "put @cached above @classmethod: below it, Python 3.13 and later do not tell the class"


def inner(function: Any) -> Any:
    """Return the function itself, where *function* is a classmethod or a staticmethod."""
    return function.__func__ if type(function) in (classmethod, staticmethod) else function


class _Signature:
    """That of a method without `self`. Of anything else it is that of the function."""

    def __get__(self, cached: Any, owner: object = None) -> inspect.Signature:
        if cached is None or not cached._bound:
            raise AttributeError("__signature__")
        whole = signature_of(cached._function)
        return whole.replace(parameters=list(whole.parameters.values())[1:])


def _identity(cached: Any) -> tuple[object, ...]:
    """Return what was decorated, and the object whose method it is.

    The same one, not an equal one.
    """
    return (cached._decorated, *map(id, cached._bound))


def _by_name(cached: Any) -> Any:
    return (getattr, (*cached._bound, cached.__name__)) if cached._bound else cached.__qualname__


@mark_coroutine
class Cached(Generic[P, T]):
    """Call it like the function; its verbs take the same arguments."""

    if not TYPE_CHECKING:
        __signature__ = _Signature()

    def __init__(
        self,
        function: Callable[P, T],
        cache: Cache,
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
        self._takes_class = next(iter(signature_of(function).parameters), "") == "cls"
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
        self._decorated = object()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the value, cached or loaded; a load raises what the function raises."""
        if self._bound:
            args = (*self._bound, *args)  # pyright: ignore[reportAssignmentType]
        keys = self._keys.get(self._key_of(args, kwargs)) or self._keys_of(args, kwargs)
        return self._cache.get(keys, self._function, args, kwargs)

    def invalidate(self, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Delete the value; a load under way is not stored, later readers get fresh data.

        Returns:
            False if Redis is unavailable; it is deleted when Redis is available again.
        """
        if self._lacks_class(args):
            keys = self._request_without_class(args, kwargs).keys
        else:
            keys = self._request(args, kwargs).keys
        return must_await(self._cache.invalidate(keys))

    def refresh(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Load the value now, and return it; meanwhile other callers read the old one."""
        if self._lacks_class(args):
            raise UsageError(_ABOVE)
        return self._cache.refresh(self._request(args, kwargs))

    def peek(self, *args: P.args, **kwargs: P.kwargs) -> Found[T] | None:
        """Return what is stored, fresh or stale, with its age, or None. Never loads."""
        return must_await(self._cache.peek(self._request(args, kwargs).keys))

    def set(self, *args: Any, value: T, **kwargs: Any) -> bool:
        """Store *value* for these arguments, as if it had just been loaded.

        A load under way is not stored.

        Returns:
            False if Redis is unavailable; the stored value is deleted when Redis is available
            again.
        """
        if "value" in signature_of(self._function).parameters:
            raise UsageError("this function has a parameter named value: it has no set")
        return must_await(self._cache.put(self._request(args, kwargs).keys, value))

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> "Cached[..., T]": ...
    @overload
    def __get__(
        self: Callable[Concatenate[First, Q], T],
        instance: First,
        owner: type | None = None,
    ) -> "Cached[Q, T]": ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> "Cached[..., T]": ...
    def __get__(self, instance: object, owner: type | None = None) -> "Cached[..., T]":
        """Return a method's cache: `self` is an argument like any other, and so is a class."""
        first = owner or type(instance) if self._kind is classmethod else instance
        if first is None or self._kind is staticmethod:
            return self
        bound = object.__new__(type(self))
        bound.__dict__.update(self.__dict__)
        bound._bound = (first,)
        return bound

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cached) and _identity(self) == _identity(other)

    def __hash__(self) -> int:
        return hash(_identity(self))

    def __reduce__(self) -> Any:
        """By its name, as functions are."""
        return _by_name(self)

    def _lacks_class(self, args: tuple[Any, ...]) -> bool:
        """Return True if called as `Class.function.invalidate`, and the class is not known."""
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
        """Return where the value of this call lives."""
        text = self._key_of(args, kwargs)
        lock_key = None if self._lock_of is None else self._lock_of(args, kwargs)
        tags = [tag(args, kwargs) for tag in self._tags_of]
        keys = cache_keys(self._settings, self._options, self._template, text, lock_key, tags)
        if self._is_placed_by_key:
            remember_keys(self._keys, text, keys)
        return keys

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._template!r}, ttl {self._options.ttl:g} s>"


@mark_coroutine
class CachedMany(Generic[P, T]):
    """Call it like the function; it is called for the items that are missing, and only once."""

    if not TYPE_CHECKING:
        __signature__ = _Signature()

    def __init__(
        self,
        function: Callable[P, T],
        cache: Cache,
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
        self._decorated = object()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Return a dict with the value of each item, cached or loaded, in the order of the items.

        Items for which the function returned no value are omitted. What it raises is raised.
        """
        return self._cache.get_many(self._request((*self._bound, *args), kwargs))  # type: ignore[return-value]

    def invalidate(self, *args: P.args, **kwargs: P.kwargs) -> bool:
        """Delete the values of these items, as `invalidate` does; all, whatever one raises."""
        return must_await(self._invalidate(self._request((*self._bound, *args), kwargs)))

    def _invalidate(self, many: ManyRequest) -> bool:
        done, failed = True, None
        for keys in many.keys.values():
            try:
                done = self._cache.invalidate(keys) and done
            except DibsError as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return done

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> "CachedMany[..., T]": ...
    @overload
    def __get__(
        self: Callable[Concatenate[First, Q], T],
        instance: First,
        owner: type | None = None,
    ) -> "CachedMany[Q, T]": ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> "CachedMany[..., T]": ...
    def __get__(self, instance: object, owner: type | None = None) -> "CachedMany[..., T]":
        """Return a method's cache: `self` is an argument like any other."""
        if instance is None:
            return self
        bound = object.__new__(type(self))
        bound.__dict__.update(self.__dict__)
        bound._bound = (instance,)
        return bound

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CachedMany) and _identity(self) == _identity(other)

    def __hash__(self) -> int:
        return hash(_identity(self))

    def __reduce__(self) -> Any:
        """By its name, as functions are."""
        return _by_name(self)

    def _request(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ManyRequest:
        template = self._template
        keys = {
            item: self._place(template.key(item, args, kwargs), item, args, kwargs)
            for item in template.items(args, kwargs)
        }

        def load(items: list[Any]) -> Any:
            # A copy, which the function may change.
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


class Caching:
    """Functions whose results are cached, and values by their keys and tags."""

    def __init__(self, settings: Settings, cache: Cache) -> None:
        self._settings = settings
        self._cache = cache
        caching = functools.partial(CacheOptions, settings)
        self._cached_options = Remembered(Caching.cached, caching)
        self._cached_many_options = Remembered(Caching.cached_many, caching)
        self._load_options = Remembered(Caching.get_or_load, caching)

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
    ) -> Callable[[Callable[P, T]], Cached[P, T]]:
        """Cache a function's results: `@dibs.cached("menu:{branch_id}", ttl=180, jitter=0.2)`.

        One caller loads, in one process; all others wait for it, at most for *wait*.

        Args:
            template: The key, with fields for the arguments of the call.
            lock_key: The template of the key that is locked during a load.
            tags: Templates of tags, by which many values are invalidated at once.
            ignore: Arguments that make no difference, where the template has no field.

        Raises:
            UsageError: An option is invalid, or the template has no field.
        """
        self._cached_options(options)
        listed = checked_tags(tags)

        def decorate(function: Callable[P, T]) -> Cached[P, T]:
            check_function(inner(function))
            of: Any = options.get("type")
            of = returned_type(inner(function)) if of is None else of
            cache_options = self._cached_options({**options, "type": of})
            ignored = check_ignored(template, inner(function), ignore)
            check_fields(template, inner(function), ignored)
            return Cached(
                function, self._cache, self._settings, template, cache_options, lock_key, listed
            )

        return decorate

    @template_first
    @takes(CacheKeywords, CacheOptions)
    def cached_many(
        self, template: str, *, tags: Iterable[str] = (), **options: Unpack[CacheKeywords]
    ) -> Callable[[Callable[P, T]], CachedMany[P, T]]:
        """Cache what a function of many items returns for each: one read, one call for the rest.

        `@dibs.cached_many("menu:{branch_id}", ttl=180)` above `menus(branch_ids) -> dict[str,
        Menu]`. The first parameter is the list of items.

        Args:
            template: The key. The field that is not a parameter of the function stands for one
                item.
            type: What one value is decoded into.
            tags: As in `cached`.

        Raises:
            UsageError: An option is invalid.
        """
        self._cached_many_options(options)
        listed = checked_tags(tags)

        def decorate(function: Callable[P, T]) -> CachedMany[P, T]:
            check_function(function)
            of: Any = options.get("type")
            of = returned_values_type(function) if of is None else of
            cache_options = self._cached_many_options({**options, "type": of})
            return CachedMany(
                function, self._cache, self._settings, template, cache_options, listed
            )

        return decorate

    @takes(CacheKeywords, CacheOptions)
    def get_or_load(
        self,
        key: str,
        loader: Callable[[], T],
        *,
        lock_key: str | None = None,
        tags: Iterable[str] = (),
        name: str | None = None,
        **options: Unpack[CacheKeywords],
    ) -> T:
        """Return the value of *key*; if there is none, what *loader* returns, stored for *ttl*.

        Args:
            key: The key, without the namespace.
            loader: Called without arguments.
            lock_key: The key that is locked during a load.
            tags: As in `cached`, without fields.
            name: What events call the key, as in `hold`.

        Raises:
            UsageError: An option is invalid.
        """
        chosen = self._load_options(options)
        if not callable(loader):
            raise UsageError("loader must be a function: pass the function itself, without ()")
        called = public_name(key) if name is None else name
        listed = checked_tags(tags) if tags else ()
        keys = cache_keys(self._settings, chosen, called, key, lock_key, listed)
        return self._cache.get(keys, loader, (), {})

    def invalidate(
        self, key: str, *, lock_key: str | None = None, name: str | None = None
    ) -> bool:
        """Delete the cached value of *key*, as `invalidate` of a cached function does.

        Args:
            key: The key, without the namespace.
            lock_key: The key that is locked during a load, if it is not the default.
            name: What events call the key, as in `hold`.

        Returns:
            False if Redis is unavailable; the value is deleted when Redis is available again.

        Raises:
            UsageError: The key does not hold a cached value.
        """
        space, called = self._settings.namespace, public_name(key) if name is None else name
        data = expand(space, key)
        lock = load_lock_key(space, data) if lock_key is None else expand(space, lock_key)
        policy = self._settings.on_outage
        return must_await(self._cache.delete(data, lock, called, DAY, policy))

    def invalidate_tag(self, tag: str) -> bool:
        """Invalidate every value that has *tag*, in all processes, by one command.

        Returns:
            False if Redis is unavailable; it is done when Redis is available again.
        """
        key = tag_key(self._settings.namespace, tag)
        return must_await(self._cache.invalidate_tag(key, self._settings.on_outage))
