# Generated from src/dibs/_async/inspector.py by unasync.py – do not edit.
"""Reads what a server holds, and frees what a person wants freed."""

from collections.abc import Iterator, Callable
from typing import Any

from .._core.connection import Outage
from .._core.inspection import (
    KeyInfo,
    KeyReading,
    Page,
    ReleaseOutcome,
    Scan,
    ServerInfo,
    classify,
    companions_request,
    discard_request,
    entry_request,
    foreign_hint,
    is_cut,
    is_denied,
    is_gone,
    length_request,
    member_request,
    named_secret,
    next_node,
    pattern_for,
    proof_in,
    read_info,
    read_members,
    read_scan,
    read_time,
    scan_request,
    token_hint,
    type_request,
    with_companions,
)
from .._core.keys import expand
from .._core.lease import release_permit
from .._core.request import Reply, Request, deciding_error, pack
from .._threads import monotonic
from ..errors import Unavailable, UsageError
from .store import Store

SCAN_COUNT = 500
"""How many keys the server looks at for one page: well under a millisecond of its time."""
_NAME = "the server"
_NOT_HELD = {
    "cached": "this key is a cached value, which has no holder; invalidate it instead",
    "fence": "this key counts fences; without it an old fence could be taken for a new one",
    "schedule": "this key records the last run of a schedule; release the schedule's own key",
    "rate": "this key counts calls, and has no holder; DEL lets a whole burst through again",
    "history": "this key has the last runs of a schedule, and no holder",
    "waiters": "this key lists the waiters of another one, and has no holder",
    "stream": "this key is a stream, which has no holder; invalidate it instead",
    "items": "this key has the items of a stream; invalidate the stream's own key instead",
    "tag": "this key is the version of a tag; invalidate the tag instead",
    "foreign": "this key is data of another program; delete it with the tools of that program",
    "lock": "this lock has no holder: a load has just failed, and the next one waits for a moment",
}


class Inspector:
    """Reads keys without taking or changing them. Every method: Unavailable, UsageError."""

    def __init__(self, store: Store, namespace: str) -> None:
        self._store = store
        self._namespace = namespace

    # ---- pages

    def pages(self, pattern: str = "*", *, count: int = SCAN_COUNT) -> Iterator[Page]:
        """Yield all keys that match *pattern*, which begins after the namespace.

        Keys that exist all the time come at least once, others perhaps. A page may be empty.
        """
        cursor: str | None = ""
        scan = Scan()
        while cursor is not None:
            page = self.page(pattern, cursor=cursor, count=count)
            try:
                cursor = scan.advanced(page.cursor)
            except Outage as outage:
                raise Unavailable(outage.cause, _NAME) from None
            yield page

    def page(self, pattern: str = "*", *, cursor: str = "", count: int = SCAN_COUNT) -> Page:
        """Return one page. *cursor*: that of the page before; empty: the first one.

        *count*: how many keys the server looks at, not how many match. Of a cluster, the nodes come
        one after the other; one that does not answer is named, and left out.
        """
        nodes = self._nodes()
        here, start, following = next_node(list(nodes), cursor)
        request = scan_request(start, pattern_for(self._namespace, pattern), count)
        try:
            replies = self._ask_node(nodes[here], request)
            scan_cursor, keys, clock = self._store.read(read_scan, replies)
            entries = self._entries(keys, clock)
        except Outage as outage:
            if len(nodes) == 1:
                raise Unavailable(outage.cause, _NAME) from None
            return Page([], following, here, str(outage.cause))
        return Page(entries, following if scan_cursor == b"0" else f"{scan_cursor.decode()}@{here}")

    def _nodes(self) -> dict[str, Any]:
        try:
            now, _ = self._store.opened()
            return self._store.nodes(now)
        except Outage as outage:
            raise Unavailable(outage.cause, _NAME) from None

    def _ask_node(self, node: Any, request: Request) -> Any:
        now = monotonic()
        return self._store.check_reply(request, node.send(request, now), now)

    def _entries(self, keys: list[bytes], clock: float) -> list[KeyInfo]:
        """Return what these keys are; those that ended meanwhile are left out."""
        entries = self._look(keys, clock)
        return [classify(self._namespace, each, clock) for each in entries if not is_gone(each)]

    def _look(self, keys: list[bytes], clock: float) -> list[KeyReading]:
        """Types, then values: two writes; and the length of values that are long."""
        kinds = self._ask([type_request(key) for key in keys])
        requests = [entry_request(key, kind, clock) for key, kind in zip(keys, kinds, strict=True)]
        values = self._ask(requests)
        long = [place for place, reply in enumerate(values) if is_cut(reply)]
        lengths = self._ask([length_request(keys[place]) for place in long])
        sizes = dict(zip(long, lengths, strict=True))
        return [
            KeyReading(key, kind, value if isinstance(value, list) else [value], sizes.get(place))
            for place, (key, kind, value) in enumerate(zip(keys, kinds, values, strict=True))
        ]

    def _ask(self, requests: list[Request]) -> list[Any]:
        """Return the replies.

        Raises Outage or UsageError if one failed otherwise than by the ACL of its key.
        """
        if not requests:
            return []
        now = monotonic()
        replies = self._store.transport.send_all(requests, now)
        for request, reply in zip(requests, replies, strict=True):
            if isinstance(reply, Outage):  # of one node of a cluster
                raise reply
            if deciding_error(reply) is not None and not is_denied(reply):
                self._store.check_reply(request, reply, now)
        return replies

    def anywhere(self, pattern: str, *, most: int = 20) -> list[str]:
        """Return keys of the whole server, in any namespace, that match *pattern*; so many at most.

        Only names are read. Unavailable: a node of a cluster does not answer.
        """
        matches: list[str] = []
        for node in (self._nodes()).values():
            cursor, scan = b"", Scan()
            while cursor != b"0" and len(matches) < most:
                request = scan_request(cursor or b"0", pattern_for("", pattern), 1000)
                try:
                    replies = self._ask_node(node, request)
                    cursor, keys, _ = self._store.read(read_scan, replies)
                    scan.advanced(cursor)
                except Outage as outage:
                    raise Unavailable(outage.cause, _NAME) from None
                matches += [key.decode(errors="backslashreplace") for key in keys]
        return sorted(set(matches))[:most]

    def within(self, namespace: str) -> "Inspector":
        """Return an inspector of another namespace."""
        return Inspector(self._store, namespace)

    # ---- one key

    def entry(self, key: str) -> KeyInfo | None:
        """Return what *key* is, with its fence and who loads it. None: it is not there."""
        data = expand(self._namespace, key)
        try:
            now, _ = self._store.opened()
            companions = self._store.transport.send(
                companions_request(self._namespace, data), now
            )
            clock = self._store.read(read_time, companions[0])
            entries = self._entries([data], clock)
        except Outage as outage:
            raise Unavailable(outage.cause, _NAME) from None
        return with_companions(entries[0], companions) if entries else None

    # ---- freeing

    def release(self, key: str, token: str) -> ReleaseOutcome:
        """Free *key*, or one permit of it, if *token* holds it.

        Raises UsageError if it is never held.
        """
        secret = named_secret(token)
        return self._release(key, lambda value: (proof_in(value) or [b""])[0] == secret)

    def release_whatever(self, key: str, seen: str) -> ReleaseOutcome:
        """Release it if it is still the holding with the `token_hint` *seen*."""
        return self._release(
            key, lambda value: seen in (token_hint(value), foreign_hint(value))
        )

    def _release(self, key: str, is_meant: Callable[[bytes], bool]) -> ReleaseOutcome:
        data = expand(self._namespace, key)
        try:
            _, engine = self._store.opened()
            [reading] = self._look([data], 0.0)
            if is_gone(reading):
                return "free"
            entry, head = classify(self._namespace, reading, 0.0), reading.values[-1]
            if entry.kind == "permits":
                return self._release_permit(data, is_meant)
            if entry.token_hint is None:
                raise UsageError(_NOT_HELD[entry.kind])
            if not isinstance(head, bytes) or not is_meant(head):
                return "other"
            reply = self._store.ask(discard_request(engine, data, head), monotonic())
            return "released" if reply == 1 else "other"
        except Outage as outage:
            raise Unavailable(outage.cause, _NAME) from None

    def _release_permit(
        self, key: bytes, is_meant: Callable[[bytes], bool]
    ) -> ReleaseOutcome:
        cursor, scan = b"", Scan()
        while cursor != b"0":
            reply: Reply = self._store.ask(member_request(key, cursor or b"0"), monotonic())
            cursor, members = self._store.read(read_members, reply)
            scan.advanced(cursor)
            for member in filter(is_meant, members):
                reply = self._store.ask(release_permit(key, member, 0.0), monotonic())
                return "released" if reply == 1 else "free"
        return "other"

    # ---- the server

    def server(self) -> list[ServerInfo]:
        """Return what the server, or each node of a cluster that answers, says about itself."""
        request = Request(pack("INFO"), 1, b"")
        facts: list[ServerInfo] = []
        silent: Outage | None = None
        for name, node in (self._nodes()).items():
            try:
                reply = self._ask_node(node, request)
                facts.append(ServerInfo(name, self._store.read(read_info, reply)))
            except Outage as outage:
                silent = outage
        if silent is not None and not facts:
            raise Unavailable(silent.cause, _NAME) from None
        return facts
