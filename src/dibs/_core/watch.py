"""Being told when a key changes: the server's client tracking, and what its pushes say.

The waiter's own read (`PTTL`) registers the key, so nobody pays but those who wait: a release
costs no extra command, and any change counts, also one by another program. A push can be lost
and an expiry may never be announced: whoever waits also keeps a timer.
"""

import math
from typing import NamedTuple

from .request import ErrorReply, Reply, Request, pack

_TRACK = pack("CLIENT", "TRACKING", "ON", "OPTIN") + pack("CLIENT", "CACHING", "YES")


class Watching(NamedTuple):
    """How long the key is still held (0: it is free), and whether the server will tell."""

    remaining: float
    told: bool


def watch_request(key: bytes) -> Request:
    """Register for one change of *key*, and say how long it is held: one write."""
    return Request(_TRACK + pack("PTTL", key), 3, key)


def read_watch(replies: list[Reply], *, pushes: bool) -> Watching:
    """*pushes*: the connection can receive any. A server that refuses tracking is polled."""
    tracking, caching, pttl = replies
    refused = isinstance(tracking, ErrorReply) or isinstance(caching, ErrorReply)
    if not isinstance(pttl, int) or pttl == -2:
        return Watching(0.0, told=False)
    return Watching(math.inf if pttl < 0 else pttl / 1000, told=pushes and not refused)


def read_push(push: list[Reply]) -> list[bytes] | None:
    """The keys that changed; None: any may have (the server was flushed, or lost track)."""
    if not push or push[0] != b"invalidate" or len(push) < 2:
        return []
    keys = push[1]
    if not isinstance(keys, list):
        return None
    return [key for key in keys if isinstance(key, bytes)]
