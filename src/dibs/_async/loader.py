"""Loading a value for all: the lock is kept alive, the result stored if it is still wanted."""

import functools
import math
import random
from collections.abc import Awaitable, Callable
from time import time
from typing import TYPE_CHECKING, Any

from .._core.breaker import Outage
from .._core.cache import (
    HELD,
    Answer,
    Reading,
    Recipe,
    Slot,
    abandon_request,
    claim_request,
    jittered,
    read_claim,
    standing_request,
    store_request,
)
from .._core.capabilities import must_allow
from .._core.causes import cause_for
from .._core.codec import FAILURE, frame, packed
from .._core.lease import Plan, milliseconds
from .._core.request import Request
from .._tasks import monotonic, within, world
from ..errors import UsageError
from .lease import AsyncLease

if TYPE_CHECKING:
    from .ledger import AsyncLedger


class LoadRequest:
    """One value that is wanted: how it is kept, where, and how to get it."""

    # One for every read of the store: a plain class with slots is the quickest to make.
    __slots__ = ("_args", "_function", "_kwargs", "recipe", "slot")

    def __init__(
        self,
        recipe: Recipe,
        slot: Slot,
        function: Callable[..., Awaitable[Any]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self.recipe = recipe
        self.slot = slot
        self._function = function
        self._args = args
        self._kwargs = kwargs

    def load(self) -> Awaitable[Any]:
        """Call the function."""
        return self._function(*self._args, **self._kwargs)


class AsyncLoader:
    """Loads, on behalf of everybody who waits."""

    def __init__(
        self,
        ledger: "AsyncLedger",
        part: Callable[[bytes], None],
        remember: Callable[[bytes, float], None],
    ) -> None:
        self._ledger = ledger
        self._part = part
        """Told when the value was deleted: who asks later does not join this load."""
        self._remember = remember
        """Told how long a value that we stored is fresh."""
        self.untracked_loads: dict[bytes, bytes] = {}
        """Key → token of a load during which the server does not tell if the value is deleted."""
        self._leading: dict[bytes, tuple[LoadRequest, AsyncLease]] = {}
        self._world: object = None

    async def claim(self, want: LoadRequest, token: bytes, *, force: bool) -> Reading:
        """What the store has, and whether we load it. UsageError: the key is a lease's."""
        recipe, slot = want.recipe, want.slot
        now, engine = await self._ledger.opened()
        if engine.refused:
            must_allow(engine, "load")
        await self.end_stranded()
        request = claim_request(slot, recipe, token, force=force)
        try:
            reading = read_claim(await self._ledger.ask(request, now), recipe)
        except Outage as outage:
            if outage.sent:
                self.abandon(want, token)
            raise
        except Exception:
            raise
        except BaseException:
            self.abandon(want, token)
            raise
        if reading.state == "held":
            raise UsageError(HELD)
        if reading.state == "poison":
            self._tell("poison", recipe)
        return reading

    async def lead(self, want: LoadRequest, token: bytes, reading: Reading) -> Answer:
        """Load, keep the lock alive meanwhile, store. Whoever deletes the value parts us from
        those who ask later, and our result is not stored."""
        recipe, slot, load = want.recipe, want.slot, want.load
        since = monotonic()
        lease = self._lease(want, token, since)
        part = functools.partial(self._part, slot.key)
        self._leading[token] = want, lease
        try:
            await self._watch(slot.key, token, part)
            value = await within(recipe.load_timeout, load)
        except Exception as error:
            await self._failed(want, token, reading, error)
            raise
        except BaseException:
            self.abandon(want, token)
            raise
        finally:
            lease._is_over = True  # pyright: ignore[reportPrivateUsage]
            self._leading.pop(token, None)
            self._ledger.link.unwatch(slot.key, part)
            if self.untracked_loads.get(slot.key) == token:
                self.untracked_loads.pop(slot.key, None)
        return await self._store(want, token, value, since)

    async def _watch(self, key: bytes, token: bytes, part: Callable[[], None]) -> None:
        try:
            watching = await self._ledger.link.watch(key, part, monotonic())
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
        for token, (want, lease) in stranded.items():
            lease._is_over = True  # pyright: ignore[reportPrivateUsage]
            requests.append(abandon_request(want.slot, token, math.inf))
        if requests:
            await self._ledger.ask_all(requests, monotonic())

    def _lease(self, want: LoadRequest, token: bytes, since: float) -> AsyncLease:
        """The lock as a lease that is kept alive, but not past the load's time."""
        recipe, slot = want.recipe, want.slot
        ttl, most = recipe.lock_ttl, max(recipe.load_timeout, recipe.lock_ttl)
        plan = Plan(
            slot.lock, "", recipe.name, ttl, milliseconds(ttl), 0.0, True, most, None,
            recipe.on_outage,
        )  # fmt: skip
        lease = AsyncLease(self._ledger, plan, token, since)
        self._ledger.renewer.keep(lease)
        return lease

    async def _store(self, want: LoadRequest, token: bytes, value: Any, since: float) -> Answer:
        recipe, slot = want.recipe, want.slot
        codec = recipe.codec
        took = monotonic() - since
        try:
            # What the store gives to others, also to the first. What cannot be read is not stored.
            payload, value = packed(codec, value)
        except BaseException:
            self.abandon(want, token)
            raise
        self._tell("loaded", recipe, took=took)
        fresh = jittered(recipe, random.random())
        data = frame(codec.name, codec.fingerprint, time(), took, payload)
        asked = monotonic()
        stored = await self._write(want, token, data, fresh + recipe.stale)
        if stored:
            self._remember(slot.key, fresh)
        # Not stored: it may be older than what was deleted. Unknown: there is nothing better.
        as_of = math.inf if stored is None else asked if stored else since
        return Answer(value, as_of)

    async def _write(
        self, want: LoadRequest, token: bytes, data: bytes, life: float
    ) -> bool | None:
        """True: it is stored. False: it was not wanted any more. None: the store is out."""
        recipe, slot = want.recipe, want.slot
        request = store_request(slot, token, data, life)
        try:
            stored = await self._ledger.ask(request, monotonic()) == 1
        except Outage as outage:
            self.abandon(want, token)
            self._tell("rejected_write", recipe, cause=outage.cause)
            return None
        except Exception:
            raise
        except BaseException:
            self.abandon(want, token)
            raise
        if not stored:
            self.abandon(want, token)  # where only the lock was lost, our mark still stands
            self._tell("rejected_write", recipe, cause=cause_for("superseded"))
        return stored

    async def _failed(
        self, want: LoadRequest, token: bytes, reading: Reading, error: Exception
    ) -> None:
        """Let others try – or remember the failure, where there is nothing better to serve.

        Where an old value is served meanwhile, the lock is left to run out: that is how long
        nobody tries again, so that a loader that fails at once is not asked for every read.
        """
        recipe = want.recipe
        why = cause_for("load_failed", f"the load failed: {type(error).__name__}")
        self._tell("degraded", recipe, cause=why)
        if reading.state == "stale":
            return
        if recipe.negative_ttl and reading.state == "missing":
            data = frame(FAILURE, "-", time(), 0.0, type(error).__name__.encode())
            life = recipe.negative_ttl + recipe.stale
            await self._write(want, token, data, life)
        else:
            self.abandon(want, token)

    def abandon(self, want: LoadRequest, token: bytes) -> None:
        """However late: a server that was stopped gives us the lock when it goes on."""
        self._ledger.link.post(abandon_request(want.slot, token, float("inf")))

    async def load_unguarded(self, want: LoadRequest, outage: Outage) -> Answer:
        self._ledger.went_out(want.recipe.name, outage.cause, want.recipe.on_outage)
        return await self.degrade(want, outage.cause)

    async def degrade(self, want: LoadRequest, cause: str) -> Answer:
        """Our own load, not stored: one for each process and key, because we are in a flight."""
        since = monotonic()
        value = await within(want.recipe.load_timeout, want.load)
        self._tell("degraded", want.recipe, cause=cause, took=monotonic() - since)
        return Answer(packed(want.recipe.codec, value)[1], math.inf)

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
            return await self._ledger.ask(standing_request(want.slot), monotonic())
        except Outage:
            return None

    def abandon_all(self) -> None:
        """In a forked child: the loads are the parent's."""
        self._leading = {}
        self.untracked_loads = {}

    def _tell(self, kind: Any, recipe: Recipe, **facts: Any) -> None:
        if self._ledger.listeners:
            self._ledger.tell(kind, recipe.name, **facts)
