# Printed from src/dibs/_async/loading.py by tools/unasync.py – do not edit.
"""Loading a value for all: the lock is kept alive, the result stored if it is still wanted."""

import functools
import random
from collections.abc import Callable
from time import time
from typing import TYPE_CHECKING, Any

from .._core.breaker import Outage
from .._core.cache import Reading, Recipe, Slot, abandon_request, jittered, store_request
from .._core.causes import cause_for
from .._core.codec import FAILURE, frame, packed
from .._core.lease import Plan, milliseconds
from .._threads import monotonic, within
from ..errors import Unavailable
from .lease import Lease

if TYPE_CHECKING:
    from .ledger import Ledger


class Want:
    """One value that is wanted: how it is kept, where, and how to get it."""

    # One for every read of the store: a plain class with slots is the quickest to make.
    __slots__ = ("_args", "_function", "_kwargs", "recipe", "slot")

    def __init__(
        self,
        recipe: Recipe,
        slot: Slot,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self.recipe = recipe
        self.slot = slot
        self._function = function
        self._args = args
        self._kwargs = kwargs

    def load(self) -> Any:
        """Call the function."""
        return self._function(*self._args, **self._kwargs)


class Loading:
    """Loads, on behalf of everybody who waits."""

    def __init__(
        self,
        ledger: "Ledger",
        part: Callable[[bytes], None],
        remember: Callable[[bytes, float], None],
    ) -> None:
        self._ledger = ledger
        self._part = part
        """Told when the value was deleted: who asks later does not join this load."""
        self._remember = remember
        """Told how long a value that we stored is fresh."""

    def lead(self, want: Want, token: bytes, reading: Reading) -> Any:
        """Load, keep the lock alive meanwhile, store. Whoever deletes the value parts us from
        those who ask later, and our result is not stored."""
        recipe, slot, load = want.recipe, want.slot, want.load
        since = monotonic()
        lease = self._lease(want, token, since)
        part = functools.partial(self._part, slot.key)
        try:
            self._watch(slot.key, part)
            value = within(recipe.load_timeout, load)
        except Exception as error:
            self._failed(want, token, reading, error)
            raise
        except BaseException:
            self.abandon(want, token)
            raise
        finally:
            lease._is_over = True  # pyright: ignore[reportPrivateUsage]
            self._ledger.link.unwatch(slot.key, part)
        return self._store(want, token, reading, value, since)

    def _watch(self, key: bytes, wake: Callable[[], None]) -> None:
        try:
            self._ledger.link.watch(key, wake, monotonic())
        except Outage:
            pass  # then the load is not stored either

    def _lease(self, want: Want, token: bytes, since: float) -> Lease:
        """The lock as a lease that is kept alive, but not past the load's time."""
        recipe, slot = want.recipe, want.slot
        ttl, most = recipe.lock_ttl, max(recipe.load_timeout, recipe.lock_ttl)
        plan = Plan(
            slot.lock, "", recipe.name, ttl, milliseconds(ttl), 0.0, True, most, None,
            recipe.on_outage,
        )  # fmt: skip
        lease = Lease(self._ledger, plan, token, since)
        self._ledger.keeper.keep(lease)
        return lease

    def _store(
        self, want: Want, token: bytes, reading: Reading, value: Any, since: float
    ) -> Any:
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
        if self._write(want, token, reading, data, fresh + recipe.stale, took):
            self._remember(slot.key, fresh)
        return value

    def _write(
        self, want: Want, token: bytes, reading: Reading, data: bytes, life: float, took: float
    ) -> bool:
        """True: it is stored. False: it was not wanted any more, or the store is out."""
        recipe, slot = want.recipe, want.slot
        # A mark outlives every load; an old value may have come to its end by itself meanwhile.
        must_exist = reading.state not in ("stale", "fresh", "poison", "failed")
        must_exist = must_exist or took < reading.life
        request = store_request(slot, token, data, life, must_exist=must_exist)
        try:
            stored = self._ledger.ask(request, monotonic()) == 1
        except Outage as outage:
            self.abandon(want, token)
            self._tell("rejected_write", recipe, cause=outage.cause)
            return False
        except Exception:
            raise
        except BaseException:
            self.abandon(want, token)
            raise
        if not stored:
            self._tell("rejected_write", recipe, cause=cause_for("superseded"))
        return stored

    def _failed(self, want: Want, token: bytes, reading: Reading, error: Exception) -> None:
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
            self._write(want, token, reading, data, life, 0.0)
        else:
            self.abandon(want, token)

    def abandon(self, want: Want, token: bytes) -> None:
        """However late: a server that was stopped gives us the lock when it goes on."""
        self._ledger.link.post(abandon_request(want.slot, token, float("inf")))

    def load_unguarded(self, want: Want, outage: Outage) -> Any:
        self._tell("outage", want.recipe, cause=outage.cause)
        if want.recipe.on_outage == "closed":
            raise Unavailable(outage.cause, want.recipe.name) from None
        return self.degrade(want, outage.cause)

    def degrade(self, want: Want, cause: str) -> Any:
        """Our own load, not stored: one for each process and key, because we are in a flight."""
        since = monotonic()
        value = within(want.recipe.load_timeout, want.load)
        self._tell("degraded", want.recipe, cause=cause, took=monotonic() - since)
        return packed(want.recipe.codec, value)[1]

    def _tell(self, kind: Any, recipe: Recipe, **facts: Any) -> None:
        if self._ledger.listeners:
            self._ledger.tell(kind, recipe.name, **facts)
