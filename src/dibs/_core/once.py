"""Claim, complete, abandon; what a second submission gets.

A claim is a lease whose value also says what was submitted and when:

    5a1f…-2c 9b1e0c4d… 193310c1a40@web-1:4711        running: token, payload's fingerprint, since
    job-17                                            the lines below: its note, if it has one
    dibs1 done 5a1f…-2c job-17 9b1e0c4d…              done: whose, its note (if any), fingerprint;
    dibs1 json - 1731640000.123 0.205                 below it the result, framed as cached values
    {"order": 17}                                     are
"""

import math
import re
from typing import Any, Literal, NamedTuple
from urllib.parse import quote, unquote

from ..errors import Duplicate, Mismatch, Source, UsageError
from .capabilities import Engine, run_whole_script
from .codec import frame
from .lease import WON, HoldCall, Won, note_in, parts_of
from .options import ClaimOptions
from .request import Reply, Request, pack

State = Literal["running", "done"]

NO_PAYLOAD = b"-"
LONGEST_NOTE = 200
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


class Replay(NamedTuple):
    """It was done; this is what came of it."""

    value: Any


# ---- the record


def running_record(token: bytes, fingerprint: bytes, now: float, note: bytes = b"") -> bytes:
    """The value of a running claim, which is unique. *now*: the wall clock."""
    secret, holder, _ = parts_of(token)
    return b"%b %b %x@%b%b" % (secret, fingerprint, int(now * 1000), holder or b"", note)


def with_note(running: bytes, note: bytes) -> bytes:
    """The record *running* with another *note*."""
    return running.partition(b"\n")[0] + note


def encoded_note(note: object) -> bytes:
    """*note* as the end of a record. UsageError: not a text, or too long."""
    if note is None:
        return b""
    if not isinstance(note, str) or len(note) > LONGEST_NOTE:
        raise UsageError(f"a note must be a text of at most {LONGEST_NOTE} characters, or None")
    try:
        return b"\n" + note.encode()
    except UnicodeEncodeError:
        raise UsageError("a note must be valid Unicode; this one has a lone surrogate") from None


def done_record(running: bytes, result: bytes) -> bytes:
    """What takes the claim's place: who was first, with which payload, and what came of it."""
    secret, fingerprint, _ = running.split(b" ", 2)
    note = note_in(running)
    # Before the fingerprint, because that is the last word for every version.
    said = b"" if note is None else quote(note, safe="").encode() + b" "
    return b"%b%b %b%b\n%b" % (_DONE, secret, said, fingerprint, result)


def framed(options: ClaimOptions, value: Any, now: float, took: float) -> bytes:
    """The result, as `done_record` wants it. UsageError: the codec cannot hold it."""
    codec = options.codec
    try:
        data = codec.encode(value)
    except UsageError:
        raise
    except Exception as error:  # pickle, and whatever callers bring, raise what they like
        message = f"{codec.name} cannot encode this result ({type(error).__name__})"
        raise UsageError(f"{message}; pass type= or codec=") from error
    return frame(codec.name, codec.fingerprint, now, took, data)


def _words(running: bytes) -> tuple[bytes, bytes, float]:
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
    return read_record(value, pttl / 1000 if isinstance(pttl, int) and pttl != -1 else math.inf)


def read_record(value: Reply, left: float) -> ExistingClaim:
    """What a record says."""
    data, left = value if isinstance(value, bytes) else b"", max(left, 0.0)
    if not data.startswith(_DONE):
        _, fingerprint, since = _words(data)
        return ExistingClaim("running", left, fingerprint, since, note=note_in(data))
    head, _, result = data.partition(b"\n")
    words = head.split(b" ")
    note = unquote(words[3].decode()) if len(words) > 4 else None
    return ExistingClaim("done", left, words[-1], result=result, note=note)


def fingerprint_in(running: bytes) -> bytes:
    """The fingerprint of the payload of a running claim."""
    return _words(running)[1]


def since_in(running: bytes) -> float:
    """When a running claim was claimed, by the wall clock of its process; 0: not known."""
    return _words(running)[2]


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


def _retry_after(options: ClaimOptions, found: ExistingClaim) -> float:
    """When another attempt makes sense.

    A running claim that will leave its key behind is in the way for a window after its end.
    """
    if found.state == "done" or options.after != "hold" or not found.since:
        return found.left
    return max(found.left, options.window)


# ---- completing


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
    """True: *left* is stored. False: the claim was lost before."""
    # An old value that equals what we leave: the request was repeated, and the first one did it.
    return reply in (1, record, left)
