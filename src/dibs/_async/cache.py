"""Getting cached values: from memory, from the store, or by a load that all callers share."""

import functools
import math
from collections.abc import Awaitable, Callable
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
    LoadClaim,
    LoadRequest,
    ManyRequest,
    Reading,
    answer_in,
    invalidate_request,
    is_due_early,
    is_served,
    jittered,
    put_request,
    read_stored,
    read_versions,
    stored_request,
    version_request,
)
from .._core.causes import Absent, load_error, picked
from .._core.codec import frame, packed
from .._core.connection import Outage
from .._core.options import OutagePolicy
from .._core.request import Request
from .._events import EventSink
from .._system import random, time
from .._tasks import Coalescer, Flight, maybe_await, monotonic
from ..errors import Cause, Unavailable, UsageError
from .leases import AsyncLeases
from .loader import AsyncLoader, AsyncRefresher
from .spans import follow_in_span, join_in_span
from .store import AsyncStore
from .values import AsyncCacheMemory, AsyncFollower, AsyncReader, drop_flight

Results = dict[bytes, LoadAnswer | Exception]
"""What a flight found for each key. A key that is missing is loaded elsewhere."""
RequestedItems = dict[Any, tuple[CacheKeys, bytes, bytes]]
"""Item → its keys, a token, and when to load."""
Share = Callable[[LoadRequest, float], Awaitable[Any]]
"""The value of one item, for a caller who came at that time."""


_MOST_OUTDATED = 3
"""How often a claim finds another value whose tags were invalidated, before it waits."""


class AsyncBatches:
    """Reads and loads many values at once."""

    def __init__(
        self,
        store: AsyncStore,
        events: EventSink,
        leases: AsyncLeases,
        memory: AsyncCacheMemory,
        reader: AsyncReader,
        loader: AsyncLoader,
        refresher: AsyncRefresher,
    ) -> None:
        self._store = store
        self._events = events
        self._leases = leases
        self._memory = memory
        self._reader = reader
        self._loader = loader
        self._refresher = refresher

    async def get(self, many: ManyRequest, share: Share) -> dict[Any, Any]:
        """Return the value of each item: one read, one load for those that are missing.

        Items for which the loader returned no value are omitted. *share* loads one item, in a load
        that callers share. What the loads raise is raised.
        """
        called_at = monotonic()
        values = await self._read(many, called_at)
        missing = [item for item in many.keys if item not in values]
        error: Exception | None = None
        for item, answer in (await self._load(many, missing)).items():
            try:
                values[item] = await self._value_of(many, item, answer, share, called_at)
            except Absent:
                pass
            except Exception as failed:
                error = error or failed
        if error is not None:
            raise error
        return {item: values[item] for item in many.keys if item in values}

    async def _value_of(
        self,
        many: ManyRequest,
        item: Any,
        answer: LoadAnswer | Exception | None,
        share: Share,
        called_at: float,
    ) -> Any:
        """The value of one item. None: the load was another caller's, or is too old."""
        if isinstance(answer, Exception):
            raise answer
        return (
            answer.value if answer is not None else await share(self._alone(many, item), called_at)
        )

    # ---- reading

    async def _read(self, many: ManyRequest, called_at: float) -> dict[Any, Any]:
        """The stored values, from memory or by one read. UsageError: a key is no value."""
        values = self._in_memory(many, called_at)
        rest = [item for item in many.keys if item not in values]
        if not rest:
            return values
        try:
            readings = await self._reader.read_all([many.keys[item] for item in rest])
        except Outage:
            return values  # the claims meet it again, and decide
        due: dict[Any, bytes] = {}
        for item, reading in zip(rest, readings, strict=True):
            if isinstance(reading, UsageError):
                raise reading
            if isinstance(reading, Reading) and is_served(reading, many.options):
                values[item] = reading.value
                if self._events.listeners:
                    self._events.emit("hit" if reading.state == "fresh" else "stale", many.name)
                self._note_if_due(many, item, reading, due)
        if due:
            self._keep_fresh(many, due)
        return values

    def _in_memory(self, many: ManyRequest, called_at: float) -> dict[Any, Any]:
        if not many.options.local:
            return {}
        local = self._reader.local
        values = {item: local.get(keys.key, called_at) for item, keys in many.keys.items()}
        values = {item: value for item, value in values.items() if value is not ABSENT}
        if self._events.listeners:
            for _ in values:
                self._events.emit("local_hit", many.name)
        return values

    def _note_if_due(
        self, many: ManyRequest, item: Any, reading: Reading, due: dict[Any, bytes]
    ) -> None:
        if many.keys[item].key in self._memory.flights:
            return
        if reading.state == "stale":
            due[item] = IF_NEEDED
        elif many.options.early and is_due_early(reading, many.options.early, random()):
            due[item] = ALWAYS

    def _keep_fresh(self, many: ManyRequest, due: dict[Any, bytes]) -> None:
        """Where values are old, or soon will be, one load refreshes them in the background."""
        requests = [self._alone(many, item) for item in due]
        self._refresher.refresh_all(requests, functools.partial(self._refresh, many, due))

    async def _refresh(
        self, many: ManyRequest, due: dict[Any, bytes], requests: list[LoadRequest]
    ) -> set[bytes]:
        """Load those again that are ours to load; their keys."""
        keys = {request.keys.key for request in requests}
        asked = self._asked(many, {i: w for i, w in due.items() if many.keys[i].key in keys})
        since = monotonic()
        readings = await self._loader.claim_all(list(asked.values()))
        claims = {
            item: LoadClaim(self._alone(many, item), asked[item][1], reading)
            for item, reading in zip(asked, readings, strict=True)
            if isinstance(reading, Reading) and reading.won
        }
        return set(await self._lead(many, claims, since)) if claims else set()

    # ---- loading

    def _alone(self, many: ManyRequest, item: Any) -> LoadRequest:
        """The request for one item."""
        return LoadRequest(many.keys[item], self._load_alone, (many, item), {})

    async def _load_alone(self, many: ManyRequest, item: Any) -> Any:
        [value] = picked(many.name, [item], await maybe_await(many.load([item])))
        if isinstance(value, Absent):
            raise value
        return value

    async def _load(
        self, many: ManyRequest, missing: list[Any]
    ) -> dict[Any, LoadAnswer | Exception | None]:
        """What one load finds for the items. None: another caller loads that one already."""
        outcomes: dict[Any, LoadAnswer | Exception | None] = dict.fromkeys(missing)
        flight, ours = self._flight_of(many, missing)
        if flight is not None:
            results: Results = await flight.join()
            for item in ours:
                outcomes[item] = results.get(many.keys[item].key)
        return outcomes

    def _flight_of(self, many: ManyRequest, missing: list[Any]) -> tuple[Flight | None, list[Any]]:
        """One flight for all keys that this process does not load yet; and their items."""
        memory, flights = self._memory, self._memory.flights
        with memory.guard:
            ours: list[Any] = []
            for item in missing:
                if memory.flight_of(flights, many.keys[item].key) is None:
                    ours.append(item)
            if not ours:
                return None, []
            keys = [many.keys[item].key for item in ours]
            work = functools.partial(self._resolve, many, ours)
            flight = Flight(work, functools.partial(self._ended, keys))
            flights.update(dict.fromkeys(keys, flight))
            return flight, ours

    def _ended(self, keys: list[bytes], flight: Flight) -> None:
        for key in keys:
            drop_flight(self._memory.flights, key, flight)

    async def _resolve(self, many: ManyRequest, items: list[Any]) -> Results:
        """Claim them, and load those that are ours in one call."""
        results: Results = {}
        since, ended = monotonic(), self._store.recoveries
        claims: dict[Any, LoadClaim] = {}
        out: dict[Any, Outage] = {}
        requests = self._asked(many, dict.fromkeys(items, IF_NEEDED))
        try:
            while requests:
                requests = await self._claim(many, requests, claims, results, out)
        except BaseException:
            for claim in claims.values():
                self._loader.writer.unlock(claim.request.keys, claim.token)
            raise
        if claims:
            for _ in claims:
                self._events.emit("miss", many.name)
            results.update(await self._lead(many, claims, since))
        if out:
            results.update(await self._load_unguarded(many, out, ended))
        return results

    def _asked(self, many: ManyRequest, when: dict[Any, bytes]) -> RequestedItems:
        new_token = self._leases.new_token
        return {item: (many.keys[item], new_token(), each) for item, each in when.items()}

    async def _claim(
        self,
        many: ManyRequest,
        asked: RequestedItems,
        claims: dict[Any, LoadClaim],
        results: Results,
        out: dict[Any, Outage],
    ) -> RequestedItems:
        """Claim, in one write, and return what has to be claimed again.

        Only the client can see that the stored bytes are not a value.
        """
        since = monotonic()
        try:
            readings = await self._loader.claim_all(list(asked.values()))
        except Outage as outage:
            readings = [outage] * len(asked)
        retries: dict[Any, bytes] = {}
        for item, reading in zip(asked, readings, strict=True):
            keys, token, when = asked[item]
            if isinstance(reading, Outage):
                out[item] = reading
            elif isinstance(reading, Exception):
                results[keys.key] = reading
            elif reading.won:
                claims[item] = LoadClaim(self._alone(many, item), token, reading)
            elif reading.state in ("outdated", "poison") and when == IF_NEEDED:
                retries[item] = reading.head or ALWAYS
            else:
                self._settle(keys, reading, results, since)
        return self._asked(many, retries)

    def _settle(self, keys: CacheKeys, reading: Reading, results: Results, since: float) -> None:
        """What was found needs no load. Missing, or old: a fresh one is waited for."""
        if reading.state == "held":
            results[keys.key] = UsageError(HELD)
        elif reading.state == "failed":
            results[keys.key] = load_error(reading.value, keys.name)
        elif is_served(reading, keys.options):
            is_fresh = reading.state == "fresh"
            self._memory.remember(keys.key, reading.left if is_fresh else reading.life)
            kind = "hit" if is_fresh else "stale"
            self._events.emit(kind, keys.name)
            results[keys.key] = LoadAnswer(reading.value, since, kind)

    async def _lead(self, many: ManyRequest, claims: dict[Any, LoadClaim], since: float) -> Results:
        """One load for all of them; what it raises is the answer for each.

        *since*: when they were claimed. No old value that was there then is for those who came
        later: it may have been deleted.
        """
        items = list(claims)
        split = functools.partial(picked, many.name, items)
        answers: list[LoadAnswer | Exception]
        try:
            answers = await self._loader.lead_all(
                list(claims.values()), functools.partial(many.load, items), split
            )
        except Exception as error:
            answers = [self._instead(claim, error, since) for claim in claims.values()]
        keys = [many.keys[item].key for item in items]
        return dict(zip(keys, answers, strict=True))

    def _instead(self, claim: LoadClaim, error: Exception, since: float) -> LoadAnswer | Exception:
        """The old value, if there is one, where a load failed."""
        if claim.reading.state != "stale":
            return error
        self._events.emit("stale", claim.request.keys.name)
        return LoadAnswer(claim.reading.value, since, "stale")

    async def _load_unguarded(
        self, many: ManyRequest, out: dict[Any, Outage], ended: int
    ) -> Results:
        """Our own load, not stored, for those whose server is out."""
        items = list(out)
        cause = out[items[0]].cause
        keys = [many.keys[item].key for item in items]
        for key in keys:
            self._memory.begin_unwatched(key, out, ended)
        try:
            self._store.outage(many.name, cause, many.options.on_outage)
            since = monotonic()
            load = functools.partial(many.load, items)
            result = await self._loader.call(many.keys[items[0]], Cause(cause).code, load)
            values = picked(many.name, items, result)
            self._events.emit("degraded", many.name, cause=cause, took=monotonic() - since)
            return dict(zip(keys, [self._unstored(many, value) for value in values], strict=True))
        except Exception as error:
            return dict.fromkeys(keys, error)
        finally:
            for key in keys:
                self._memory.end_unwatched(key, out)

    def _unstored(self, many: ManyRequest, value: Any) -> LoadAnswer | Exception:
        if isinstance(value, Absent):
            return value
        return LoadAnswer(packed(many.options.codec, value, many.name)[1], math.inf)


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
        """The value: from memory, from the store, from a load under way, or loaded now."""
        key, options, memory = keys.key, keys.options, self._memory
        self._store.enter()
        called_at = monotonic()
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
        """The value of each item, except those for which the load returned none."""
        self._store.enter()
        return await self._batches.get(many, self._share_flight)

    async def _share_flight(self, request: LoadRequest, called_at: float) -> Any:
        return await self._share(request, self._memory.flights, called_at, force=False)

    async def refresh(self, request: LoadRequest) -> Any:
        """The value, loaded now (by us, or by a caller who has just begun)."""
        self._store.enter()
        return await self._join_or_start(request, self._memory.refreshes, monotonic(), force=True)

    async def peek(self, keys: CacheKeys) -> Found[Any] | None:
        """What is stored; never loads. Unavailable: the store is out, and the policy "closed"."""
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
        options = keys.options
        payload, _ = packed(options.codec, value, keys.name)
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

    def _undelivered(self, outage: Outage, name: str, policy: OutagePolicy) -> bool:
        """False. Unavailable: the policy is "closed"."""
        self._events.emit("outage", name, cause=outage.cause)
        if policy == "closed":
            raise Unavailable(outage.cause, name) from None
        return False

    async def _deliver(self, request: Request) -> Any:
        """The reply. Outage: the request is delivered when the server answers again."""
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
        """The value. Unavailable: a load of many that is shared returned none for it."""
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
        """The flight of this key, and whether it is a new one."""
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
        """What a flight under way finds. None: there is none, or not one that will do."""
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
        """The result of another caller's flight. None: it may be older than this call."""
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
        """A value, whatever it takes: that of another load, of our own, or an old one.

        *since*: when the caller came, who may have waited for another flight already.
        """
        options, keys = request.options, request.keys
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
            if reading.won and reading.state == "stale" and not force:
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
        """The old value, while it is loaded in the background; or the new one, if callers wait."""
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
        """The fresh value, by the cheapest question. None: there is none, a claim must decide."""
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
