# Generated from src/dibs/_async/stream_feed.py by unasync.py – do not edit.
"""What this process has of a stream, and those here who read it."""

import functools
import weakref
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, Generic, TypeVar

from .._core.stream import Lost, OnRestart, after_loss
from .._threads import Background, Guard, Signal, current_loop
from ..errors import Interrupted, Unavailable, UsageError

T = TypeVar("T")

_LOOK_AGAIN = 60.0
"""Seconds after which who waits looks again: a signal handler may have raised before all were
woken."""


class Feed:
    """The items of one run, as far as they have arrived here, for all who read it here."""

    def __init__(self) -> None:
        self.run = b""
        self.is_live = False
        """Its run was under way when it was joined."""
        self.is_begun = False
        """It is known which run it is of."""
        self.is_over = False
        self.error: Exception | None = None
        """Why it is over; None: it has come to its end."""
        self.readers: weakref.WeakSet[Stream[Any]] = weakref.WeakSet()
        """Weakly: one that is dropped reads no more."""
        self.producing = Background("dibs stream")
        self._items: list[Any] = []
        self._first = 0
        """The number of the first item that is still here."""
        self._waiting: list[Signal] = []
        self._guard = Guard()
        self._loop = current_loop()

    @property
    def end(self) -> int:
        """Return how many items have arrived."""
        with self._guard:
            return self._first + len(self._items)

    @property
    def is_orphaned(self) -> bool:
        """Return True if its event loop was closed before it was over."""
        return not self.is_over and self._loop is not current_loop()

    def items(self) -> list[Any]:
        """Return all items, for who continues the run."""
        return list(self._items)

    # ---- writing

    def start(self, work: Callable[[], None]) -> None:
        """Have it filled by *work*. Raises RuntimeError if there is no thread for it."""
        self.producing.start(functools.partial(copy_context().run, work))

    def begin(self, run: bytes, *, is_live: bool) -> None:
        """It is of that run."""
        self.run, self.is_live, self.is_begun = run, is_live, True
        self._wake()

    def put(self, *items: Any) -> None:
        """More items have arrived."""
        with self._guard:
            self._items += items
        if self._waiting:
            self._wake()

    def finish(self, error: Exception | None = None) -> None:
        """There will be no more; the first to say so decides why."""
        if not self.is_over:
            self.error = error
            self.is_over = self.is_begun = True
            self._wake()

    def forget_read(self) -> None:
        """Forget the items that all readers have."""
        with self._guard:
            least = min([reader.position for reader in list(self.readers)], default=self.end)
            del self._items[: max(least - self._first, 0)]
            self._first = max(least, self._first)

    def _wake(self) -> None:
        with self._guard:
            waiting, self._waiting = self._waiting, []
        for signal in waiting:
            signal.set()

    # ---- reading

    def at(self, number: int) -> Any:
        """Return one item."""
        with self._guard:
            return self._items[number - self._first]

    def begun(self) -> None:
        """Wait until it is known which run it is of."""
        while not self.is_begun:
            self._wait(lambda: self.is_begun, _LOOK_AGAIN)

    def wait(self, number: int, seconds: float = _LOOK_AGAIN) -> None:
        """Wait until there is an item with that number, or it is over, or *seconds* are."""
        self._wait(lambda: self.is_over or self.end > number, seconds)

    def _wait(self, is_enough: Callable[[], bool], seconds: float) -> None:
        signal = Signal()
        with self._guard:
            self._waiting.append(signal)
        if not is_enough():
            signal.wait(seconds)
        with self._guard:
            if signal in self._waiting:
                self._waiting.remove(signal)


class Stream(Generic[T]):
    """The items of one call, from the first one. Nothing runs before the first one is asked for.

    A caller who leaves stops nobody: the run goes on, and is kept.
    """

    def __init__(self, source: Any, on_restart: OnRestart, name: str) -> None:
        """*source*: where the items come from, see `streamed_functions`."""
        self._source = source
        self._on_restart: OnRestart = on_restart
        self._name = name
        self._feed: Feed | None = None
        self._alone: Any = None
        """The generator, inside a transaction."""
        self._is_over = False
        self.position = 0
        """The number of the next item; the first one has 0."""

    def skip(self, items: int) -> "Stream[T]":
        """Begin behind so many items, which were received before. Returns the stream.

        Raises:
            UsageError: It has begun, or *items* is no number of items.
        """
        if type(items) is not int or items < 0:
            raise UsageError(f"items must be a whole number, 0 or more, not {items!r}")
        if self._feed is not None or self._is_over:
            raise UsageError("skip is for a stream from which no item was taken yet")
        self.position = items
        return self

    def __iter__(self) -> "Stream[T]":
        return self

    def __next__(self) -> T:
        while True:
            feed = self._feed
            if self._is_over:
                raise StopIteration
            if feed is None:
                self._alone = self._alone or self._source.alone()
                if self._alone is not None:
                    return self._next_alone()
                self._feed = self._source.join(self)
            elif self.position < feed.end:
                item = feed.at(self.position)
                self.position += 1
                return item
            elif feed.is_over:
                begins_again = self._ended(feed)
                if begins_again is not None:
                    return begins_again
            else:
                feed.wait(self.position)

    def _next_alone(self) -> T:
        try:
            value = next(self._alone)
        except BaseException:
            self._is_over = True
            raise
        self.position += 1
        return self._source.packed(value)

    def _ended(self, feed: Feed) -> Any:
        """Return what is yielded where another run begins; None: look again.

        What ends it is raised.
        """
        error, received = feed.error, self.position
        if isinstance(error, Lost):
            try:
                answer = after_loss(self._on_restart, error, received)
            except Lost:
                self._leave()
                raise self._told(error, received) from None
            self._feed, self.position = None, 0
            feed.readers.discard(self)
            return self._told(error, received) if answer == "restart" else None
        self._leave()
        if error is not None:
            raise error
        return None

    def _told(self, lost: Lost, received: int) -> Exception:
        if lost.outage is not None:
            return Unavailable(lost.outage.cause, self._name)
        self._source.interrupted(received)
        return Interrupted(received, self._name)

    def _leave(self) -> None:
        self._is_over = True
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.readers.discard(self)

    def close(self) -> None:
        """Stop reading. The run goes on; inside a transaction it has no other reader, and ends."""
        self._leave()
        if self._alone is not None:
            self._alone.close()

    # ---- for `sse`

    def _begin(self) -> str:
        """Join the stream. Returns the id of its run."""
        if self._feed is None and not self._is_over:
            self._feed = self._source.join(self)
        return "" if self._feed is None else self._feed.run.decode()

    def _has_news(self, seconds: float) -> bool:
        """Wait until the next step can be taken at once. False: *seconds* are over."""
        feed = self._feed
        if feed is None or self.position < feed.end or feed.is_over:
            return True
        feed.wait(self.position, seconds)
        return self.position < feed.end or feed.is_over

    def _text(self, item: Any) -> str:
        """An item as text: as it is, or as the codec writes it."""
        return item if isinstance(item, str) else self._source.encoded(item).decode()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._name!r}, at item {self.position}>"
