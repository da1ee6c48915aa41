"""Streams: the record of a run, its items, and what becomes of those who follow it.

Two keys. The *record* says which run is the current one, and whether it is over. The *items* of a
run are one string, which only grows:

    dibs1 stream live 5f… 5f… json - 1731640000.123 0.000 0 worker-3:42
    dibs1 items live 5f1c… 0000000002 0000000000
    7:"Hello"8:" world"!done

The name of the second has the id of the run, so no reader ever sees two runs in one. Its head has
the attempt that may write, and how many items there are; behind it is each item with its length,
and at last how the run ended.
"""

from typing import Any, Final, Literal, NamedTuple, Required

from ..errors import UsageError
from .capabilities import run_script, run_whole_script
from .codec import make_codec
from .connection import Outage
from .keys import Seconds, companion_key, expand, milliseconds, seconds
from .keywords import TypedDict
from .options import OutagePolicy, Settings
from .request import OddReply, Reply, Request, pack, parts_in
from .tracking import Tracked

OnRestart = Literal["raise", "restart", "resume"]

KEPT_MS = 60_000
"""How long the items of a run that is not kept stay for those who read them. They live so much
longer than its process may be silent: a shorter life means that it is."""
_RUN_MS = 86_400_000
"""How long the record of a run stays if the process dies; its items say whether it is alive."""
GRACE = 2.0
"""Seconds for which a run that seems dead is watched before it counts as such: after an outage its
process needs a moment to say that it is alive."""
FLUSH = 0.05
"""Seconds between two writes of what was yielded meanwhile."""
PIECE = 262_144
"""Bytes that are written or read at once, at most."""
AGAIN = 0.25
"""Seconds until the next try, while the store does not answer."""
LOOK_AGAIN = 2.0
"""A push can be lost: how long to trust that none has come, in seconds."""

HELD = "a lease, a claim or a cached value has this key; a stream needs another one"


class StreamKeywords(TypedDict, total=False, closed=True):
    """Options of `streamed`."""

    ttl: Required[Seconds]
    """How long the items are kept, from the end of the run."""
    lease: Seconds
    """How long a crash of the process that runs it, or a loop that is blocked, goes unnoticed."""
    stall: Seconds
    """How long those who follow in other processes wait while Redis is unavailable."""
    most: int
    """Bytes that are kept, at most. A longer run is not stored."""
    on_restart: OnRestart
    """What becomes of those who have received items if the process of the run dies: "raise" raises
    Interrupted, "restart" yields that exception and then another run from its first item, "resume"
    lets another process continue: its function gets the items before as `so_far`."""
    codec: object
    """How an item is encoded: "json", "orjson", "msgspec", "bytes", "pickle", each with "+zlib";
    or an object of your own."""
    type: Any
    """What an item is decoded into. None: what the return annotation says."""
    on_outage: OutagePolicy | None
    """"open" runs it in each process, "closed" raises Unavailable. None: the policy of the
    client."""


class StreamOptions:
    """How a stream is kept. UsageError: an option is invalid."""

    def __init__(
        self,
        settings: Settings,
        *,
        ttl: Seconds,
        lease: Seconds = 5,
        stall: Seconds = 10,
        most: int = 10_000_000,
        on_restart: OnRestart = "raise",
        codec: object = "json",
        type: Any = None,
        on_outage: OutagePolicy | None = None,
    ) -> None:
        self.ttl: Final = seconds(ttl, "ttl")
        self.lease: Final = seconds(lease, "lease")
        self.stall: Final = seconds(stall, "stall")
        if not _is_count(most):
            raise UsageError(f"most must be a number of bytes, 1 or more, not {most!r}")
        self.most: Final = most
        if on_restart not in ("raise", "restart", "resume"):
            raise UsageError(
                f'on_restart must be "raise", "restart" or "resume", not {on_restart!r}'
            )
        self.on_restart: Final[OnRestart] = on_restart
        self.codec: Final = make_codec(codec, type)
        self.on_outage: Final = settings.policy(on_outage)
        self.life_ms: Final = milliseconds(self.lease) + KEPT_MS
        """How long the items of a run live from each sign of life of its process."""


def _is_count(value: object) -> bool:
    return type(value) is int and value > 0


class StreamKeys(NamedTuple):
    """One stream: where its record is, what events call it, and how it is kept."""

    options: StreamOptions
    name: str
    text: str
    """The key as its caller wrote it."""
    key: bytes
    items_prefix: bytes

    def items(self, run: bytes) -> bytes:
        """Return where the items of a run are: in the slot of the record."""
        return b"%b:%b" % (self.items_prefix, run)


def stream_keys(settings: Settings, options: StreamOptions, name: str, text: str) -> StreamKeys:
    """Return where a stream lives. Raises UsageError if a bad key."""
    key = expand(settings.namespace, text)
    prefix = companion_key(f"{settings.namespace}stream:".encode(), key)
    return StreamKeys(options, name, text, key, prefix)


# ---- records

_RECORD, _ITEMS = b"dibs1 stream ", b"dibs1 items "


class StreamRecord(NamedTuple):
    """What is known of the current run of a stream."""

    is_over: bool
    run: bytes
    attempt: bytes
    """The run, or who continues it."""
    codec: bytes
    fingerprint: bytes
    began_at: float
    """Seconds since the epoch, by the clock of its process."""
    took: float
    """How long it took; 0: it is not over."""
    items: int
    """How many items it has yielded; 0: it is not over."""
    holder: bytes
    """Host and process that run it."""

    def encoded(self) -> bytes:
        """Return the record as it is stored."""
        state = b"over" if self.is_over else b"live"
        return b"%b%b %b %b %b %b %.3f %.3f %d %b\n" % (
            _RECORD, state, self.run, self.attempt, self.codec, self.fingerprint,
            self.began_at, self.took, self.items, self.holder,
        )  # fmt: skip

    def fits(self, options: StreamOptions) -> bool:
        """Return whether its items can be read: they have the same codec, and the same type."""
        codec = options.codec
        return (self.codec, self.fingerprint) == (codec.name.encode(), codec.fingerprint.encode())


def new_record(
    options: StreamOptions, run: bytes, attempt: bytes, began_at: float, holder: str
) -> StreamRecord:
    """Return the record of a run, or of who continues it."""
    codec = options.codec
    who = holder.encode(errors="replace").replace(b"\n", b" ")
    return StreamRecord(
        False, run, attempt, codec.name.encode(), codec.fingerprint.encode(), began_at, 0.0, 0, who
    )


def read_record(value: Reply) -> StreamRecord | None:
    """Return the record. None: these bytes are none, or of another version."""
    if not isinstance(value, bytes) or not value.startswith(_RECORD):
        return None
    words = value[len(_RECORD) :].rstrip(b"\n").split(b" ", 8)
    try:
        state, run, attempt, codec, fingerprint, began, took, items, holder = words
        return StreamRecord(
            state == b"over", run, attempt, codec, fingerprint,
            float(began), float(took), int(items), holder,
        )  # fmt: skip
    except ValueError:
        return None


class ItemsHead(NamedTuple):
    """What stands before the items of a run."""

    is_live: bool
    attempt: bytes
    items: int
    begins_at: int
    """The size of the items when the attempt began: what is before it is of earlier ones."""


HEAD_SIZE = 56
"""In bytes; the scripts know it too."""


def items_head(attempt: bytes, begins_at: int = 0, count: int = 0) -> bytes:
    """Return the head of a run that begins, or is continued."""
    return b"%blive %b %010d %010d\n" % (_ITEMS, attempt, count, begins_at)


def read_head(value: Reply) -> ItemsHead | None:
    """Return the head. None: the items are gone, or these bytes are none."""
    if not isinstance(value, bytes) or len(value) != HEAD_SIZE or not value.startswith(_ITEMS):
        return None
    try:
        state, attempt, count, begins_at = value[len(_ITEMS) : -1].split(b" ")
        return ItemsHead(state == b"live", attempt, int(count), int(begins_at))
    except ValueError:
        return None


# ---- items

Ending = tuple[Literal["done", "failed", "too_long"], str]
"""How a run ended; of one that failed, the name of the exception."""

DONE, TOO_LONG = b"!done \n", b"!too_long \n"


def failed_mark(error: BaseException) -> bytes:
    """The end of a run that raised *error*: its type, and nothing that may be secret."""
    return b"!failed %b\n" % type(error).__name__.encode()


def packed_item(payload: bytes) -> bytes:
    """Return one item as it is stored."""
    return b"%d:%b" % (len(payload), payload)


class ItemParser:
    """Items out of bytes that arrive in pieces."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self.ending: Ending | None = None
        """How the run ended, once that has arrived."""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the items that are complete with *data*. Raises OddReply if these are no items."""
        rest = self._rest
        rest += data
        payloads: list[bytes] = []
        at = 0
        while at < len(rest) and self.ending is None:
            if rest[at] == 33:  # an exclamation mark
                end = rest.find(b"\n", at)
                if end < 0:
                    break
                self.ending = _ending(bytes(rest[at + 1 : end]))
                at = end + 1
                continue
            colon = rest.find(b":", at, at + 12)
            if colon < 0:
                if len(rest) - at > 11:
                    raise OddReply
                break
            end = colon + 1 + _size(rest[at:colon])
            if end > len(rest):
                break
            payloads.append(bytes(rest[colon + 1 : end]))
            at = end
        del rest[:at]
        return payloads


def _size(digits: bytearray) -> int:
    if not digits.isdigit():
        raise OddReply
    return int(digits)


def _ending(mark: bytes) -> Ending:
    word, _, what = mark.decode(errors="replace").partition(" ")
    if word not in ("done", "failed", "too_long"):
        raise OddReply
    return word, what


# ---- beginning


class Plan(NamedTuple):
    """A run that is to begin, or to be continued."""

    keys: StreamKeys
    record: StreamRecord

    @property
    def items(self) -> bytes:
        """Return where its items are."""
        return self.keys.items(self.record.run)


class Replaced(NamedTuple):
    """The run that another takes the place of."""

    value: bytes
    """Its record, as the server has it."""
    run: bytes
    is_dead: bool
    """It must still seem dead. False: it cannot be read."""


class Begun(NamedTuple):
    """What the server said to a run that was to begin."""

    is_ours: bool
    value: bytes
    """The record of the current run."""


def begin_request(plan: Plan, replaced: Replaced | None) -> Request:
    """Begin a run, unless there is another one."""
    keys, record = plan.keys, plan.record
    before = plan.items if replaced is None else keys.items(replaced.run)
    limit: bytes | int = KEPT_MS if replaced is not None and replaced.is_dead else b""
    args = (
        record.encoded(),
        _RUN_MS,
        items_head(record.attempt),
        keys.options.life_ms,
        b"" if replaced is None else replaced.value,
        limit,
    )
    return Request(run_script("stream_begin", [keys.key, plan.items, before], *args), 1, keys.key)


def read_begun(reply: Reply) -> Begun:
    """Return what `begin_request` was answered. Raises UsageError if the key is something else."""
    code, value = parts_in(reply)
    if code == -1:
        raise UsageError(HELD)
    if code not in (0, 1) or not isinstance(value, bytes):
        raise OddReply
    return Begun(code == 1, value)


def resume_request(plan: Plan, before: StreamRecord, size: int, count: int) -> Request:
    """Continue a run behind the *size* bytes of its first *count* items."""
    keys, record = plan.keys, plan.record
    args = (
        before.encoded(),
        record.encoded(),
        _RUN_MS,
        items_head(record.attempt, size, count),
        keys.options.life_ms,
        KEPT_MS,
        HEAD_SIZE + size,
    )
    return Request(run_script("stream_resume", [keys.key, plan.items], *args), 1, keys.key)


def record_request(keys: StreamKeys) -> Request:
    """Return the record of a stream."""
    return Request(pack("GET", keys.key), 1, keys.key)


# ---- writing


def append_request(plan: Plan, offset: int, count: int, data: bytes) -> Request:
    """Add *data*, which belongs behind *offset* bytes; with it there are *count* items."""
    args = (plan.record.attempt, offset, b"%010d" % count, plan.keys.options.life_ms, data)
    script = run_script("stream_append", [plan.items], *args)
    return Request(script, 1, plan.keys.key)


def read_appended(reply: Reply) -> int | None:
    """Return how many bytes there are. None: it is not ours to write."""
    if not isinstance(reply, int) or reply < -1:
        raise OddReply
    return None if reply < 0 else reply


class Ended(NamedTuple):
    """What the server said to the end of a run."""

    is_over: bool
    is_kept: bool
    size: int


def end_request(
    plan: Plan, offset: int, count: int, data: bytes, left: StreamRecord | None
) -> Request:
    """End the run: *data* is the rest, with its mark. *left*: the record that is kept, if any."""
    ttl = milliseconds(plan.keys.options.ttl)
    args = (
        plan.record.attempt,
        offset,
        b"%010d" % count,
        data,
        plan.record.encoded(),
        b"" if left is None else left.encoded(),
        ttl,
        ttl + KEPT_MS,
        KEPT_MS,
    )
    script = run_script("stream_end", [plan.items, plan.keys.key], *args)
    return Request(script, 1, plan.keys.key)


def read_ended(reply: Reply) -> Ended:
    """Return whether it is over, and kept."""
    code, size = parts_in(reply)
    if code not in (-1, 0, 1, 2) or not isinstance(size, int):
        raise OddReply
    return Ended(code != 2, code == 1, size)


def leave_request(plan: Plan, until: float) -> Request:
    """Give up a run before its end, also one of which it is not known whether it has begun."""
    args = (plan.record.attempt, plan.record.encoded())
    script = run_whole_script("stream_leave", [plan.items, plan.keys.key], *args)
    return Request(script, 1, plan.keys.key, until)


# ---- reading


def items_request(items: bytes, offset: int) -> Request:
    """Return what is behind *offset* bytes of items, then their head, then how long they live.

    In this order: if the head names the attempt that was known before, the items are of it too.
    """
    start = HEAD_SIZE + offset
    payload = (
        pack("GETRANGE", items, start, start + PIECE - 1)
        + pack("GETRANGE", items, 0, HEAD_SIZE - 1)
        + pack("PTTL", items)
    )
    return Request(payload, 3, items)


class ItemsReading(NamedTuple):
    """What was found of a run."""

    data: bytes
    head: ItemsHead | None
    """None: the items are gone."""
    silence_left: float
    """How long its process may be silent from now on, in seconds. 0 or less: it seems dead."""
    is_tracked: bool


def read_items(answer: Tracked) -> ItemsReading:
    """Return what `items_request` found."""
    data, head, pttl = answer.replies
    if not isinstance(data, bytes) or not isinstance(pttl, int):
        raise OddReply
    left = (pttl - KEPT_MS) / 1000
    return ItemsReading(data, read_head(head), left, answer.tracked)


def is_continued(known: bytes | None, head: ItemsHead, offset: int) -> bool:
    """Whether items behind *offset* belong to those before. False: who continues has had fewer.

    *known*: the attempt that has written those before; None: there are none.
    """
    return known in (None, head.attempt) or offset <= head.begins_at


# ---- what becomes of those who follow


class Lost(Exception):
    """The run goes on no more, or cannot be followed any more."""

    def __init__(self, outage: Outage | None = None) -> None:
        """*outage*: why it cannot be followed. None: its process has died."""
        super().__init__()
        self.outage = outage


def after_loss(on_restart: OnRestart, lost: Lost, received: int) -> Literal["again", "restart"]:
    """Say what a caller does who has received so many items: ask again, or begin anew and say so.

    Raises Lost: tell the caller. Items of two runs are never put together in silence.
    """
    if not received:
        return "again"
    if on_restart == "restart" and lost.outage is None:
        return "restart"
    raise lost


# ---- invalidating, and looking


def invalidate_request(key: bytes, until: float) -> Request:
    """Forget a stream."""
    return Request(run_whole_script("stream_invalidate", [key]), 1, key, until)


def read_invalidated(reply: Reply) -> StreamRecord | None:
    """Return the record that was forgotten, if it was one.

    Raises UsageError if the key is something else.
    """
    if reply == 0:
        raise UsageError(HELD)
    if not isinstance(reply, bytes):
        raise OddReply
    return read_record(reply)


def expire_request(keys: StreamKeys, run: bytes, until: float) -> Request:
    """Let the items of a run go that was forgotten, once those who read them have ended."""
    return Request(pack("PEXPIRE", keys.items(run), KEPT_MS), 1, keys.key, until)


class StreamInfo(NamedTuple):
    """What is stored of a stream."""

    state: Literal["running", "done"]
    items: int
    """How many there are so far."""
    age: float
    """Seconds since the run began."""


def stream_info(record: StreamRecord, reading: ItemsReading, now: float) -> StreamInfo | None:
    """Return what is there. None: its items are gone, or its process is."""
    age = max(now - record.began_at, 0.0)
    if reading.head is None or (not record.is_over and reading.silence_left <= 0):
        return None
    if record.is_over:
        return StreamInfo("done", record.items, age)
    return StreamInfo("running", reading.head.items, age)
