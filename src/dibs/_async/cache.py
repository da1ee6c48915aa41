"""Getting cached values: from memory, from the store, or by a load that all callers share."""

import functools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from .._core.cache import (
    ABSENT,
    ALWAYS,
    HELD,
    IF_NEEDED,
    TAG_LIFE,
    TAG_NAME,
    TAKEN,
    CacheKeys,
    Found,
    LoadAnswer,
    LoadRequest,
    ManyRequest,
    Reading,
    answer_in,
    invalidate_request,
    is_due_early,
    jittered,
    put_request,
    read_stored,
    read_versions,
    stored_request,
    version_request,
)
from .._core.causes import Absent, load_error
from .._core.codec import frame, packed
from .._core.connection import Outage
from .._core.options import OutagePolicy
from .._core.request import Request
from .._core.unit_of_work import Outcome, current, use
from .._events import EventSink
from .._system import random, time
from .._tasks import Coalescer, Flight, monotonic
from ..errors import Unavailable, UsageError
from .cache_load import AsyncLoader, AsyncRefresher
from .cache_many import AsyncBatches
from .cache_values import AsyncCacheMemory, AsyncFollower, AsyncReader, drop_flight
from .lease_table import AsyncLeases
from .spans import follow_in_span, join_in_span
from .store import AsyncStore
from .unit_of_work import AsyncEffect

_MOST_OUTDATED = 3
"""How often a claim finds another value whose tags were invalidated, before it waits."""


class AsyncCache:
    """Values that are loaded once for all, in all processes."""

    def __init__(self, store: AsyncStore, events: EventSink, leases: AsyncLeases) -> None:
        self._store = store
        self._events = events
        self._leases = leases
        self._memory = AsyncCacheMemory(store)
        self._reads = Coalescer()
        self._reader = AsyncReader(store, self._memory)
        self._follower = AsyncFollower(store)
        self._loader = AsyncLoader(store, events, leases, self._memory)
        self._refresher = AsyncRefresher(events, leases, self._loader)
        self._batches = AsyncBatches(
            store, events, leases, self._memory, self._reader, self._loader, self._refresher
        )

    def open(self) -> None:
        """In a forked child: loads and memories are the parent's."""
        self._memory.open()
        self._reads = Coalescer()
        self._reader.open()
        self._loader.open()
        self._refresher.open()

    # ---- reading

    async def get(
        self,
        keys: CacheKeys,
        function: Callable[..., Awaitable[Any]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Return the value: from memory, from the store, from a load under way, or loaded now."""
        key, options, memory = keys.key, keys.options, self._memory
        self._store.enter()
        called_at = monotonic()
        if use.has_begun and (unit := current()) is not None:
            if (self._leases, key) in unit.loaded:
                return unit.loaded[self._leases, key]
            request = LoadRequest(keys, function, args, kwargs)
            return await self._join_or_start(
                request, unit.loads_of(self._leases), called_at, force=False
            )
        if options.local:
            value = self._reader.local.get(key, called_at)
            if value is not ABSENT:
                if self._events.listeners:
                    self._events.emit("local_hit", keys.name)
                return value
        if key in memory.flights:
            answer = await self._join_any(keys, called_at)
            if answer is not None:
                return answer.value
        if options.local or memory.seen.get(key, 0.0) > called_at:
            try:
                reading = await self._reads.ask(key, self._reader.read, keys)
            except Outage:
                pass  # the flight meets it again, and decides
            else:
                if reading.state == "fresh" or (
                    reading.state == "stale" and not options.stale_after
                ):
                    if self._events.listeners:
                        self._events.emit("hit" if reading.state == "fresh" else "stale", keys.name)
                    if reading.state == "stale" or options.early:
                        self._keep_fresh(LoadRequest(keys, function, args, kwargs), reading)
                    return reading.value
        request = LoadRequest(keys, function, args, kwargs)
        return await self._join_or_start(request, memory.flights, called_at, force=False)

    async def get_many(self, many: ManyRequest) -> dict[Any, Any]:
        """Return the value of each item, except those for which the load returned none."""
        self._store.enter()
        return await self._batches.get(many, self._share_flight)

    async def _share_flight(self, request: LoadRequest, called_at: float) -> Any:
        unit = current() if use.has_begun else None
        flights = self._memory.flights if unit is None else unit.loads_of(self._leases)
        return await self._share(request, flights, called_at, force=False)

    async def refresh(self, request: LoadRequest) -> Any:
        """Return the value, loaded now (by us, or by a caller who has just begun)."""
        self._store.enter()
        unit = current() if use.has_begun else None
        flights = self._memory.refreshes if unit is None else unit.loads_of(self._leases)
        return await self._join_or_start(request, flights, monotonic(), force=True)

    async def peek(self, keys: CacheKeys) -> Found[Any] | None:
        """Return what is stored; never loads.

        Raises Unavailable if the store is out, and the policy "closed".
        """
        try:
            now, _ = await self._store.opened()
            requests = [stored_request(keys), *[version_request(tag) for tag in keys.tags]]
            reply, *tags = await self._store.ask_all(requests, now)
            if isinstance(reply, Exception):
                raise reply
            versions = read_versions(tags)
            return self._store.read(read_stored, reply, keys.options, versions, time())
        except Outage as outage:
            self._undelivered(outage, keys.name, keys.options.on_outage)
            return None

    async def put(self, keys: CacheKeys, value: Any) -> bool:
        """Store a value that was not loaded. False: the store is out; later it is deleted."""
        self._store.enter()
        payload, value = packed(keys.options.codec, value, keys.name)
        if use.has_begun and (unit := current()) is not None:

            async def store(outcome: Outcome) -> None:
                if outcome == "committed":
                    await self._put(keys, payload)

            lasts = keys.options.ttl * 2 + keys.options.stale
            delete = self._deleting(keys.key, keys.lock, keys.name, lasts, forget=keys.key)
            if unit.put(AsyncEffect(self._leases, keys.key, monotonic(), store, delete)):
                unit.invalidated.add((self._leases, keys.key))
                unit.loaded[self._leases, keys.key] = value
                return True
        return await self._put(keys, payload)

    async def _put(self, keys: CacheKeys, payload: bytes) -> bool:
        options = keys.options
        self._reader.changed(keys.key)
        fresh = jittered(options, random())
        try:
            now, _ = await self._store.opened()
            found = await self._loader.writer.begin_tags(list(keys.tags), options.life)
            versions = [found.get(tag) for tag in keys.tags]
            if None in versions:
                raise Outage("the server of a tag does not answer", sent=False)
            codec = options.codec
            data = frame(codec.name, codec.fingerprint, time(), 0.0, payload, versions)
            kept = await self._store.ask(put_request(keys, data, fresh + options.stale), now)
        except Outage as outage:
            until = monotonic() + options.life
            self._store.transport.post(invalidate_request(keys.key, keys.lock, until))
            return self._undelivered(outage, keys.name, options.on_outage)
        if kept == 0:
            raise UsageError(HELD)
        self._reader.changed(keys.key)
        self._memory.remember(keys.key, fresh)
        return True

    async def invalidate_tag(self, tag: bytes, policy: OutagePolicy) -> bool:
        """Make all values with the tag outdated. False: the store is out; delivered later."""
        self._store.enter()
        self._again(tag, tag, TAG_NAME, TAG_LIFE, forget=None)
        self._store.transport.changed(tag)
        try:
            dropped = await self._deliver(invalidate_request(tag, tag, monotonic() + TAG_LIFE))
        except Outage as outage:
            return self._undelivered(outage, TAG_NAME, policy)
        if dropped == 0:
            raise UsageError(TAKEN)
        self._store.transport.changed(tag)
        self._events.emit("invalidated", TAG_NAME)
        return True

    async def invalidate(self, keys: CacheKeys) -> bool:
        """Delete the value everywhere; a load under way is not stored. False: not yet delivered."""
        lasts = keys.options.ttl * 2 + keys.options.stale
        return await self.delete(keys.key, keys.lock, keys.name, lasts, keys.options.on_outage)

    async def delete(
        self, key: bytes, lock: bytes, name: str, lasts: float, policy: OutagePolicy
    ) -> bool:
        """Delete the value of any key. *lasts*: how long it is worth delivering, in an outage."""
        self._store.enter()
        self._again(key, lock, name, lasts, forget=key)
        self._reader.changed(key)
        try:
            deleted = await self._deliver(invalidate_request(key, lock, monotonic() + lasts))
        except Outage as outage:
            return self._undelivered(outage, name, policy)
        if deleted == 0:
            raise UsageError(HELD)
        # Once more: a caller may have read the old value, or begun a load, before the delete.
        self._reader.changed(key)
        self._events.emit("invalidated", name)
        return True

    def _again(
        self, key: bytes, lock: bytes, name: str, lasts: float, *, forget: bytes | None
    ) -> None:
        """Inside a transaction, delete it again when that has committed, or may have.

        Others may store meanwhile what they have loaded from the old rows.
        """
        unit = current() if use.has_begun else None
        if unit is None:
            return
        delete = self._deleting(key, lock, name, lasts, forget=forget)
        unit.forget(self._leases, forget)
        unit.invalidated.add((self._leases, key))
        unit.put(AsyncEffect(self._leases, key, monotonic(), delete, delete))

    def _deleting(
        self, key: bytes, lock: bytes, name: str, lasts: float, *, forget: bytes | None
    ) -> Callable[[Outcome], Coroutine[Any, Any, None]]:
        async def delete(outcome: Outcome) -> None:
            if outcome == "rolled_back":
                return
            self._changed(key, forget)
            try:
                await self._deliver(invalidate_request(key, lock, monotonic() + lasts))
            except Outage as outage:
                self._events.emit("outage", name, cause=outage.cause)
            self._changed(key, forget)

        return delete

    def _changed(self, key: bytes, value: bytes | None) -> None:
        """Forget the value, or what has the tag *key*."""
        if value is None:
            self._store.transport.changed(key)
        else:
            self._reader.changed(key)

    def _undelivered(self, outage: Outage, name: str, policy: OutagePolicy) -> bool:
        """False. Raises Unavailable if the policy is "closed"."""
        self._events.emit("outage", name, cause=outage.cause)
        if policy == "closed":
            raise Unavailable(outage.cause, name) from None
        return False

    async def _deliver(self, request: Request) -> Any:
        """Return the reply.

        Raises Outage if the request is delivered when the server answers again.
        """
        try:
            now, _ = await self._store.opened()
        except Outage:
            self._store.transport.post(request)
            raise
        return await self._store.ask(request, now)

    def _keep_fresh(self, request: LoadRequest, reading: Reading) -> None:
        """Where a value is old, or soon will be, it is refreshed in the background."""
        if request.keys.key in self._memory.flights:
            return
        if reading.state == "stale":
            self._refresher.refresh(request, force=False)
        elif is_due_early(reading, request.options.early, random()):
            self._refresher.refresh(request, force=True)

    # ---- flights

    async def _join_or_start(
        self, request: LoadRequest, flights: dict[bytes, Flight], called_at: float, *, force: bool
    ) -> Any:
        """Return the value.

        Raises Unavailable if a load of many that is shared returned none for it.
        """
        try:
            return await self._share(request, flights, called_at, force=force)
        except Absent as absent:
            raise absent.as_unavailable() from None

    async def _share(
        self, request: LoadRequest, flights: dict[bytes, Flight], called_at: float, *, force: bool
    ) -> Any:
        """Join the flight of this key, or start one: one contender in this process.

        Absent: a load of many returned none.
        """
        while True:
            flight, is_ours = self._flight_of(request, flights, called_at, force=force)
            if is_ours:
                return (await flight.join()).value
            answer = await self._join(flight, request.keys, called_at)
            if answer is not None:
                return answer.value

    def _flight_of(
        self, request: LoadRequest, flights: dict[bytes, Flight], called_at: float, *, force: bool
    ) -> tuple[Flight, bool]:
        """Return the flight of this key, and whether it is a new one."""
        key = request.keys.key
        with self._memory.guard:
            flight = self._memory.flight_of(flights, key)
            if flight is not None:
                return flight, False
            work = functools.partial(self._resolve, request, called_at, force=force)
            ended = functools.partial(drop_flight, flights, key)
            flights[key] = flight = Flight(work, ended)
            return flight, True

    async def _join_any(self, keys: CacheKeys, called_at: float) -> LoadAnswer | None:
        """Return what a flight under way finds. None: there is none, or not one that will do."""
        key = keys.key
        flight = self._memory.flight_of(self._memory.flights, key)
        if flight is None:
            return None
        load = self._loader.untracked_loads.get(key)
        if load is not None and not await self._loader.is_valid(keys, *load):
            drop_flight(self._memory.flights, key, flight)
            return None
        if not flight.is_open:  # meanwhile its last caller has left
            return None
        try:
            return await self._join(flight, keys, called_at)
        except Absent as absent:
            raise absent.as_unavailable() from None

    async def _join(self, flight: Flight, keys: CacheKeys, called_at: float) -> LoadAnswer | None:
        """Return the result of another caller's flight. None: it may be older than this call."""
        if self._events.tracers:
            result = await join_in_span(self._events, keys.name, flight)
        else:
            result = await flight.join()
        answer = answer_in(result, keys.key)
        if answer is None or answer.as_of < called_at:
            return None
        if self._events.listeners:
            waited = None if answer.kind == "stale" else monotonic() - called_at
            self._events.emit(answer.kind, keys.name, waited=waited)
        return answer

    async def _resolve(self, request: LoadRequest, since: float, *, force: bool) -> LoadAnswer:
        """Return a value, whatever it takes: that of another load, of our own, or an old one.

        *since*: when the caller came, who may have waited for another flight already.
        """
        options, keys = request.options, request.keys
        unit = current() if use.has_begun else None
        is_waiting = unit is not None and force and (self._leases, keys.key) in unit.loaded
        if unit is not None and (is_waiting or unit.has_changed(self._leases, keys.key, keys.tags)):
            return await self._loader.load_inside(request, unit)
        token = self._leases.new_token()
        waited = poisoned = False
        outdated, retries = b"", _MOST_OUTDATED
        while True:
            asked_at = monotonic()
            ended = self._store.recoveries
            when = ALWAYS if poisoned or (force and not waited) else outdated or IF_NEEDED
            try:
                reading = await self._loader.claim(request, token, when)
            except Outage as outage:
                return await self._loader.load_unguarded(request, outage, ended)
            if reading.won and reading.state == "stale" and not force and unit is None:
                return await self._lead_in_background(request, token, reading, asked_at)
            if reading.won:
                self._events.emit("reelected" if waited else "miss", request.keys.name)
                return await self._loader.lead(request, token, reading)
            if reading.state == "fresh" and (waited or not force):
                self._memory.remember(keys.key, reading.left)
                kind = "waited" if waited else "hit"
                self._events.emit(kind, keys.name, waited=monotonic() - since)
                return LoadAnswer(reading.value, asked_at, kind)
            if reading.state == "poison" and not poisoned:
                poisoned = True  # the script takes it for a value; only we can see that it is none
                continue
            if reading.state == "outdated" and not reading.won and retries:
                outdated = reading.head  # only we can see that; it counts as none from now on
                retries -= 1
                continue
            if reading.state == "failed":
                raise load_error(reading.value, keys.name)
            wait = options.wait
            if reading.is_foreign:  # nothing tells how long it stays there
                wait = min(wait, options.lock_ttl)
            if reading.state == "stale" and not force:
                wait = min(wait, options.stale_after)
                if reading.resting or monotonic() - since >= wait:
                    return self._stale_answer(request, reading, asked_at)
            if monotonic() - since >= wait:
                return await self._loader.load_unstored(request, foreign=reading.is_foreign)
            await self._follow(request, reading, since + wait)
            waited, poisoned = True, False  # who was waited for may have replaced those bytes
            asked_at = monotonic()
            found = await self._fresh_value(request)
            if found is not None:
                self._events.emit("waited", request.keys.name, waited=monotonic() - since)
                return LoadAnswer(found.value, asked_at)

    async def _follow(self, request: LoadRequest, reading: Reading, deadline: float) -> None:
        follow = functools.partial(self._follower.follow, request, reading, deadline)
        if self._events.tracers:
            await follow_in_span(self._events, request.keys.name, follow)
        else:
            await follow()

    async def _lead_in_background(
        self, request: LoadRequest, token: bytes, reading: Reading, asked: float
    ) -> LoadAnswer:
        """Return the old value, while it is loaded in the background.

        Or the new one, if callers wait.
        """
        load = self._refresher.lead(request, token, reading)
        if load is not None and request.options.stale_after:
            await load.ended.wait(request.options.stale_after)
            if load.answer is not None:
                return load.answer
        return self._stale_answer(request, reading, asked)

    def _stale_answer(self, request: LoadRequest, reading: Reading, asked: float) -> LoadAnswer:
        self._events.emit("stale", request.keys.name)
        self._memory.remember(request.keys.key, reading.life)
        return LoadAnswer(reading.value, asked, "stale")

    async def _fresh_value(self, request: LoadRequest) -> Reading | None:
        """Return the fresh value, by the cheapest question.

        None: there is none, a claim must decide.
        """
        try:
            reading = await self._reader.read(request.keys)
        except Outage:
            return None  # the claim meets it again, and decides
        if reading.state != "fresh":
            return None
        self._memory.remember(request.keys.key, reading.left)
        return reading

    # ---- the end

    async def aclose(self) -> None:
        """End all loads of ours; others take over."""
        await self._refresher.stop()
        for flight in [*self._memory.flights.values(), *self._memory.refreshes.values()]:
            await flight.cancel()
        self.open()  # what is in memory would still be served
