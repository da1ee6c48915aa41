"""Fresh, stale or missing; who loads, who follows, when to refresh early; requests and readings."""

import math
import re
from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

from ..errors import UsageError
from .cache_options import CacheOptions
from .codec import FAILURE, MARK, mark, unframe
from .engine import run_script, run_whole_script
from .failures import Absent
from .keys import companion_key, expand
from .options import Settings
from .request import SIZE, Reply, Request, pack
from .tags import UNTAGGED, Versions, tag_keys
from .watch import Tracked, Watching, read_watch

DAY = 86_400.0
"""For how long a delete is still delivered after an outage, where nobody knows the ttl."""
MARK_LIFE = 3600.0
"""How long a mark may stand where a leader died; it is in nobody's way."""

# A lease or a running claim (see `token_maker` and `running_record`), or what a claim left behind.
_LEASE = re.compile(rb"[0-9a-f]{16,}-[0-9a-f]+[@ ]|dibs1 done ")
_MOST_KEYS = 10_000
"""Keys whose place in the store is remembered for each function; working it out is not cheap."""
HELD = "a lease or a claim holds this key; a cached value needs a key of its own"


class CacheKeys:
    """One value: where it and its lock live, what events call it, and how it is kept."""

    def __init__(
        self,
        options: CacheOptions,
        name: str,
        key: bytes,
        lock: bytes,
        tags: tuple[bytes, ...] = (),
    ) -> None:
        self.options: Final = options
        self.name: Final = name
        self.key: Final = key
        self.lock: Final = lock
        self.tags: Final = tags
        """Where the versions of its tags live."""
        self.read: Final = _read_request(options, key)
        """The request for the value; made once, because a key is read many times."""


def cache_keys(
    settings: Settings,
    options: CacheOptions,
    name: str,
    key: str,
    lock_key: str | None,
    tags: Iterable[str] = (),
) -> CacheKeys:
    """Where a value, its lock and its tags live. UsageError: a bad key or tag."""
    namespace = settings.namespace
    data = expand(namespace, key)
    lock = lock_of(namespace, data) if lock_key is None else expand(namespace, lock_key)
    return CacheKeys(options, name, data, lock, tag_keys(namespace, tags))


def lock_of(namespace: str, key: bytes) -> bytes:
    """The key that is locked during a load, if the caller names no other."""
    return companion_key(f"{namespace}lock:".encode(), key)


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


class ManyRequest(NamedTuple):
    """Many values that are wanted, and how to load those that are missing."""

    name: str
    options: CacheOptions
    keys: dict[Any, CacheKeys]
    """Item of the call → where its value lives."""
    load: Callable[[list[Any]], Any]
    """Call the function for some items."""


def remember_keys(known: dict[str, CacheKeys], text: str, keys: CacheKeys) -> None:
    """Keep the keys of a call under its key as text; too many, and all are forgotten."""
    if len(known) >= _MOST_KEYS:
        known.clear()
    known[text] = keys


State = Literal["fresh", "stale", "missing", "poison", "failed", "held", "outdated"]
"""outdated: one of its tags was invalidated."""


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
    made_at: float = 0.0
    """When it was loaded, in seconds since the epoch, by the clock of whoever loaded it."""
    head: bytes = b""
    """outdated: the line about it, by which it is known again."""
    resting: bool = False
    """A load has just failed, and nobody tries again for a while."""
    lock: bytes = b""
    """won: the lock, as the server has it. Only the execution that took it knows it."""


def is_served(reading: Reading, options: CacheOptions) -> bool:
    """True: the value is fresh, or old where nobody waits for a fresh one."""
    is_old = reading.state == "stale" and (reading.resting or not options.stale_after)
    return reading.state == "fresh" or is_old


class Claimed(NamedTuple):
    """A value that is ours to load."""

    request: LoadRequest
    token: bytes
    reading: Reading
    """What was there."""

    @property
    def lock(self) -> bytes:
        """What must be the lock's value when the result is stored."""
        return self.reading.lock


class Answer(NamedTuple):
    """What a flight found, for all who joined it."""

    value: Any
    as_of: float
    """No change of the value that was complete before this (local) time was missed."""
    kind: Literal["waited", "hit", "stale"] = "waited"
    """The event of those who join: a load was waited for, or a value was there."""


def answer_in(result: Any, key: bytes) -> Answer | None:
    """What a flight found for *key*; None: nothing, ask again. What its load raised for it."""
    found = result if isinstance(result, Answer) else result.get(key)
    if isinstance(found, Exception):
        raise found
    return found


# ---- when


def jittered(options: CacheOptions, chance: float, ttl: float | None = None) -> float:
    """How long a value stays fresh: the ttl, give or take; *chance* is between 0 and 1.

    *ttl*: that of this value; if it is another one, `min_ttl` does not lengthen it.
    """
    ttl = options.ttl if ttl is None else ttl
    least = options.min_ttl if ttl == options.ttl else min(options.min_ttl, ttl)
    return max(ttl * (1 + options.jitter * (2 * chance - 1)), least)


def ttl_of(options: CacheOptions, value: Any) -> float | None:
    """How long to keep what was loaded, before jitter. None: not at all. What `keep` raises."""
    return None if isinstance(value, Absent) else options.kept(value)


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


def read_reply(reply: Reply, options: CacheOptions, versions: Versions = UNTAGGED) -> Reading:
    """What `read_request` found. *versions*: those of its tags, now."""
    value, pttl = reply if isinstance(reply, list) else (reply, None)
    return _reading(value, pttl, options, versions)


def _reading(
    data: Reply, pttl: Reply, options: CacheOptions, versions: Versions, *, won: bool = False
) -> Reading:
    if not isinstance(data, bytes):
        return Reading("missing", won=won)
    if not data.startswith(options.head):
        if data.startswith(MARK):
            return _behind_mark(data, pttl, options, versions, won=won)
        return _unreadable(data, pttl, options, versions, won=won)
    life = _life(pttl, options)
    left = life - options.stale
    head, newline, payload = data.partition(b"\n")
    if not newline:
        return Reading("poison", life=life, won=won)
    try:
        made_at, took, *tagged = head[len(options.head) :].split(b" ")
        if tagged != versions:
            return Reading("outdated", life=life, won=won, head=head + newline)
        value = options.codec.decode(payload)
        state = "fresh" if left > 0 else "stale"
        return Reading(state, value, left, life, float(took), won, float(made_at))
    except Exception:
        return Reading("poison", life=life, won=won)


def _life(pttl: Reply, options: CacheOptions) -> float:
    return pttl / 1000 if isinstance(pttl, int) and pttl >= 0 else options.ttl


def _behind_mark(
    data: bytes, pttl: Reply, options: CacheOptions, versions: Versions, *, won: bool
) -> Reading:
    """The value that `cache_lock.lua` put behind a mark, as long as it lives; or none."""
    head, newline, value = data.partition(b"\n")
    if not newline or not isinstance(pttl, int):  # without its life: the claim will tell
        return Reading("missing", won=won)
    left = pttl - int(head.rpartition(b" ")[2])
    return _reading(value if left > 0 else None, left, options, versions, won=won)


def _unreadable(
    data: bytes, pttl: Reply, options: CacheOptions, versions: Versions, *, won: bool
) -> Reading:
    """A failure that is remembered, or bytes of another codec, schema, version or program."""
    if _LEASE.match(data):
        return Reading("held")
    life = _life(pttl, options)
    left = life - options.stale
    entry = unframe(data)
    if entry is not None and entry.codec == FAILURE:
        if left <= 0:
            return Reading("missing", life=life, won=won)
        if entry.versions != versions:
            return Reading("outdated", won=won, head=data[: data.index(b"\n") + 1])
        return Reading("failed", entry.payload.decode(), left, life, won=won)
    return Reading("poison", life=life, won=won)


T = TypeVar("T")


class Found(NamedTuple, Generic[T]):
    """What is stored, and how old it is."""

    value: T
    age: float
    """Seconds since it was loaded or set."""
    remaining: float
    """Seconds that it stays fresh; 0 or less: it is stale."""


def peek_request(keys: CacheKeys) -> Request:
    """The value, and how long it lives."""
    return Request(pack("GET", keys.key) + pack("PTTL", keys.key), 2, keys.key)


def read_peek(
    reply: Reply, options: CacheOptions, versions: Versions, now: float
) -> Found[Any] | None:
    """What `peek_request` found. UsageError: the key is a lease's."""
    reading = read_reply(reply, options, versions)
    if reading.state == "held":
        raise UsageError(HELD)
    if reading.state not in ("fresh", "stale"):
        return None
    return Found(reading.value, max(now - reading.made_at, 0.0), reading.left)


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


def validity_request(keys: CacheKeys) -> Request:
    """Whether a load may still be stored."""
    return Request(pack("EXISTS", keys.key) + pack("GET", keys.lock), 2, keys.key)


def read_validity(replies: list[Reply], lock: bytes) -> bool:
    """True: the load with this lock still has it, and its value was not deleted."""
    return replies == [1, lock]


# ---- locking


IF_NEEDED, ALWAYS = b"0", b"1"
"""When to load: where there is no fresh value, or in any case. (Or: where a value begins so.)"""


def lock_request(keys: CacheKeys, token: bytes, when: bytes) -> Request:
    """The value, and the right to load it where it needs to be: one round trip."""
    options = keys.options
    args = (
        token,
        round(options.lock_ttl * 1000),
        round(options.stale * 1000),
        when,
        mark(token),
        round(max(MARK_LIFE, 2 * options.load_timeout) * 1000),
        round((max(options.load_timeout, options.lock_ttl) + options.lock_ttl) * 1000),
    )
    return Request(run_script("cache_lock", [keys.key, keys.lock], *args), 1, keys.key)


def read_lock(reply: list[Reply], options: CacheOptions, versions: Versions = UNTAGGED) -> Reading:
    """What `lock_request` found, and whether we load."""
    value, left, won, *lock = reply
    reading = _reading(value, left, options, versions, won=won == 1)
    if lock and isinstance(lock[0], bytes):
        return reading._replace(lock=lock[0])
    return reading._replace(resting=True) if won == 2 else reading


# ---- storing


def store_request(keys: CacheKeys, lock: bytes, data: bytes, life: float) -> Request:
    """Keep the result, if the lock is still ours and nobody deleted the value meanwhile."""
    args = (lock, data, max(round(life * 1000), 1))
    return Request(run_script("cache_store", [keys.key, keys.lock], *args), 1, keys.key)


def put_request(keys: CacheKeys, data: bytes, life: float) -> Request:
    """Keep a value that was not loaded, in place of what is there and of a load under way."""
    args = (data, max(round(life * 1000), 1))
    return Request(run_script("cache_put", [keys.key, keys.lock], *args), 1, keys.key)


def unlock_request(keys: CacheKeys, token: bytes, until: float, rest: float = 0.0) -> Request:
    """The load came to nothing: let somebody else try. *rest*: not for so many seconds."""
    args = (token, mark(token), round(rest * 1000))
    script = run_whole_script("cache_unlock", [keys.key, keys.lock], *args)
    return Request(script, 1, keys.key, until)


def invalidate_request(key: bytes, lock: bytes, until: float) -> Request:
    """Delete the value and, with its lock, the right of a load under way to store its result."""
    return Request(run_whole_script("cache_invalidate", [key, lock]), 1, key, until)
