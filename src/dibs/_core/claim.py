"""Claims: the record, what a second submission gets, and how work ends.

A claim is a lease whose value also says what was submitted and when:

    5a1f…-2c 9b1e0c4d… 193310c1a40@web-1:4711        running: token, payload's fingerprint, since
    job-17                                            the lines below: its note, if it has one
    dibs1 done 5a1f…-2c job-17 9b1e0c4d…              done: whose, its note (if any), fingerprint;
    dibs1 json - 1731640000.123 0.205                 below it the result, framed as cached values
    {"order": 17}                                     are

The end is one decision for submissions, jobs and runs; the caller does the I/O:

1. `left_by`: how the body ended, and what was chosen for that → what is left.
2. `first_write`, `next_write`: what is left, and what each write has met → the next write, or the
   `EndingVerdict`. A key that is ours or free is written, another's is never touched; a result that
   cannot be stored is replaced by *done*, which is not longer than the stored claim.
"""

import math
import re
from typing import Any, Literal, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from ..errors import Duplicate, Mismatch, Source, UsageError
from .capabilities import Engine, run_whole_script
from .causes import cause_for, code_of_reply
from .codec import frame
from .connection import Outage
from .done_table import Recorded
from .keys import milliseconds
from .lease import WON, HoldCall, Won
from .lease_value import note_in, parts_of, secret_of
from .options import After, ClaimOptions, OnError, Work
from .request import REPEATED, ErrorReply, OddReply, Reply, Request, pack

State = Literal["running", "done"]
How = Literal["returned", "raised", "cancelled", "released", "handed_over"]
"""How a body ended. released: it said that nothing was done. handed_over: it goes on elsewhere."""
Left = Literal["result", "done", "nothing", "untouched"]
"""What work leaves at its key: a record with its result, a record without, no key; or whatever is
there, because it is not over."""

NO_PAYLOAD = b"-"
LONGEST_NOTE = 200
LARGEST_RESULT = 512 * 1024 * 1024 - 1024
"""Bytes: Redis closes the connection on a longer one."""
MOST_KEPT = 1024 * 1024
"""Bytes: a longer result is not kept for the time after an outage; *done* is."""
_DONE = b"dibs1 done "
_RUNNING = re.compile(rb"([^ @]+) ([0-9a-f]{32}|-) ([0-9a-f]{1,12})@")


class ExistingClaim(NamedTuple):
    """The key was claimed before."""

    state: State
    left: float
    """Seconds that the store still keeps it; inf: for ever."""
    fingerprint: bytes = NO_PAYLOAD
    since: float = 0.0
    """running: when it was claimed, by the wall clock of its holder."""
    result: bytes = b""
    """done: the result, framed; nothing where none was kept."""
    note: str | None = None
    value: bytes = b""
    """running: the value of the key."""


class Replay(NamedTuple):
    """It was done; this is what came of it."""

    value: Any


# ---- the record


def running_record(token: bytes, fingerprint: bytes, now: float, note: bytes = b"") -> bytes:
    """Return the value of a running claim, which is unique. *now*: the wall clock."""
    secret, holder, _ = parts_of(token)
    return b"%b %b %x@%b%b" % (secret, fingerprint, int(now * 1000), holder or b"", note)


def with_note(running: bytes, note: bytes) -> bytes:
    """Return the record *running* with another *note*."""
    return running.partition(b"\n")[0] + note


def encoded_note(note: object) -> bytes:
    """Return *note* as the end of a record. Raises UsageError if not a text, or too long."""
    if note is None:
        return b""
    if not isinstance(note, str) or len(note) > LONGEST_NOTE:
        raise UsageError(f"a note must be a text of at most {LONGEST_NOTE} characters, or None")
    try:
        return b"\n" + note.encode()
    except UnicodeEncodeError:
        raise UsageError("a note must be valid Unicode; this one has a lone surrogate") from None


_NOT_QUOTED = "!$&'()*+,-./:;=?@_"
"""What cannot be taken for the end of a word or a line."""


def done_record(running: bytes, result: bytes) -> bytes:
    """Return what takes the claim's place.

    Who was first, with which payload, and with which result.
    """
    secret, fingerprint = secret_of(running), fingerprint_in(running)
    note = note_in(running)
    # Before the fingerprint, because that is the last word for every version.
    # As little as possible is quoted: a record that is longer than its claim loses the note.
    said = b"" if note is None else quote(note, safe=_NOT_QUOTED).encode() + b" "
    return b"%b%b %b%b\n%b" % (_DONE, secret, said, fingerprint, result)


def framed(options: ClaimOptions, value: Any, now: float, took: float) -> bytes:
    """Return the result, as `done_record` wants it.

    Raises UsageError if the codec cannot hold it.
    """
    codec = options.codec
    try:
        data = codec.encode(value)
    except UsageError:
        raise
    except Exception as error:  # pickle, and whatever callers bring, raise what they like
        message = f"{codec.name} cannot encode this result ({type(error).__name__})"
        raise UsageError(f"{message}; pass type= or codec=") from error
    return frame(codec.name, codec.fingerprint, now, took, data)


def _parts_of_running(running: bytes) -> tuple[bytes, bytes, float]:
    """Token, fingerprint and time of a running claim; a plain lease or a foreign value has none."""
    match = _RUNNING.match(running)
    if match is None:
        return running, NO_PAYLOAD, 0.0
    secret, fingerprint, since = match.groups()
    return secret, fingerprint, int(since, 16) / 1000


# ---- claiming


def read_claim(replies: list[Reply], record: bytes) -> Won | ExistingClaim:
    """Ours (free, or our own record: a repeated request), or the existing claim."""
    value, pttl = replies
    if value is None or value == record:
        return WON
    if not isinstance(value, bytes):
        raise OddReply
    return read_record(value, pttl / 1000 if isinstance(pttl, int) and pttl != -1 else math.inf)


def read_record(value: Reply, left: float) -> ExistingClaim:
    """Return what a record says."""
    data, left = value if isinstance(value, bytes) else b"", max(left, 0.0)
    if not data.startswith(_DONE):
        _, fingerprint, since = _parts_of_running(data)
        return ExistingClaim("running", left, fingerprint, since, note=note_in(data), value=data)
    head, _, result = data.partition(b"\n")
    words = head.split(b" ")
    note = unquote_to_bytes(words[3]).decode(errors="replace") if len(words) > 4 else None
    return ExistingClaim("done", left, words[-1], result=result, note=note)


def fingerprint_in(running: bytes) -> bytes:
    """Return the fingerprint of the payload of a running claim."""
    return _parts_of_running(running)[1]


def since_in(running: bytes) -> float:
    """Return when a running claim was claimed, by the wall clock of its process; 0: not known."""
    return _parts_of_running(running)[2]


def answer_duplicate(
    options: ClaimOptions,
    call: HoldCall,
    fingerprint: bytes,
    found: ExistingClaim,
    source: Source = "redis",
) -> Replay | Duplicate | Mismatch:
    """The answer to a second submission."""
    if NO_PAYLOAD not in (fingerprint, found.fingerprint) and fingerprint != found.fingerprint:
        return Mismatch(call.text, call.name)
    if options.after == "replay" and found.result.startswith(options.head):
        try:
            return Replay(options.codec.decode(found.result.partition(b"\n")[2]))
        except Exception:
            pass  # of an older program: what was done is done, we only cannot tell what came of it
    wait = _retry_after(options, found)
    return Duplicate(call.text, wait, found.state, options.message, call.name, found.note, source)


def answer_recorded(
    options: ClaimOptions, call: HoldCall, fingerprint: bytes, recorded: Recorded
) -> Replay | Duplicate | Mismatch:
    """The answer to a second submission of what was committed."""
    seen, result = recorded.fingerprint.encode(), recorded.result or b""
    found = ExistingClaim("done", recorded.left, seen, result=result)
    return answer_duplicate(options, call, fingerprint, found, "table")


_LATE = 0.05
"""Seconds that a renewal may take."""


def seems_dead(options: ClaimOptions, found: ExistingClaim) -> bool:
    """Return whether a running claim was not renewed when it should have been."""
    return found.state == "running" and found.left < options.lease * 2 / 3 - _LATE


def done_elsewhere(
    engine: Engine, key: bytes, found: ExistingClaim, recorded: Recorded
) -> Request | None:
    """Return what the process would have written that made the claim, and has committed *recorded*.

    None: the claim in the store is not the one that was committed.
    """
    if secret_of(found.value).decode() != recorded.token:
        return None
    left = done_record(found.value, recorded.result or b"")
    return complete_request(engine, key, found.value, left, milliseconds(recorded.left), 0.0)


def _retry_after(options: ClaimOptions, found: ExistingClaim) -> float:
    """Return when another attempt makes sense.

    A running claim that will leave its key behind is in the way for a window after its end.
    """
    if found.state == "done" or options.after != "hold" or not found.since:
        return found.left
    return max(found.left, options.window)


# ---- how work ends: what is left


def left_by(
    how: How,
    after: After,
    on_error: OnError = "release",
    *,
    has_result: bool = False,
    work: Work = "submission",
    lost: bool = False,
) -> Left:
    """Return what work leaves that ended so. *lost*: its lease had expired, by the local clock.

    A job or a run whose lease was lost is not done, however it ended: another machine may have it.
    """
    if how == "handed_over":
        return "untouched"
    if how == "released" or (work != "submission" and lost):
        return "nothing"
    if work == "run" and how == "cancelled":  # its machine stops: another one runs it
        return "nothing"
    kept = after if how == "returned" else on_error
    if kept == "release":
        return "nothing"
    return "result" if kept == "replay" and has_result else "done"


def is_run_over(how: How, *, lost: bool) -> bool:
    """Return whether a run is recorded as over; else another machine runs it."""
    return left_by(how, "hold", "hold", work="run", lost=lost) == "done"


# ---- how work ends: how it is written


class ClaimRecord(NamedTuple):
    """What a submission leaves that was done."""

    claim: bytes
    """The value of the key while it ran."""
    result: bytes
    """Its result, framed; b"": none is to be stored."""
    ms: int
    """How long it is kept, from now on."""

    def value(self, left: Left) -> bytes:
        """Return what is written: with the result, or *done* alone, not longer than the claim."""
        if left == "result":
            return done_record(self.claim, self.result)
        done = done_record(self.claim, b"")
        is_short = len(done) <= len(self.claim)
        return done if is_short else done_record(self.claim.partition(b"\n")[0], b"")


class RecordWrite(NamedTuple):
    """One attempt to leave a record in the place of the claim."""

    left: Left
    free_until: int | None = None
    """Also at a free key, until then, in ms of the server's clock. 0: ask for the clock."""
    forced: bool = False
    """Also on a server that is out of memory."""


class NoRoom(Outage):
    """The server has no memory for a write, or its quota is exhausted."""


def no_room(reply: ErrorReply) -> NoRoom | None:
    """Return what *reply* means, if the server has no room for a write.

    It may take a smaller one.
    """
    code = code_of_reply(str(reply))
    return NoRoom(cause_for(code), sent=True) if code in ("oom", "quota") else None


class Met(NamedTuple):
    """What a write has met: it was written, or the key is free or another's, or it was refused."""

    what: Literal["written", "free", "taken", "refused"]
    clock: int = 0
    """free: the server's clock in ms; 0: not known."""


class EndingVerdict(NamedTuple):
    """How a claim ended."""

    kind: Literal["completed", "late"]
    is_reduced: bool = False
    """*done* is stored in place of the result."""
    was_free: bool = False
    """The lease had expired, and the key was free."""

    @property
    def code(self) -> str | None:
        """The code of the cause, where the end was not the usual one."""
        return "not_stored" if self.is_reduced else "expired" if self.was_free else None


COMPLETED = EndingVerdict("completed")
LATE = EndingVerdict("late")
WRITTEN, TAKEN, REFUSED = Met("written"), Met("taken"), Met("refused")


_WRITE_RESULT, _WRITE_DONE = RecordWrite("result"), RecordWrite("done")


def first_write(record: ClaimRecord) -> RecordWrite:
    """Return the result, or *done* if there is none or it is too large."""
    return _WRITE_RESULT if 0 < len(record.result) <= LARGEST_RESULT else _WRITE_DONE


def next_write(
    record: ClaimRecord, write: RecordWrite, met: Met
) -> RecordWrite | EndingVerdict | None:
    """Return what follows. None: it was refused, and nothing smaller can be written."""
    if met is WRITTEN and write is _WRITE_RESULT:  # nearly always
        return COMPLETED
    if met.what == "written":
        is_reduced = bool(record.result) and write.left == "done"
        is_usual = not is_reduced and not write.free_until
        return (
            COMPLETED
            if is_usual
            else EndingVerdict("completed", is_reduced, bool(write.free_until))
        )
    if met.what == "refused" and not write.forced:
        return write._replace(left="done", forced=True)
    if met.what == "refused":  # at a free key: by a user who may not run the script
        return None if write.free_until is None else LATE
    if met.what == "taken" or write.free_until:  # or free, and the time is over
        return LATE
    return write._replace(free_until=met.clock and met.clock + record.ms)


def complete_request(
    engine: Engine, key: bytes, record: bytes, left: bytes, ms: int, until: float
) -> Request:
    """Put *left* in the claim's place, if it still stands; worth delivering until it expires."""
    if engine.set_ifeq:
        # With GET the reply is the old value, whether or not it was replaced (Valkey 9, Redis 8.4).
        payload = pack("SET", key, left, "IFEQ", record, "PX", ms, "GET")
    else:
        payload = run_whole_script("once_complete", [key], record, left, ms)
    return Request(payload, 1, key, until)


def read_complete(reply: Reply, record: bytes, left: bytes) -> bool:
    """Return True if *left* is stored. False: the claim was lost before."""
    # An old value that equals what we leave: the request was repeated, and the first one did it.
    return reply in (1, record, left)


def write_request(
    engine: Engine,
    key: bytes,
    record: ClaimRecord,
    write: RecordWrite,
    value: bytes,
    deadline: float,
) -> Request:
    """Return *write* of *value* as a request. *deadline*: when the lease expires."""
    if write.free_until is None and not write.forced:
        until = deadline if len(value) <= MOST_KEPT else 0.0
        return complete_request(engine, key, record.claim, value, record.ms, until)
    words = (record.claim, value, record.ms, write.free_until or 0, int(write.forced))
    return Request(run_whole_script("once_record", [key], *words), 1, key)


def read_write(write: RecordWrite, record: ClaimRecord, value: bytes, reply: Reply) -> Met:
    """Return what a *write* of *value* has met."""
    if read_complete(reply, record.claim, value):
        return WRITTEN
    if type(reply) is int and reply > 1:
        return Met("free", reply)
    if reply in (None, -2) and write.free_until is None and not write.forced:
        return Met("free")
    if reply in (0, REPEATED) or isinstance(reply, bytes):
        return TAKEN
    raise OddReply  # a free key without the clock would be written again, and again


class DoneRequest(Request):
    """*done* alone, at a key that is ours or free, for when the key cannot be read.

    It lasts until *until*, whenever it is delivered.
    """

    __slots__ = ("_record",)

    def __init__(self, key: bytes, record: ClaimRecord, until: float) -> None:
        words = (record.claim, record.value("done"), record.ms, -1, 1)
        super().__init__(run_whole_script("once_record", [key], *words), 1, key, until)
        self._record = record

    def at(self, now: float) -> Request:
        """Return the request, with the time that is left at *now*."""
        left = self._record._replace(ms=milliseconds(self.until - now))
        return DoneRequest(self.key, left, self.until)


_SENTENCES = {
    "late": "its lease ran out before it ended, and it is not recorded: it may be done twice",
    "expired": "its lease ran out before it ended; the key was free, so it is recorded as done",
    "not_stored": "its result could not be stored (%s); it is recorded as done without it",
}


def warning_for(verdict: EndingVerdict, refusal: object) -> str | None:
    """Return the sentence for the log. None: it ended as usual.

    *refusal*: of the last write, if any.
    """
    code = "late" if verdict.kind == "late" else verdict.code
    if code is None:
        return None
    reason = refusal or f"it has more than {LARGEST_RESULT} bytes"
    return _SENTENCES[code] % reason if code == "not_stored" else _SENTENCES[code]
