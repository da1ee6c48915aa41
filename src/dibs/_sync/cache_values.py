# Generated from src/dibs/_async/cache_values.py by unasync.py – do not edit.
"""Cached values: where a read finds one, and how the result of a load is stored."""

import math
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

from .._core.cache import (
    CacheKeys,
    LoadAnswer,
    LoadClaim,
    LoadRequest,
    Local,
    Reading,
    Ticket,
    Versions,
    follow_request,
    jittered,
    read_begun,
    read_follow,
    read_reply,
    read_validity,
    read_versions,
    store_request,
    tag_version_request,
    unlock_request,
    validity_request,
    version_request,
)
from .._core.causes import Absent, cause_for, failure_name
from .._core.codec import FAILURE, frame, packed
from .._core.connection import Outage
from .._core.request import Request
from .._core.tracking import Tracked, Watching, read_watch, watch_request
from .._core.unit_of_work import Outcome, Unit, current, use
from .._events import EventSink
from .._system import random, time, urandom
from .._threads import Flight, Guard, Signal, monotonic
from .._transport.base import Wake
from ..errors import UsageError
from .lease_table import Leases
from .store import Store
from .unit_of_work import Effect

_MOST_WARNINGS = 100
"""Names of keys, which are templates as a rule."""
_MOST_SEEN = 50_000
"""Keys of which we remember how long they are fresh, to know how to ask for them."""


class CacheMemory:
    """What this process knows of values: which are being loaded, and which are fresh."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.open()

    def open(self) -> None:
        """Begin with nothing known; again in a forked child."""
        self.guard = Guard()
        self.flights: dict[bytes, Flight] = {}
        self.refreshes: dict[bytes, Flight] = {}
        self.seen: dict[bytes, float] = {}
        """Until when a value is fresh, as far as we know."""
        self._warned: set[str] = set()
        self._unwatched: dict[bytes, tuple[object, int]] = {}
        """Key → a load in an outage, when changes are not seen; and how many had ended before."""

    def remember(self, key: bytes, left: float) -> None:
        """The value of *key* is fresh for *left* seconds."""
        if len(self.seen) >= _MOST_SEEN:
            self.seen.clear()
        self.seen[key] = monotonic() + left

    def flight_of(self, flights: dict[bytes, Flight], key: bytes) -> Flight | None:
        """Return the flight of *key* that who asks now may join.

        Not one that loads since an outage which is over: it may have missed an invalidation.
        """
        flight = flights.get(key)
        if flight is None or not flight.is_open:
            return None
        _, ended = self._unwatched.get(key, (None, -1))
        if ended not in (-1, self._store.recoveries):
            self.forget_loads(key)
            return None
        return flight

    def begin_unwatched(self, key: bytes, load: object, ended: int) -> None:
        """*load* does not see changes. *ended*: the outages that were over before."""
        self._unwatched[key] = load, ended

    def end_unwatched(self, key: bytes, load: object) -> None:
        """Forget *load*, which has ended."""
        if self._unwatched.get(key, (None,))[0] is load:
            self._unwatched.pop(key, None)

    def is_new_warning(self, name: str) -> bool:
        """Return True if it was not warned of keys with that name before."""
        is_new = name not in self._warned and len(self._warned) < _MOST_WARNINGS
        self._warned.add(name)
        return is_new

    def forget_loads(self, key: bytes) -> None:
        """The value changed: who asks from now on does not join a load that began before."""
        self.flights.pop(key, None)
        self.refreshes.pop(key, None)


def drop_flight(flights: dict[bytes, Flight], key: bytes, flight: Flight) -> None:
    """It is over, or must no longer be joined."""
    if flights.get(key) is flight:
        flights.pop(key, None)


_LOOK_AGAIN = 5.0
"""A push can be lost: how long to trust that none has come, in seconds."""
_JUST_AFTER = 0.002
"""An expiry is not announced; look this much after it."""


class Follower:
    """Follows the loads of other processes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def follow(self, request: LoadRequest, reading: Reading, deadline: float) -> None:
        """Until the other load is over, as far as we know, or it is time to look or give up."""
        options, keys = request.options, request.keys
        signal = Signal()
        transport = self._store.transport
        try:
            watching = self._watch_mark(keys, reading, signal)
            marked = watching is not None
            if watching is None:
                watching = transport.watch(keys.lock, signal.set, monotonic())
            while True:
                pause = _LOOK_AGAIN if watching.tracked else options.poll
                pause = min(watching.remaining + _JUST_AFTER, pause, deadline - monotonic())
                woken = signal.wait(pause)
                is_over = watching.remaining <= 0 or monotonic() >= deadline
                if is_over or not watching.tracked or (woken and marked):
                    return
                signal.clear()
                watching = self._look_again(keys, signal, woken=woken)
        except Outage:
            pass  # the next claim meets it again, and decides
        finally:
            transport.unwatch(keys.key, signal.set)
            transport.unwatch(keys.lock, signal.set)

    def _watch_mark(
        self, keys: CacheKeys, reading: Reading, signal: Signal
    ) -> Watching | None:
        """None: no mark stands for the load (there is an old value, or it was deleted)."""
        if reading.state != "missing":
            return None
        request = follow_request(keys)
        answer = self._store.transport.track(request, signal.set, monotonic())
        return self._store.read(read_follow, answer)

    def _look_again(self, keys: CacheKeys, signal: Signal, *, woken: bool) -> Watching:
        """Is the lock still held? A push that woke us has to be asked for again."""
        if woken:
            return self._store.transport.watch(keys.lock, signal.set, monotonic())
        pttl = self._store.transport.send(watch_request(keys.lock), monotonic())
        return self._store.read(read_watch, Tracked([pttl], tracked=True))


class Reader:
    """What the store has, and what is remembered of it here."""

    def __init__(self, store: Store, memory: CacheMemory) -> None:
        self._store = store
        self._memory = memory
        self.open()

    def open(self) -> None:
        """Begin with nothing remembered; again in a forked child."""
        self.local = Local(self._store.transport.is_behind)

    # ---- the store

    def read(self, keys: CacheKeys) -> Reading:
        """Return what the store has.

        Raises Outage or UsageError if it does not answer, or refuses.
        """
        if keys.options.local:
            return (self._read_for_memory([keys]))[0]
        if keys.tags:
            return self._read_tagged(keys)
        now = monotonic()
        reply = self._store.transport.send(keys.read, now)
        if type(reply) is not bytes:  # bytes are the usual answer, and never an error
            reply = self._store.check_reply(keys.read, reply, now)
        return self._seen(keys, self._store.read(read_reply, reply, keys.options))

    def _read_tagged(self, keys: CacheKeys) -> Reading:
        [reading] = self.read_all([keys])
        if isinstance(reading, Exception):
            raise reading
        return reading

    def read_all(self, many: list[CacheKeys]) -> list[Reading | Exception]:
        """Return what the store has of each, in one write; or the error for that request.

        Outage, raised: of all of them.
        """
        if many[0].options.local:
            return list(self._read_for_memory(many))
        now, _ = self._store.opened()
        tags = list(dict.fromkeys([tag for keys in many for tag in keys.tags]))
        requests = [keys.read for keys in many] + [version_request(tag) for tag in tags]
        replies = self._store.ask_all(requests, now)
        versions = dict(zip(tags, read_versions(replies[len(many) :]), strict=True))
        return [
            self._one_of_many(keys, reply, [versions[tag] for tag in keys.tags])
            for keys, reply in zip(many, replies, strict=False)
        ]

    def _one_of_many(self, keys: CacheKeys, reply: Any, versions: Versions) -> Reading | Exception:
        if isinstance(reply, Outage | UsageError):
            return reply
        try:
            return self._seen(keys, self._store.read(read_reply, reply, keys.options, versions))
        except Outage as outage:
            return outage

    def _seen(self, keys: CacheKeys, reading: Reading) -> Reading:
        if reading.state not in ("fresh", "stale"):
            self._memory.seen.pop(keys.key, None)
        return reading

    # ---- memory

    def _read_for_memory(self, many: list[CacheKeys]) -> list[Reading]:
        """Read, and track changes of keys and tags: only then a value may be remembered here."""
        now, _ = self._store.opened()
        tickets = [_Forget(self, keys) for keys in many]
        for ticket in tickets:
            self.local.ask(ticket.key, ticket)
        gone: list[Ticket] = list(tickets)
        try:
            questions = [each for ticket in tickets for each in ticket.questions()]
            answers = iter(self._store.transport.track_all(questions, now))
            readings = [self._tracked(ticket, answers, now) for ticket in tickets]
            gone = [
                each
                for ticket, found in zip(tickets, readings, strict=True)
                for each in self._remember(ticket, found, now)
            ]
            return [reading for reading, _ in readings]
        finally:
            self._unwatch(gone)

    def _tracked(
        self, ticket: "_Forget", answers: Iterator[Tracked], now: float
    ) -> tuple[Reading, bool]:
        """Return what the store has, and whether the server reports every change of it."""
        keys = ticket.keys
        tags = [next(answers) for _ in keys.tags]
        answer = next(answers)
        versions: Versions = read_versions([tag.replies[0] for tag in tags])
        replies = self._store.check_reply(keys.read, answer.replies, now)
        is_tracked = answer.tracked and all(tag.tracked for tag in tags)
        return self._store.read(read_reply, replies, keys.options, versions), is_tracked

    def _remember(self, ticket: "_Forget", found: tuple[Reading, bool], now: float) -> list[Ticket]:
        """Keep a fresh value whose changes are reported. The tickets of what is not kept."""
        reading, is_tracked = found
        if not is_tracked or reading.state != "fresh":
            return [ticket]
        until = now + min(reading.left, ticket.keys.options.local)
        gone = self.local.put(ticket.key, reading.value, until, ticket)
        return [each for _, each in gone]

    def changed(self, key: bytes) -> None:
        """We know that the value changed."""
        self._memory.forget_loads(key)
        self.local.forget(key)
        self._memory.seen.pop(key, None)

    def forget(self, ticket: "_Forget") -> None:
        """The value that is remembered with *ticket* changed, or may have."""
        self.local.forget(ticket.key)
        self._memory.seen.pop(ticket.key, None)
        ticket.unwatch(self._store.transport)

    def _unwatch(self, gone: list[Ticket]) -> None:
        for ticket in gone:
            if isinstance(ticket, _Forget):
                self.local.drop(ticket.key, ticket)
                ticket.unwatch(self._store.transport)


class _Forget:
    """One registration for the changes of a value; two of them are never equal."""

    __slots__ = ("_reader", "keys")

    def __init__(self, reader: Reader, keys: CacheKeys) -> None:
        # Weakly: the transport knows this, and a client that nobody uses any more is collected.
        self._reader = weakref.ref(reader)
        self.keys = keys

    @property
    def key(self) -> bytes:
        """Return where the value is."""
        return self.keys.key

    def questions(self) -> list[tuple[Request, Wake]]:
        """Return the tags first.

        A version that is older than its value makes a miss, no old value.
        """
        tags = [version_request(tag) for tag in self.keys.tags]
        return [(request, self) for request in [*tags, self.keys.read]]

    def unwatch(self, transport: Any) -> None:
        """Stop calling it."""
        for key in (self.keys.key, *self.keys.tags):
            transport.unwatch(key, self)

    def __call__(self) -> None:
        reader = self._reader()
        if reader is not None:
            reader.forget(self)


LoadOutcome = LoadAnswer | Exception


class Writer:
    """Stores results under the locks of their loads, and gives the locks back."""

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

    def unlock(self, keys: CacheKeys, token: bytes, rest: float = 0.0) -> None:
        """However late: a server that was stopped gives us the lock when it goes on.

        *rest*: for how many seconds no process is to try again.
        """
        self._store.transport.post(unlock_request(keys, token, math.inf, rest))

    def begin_tags(self, tags: list[bytes], life: float) -> dict[bytes, bytes | None]:
        """Return the version of each tag; a new one where there is none. None: it is not known.

        UsageError: the key of a tag is something else.
        """
        if not tags:
            return {}
        requests = [tag_version_request(tag, urandom(8).hex().encode(), life) for tag in tags]
        try:
            replies = self._store.ask_all(requests, monotonic())
        except Outage:
            return {}
        return dict(zip(tags, read_begun(replies), strict=True))

    # ---- results

    def keep(
        self,
        claims: list[LoadClaim],
        versions: list[Versions],
        values: list[Any],
        ttls: list[float | None],
        since: float,
    ) -> list[LoadOutcome]:
        """Store each value for its ttl (None: not at all), in one write; what readers get of it.

        A value may be an Absent. One that cannot be encoded becomes a UsageError.
        """
        took = monotonic() - since
        entries = [self._packed(*each) for each in zip(claims, versions, values, ttls, strict=True)]
        missing = [place for place, each in enumerate(entries) if isinstance(each, Absent)]
        if missing:
            some = [claims[place] for place in missing]
            absent = Absent(some[0].request.keys.name)
            self.failed(some, [versions[place] for place in missing], absent)
        unit = current() if use.has_begun else None
        if unit is not None:
            entries = [self._waiting(unit, each, took, since) for each in entries]
        results = [each for each in entries if isinstance(each, LoadResult)]
        answers = iter(self._store_all(results, took, since) if results else [])
        return [next(answers) if isinstance(each, LoadResult) else each for each in entries]

    def _waiting(
        self, unit: Unit, result: "LoadResult | LoadOutcome", took: float, since: float
    ) -> "LoadResult | LoadOutcome":
        """Return what its caller gets, where the result is stored after the commit of *unit*.

        Until then its lock is not renewed, so that no one waits for longer than `lock_ttl`.
        """
        if not isinstance(result, LoadResult) or result.fresh is None:
            return result
        storing = Storing(self._leases, self, result, took, since)
        if not unit.put(storing):
            return result
        unit.loaded[self._leases, result.keys.key] = result.value
        return LoadAnswer(result.value, monotonic())

    def _packed(
        self, claim: LoadClaim, versions: Versions, value: Any, ttl: float | None
    ) -> "LoadResult | Exception":
        if isinstance(value, Absent):
            return value
        try:
            # What the store gives to others, also to the first. What cannot be read is not stored.
            keys = claim.request.keys
            payload, value = packed(keys.options.codec, value, keys.name)
        except BaseException as error:
            self.unlock(claim.request.keys, claim.token)
            if isinstance(error, Exception):
                return error
            raise
        options = claim.request.options
        fresh = None if ttl is None else jittered(options, random(), ttl)
        return LoadResult(claim, versions, value, payload, fresh)

    def store(self, result: "LoadResult", took: float, since: float) -> None:
        """Store it, if the lock is still ours and the value was not deleted."""
        self._store_all([result], took, since)

    def _store_all(
        self, results: "list[LoadResult]", took: float, since: float
    ) -> list[LoadOutcome]:
        tags = list(dict.fromkeys([tag for each in results for tag in each.keys.tags]))
        requests = [each.request(time(), took) for each in results]
        for each in results:
            self._events.emit("loaded", each.keys.name, took=took)
        asked_at = monotonic()
        replies: list[Any]
        try:
            replies = self._store.ask_all(
                [*requests, *[version_request(tag) for tag in tags]], asked_at
            )
        except Outage as outage:
            replies = [outage] * (len(requests) + len(tags))
        except Exception:
            raise
        except BaseException:
            for each in results:
                self.unlock(each.keys, each.claim.token)
            raise
        versions = dict(zip(tags, read_versions(replies[len(results) :]), strict=True))
        return [
            self._answer(each, reply, asked_at if each.is_current(versions) else since, since)
            for each, reply in zip(results, replies, strict=False)
        ]

    def _answer(self, result: "LoadResult", reply: Any, asked: float, since: float) -> LoadOutcome:
        """Return what readers get. Not stored: it may be older than what was deleted."""
        keys, token = result.keys, result.claim.token
        was_valid = result.was_valid(reply)
        if result.fresh is None and not isinstance(reply, Exception):
            self.unlock(keys, token, _rest(result.claim))
            return LoadAnswer(result.value, asked if was_valid else since)
        if was_valid and result.fresh is not None:
            self._memory.remember(keys.key, result.fresh)
            return LoadAnswer(result.value, asked)
        self.unlock(keys, token)  # where only the lock was lost, our mark still stands
        if isinstance(reply, Exception) and not isinstance(reply, Outage):
            return reply
        is_out = isinstance(reply, Outage)
        cause = reply.cause if is_out else cause_for("superseded")
        self._events.emit("rejected_write", keys.name, cause=cause)
        # Unknown: there is nothing better.
        return LoadAnswer(result.value, math.inf if is_out else since)

    # ---- failures

    def failed(
        self, claims: list[LoadClaim], versions: list[Versions], error: Exception
    ) -> None:
        """Let others try – or remember the failure, where there is nothing better to serve.

        Where an old value is served meanwhile, no caller tries again for `lock_ttl`: a loader that
        fails at once is not called for every read.
        """
        why = cause_for("load_failed", f"the load failed: {type(error).__name__}")
        requests: list[Request] = []
        remembered: list[LoadClaim] = []
        for claim, tagged in zip(claims, versions, strict=True):
            keys, token = claim.request.keys, claim.token
            if not isinstance(error, Absent):
                self._events.emit("degraded", keys.name, cause=why)
            # Nor inside a transaction: the rows that it did not find may exist for others.
            life = 0.0 if use.has_begun and current() else keys.options.remembers(error)
            if life and claim.reading.state in ("missing", "outdated"):
                failure = failure_name(error).encode()
                data = frame(FAILURE, "-", time(), 0.0, failure, tagged)
                requests.append(store_request(keys, claim.lock, data, life + keys.options.stale))
                remembered.append(claim)
            else:
                self.unlock(keys, token, _rest(claim))
        if requests:
            self._write_failures(remembered, requests)

    def _write_failures(self, claims: list[LoadClaim], requests: list[Request]) -> None:
        replies: list[Any]
        try:
            replies = self._store.ask_all(requests, monotonic())
        except Outage as outage:
            replies = [outage] * len(requests)
        except BaseException:
            for claim in claims:
                self.unlock(claim.request.keys, claim.token)
            raise
        for claim, reply in zip(claims, replies, strict=True):
            if reply != 1:
                self.unlock(claim.request.keys, claim.token)
                is_out = isinstance(reply, Outage)
                cause = reply.cause if is_out else cause_for("superseded")
                self._events.emit("rejected_write", claim.request.keys.name, cause=cause)


def _rest(claim: LoadClaim) -> float:
    return claim.request.options.lock_ttl if claim.reading.state == "stale" else 0.0


class LoadResult(NamedTuple):
    """What a load found, as bytes and as callers get it back."""

    claim: LoadClaim
    versions: Versions
    value: Any
    payload: bytes
    fresh: float | None
    """How long it stays fresh; None: it is not to be stored."""

    @property
    def keys(self) -> CacheKeys:
        """The keys of the value."""
        return self.claim.request.keys

    def request(self, made_at: float, took: float) -> Request:
        """Store it; or, where it is not to be stored, find out whether it could be."""
        keys = self.keys
        if self.fresh is None:
            return validity_request(keys)
        codec = keys.options.codec
        data = frame(codec.name, codec.fingerprint, made_at, took, self.payload, self.versions)
        return store_request(keys, self.claim.lock, data, self.fresh + keys.options.stale)

    def was_valid(self, reply: Any) -> bool:
        """Return True if during the load the value was not deleted, nor the lock taken over."""
        return reply == 1 if self.fresh is not None else read_validity(reply, self.claim.lock)

    def is_current(self, versions: dict[bytes, bytes | None]) -> bool:
        """Return True if none of its tags was invalidated during the load."""
        return [versions[tag] for tag in self.keys.tags] == self.versions


class Storing(Effect):
    """Stores what was loaded inside a transaction, perhaps from its rows, after the commit."""

    def __init__(
        self,
        leases: Leases,
        writer: Writer,
        result: LoadResult,
        took: float,
        since: float,
    ) -> None:
        super().__init__(leases, result.keys.key, since, self._end)
        self._writer = writer
        self._result = result
        self._took = took

    def _end(self, outcome: Outcome) -> None:
        if outcome == "committed":
            self._writer.store(self._result, self._took, self.since)
        else:
            self._writer.unlock(self._result.keys, self._result.claim.token)
