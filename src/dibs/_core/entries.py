"""What a key of a server is, from its type, its expiry and the first bytes of its value."""

import hashlib
import math
import re
from typing import Final, Literal, NamedTuple, get_args

from .codec import FAILURE, MARK, unframe
from .keys import hash_tag
from .lease import holder_in, note_in, parts_of
from .once import read_record, since_in
from .request import ErrorReply, Reply
from .schedule import NEW, read_last
from .schedule import read_record as read_fire
from .waiting import Waiter, read_notes

Kind = Literal[
    "lease", "permits", "claim", "done", "cached", "lock", "schedule", "history", "rate", "waiters",
    "fence", "tag", "foreign",
]  # fmt: skip
KINDS: Final[tuple[str, ...]] = get_args(Kind)
"""foreign: not written by dibs, as far as its first bytes tell."""

HEAD = 512
"""How many bytes of a value are read; a lease or a claim has fewer, as a rule."""
DONE = "-done"
"""How the token hint of a claim that is done ends."""
_SECRET = re.compile(rb"(?:dibs1 done )?([0-9a-f]{16,}-[0-9a-f]+)(?:~\d+)?[@ ]")
_PERSONAL = re.compile(r"~[0-9a-f]{8}")
_COUNTER = re.compile(rb"\d{1,18}")
_FIRE = re.compile(rb"\d{12,15} ")
_VERSION = re.compile(rb"[0-9a-f]{16}")


class Permit(NamedTuple):
    """One of several leases of one key."""

    holder: str | None
    remaining: float
    token_hint: str | None


class Fire(NamedTuple):
    """A fire of a schedule that is over."""

    at: float
    """When it was due, in seconds since the epoch."""
    holder: str
    """Who ran it."""
    outcome: str
    """finished, skipped (nobody ran it), or failed:<type of the exception>."""
    delay: float
    """How long after `at` it was run, in seconds."""
    took: float
    age: float | None
    """Seconds since `at`, by the server's clock."""


class Entry(NamedTuple):
    """A key of the server, and what it is."""

    key: str
    """Without the namespace. Bytes that are no text are escaped."""
    kind: Kind
    state: str
    """lease, permits: held; claim: running; done: done; cached: value, failed or loading;
    lock: loading or resting (a load has just failed); schedule: recorded, or new (no fire is
    over yet); history: fires; rate: counting; waiters: waiting; fence: counter; tag: version;
    foreign: the type that the server names, or denied (by the ACL)."""
    remaining: float | None = None
    """Seconds that the server keeps it; None: for ever."""
    holder: str | None = None
    """lease, claim, lock: who has it; schedule: who recorded the last fire, or the beginning."""
    age: float | None = None
    """Seconds since it was claimed, loaded or fired (by its holder's clock); None: not known."""
    size: int | None = None
    """Bytes of the value; None: it is no string."""
    token_hint: str | None = None
    """Tells one holding of the key from the next one, without being the proof of ownership."""
    note: str | None = None
    """What the holder of a claim said about it. May hold personal data."""
    fence: int | None = None
    """The last fence of the key. Only where one key was asked for, or the key is a counter."""
    permits: tuple[Permit, ...] = ()
    """The permits that expire first, if several may hold the key."""
    taken: int = 0
    """How many permits are held."""
    loading: str | None = None
    """cached: who loads it now."""
    took: float | None = None
    """cached: how long its load took, in seconds."""
    of: str | None = None
    """lock, fence, waiters: the key to which it belongs."""
    fires: tuple[Fire, ...] = ()
    """schedule: the last fires that are over, the latest first; 50 where one key was asked for,
    else the last one."""
    waiters: tuple[Waiter, ...] = ()
    """Processes that wait for the key, the longest first. Only where one key was asked for."""


# ---- names


MOST_SHOWN: Final = 1_500
"""Characters of a key that are shown. Keys of dibs are shorter; others may have megabytes."""


def cut(key: str) -> str:
    """*key*, of which no more than that is shown."""
    return key if len(key) <= MOST_SHOWN else f"{key[: MOST_SHOWN - 1]}…"


def shorten(key: str) -> str:
    """A key without what may be personal: `order:42:7` → `order:~1f0c2a9b`.

    What stands before its first colon stays; the digits are the same for the same key. They hide
    it from a glance, not from somebody who tries out keys.
    """
    head, colon, rest = key.partition(":")
    digits = hashlib.sha256((rest if colon else key).encode(errors="replace")).hexdigest()[:8]
    return f"{head}:~{digits}" if colon else f"~{digits}"


def printable(text: str) -> str:
    """*text* without characters that a terminal would obey: a key, or a server, may have any."""
    if text.isprintable():
        return text
    return "".join([each if each.isprintable() else repr(each)[1:-1] for each in text])


def is_shortened(key: str) -> bool:
    """Whether *key* looks like the result of `shorten`."""
    return _PERSONAL.fullmatch(key.rpartition(":")[2]) is not None


def token_hint(value: bytes) -> str | None:
    """`1f0c2a-3c` for a value or token that begins with `1f0c2a…-3c`: a part of its secret.

    A claim that is done has another one than while it ran: who wants to free a claim that hangs
    does not mean the record of one that was completed meanwhile.
    """
    found = _SECRET.match(value)
    if found is None:
        return None
    process, _, number = found[1].decode().partition("-")
    return f"{process[:6]}-{number}{DONE if value.startswith(b'dibs1 done ') else ''}"


def foreign_hint(value: bytes) -> str | None:
    """The same for a short value that dibs did not write: it counts as held all the same."""
    return None if len(value) >= HEAD else f"#{hashlib.sha256(value).hexdigest()[:8]}"


def proof_in(value: bytes) -> tuple[bytes, bytes] | None:
    """The secret of a holding, and how its value begins; None: the key is not held by dibs."""
    found = _SECRET.match(value)
    return None if found is None else (found[1], found[0])


# ---- what a key is


class Found(NamedTuple):
    """What was read of one key."""

    key: bytes
    kind: Reply
    """Its type, as the server names it."""
    values: list[Reply]
    """The replies to `value_request`."""
    size: int | None = None


def is_gone(found: Found) -> bool:
    """Whether the key ended while it was looked at."""
    return found.kind in (b"none", "none") or found.values[:1] == [-2]


def is_denied(reply: Reply) -> bool:
    """Whether the ACL hides this key, but not every one."""
    first = reply[0] if isinstance(reply, list) and reply else reply
    return isinstance(first, ErrorReply) and first.code == "NOPERM" and "command" not in str(first)


def classify(namespace: str, found: Found, now: float) -> Entry:
    """What a key is. *now*: the server's clock."""
    key = _name(namespace, found.key)
    if is_denied(found.kind) or is_denied(found.values):
        return Entry(key, "foreign", "denied")
    pttl, *rest = found.values
    left = pttl / 1000 if isinstance(pttl, int) and pttl >= 0 else None
    kind = found.kind.decode() if isinstance(found.kind, bytes) else str(found.kind)
    match rest:
        case [bytes(head)]:
            size = len(head) if found.size is None else found.size
            return _string(namespace, key, head, now)._replace(remaining=left, size=size)
        case [int(), list()] if key.startswith("fences:") and (whose := _owner(namespace, key)):
            return Entry(key, "fence", "counter", left, of=whose)
        case [int(), list()] if key.startswith("fires:") and (whose := _owner(namespace, key)):
            return Entry(key, "history", "fires", left, of=whose)
        case [int(), list()] if key.startswith("waiting:") and (whose := _owner(namespace, key)):
            return Entry(key, "waiters", "waiting", left, of=whose)
        case [int(count), list(members)] if permits := _permits(members, now):
            return Entry(key, "permits", "held", left, permits=permits, taken=count)
        case _:
            return Entry(key, "foreign", kind, left)


def _name(namespace: str, key: bytes) -> str:
    return key.decode(errors="backslashreplace").removeprefix(namespace)


def _string(namespace: str, key: str, head: bytes, now: float) -> Entry:
    if head.startswith(b"dibs1 "):
        return _framed(key, head, now)
    hint = token_hint(head)
    if hint is not None:
        return _held(namespace, key, head, hint, now)
    if key.startswith("scheduled-last:") and _FIRE.match(head):
        return _schedule(key, head, now)
    whose = _owner(namespace, key)
    if whose is not None and key.startswith("fence:") and _COUNTER.fullmatch(head):
        number = int(head)
        return Entry(key, "fence", "counter", age=_age(number / 1e6, now), fence=number, of=whose)
    if whose is not None and key.startswith("lock:") and head == b"!":
        return Entry(key, "lock", "resting", of=whose)
    if key.startswith("tag:") and _VERSION.fullmatch(head):
        return Entry(key, "tag", "version")
    return Entry(key, "foreign", "string", token_hint=foreign_hint(head))


def _schedule(key: str, head: bytes, now: float) -> Entry:
    """The last fire of a schedule that is over; or that it is new, and none is."""
    who = head.removesuffix(NEW).split(b" ")[1].decode(errors="replace")
    if head.endswith(NEW):
        return Entry(key, "schedule", "new", holder=who)
    fired = (read_last(head) or 0) / 1000
    fires = _fires([head], now)
    return Entry(key, "schedule", "recorded", holder=who, age=_age(fired, now), fires=fires)


def _fires(values: list[Reply], now: float) -> tuple[Fire, ...]:
    """Records of fires, the latest first; those of an older version say less."""
    records = [read_fire(each) for each in values if isinstance(each, bytes)]
    found = sorted([each for each in records if each is not None and each.run], reverse=True)
    return tuple([
        Fire(
            each.fire / 1000, each.run.holder, each.run.outcome,
            max(each.run.began - each.fire, 0) / 1000, each.run.took_ms / 1000,
            _age(each.fire / 1000, now),
        )
        for each in found
        if each.run is not None
    ])  # fmt: skip


def _held(namespace: str, key: str, head: bytes, hint: str, now: float) -> Entry:
    """A lease, a running claim, or the lock of a load: they begin with a token."""
    holder, note = holder_in(head), note_in(head)
    words = parts_of(head).words.count(b" ")  # a claim has three, a lock two, a lease one
    whose = _owner(namespace, key) if key.startswith("lock:") else None
    if whose is not None and words < 2:
        return Entry(key, "lock", "loading", None, holder, token_hint=hint, of=whose)
    if words:
        age = _age(since_in(head), now)
        return Entry(key, "claim", "running", None, holder, age, token_hint=hint, note=note)
    return Entry(key, "lease", "held", None, holder, token_hint=hint, note=note)


def _framed(key: str, head: bytes, now: float) -> Entry:
    """What a claim left behind, a cached value, or the mark of a load that is under way."""
    if head.startswith(b"dibs1 done "):
        claim = read_record(head, 0.0)
        made = unframe(claim.result)
        age = None if made is None else _age(made.made_at, now)
        return Entry(key, "done", "done", age=age, token_hint=token_hint(head), note=claim.note)
    if head.startswith(b"dibs1 rate "):
        return Entry(key, "rate", "counting")
    loading = None
    if head.startswith(MARK):
        mark, _, head = head.partition(b"\n")
        loading = holder_in(mark[len(MARK) :].strip().partition(b" ")[0]) or "?"
    value = unframe(head)
    if value is None:
        found = Entry(key, "cached", "loading", loading=loading)
        return found if loading else Entry(key, "foreign", "string", token_hint=foreign_hint(head))
    state = "loading" if loading else "failed" if value.codec == FAILURE else "value"
    age, took = _age(value.made_at, now), value.took if math.isfinite(value.took) else None
    return Entry(key, "cached", state, age=age, loading=loading, took=took)


def _permits(members: list[Reply], now: float) -> tuple[Permit, ...]:
    """The permits of a sorted set; none: it is not one of ours."""
    found: list[Permit] = []
    for member, score in _pairs(members):
        hint = token_hint(member)
        if hint is None or not math.isfinite(score):
            return ()
        found.append(Permit(holder_in(member), max(score / 1000 - now, 0.0), hint))
    return tuple(found)


def _pairs(members: list[Reply]) -> list[tuple[bytes, float]]:
    """Members and scores, also where RESP3 nests them."""
    flat = [each for item in members for each in (item if isinstance(item, list) else [item])]
    names = [name for name in flat[::2] if isinstance(name, bytes)]
    scores = [float(score) for score in flat[1::2] if isinstance(score, bytes | int | float)]
    return list(zip(names, scores, strict=False))


def _owner(namespace: str, key: str) -> str | None:
    """The key beside which a lock or a fence lives; None: it is neither."""
    _, _, rest = key.partition(":")
    tag = hash_tag(rest.encode(errors="replace"))
    if tag is None:
        return None
    whole = rest[1:-1] if rest.startswith("{") and rest.endswith("}") else rest
    plain = whole.removeprefix(namespace)
    return plain if len(plain) < len(whole) or not namespace else None


def _age(since: float, now: float) -> float | None:
    return max(now - since, 0.0) if since > 0 and now > 0 else None


def with_companions(entry: Entry, replies: list[Reply]) -> Entry:
    """*entry* with its fence and who loads it, from the replies to `companions_request`."""
    time, fence, lock, notes, records = replies
    number = int(fence) if isinstance(fence, bytes) and fence.isdigit() else entry.fence
    loading = holder_in(lock) if entry.kind == "cached" else None
    waiters = read_notes(notes, read_time(time))
    entry = entry._replace(fence=number, loading=loading or entry.loading, waiters=waiters)
    if entry.kind == "schedule" and isinstance(records, list):
        entry = entry._replace(fires=_fires(records, read_time(time)) or entry.fires)
    if entry.kind == "lease" and entry.fence is not None:
        return entry._replace(age=_age(entry.fence / 1e6, read_time(replies[0])))
    return entry


def read_time(reply: Reply) -> float:
    """The server's clock."""
    match reply:
        case [bytes(seconds), bytes(micros)]:
            return int(seconds) + int(micros) / 1e6
        case _:
            return 0.0
