"""Loading a value for all: the lock is kept alive, the result stored if it is still wanted."""

import functools
import math
import random
from collections.abc import Callable
from time import time
from typing import Any

from .._core.breaker import Outage
from .._core.cache import (
    HELD,
    Answer,
    LoadRequest,
    Reading,
    jittered,
    lock_request,
    read_lock,
    standing_request,
    store_request,
    unlock_request,
)
from .._core.capabilities import must_allow
from .._core.causes import cause_for
from .._core.codec import FAILURE, frame, packed
from .._core.lease import HoldCall, LeaseState
from .._core.request import Request
from .._events import EventSink
from .._tasks import Flight, Guard, monotonic, within, world
from ..errors import UsageError
from .leases import AsyncLeases
from .store import AsyncStore

_MOST_SEEN = 50_000
"""Keys of which we remember how long they are fresh, to know how to ask for them."""


class AsyncCacheMemory:
    """What this process knows of values: which are being loaded, and which are fresh."""

    def __init__(self) -> None:
        self.open()

    def open(self) -> None:
        """Begin with nothing known; again in a forked child."""
        self.guard = Guard()
        self.flights: dict[bytes, Flight] = {}
        self.refreshes: dict[bytes, Flight] = {}
        self.seen: dict[bytes, float] = {}
        """Until when a value is fresh, as far as we know."""

    def remember(self, key: bytes, left: float) -> None:
        """The value of *key* is fresh for *left* seconds."""
        if len(self.seen) >= _MOST_SEEN:
            self.seen.clear()
        self.seen[key] = monotonic() + left

    def part(self, key: bytes) -> None:
        """The value changed: who asks from now on does not join a load that began before."""
        self.flights.pop(key, None)
        self.refreshes.pop(key, None)


class AsyncLoader:
    """Loads, on behalf of everybody who waits."""

    def __init__(
        self,
        store: AsyncStore,
        events: EventSink,
        leases: AsyncLeases,
        memory: AsyncCacheMemory,
    ) -> None:
        self._store = store
        self._events = events
        self._leases = leases
        self._memory = memory
        self.open()

    def open(self) -> None:
        """Begin without loads; again in a forked child."""
        self.untracked_loads: dict[bytes, bytes] = {}
        """Key → token of a load during which the server does not tell if the value is deleted."""
        self._leading: dict[bytes, tuple[LoadRequest, LeaseState]] = {}
        self._world: object = None

    async def claim(self, want: LoadRequest, token: bytes, *, force: bool) -> Reading:
        """What the store has, and whether we load it. UsageError: the key is a lease's."""
        options, keys = want.options, want.keys
        now, engine = await self._store.opened()
        if engine.refused:
            must_allow(engine, "load")
        await self.end_stranded()
        request = lock_request(keys, options, token, force=force)
        try:
            reading = read_lock(await self._store.ask(request, now), options)
        except Outage as outage:
            if outage.sent:
                self.unlock(want, token)
            raise
        except Exception:
            raise
        except BaseException:
            self.unlock(want, token)
            raise
        if reading.state == "held":
            raise UsageError(HELD)
        if reading.state == "poison":
            self._events.emit("poison", want.keys.name)
        return reading

    async def lead(self, want: LoadRequest, token: bytes, reading: Reading) -> Answer:
        """Load, keep the lock alive meanwhile, store. Whoever deletes the value parts us from
        those who ask later, and our result is not stored."""
        options, keys, load = want.options, want.keys, want.load
        since = monotonic()
        lock = self._lock(want, token, since)
        part = functools.partial(self._memory.part, keys.key)
        self._leading[token] = want, lock
        try:
            await self._watch(keys.key, token, part)
            value = await within(options.load_timeout, load)
        except Exception as error:
            await self._failed(want, token, reading, error)
            raise
        except BaseException:
            self.unlock(want, token)
            raise
        finally:
            lock.is_over = True
            self._leading.pop(token, None)
            self._store.transport.unwatch(keys.key, part)
            if self.untracked_loads.get(keys.key) == token:
                self.untracked_loads.pop(keys.key, None)
        return await self._keep(want, token, value, since)

    async def _watch(self, key: bytes, token: bytes, part: Callable[[], None]) -> None:
        try:
            watching = await self._store.transport.watch(key, part, monotonic())
        except Outage:
            return  # then the load is not stored either
        if watching.remaining <= 0:
            part()  # deleted before we could watch it
        elif not watching.tracked:
            self.untracked_loads[key] = token

    async def end_stranded(self) -> None:
        """End the loads of an event loop that was closed meanwhile: nobody else would."""
        before, self._world = self._world, world()
        if before is None or before is self._world:
            return
        stranded, self._leading = self._leading, {}
        self.untracked_loads.clear()
        requests: list[Request] = []
        for token, (want, lock) in stranded.items():
            lock.is_over = True
            requests.append(unlock_request(want.keys, token, math.inf))
        if requests:
            await self._store.ask_all(requests, monotonic())

    def _lock(self, want: LoadRequest, token: bytes, since: float) -> LeaseState:
        """The lock as a lease that is kept alive."""
        call = HoldCall(want.keys.lock, "", want.keys.name, want.options.lock)
        lock = LeaseState(call, token, since)
        try:
            self._leases.renewer.keep(lock)
        except BaseException:  # no thread to be had, or a signal handler raised
            lock.is_over = True
            self.unlock(want, token)
            raise
        return lock

    async def _keep(self, want: LoadRequest, token: bytes, value: Any, since: float) -> Answer:
        options, keys = want.options, want.keys
        codec = options.codec
        took = monotonic() - since
        try:
            # What the store gives to others, also to the first. What cannot be read is not stored.
            payload, value = packed(codec, value)
        except BaseException:
            self.unlock(want, token)
            raise
        self._events.emit("loaded", want.keys.name, took=took)
        fresh = jittered(options, random.random())
        data = frame(codec.name, codec.fingerprint, time(), took, payload)
        asked = monotonic()
        stored = await self._write(want, token, data, fresh + options.stale)
        if stored:
            self._memory.remember(keys.key, fresh)
        # Not stored: it may be older than what was deleted. Unknown: there is nothing better.
        as_of = math.inf if stored is None else asked if stored else since
        return Answer(value, as_of)

    async def _write(
        self, want: LoadRequest, token: bytes, data: bytes, life: float
    ) -> bool | None:
        """True: it is stored. False: it was not wanted any more. None: the store is out."""
        request = store_request(want.keys, token, data, life)
        try:
            stored = await self._store.ask(request, monotonic()) == 1
        except Outage as outage:
            self.unlock(want, token)
            self._events.emit("rejected_write", want.keys.name, cause=outage.cause)
            return None
        except Exception:
            raise
        except BaseException:
            self.unlock(want, token)
            raise
        if not stored:
            self.unlock(want, token)  # where only the lock was lost, our mark still stands
            self._events.emit("rejected_write", want.keys.name, cause=cause_for("superseded"))
        return stored

    async def _failed(
        self, want: LoadRequest, token: bytes, reading: Reading, error: Exception
    ) -> None:
        """Let others try – or remember the failure, where there is nothing better to serve.

        Where an old value is served meanwhile, the lock is left to run out: that is how long
        nobody tries again, so that a loader that fails at once is not asked for every read.
        """
        options = want.options
        why = cause_for("load_failed", f"the load failed: {type(error).__name__}")
        self._events.emit("degraded", want.keys.name, cause=why)
        if reading.state == "stale":
            return
        if options.negative_ttl and reading.state == "missing":
            data = frame(FAILURE, "-", time(), 0.0, type(error).__name__.encode())
            life = options.negative_ttl + options.stale
            await self._write(want, token, data, life)
        else:
            self.unlock(want, token)

    def unlock(self, want: LoadRequest, token: bytes) -> None:
        """However late: a server that was stopped gives us the lock when it goes on."""
        self._store.transport.post(unlock_request(want.keys, token, float("inf")))

    async def load_unguarded(self, want: LoadRequest, outage: Outage) -> Answer:
        self._store.outage(want.keys.name, outage.cause, want.options.on_outage)
        return await self.degrade(want, outage.cause)

    async def degrade(self, want: LoadRequest, cause: str) -> Answer:
        """Our own load, not stored: one for each process and key, because we are in a flight."""
        since = monotonic()
        value = await within(want.options.load_timeout, want.load)
        self._events.emit("degraded", want.keys.name, cause=cause, took=monotonic() - since)
        return Answer(packed(want.options.codec, value)[1], math.inf)

    async def load_beside(self, want: LoadRequest) -> Answer:
        """Our own load, not stored, while somebody else's takes too long.

        Who asked after it had begun may share it if the other load still stands when it ends:
        then the value was not deleted in between.
        """
        before, since = await self._standing(want), monotonic()
        answer = await self.degrade(want, cause_for("wait_over"))
        ended = monotonic()
        is_unchanged = await self._standing(want) == before
        return Answer(answer.value, ended if is_unchanged else since)

    async def _standing(self, want: LoadRequest) -> Any:
        """The load that is under way. None: nobody can tell."""
        try:
            return await self._store.ask(standing_request(want.keys), monotonic())
        except Outage:
            return None
