"""Notifications of changed keys: the server's client tracking, and what its pushes say.

The waiter's own read (`PTTL`) registers the key, so nobody pays but those who wait: a release
costs no extra command, and any change counts, also one by another program. A push can be lost
and an expiry may never be announced: whoever waits also keeps a timer.
"""

import math
from typing import Any, NamedTuple

from .request import ErrorReply, Reply, Request, pack

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


def tracked(request: Request, *, first: bool) -> Request:
    """The same request; its first command registers for one change of its key.

    *first*: on this connection, which has to switch tracking on once.
    """
    head = _TRACK + _NEXT if first else _NEXT
    return Request(head + request.payload, request.replies + (2 if first else 1), request.key)


def read_tracked(replies: list[Reply], request: Request, *, pushes: bool) -> Tracked:
    """*pushes*: the connection can receive any. A server that refuses tracking is polled."""
    extra = replies[: -request.replies]
    refused = any(isinstance(reply, ErrorReply) for reply in extra)
    return Tracked(replies[-request.replies :], tracked=pushes and not refused)


def untracked(reply: Any, request: Request) -> Tracked:
    """The reply to *request* as it was sent, where the server does not push changes."""
    return Tracked(reply if request.replies > 1 else [reply], tracked=False)


def watch_request(key: bytes) -> Request:
    """How long *key* is held; sent as a tracked request, it registers for its change."""
    return Request(pack("PTTL", key), 1, key)


def read_watch(answer: Tracked) -> Watching:
    """How long it is held, and whether its change will be pushed."""
    pttl = answer.replies[0]
    if not isinstance(pttl, int):
        return Watching(math.inf, tracked=False)  # refused: all we can do is try every now and then
    if pttl == -2:
        return Watching(0.0, tracked=False)
    return Watching(math.inf if pttl < 0 else pttl / 1000, tracked=answer.tracked)


def read_push(push: list[Reply]) -> list[bytes] | None:
    """The keys that changed; None: any may have (the server was flushed, or lost track)."""
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
    each that is added. Whoever registers again at once drops another, and so on without end.
    """

    pause: float = 0.0
    """Look again after this time, without registering; 0: register."""
    backed_off: float = 0.0
    """The last pause; 0: the last push was about a change, or none came."""
    registered_at: float = -math.inf

    def after_reading(self, now: float, *, pushed: bool, changed: bool) -> "Pushes":
        """The key was read: because of a push (*pushed*); somebody else has it (*changed*)."""
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
