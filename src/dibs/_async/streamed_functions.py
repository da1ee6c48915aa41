"""Generator functions whose items are shared: `streamed`."""

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, Unpack, overload

from .._core.codec import packed
from .._core.codec_types import yielded_type
from .._core.keys import Template, check_fields, check_ignored
from .._core.options import Remembered, Settings, takes, template_first
from .._core.signatures import signature_of
from .._core.stream import (
    StreamInfo,
    StreamKeys,
    StreamKeywords,
    StreamOptions,
    stream_keys,
)
from .._core.unit_of_work import current, use
from .._tasks import must_await
from ..errors import UsageError
from .stream_feed import AsyncFeed, AsyncStream
from .stream_run import StreamCall
from .streams import AsyncStreams

P = ParamSpec("P")
Q = ParamSpec("Q")
T = TypeVar("T")
First = TypeVar("First")

SO_FAR = "so_far"
_NO_GENERATOR = (
    "streamed wraps generators of the kind async def with yield; for a function that returns its "
    "result, use cached"
)


class _Source:
    """Where one stream comes from: a call, and the streams of its client."""

    def __init__(self, streams: AsyncStreams, call: StreamCall) -> None:
        self._streams = streams
        self._call = call

    async def join(self, reader: AsyncStream[Any]) -> AsyncFeed:
        """Return the feed that *reader* reads."""
        return await self._streams.join(self._call, reader)

    def alone(self) -> Any:
        """The generator itself, inside a transaction: its rows are for this caller only. None: no.

        Others would see what is not committed, and this caller what is from before it.
        """
        if not use.has_begun or current() is None:
            return None
        self._streams.events.emit("miss", self._call.keys.name)
        return self._call.begin([])

    def encoded(self, value: Any) -> bytes:
        """An item as bytes."""
        return self._call.keys.options.codec.encode(value)

    def interrupted(self, items: int) -> None:
        """Report to a caller that the run was interrupted."""
        self._streams.events.emit("interrupted", self._call.keys.name, count=items)

    def packed(self, value: Any) -> Any:
        """Return an item as all callers get it."""
        return packed(self._call.keys.options.codec, value, self._call.keys.name)[1]


class AsyncStreamed(Generic[P, T]):
    """Call it like the function; what it returns yields what the function yields."""

    def __init__(
        self,
        function: Callable[P, AsyncIterator[T]],
        streams: AsyncStreams,
        settings: Settings,
        template: str,
        options: StreamOptions,
    ) -> None:
        self._function = function
        functools.update_wrapper(self, function)
        self._streams = streams
        self._settings = settings
        self._template = template
        self._options = options
        self._key_of = Template(template, function)
        self._bound: tuple[Any, ...] = ()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> AsyncStream[T]:
        """Return the items, from the first one. The run begins when that is asked for."""
        arguments: tuple[Any, ...] = (*self._bound, *args)
        keys = self._keys_of(arguments, kwargs)
        call = StreamCall(keys, self._function, arguments, kwargs)
        return AsyncStream(_Source(self._streams, call), self._options.on_restart, keys.name)

    def invalidate(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, bool]:
        """Forget the items. Who follows a run gets the rest of it; it is not stored.

        Returns:
            False if Redis is unavailable; it is done when Redis is available again.
        """
        keys = self._keys_of((*self._bound, *args), kwargs)
        return must_await(self._streams.invalidate(keys))

    def peek(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, StreamInfo | None]:
        """Return what is stored: "running" or "done", how many items, how old. Never runs."""
        return must_await(self._streams.peek(self._keys_of((*self._bound, *args), kwargs)))

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> "AsyncStreamed[..., T]": ...
    @overload
    def __get__(
        self: Callable[Concatenate[First, Q], AsyncStream[T]],
        instance: First,
        owner: type | None = None,
    ) -> "AsyncStreamed[Q, T]": ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> "AsyncStreamed[..., T]": ...
    def __get__(self, instance: object, owner: type | None = None) -> "AsyncStreamed[..., T]":
        """Return a method's stream: `self` is an argument like any other."""
        if instance is None:
            return self
        bound = object.__new__(type(self))
        bound.__dict__.update(self.__dict__)
        bound._bound = (instance,)
        return bound

    def _keys_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> StreamKeys:
        if self._options.on_restart == "resume" and SO_FAR in kwargs:
            raise UsageError(f"{SO_FAR} is passed by dibs, where a run is continued")
        text = self._key_of(args, kwargs)
        return stream_keys(self._settings, self._options, self._template, text)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._template!r}, ttl {self._options.ttl:g} s>"


def check_so_far(function: Callable[..., Any], options: StreamOptions) -> tuple[str, ...]:
    """Return the parameters that callers do not pass.

    Raises UsageError if a run could not be continued.
    """
    if options.on_restart != "resume":
        return ()
    parameter = signature_of(function).parameters.get(SO_FAR)
    if parameter is None or parameter.default is parameter.empty:
        raise UsageError(
            f'on_restart="resume" calls the function with the items so far: it needs a parameter '
            f"{SO_FAR}=()"
        )
    return (SO_FAR,)


class AsyncStreaming:
    """The verb `streamed`."""

    def __init__(self, settings: Settings, streams: AsyncStreams) -> None:
        self.__settings = settings
        self._streams = streams
        streaming = functools.partial(StreamOptions, settings)
        self._stream_options = Remembered(AsyncStreaming.streamed, streaming)

    @template_first
    @takes(StreamKeywords, StreamOptions)
    def streamed(
        self, template: str, *, ignore: Iterable[str] = (), **options: Unpack[StreamKeywords]
    ) -> Callable[[Callable[P, AsyncIterator[T]]], AsyncStreamed[P, T]]:
        """Share what an async generator yields: `@dibs.streamed("answer:{prompt:hash}", ttl=3600)`.

        It runs once, in one process. All callers of all processes get every item from the first
        one, live; later ones get them from Redis.

        Args:
            template: The key, with fields for the arguments of the call.
            ignore: Arguments that make no difference, where the template has no field.

        Raises:
            UsageError: An option is invalid, the template has no field, or the function is no
                generator.
        """
        self._stream_options(options)

        def decorate(function: Callable[P, AsyncIterator[T]]) -> AsyncStreamed[P, T]:
            if not inspect.isasyncgenfunction(function):
                raise UsageError(_NO_GENERATOR)
            of: Any = options.get("type")
            of = yielded_type(function) if of is None else of
            chosen = self._stream_options({**options, "type": of})
            ignored = check_ignored(template, function, ignore)
            check_fields(template, function, (*ignored, *check_so_far(function, chosen)))
            return AsyncStreamed(function, self._streams, self.__settings, template, chosen)

        return decorate
