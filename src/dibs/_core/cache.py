"""Fresh, stale or missing; who loads, who follows, when to refresh early; requests and readings."""

import math
import re
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

from .codec import FAILURE, MARK, mark, unframe
from .engine import run_script, run_whole_script
from .keys import beside, expand
from .options import CacheOptions, Settings
from .request import SIZE, Reply, Request, pack
from .watch import Tracked, Watching, read_watch

MARK_LIFE = 3600.0
"""How long a mark may stand where a leader died; it is in nobody's way."""

# A lease or a running claim (see `make_token` and `running_record`), or what a claim left behind.
_LEASE = re.compile(rb"[0-9a-f]{16,}-[0-9a-f]+[@ ]|dibs1 done ")
HELD = "a lease or a claim holds this key; a cached value needs a key of its own"


class CacheKeys:
    """One value: where it and its lock live, what events call it, and how it is kept."""

    def __init__(self, options: CacheOptions, name: str, key: bytes, lock: bytes) -> None:
        self.options: Final = options
        self.name: Final = name
        self.key: Final = key
        self.lock: Final = lock
        self.read: Final = _read_request(options, key)
        """The request for the value; made once, because a key is read many times."""


def cache_keys(
    settings: Settings, options: CacheOptions, name: str, key: str, lock_key: str | None
) -> CacheKeys:
    """Where a value and its lock live. UsageError: a bad key, or one that can have no companion."""
    namespace = settings.namespace
    data = expand(namespace, key)
    if lock_key is not None:
        return CacheKeys(options, name, data, expand(namespace, lock_key))
    return CacheKeys(options, name, data, beside(f"{namespace}lock:".encode(), data))


class LoadRequest(NamedTuple):
    """One value that is wanted, and how to load it."""

    keys: CacheKeys
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def options(self) -> CacheOptions:
        """How the value is kept."""
        return self.keys.options

    def load(self) -> Any:
        """Call the function."""
        return self.function(*self.args, **self.kwargs)


State = Literal["fresh", "stale", "missing", "poison", "failed", "held"]


class Reading(NamedTuple):
    """What the store had, and whether it is ours to load."""

    state: State
    value: Any = None
    left: float = 0.0
    """Seconds that it stays fresh (negative: that it has been stale)."""
    life: float = 0.0
    """Seconds that the store keeps it."""
    took: float = 0.0
    """How long its load took."""
    won: bool = False


class Answer(NamedTuple):
    """What a flight found, for all who joined it."""

    value: Any
    as_of: float
    """No change of the value that was complete before this (local) time was missed."""


# ---- when


def jittered(options: CacheOptions, chance: float) -> float:
    """How long a value stays fresh: the ttl, give or take; *chance* is between 0 and 1."""
    return max(options.ttl * (1 + options.jitter * (2 * chance - 1)), options.min_ttl)


def is_due_early(reading: Reading, early: float, chance: float) -> bool:
    """Refresh before it ends? The longer its load takes and the nearer the end, the likelier.

    XFetch: at *left* seconds before the end with probability exp(-left / (early × load time)).
    """
    if early <= 0 or reading.state != "fresh":
        return False
    return -reading.took * early * math.log(max(chance, 1e-12)) >= reading.left


# ---- reading

_GET, _PTTL = b"*2\r\n$3\r\nGET\r\n", b"*2\r\n$4\r\nPTTL\r\n"


def _read_request(options: CacheOptions, key: bytes) -> Request:
    """The value; and how long it lives, where that matters."""
    word = b"%b%b\r\n" % (SIZE[len(key)], key)
    if options.stale or options.early or options.local:
        return Request(_GET + word + _PTTL + word, 2, key)
    return Request(_GET + word, 1, key)


def read_reply(reply: Reply, options: CacheOptions) -> Reading:
    """What `read_request` found."""
    value, pttl = reply if isinstance(reply, list) else (reply, None)
    return _reading(value, pttl, options)


def _reading(data: Reply, pttl: Reply, options: CacheOptions, *, won: bool = False) -> Reading:
    if not isinstance(data, bytes):
        return Reading("missing", won=won)
    if not data.startswith(options.head):
        if data.startswith(MARK):
            return _behind_mark(data, pttl, options, won=won)
        return _unreadable(data, pttl, options, won=won)
    life = _life(pttl, options)
    left = life - options.stale
    head, newline, payload = data.partition(b"\n")
    if not newline:
        return Reading("poison", life=life, won=won)
    try:
        _, took = map(float, head[len(options.head) :].split(b" "))
        value = options.codec.decode(payload)
    except Exception:
        return Reading("poison", life=life, won=won)
    return Reading("fresh" if left > 0 else "stale", value, left, life, took, won)


def _life(pttl: Reply, options: CacheOptions) -> float:
    return pttl / 1000 if isinstance(pttl, int) and pttl >= 0 else options.ttl


def _behind_mark(data: bytes, pttl: Reply, options: CacheOptions, *, won: bool) -> Reading:
    """The value that `cache_lock.lua` put behind a mark, as long as it lives; or none."""
    head, newline, value = data.partition(b"\n")
    if not newline or not isinstance(pttl, int):  # without its life: the claim will tell
        return Reading("missing", won=won)
    left = pttl - int(head.rpartition(b" ")[2])
    return _reading(value if left > 0 else None, left, options, won=won)


def _unreadable(data: bytes, pttl: Reply, options: CacheOptions, *, won: bool) -> Reading:
    """A failure that is remembered, or bytes of another codec, schema, version or program."""
    if _LEASE.match(data):
        return Reading("held")
    life = _life(pttl, options)
    left = life - options.stale
    entry = unframe(data)
    if entry is not None and entry.codec == FAILURE:
        if left <= 0:
            return Reading("missing", life=life, won=won)
        return Reading("failed", entry.payload.decode(), left, life, won=won)
    return Reading("poison", life=life, won=won)


# ---- following


def follow_request(keys: CacheKeys) -> Request:
    """How long the lock of a load has left; tracked, it registers for the change of its mark.

    Not of the lock: that changes with every renewal, and would wake all who follow.
    """
    return Request(pack("EXISTS", keys.key) + pack("PTTL", keys.lock), 2, keys.key)


def read_follow(answer: Tracked) -> Watching | None:
    """How long the lock is held, and whether its end will be pushed. None: no load is marked."""
    mark, pttl = answer.replies
    return read_watch(Tracked([pttl], answer.tracked)) if mark == 1 else None


def standing_request(keys: CacheKeys) -> Request:
    """Whether a load may still be stored."""
    return Request(pack("EXISTS", keys.key) + pack("GET", keys.lock), 2, keys.key)


def read_standing(replies: list[Reply], token: bytes) -> bool:
    """True: nobody has deleted the value, or taken the lock, of the load with this token."""
    return replies == [1, token]


# ---- locking


def lock_request(keys: CacheKeys, options: CacheOptions, token: bytes, *, force: bool) -> Request:
    """The value, and the right to load it where it needs to be: one round trip."""
    args = (
        token,
        round(options.lock_ttl * 1000),
        round(options.stale * 1000),
        b"1" if force else b"0",
        mark(token),
        round(max(MARK_LIFE, 2 * options.load_timeout) * 1000),
        round((max(options.load_timeout, options.lock_ttl) + options.lock_ttl) * 1000),
    )
    return Request(run_script("cache_lock", [keys.key, keys.lock], *args), 1, keys.key)


def read_lock(reply: list[Reply], options: CacheOptions) -> Reading:
    """What `lock_request` found, and whether we load."""
    value, left, won = reply
    return _reading(value, left, options, won=won == 1)


# ---- storing


def store_request(keys: CacheKeys, token: bytes, data: bytes, life: float) -> Request:
    """Keep the result, if the lock is still ours and nobody deleted the value meanwhile."""
    args = (token, data, max(round(life * 1000), 1))
    return Request(run_script("cache_store", [keys.key, keys.lock], *args), 1, keys.key)


def unlock_request(keys: CacheKeys, token: bytes, until: float) -> Request:
    """The load came to nothing: let somebody else try."""
    script = run_whole_script("cache_unlock", [keys.key, keys.lock], token, mark(token))
    return Request(script, 1, keys.key, until)


def invalidate_request(keys: CacheKeys, until: float) -> Request:
    """Delete the value and, with its lock, the right of a load under way to store its result."""
    return Request(run_whole_script("cache_invalidate", [keys.key, keys.lock]), 1, keys.key, until)
