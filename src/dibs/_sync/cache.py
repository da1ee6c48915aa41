# Printed from src/dibs/_async/cache.py by tools/unasync.py – do not edit.
"""Cache-first reading: one loads, everyone reads."""

import functools
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .._core.breaker import Outage
from .._core.cache import (
    Reading,
    Recipe,
    Slot,
    claim_request,
    follow_request,
    invalidate_request,
    is_due_early,
    read_claim,
    read_follow,
    read_reply,
    read_request,
)
from .._core.capabilities import must_allow
from .._core.causes import cause_for
from .._core.local import ABSENT, Local
from .._core.watch import Tracked, Watching, read_watch, watch_request
from .._threads import Crew, Flight, Signal, Together, monotonic
from ..errors import Unavailable
from .loading import Loading, Want

if TYPE_CHECKING:
    from .ledger import Ledger

_LOOK_AGAIN = 5.0
"""A push can be lost: how long to trust that none has come, in seconds."""
_JUST_AFTER = 0.002
"""An expiry is not announced; look this much after it."""
_MOST_SEEN = 50_000
"""Keys of which we remember how long they are fresh, to know how to ask for them."""


class Cache:
    """Values that are loaded once for all, in all processes."""

    def __init__(self, ledger: "Ledger") -> None:
        self._ledger = ledger
        self._flights: dict[bytes, Flight] = {}
        self._refreshes: dict[bytes, Flight] = {}
        self._reads = Together()
        self._crew = Crew()
        self._local = Local()
        self._seen: dict[bytes, float] = {}
        self._loading = Loading(ledger, self._part, self._remember)

    # ---- reading

    def get(
        self,
        recipe: Recipe,
        slot: Slot,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """The value: from memory, from the store, from a load under way, or loaded now."""
        key = slot.key
        if recipe.local:
            value = self._local.get(key, monotonic())
            if value is not ABSENT:
                if self._ledger.listeners:
                    self._tell("local_hit", recipe)
                return value
        # Only now: what is in memory is not to pay for it.
        want = Want(recipe, slot, function, args, kwargs)
        flight = self._flights.get(key)
        if flight is not None and flight.is_open:
            return self._join(flight, recipe)
        if recipe.local or self._seen.get(key, 0.0) > monotonic():
            try:
                reading = self._reads.ask(key, self._read, want)
            except Outage:
                pass  # the flight meets it again, and decides
            else:
                if reading.state in ("fresh", "stale"):
                    return self._serve(want, reading)
        return self._fly(want, self._flights, force=False)

    def refresh(self, want: Want) -> Any:
        """The value, loaded now (by us, or by somebody who has just begun)."""
        return self._fly(want, self._refreshes, force=True)

    def invalidate(self, want: Want) -> bool:
        """Delete the value everywhere; a load under way is not stored. False: not yet delivered."""
        recipe, slot = want.recipe, want.slot
        self._part(slot.key)
        self._forget(slot.key)
        now = monotonic()
        request = invalidate_request(slot, now + recipe.ttl * 2 + recipe.stale)
        try:
            self._ledger.opened()
            self._ledger.ask(request, now)
        except Outage as outage:
            self._tell("outage", recipe, cause=outage.cause)
            if recipe.on_outage == "closed":
                raise Unavailable(outage.cause, recipe.name) from None
            return False
        self._tell("invalidated", recipe)
        return True

    def _read(self, want: Want) -> Reading:
        """What the store has; callers in one moment share the answer."""
        recipe, slot = want.recipe, want.slot
        if recipe.local:
            return self._read_for_memory(want)
        now = monotonic()
        request = read_request(slot, recipe)
        reply = self._ledger.link.send(request, now)
        if type(reply) is not bytes:  # bytes are the usual answer, and never an error
            reply = self._ledger.mend(request, reply, now)
        reading = read_reply(reply, recipe)
        if reading.state not in ("fresh", "stale"):
            self._seen.pop(slot.key, None)
        return reading

    def _read_for_memory(self, want: Want) -> Reading:
        """Read, and be told when it changes: only then it may be remembered here."""
        recipe, slot = want.recipe, want.slot
        key = slot.key
        ticket = self._local.ticket(key)
        now, _ = self._ledger.opened()
        request = read_request(slot, recipe)
        forget = functools.partial(self._forget, key)
        answer = self._ledger.link.track(request, forget, now)
        reading = read_reply(self._ledger.mend(request, answer.replies, now), recipe)
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

    def _fly(self, want: Want, flights: dict[bytes, Flight], *, force: bool) -> Any:
        """Join the flight of this key, or take off: one contender in this process."""
        key = want.slot.key
        with self._ledger.guard:
            flight = flights.get(key)
            is_ours = flight is None or not flight.is_open
            if flight is None or is_ours:
                work = functools.partial(self._resolve, want, force=force)
                flight = flights[key] = Flight(work)
        try:
            return (flight.join() if is_ours else self._join(flight, want.recipe))
        finally:
            if not flight.is_open and flights.get(key) is flight:
                flights.pop(key, None)

    def _join(self, flight: Flight, recipe: Recipe) -> Any:
        """The result of somebody else's flight."""
        if not self._ledger.listeners:
            return flight.join()
        since = monotonic()
        value = flight.join()
        self._tell("waited", recipe, waited=monotonic() - since)
        return value

    def _part(self, key: bytes) -> None:
        """The value changed: who asks from now on does not join a load that began before."""
        self._flights.pop(key, None)
        self._refreshes.pop(key, None)

    def _resolve(self, want: Want, *, force: bool) -> Any:
        """A value, whatever it takes: somebody else's, our own load, or an old one."""
        recipe, slot = want.recipe, want.slot
        since = monotonic()
        token = self._ledger.new_token()
        waited = poisoned = False
        while True:
            try:
                reading = self._claim(want, token, force=poisoned or (force and not waited))
            except Outage as outage:
                return self._loading.load_unguarded(want, outage)
            if reading.won and reading.state == "stale" and not force:
                self._crew.spawn(functools.partial(self._loading.lead, want, token, reading))
                return self._old(want, reading)
            if reading.won:
                self._tell("reelected" if waited else "miss", recipe)
                return self._loading.lead(want, token, reading)
            if reading.state == "fresh" and (waited or not force):
                self._remember(slot.key, reading.left)
                self._tell("waited" if waited else "hit", recipe, waited=monotonic() - since)
                return reading.value
            if reading.state == "poison" and not poisoned:
                poisoned = True  # the script takes it for a value; only we can see that it is none
                continue
            if reading.state == "failed":
                said = f"the last load failed ({reading.value})"
                raise Unavailable(cause_for("load_failed", said), recipe.name)
            if reading.state == "stale" and not force:
                return self._old(want, reading)
            if monotonic() - since >= recipe.wait:
                return self._loading.degrade(want, cause_for("wait_over"))
            self._follow(want, reading, since + recipe.wait)
            waited = True
            found = self._found(want)
            if found is not None:
                self._tell("waited", recipe, waited=monotonic() - since)
                return found.value

    def _old(self, want: Want, reading: Reading) -> Any:
        self._tell("stale", want.recipe)
        self._remember(want.slot.key, reading.life)
        return reading.value

    def _refresh_behind(self, want: Want, *, force: bool) -> None:
        """One of all processes loads it again, while everybody reads the old one."""
        token = self._ledger.new_token()
        try:
            reading = self._claim(want, token, force=force)
        except Outage:
            return
        if reading.won:
            self._loading.lead(want, token, reading)

    def _claim(self, want: Want, token: bytes, *, force: bool) -> Reading:
        recipe, slot = want.recipe, want.slot
        now, engine = self._ledger.opened()
        if engine.refused:
            must_allow(engine, "load")
        request = claim_request(slot, recipe, token, force=force)
        try:
            reading = read_claim(self._ledger.ask(request, now), recipe)
        except Outage as outage:
            if outage.sent:
                self._loading.abandon(want, token)
            raise
        except Exception:
            raise
        except BaseException:
            self._loading.abandon(want, token)
            raise
        if reading.state == "poison":
            self._tell("poison", recipe)
        return reading

    def _found(self, want: Want) -> Reading | None:
        """The fresh value, by the cheapest question. None: there is none, a claim must decide."""
        try:
            reading = self._read(want)
        except Outage:
            return None  # the claim meets it again, and decides
        if reading.state != "fresh":
            return None
        self._remember(want.slot.key, reading.left)
        return reading

    def _follow(self, want: Want, reading: Reading, give_up: float) -> None:
        """Until the other load is over, as far as we are told, or it is time to look or give up."""
        recipe, slot = want.recipe, want.slot
        signal = Signal()
        link = self._ledger.link
        try:
            watching = self._watch_mark(slot, reading, signal)
            marked = watching is not None
            if watching is None:
                watching = link.watch(slot.lock, signal.set, monotonic())
            while True:
                pause = _LOOK_AGAIN if watching.told else recipe.poll
                pause = min(watching.remaining + _JUST_AFTER, pause, give_up - monotonic())
                woken = signal.wait(pause)
                is_over = watching.remaining <= 0 or monotonic() >= give_up
                if is_over or not watching.told or (woken and marked):
                    return
                signal.clear()
                watching = self._look_again(slot, signal, woken=woken)
        except Outage:
            pass  # the next claim meets it again, and decides
        finally:
            link.unwatch(slot.key, signal.set)
            link.unwatch(slot.lock, signal.set)

    def _watch_mark(self, slot: Slot, reading: Reading, signal: Signal) -> Watching | None:
        """None: no mark stands for the load (there is an old value, or somebody deleted it)."""
        if reading.state != "missing":
            return None
        request = follow_request(slot)
        return read_follow(self._ledger.link.track(request, signal.set, monotonic()))

    def _look_again(self, slot: Slot, signal: Signal, *, woken: bool) -> Watching:
        """Is the lock still held? A push that woke us has to be asked for again."""
        if woken:
            return self._ledger.link.watch(slot.lock, signal.set, monotonic())
        pttl = self._ledger.link.send(watch_request(slot.lock), monotonic())
        return read_watch(Tracked([pttl], told=True))

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

    def close(self) -> None:
        """End all loads of ours; others take over."""
        self._crew.stop()
        for flight in [*self._flights.values(), *self._refreshes.values()]:
            flight.land()
        self._flights.clear()
        self._refreshes.clear()

    def abandon(self) -> None:
        """In a forked child: loads and memories are the parent's."""
        self._flights = {}
        self._refreshes = {}
        self._reads = Together()
        self._crew = Crew()
        self._local = Local()
        self._seen = {}
