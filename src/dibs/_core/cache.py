"""Fresh, stale or missing; who loads, who follows, when to refresh early; requests and readings."""

import math
import re
from typing import Any, Literal, NamedTuple, TypedDict

from ..errors import UsageError
from .codec import FAILURE, MARK, Codec, head_of, make_codec, mark, unframe
from .engine import run_script, run_whole_script
from .keys import Seconds, beside, expand, seconds
from .lease import OutagePolicy
from .request import SIZE, Reply, Request, pack
from .watch import Tracked, Watching, read_watch

MARK_LIFE = 3600.0
"""How long a mark may stand where a leader died; it is in nobody's way."""

# A lease or a running claim (see `make_token` and `running_record`), or what a claim left behind.
_LEASE = re.compile(rb"[0-9a-f]{16,}-[0-9a-f]+[@ ]|dibs1 done ")
HELD = "a lease or a claim holds this key; a cached value needs a key of its own"


class CacheOptions(TypedDict):
    """What `cached` and `get_or_load` are told, all but the type."""

    ttl: Seconds
    jitter: float
    min_ttl: Seconds
    lock_ttl: Seconds
    wait: Seconds | None
    poll: Seconds
    stale: Seconds
    early: float
    negative_ttl: Seconds
    load_timeout: Seconds
    local: Seconds | bool
    codec: object
    on_outage: OutagePolicy


class Recipe(NamedTuple):
    """How a value is kept, as the caller asked for it, checked."""

    name: str
    """What events call it: the template."""
    ttl: float
    jitter: float
    min_ttl: float
    lock_ttl: float
    wait: float
    poll: float
    stale: float
    early: float
    negative_ttl: float
    load_timeout: float
    local: float
    codec: Codec
    head: bytes
    """How the frames begin that we can read."""
    on_outage: OutagePolicy


class Slot(NamedTuple):
    """Where one value lives."""

    key: bytes
    lock: bytes


def slot_of(namespace: str, key: str, lock_key: str | None) -> Slot:
    """Where a value and its lock live. UsageError: a bad key, or one that can have no companion."""
    data = expand(namespace, key)
    if lock_key is not None:
        return Slot(data, expand(namespace, lock_key))
    return Slot(data, beside(f"{namespace}lock:".encode(), data))


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


def make_recipe(
    name: str,
    *,
    ttl: Seconds,
    jitter: float,
    min_ttl: Seconds,
    lock_ttl: Seconds,
    wait: Seconds | None,
    poll: Seconds,
    stale: Seconds,
    early: float,
    negative_ttl: Seconds,
    load_timeout: Seconds,
    local: Seconds | bool,
    codec: object,
    type: Any,
    on_outage: OutagePolicy,
) -> Recipe:
    """The options, checked. UsageError: one of them makes no sense."""
    fresh = seconds(ttl, "ttl")
    if not 0 <= jitter < 1:
        raise UsageError(f"jitter is a part of the ttl, from 0 to below 1, not {jitter!r}")
    if early < 0:
        raise UsageError(f"early is 0 (never) or more (1 is usual), not {early!r}")
    chosen = make_codec(codec, type)
    return Recipe(
        name=name,
        ttl=fresh,
        jitter=float(jitter),
        min_ttl=seconds(min_ttl, "min_ttl", zero=True),
        lock_ttl=seconds(lock_ttl, "lock_ttl"),
        wait=math.inf if wait is None else seconds(wait, "wait", zero=True),
        poll=seconds(poll, "poll"),
        stale=seconds(stale, "stale", zero=True),
        early=float(early),
        negative_ttl=seconds(negative_ttl, "negative_ttl", zero=True),
        load_timeout=seconds(load_timeout, "load_timeout"),
        local=math.inf if local is True else seconds(local or 0, "local", zero=True),
        codec=chosen,
        head=head_of(chosen),
        on_outage=on_outage,
    )


# ---- when


def jittered(recipe: Recipe, chance: float) -> float:
    """How long a value stays fresh: the ttl, give or take; *chance* is between 0 and 1."""
    return max(recipe.ttl * (1 + recipe.jitter * (2 * chance - 1)), recipe.min_ttl)


def is_due_early(reading: Reading, early: float, chance: float) -> bool:
    """Refresh before it ends? The longer its load takes and the nearer the end, the likelier.

    XFetch: at *left* seconds before the end with probability exp(-left / (early × load time)).
    """
    if early <= 0 or reading.state != "fresh":
        return False
    return -reading.took * early * math.log(max(chance, 1e-12)) >= reading.left


# ---- reading

_GET, _PTTL = b"*2\r\n$3\r\nGET\r\n", b"*2\r\n$4\r\nPTTL\r\n"


def read_request(slot: Slot, recipe: Recipe) -> Request:
    """The value; and how long it lives, where that matters."""
    key = slot.key
    word = b"%b%b\r\n" % (SIZE[len(key)], key)
    if recipe.stale or recipe.early or recipe.local:
        return Request(_GET + word + _PTTL + word, 2, key)
    return Request(_GET + word, 1, key)


def read_reply(reply: Reply, recipe: Recipe) -> Reading:
    """What `read_request` found."""
    value, pttl = reply if isinstance(reply, list) else (reply, None)
    return _reading(value, pttl, recipe)


def _reading(data: Reply, pttl: Reply, recipe: Recipe, *, won: bool = False) -> Reading:
    if not isinstance(data, bytes):
        return Reading("missing", won=won)
    if not data.startswith(recipe.head):
        if data.startswith(MARK):
            return _behind_mark(data, pttl, recipe, won=won)
        return _unreadable(data, pttl, recipe, won=won)
    life = _life(pttl, recipe)
    left = life - recipe.stale
    head, newline, payload = data.partition(b"\n")
    if not newline:
        return Reading("poison", life=life, won=won)
    try:
        _, took = map(float, head[len(recipe.head) :].split(b" "))
        value = recipe.codec.decode(payload)
    except Exception:
        return Reading("poison", life=life, won=won)
    return Reading("fresh" if left > 0 else "stale", value, left, life, took, won)


def _life(pttl: Reply, recipe: Recipe) -> float:
    return pttl / 1000 if isinstance(pttl, int) and pttl >= 0 else recipe.ttl


def _behind_mark(data: bytes, pttl: Reply, recipe: Recipe, *, won: bool) -> Reading:
    """The value that `cache_lock.lua` put behind a mark, as long as it lives; or none."""
    head, newline, value = data.partition(b"\n")
    if not newline or not isinstance(pttl, int):  # without its life: the claim will tell
        return Reading("missing", won=won)
    left = pttl - int(head.rpartition(b" ")[2])
    return _reading(value if left > 0 else None, left, recipe, won=won)


def _unreadable(data: bytes, pttl: Reply, recipe: Recipe, *, won: bool) -> Reading:
    """A failure that is remembered, or bytes of another codec, schema, version or program."""
    if _LEASE.match(data):
        return Reading("held")
    life = _life(pttl, recipe)
    left = life - recipe.stale
    entry = unframe(data)
    if entry is not None and entry.codec == FAILURE:
        if left <= 0:
            return Reading("missing", life=life, won=won)
        return Reading("failed", entry.payload.decode(), left, life, won=won)
    return Reading("poison", life=life, won=won)


# ---- following


def follow_request(slot: Slot) -> Request:
    """How long the lock of a load has left; tracked, it registers for the change of its mark.

    Not of the lock: that changes with every renewal, and would wake all who follow.
    """
    return Request(pack("EXISTS", slot.key) + pack("PTTL", slot.lock), 2, slot.key)


def read_follow(answer: Tracked) -> Watching | None:
    """How long the lock is held, and whether we will be told. None: no mark stands for the load."""
    mark, pttl = answer.replies
    return read_watch(Tracked([pttl], answer.tracked)) if mark == 1 else None


def standing_request(slot: Slot) -> Request:
    """Whether a load may still be stored."""
    return Request(pack("EXISTS", slot.key) + pack("GET", slot.lock), 2, slot.key)


def read_standing(replies: list[Reply], token: bytes) -> bool:
    """True: nobody has deleted the value, or taken the lock, of the load with this token."""
    return replies == [1, token]


# ---- claiming


def claim_request(slot: Slot, recipe: Recipe, token: bytes, *, force: bool) -> Request:
    """The value, and the right to load it where it needs to be: one round trip."""
    args = (
        token,
        round(recipe.lock_ttl * 1000),
        round(recipe.stale * 1000),
        b"1" if force else b"0",
        mark(token),
        round(max(MARK_LIFE, 2 * recipe.load_timeout) * 1000),
        round((max(recipe.load_timeout, recipe.lock_ttl) + recipe.lock_ttl) * 1000),
    )
    return Request(run_script("cache_lock", [slot.key, slot.lock], *args), 1, slot.key)


def read_claim(reply: list[Reply], recipe: Recipe) -> Reading:
    """What `claim_request` found, and whether we load."""
    value, left, won = reply
    return _reading(value, left, recipe, won=won == 1)


# ---- storing


def store_request(slot: Slot, token: bytes, data: bytes, life: float) -> Request:
    """Keep the result, if the lock is still ours and nobody deleted the value meanwhile."""
    args = (token, data, max(round(life * 1000), 1))
    return Request(run_script("cache_store", [slot.key, slot.lock], *args), 1, slot.key)


def abandon_request(slot: Slot, token: bytes, until: float) -> Request:
    """The load came to nothing: let somebody else try."""
    script = run_whole_script("cache_unlock", [slot.key, slot.lock], token, mark(token))
    return Request(script, 1, slot.key, until)


def invalidate_request(slot: Slot, until: float) -> Request:
    """Delete the value and, with its lock, the right of a load under way to store its result."""
    return Request(run_whole_script("cache_invalidate", [slot.key, slot.lock]), 1, slot.key, until)
