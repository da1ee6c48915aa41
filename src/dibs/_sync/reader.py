# Generated from src/dibs/_async/reader.py by unasync.py – do not edit.
"""Reading cached values: from the memory of this process, or from the store."""

from collections.abc import Iterator
from typing import Any

from .._core.breaker import Outage
from .._core.cache import CacheKeys, Reading, read_reply
from .._core.local import Local, Ticket
from .._core.request import Request
from .._core.tags import Versions, read_versions, version_request
from .._core.watch import Tracked
from .._threads import monotonic
from .._transport.watchers import Wake
from ..errors import UsageError
from .memory import CacheMemory
from .store import Store


class Reader:
    """What the store has, and what is remembered of it here."""

    def __init__(self, store: Store, memory: CacheMemory) -> None:
        self._store = store
        self._memory = memory
        self.open()

    def open(self) -> None:
        """Begin with nothing remembered; again in a forked child."""
        self.local = Local(self._store.transport.is_behind)

    # ---- the store

    def read(self, keys: CacheKeys) -> Reading:
        """What the store has. Outage, UsageError: it does not answer, or refuses."""
        if keys.options.local:
            return (self._read_for_memory([keys]))[0]
        if keys.tags:
            return self._read_tagged(keys)
        now = monotonic()
        reply = self._store.transport.send(keys.read, now)
        if type(reply) is not bytes:  # bytes are the usual answer, and never an error
            reply = self._store.check_reply(keys.read, reply, now)
        return self._seen(keys, read_reply(reply, keys.options))

    def _read_tagged(self, keys: CacheKeys) -> Reading:
        [found] = self.read_all([keys])
        if isinstance(found, Exception):
            raise found
        return found

    def read_all(self, many: list[CacheKeys]) -> list[Reading | Exception]:
        """What the store has of each, in one write; or what became of that question.

        Outage, raised: of all of them.
        """
        if many[0].options.local:
            return list(self._read_for_memory(many))
        now, _ = self._store.opened()
        tags = list(dict.fromkeys([tag for keys in many for tag in keys.tags]))
        requests = [keys.read for keys in many] + [version_request(tag) for tag in tags]
        replies = self._store.ask_all(requests, now)
        versions = dict(zip(tags, read_versions(replies[len(many) :]), strict=True))
        return [
            reply
            if isinstance(reply, Outage | UsageError)
            else self._seen(
                keys, read_reply(reply, keys.options, [versions[tag] for tag in keys.tags])
            )
            for keys, reply in zip(many, replies, strict=False)
        ]

    def _seen(self, keys: CacheKeys, reading: Reading) -> Reading:
        if reading.state not in ("fresh", "stale"):
            self._memory.seen.pop(keys.key, None)
        return reading

    # ---- memory

    def _read_for_memory(self, many: list[CacheKeys]) -> list[Reading]:
        """Read, and track changes of keys and tags: only then a value may be remembered here."""
        now, _ = self._store.opened()
        tickets = [_Forget(self, keys) for keys in many]
        for ticket in tickets:
            self.local.ask(ticket.key, ticket)
        gone: list[Ticket] = list(tickets)
        try:
            asked = [each for ticket in tickets for each in ticket.questions()]
            answers = iter(self._store.transport.track_all(asked, now))
            readings = [self._tracked(ticket, answers, now) for ticket in tickets]
            gone = [
                each
                for ticket, found in zip(tickets, readings, strict=True)
                for each in self._remember(ticket, found, now)
            ]
            return [reading for reading, _ in readings]
        finally:
            self._unwatch(gone)

    def _tracked(
        self, ticket: "_Forget", answers: Iterator[Tracked], now: float
    ) -> tuple[Reading, bool]:
        """What the store has, and whether the server reports every change of it."""
        keys = ticket.keys
        tags = [next(answers) for _ in keys.tags]
        answer = next(answers)
        versions: Versions = read_versions([tag.replies[0] for tag in tags])
        replies = self._store.check_reply(keys.read, answer.replies, now)
        is_tracked = answer.tracked and all(tag.tracked for tag in tags)
        return read_reply(replies, keys.options, versions), is_tracked

    def _remember(self, ticket: "_Forget", found: tuple[Reading, bool], now: float) -> list[Ticket]:
        """Keep a fresh value whose changes are reported. The tickets of what is not kept."""
        reading, is_tracked = found
        if not is_tracked or reading.state != "fresh":
            return [ticket]
        until = now + min(reading.left, ticket.keys.options.local)
        gone = self.local.put(ticket.key, reading.value, until, ticket)
        return [each for _, each in gone]

    def changed(self, key: bytes) -> None:
        """We know that the value changed."""
        self._memory.forget_loads(key)
        self.local.forget(key)
        self._memory.seen.pop(key, None)

    def forget(self, ticket: "_Forget") -> None:
        """The value that is remembered with *ticket* changed, or may have."""
        self.local.forget(ticket.key)
        self._memory.seen.pop(ticket.key, None)
        ticket.unwatch(self._store.transport)

    def _unwatch(self, gone: list[Ticket]) -> None:
        for ticket in gone:
            if isinstance(ticket, _Forget):
                self.local.drop(ticket.key, ticket)
                ticket.unwatch(self._store.transport)


class _Forget:
    """One registration for the changes of a value; two of them are never equal."""

    __slots__ = ("_reader", "keys")

    def __init__(self, reader: Reader, keys: CacheKeys) -> None:
        self._reader = reader
        self.keys = keys

    @property
    def key(self) -> bytes:
        """Where the value is."""
        return self.keys.key

    def questions(self) -> list[tuple[Request, Wake]]:
        """The tags first: a version that is older than its value makes a miss, no old value."""
        tags = [version_request(tag) for tag in self.keys.tags]
        return [(request, self) for request in [*tags, self.keys.read]]

    def unwatch(self, transport: Any) -> None:
        """It is not called any more."""
        for key in (self.keys.key, *self.keys.tags):
            transport.unwatch(key, self)

    def __call__(self) -> None:
        self._reader.forget(self)
