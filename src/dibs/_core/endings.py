"""How work ends: what it leaves at its key, how that is written, and what is reported.

One decision for submissions, jobs and fires; the caller does the I/O:

1. `left_by`: how the body ended, and what was chosen for that → what is left.
2. `first_write`, `next_write`: what is left, and what each write has met → the next write, or the
   `Verdict`. A key that is ours or free is written, another's is never touched; a result that
   cannot be stored is replaced by *done*, which is not longer than the stored claim.
"""

from typing import Literal, NamedTuple

from .capabilities import Engine, run_whole_script
from .causes import cause_for, code_of_reply
from .connection import Outage
from .keys import milliseconds
from .lease import (
    HoldCall,
    LeaseState,
    release_permit,
    release_request,
    shorten_permit,
    shorten_request,
)
from .once import complete_request, done_record, read_complete
from .options import After, OnError, Work
from .request import ErrorReply, Reply, Request

How = Literal["returned", "raised", "cancelled", "released", "handed_over"]
"""How a body ended. released: it said that nothing was done. handed_over: it goes on elsewhere."""
Left = Literal["result", "done", "nothing", "untouched"]
"""What work leaves at its key: a record with its result, a record without, no key; or whatever is
there, because it is not over."""

LARGEST_RESULT = 512 * 1024 * 1024 - 1024
"""Bytes: Redis closes the connection on a longer one."""
MOST_KEPT = 1024 * 1024
"""Bytes: a longer result is not kept for the time after an outage; *done* is."""


# ---- what is left


def left_by(
    how: How,
    after: After,
    on_error: OnError = "release",
    *,
    has_result: bool = False,
    work: Work = "submission",
    lost: bool = False,
) -> Left:
    """What work leaves that ended so. *lost*: its lease had expired, by the local clock.

    A job or a fire whose lease was lost is not done, however it ended: another machine may have it.
    """
    if how == "handed_over":
        return "untouched"
    if how == "released" or (work != "submission" and lost):
        return "nothing"
    if work == "fire" and how == "cancelled":  # its machine stops: another one runs it
        return "nothing"
    kept = after if how == "returned" else on_error
    if kept == "release":
        return "nothing"
    return "result" if kept == "replay" and has_result else "done"


def is_fire_over(how: How, *, lost: bool) -> bool:
    """Whether a fire is recorded as over; else another machine runs it."""
    return left_by(how, "hold", "hold", work="fire", lost=lost) == "done"


# ---- how it is written


class ClaimRecord(NamedTuple):
    """What a submission leaves that was done."""

    claim: bytes
    """The value of the key while it ran."""
    result: bytes
    """Its result, framed; b"": none is to be stored."""
    ms: int
    """How long it is kept, from now on."""

    def value(self, left: Left) -> bytes:
        """What is written: with the result, or *done* alone, not longer than the claim."""
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
    """What *reply* means, if the server has no room for a write: it may take a smaller one."""
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


_RESULT, _DONE = RecordWrite("result"), RecordWrite("done")


def first_write(record: ClaimRecord) -> RecordWrite:
    """The result, or *done* if there is none or it is too large."""
    return _RESULT if 0 < len(record.result) <= LARGEST_RESULT else _DONE


def next_write(
    record: ClaimRecord, write: RecordWrite, met: Met
) -> RecordWrite | EndingVerdict | None:
    """What follows. None: it was refused, and nothing smaller can be written."""
    if met is WRITTEN and write is _RESULT:  # nearly always
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


def write_request(
    engine: Engine,
    key: bytes,
    record: ClaimRecord,
    write: RecordWrite,
    value: bytes,
    deadline: float,
) -> Request:
    """*write* of *value* as a request. *deadline*: when the lease expires."""
    if write.free_until is None and not write.forced:
        until = deadline if len(value) <= MOST_KEPT else 0.0
        return complete_request(engine, key, record.claim, value, record.ms, until)
    words = (record.claim, value, record.ms, write.free_until or 0, int(write.forced))
    return Request(run_whole_script("once_record", [key], *words), 1, key)


def read_write(record: ClaimRecord, value: bytes, reply: Reply) -> Met:
    """What a write of *value* has met."""
    if read_complete(reply, record.claim, value):
        return WRITTEN
    if type(reply) is int and reply > 1:
        return Met("free", reply)
    return Met("free") if reply in (None, -2) else TAKEN


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
        """The request, with the time that is left at *now*."""
        left = self._record._replace(ms=milliseconds(self.until - now))
        return DoneRequest(self.key, left, self.until)


_SENTENCES = {
    "late": "its lease ran out before it ended, and it is not recorded: it may be done twice",
    "expired": "its lease ran out before it ended; the key was free, so it is recorded as done",
    "not_stored": "its result could not be stored (%s); it is recorded as done without it",
}


def warning_for(verdict: EndingVerdict, refusal: object) -> str | None:
    """The sentence for the log. None: it ended as usual. *refusal*: of the last write, if any."""
    code = "late" if verdict.kind == "late" else verdict.code
    if code is None:
        return None
    reason = refusal or f"it has more than {LARGEST_RESULT} bytes"
    return _SENTENCES[code] % reason if code == "not_stored" else _SENTENCES[code]


# ---- leases and permits that leave nothing


def free_request(engine: Engine, call: HoldCall, token: bytes, until: float) -> Request:
    """Give back what *token* holds, if it still does; worth delivering until *until*."""
    if call.options.limit is None:
        return release_request(engine, call.key, token, until)
    return release_permit(call.key, token, until)


def end_request(engine: Engine, lease: LeaseState, now: float) -> Request:
    """Free the key or permit, once its `at_least` is over."""
    key, token, until = lease.call.key, lease.token, lease.deadline
    if lease.stays_until <= now:
        return free_request(engine, lease.call, token, until)
    ms = milliseconds(lease.stays_until - now)
    if lease.call.options.limit is None:
        return shorten_request(engine, key, token, ms, until)
    return shorten_permit(key, token, ms, until)
