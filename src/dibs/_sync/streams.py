# Generated from src/dibs/_async/streams.py by unasync.py – do not edit.
"""Streams: one run for all callers of all processes."""

import contextlib
import functools
from typing import Any, Literal

from .._core.capabilities import must_allow
from .._core.causes import cause_for
from .._core.connection import Outage
from .._core.stream import (
    AGAIN,
    FLUSH,
    GRACE,
    LOOK_AGAIN,
    PIECE,
    Begun,
    Ending,
    ItemParser,
    ItemsReading,
    Lost,
    Plan,
    Replaced,
    StreamInfo,
    StreamKeys,
    StreamRecord,
    begin_request,
    expire_request,
    invalidate_request,
    is_continued,
    items_request,
    leave_request,
    new_record,
    read_begun,
    read_invalidated,
    read_items,
    read_record,
    record_request,
    resume_request,
    stream_info,
)
from .._core.tracking import untracked
from .._core.unit_of_work import Outcome, current, use
from .._events import EventSink
from .._system import time, urandom
from .._threads import Coalescer, Guard, Signal, monotonic, sleep
from ..errors import Unavailable
from .lease_table import Leases
from .store import Store
from .stream_feed import Feed, Stream
from .stream_run import Run, StreamCall
from .unit_of_work import Effect


class Streams:
    """What this process runs or follows, for all callers here."""

    def __init__(self, store: Store, events: EventSink, leases: Leases) -> None:
        self.store = store
        self.events = events
        self._leases = leases
        self.open()

    def open(self) -> None:
        """Begin without streams; again in a forked child."""
        self.feeds: dict[bytes, Feed] = {}
        """Key → what is run or followed here."""
        self.runs: dict[Feed, Run | None] = {}
        """What is under way, also where no new caller may join it; None: it is followed."""
        self._reads = Coalescer()
        self._guard = Guard()

    @property
    def holder(self) -> str:
        """Return what this process is called, for people."""
        return self._leases.identity.holder

    # ---- reading

    def join(self, call: StreamCall, reader: Stream[Any]) -> Feed:
        """Return the feed of the current run, which *reader* reads; begun, if there is none."""
        self.store.enter()
        key = call.keys.key
        while True:
            feed, is_new = self._feed_of(call, reader)
            feed.begun()
            if is_new or feed.error is not None or self._is_current(call.keys, feed):
                self._joined(call.keys, feed, is_new=is_new)
                return feed
            if feed.error is not None:  # it has failed meanwhile, and this caller waited for it
                return feed
            feed.readers.discard(reader)
            self.drop(key, feed)

    def _feed_of(self, call: StreamCall, reader: Stream[Any]) -> tuple[Feed, bool]:
        key = call.keys.key
        with self._guard:
            feed = self.feeds.get(key)
            if feed is not None and feed.error is None and not feed.is_orphaned:
                feed.readers.add(reader)
                return feed, False
            feed = self.feeds[key] = Feed()
            self.runs[feed] = None
            feed.readers.add(reader)
        try:
            feed.start(functools.partial(Production(self, call, feed).run))
        except RuntimeError:  # no thread is to be had
            self.end(key, feed)
            feed.finish(Unavailable(cause_for("no_thread"), call.keys.name))
        return feed, True

    def _joined(self, keys: StreamKeys, feed: Feed, *, is_new: bool) -> None:
        if feed.error is None and (not is_new or self.runs.get(feed) is None):
            self.events.emit("followed" if feed.is_live else "hit", keys.name)

    def _is_current(self, keys: StreamKeys, feed: Feed) -> bool:
        """Return whether a caller who asks now may join: the stream was not invalidated.

        Unavailable: the store is out, and the policy "closed".
        """
        try:
            record = self._reads.ask(keys.key, self.record_of, keys)
        except Outage as outage:
            self.store.outage(keys.name, outage.cause, keys.options.on_outage)
            return True  # it cannot be known
        return record is not None and record.run == feed.run

    def record_of(self, keys: StreamKeys) -> StreamRecord | None:
        """Return the current run. Raises Outage if it is not known."""
        now, _ = self.store.opened()
        return read_record(self.store.ask(record_request(keys), now))

    def drop(self, key: bytes, feed: Feed) -> None:
        """Let no new caller join it."""
        with self._guard:
            if self.feeds.get(key) is feed:
                del self.feeds[key]

    def end(self, key: bytes, feed: Feed) -> None:
        """It is over, and written."""
        self.drop(key, feed)
        self.runs.pop(feed, None)

    def peek(self, keys: StreamKeys) -> StreamInfo | None:
        """Return what is stored.

        Raises Unavailable if the store is out, and the policy "closed".
        """
        try:
            record = self.record_of(keys)
            if record is None:
                return None
            reply = self.store.ask(items_request(keys.items(record.run), 0), monotonic())
            reading = self.store.read(read_items, untracked(reply, items_request(b"-", 0)))
            return stream_info(record, reading, time())
        except Outage as outage:
            self._undelivered(keys, outage)
            return None

    # ---- invalidating

    def invalidate(self, keys: StreamKeys) -> bool:
        """Forget it everywhere; a run under way is not stored. False: not yet delivered."""
        self.store.enter()
        unit = current() if use.has_begun else None
        if unit is not None:
            again = functools.partial(self._invalidate_after, keys)
            unit.put(Effect(self._leases, keys.key, monotonic(), again))
        return self._invalidate(keys)

    def _invalidate_after(self, keys: StreamKeys, outcome: Outcome) -> None:
        """A run that has begun since may have read the rows of before."""
        if outcome != "rolled_back":
            with contextlib.suppress(Unavailable):
                self._invalidate(keys)

    def _invalidate(self, keys: StreamKeys) -> bool:
        until = monotonic() + keys.options.ttl
        request = invalidate_request(keys.key, until)
        self._forget(keys.key)
        try:
            try:
                now, _ = self.store.opened()
            except Outage:
                self.store.transport.post(request)
                raise
            record = self.store.read(read_invalidated, self.store.ask(request, now))
        except Outage as outage:
            return self._undelivered(keys, outage)
        if record is not None and record.is_over:
            self.store.transport.post(expire_request(keys, record.run, until))
        self._forget(keys.key)  # a caller may have begun to follow it before
        self.events.emit("invalidated", keys.name)
        return True

    def _forget(self, key: bytes) -> None:
        with self._guard:
            self.feeds.pop(key, None)

    def _undelivered(self, keys: StreamKeys, outage: Outage) -> bool:
        """False. Raises Unavailable if the policy is "closed"."""
        self.events.emit("outage", keys.name, cause=outage.cause)
        if keys.options.on_outage == "closed":
            raise Unavailable(outage.cause, keys.name) from None
        return False

    # ---- the end

    def close(self, seconds: float) -> None:
        """Wait for the runs of this process, so long at most; then others take over."""
        until = monotonic() + seconds
        for feed, run in list(self.runs.items()):
            while run is not None and feed in self.runs and monotonic() < until:
                if feed.is_orphaned:
                    break
                sleep(FLUSH)
        for feed, run in list(self.runs.items()):
            if run is not None:
                run.stop()
            feed.finish(Unavailable(cause_for("closed")))
            feed.producing.stop()
        self.open()


class Production:
    """Fills one feed: runs the generator, or follows the run of another process."""

    def __init__(self, streams: Streams, call: StreamCall, feed: Feed) -> None:
        self._streams = streams
        self._store = streams.store
        self._events = streams.events
        self._call = call
        self._keys = call.keys
        self._feed = feed

    def run(self) -> None:
        """Until the run is over here, and what there is of it is written."""
        try:
            self._produce()
        except Exception as error:
            self._feed.finish(error)
        except BaseException:
            self._feed.finish(Unavailable(cause_for("load_cancelled"), self._keys.name))
            raise
        finally:
            self._feed.finish(Lost())
            self._streams.end(self._keys.key, self._feed)

    def _produce(self) -> None:
        replaced: Replaced | None = None
        while True:
            plan = self._plan()
            try:
                begun = self._begin(plan, replaced)
            except Outage as outage:
                self._store.outage(self._keys.name, outage.cause, self._keys.options.on_outage)
                self._lead(plan, Run(*self._parts(plan), outage=outage.cause))
                return
            if begun.is_ours:
                self._events.emit("miss" if replaced is None else "reelected", self._keys.name)
                self._lead(plan, Run(*self._parts(plan)))
                return
            record = read_record(begun.value)
            if record is None or not record.fits(self._keys.options):
                self._events.emit("poison", self._keys.name)
                replaced = Replaced(begun.value, b"-", is_dead=False)
                continue
            found = self._follow(record)
            if self._feed.is_over or self._feed.end:
                return  # what follows now would be another run
            replaced = Replaced(begun.value, record.run, is_dead=found != "unreadable")

    def _follow(self, record: StreamRecord) -> str:
        """Follow a run, and continue it if its process dies and the function can."""
        following = Following(self._store, self._keys, self._feed, record)
        found = following.follow()
        while found == "resume":
            try:
                found = self._resume(record.run, following)
            except Outage:
                found = "again"
            if found == "again":  # of another process, or after an outage
                found = following.follow()
        return found

    def _parts(self, plan: Plan) -> tuple[Any, ...]:
        drop = functools.partial(self._streams.drop, self._keys.key, self._feed)
        return self._store, self._events, self._call, plan, self._feed, drop

    def _plan(self, run: bytes | None = None, began_at: float | None = None) -> Plan:
        """Return a run that has not begun, or another attempt at *run*."""
        attempt = urandom(8).hex().encode()
        since = time() if began_at is None else began_at
        holder, options = self._streams.holder, self._keys.options
        return Plan(self._keys, new_record(options, run or attempt, attempt, since, holder))

    def _begin(self, plan: Plan, replaced: Replaced | None) -> Begun:
        now, engine = self._store.opened()
        if engine.refused:
            must_allow(engine, "stream")
        try:
            reply = self._store.ask(begin_request(plan, replaced), now)
            return self._store.read(read_begun, reply)
        except Outage as outage:
            if outage.sent:
                self._leave(plan)
            raise
        except Exception:
            raise
        except BaseException:
            self._leave(plan)
            raise

    def _leave(self, plan: Plan) -> None:
        """It may have begun: no process is to wait for it."""
        self._store.transport.post(leave_request(plan, monotonic() + 3600))

    def _lead(self, plan: Plan, run: Run) -> None:
        self._streams.runs[self._feed] = run
        self._feed.begin(plan.record.run, is_live=True)
        run.run()

    def _resume(self, run: bytes, following: "Following") -> str:
        """Continue a run whose process has died, if no other process does."""
        record = self._streams.record_of(self._keys)
        if record is None or record.run != run:  # invalidated: there is nothing to continue
            return "dead"
        plan = self._plan(run, record.began_at)
        size, count = following.offset, self._feed.end
        try:
            request = resume_request(plan, record, size, count)
            is_ours = self._store.ask(request, monotonic()) == 1
        except BaseException:
            self._leave(plan)
            raise
        if not is_ours:
            return "again"
        self._events.emit("reelected", self._keys.name)
        self._lead(plan, Run(*self._parts(plan), size=size))
        return "over"


class Following:
    """Reads the items of one run as they are written, by this process or another one."""

    def __init__(
        self, store: Store, keys: StreamKeys, feed: Feed, record: StreamRecord
    ) -> None:
        self._store = store
        self._keys = keys
        self._feed = feed
        self._record = record
        self._items = keys.items(record.run)
        self._parser = ItemParser()
        self._attempt: bytes | None = None
        """Who has written the items that were read; None: none were."""
        self._signal = Signal()
        self._out_since: float | None = None
        self._silent_since: float | None = None
        self.offset = 0
        """The bytes that were read."""

    def follow(self) -> Literal["over", "dead", "resume", "unreadable"]:
        """Until the feed is over; or what is to be done, as no caller has noticed anything yet."""
        self._feed.begin(self._record.run, is_live=not self._record.is_over)
        try:
            while not self._feed.is_over and self._feed.readers:
                found = self._step()
                if found is not None:
                    return found
        finally:
            self._store.transport.unwatch(self._items, self._signal.set)
        return "over"

    def _step(self) -> Literal["over", "dead", "resume", "unreadable"] | None:
        now = monotonic()
        self._signal.clear()
        try:
            reading = self._read()
        except Outage as outage:
            return self._wait_for_store(outage, now)
        self._out_since = None
        head = reading.head
        if head is None or not is_continued(self._attempt, head, self.offset):
            return self._lost("dead")
        seems_dead = head.is_live and reading.silence_left <= 0
        self._silent_since = (self._silent_since or now) if seems_dead else None
        may_resume = self._keys.options.on_restart == "resume"
        if reading.data and (not seems_dead or self._feed.end or may_resume):
            try:
                self._take(reading.data)
            except Exception:  # bytes of another program or version
                return self._lost("unreadable")
            self._attempt = head.attempt
            if self._parser.ending is not None:
                self._finish(self._parser.ending)
                return "over"
            if len(reading.data) == PIECE:
                return None
        if self._silent_since is not None and now - self._silent_since >= GRACE:
            return "resume" if may_resume else self._lost("dead")
        self._signal.wait(self._pause(reading, now))
        return None

    def _read(self) -> ItemsReading:
        request = items_request(self._items, self.offset)
        transport = self._store.transport
        answer = transport.track(request, self._signal.set, monotonic())
        self._store.check_reply(request, answer.replies, monotonic())
        return self._store.read(read_items, answer)

    def _take(self, data: bytes) -> None:
        decode = self._keys.options.codec.decode
        self._feed.put(*[decode(payload) for payload in self._parser.feed(data)])
        self.offset += len(data)

    def _lost(self, what: Literal["dead", "unreadable"]) -> Literal["over", "dead", "unreadable"]:
        """Interrupt callers that have received items; for the others, start another run."""
        if not self._feed.end:
            return what
        self._feed.finish(Lost())
        return "over"

    def _finish(self, ending: Ending) -> None:
        how, failure = ending
        error = None
        if how == "too_long":
            error = Unavailable(cause_for("too_long"), self._keys.name)
        elif how == "failed":
            why = cause_for("load_failed", f"the run failed ({failure})")
            error = Unavailable(why, self._keys.name, failure)
        self._feed.finish(error)

    def _wait_for_store(self, outage: Outage, now: float) -> Literal["over"] | None:
        self._silent_since = None
        if self._out_since is None:
            self._out_since = now
        if now - self._out_since >= self._keys.options.stall:
            self._feed.finish(Lost(outage))
            return "over"
        sleep(AGAIN)
        return None

    def _pause(self, reading: ItemsReading, now: float) -> float:
        if not reading.is_tracked:
            return FLUSH
        if self._silent_since is not None:
            return max(min(self._silent_since + GRACE - now, LOOK_AGAIN), FLUSH)
        return max(min(reading.silence_left, LOOK_AGAIN), FLUSH)
