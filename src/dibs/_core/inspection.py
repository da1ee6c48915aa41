"""What is on the server, for people: keys of dibs, what each is, and who holds it."""

import hashlib
import math
import re
from collections import Counter
from typing import Final, Literal, NamedTuple, TypeVar, get_args

from ..errors import UsageError
from .cache import load_lock_key
from .capabilities import Engine, run_whole_script
from .causes import cause_for
from .claim import read_record, since_in
from .codec import FAILURE, MARK, unframe
from .connection import Outage
from .keys import companion_key, hash_tag, is_text
from .lease import release_request
from .lease_value import holder_in, is_cooling, note_in, parts_of, secret_of, worker_in
from .request import ErrorReply, OddReply, Reply, Request, pack
from .schedule import KEPT_MS, NEW, read_last, records_key
from .schedule import read_record as read_run
from .stream import HEAD_SIZE, StreamRecord, read_head
from .stream import read_record as read_record_of_stream
from .tracking import WaitingProcess, notes_request, read_notes

KeyKind = Literal[
    "lease", "permits", "claim", "done", "cached", "lock", "schedule", "history", "rate", "waiters",
    "fence", "tag", "stream", "items", "foreign",
]  # fmt: skip
KEY_KINDS: Final[tuple[str, ...]] = get_args(KeyKind)
"""foreign: not written by dibs, as far as its first bytes tell."""

HEAD = 512
"""How many bytes of a value are read; a lease or a claim has fewer, as a rule."""
QUEUE = "job:queue:"
"""Before the key of jobs: those that wait for it."""
QUEUES = "job:queues:"
"""Before a template without its fields: the keys that jobs wait for."""
DONE = "-done"
"""How the token hint of a claim that is done ends."""
_SECRET = re.compile(rb"(?:dibs1 done )?([0-9a-f]{16,}-[0-9a-f]+)(?:~\d+)?[@ ]")
_PERSONAL = re.compile(r"~[0-9a-f]{8}")
_COUNTER = re.compile(rb"\d{1,18}")
_RUN = re.compile(rb"\d{12,15} ")
_VERSION = re.compile(rb"[0-9a-f]{16}")


class Permit(NamedTuple):
    """One of several leases of one key."""

    holder: str | None
    remaining: float
    token_hint: str | None


class ScheduledRun(NamedTuple):
    """A run of a schedule that is over."""

    at: float
    """When it was due, in seconds since the epoch."""
    holder: str
    """Who ran it."""
    outcome: str
    """finished, skipped (it was not run), or failed:<type of the exception>."""
    delay: float
    """How long after `at` it was run, in seconds."""
    took: float
    age: float | None
    """Seconds since `at`, by the server's clock."""


class KeyInfo(NamedTuple):
    """A key of the server, and what it is."""

    key: str
    """Without the namespace. Bytes that are no text are escaped."""
    kind: KeyKind
    state: str
    """lease: held, or cooling (released, and kept by at_least); permits: held; claim: running;
    done: done; cached: value, failed or loading; lock: loading or resting (a load has just
    failed); schedule: recorded, or new (no run is over yet); history: runs; rate: counting;
    waiters: waiting or jobs; fence: counter; tag: version; stream, items: running or done;
    foreign: the type that the server names, or denied (by the ACL)."""
    remaining: float | None = None
    """Seconds that the server keeps it; None: for ever."""
    holder: str | None = None
    """lease, claim, lock, stream: who has or runs it; schedule: who recorded the last run, or the
    beginning."""
    age: float | None = None
    """Seconds since it was claimed, loaded or started (by its holder's clock); None: not known."""
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
    """How many permits are held, processes wait, or items there are."""
    used: int | None = None
    """rate: how many units of it are used up now."""
    loading: str | None = None
    """cached: who loads it now."""
    took: float | None = None
    """cached, stream: how long its load or its run took, in seconds."""
    of: str | None = None
    """lock, fence, waiters, items: the key to which it belongs."""
    runs: tuple[ScheduledRun, ...] = ()
    """schedule: the last runs that are over, the latest first; 50 where one key was asked for,
    else the last one."""
    due: float | None = None
    """schedule: seconds until the run after the last one that is over; negative: it is late."""
    waiters: tuple[WaitingProcess, ...] = ()
    """Processes that wait for the key, the longest first. Only where one key was asked for."""
    worker: str | None = None
    """claim: the id of the worker that has fetched the message of a job, and has not started it.
    Then *holder* is that worker's process."""


# ---- names


MOST_SHOWN: Final = 1_500
"""Characters of a key that are shown. Keys of dibs are shorter; others may have megabytes."""


def cut(key: str) -> str:
    """Return *key*, of which no more than that is shown."""
    return key if len(key) <= MOST_SHOWN else f"{key[: MOST_SHOWN - 1]}…"


def shorten(key: str) -> str:
    """Return a key without what may be personal: `order:42:7` → `order:~1f0c2a9b`.

    What stands before its first colon stays; the digits are the same for the same key. They hide
    it from a glance, not from a reader who tries out keys.
    """
    head, colon, rest = key.partition(":")
    digits = hashlib.sha256((rest if colon else key).encode(errors="replace")).hexdigest()[:8]
    return f"{head}:~{digits}" if colon else f"~{digits}"


def is_shortened(key: str) -> bool:
    """Return whether *key* looks like the result of `shorten`."""
    return _PERSONAL.fullmatch(key.rpartition(":")[2]) is not None


def token_hint(value: bytes) -> str | None:
    """`1f0c2a-3c` for a value or token that begins with `1f0c2a…-3c`: a part of its secret.

    A claim that is done has another one than while it ran: who wants to free a claim that hangs
    does not mean the record of one that was completed meanwhile.
    """
    match = _SECRET.match(value)
    if match is None:
        return None
    process, _, number = match[1].decode().partition("-")
    return f"{process[:6]}-{number}{DONE if value.startswith(b'dibs1 done ') else ''}"


def foreign_hint(value: bytes) -> str | None:
    """Return the hint of a short value that dibs did not write: it counts as held all the same."""
    return None if len(value) >= HEAD else f"#{hashlib.sha256(value).hexdigest()[:8]}"


def proof_in(value: bytes) -> tuple[bytes, bytes] | None:
    """Return the secret of a holding, and how its value begins.

    None: the key is not held by dibs.
    """
    match = _SECRET.match(value)
    return None if match is None else (match[1], match[0])


# ---- what a key is


class KeyReading(NamedTuple):
    """What was read of one key."""

    key: bytes
    kind: Reply
    """Its type, as the server names it."""
    values: list[Reply]
    """The replies to `entry_request`."""
    size: int | None = None


def is_gone(reading: KeyReading) -> bool:
    """Return whether the key ended while it was looked at."""
    return reading.kind in (b"none", "none") or reading.values[:1] == [-2]


def is_denied(reply: Reply) -> bool:
    """Return whether the ACL hides this key, but not every one."""
    first = reply[0] if isinstance(reply, list) and reply else reply
    return isinstance(first, ErrorReply) and first.code == "NOPERM" and "command" not in str(first)


def classify(namespace: str, reading: KeyReading, now: float) -> KeyInfo:
    """Return what a key is. *now*: the server's clock. One bad record must not hide the others."""
    key = _name_within(namespace, reading.key)
    try:
        return _classified_key(namespace, key, reading, now)
    except Exception:
        return KeyInfo(key, "foreign", "unreadable")


def _classified_key(namespace: str, key: str, reading: KeyReading, now: float) -> KeyInfo:
    if is_denied(reading.kind) or is_denied(reading.values):
        return KeyInfo(key, "foreign", "denied")
    pttl, *rest = reading.values
    remaining = pttl / 1000 if isinstance(pttl, int) and pttl >= 0 else None
    kind = reading.kind.decode() if isinstance(reading.kind, bytes) else str(reading.kind)
    match rest:
        case [bytes(head)]:
            size = len(head) if reading.size is None else reading.size
            entry = _string_entry(namespace, key, head, now)._replace(
                remaining=remaining, size=size
            )
            return entry._replace(due=_due_in(entry))
        case [int(), list()] if key.startswith("fences:") and (whose := _owner_key(namespace, key)):
            return KeyInfo(key, "fence", "counter", remaining, of=whose)
        case [int(), list()] if key.startswith("runs:") and (whose := _owner_key(namespace, key)):
            return KeyInfo(key, "history", "runs", remaining, of=whose)
        case [int(count), list()] if key.startswith(QUEUE):
            of = key.removeprefix(QUEUE)
            return KeyInfo(key, "waiters", "jobs", remaining, of=of, taken=count)
        case [int(), list()] if key.startswith(QUEUES):
            return KeyInfo(key, "waiters", "jobs", remaining)
        case [int(count), list()] if key.startswith("waiting:") and (
            whose := _owner_key(namespace, key)
        ):
            return KeyInfo(key, "waiters", "waiting", remaining, of=whose, taken=count)
        case [int(count), list(members)] if _is_window(members):
            return KeyInfo(key, "rate", "counting", remaining, used=count)
        case [int(count), list(members)] if permits := _permits_in(members, now):
            return KeyInfo(key, "permits", "held", remaining, permits=permits, taken=count)
        case _:
            return KeyInfo(key, "foreign", kind, remaining)


def _is_window(members: list[Reply]) -> bool:
    """Return whether a sorted set counts the calls of a window."""
    first = members[0] if members else None
    return isinstance(first, bytes) and re.fullmatch(rb"\d+ [0-9a-f-]+", first) is not None


def _name_within(namespace: str, key: bytes) -> str:
    return key.decode(errors="backslashreplace").removeprefix(namespace)


def _string_entry(namespace: str, key: str, head: bytes, now: float) -> KeyInfo:
    if (stream := read_record_of_stream(head)) is not None:
        return _stream_entry(key, stream, now)
    if (items := read_head(head[:HEAD_SIZE])) is not None:
        state, whose = _STATES[items.is_live], _owner_key(namespace, key.rpartition(":")[0])
        return KeyInfo(key, "items", state, of=whose, taken=items.items)
    if head.startswith(b"dibs1 "):
        return _framed_entry(key, head, now)
    hint = token_hint(head)
    if hint is not None:
        return _held_entry(namespace, key, head, hint, now)
    if key.startswith("scheduled-last:") and _RUN.match(head):
        return _schedule_entry(key, head, now)
    whose = _owner_key(namespace, key)
    if whose is not None and key.startswith("fence:") and _COUNTER.fullmatch(head):
        number = int(head)
        return KeyInfo(
            key, "fence", "counter", age=_age_at(number / 1e6, now), fence=number, of=whose
        )
    if whose is not None and key.startswith("lock:") and head == b"!":
        return KeyInfo(key, "lock", "resting", of=whose)
    if key.startswith("tag:") and _VERSION.fullmatch(head):
        return KeyInfo(key, "tag", "version")
    return KeyInfo(key, "foreign", "string", token_hint=foreign_hint(head))


_STATES = {True: "running", False: "done"}


def _stream_entry(key: str, record: StreamRecord, now: float) -> KeyInfo:
    holder, age = record.holder.decode(errors="replace"), _age_at(record.began_at, now)
    state, took = _STATES[not record.is_over], record.took if record.is_over else None
    return KeyInfo(key, "stream", state, holder=holder, age=age, taken=record.items, took=took)


def _schedule_entry(key: str, head: bytes, now: float) -> KeyInfo:
    """Return the last run of a schedule that is over; or that it is new, and none is."""
    who = head.removesuffix(NEW).split(b" ")[1].decode(errors="replace")
    if head.endswith(NEW):
        return KeyInfo(key, "schedule", "new", holder=who)
    started = (read_last(head) or 0) / 1000
    runs = _recorded_runs([head], now)
    return KeyInfo(key, "schedule", "recorded", holder=who, age=_age_at(started, now), runs=runs)


def _due_in(entry: KeyInfo) -> float | None:
    """Return when the next run is due.

    A record is kept for that time and `KEPT_MS`, from its end on.
    """
    if not entry.runs or entry.remaining is None:
        return None
    last = entry.runs[0]
    return entry.remaining - KEPT_MS / 1000 - last.delay - last.took


def _recorded_runs(values: list[Reply], now: float) -> tuple[ScheduledRun, ...]:
    """Records of runs, the latest first; those of an older version say less."""
    records = [read_run(each) for each in values if isinstance(each, bytes)]
    runs = sorted([each for each in records if each is not None and each.end], reverse=True)
    return tuple([
        ScheduledRun(
            each.run / 1000, each.end.holder, each.end.outcome,
            max(each.end.began - each.run, 0) / 1000, each.end.took_ms / 1000,
            _age_at(each.run / 1000, now),
        )
        for each in runs
        if each.end is not None
    ])  # fmt: skip


def _held_entry(namespace: str, key: str, head: bytes, hint: str, now: float) -> KeyInfo:
    """Return a lease, a running claim, or the lock of a load: they begin with a token."""
    holder, note = holder_in(head), note_in(head)
    words = parts_of(head).words.count(b" ")  # a claim has three, a lock two, a lease one
    whose = _owner_key(namespace, key) if key.startswith("lock:") else None
    if whose is not None and words < 2:
        return KeyInfo(key, "lock", "loading", None, holder, token_hint=hint, of=whose)
    if words:
        age = _age_at(since_in(head), now)
        entry = KeyInfo(key, "claim", "running", None, holder, age, token_hint=hint, note=note)
        return entry._replace(worker=worker_in(head))
    state = "cooling" if is_cooling(head) else "held"
    return KeyInfo(key, "lease", state, None, holder, token_hint=hint, note=note)


def _framed_entry(key: str, head: bytes, now: float) -> KeyInfo:
    """Return what a claim left behind, a cached value, or the mark of a load that is under way."""
    if head.startswith(b"dibs1 done "):
        claim = read_record(head, 0.0)
        frame = unframe(claim.result)
        age = None if frame is None else _age_at(frame.made_at, now)
        return KeyInfo(key, "done", "done", age=age, token_hint=token_hint(head), note=claim.note)
    if head.startswith((b"dibs1 rate ", b"dibs1 quota ")):
        return KeyInfo(key, "rate", "counting", used=_used_units(head, now))
    loading = None
    if head.startswith(MARK):
        mark, _, head = head.partition(b"\n")
        loading = holder_in(mark[len(MARK) :].strip().partition(b" ")[0]) or "?"
    value = unframe(head)
    if value is None:
        info = KeyInfo(key, "cached", "loading", loading=loading)
        return info if loading else KeyInfo(key, "foreign", "string", token_hint=foreign_hint(head))
    state = "loading" if loading else "failed" if value.codec == FAILURE else "value"
    age, took = _age_at(value.made_at, now), value.took if math.isfinite(value.took) else None
    return KeyInfo(key, "cached", state, age=age, loading=loading, took=took)


_RATE = re.compile(rb"dibs1 rate \d+;([\d:,]+)")
_QUOTA = re.compile(rb"dibs1 quota \d+ (\d+)")


def _used_units(head: bytes, now: float) -> int | None:
    """Return how many units of a rate (of several: the fullest) or of a quota are used up.

    None: the record cannot be read.
    """
    if quota := _QUOTA.match(head):
        return int(quota[1])
    rates = _RATE.match(head)
    if rates is None:
        return None
    pairs = [each.split(b":") for each in rates[1].split(b",")]
    return max(math.ceil(max(int(used) - now * 1e6, 0) / max(int(unit), 1)) for unit, used in pairs)


def _permits_in(members: list[Reply], now: float) -> tuple[Permit, ...]:
    """Return the permits of a sorted set; none: it is not one of ours."""
    permits: list[Permit] = []
    for member, score in _member_scores(members):
        hint = token_hint(member)
        if hint is None or not math.isfinite(score):
            return ()
        permits.append(Permit(holder_in(member), max(score / 1000 - now, 0.0), hint))
    return tuple(permits)


def _member_scores(members: list[Reply]) -> list[tuple[bytes, float]]:
    """Return members and scores, also where RESP3 nests them."""
    flat = [each for item in members for each in (item if isinstance(item, list) else [item])]
    names = [name for name in flat[::2] if isinstance(name, bytes)]
    scores = [float(score) for score in flat[1::2] if isinstance(score, bytes | int | float)]
    return list(zip(names, scores, strict=False))


def _owner_key(namespace: str, key: str) -> str | None:
    """Return the key beside which a lock or a fence lives; None: it is neither."""
    _, _, rest = key.partition(":")
    tag = hash_tag(rest.encode(errors="replace"))
    if tag is None:
        return None
    whole = rest[1:-1] if rest.startswith("{") and rest.endswith("}") else rest
    plain = whole.removeprefix(namespace)
    return plain if len(plain) < len(whole) or not namespace else None


def _age_at(since: float, now: float) -> float | None:
    return max(now - since, 0.0) if since > 0 and now > 0 else None


def with_companions(entry: KeyInfo, replies: list[Reply]) -> KeyInfo:
    """Return *entry* with its fence and who loads it, from the replies to `companions_request`."""
    try:
        return _with_companions(entry, replies)
    except Exception:
        return entry


def _with_companions(entry: KeyInfo, replies: list[Reply]) -> KeyInfo:
    time, fence, lock, notes, records = replies
    number = int(fence) if isinstance(fence, bytes) and fence.isdigit() else entry.fence
    loading = holder_in(lock) if entry.kind == "cached" else None
    waiters = read_notes(notes, read_time(time))
    entry = entry._replace(fence=number, loading=loading or entry.loading, waiters=waiters)
    if entry.kind == "schedule" and isinstance(records, list):
        entry = entry._replace(runs=_recorded_runs(records, read_time(time)) or entry.runs)
    if entry.kind == "lease" and entry.fence is not None:
        return entry._replace(age=_age_at(entry.fence / 1e6, read_time(replies[0])))
    return entry


C = TypeVar("C")
_MOST_REPEATS = 10
"""A table that is resized may repeat a cursor; not so often."""


class Scan:
    """The cursors of one look through a server: it must come to an end."""

    def __init__(self) -> None:
        self._seen: Counter[object] = Counter()

    def advanced(self, cursor: C) -> C:
        """Return *cursor*. Raises Outage if it comes back again and again."""
        self._seen[cursor] += 1
        if self._seen[cursor] > _MOST_REPEATS:
            raise Outage(cause_for("protocol", "the server's SCAN does not end"), sent=True)
        return cursor


def read_time(reply: Reply) -> float:
    """Return the server's clock."""
    match reply:
        case [bytes(seconds), bytes(micros)]:
            return int(seconds) + int(micros) / 1e6
        case _:
            return 0.0


PERMITS = 20
"""How many permits of one key are listed."""


class Page(NamedTuple):
    """Some of the keys, and where to go on."""

    entries: list[KeyInfo]
    cursor: str | None
    """For the next page; None: this was the last one."""
    unreachable: str | None = None
    """The node of a cluster whose keys are missing, because it did not answer."""
    why: str = ""
    """… and why it did not."""


class ServerInfo(NamedTuple):
    """What a server says about itself."""

    address: str
    """In a cluster: host and port of the node. Else empty."""
    facts: dict[str, str]
    """The fields of INFO: redis_version, used_memory, maxmemory_policy …"""


def pattern_for(namespace: str, pattern: str) -> bytes:
    """Return what SCAN matches: *pattern* after the namespace, in which nothing is special."""
    if not is_text(pattern):
        raise UsageError("a pattern must be valid Unicode; this one has a lone surrogate")
    return (exactly(namespace) + pattern).encode()


def exactly(text: str) -> str:
    """Return a pattern that matches *text* and nothing else."""
    return re.sub(r"([\\*?\[\]^])", r"\\\1", text)


# ---- requests


def scan_request(cursor: bytes, pattern: bytes, count: int) -> Request:
    """Return the next keys, and the server's clock."""
    return Request(pack("SCAN", cursor, "MATCH", pattern, "COUNT", count) + pack("TIME"), 2, b"")


def read_scan(replies: list[Reply]) -> tuple[bytes, list[bytes], float]:
    """Return the next cursor (0.

    That was all), the keys, and the time in seconds since the epoch.
    """
    match replies:
        case [[bytes(cursor), list(keys)], time]:
            names = [key for key in keys if isinstance(key, bytes)]
            return cursor, list(dict.fromkeys(names)), read_time(time)
        case _:
            raise OddReply


def type_request(key: bytes) -> Request:
    """Return the type of a key."""
    return Request(b"*2\r\n$4\r\nTYPE\r\n$%d\r\n%b\r\n" % (len(key), key), 1, key)


_RANGE = b"*4\r\n$8\r\nGETRANGE\r\n$%d\r\n%b\r\n$1\r\n0\r\n$3\r\n" + b"%d\r\n" % (HEAD - 1)


def entry_request(key: bytes, kind: Reply, now: float) -> Request:
    """Return how long a key of this type is kept, and the beginning of its value."""
    size = len(key)
    ttl = b"*2\r\n$4\r\nPTTL\r\n$%d\r\n%b\r\n" % (size, key)
    if kind in (b"string", "string"):
        return Request(ttl + _RANGE % (size, key), 2, key)
    if kind in (b"zset", "zset"):
        since = b"(%d" % (now * 1000)
        words = ("ZRANGEBYSCORE", key, since, "+inf", "WITHSCORES", "LIMIT", 0, PERMITS)
        return Request(ttl + pack("ZCOUNT", key, since, "+inf") + pack(*words), 3, key)
    return Request(ttl, 1, key)


def next_node(nodes: list[str], cursor: str) -> tuple[str, bytes, str | None]:
    """The node to ask, from where, and the cursor of the node after it (None: it is the last one).

    A cursor is `position@node`; where that node has left the cluster, the next one is begun.
    """
    position, _, node = cursor.partition("@")
    rest = [each for each in nodes if each >= node] or nodes[-1:]
    start = position.encode() if rest[0] == node and position.isdigit() else b"0"
    return rest[0], start, f"0@{rest[1]}" if len(rest) > 1 else None


def is_cut(reply: Reply) -> bool:
    """Return whether a value may be longer than what was read of it."""
    last = reply[-1] if isinstance(reply, list) and reply else None
    return isinstance(last, bytes) and len(last) >= HEAD


def length_request(key: bytes) -> Request:
    """Return the length of a string."""
    return Request(pack("STRLEN", key), 1, key)


def companions_request(namespace: str, key: bytes) -> Request:
    """Reads the keys beside a key, and the server's clock.

    They are its fence, the lock of its load, its waiters, and what a schedule has run.
    """
    fence, lock = companion_key(f"{namespace}fence:".encode(), key), load_lock_key(namespace, key)
    words = pack("TIME") + pack("GETRANGE", fence, 0, 31) + pack("GETRANGE", lock, 0, HEAD - 1)
    records = pack("ZRANGE", records_key(f"{namespace}runs:".encode(), key), 0, -1)
    return Request(words + notes_request(namespace, key) + records, 5, key)


# ---- freeing


ReleaseOutcome = Literal["released", "free", "other"]
"""released · free: the key had no holder · other: it has another holder than given."""


def named_secret(token: str) -> bytes:
    """Return the secret in what a user calls a token: `lease.token`, or what `detach` returned."""
    data = token.strip().encode(errors="replace")
    return secret_of(re.sub(rb"^(hold|claim):", b"", data))


def discard_request(engine: Engine, key: bytes, value: bytes) -> Request:
    """Delete the key if it is still the same holding. The reply is 1: deleted.

    A foreign value must be the same altogether; a note of a claim, for one, may have changed.
    """
    proof = proof_in(value)
    if proof is None:
        return release_request(engine, key, value, 0.0)
    return Request(run_whole_script("inspect_release", [key], proof[1]), 1, key)


def member_request(key: bytes, cursor: bytes) -> Request:
    """Return the next permits of a key."""
    return Request(pack("ZSCAN", key, cursor, "COUNT", 500), 1, key)


def read_members(reply: Reply) -> tuple[bytes, list[bytes]]:
    """Return the next cursor (0: that was all), and tokens."""
    match reply:
        case [bytes(cursor), list(members)]:
            return cursor, [member for member in members[::2] if isinstance(member, bytes)]
        case _:
            raise OddReply


def read_info(reply: Reply) -> dict[str, str]:
    """Return the fields of INFO."""
    text = reply.decode(errors="replace") if isinstance(reply, bytes) else str(reply or "")
    lines = [line.partition(":") for line in text.splitlines() if not line.startswith("#")]
    return {name: value for name, colon, value in lines if colon}
