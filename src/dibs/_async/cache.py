"""Cache-first reading: one loads, everyone reads."""

import functools
import random
from collections.abc import Awaitable, Callable
from time import time
from typing import TYPE_CHECKING, Any, NamedTuple

from .._core.breaker import Outage
from .._core.cache import (
    Reading,
    Recipe,
    Slot,
    abandon_request,
    claim_request,
    invalidate_request,
    is_due_early,
    jittered,
    read_claim,
    read_reply,
    read_request,
    store_request,
)
from .._core.codec import FAILURE, frame
from .._core.lease import Plan, milliseconds
from .._core.local import ABSENT, Local
from .._tasks import Crew, Flight, Signal, Together, monotonic, within
from ..errors import Unavailable
from .lease import AsyncLease

if TYPE_CHECKING:
    from .ledger import AsyncLedger

_LOOK_AGAIN = 2.0
"""A push can be lost: how long to trust that none has come, in seconds."""
_JUST_AFTER = 0.002
"""An expiry is not announced; look this much after it."""
_MOST_SEEN = 50_000
"""Keys of which we remember how long they are fresh, to know how to ask for them."""

Load = Callable[[], Awaitable[Any]]


class Want(NamedTuple):
    """One value that is wanted: how it is kept, where, and how to get it."""

    recipe: Recipe
    slot: Slot
    load: Load


class AsyncCache:
    """Values that are loaded once for all, in all processes."""

    def __init__(self, ledger: "AsyncLedger") -> None:
        self._ledger = ledger
        self._flights: dict[bytes, Flight] = {}
        self._reads = Together()
        self._crew = Crew()
        self._local = Local()
        self._seen: dict[bytes, float] = {}

    # ---- reading

    async def get(self, want: Want) -> Any:
        """The value: from memory, from the store, from a load under way, or loaded now."""
        recipe, slot, _ = want
        key = slot.key
        if recipe.local:
            value = self._local.get(key, monotonic())
            if value is not ABSENT:
                self._tell("local_hit", recipe)
                return value
        flight = self._flights.get(key)
        if flight is not None and flight.is_open:
            return await flight.join()
        if recipe.local or self._seen.get(key, 0.0) > monotonic():
            reading = await self._look(want)
            if reading is not None and reading.state in ("fresh", "stale"):
                return self._serve(want, reading)
        return await self._fly(want, force=False)

    async def refresh(self, want: Want) -> Any:
        """The value, loaded now (by us, or by somebody who has just begun)."""
        return await self._fly(want, force=True)

    async def invalidate(self, want: Want) -> bool:
        """Delete the value everywhere; a load under way is not stored. False: not yet delivered."""
        recipe, slot, _ = want
        self._part(slot.key)
        self._forget(slot.key)
        now = monotonic()
        request = invalidate_request(slot, now + recipe.ttl * 2 + recipe.stale)
        try:
            await self._ledger.opened()
            await self._ledger.ask(request, now)
        except Outage as outage:
            self._tell("outage", recipe, cause=outage.cause)
            if recipe.on_outage == "closed":
                raise Unavailable(outage.cause, recipe.name) from None
            return False
        self._tell("invalidated", recipe)
        return True

    async def _look(self, want: Want) -> Reading | None:
        """What the store has; callers in one moment share the look. None: it cannot be asked."""
        try:
            question = functools.partial(self._read, want)
            return await self._reads.ask(want.slot.key, question)
        except Outage:
            return None  # the flight meets it again, and decides

    async def _read(self, want: Want) -> Reading:
        recipe, slot, _ = want
        if recipe.local:
            return await self._read_for_memory(want)
        now = monotonic()
        request = read_request(slot, recipe)
        reading = read_reply(await self._ledger.ask(request, now), recipe)
        if reading.state not in ("fresh", "stale"):
            self._seen.pop(slot.key, None)
        return reading

    async def _read_for_memory(self, want: Want) -> Reading:
        """Read, and be told when it changes: only then it may be remembered here."""
        recipe, slot, _ = want
        key = slot.key
        ticket = self._local.ticket(key)
        now, _ = await self._ledger.opened()
        request = read_request(slot, recipe)
        forget = functools.partial(self._forget, key)
        answer = await self._ledger.link.track(request, forget, now)
        reading = read_reply(await self._ledger.mend(request, answer.replies, now), recipe)
        if answer.told and reading.state == "fresh":
            until = now + min(reading.left, recipe.local)
            gone = self._local.put(key, reading.value, until, ticket)
            if gone is not None:
                self._ledger.link.unwatch(gone, functools.partial(self._forget, gone))
        return reading

    def _serve(self, want: Want, reading: Reading) -> Any:
        """A value that is there; where it is old, somebody refreshes it behind the caller."""
        recipe = want.recipe
        if reading.state == "stale":
            self._tell("stale", recipe)
            self._behind(want, force=False)
        else:
            self._tell("hit", recipe)
            if recipe.early and is_due_early(reading, recipe.early, random.random()):
                self._behind(want, force=True)
        return reading.value

    def _behind(self, want: Want, *, force: bool) -> None:
        flight = self._flights.get(want.slot.key)
        if flight is None or not flight.is_open:
            self._crew.spawn(functools.partial(self._refresh_behind, want, force=force))

    # ---- flights

    async def _fly(self, want: Want, *, force: bool) -> Any:
        """Join the flight of this key, or take off: one contender in this process."""
        key = want.slot.key
        with self._ledger.guard:
            flight = self._flights.get(key)
            if flight is None or not flight.is_open:
                flight = self._flights[key] = Flight(
                    functools.partial(self._resolve, want, force=force)
                )
        try:
            return await flight.join()
        finally:
            if not flight.is_open and self._flights.get(key) is flight:
                self._flights.pop(key, None)

    def _part(self, key: bytes) -> None:
        """The value changed: who asks from now on does not join a load that began before."""
        self._flights.pop(key, None)

    async def _resolve(self, want: Want, *, force: bool) -> Any:
        """A value, whatever it takes: somebody else's, our own load, or an old one."""
        recipe, slot, _ = want
        since = monotonic()
        token = self._ledger.new_token()
        waited = False
        while True:
            try:
                reading = await self._claim(want, token, force=force and not waited)
            except Outage as outage:
                return await self._load_unguarded(want, outage)
            if reading.won and reading.state == "stale" and not force:
                self._crew.spawn(functools.partial(self._lead, want, token, reading))
                return self._old(want, reading)
            if reading.won:
                self._tell("reelected" if waited else "miss", recipe)
                return await self._lead(want, token, reading)
            if reading.state == "fresh" and (waited or not force):
                self._remember(slot.key, reading.left)
                self._tell("waited" if waited else "hit", recipe, waited=monotonic() - since)
                return reading.value
            if reading.state == "failed":
                raise Unavailable(f"the last load failed ({reading.value})", recipe.name)
            if reading.state == "stale" and not force:
                return self._old(want, reading)
            if monotonic() - since >= recipe.wait:
                return await self._degrade(want, "the wait for another load is over")
            await self._follow(want, since + recipe.wait)
            waited = True

    def _old(self, want: Want, reading: Reading) -> Any:
        self._tell("stale", want.recipe)
        self._remember(want.slot.key, reading.life)
        return reading.value

    async def _refresh_behind(self, want: Want, *, force: bool) -> None:
        """One of all processes loads it again, while everybody reads the old one."""
        token = self._ledger.new_token()
        try:
            reading = await self._claim(want, token, force=force)
        except Outage:
            return
        if reading.won:
            await self._lead(want, token, reading)

    async def _claim(self, want: Want, token: bytes, *, force: bool) -> Reading:
        recipe, slot, _ = want
        now, _ = await self._ledger.opened()
        request = claim_request(slot, recipe, token, force=force)
        try:
            reading = read_claim(await self._ledger.ask(request, now), recipe)
        except Outage as outage:
            if outage.sent:
                self._abandon(want, token)
            raise
        except Exception:
            raise
        except BaseException:
            self._abandon(want, token)
            raise
        if reading.state == "poison":
            self._tell("poison", recipe)
        return reading

    async def _follow(self, want: Want, give_up: float) -> None:
        """Until the other load is over, as far as we are told, or it is time to look again."""
        recipe, slot, _ = want
        signal = Signal()
        link = self._ledger.link
        try:
            watching = await link.watch(slot.lock, signal.set, monotonic())
            if watching.remaining > 0:
                pause = _LOOK_AGAIN if watching.told else recipe.poll
                left = give_up - monotonic()
                await signal.wait(min(watching.remaining + _JUST_AFTER, pause, left))
        except Outage:
            pass  # the next claim meets it again, and decides
        finally:
            link.unwatch(slot.lock, signal.set)

    # ---- loading

    async def _lead(self, want: Want, token: bytes, reading: Reading) -> Any:
        """Load, keep the lock alive meanwhile, store. Whoever deletes the value parts us from
        those who ask later, and our result is not stored."""
        recipe, slot, load = want
        since = monotonic()
        lease = self._lease(want, token, since)
        part = functools.partial(self._part, slot.key)
        try:
            await self._watch(slot.key, part)
            value = await within(recipe.load_timeout, load)
        except Exception as error:
            await self._failed(want, token, reading, error)
            raise
        except BaseException:
            self._abandon(want, token)
            raise
        finally:
            lease._is_over = True  # pyright: ignore[reportPrivateUsage]
            self._ledger.link.unwatch(slot.key, part)
        return await self._store(want, token, reading, value, since)

    async def _watch(self, key: bytes, wake: Callable[[], None]) -> None:
        try:
            await self._ledger.link.watch(key, wake, monotonic())
        except Outage:
            pass  # then the load is not stored either

    def _lease(self, want: Want, token: bytes, since: float) -> AsyncLease:
        """The lock as a lease that is kept alive, but not past the load's time."""
        recipe, slot, _ = want
        ttl, most = recipe.lock_ttl, max(recipe.load_timeout, recipe.lock_ttl)
        plan = Plan(
            slot.lock, "", recipe.name, ttl, milliseconds(ttl), 0.0, True, most, None,
            recipe.on_outage,
        )  # fmt: skip
        lease = AsyncLease(self._ledger, plan, token, since)
        self._ledger.keeper.keep(lease)
        return lease

    async def _store(
        self, want: Want, token: bytes, reading: Reading, value: Any, since: float
    ) -> Any:
        recipe, slot, _ = want
        codec = recipe.codec
        took = monotonic() - since
        try:
            payload = codec.encode(value)
        except BaseException:
            self._abandon(want, token)
            raise
        self._tell("loaded", recipe, took=took)
        fresh = jittered(recipe, random.random())
        data = frame(codec.name, codec.fingerprint, time(), took, payload)
        if await self._write(want, token, reading, data, fresh + recipe.stale, took):
            self._remember(slot.key, fresh)
        # What the store gives to others, also to the first: a tuple comes back as a list to all.
        return codec.decode(payload)

    async def _write(
        self, want: Want, token: bytes, reading: Reading, data: bytes, life: float, took: float
    ) -> bool:
        """True: it is stored. False: it was not wanted any more, or the store is out."""
        recipe, slot, _ = want
        # A mark outlives every load; an old value may have come to its end by itself meanwhile.
        must_exist = reading.state not in ("stale", "fresh", "poison", "failed")
        must_exist = must_exist or took < reading.life
        request = store_request(slot, token, data, life, must_exist=must_exist)
        try:
            stored = await self._ledger.ask(request, monotonic()) == 1
        except Outage as outage:
            self._abandon(want, token)
            self._tell("rejected_write", recipe, cause=outage.cause)
            return False
        except Exception:
            raise
        except BaseException:
            self._abandon(want, token)
            raise
        if not stored:
            self._tell("rejected_write", recipe, cause="deleted, or loaded by another, meanwhile")
        return stored

    async def _failed(self, want: Want, token: bytes, reading: Reading, error: Exception) -> None:
        """Let others try – or remember the failure, where there is nothing better to serve."""
        recipe, _, _ = want
        if recipe.negative_ttl and reading.state == "missing":
            data = frame(FAILURE, "-", time(), 0.0, type(error).__name__.encode())
            life = recipe.negative_ttl + recipe.stale
            await self._write(want, token, reading, data, life, 0.0)
        else:
            self._abandon(want, token)

    def _abandon(self, want: Want, token: bytes) -> None:
        """However late: a server that was stopped gives us the lock when it goes on."""
        self._ledger.link.post(abandon_request(want.slot, token, float("inf")))

    async def _load_unguarded(self, want: Want, outage: Outage) -> Any:
        self._tell("outage", want.recipe, cause=outage.cause)
        if want.recipe.on_outage == "closed":
            raise Unavailable(outage.cause, want.recipe.name) from None
        return await self._degrade(want, outage.cause)

    async def _degrade(self, want: Want, cause: str) -> Any:
        """Our own load, not stored: one for each process and key, because we are in a flight."""
        since = monotonic()
        value = await within(want.recipe.load_timeout, want.load)
        self._tell("degraded", want.recipe, cause=cause, took=monotonic() - since)
        codec = want.recipe.codec
        return codec.decode(codec.encode(value))

    # ---- memory

    def _remember(self, key: bytes, left: float) -> None:
        if len(self._seen) >= _MOST_SEEN:
            self._seen.clear()
        self._seen[key] = monotonic() + left

    def _forget(self, key: bytes) -> None:
        self._local.forget(key)
        self._seen.pop(key, None)

    def _tell(self, kind: Any, recipe: Recipe, **facts: Any) -> None:
        if self._ledger.listeners:
            self._ledger.tell(kind, recipe.name, **facts)

    # ---- the end

    async def aclose(self) -> None:
        """End all loads of ours; others take over."""
        await self._crew.stop()
        for flight in list(self._flights.values()):
            await flight.land()
        self._flights.clear()

    def abandon(self) -> None:
        """In a forked child: loads and memories are the parent's."""
        self._flights = {}
        self._reads = Together()
        self._crew = Crew()
        self._local = Local()
        self._seen = {}
