"""Cache-first reading: one loads, everyone reads."""

import functools
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from .._core.breaker import Outage
from .._core.cache import (
    HELD,
    Answer,
    Reading,
    Recipe,
    Slot,
    invalidate_request,
    is_due_early,
    read_reply,
    read_request,
    read_standing,
    standing_request,
)
from .._core.causes import cause_for
from .._core.local import ABSENT, Local, Ticket
from .._core.request import Request
from .._tasks import Coalescer, Flight, monotonic
from ..errors import Unavailable, UsageError
from .follower import AsyncFollower
from .loader import AsyncLoader, LoadRequest
from .refresher import AsyncRefresher

if TYPE_CHECKING:
    from .ledger import AsyncLedger

_MOST_SEEN = 50_000
"""Keys of which we remember how long they are fresh, to know how to ask for them."""


class AsyncCache:
    """Values that are loaded once for all, in all processes."""

    def __init__(self, ledger: "AsyncLedger") -> None:
        self._ledger = ledger
        self._flights: dict[bytes, Flight] = {}
        self._refreshes: dict[bytes, Flight] = {}
        self._reads = Coalescer()
        self._local = Local()
        self._seen: dict[bytes, float] = {}
        self._following = AsyncFollower(ledger)
        self._loading = AsyncLoader(ledger, self._part, self._remember)
        self._behind = AsyncRefresher(ledger, self._loading)

    # ---- reading

    async def get(
        self,
        recipe: Recipe,
        slot: Slot,
        function: Callable[..., Awaitable[Any]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """The value: from memory, from the store, from a load under way, or loaded now."""
        key = slot.key
        came = monotonic()
        if recipe.local:
            value = self._local.get(key, came)
            if value is not ABSENT:
                if self._ledger.listeners:
                    self._tell("local_hit", recipe)
                return value
        # Only now: what is in memory is not to pay for it.
        want = LoadRequest(recipe, slot, function, args, kwargs)
        if key in self._flights:
            answer = await self._join_any(want, came)
            if answer is not None:
                return answer.value
        if recipe.local or self._seen.get(key, 0.0) > came:
            try:
                reading = await self._reads.ask(key, self._read, want)
            except Outage:
                pass  # the flight meets it again, and decides
            else:
                if reading.state in ("fresh", "stale"):
                    return self._serve(want, reading)
        return await self._fly(want, self._flights, came, force=False)

    async def refresh(self, want: LoadRequest) -> Any:
        """The value, loaded now (by us, or by somebody who has just begun)."""
        return await self._fly(want, self._refreshes, monotonic(), force=True)

    async def invalidate(self, want: LoadRequest) -> bool:
        """Delete the value everywhere; a load under way is not stored. False: not yet delivered."""
        recipe, slot = want.recipe, want.slot
        self._changed(slot.key)
        now = monotonic()
        request = invalidate_request(slot, now + recipe.ttl * 2 + recipe.stale)
        try:
            deleted = await self._deliver(request)
        except Outage as outage:
            self._tell("outage", recipe, cause=outage.cause)
            if recipe.on_outage == "closed":
                raise Unavailable(outage.cause, recipe.name) from None
            return False
        if deleted == 0:
            raise UsageError(HELD)
        # Once more: somebody may have read the old value, or begun a load, before it was deleted.
        self._changed(slot.key)
        self._tell("invalidated", recipe)
        return True

    async def _deliver(self, request: Request) -> Any:
        """The reply. Outage: the request is delivered when the server answers again."""
        try:
            now, _ = await self._ledger.opened()
        except Outage:
            self._ledger.link.post(request)
            raise
        return await self._ledger.ask(request, now)

    async def _read(self, want: LoadRequest) -> Reading:
        """What the store has; callers in one moment share the answer."""
        recipe, slot = want.recipe, want.slot
        if recipe.local:
            return await self._read_for_memory(want)
        now = monotonic()
        request = read_request(slot, recipe)
        reply = await self._ledger.link.send(request, now)
        if type(reply) is not bytes:  # bytes are the usual answer, and never an error
            reply = await self._ledger.check_reply(request, reply, now)
        reading = read_reply(reply, recipe)
        if reading.state not in ("fresh", "stale"):
            self._seen.pop(slot.key, None)
        return reading

    async def _read_for_memory(self, want: LoadRequest) -> Reading:
        """Read, and be told when it changes: only then it may be remembered here."""
        recipe, key = want.recipe, want.slot.key
        now, _ = await self._ledger.opened()
        request = read_request(want.slot, recipe)
        ticket = _Forget(self, key)
        self._local.ask(key, ticket)
        gone: list[tuple[bytes, Ticket]] = [(key, ticket)]
        try:
            answer = await self._ledger.link.track(request, ticket, now)
            reading = read_reply(
                await self._ledger.check_reply(request, answer.replies, now), recipe
            )
            if answer.tracked and reading.state == "fresh":
                until = now + min(reading.left, recipe.local)
                gone = self._local.put(key, reading.value, until, ticket)
            return reading
        finally:
            self._unwatch(gone)

    def _serve(self, want: LoadRequest, reading: Reading) -> Any:
        """A value that is there; where it is old, somebody refreshes it behind the caller."""
        recipe = want.recipe
        if reading.state == "stale":
            self._tell("stale", recipe)
            self._refresh(want, force=False)
        else:
            self._tell("hit", recipe)
            if recipe.early and is_due_early(reading, recipe.early, random.random()):
                self._refresh(want, force=True)
        return reading.value

    def _refresh(self, want: LoadRequest, *, force: bool) -> None:
        if want.slot.key not in self._flights:
            self._behind.refresh(want, force=force)

    # ---- flights

    async def _fly(
        self, want: LoadRequest, flights: dict[bytes, Flight], came: float, *, force: bool
    ) -> Any:
        """Join the flight of this key, or take off: one contender in this process."""
        while True:
            flight, is_ours = self._flight_of(want, flights, force=force)
            if is_ours:
                return (await flight.join()).value
            answer = await self._join(flight, want.recipe, came)
            if answer is not None:
                return answer.value

    def _flight_of(
        self, want: LoadRequest, flights: dict[bytes, Flight], *, force: bool
    ) -> tuple[Flight, bool]:
        """The flight of this key, and whether it is a new one."""
        key = want.slot.key
        with self._ledger.guard:
            flight = flights.get(key)
            if flight is not None and flight.is_open:
                return flight, False
            work = functools.partial(self._resolve, want, force=force)
            ended = functools.partial(_drop, flights, key)
            flights[key] = flight = Flight(work, ended)
            return flight, True

    async def _join_any(self, want: LoadRequest, came: float) -> Answer | None:
        """What a flight under way finds. None: there is none, or not one that will do."""
        key = want.slot.key
        flight = self._flights.get(key)
        if flight is None or not flight.is_open:
            return None
        token = self._loading.untracked_loads.get(key)
        if token is not None and not await self._stands(want, token):
            _drop(self._flights, key, flight)
            return None
        if not flight.is_open:  # meanwhile its last caller has left
            return None
        return await self._join(flight, want.recipe, came)

    async def _join(self, flight: Flight, recipe: Recipe, came: float) -> Answer | None:
        """The result of somebody else's flight. None: it may be older than the caller."""
        answer: Answer = await flight.join()
        if answer.as_of < came:
            return None
        if self._ledger.listeners:
            self._tell("waited", recipe, waited=monotonic() - came)
        return answer

    async def _stands(self, want: LoadRequest, token: bytes) -> bool:
        """False: the value was deleted during its load."""
        request = standing_request(want.slot)
        try:
            return read_standing(await self._ledger.ask(request, monotonic()), token)
        except Outage:
            return True  # nobody can tell

    def _part(self, key: bytes) -> None:
        """The value changed: who asks from now on does not join a load that began before."""
        self._flights.pop(key, None)
        self._refreshes.pop(key, None)

    async def _resolve(self, want: LoadRequest, *, force: bool) -> Answer:
        """A value, whatever it takes: somebody else's, our own load, or an old one."""
        recipe, slot = want.recipe, want.slot
        since = monotonic()
        token = self._ledger.new_token()
        waited = poisoned = False
        while True:
            asked = monotonic()
            try:
                reading = await self._loading.claim(
                    want, token, force=poisoned or (force and not waited)
                )
            except Outage as outage:
                return await self._loading.load_unguarded(want, outage)
            if reading.won and reading.state == "stale" and not force:
                self._behind.lead(want, token, reading)
                return self._old(want, reading, asked)
            if reading.won:
                self._tell("reelected" if waited else "miss", recipe)
                return await self._loading.lead(want, token, reading)
            if reading.state == "fresh" and (waited or not force):
                self._remember(slot.key, reading.left)
                self._tell("waited" if waited else "hit", recipe, waited=monotonic() - since)
                return Answer(reading.value, asked)
            if reading.state == "poison" and not poisoned:
                poisoned = True  # the script takes it for a value; only we can see that it is none
                continue
            if reading.state == "failed":
                said = f"the last load failed ({reading.value})"
                raise Unavailable(cause_for("load_failed", said), recipe.name)
            if reading.state == "stale" and not force:
                return self._old(want, reading, asked)
            if monotonic() - since >= recipe.wait:
                return await self._loading.load_beside(want)
            await self._following.follow(want, reading, since + recipe.wait)
            waited = True
            asked = monotonic()
            found = await self._found(want)
            if found is not None:
                self._tell("waited", recipe, waited=monotonic() - since)
                return Answer(found.value, asked)

    def _old(self, want: LoadRequest, reading: Reading, asked: float) -> Answer:
        self._tell("stale", want.recipe)
        self._remember(want.slot.key, reading.life)
        return Answer(reading.value, asked)

    async def _found(self, want: LoadRequest) -> Reading | None:
        """The fresh value, by the cheapest question. None: there is none, a claim must decide."""
        try:
            reading = await self._read(want)
        except Outage:
            return None  # the claim meets it again, and decides
        if reading.state != "fresh":
            return None
        self._remember(want.slot.key, reading.left)
        return reading

    # ---- memory

    def _remember(self, key: bytes, left: float) -> None:
        if len(self._seen) >= _MOST_SEEN:
            self._seen.clear()
        self._seen[key] = monotonic() + left

    def _changed(self, key: bytes) -> None:
        """We know that the value changed."""
        self._part(key)
        self._local.forget(key)
        self._seen.pop(key, None)

    def forget(self, key: bytes, ticket: Ticket) -> None:
        """The value that is remembered with *ticket* changed, or may have."""
        self._local.forget(key)
        self._seen.pop(key, None)
        self._ledger.link.unwatch(key, ticket)

    def _unwatch(self, gone: list[tuple[bytes, Ticket]]) -> None:
        for key, ticket in gone:
            self._local.drop(key, ticket)
            self._ledger.link.unwatch(key, ticket)

    def _tell(self, kind: Any, recipe: Recipe, **facts: Any) -> None:
        if self._ledger.listeners:
            self._ledger.tell(kind, recipe.name, **facts)

    # ---- the end

    async def aclose(self) -> None:
        """End all loads of ours; others take over."""
        await self._behind.stop()
        for flight in [*self._flights.values(), *self._refreshes.values()]:
            await flight.cancel()
        self._flights.clear()
        self._refreshes.clear()

    def abandon(self) -> None:
        """In a forked child: loads and memories are the parent's."""
        self._flights = {}
        self._refreshes = {}
        self._reads = Coalescer()
        self._local = Local()
        self._seen = {}
        self._loading.abandon_all()
        self._behind.abandon_all()


class _Forget:
    """One registration for the change of a key; two of them are never equal."""

    __slots__ = ("_cache", "_key")

    def __init__(self, cache: AsyncCache, key: bytes) -> None:
        self._cache = cache
        self._key = key

    def __call__(self) -> None:
        self._cache.forget(self._key, self)


def _drop(flights: dict[bytes, Flight], key: bytes, flight: Flight) -> None:
    """It is over, or must not be joined any more."""
    if flights.get(key) is flight:
        flights.pop(key, None)
