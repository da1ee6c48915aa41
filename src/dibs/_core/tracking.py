"""Notifications of changed keys: the server's client tracking, and what its pushes say.

The waiter's own read (`PTTL`) registers the key, so only waiters pay: a release
costs no extra command, and any change counts, also one by another program. A push can be lost
and an expiry may never be announced: a waiter also keeps a timer.
"""

import math
import re
from typing import Any, NamedTuple

from .capabilities import run_whole_script
from .keys import companion_key
from .lease import HoldCall
from .request import ErrorReply, Reply, Request, pack

NOTE_EVERY = 10.0
"""Seconds after which a note is written again."""
_LIFE_MS = 30_000
MOST_NOTES = 100
"""For each key; of those who come later nothing is noted."""
_NOTE = re.compile(rb"[0-9a-f]{12}@(.+) (\d+)")


class WaitingProcess(NamedTuple):
    """A process with waiters."""

    holder: str
    """Host and process, as for those who hold."""
    waited: float | None
    """Seconds, by its own clock; of those who wait there, the first."""


def note_request(call: HoldCall, note: bytes) -> Request:
    """Note that a process waits. By source: a NOSCRIPT reply would not be read."""
    key = companion_key(call.options.waiting_prefix, call.key)
    return Request(run_whole_script("wait_note", [key], note, _LIFE_MS, MOST_NOTES), 1, call.key)


def unnote_request(call: HoldCall, note: bytes) -> Request:
    """Remove the note."""
    key = companion_key(call.options.waiting_prefix, call.key)
    return Request(pack("ZREM", key, note), 1, call.key)


def notes_request(namespace: str, key: bytes) -> bytes:
    """Return the notes of a key, as a command."""
    name = companion_key(f"{namespace}waiting:".encode(), key)
    return pack("ZRANGE", name, 0, MOST_NOTES - 1, "WITHSCORES")


def read_notes(reply: Reply, now: float) -> tuple[WaitingProcess, ...]:
    """Return who waits, the longest first.

    *now*: seconds since the epoch, by the server's clock.
    """
    items = reply if isinstance(reply, list) else []
    flat = [each for item in items for each in (item if isinstance(item, list) else [item])]
    waiters = [
        WaitingProcess(note[1].decode(errors="replace"), max(now - int(note[2]) / 1000, 0.0))
        for member, expiry in zip(flat[::2], flat[1::2], strict=False)
        if isinstance(member, bytes) and (note := _NOTE.fullmatch(member)) is not None
        and isinstance(expiry, bytes | int | float) and float(expiry) > now * 1000
    ]  # fmt: skip
    return tuple(sorted(waiters, key=lambda waiter: -(waiter.waited or 0.0)))


_TRACK = pack("CLIENT", "TRACKING", "ON", "OPTIN")
_NEXT = pack("CLIENT", "CACHING", "YES")


class Watching(NamedTuple):
    """How long the key is still held (0: it is free), and whether its change will be pushed."""

    remaining: float
    tracked: bool


class Tracked(NamedTuple):
    """The replies to a tracked request, and whether a change will be pushed."""

    replies: list[Reply]
    tracked: bool


def tracked(requests: list[Request], *, first: bool) -> Request:
    """Joins *requests*; the first command of each registers for one change of its key.

    *first*: on this connection, which has to switch tracking on once.
    """
    parts = [_TRACK] if first else []
    for request in requests:
        parts += _NEXT, request.payload
    count = sum([1 + request.replies for request in requests])
    return Request(b"".join(parts), count + first, requests[0].key)


def read_tracked(replies: list[Reply], requests: list[Request], *, pushes: bool) -> list[Tracked]:
    """Return *pushes*: the connection can receive any. A server that refuses tracking is polled."""
    at = len(replies) - sum([1 + request.replies for request in requests])
    refused = any(isinstance(reply, ErrorReply) for reply in replies[:at])
    answers: list[Tracked] = []
    for request in requests:
        end = at + 1 + request.replies
        is_tracked = pushes and not refused and not isinstance(replies[at], ErrorReply)
        answers.append(Tracked(replies[at + 1 : end], is_tracked))
        at = end
    return answers


def untracked(reply: Any, request: Request) -> Tracked:
    """Return the reply to *request* as it was sent, where the server does not push changes."""
    return Tracked(reply if request.replies > 1 else [reply], tracked=False)


def watch_request(key: bytes) -> Request:
    """Return how long *key* is held; sent as a tracked request, it registers for its change."""
    return Request(pack("PTTL", key), 1, key)


_LONGEST_MS = 2**63
"""No server answers more; a number without a limit would be too long for a float."""


def read_watch(answer: Tracked) -> Watching:
    """Return how long it is held, and whether its change will be pushed."""
    pttl = answer.replies[0]
    if not isinstance(pttl, int):
        return Watching(math.inf, tracked=False)  # refused: all we can do is try every now and then
    if pttl == -2:
        return Watching(0.0, tracked=False)
    is_endless = pttl < 0 or pttl > _LONGEST_MS
    return Watching(math.inf if is_endless else pttl / 1000, tracked=answer.tracked)


def read_push(push: list[Reply]) -> list[bytes] | None:
    """Return the keys that changed; None: any may have (the server was flushed, or lost track)."""
    if not push or push[0] != b"invalidate" or len(push) < 2:
        return []
    keys = push[1]
    if not isinstance(keys, list):
        return None
    return [key for key in keys if isinstance(key, bytes)]


# ---- pushes that were not about a change

_SHORTEST = 0.001
LONGEST_PAUSE = 0.1
REGISTER_AGAIN = 2.0


class Pushes(NamedTuple):
    """What the pushes for one key were worth: how long to wait before registering for another.

    A server that keeps track of too few keys (`tracking-table-max-keys`) drops one with a push for
    each that is added. Registering again at once drops another, and so on without end.
    """

    pause: float = 0.0
    """Look again after this time, without registering; 0: register."""
    backed_off: float = 0.0
    """The last pause; 0: the last push was about a change, or none came."""
    registered_at: float = -math.inf

    def after_reading(self, now: float, *, pushed: bool, changed: bool) -> "Pushes":
        """The key was read: because of a push (*pushed*); another holder has it (*changed*)."""
        if changed:
            return Pushes(0.0, 0.0, now)
        if pushed:
            pause = min(max(2 * self.backed_off, _SHORTEST), LONGEST_PAUSE)
            return Pushes(pause, pause, self.registered_at)
        if not self.pause:
            return Pushes(0.0, 0.0, now)  # the registration was kept until we looked by ourselves
        if self.backed_off >= LONGEST_PAUSE and now - self.registered_at < REGISTER_AGAIN:
            return self
        return Pushes(0.0, self.backed_off, now)
