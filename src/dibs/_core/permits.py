"""Leases of a key that several may hold: requests and readings of acquire, extend, release, peek.

The key is a sorted set: each permit is a token with the moment at which it expires, by the
server's clock. The key itself expires with the last of them.
"""

import functools
import math

from .engine import Engine, run_script, run_whole_script
from .keys import companion_key
from .lease import (
    FENCE_LIFE,
    WON,
    HoldCall,
    Holding,
    LeaseState,
    Won,
    extend_request,
    fenced_request,
    holder_in,
)
from .options import HoldOptions
from .request import SIZE, Reply, Request, pack


class AllTaken(Holding):
    """All permits are taken: when the first of them expires, and who has it."""

    greatest = b""
    """The greatest expiry of all; another one says that a permit was taken or renewed since."""


# ---- acquire


def script_request(call: HoldCall, token: bytes) -> Request:
    """What takes a key that is not taken by SET alone: with a fence, or one of its permits."""
    prefix, limit = call.options.fence_prefix, call.options.limit
    if limit is not None or prefix is None:
        return permit_request(call, token)
    return fenced_request(call.key, prefix, token, call.options.ttl_ms)


def permit_request(call: HoldCall, token: bytes) -> Request:
    """Take a permit if one is free; else say when one will be."""
    key, options = call.key, call.options
    limit = options.limit or 1
    if options.fence_prefix is not None:
        keys = [key, companion_key(options.fence_prefix, key), fences_key(options, key)]
        words = (token, options.ttl_ms, limit, int(FENCE_LIFE * 1000))
        return Request(run_script("hold_permit", keys, *words) + pack("PTTL", key), 2, key)
    size = SIZE[len(key)]
    head, tail = _around(options.ttl_ms, limit)
    parts = (head, size, key, b"\r\n", SIZE[len(token)], token, b"\r\n", tail, size, key, b"\r\n")
    return Request(b"".join(parts), 2, key)


def fences_key(options: HoldOptions, key: bytes) -> bytes:
    """Where the fences of permits are, so that a repeated request gets that of the first."""
    prefix = options.fence_prefix or b""
    return companion_key(prefix.removesuffix(b"fence:") + b"fences:", key)


@functools.lru_cache(maxsize=256)
def _around(ttl_ms: int, limit: int) -> tuple[bytes, bytes]:
    """What stands before the key and behind the token: the same for every key.

    The PTTL at the end makes it two replies, as for every acquire; the first says everything.
    """
    script, end = run_script("hold_permit", [b"?"], b"!", ttl_ms, limit).split(
        b"$1\r\n?\r\n$1\r\n!\r\n"
    )
    return script, end + b"*2\r\n$4\r\nPTTL\r\n"


def read_permit(replies: list[Reply], token: bytes) -> Won | AllTaken:
    """Ours, or when one will be free."""
    reply = replies[0]
    if reply is None:
        return WON
    if isinstance(reply, int):
        return Won(reply)
    assert isinstance(reply, list)
    first, left, greatest = reply
    taken = AllTaken(_seconds(left), holder_in(first))
    taken.greatest = greatest if isinstance(greatest, bytes) else b""
    return taken


def count_request(key: bytes) -> Request:
    """How many permits there are, expired ones included; tracked, it registers for a change."""
    return Request(pack("ZCARD", key), 1, key)


def is_full(count: int, options: HoldOptions) -> bool:
    """Whether there is nothing to be had before a change, or an expiry."""
    return options.limit is not None and count >= options.limit


def has_changed(before: Holding | None, now: Holding) -> bool:
    """Whether a permit was taken or renewed between two refusals."""
    mark = before.greatest if isinstance(before, AllTaken) else b""
    return isinstance(now, AllTaken) and now.greatest != mark


# ---- extend, release, peek


def keep_request(engine: Engine, lease: LeaseState, token: bytes, ttl_ms: int) -> Request:
    """Keep a lease, permit or not, for another *ttl_ms*, if it is still ours: see `read_extend`."""
    key = lease.call.key
    if lease.call.options.limit is None:
        return extend_request(engine, key, token, ttl_ms)
    return Request(run_script("hold_permit_extend", [key], token, ttl_ms), 1, key)


def shorten_permit(key: bytes, token: bytes, ms: int, until: float) -> Request:
    """Let a permit expire after *ms*: a release with `at_least`. Read it with `read_extend`."""
    script = run_whole_script("hold_permit_extend", [key], token, ms, b"1")
    return Request(script, 1, key, until)


_ZREM = b"*3\r\n$4\r\nZREM\r\n"


def release_permit(key: bytes, token: bytes, until: float) -> Request:
    """Give a permit back. 1: given back; 0: it was not (or no longer) ours."""
    words = (_ZREM, SIZE[len(key)], key, b"\r\n", SIZE[len(token)], token, b"\r\n")
    return Request(b"".join(words), 1, key, until)


def peek_permits(key: bytes) -> Request:
    """Which permit expires first: changes nothing."""
    return Request(run_script("hold_permit_peek", [key]), 1, key)


def read_peek_permits(reply: Reply) -> Holding | None:
    """Who has it and for how long, or nobody."""
    if not isinstance(reply, list):
        return None
    token, left = reply
    return Holding(_seconds(left), holder_in(token))


def _seconds(left: Reply) -> float:
    return max(left, 0) / 1000 if isinstance(left, int) else math.inf
