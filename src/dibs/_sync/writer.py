# Generated from src/dibs/_async/writer.py by unasync.py – do not edit.
"""Storing what a load found, if it is still wanted; or remembering that it failed."""

import math
from typing import Any, NamedTuple

from .._core.cache import (
    CacheKeys,
    LoadAnswer,
    LoadClaim,
    Versions,
    jittered,
    read_begun,
    read_validity,
    read_versions,
    store_request,
    tag_version_request,
    unlock_request,
    validity_request,
    version_request,
)
from .._core.causes import Absent, cause_for, failure_name
from .._core.codec import FAILURE, frame, packed
from .._core.connection import Outage
from .._core.request import Request
from .._events import EventSink
from .._system import random, time, urandom
from .._threads import monotonic
from .reader import CacheMemory
from .store import Store

LoadOutcome = LoadAnswer | Exception


class Writer:
    """Stores results under the locks of their loads, and gives the locks back."""

    def __init__(self, store: Store, events: EventSink, memory: CacheMemory) -> None:
        self._store = store
        self._events = events
        self._memory = memory

    def unlock(self, keys: CacheKeys, token: bytes, rest: float = 0.0) -> None:
        """However late: a server that was stopped gives us the lock when it goes on.

        *rest*: for how many seconds nobody is to try again.
        """
        self._store.transport.post(unlock_request(keys, token, math.inf, rest))

    def begin_tags(self, tags: list[bytes], life: float) -> dict[bytes, bytes | None]:
        """The version of each tag; a new one where there is none. None: it is not known.

        UsageError: the key of a tag is something else.
        """
        if not tags:
            return {}
        requests = [tag_version_request(tag, urandom(8).hex().encode(), life) for tag in tags]
        try:
            replies = self._store.ask_all(requests, monotonic())
        except Outage:
            return {}
        return dict(zip(tags, read_begun(replies), strict=True))

    # ---- results

    def keep(
        self,
        claims: list[LoadClaim],
        versions: list[Versions],
        values: list[Any],
        ttls: list[float | None],
        since: float,
    ) -> list[LoadOutcome]:
        """Store each value for its ttl (None: not at all), in one write; what readers get of it.

        A value may be an Absent. One that cannot be encoded becomes a UsageError.
        """
        took = monotonic() - since
        made = [self._packed(*each) for each in zip(claims, versions, values, ttls, strict=True)]
        missing = [place for place, each in enumerate(made) if isinstance(each, Absent)]
        if missing:
            some = [claims[place] for place in missing]
            absent = Absent(some[0].request.keys.name)
            self.failed(some, [versions[place] for place in missing], absent)
        results = [each for each in made if isinstance(each, LoadResult)]
        answers = iter(self._store_all(results, took, since) if results else [])
        return [next(answers) if isinstance(each, LoadResult) else each for each in made]

    def _packed(
        self, claim: LoadClaim, versions: Versions, value: Any, ttl: float | None
    ) -> "LoadResult | Exception":
        if isinstance(value, Absent):
            return value
        try:
            # What the store gives to others, also to the first. What cannot be read is not stored.
            keys = claim.request.keys
            payload, value = packed(keys.options.codec, value, keys.name)
        except BaseException as error:
            self.unlock(claim.request.keys, claim.token)
            if isinstance(error, Exception):
                return error
            raise
        options = claim.request.options
        fresh = None if ttl is None else jittered(options, random(), ttl)
        return LoadResult(claim, versions, value, payload, fresh)

    def _store_all(
        self, results: "list[LoadResult]", took: float, since: float
    ) -> list[LoadOutcome]:
        tags = list(dict.fromkeys([tag for each in results for tag in each.keys.tags]))
        requests = [each.request(time(), took) for each in results]
        for each in results:
            self._events.emit("loaded", each.keys.name, took=took)
        asked = monotonic()
        replies: list[Any]
        try:
            replies = self._store.ask_all(
                [*requests, *[version_request(tag) for tag in tags]], asked
            )
        except Outage as outage:
            replies = [outage] * (len(requests) + len(tags))
        except Exception:
            raise
        except BaseException:
            for each in results:
                self.unlock(each.keys, each.claim.token)
            raise
        found = dict(zip(tags, read_versions(replies[len(results) :]), strict=True))
        return [
            self._answer(each, reply, asked if each.is_current(found) else since, since)
            for each, reply in zip(results, replies, strict=False)
        ]

    def _answer(self, result: "LoadResult", reply: Any, asked: float, since: float) -> LoadOutcome:
        """What readers get. Not stored: it may be older than what was deleted."""
        keys, token = result.keys, result.claim.token
        was_valid = result.was_valid(reply)
        if result.fresh is None and not isinstance(reply, Exception):
            self.unlock(keys, token, _rest(result.claim))
            return LoadAnswer(result.value, asked if was_valid else since)
        if was_valid and result.fresh is not None:
            self._memory.remember(keys.key, result.fresh)
            return LoadAnswer(result.value, asked)
        self.unlock(keys, token)  # where only the lock was lost, our mark still stands
        if isinstance(reply, Exception) and not isinstance(reply, Outage):
            return reply
        is_out = isinstance(reply, Outage)
        cause = reply.cause if is_out else cause_for("superseded")
        self._events.emit("rejected_write", keys.name, cause=cause)
        # Unknown: there is nothing better.
        return LoadAnswer(result.value, math.inf if is_out else since)

    # ---- failures

    def failed(
        self, claims: list[LoadClaim], versions: list[Versions], error: Exception
    ) -> None:
        """Let others try – or remember the failure, where there is nothing better to serve.

        Where an old value is served meanwhile, nobody tries again for `lock_ttl`, so that a loader
        that fails at once is not asked for every read.
        """
        why = cause_for("load_failed", f"the load failed: {type(error).__name__}")
        requests: list[Request] = []
        remembered: list[LoadClaim] = []
        for claim, tagged in zip(claims, versions, strict=True):
            keys, token = claim.request.keys, claim.token
            if not isinstance(error, Absent):
                self._events.emit("degraded", keys.name, cause=why)
            life = keys.options.remembers(error)
            if life and claim.reading.state in ("missing", "outdated"):
                failure = failure_name(error).encode()
                data = frame(FAILURE, "-", time(), 0.0, failure, tagged)
                requests.append(store_request(keys, claim.lock, data, life + keys.options.stale))
                remembered.append(claim)
            else:
                self.unlock(keys, token, _rest(claim))
        if requests:
            self._write_failures(remembered, requests)

    def _write_failures(self, claims: list[LoadClaim], requests: list[Request]) -> None:
        replies: list[Any]
        try:
            replies = self._store.ask_all(requests, monotonic())
        except Outage as outage:
            replies = [outage] * len(requests)
        except BaseException:
            for claim in claims:
                self.unlock(claim.request.keys, claim.token)
            raise
        for claim, reply in zip(claims, replies, strict=True):
            if reply != 1:
                self.unlock(claim.request.keys, claim.token)
                is_out = isinstance(reply, Outage)
                cause = reply.cause if is_out else cause_for("superseded")
                self._events.emit("rejected_write", claim.request.keys.name, cause=cause)


def _rest(claim: LoadClaim) -> float:
    return claim.request.options.lock_ttl if claim.reading.state == "stale" else 0.0


class LoadResult(NamedTuple):
    """What a load found, as bytes and as everybody gets it back."""

    claim: LoadClaim
    versions: Versions
    value: Any
    payload: bytes
    fresh: float | None
    """How long it stays fresh; None: it is not to be stored."""

    @property
    def keys(self) -> CacheKeys:
        """Where it belongs."""
        return self.claim.request.keys

    def request(self, made_at: float, took: float) -> Request:
        """Store it; or, where it is not to be stored, find out whether it could be."""
        keys = self.keys
        if self.fresh is None:
            return validity_request(keys)
        codec = keys.options.codec
        data = frame(codec.name, codec.fingerprint, made_at, took, self.payload, self.versions)
        return store_request(keys, self.claim.lock, data, self.fresh + keys.options.stale)

    def was_valid(self, reply: Any) -> bool:
        """True: nobody deleted the value, or took the lock, during the load."""
        return reply == 1 if self.fresh is not None else read_validity(reply, self.claim.lock)

    def is_current(self, versions: dict[bytes, bytes | None]) -> bool:
        """True: none of its tags was invalidated during the load."""
        return [versions[tag] for tag in self.keys.tags] == self.versions
