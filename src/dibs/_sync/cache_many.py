# Generated from src/dibs/_async/cache_many.py by unasync.py – do not edit.
"""Getting many cached values at once: one read, and one load for those that are missing."""

import functools
import math
from collections.abc import Callable
from typing import Any

from .._core.cache import (
    ABSENT,
    ALWAYS,
    HELD,
    IF_NEEDED,
    CacheKeys,
    LoadAnswer,
    LoadClaim,
    LoadRequest,
    ManyRequest,
    Reading,
    is_due_early,
    is_served,
)
from .._core.causes import Absent, load_error, picked
from .._core.codec import packed
from .._core.connection import Outage
from .._core.unit_of_work import Unit, current, use
from .._events import EventSink
from .._system import random
from .._threads import Flight, maybe_await, monotonic
from ..errors import Cause, UsageError
from .cache_load import Loader, Refresher
from .cache_values import CacheMemory, Reader, drop_flight
from .lease_table import Leases
from .store import Store

Results = dict[bytes, LoadAnswer | Exception]
"""What a flight found for each key. A key that is missing is loaded elsewhere."""
RequestedItems = dict[Any, tuple[CacheKeys, bytes, bytes]]
"""Item → its keys, a token, and when to load."""
Share = Callable[[LoadRequest, float], Any]
"""The value of one item, for a caller who came at that time."""


class Batches:
    """Reads and loads many values at once."""

    def __init__(
        self,
        store: Store,
        events: EventSink,
        leases: Leases,
        memory: CacheMemory,
        reader: Reader,
        loader: Loader,
        refresher: Refresher,
    ) -> None:
        self._store = store
        self._events = events
        self._leases = leases
        self._memory = memory
        self._reader = reader
        self._loader = loader
        self._refresher = refresher

    def get(self, many: ManyRequest, share: Share) -> dict[Any, Any]:
        """Return the value of each item: one read, one load for those that are missing.

        Items for which the loader returned no value are omitted. *share* loads one item, in a load
        that callers share. What the loads raise is raised.
        """
        called_at = monotonic()
        if use.has_begun and (unit := current()) is not None:
            return self._get_inside(many, unit, share, called_at)
        values = self._read(many, called_at)
        missing = [item for item in many.keys if item not in values]
        return self._with(many, values, self._load(many, missing), share, called_at)

    def _with(
        self,
        many: ManyRequest,
        values: dict[Any, Any],
        answers: dict[Any, LoadAnswer | Exception | None],
        share: Share,
        called_at: float,
    ) -> dict[Any, Any]:
        """Return *values* and what was loaded, in the order of the items."""
        error: Exception | None = None
        for item, answer in answers.items():
            try:
                values[item] = self._value_of(many, item, answer, share, called_at)
            except Absent:
                pass
            except Exception as failed:
                error = error or failed
        if error is not None:
            raise error
        return {item: values[item] for item in many.keys if item in values}

    def _get_inside(
        self, many: ManyRequest, unit: Unit, share: Share, called_at: float
    ) -> dict[Any, Any]:
        """Return the same inside a transaction, whose loads no one else may join."""
        values = {
            item: unit.loaded[self._leases, keys.key]
            for item, keys in many.keys.items()
            if (self._leases, keys.key) in unit.loaded
        }
        known, changed = dict[Any, CacheKeys](), dict[Any, CacheKeys]()
        for item, keys in many.keys.items():
            if item not in values:
                (changed if unit.has_changed(self._leases, keys.key, keys.tags) else known)[
                    item
                ] = keys
        values |= self._read(many._replace(keys=known), called_at)
        answers: dict[Any, LoadAnswer | Exception | None] = {}
        if missing := [item for item in known if item not in values]:
            found: Results = Flight(functools.partial(self._resolve, many, missing)).join()
            answers |= {item: found.get(known[item].key) for item in missing}
        if changed:
            answers |= self._load_inside(many, unit, changed)
        return self._with(many, values, answers, share, called_at)

    def _load_inside(
        self, many: ManyRequest, unit: Unit, changed: dict[Any, CacheKeys]
    ) -> dict[Any, LoadAnswer | Exception | None]:
        """Return our own load for the transaction alone, of what was invalidated inside."""
        items = list(changed)
        load = functools.partial(many.load, items)
        loaded = self._loader.call(changed[items[0]], "miss", load)
        answers: dict[Any, LoadAnswer | Exception | None] = {}
        for item, value in zip(items, picked(many.name, items, loaded), strict=True):
            answers[item] = answer = self._unstored(many, value)
            if isinstance(answer, LoadAnswer):
                unit.loaded[self._leases, changed[item].key] = answer.value
        return answers

    def _value_of(
        self,
        many: ManyRequest,
        item: Any,
        answer: LoadAnswer | Exception | None,
        share: Share,
        called_at: float,
    ) -> Any:
        """Return the value of one item. None: the load was another caller's, or is too old."""
        if isinstance(answer, Exception):
            raise answer
        return (
            answer.value if answer is not None else share(self._alone(many, item), called_at)
        )

    # ---- reading

    def _read(self, many: ManyRequest, called_at: float) -> dict[Any, Any]:
        """Return the stored values, from memory or by one read.

        Raises UsageError if a key is no value.
        """
        values = self._in_memory(many, called_at)
        rest = [item for item in many.keys if item not in values]
        if not rest:
            return values
        try:
            readings = self._reader.read_all([many.keys[item] for item in rest])
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
        if use.has_begun and current() is not None:
            return  # it would see what the transaction has written
        requests = [self._alone(many, item) for item in due]
        self._refresher.refresh_all(requests, functools.partial(self._refresh, many, due))

    def _refresh(
        self, many: ManyRequest, due: dict[Any, bytes], requests: list[LoadRequest]
    ) -> set[bytes]:
        """Load those again that are ours to load; their keys."""
        keys = {request.keys.key for request in requests}
        asked = self._asked(many, {i: w for i, w in due.items() if many.keys[i].key in keys})
        since = monotonic()
        readings = self._loader.claim_all(list(asked.values()))
        claims = {
            item: LoadClaim(self._alone(many, item), asked[item][1], reading)
            for item, reading in zip(asked, readings, strict=True)
            if isinstance(reading, Reading) and reading.won
        }
        return set(self._lead(many, claims, since)) if claims else set()

    # ---- loading

    def _alone(self, many: ManyRequest, item: Any) -> LoadRequest:
        """Return the request for one item."""
        return LoadRequest(many.keys[item], self._load_alone, (many, item), {})

    def _load_alone(self, many: ManyRequest, item: Any) -> Any:
        [value] = picked(many.name, [item], maybe_await(many.load([item])))
        if isinstance(value, Absent):
            raise value
        return value

    def _load(
        self, many: ManyRequest, missing: list[Any]
    ) -> dict[Any, LoadAnswer | Exception | None]:
        """Return what one load finds for the items. None: another caller loads that one already."""
        outcomes: dict[Any, LoadAnswer | Exception | None] = dict.fromkeys(missing)
        flight, ours = self._flight_of(many, missing)
        if flight is not None:
            results: Results = flight.join()
            for item in ours:
                outcomes[item] = results.get(many.keys[item].key)
        return outcomes

    def _flight_of(self, many: ManyRequest, missing: list[Any]) -> tuple[Flight | None, list[Any]]:
        """Return one flight for all keys that this process does not load yet; and their items."""
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

    def _resolve(self, many: ManyRequest, items: list[Any]) -> Results:
        """Claim them, and load those that are ours in one call."""
        results: Results = {}
        since, ended = monotonic(), self._store.recoveries
        claims: dict[Any, LoadClaim] = {}
        out: dict[Any, Outage] = {}
        requests = self._asked(many, dict.fromkeys(items, IF_NEEDED))
        try:
            while requests:
                requests = self._claim(many, requests, claims, results, out)
        except BaseException:
            for claim in claims.values():
                self._loader.writer.unlock(claim.request.keys, claim.token)
            raise
        if claims:
            for _ in claims:
                self._events.emit("miss", many.name)
            results.update(self._lead(many, claims, since))
        if out:
            results.update(self._load_unguarded(many, out, ended))
        return results

    def _asked(self, many: ManyRequest, when: dict[Any, bytes]) -> RequestedItems:
        new_token = self._leases.new_token
        return {item: (many.keys[item], new_token(), each) for item, each in when.items()}

    def _claim(
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
            readings = self._loader.claim_all(list(asked.values()))
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
        """Use what needs no load. For what is missing or old, a fresh value is waited for."""
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

    def _lead(self, many: ManyRequest, claims: dict[Any, LoadClaim], since: float) -> Results:
        """Return one load for all of them; what it raises is the answer for each.

        *since*: when they were claimed. No old value that was there then is for those who came
        later: it may have been deleted.
        """
        items = list(claims)
        split = functools.partial(picked, many.name, items)
        answers: list[LoadAnswer | Exception]
        try:
            answers = self._loader.lead_all(
                list(claims.values()), functools.partial(many.load, items), split
            )
        except Exception as error:
            answers = [self._instead(claim, error, since) for claim in claims.values()]
        keys = [many.keys[item].key for item in items]
        return dict(zip(keys, answers, strict=True))

    def _instead(self, claim: LoadClaim, error: Exception, since: float) -> LoadAnswer | Exception:
        """Return the old value, if there is one, where a load failed."""
        if claim.reading.state != "stale":
            return error
        self._events.emit("stale", claim.request.keys.name)
        return LoadAnswer(claim.reading.value, since, "stale")

    def _load_unguarded(
        self, many: ManyRequest, out: dict[Any, Outage], ended: int
    ) -> Results:
        """Return our own load, not stored, for those whose server is out."""
        items = list(out)
        cause = out[items[0]].cause
        keys = [many.keys[item].key for item in items]
        for key in keys:
            self._memory.begin_unwatched(key, out, ended)
        try:
            self._store.outage(many.name, cause, many.options.on_outage)
            since = monotonic()
            load = functools.partial(many.load, items)
            result = self._loader.call(many.keys[items[0]], Cause(cause).code, load)
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
