# Generated from src/dibs/_async/cache_load.py by unasync.py – do not edit.
"""Loads of a cached value: under its lock, for all callers here, or in the background."""

import contextlib
import functools
import logging
import math
from collections.abc import Callable, Iterator
from typing import Any

from .._core.cache import (
    ALWAYS,
    HELD,
    IF_NEEDED,
    CacheKeys,
    LoadAnswer,
    LoadClaim,
    LoadRequest,
    Reading,
    Versions,
    lock_request,
    read_lock,
    read_validity,
    read_versions,
    ttl_of,
    unlock_request,
    validity_request,
    version_request,
)
from .._core.capabilities import must_allow
from .._core.causes import cause_for
from .._core.codec import packed
from .._core.connection import Outage
from .._core.lease import HoldCall, LeaseState
from .._core.request import Request
from .._core.tracking import Tracked, read_watch, watch_request
from .._core.unit_of_work import Unit
from .._events import EventSink
from .._threads import BackgroundTasks, Guard, Signal, current_loop, monotonic, within
from .._transport.base import Wake
from ..errors import Cause, Unavailable, UsageError
from .cache_values import CacheMemory, Storing, Writer
from .lease_table import Leases
from .spans import load_in_span, work_in_background
from .store import Store

_log = logging.getLogger("dibs")
_FOREIGN_LOCK = (
    "%s: another program has the lock of its load; values are loaded after %.1f s, and not stored"
)
_REASONS = {"missing": "miss", "stale": "stale", "outdated": "outdated", "poison": "poison"}
"""Why a value is loaded, by what the store had; otherwise it is loaded before it is due."""


class Loader:
    """Loads, on behalf of all callers that wait."""

    def __init__(
        self,
        store: Store,
        events: EventSink,
        leases: Leases,
        memory: CacheMemory,
    ) -> None:
        self._store = store
        self._events = events
        self._leases = leases
        self._memory = memory
        self.writer = Writer(store, events, leases, memory)
        self.open()

    def open(self) -> None:
        """Begin without loads; again in a forked child."""
        self.untracked_loads: dict[bytes, tuple[bytes, Versions]] = {}
        """Key → lock of a load, and its tags, where the server does not tell of changes."""
        self._leading: dict[bytes, tuple[LoadRequest, LeaseState]] = {}
        self._loop: object = None

    # ---- claiming

    def claim(self, request: LoadRequest, token: bytes, when: bytes) -> Reading:
        """Return what the store has, and whether we load it.

        Raises UsageError if the key is a lease's.
        """
        [reading] = self.claim_all([(request.keys, token, when)])
        if isinstance(reading, Exception):
            raise reading
        if reading.state == "held":
            raise UsageError(HELD)
        return reading

    def claim_all(
        self, asked: list[tuple[CacheKeys, bytes, bytes]]
    ) -> list[Reading | Exception]:
        """Claim many values, in one write; or the error for that request."""
        now, engine = self._store.opened()
        if engine.refused:
            must_allow(engine, "load")
            if any(keys.tags for keys, _, _ in asked):
                must_allow(engine, "tag")
        self.end_orphaned()
        tags = list(dict.fromkeys([tag for keys, _, _ in asked for tag in keys.tags]))
        requests = [lock_request(*each) for each in asked]
        try:
            replies = self._store.ask_all(
                [*requests, *[version_request(tag) for tag in tags]], now
            )
        except Outage as outage:
            if outage.sent:
                self._unlock_all(asked)
            raise
        except Exception:
            raise
        except BaseException:
            self._unlock_all(asked)
            raise
        versions = dict(zip(tags, read_versions(replies[len(asked) :]), strict=True))
        return [
            self._claimed(each, reply, [versions[tag] for tag in each[0].tags])
            for each, reply in zip(asked, replies, strict=False)
        ]

    def _claimed(
        self, asked: tuple[CacheKeys, bytes, bytes], reply: Any, versions: Versions
    ) -> Reading | Exception:
        keys, token, _ = asked
        if isinstance(reply, Outage):
            if reply.sent:
                self.writer.unlock(keys, token)
            return reply
        if isinstance(reply, UsageError):
            return reply
        try:
            reading = self._store.read(read_lock, reply, keys.options, versions)
        except Outage as outage:  # it may be ours to load
            self.writer.unlock(keys, token)
            return outage
        if reading.state == "poison":
            self._events.emit("poison", keys.name)
        return reading

    def _unlock_all(self, asked: list[tuple[CacheKeys, bytes, bytes]]) -> None:
        for keys, token, _ in asked:
            self.writer.unlock(keys, token)

    # ---- loading

    def lead(self, request: LoadRequest, token: bytes, reading: Reading) -> LoadAnswer:
        """Load, keep the lock alive meanwhile, store. What the function raises."""
        [answer] = self.lead_all([LoadClaim(request, token, reading)], request.load, _alone)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def lead_all(
        self,
        claims: list[LoadClaim],
        load: Callable[[], Any],
        split: Callable[[Any], list[Any]],
    ) -> list[LoadAnswer | Exception]:
        """Load many values by one call, keep their locks alive meanwhile, store them.

        *split*: what the call returned, as a value for each, or an Absent. If a caller
        deletes a value meanwhile, its result is not stored, and who asks later starts a new load.
        """
        since = monotonic()
        options = claims[0].request.options
        forgets = self._begin_all(claims, since)
        versions: list[Versions] = [[] for _ in claims]
        try:
            versions = self._watch_all(claims, forgets)
            reason = _REASONS.get(claims[0].reading.state, "refresh")
            values = split(self.call(claims[0].request.keys, reason, load))
            ttls = [ttl_of(options, value) for value in values]
        except Exception as error:
            self.writer.failed(claims, versions, error)
            raise
        except BaseException:
            for claim in claims:
                self.writer.unlock(claim.request.keys, claim.token)
            raise
        finally:
            self._end(claims, forgets)
        return self.writer.keep(claims, versions, values, ttls, since)

    def call(self, keys: CacheKeys, reason: str, load: Callable[[], Any]) -> Any:
        """Return what *load* returns. Raises TimeoutError if it took longer than `load_timeout`."""
        limited = functools.partial(within, keys.options.load_timeout, load)
        if not self._events.tracers:
            return limited()
        return load_in_span(self._events, keys.name, reason, limited)

    def _begin_all(self, claims: list[LoadClaim], since: float) -> list[Callable[[], None]]:
        """Have the locks renewed. Returns what keeps later callers from joining."""
        try:
            return [self._begin(claim, since) for claim in claims]
        except BaseException:  # no thread to be had, or a signal handler raised
            for claim in claims:
                self._stop_renewing(claim.token)
                self.writer.unlock(claim.request.keys, claim.token)
            raise

    def _begin(self, claim: LoadClaim, since: float) -> Callable[[], None]:
        request = claim.request
        call = HoldCall(request.keys.lock, "", request.keys.name, request.options.lock)
        lock = LeaseState(call, claim.lock, since)
        self._leading[claim.token] = request, lock
        with contextlib.suppress(Unavailable):  # no thread: others may load after `lock_ttl`
            self._leases.renewer.keep(lock)
        return functools.partial(self._memory.forget_loads, request.keys.key)

    def _stop_renewing(self, token: bytes) -> None:
        """Stop renewing it."""
        _, lock = self._leading.pop(token, (None, None))
        if lock is not None:
            lock.is_over = True

    def _watch_all(
        self, claims: list[LoadClaim], forgets: list[Callable[[], None]]
    ) -> list[Versions]:
        """Watch values and their tags for changes. Returns the versions of the tags."""
        versions = self._begin_tags(claims)
        watches: list[tuple[Request, Wake]] = []
        for claim, forget in zip(claims, forgets, strict=True):
            keys = claim.request.keys
            watches.append((watch_request(keys.key), forget))
            watches += [(version_request(tag), forget) for tag in keys.tags]
        ended = self._store.recoveries
        try:
            answers = iter(self._store.transport.track_all(watches, monotonic()))
            for claim, forget, tagged in zip(claims, forgets, versions, strict=True):
                self._watched(claim, forget, tagged, answers)
        except Outage:
            for claim in claims:
                self._memory.begin_unwatched(claim.request.keys.key, claim, ended)
            # Then the load is not stored either.
        return versions

    def _watched(
        self,
        claim: LoadClaim,
        forget: Callable[[], None],
        versions: Versions,
        answers: Iterator[Tracked],
    ) -> None:
        watching = self._store.read(read_watch, next(answers))
        tags = [next(answers) for _ in versions]
        now = read_versions([tag.replies[0] for tag in tags])
        if watching.remaining <= 0 or now != versions:
            forget()  # changed before we could watch it
        elif not watching.tracked or not all(tag.tracked for tag in tags):
            self.untracked_loads[claim.request.keys.key] = claim.lock, versions

    def _begin_tags(self, claims: list[LoadClaim]) -> list[Versions]:
        """Return the versions of the tags of each value, before it is loaded.

        Raises Outage if not known.
        """
        life = max(claim.request.options.life for claim in claims)
        tags = list(dict.fromkeys([tag for claim in claims for tag in claim.request.keys.tags]))
        return [
            [found.get(tag) for tag in claim.request.keys.tags]
            for found in [self.writer.begin_tags(tags, life)]
            for claim in claims
        ]

    def _end(self, claims: list[LoadClaim], forgets: list[Callable[[], None]]) -> None:
        for claim, forget in zip(claims, forgets, strict=True):
            keys = claim.request.keys
            self._stop_renewing(claim.token)
            self._memory.end_unwatched(keys.key, claim)
            for key in (keys.key, *keys.tags):
                self._store.transport.unwatch(key, forget)
            if self.untracked_loads.get(keys.key, (None,))[0] == claim.lock:
                self.untracked_loads.pop(keys.key, None)

    def is_valid(self, keys: CacheKeys, lock: bytes, versions: Versions) -> bool:
        """False: the value was deleted, or one of its tags invalidated, during its load."""
        requests = [validity_request(keys), *[version_request(tag) for tag in keys.tags]]
        try:
            replies = self._store.ask_all(requests, monotonic())
        except Outage:
            return True  # it cannot be known
        if isinstance(replies[0], Outage):
            return True
        return read_validity(replies[0], lock) and read_versions(replies[1:]) == versions

    def end_orphaned(self) -> None:
        """End the loads of an event loop that was closed meanwhile, and so cannot end them."""
        before, self._loop = self._loop, current_loop()
        if before is None or before is self._loop:
            return
        orphaned, self._leading = self._leading, {}
        self.untracked_loads.clear()
        requests: list[Request] = []
        for token, (request, lock) in orphaned.items():
            lock.is_over = True
            requests.append(unlock_request(request.keys, token, math.inf))
        if requests:
            self._store.ask_all(requests, monotonic())

    # ---- without a lock

    def load_unguarded(self, request: LoadRequest, outage: Outage, ended: int) -> LoadAnswer:
        """Return our own load in an outage. Unavailable: the policy is "closed".

        *ended*: the store's `recoveries` before it was asked.
        """
        keys = request.keys
        self._store.outage(keys.name, outage.cause, request.options.on_outage)
        self._memory.begin_unwatched(keys.key, outage, ended)
        try:
            return self.degrade(request, outage.cause)
        finally:
            self._memory.end_unwatched(keys.key, outage)

    def load_inside(self, request: LoadRequest, unit: Unit) -> LoadAnswer:
        """Return our own load, for the transaction of *unit* alone: what is stored may be older."""
        keys, since = request.keys, monotonic()
        before = unit.value(self._leases, keys.key)
        if isinstance(before, Storing) and unit.take_back(before):
            before.carry_out("rolled_back")
        self._events.emit("miss", keys.name)
        value = self.call(keys, "miss", request.load)
        self._events.emit("loaded", keys.name, took=monotonic() - since)
        unit.loaded[self._leases, keys.key] = value = packed(keys.options.codec, value, keys.name)[
            1
        ]
        return LoadAnswer(value, math.inf)

    def degrade(self, request: LoadRequest, cause: str) -> LoadAnswer:
        """Return our own load, not stored.

        One for each process and key, because we are in a flight.
        """
        since = monotonic()
        value = self.call(request.keys, Cause(cause).code, request.load)
        self._events.emit("degraded", request.keys.name, cause=cause, took=monotonic() - since)
        return LoadAnswer(packed(request.options.codec, value, request.keys.name)[1], math.inf)

    def load_unstored(self, request: LoadRequest, *, foreign: bool) -> LoadAnswer:
        """Return our own load, not stored, while that of another process takes too long.

        *foreign*: the lock is not that of a load, so that none may ever end.
        Who asked after it had begun may share it if the other load is still valid when it ends:
        then the value was not deleted in between.
        """
        if foreign and self._memory.is_new_warning(name := request.keys.name):
            _log.warning(_FOREIGN_LOCK, name, request.options.lock_ttl)
        before, since = self._validity(request), monotonic()
        answer = self.degrade(request, cause_for("foreign_lock" if foreign else "wait_over"))
        ended = monotonic()
        is_unchanged = self._validity(request) == before
        return LoadAnswer(answer.value, ended if is_unchanged else since)

    def _validity(self, request: LoadRequest) -> Any:
        """Return the load that is under way, and the tags. None: it cannot be known."""
        tags = [version_request(tag) for tag in request.keys.tags]
        try:
            return self._store.ask_all([validity_request(request.keys), *tags], monotonic())
        except Outage:
            return None


def _alone(value: Any) -> list[Any]:
    return [value]


_TOO_MANY = cause_for("saturated", "too many concurrent refreshes")
_MOST_KEYS = 50_000
"""Keys of which we remember when a refresh may be tried again."""


class BackgroundLoad:
    """A load in the background: whether it has ended, and with what."""

    def __init__(self) -> None:
        self.ended = Signal()
        self.answer: LoadAnswer | None = None
        """What it found; None: it failed, or is not over."""


class Refresher:
    """Loads in the background, while callers read the stored value."""

    def __init__(self, events: EventSink, leases: Leases, loader: Loader) -> None:
        self._events = events
        self._leases = leases
        self._loader = loader
        self.open()

    def open(self) -> None:
        """Begin without refreshes; again in a forked child."""
        self._guard = Guard()
        self._threads = BackgroundTasks()
        self._next_try: dict[bytes, float] = {}
        """When a refresh may be tried again; not while one is under way."""

    def refresh(self, request: LoadRequest, *, force: bool) -> None:
        """Let one of all processes load it again, while callers read the stored value."""
        key = request.keys.key
        if self._threads.is_orphaned:
            self._next_try.clear()  # what was under way ended with its event loop
        if self._next_try.get(key, 0.0) > monotonic():
            return
        with self._guard:
            if self._next_try.get(key, 0.0) > monotonic():
                return
            self._begin(request)
        self._spawn(request, functools.partial(self._claim, request, force=force))

    def refresh_all(
        self,
        requests: list[LoadRequest],
        work: Callable[[list[LoadRequest]], set[bytes]],
    ) -> None:
        """Refresh many, by one piece of *work*, which returns the keys that it has loaded."""
        if self._threads.is_orphaned:
            self._next_try.clear()
        with self._guard:
            now = monotonic()
            due = [each for each in requests if self._next_try.get(each.keys.key, 0.0) <= now]
            for request in due:
                self._begin(request)
        if due and not self._start(functools.partial(self._end_all, due, work)):
            self._events.emit("degraded", due[0].keys.name, cause=_TOO_MANY)
            for request in due:
                self._try_later(request)

    def _end_all(
        self,
        requests: list[LoadRequest],
        work: Callable[[list[LoadRequest]], set[bytes]],
    ) -> None:
        done: set[bytes] = set()
        try:
            done = work(requests)
        finally:
            for request in requests:
                if request.keys.key in done:
                    self._next_try.pop(request.keys.key, None)
                else:
                    self._try_later(request)

    def lead(self, request: LoadRequest, token: bytes, reading: Reading) -> BackgroundLoad | None:
        """Refresh it, where the claim is ours already. None: it could not be begun."""
        self._begin(request)
        load = BackgroundLoad()
        work = functools.partial(self._run, load, request, token, reading)
        if self._spawn(request, functools.partial(self._end, request, work)):
            return load
        self._loader.writer.unlock(request.keys, token)
        return None

    def _run(
        self, load: BackgroundLoad, request: LoadRequest, token: bytes, reading: Reading
    ) -> None:
        try:
            load.answer = self._loader.lead(request, token, reading)
        finally:
            load.ended.set()

    def _begin(self, request: LoadRequest) -> None:
        if len(self._next_try) >= _MOST_KEYS:
            self._next_try.clear()
        # Not for ever: a thread that hangs cannot be stopped, and must not be the last to try.
        limit = request.options.load_timeout + request.options.lock_ttl
        self._next_try[request.keys.key] = monotonic() + limit

    def _spawn(self, request: LoadRequest, work: Callable[[], Any]) -> bool:
        if self._start(work):
            return True
        self._try_later(request)
        self._events.emit("degraded", request.keys.name, cause=_TOO_MANY)
        return False

    def _start(self, work: Callable[[], Any]) -> bool:
        """Start it in the background, in a separate trace."""
        if self._events.tracers:
            work = functools.partial(work_in_background, self._events, self._events.origins(), work)
        return self._threads.spawn(work)

    def _claim(self, request: LoadRequest, *, force: bool) -> None:
        token = self._leases.new_token()
        try:
            reading = self._loader.claim(request, token, ALWAYS if force else IF_NEEDED)
        except Exception:
            self._try_later(request)
            raise
        if not reading.won:
            self._try_later(request)
            return
        self._end(request, functools.partial(self._loader.lead, request, token, reading))

    def _end(
        self, request: LoadRequest, work: Callable[[], Any]
    ) -> None:
        try:
            work()
        except Exception:
            self._try_later(request)
            raise
        self._next_try.pop(request.keys.key, None)

    def _try_later(self, request: LoadRequest) -> None:
        """Another process loads it, or the load failed: its lock stands, so do not ask."""
        options = request.options
        pause = max(min(options.lock_ttl, options.ttl), options.poll)
        self._next_try[request.keys.key] = monotonic() + pause

    def stop(self) -> None:
        """End all of it; others take over."""
        self._threads.stop()
        self._next_try.clear()
