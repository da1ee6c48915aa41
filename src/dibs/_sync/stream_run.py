# Generated from src/dibs/_async/stream_run.py by unasync.py – do not edit.
"""A run of a stream in this process: what it yields goes to the readers here, and to the store."""

import functools
import math
from bisect import bisect_right
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, NamedTuple

from .._core.causes import cause_for
from .._core.codec import packed
from .._core.connection import Outage
from .._core.stream import (
    AGAIN,
    DONE,
    FLUSH,
    KEPT_MS,
    PIECE,
    TOO_LONG,
    Lost,
    Plan,
    StreamKeys,
    StreamRecord,
    append_request,
    end_request,
    failed_mark,
    leave_request,
    packed_item,
    read_appended,
    read_ended,
)
from .._events import EventSink
from .._threads import Background, Signal, monotonic, sleep
from ..errors import Cause, UsageError
from .store import Store
from .stream_feed import Feed

_LONG = 86_400.0


class StreamCall(NamedTuple):
    """A call of a function that is streamed."""

    keys: StreamKeys
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def begin(self, so_far: list[Any]) -> Any:
        """Return the generator.

        *so_far*: what was yielded before, if the function is to continue.
        """
        if self.keys.options.on_restart == "resume":
            return self.function(*self.args, **self.kwargs, so_far=so_far)
        return self.function(*self.args, **self.kwargs)


class Run:
    """Runs the generator, and writes what it yields."""

    def __init__(
        self,
        store: Store,
        events: EventSink,
        call: StreamCall,
        plan: Plan,
        feed: Feed,
        drop: Callable[[], None],
        *,
        size: int = 0,
        outage: Cause | None = None,
    ) -> None:
        """*drop*: called when no new caller may join it.

        *size*: the bytes of the items of earlier attempts. *outage*: why it is not stored.
        """
        self._events = events
        self._call = call
        self._feed = feed
        self._outage = outage
        self._is_kept = outage is None
        self._count = feed.end
        self._size = size
        self._is_stopped = False
        self._writer = StreamWriter(store, events, plan, drop, size, self._count)

    def run(self) -> None:
        """From the first item to the last, and until that is stored; the feed gets all of them."""
        since = monotonic()
        if self._is_kept:
            self._writer.start()
        try:
            self._run(since)
        except Exception as error:
            self._writer.end(failed_mark(error), None)
            self._feed.finish(error)
            why = cause_for("load_failed", f"the run failed: {type(error).__name__}")
            self._events.emit("degraded", self._call.keys.name, cause=why)
        except BaseException:
            self._leave()
            raise
        if self._is_kept:
            self._writer.ended.wait(_LONG)

    def stop(self) -> None:
        """Yield no more, and give the run up. With threads: after the next item."""
        self._is_stopped = True

    def _run(self, since: float) -> None:
        generator = self._call.begin(self._feed.items())
        is_cut = False
        try:
            for value in generator:
                self._yielded(value)
                if is_cut := self._is_useless:
                    break
        finally:
            generator.close()
        took, name = monotonic() - since, self._call.keys.name
        if is_cut:
            self._leave()
            self._feed.finish(Lost())  # a caller may have come meanwhile
            return
        if self._outage is None:
            self._events.emit("loaded", name, took=took)
        else:
            self._events.emit("degraded", name, cause=self._outage, took=took)
        self._writer.end(DONE, took)
        self._feed.finish()

    def _leave(self) -> None:
        if self._is_kept:
            self._writer.leave()

    @property
    def _is_useless(self) -> bool:
        """It was stopped, or is neither kept nor read."""
        is_kept = self._is_kept and not self._writer.has_given_up
        return self._is_stopped or not (is_kept or self._feed.readers)

    def _yielded(self, value: Any) -> None:
        options = self._call.keys.options
        payload, value = packed(options.codec, value, self._call.keys.name)
        self._feed.put(value)
        self._count += 1
        if not self._is_kept:
            return
        if self._writer.has_given_up:
            self._feed.forget_read()
            return
        item = packed_item(payload)
        self._size += len(item)
        if self._size > options.most:
            self._writer.give_up(cause_for("too_long"), TOO_LONG)
        else:
            self._writer.add(item)


class StreamWriter:
    """Writes the items of one run: what has gathered, about twenty times a second.

    It keeps all of them until the end: after an outage, or a failover to a replica without the
    last ones, it writes again what is missing.
    """

    def __init__(
        self,
        store: Store,
        events: EventSink,
        plan: Plan,
        drop: Callable[[], None],
        size: int,
        count: int,
    ) -> None:
        self._store = store
        self._events = events
        self._plan = plan
        self._drop = drop
        self._base = size
        """Where its own data begins: what is before it is of earlier attempts."""
        self._data = bytearray()
        self._ends: list[int] = []
        """Where each item ends in it."""
        self._before = count
        self._written = 0
        """Bytes of the data that the store has."""
        self._last: tuple[bytes, float | None] | None = None
        """How it ends, and how long the run took if it is kept."""
        self.has_given_up = False
        """What is added is not stored."""
        self._is_left = False
        self._wake = Signal()
        self._work = Background("dibs stream writer")
        self.ended = Signal()
        """Nothing more is written."""

    def start(self) -> None:
        """Begin to write."""
        self._work.start(functools.partial(copy_context().run, self._run))

    def add(self, item: bytes) -> None:
        """Have an item written."""
        self._data += item
        self._ends.append(len(self._data))
        self._wake.set()

    def end(self, mark: bytes, took: float | None) -> None:
        """There are no more. *took*: of a run that is kept; None: it is not."""
        if self._last is None:
            self._last = mark, took
            self._wake.set()

    def give_up(self, cause: Cause, mark: bytes | None = None) -> None:
        """Store it no longer. *mark*: what followers in other processes read."""
        self.has_given_up = True
        self._drop()
        self._events.emit("rejected_write", self._plan.keys.name, cause=cause)
        if mark is not None:
            self.end(mark, None)

    def leave(self) -> None:
        """Give up the run, and wake its followers at once."""
        self.has_given_up = self._is_left = True
        self._store.transport.post(leave_request(self._plan, math.inf))
        self._wake.set()

    def _run(self) -> None:
        try:
            self._write_all()
        finally:
            self.has_given_up = True
            self.ended.set()

    def _write_all(self) -> None:
        heartbeat = self._plan.keys.options.lease / 3
        out_since = math.inf
        while True:
            self._wake.wait(heartbeat)
            self._wake.clear()
            if self._is_left:
                return
            try:
                if self._write():
                    return
                out_since = math.inf
                sleep(FLUSH)
            except Outage as outage:
                out_since = min(out_since, monotonic())
                is_full = outage.cause.code == "oom"
                if is_full or monotonic() - out_since > KEPT_MS / 1000:
                    self.give_up(outage.cause)
                    self.leave()  # followers learn it, if its items have not expired
                    return
                sleep(AGAIN)
                self._wake.set()
            except UsageError as error:  # the server refuses it, or the client was closed
                self.give_up(cause_for("denied", str(error)))
                return

    def _write(self) -> bool:
        """Write what has gathered. True: there is nothing more to be written."""
        last = self._last  # before the data: all of that comes before it
        while True:
            at, to = self._written, self._piece_end()
            offset, data = self._base + at, bytes(self._data[at:to])
            count = self._before + bisect_right(self._ends, to)
            if last is not None and to == len(self._data):
                return self._end(offset, count, data, *last)
            reply = self._ask(append_request(self._plan, offset, count, data))
            size = self._store.read(read_appended, reply)
            if size is None or size < self._base:
                self.give_up(cause_for("superseded"))
                return True
            self._written = size - self._base
            if self._written >= to and to >= len(self._data):
                return False

    def _piece_end(self) -> int:
        """Up to where to write now: whole items, of one piece at most, or a single one."""
        if len(self._data) - self._written <= PIECE:
            return len(self._data)
        within = bisect_right(self._ends, self._written + PIECE) - 1
        if within >= 0 and self._ends[within] > self._written:
            return self._ends[within]
        return self._ends[bisect_right(self._ends, self._written)]

    def _end(
        self, offset: int, count: int, data: bytes, mark: bytes, took: float | None
    ) -> bool:
        left = None if took is None else self._record_left(took, count)
        reply = self._ask(end_request(self._plan, offset, count, data + mark, left))
        ended = self._store.read(read_ended, reply)
        if not ended.is_over:
            self._written = max(ended.size - self._base, 0)
            self._wake.set()
            return ended.size < self._base
        if left is not None and not ended.is_kept:
            self.give_up(cause_for("superseded"))
        return True

    def _record_left(self, took: float, count: int) -> StreamRecord:
        return self._plan.record._replace(is_over=True, took=took, items=count)

    def _ask(self, request: Any) -> Any:
        return self._store.ask(request, monotonic())
