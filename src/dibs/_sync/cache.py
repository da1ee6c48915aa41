# Printed from src/dibs/_async/cache.py by tools/unasync.py – do not edit.
"""Cache-first reading: one loads, everyone reads."""

import functools
import random
from collections.abc import Callable
from typing import Any

from .._core.breaker import Outage
from .._core.cache import (
    HELD,
    Answer,
    CacheKeys,
    LoadRequest,
    Reading,
    invalidate_request,
    is_due_early,
    read_reply,
    read_standing,
    standing_request,
)
from .._core.causes import cause_for
from .._core.local import ABSENT, Local, Ticket
from .._core.request import Request
from .._events import EventSink
from .._threads import Coalescer, Flight, monotonic
from ..errors import Unavailable, UsageError
from .follower import Follower
from .leases import Leases
from .loader import CacheMemory, Loader
from .refresher import Refresher
from .store import Store


class Cache:
    """Values that are loaded once for all, in all processes."""

    def __init__(self, store: Store, events: EventSink, leases: Leases) -> None:
        self._store = store
        self._events = events
        self._leases = leases
        self._memory = CacheMemory()
        self._reads = Coalescer()
        self._local = Local()
        self._follower = Follower(store)
        self._loader = Loader(store, events, leases, self._memory)
        self._refresher = Refresher(events, leases, self._loader)

    def open(self) -> None:
        """In a forked child: loads and memories are the parent's."""
        self._memory.open()
        self._reads = Coalescer()
        self._local = Local()
        self._loader.open()
        self._refresher.open()

    # ---- reading

    def get(
        self,
        keys: CacheKeys,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """The value: from memory, from the store, from a load under way, or loaded now."""
        key, options, memory = keys.key, keys.options, self._memory
        came = monotonic()
        if options.local:
            value = self._local.get(key, came)
            if value is not ABSENT:
                if self._events.listeners:
                    self._events.emit("local_hit", keys.name)
                return value
        if key in memory.flights:
            answer = self._join_any(keys, came)
            if answer is not None:
                return answer.value
        if options.local or memory.seen.get(key, 0.0) > came:
            try:
                reading = self._reads.ask(key, self._read, keys)
            except Outage:
                pass  # the flight meets it again, and decides
            else:
                if reading.state in ("fresh", "stale"):
                    if self._events.listeners:
                        self._events.emit("hit" if reading.state == "fresh" else "stale", keys.name)
                    if reading.state == "stale" or options.early:
                        self._keep_fresh(LoadRequest(keys, function, args, kwargs), reading)
                    return reading.value
        want = LoadRequest(keys, function, args, kwargs)
        return self._fly(want, memory.flights, came, force=False)

    def refresh(self, want: LoadRequest) -> Any:
        """The value, loaded now (by us, or by somebody who has just begun)."""
        return self._fly(want, self._memory.refreshes, monotonic(), force=True)

    def invalidate(self, want: LoadRequest) -> bool:
        """Delete the value everywhere; a load under way is not stored. False: not yet delivered."""
        options, keys = want.options, want.keys
        self._changed(keys.key)
        now = monotonic()
        request = invalidate_request(keys, now + options.ttl * 2 + options.stale)
        try:
            deleted = self._deliver(request)
        except Outage as outage:
            self._events.emit("outage", want.keys.name, cause=outage.cause)
            if options.on_outage == "closed":
                raise Unavailable(outage.cause, want.keys.name) from None
            return False
        if deleted == 0:
            raise UsageError(HELD)
        # Once more: somebody may have read the old value, or begun a load, before it was deleted.
        self._changed(keys.key)
        self._events.emit("invalidated", want.keys.name)
        return True

    def _deliver(self, request: Request) -> Any:
        """The reply. Outage: the request is delivered when the server answers again."""
        try:
            now, _ = self._store.opened()
        except Outage:
            self._store.transport.post(request)
            raise
        return self._store.ask(request, now)

    def _read(self, keys: CacheKeys) -> Reading:
        """What the store has; callers in one moment share the answer."""
        if keys.options.local:
            return self._read_for_memory(keys)
        now = monotonic()
        reply = self._store.transport.send(keys.read, now)
        if type(reply) is not bytes:  # bytes are the usual answer, and never an error
            reply = self._store.check_reply(keys.read, reply, now)
        reading = read_reply(reply, keys.options)
        if reading.state not in ("fresh", "stale"):
            self._memory.seen.pop(keys.key, None)
        return reading

    def _read_for_memory(self, keys: CacheKeys) -> Reading:
        """Read, and track changes of the key: only then the value may be remembered here."""
        options, key = keys.options, keys.key
        now, _ = self._store.opened()
        request = keys.read
        ticket = _Forget(self, key)
        self._local.ask(key, ticket)
        gone: list[tuple[bytes, Ticket]] = [(key, ticket)]
        try:
            answer = self._store.transport.track(request, ticket, now)
            reading = read_reply(
                self._store.check_reply(request, answer.replies, now), options
            )
            if answer.tracked and reading.state == "fresh":
                until = now + min(reading.left, options.local)
                gone = self._local.put(key, reading.value, until, ticket)
            return reading
        finally:
            self._unwatch(gone)

    def _keep_fresh(self, want: LoadRequest, reading: Reading) -> None:
        """Where a value is old, or soon will be, somebody refreshes it behind the caller."""
        if want.keys.key in self._memory.flights:
            return
        if reading.state == "stale":
            self._refresher.refresh(want, force=False)
        elif is_due_early(reading, want.options.early, random.random()):
            self._refresher.refresh(want, force=True)

    # ---- flights

    def _fly(
        self, want: LoadRequest, flights: dict[bytes, Flight], came: float, *, force: bool
    ) -> Any:
        """Join the flight of this key, or take off: one contender in this process."""
        while True:
            flight, is_ours = self._flight_of(want, flights, force=force)
            if is_ours:
                return (flight.join()).value
            answer = self._join(flight, want.keys.name, came)
            if answer is not None:
                return answer.value

    def _flight_of(
        self, want: LoadRequest, flights: dict[bytes, Flight], *, force: bool
    ) -> tuple[Flight, bool]:
        """The flight of this key, and whether it is a new one."""
        key = want.keys.key
        with self._memory.guard:
            flight = flights.get(key)
            if flight is not None and flight.is_open:
                return flight, False
            work = functools.partial(self._resolve, want, force=force)
            ended = functools.partial(_drop, flights, key)
            flights[key] = flight = Flight(work, ended)
            return flight, True

    def _join_any(self, keys: CacheKeys, came: float) -> Answer | None:
        """What a flight under way finds. None: there is none, or not one that will do."""
        key = keys.key
        flight = self._memory.flights.get(key)
        if flight is None or not flight.is_open:
            return None
        token = self._loader.untracked_loads.get(key)
        if token is not None and not self._stands(keys, token):
            _drop(self._memory.flights, key, flight)
            return None
        if not flight.is_open:  # meanwhile its last caller has left
            return None
        return self._join(flight, keys.name, came)

    def _join(self, flight: Flight, name: str, came: float) -> Answer | None:
        """The result of somebody else's flight. None: it may be older than the caller."""
        answer: Answer = flight.join()
        if answer.as_of < came:
            return None
        if self._events.listeners:
            self._events.emit("waited", name, waited=monotonic() - came)
        return answer

    def _stands(self, keys: CacheKeys, token: bytes) -> bool:
        """False: the value was deleted during its load."""
        request = standing_request(keys)
        try:
            return read_standing(self._store.ask(request, monotonic()), token)
        except Outage:
            return True  # nobody can tell

    def _resolve(self, want: LoadRequest, *, force: bool) -> Answer:
        """A value, whatever it takes: somebody else's, our own load, or an old one."""
        options, keys = want.options, want.keys
        since = monotonic()
        token = self._leases.new_token()
        waited = poisoned = False
        while True:
            asked = monotonic()
            try:
                reading = self._loader.claim(
                    want, token, force=poisoned or (force and not waited)
                )
            except Outage as outage:
                return self._loader.load_unguarded(want, outage)
            if reading.won and reading.state == "stale" and not force:
                self._refresher.lead(want, token, reading)
                return self._old(want, reading, asked)
            if reading.won:
                self._events.emit("reelected" if waited else "miss", want.keys.name)
                return self._loader.lead(want, token, reading)
            if reading.state == "fresh" and (waited or not force):
                self._memory.remember(keys.key, reading.left)
                kind = "waited" if waited else "hit"
                self._events.emit(kind, keys.name, waited=monotonic() - since)
                return Answer(reading.value, asked)
            if reading.state == "poison" and not poisoned:
                poisoned = True  # the script takes it for a value; only we can see that it is none
                continue
            if reading.state == "failed":
                said = f"the last load failed ({reading.value})"
                raise Unavailable(cause_for("load_failed", said), want.keys.name)
            if reading.state == "stale" and not force:
                return self._old(want, reading, asked)
            if monotonic() - since >= options.wait:
                return self._loader.load_beside(want)
            self._follower.follow(want, reading, since + options.wait)
            waited = True
            asked = monotonic()
            found = self._found(want)
            if found is not None:
                self._events.emit("waited", want.keys.name, waited=monotonic() - since)
                return Answer(found.value, asked)

    def _old(self, want: LoadRequest, reading: Reading, asked: float) -> Answer:
        self._events.emit("stale", want.keys.name)
        self._memory.remember(want.keys.key, reading.life)
        return Answer(reading.value, asked)

    def _found(self, want: LoadRequest) -> Reading | None:
        """The fresh value, by the cheapest question. None: there is none, a claim must decide."""
        try:
            reading = self._read(want.keys)
        except Outage:
            return None  # the claim meets it again, and decides
        if reading.state != "fresh":
            return None
        self._memory.remember(want.keys.key, reading.left)
        return reading

    # ---- memory

    def _changed(self, key: bytes) -> None:
        """We know that the value changed."""
        self._memory.part(key)
        self._local.forget(key)
        self._memory.seen.pop(key, None)

    def forget(self, key: bytes, ticket: Ticket) -> None:
        """The value that is remembered with *ticket* changed, or may have."""
        self._local.forget(key)
        self._memory.seen.pop(key, None)
        self._store.transport.unwatch(key, ticket)

    def _unwatch(self, gone: list[tuple[bytes, Ticket]]) -> None:
        for key, ticket in gone:
            self._local.drop(key, ticket)
            self._store.transport.unwatch(key, ticket)

    # ---- the end

    def close(self) -> None:
        """End all loads of ours; others take over."""
        self._refresher.stop()
        for flight in [*self._memory.flights.values(), *self._memory.refreshes.values()]:
            flight.cancel()
        self.open()  # what is in memory would still be served


class _Forget:
    """One registration for the change of a key; two of them are never equal."""

    __slots__ = ("_cache", "_key")

    def __init__(self, cache: Cache, key: bytes) -> None:
        self._cache = cache
        self._key = key

    def __call__(self) -> None:
        self._cache.forget(self._key, self)


def _drop(flights: dict[bytes, Flight], key: bytes, flight: Flight) -> None:
    """It is over, or must not be joined any more."""
    if flights.get(key) is flight:
        flights.pop(key, None)
