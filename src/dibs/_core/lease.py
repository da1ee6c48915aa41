"""Leases and permits: requests, what their replies mean, the state of a lease, its hand-over."""

import functools
import math
import re
from typing import Literal, NamedTuple, Protocol

from ..errors import UsageError
from .capabilities import Engine, run_script, run_whole_script
from .causes import code_of_reply
from .keys import companion_key, milliseconds, public_name
from .lease_value import cooled, holder_in, is_cooling, note_in, parts_of, secret_of
from .options import HoldOptions
from .request import REPEATED, SIZE, ErrorReply, OddReply, Reply, Request, pack, parts_in
from .unit_of_work import Unit

FENCE_LIFE = 3600.0
"""How long a fence counter outlives its lease, in seconds."""
_FENCE_MS = int(FENCE_LIFE * 1000)


HoldState = Literal["held", "cooling"]


class Holding(NamedTuple):
    """The holder of a key, and for how long it still holds it."""

    remaining: float
    """Seconds; inf: the key has no ttl."""
    holder: str | None
    """Host name and process id; None: not written by dibs."""
    note: str | None = None
    """What the holder of a running claim said about it."""
    state: HoldState = "held"
    """"cooling": it was released, and its `at_least` keeps it."""


class HoldCall:
    """What one call asks for: a key, and how to hold it. Nothing in it changes."""

    __slots__ = ("given_name", "key", "options", "text")

    def __init__(self, key: bytes, text: str, given_name: str | None, options: HoldOptions) -> None:
        self.key = key
        """As the server sees it."""
        self.text = text
        """As the caller wrote it."""
        self.given_name = given_name
        """The name that the caller gave; None: none."""
        self.options = options

    @property
    def name(self) -> str:
        """Return what events and sentences may call the key."""
        return public_name(self.text) if self.given_name is None else self.given_name


class GuardedBody(Protocol):
    """The code that runs while a lease is held."""

    def stop(self) -> None:
        """Stop it now."""
        ...


class LeaseState:
    """A key that this process has taken: until when, and whether it still has it.

    By the local clock it is lost a ttl after it was asked for, unless a renewal was confirmed.
    """

    # All fields are set for every lease: a default of the class would be read slower than this.
    __slots__ = (
        "asked_until", "body", "call", "confirmed_at", "deadline", "elsewhere", "entry", "fence",
        "guarded", "home", "is_detached", "is_kept", "is_lost", "is_over", "is_undelivered",
        "since", "stays_until", "successor", "token",
    )  # fmt: skip

    def __init__(self, call: HoldCall, token: bytes, since: float) -> None:
        self.call = call
        self.token = token
        """The value of the key: what proves, at each change, that it is ours."""
        self.entry = call.key if call.options.limit is None else token
        """Its name in the table of leases: a process may have several permits of one key."""
        self.since = self.confirmed_at = since
        """When it was asked for, and when the server last confirmed it."""
        self.deadline = since + call.options.ttl
        """When it is lost, unless a renewal is confirmed before."""
        self.stays_until = 0.0
        """With `at_least`: until when the key stays taken."""
        self.asked_until = 0.0
        """Until when it will be ours if an extension that is under way is confirmed."""
        self.elsewhere = 0.0
        """How long it was held before it was continued here, in seconds."""
        self.fence: int | None = None
        """Grows with each holder of the key; None: none was asked for."""
        self.successor: bytes | None = None
        """What the value of the key is being changed to; whether that was done is not known yet."""
        self.body: GuardedBody | None = None
        """What is stopped when it is lost: a task with `cancel`; None: nothing can be stopped."""
        self.home: Unit | None = None
        """The unit of work with which it ends, if that is not the one around its end."""
        self.guarded = True
        """False: the store was out and the policy let the caller through."""
        self.is_over = False
        """Released, completed, dropped or (in a forked child) the parent's."""
        self.is_lost = False
        """It expired, or the key has another value: found out before it was released."""
        self.is_undelivered = False
        """The store was out when it was released."""
        self.is_kept = False
        """It was released, but its key stays taken for the rest of its `at_least`."""
        self.is_detached = False
        """It was handed over by its token; see `is_lent` for whether it is still renewed here."""

    def continued(self, call: HoldCall, now: float) -> "LeaseState":
        """Return the same lease for *call*, after it was released inside a unit of work."""
        lease = LeaseState(call, self.token, self.since)
        lease.deadline, lease.confirmed_at = self.deadline, self.confirmed_at
        lease.fence, lease.home = self.fence, self.home
        least = call.options.at_least
        lease.stays_until = max(self.stays_until, now + least if least else 0.0)
        return lease

    @property
    def is_lent(self) -> bool:
        """Another process may continue it at any moment; it is renewed here until then."""
        return self.is_detached and not self.is_over

    def is_lost_at(self, now: float) -> bool:
        """Return True if it ended before it was released."""
        if self.is_over or not self.guarded:
            return self.is_lost
        return self.is_lost or now >= self.deadline

    def is_ours(self, value: object) -> bool:
        """Return whether a key with *value* is still this lease's: its note may be another one."""
        if not isinstance(value, bytes):
            return False
        secret = secret_of(value)
        return secret in (secret_of(self.token), secret_of(self.successor or self.token))

    def became(self, value: bytes) -> None:
        """The server has confirmed that the key has *value*, which is ours."""
        self.token = value
        if self.successor == value:
            self.successor = None

    def keep_until(self, deadline: float, now: float) -> None:
        """The server has confirmed, *now*, that it is ours until *deadline*."""
        self.deadline = deadline
        self.confirmed_at = now


class Won(NamedTuple):
    """The key is ours; with a fence, where one was asked for."""

    fence: int | None = None


WON = Won()


# ---- acquire


def acquire_request(engine: Engine, key: bytes, token: bytes, ttl_ms: int) -> Request:
    """Take the key if it is free, and say how long it is taken if it is not: one write."""
    if not engine.set_nx_get:
        return _acquire_by_script(key, token, ttl_ms)
    size = SIZE[len(key)]
    options = _set_options(ttl_ms)
    payload = b"".join(
        (_SET, size, key, b"\r\n", SIZE[len(token)], token, options, size, key, b"\r\n")
    )
    return Request(payload, 2, key)


_SET = b"*7\r\n$3\r\nSET\r\n"


@functools.lru_cache(maxsize=256)
def _set_options(ttl_ms: int) -> bytes:
    """The end of SET and the beginning of PTTL: the same for every key with that ttl."""
    return b"\r\n" + pack("NX", "GET", "PX", ttl_ms)[4:] + b"*2\r\n$4\r\nPTTL\r\n"


def _acquire_by_script(key: bytes, token: bytes, ttl_ms: int) -> Request:
    return Request(run_script("hold_acquire", [key], token, ttl_ms) + pack("PTTL", key), 2, key)


def fenced_request(key: bytes, prefix: bytes, token: bytes, ttl_ms: int) -> Request:
    """Acquire the key, with a fence greater than every earlier one. *prefix*: of the counter."""
    keys = [key, companion_key(prefix, key)]
    script = run_script("hold_acquire_fenced", keys, token, ttl_ms, _FENCE_MS)
    return Request(script + pack("PTTL", key), 2, key)


def read_acquire(replies: list[Reply], token: bytes) -> Won | Holding:
    """Ours (free, or our own token: a repeated request), or another's, and for how long."""
    value, pttl = replies
    if value is None:
        return WON
    fence = None
    if type(value) is list:
        value, fence = value
    if value is None or value == token:
        return WON if fence is None else Won(int(str(fence)))
    return read_holding(value, pttl)


# ---- extend


def extend_request(engine: Engine, key: bytes, token: bytes, ttl_ms: int) -> Request:
    """Keep the key for another *ttl_ms*, if it is still ours; never for less than it has."""
    if not never_shortens(engine):
        return SetExpiry(key, token, ttl_ms)
    return Request(run_script("hold_extend", [key], token, ttl_ms), 1, key)


def never_shortens(engine: Engine) -> bool:
    """Whether a lease keeps the longest life that was confirmed, in whatever order that was."""
    return not engine.set_ifeq or engine.refused.isdisjoint(_EXTEND)


_EXTEND = ("EVAL", "GET", "PEXPIRE")
"""What the script needs; SET alone would shorten a life if an older copy of it came late."""


class SetExpiry(Request):
    """Let the key expire after *ms*, if it is still ours: earlier or later.

    *left* takes the place of its value; then the reply is the value before. A server that is out
    of memory refuses it, because SET writes; it takes the script, which only changes the expiry.
    """

    __slots__ = ("_words",)

    def __init__(
        self, key: bytes, token: bytes, ms: int, until: float = 0.0, left: bytes | None = None
    ) -> None:
        said = () if left is None else ("GET",)
        words = ("SET", key, left or token, "IFEQ", token, *said, "PX", ms)
        super().__init__(pack(*words), 1, key, until)
        self._words = (token, ms, left or token)

    def by_script(self, engine: Engine | None) -> Request | None:
        """Extend it by script. None: this user may not run any."""
        if engine is None or "EVAL" in engine.refused:
            return None
        script = run_whole_script("hold_extend", [self.key], *self._words)
        return Request(script, 1, self.key, self.until)


def read_extend(reply: Reply) -> bool:
    """Return True if kept. False: it is not (or no longer) ours."""
    return reply in (b"OK", "OK", 1, True)


# ---- release

_DELIFEQ = b"*3\r\n$7\r\nDELIFEQ\r\n"


def release_request(engine: Engine, key: bytes, token: bytes, until: float) -> Request:
    """Release the key, if it is still ours; worth delivering until the lease expires.

    The reply is 1: released; anything else: it was not (or no longer) ours.
    """
    if engine.compare_delete == "DELIFEQ":
        payload = b"".join(
            (_DELIFEQ, SIZE[len(key)], key, b"\r\n", SIZE[len(token)], token, b"\r\n")
        )
    elif engine.compare_delete == "DELEX":
        payload = pack("DELEX", key, "IFEQ", token)
    else:
        payload = run_whole_script("hold_release", [key], token)
    return Request(payload, 1, key, until)


def shorten_request(engine: Engine, key: bytes, token: bytes, ms: int, until: float) -> Request:
    """Let the key expire after *ms*, if it is still ours: a release with `at_least`.

    Read the reply with `read_end`. Repeating the request is harmless.
    """
    left = cooled(token)
    if engine.set_ifeq:
        return SetExpiry(key, token, ms, until, left)
    return Request(run_whole_script("hold_extend", [key], token, ms, left), 1, key, until)


def read_end(reply: Reply, token: bytes) -> bool:
    """Return True if it was ours, and is released."""
    return reply in (1, REPEATED, token, cooled(token))


# ---- peek


def value_request(key: bytes) -> Request:
    """Return the value of the key: changes nothing."""
    return Request(pack("GET", key), 1, key)


def peek_request(key: bytes) -> Request:
    """Return who has the key, and for how long: changes nothing."""
    return Request(pack("GET", key) + pack("PTTL", key), 2, key)


def read_peek(replies: list[Reply]) -> Holding | None:
    """Return the holder; None: the key is free."""
    value, pttl = replies
    return None if value is None else read_holding(value, pttl)


def read_holding(value: Reply, pttl: Reply) -> Holding:
    """Return who has the key, and for how long. Raises OddReply if the value is none."""
    if not isinstance(value, bytes):
        raise OddReply
    # PTTL: -2 gone meanwhile, -1 another program set it without a ttl.
    remaining = (
        pttl / 1000 if isinstance(pttl, int) and pttl >= 0 else math.inf if pttl == -1 else 0.0
    )
    return Holding(remaining, holder_in(value), note_in(value), _state(value))


def _state(value: Reply) -> HoldState:
    return "cooling" if isinstance(value, bytes) and is_cooling(value) else "held"


# ---- what an error means


def store_is_out(error: ErrorReply) -> str | None:
    """Return the code of the cause, where the server answers but cannot serve: the policy decides.

    None: the request was a mistake. Asking again cannot help.
    """
    return code_of_reply(str(error))


def is_wrong_type(reply: Reply) -> bool:
    """Return whether the key holds something that is not a string."""
    return isinstance(reply, ErrorReply) and reply.code == "WRONGTYPE"


_COMMAND = re.compile(r"(?:run|use) the '([\w|]+)' command")
_DENIED = (
    "has no permissions",
    "No permissions",
    "can't run this command",
    "can't access at least",
)


ANOTHER_TYPE = (
    "the key holds a value of another type (or is held with and without limit=); "
    "choose another key or namespace"
)


def mistake(error: ErrorReply) -> UsageError:
    """Return the sentence for an error that asking again cannot solve."""
    text = str(error)
    if "WRONGTYPE" in text:  # behind other words, where a script ran into it
        return UsageError(ANOTHER_TYPE)
    if error.code in ("NOAUTH", "WRONGPASS"):
        return UsageError("the server refused the credentials; check user and password in the URL")
    if error.code == "NOPERM" or any(words in text for words in _DENIED):
        match = _COMMAND.search(text)
        what = f"run {match.group(1).upper()}" if match else "do it"
        return UsageError(f"the ACL of this user does not permit it to {what}")
    # What follows may quote the request, and with it the key.
    words = text.partition(", with args")[0]
    return UsageError(f"the server refused the request: {words}")


def about_key(error: UsageError, name: str) -> UsageError:
    """Return *error*, with the name of the key if it is about that."""
    return UsageError(f"{name}: {error}") if str(error) == ANOTHER_TYPE else error


class AllTaken(Holding):
    """All permits are taken: when the first of them expires, and who has it."""

    greatest = b""
    """The greatest expiry of all; another one says that a permit was taken or renewed since."""


# ---- acquire


def script_request(call: HoldCall, token: bytes) -> Request:
    """Return what takes a key that is not taken by SET alone.

    With a fence, or one of its permits.
    """
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
        words = (token, options.ttl_ms, limit, _FENCE_MS)
        return Request(run_script("hold_permit", keys, *words) + pack("PTTL", key), 2, key)
    size = SIZE[len(key)]
    head, tail = _permit_request_parts(options.ttl_ms, limit)
    parts = (head, size, key, b"\r\n", SIZE[len(token)], token, b"\r\n", tail, size, key, b"\r\n")
    return Request(b"".join(parts), 2, key)


def fences_key(options: HoldOptions, key: bytes) -> bytes:
    """Return where the fences of permits are, so that a repeated request gets that of the first."""
    prefix = options.fence_prefix or b""
    return companion_key(prefix.removesuffix(b"fence:") + b"fences:", key)


@functools.lru_cache(maxsize=256)
def _permit_request_parts(ttl_ms: int, limit: int) -> tuple[bytes, bytes]:
    """Return what stands before the key and after the token: the same for every key.

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
    first, pttl, greatest = parts_in(reply)
    refusal = AllTaken(_seconds_left(pttl), holder_in(first), None, _state(first))
    refusal.greatest = greatest if isinstance(greatest, bytes) else b""
    return refusal


def count_request(key: bytes) -> Request:
    """Return how many permits there are, expired ones included.

    Tracked, it registers for a change.
    """
    return Request(pack("ZCARD", key), 1, key)


def is_full(count: int, options: HoldOptions) -> bool:
    """Return whether there is nothing to be had before a change, or an expiry."""
    return options.limit is not None and count >= options.limit


def has_changed(before: Holding | None, now: Holding) -> bool:
    """Return whether a permit was taken or renewed between two refusals."""
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
    """Let a permit expire after *ms*: a release with `at_least`. Read it with `read_end`."""
    script = run_whole_script("hold_permit_extend", [key], token, ms, cooled(token))
    return Request(script, 1, key, until)


_ZREM = b"*3\r\n$4\r\nZREM\r\n"


def release_permit(key: bytes, token: bytes, until: float) -> Request:
    """Release a permit. 1: released; 0: it was not (or no longer) ours."""
    words = (_ZREM, SIZE[len(key)], key, b"\r\n", SIZE[len(token)], token, b"\r\n")
    return Request(b"".join(words), 1, key, until)


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


def peek_permits(key: bytes) -> Request:
    """Return which permit expires first: changes nothing."""
    return Request(run_script("hold_permit_peek", [key]), 1, key)


def read_peek_permits(reply: Reply) -> Holding | None:
    """Return the holder; None: the key is free."""
    if reply is None:
        return None
    token, pttl = parts_in(reply)
    return Holding(_seconds_left(pttl), holder_in(token), None, _state(token))


def _seconds_left(pttl: Reply) -> float:
    return max(pttl, 0) / 1000 if isinstance(pttl, int) else math.inf


Verb = Literal["hold", "claim"]
UNGUARDED = b"unguarded"
"""In place of a secret: the store was out when the key was to be taken."""
_TOKEN = re.compile(r"(hold|claim):([0-9a-f]+-[0-9a-f]+|unguarded)")


class Resumed(NamedTuple):
    """It is continued here: the value of its key, and the fence, if one was asked for."""

    value: bytes
    fence: int | None


class HeldElsewhere(NamedTuple):
    """It cannot be continued: what the key has instead (None: nothing), for how many seconds."""

    value: bytes | None
    left: float


# ---- tokens


def token_for(verb: Verb, secret: bytes) -> str:
    """Return what another process needs to continue it."""
    return f"{verb}:{secret.decode()}"


def secret_in(verb: Verb, token: object) -> bytes:
    """Return the secret in *token*.

    Raises UsageError if it was not made by `detach` of the same verb.
    """
    match = _TOKEN.fullmatch(token) if isinstance(token, str) else None
    if match is None:
        raise UsageError(f"token must be what detach() returned, not {type(token).__name__}")
    if match[1] != verb:
        raise UsageError(f"this is the token of a {match[1]}; continue it with {match[1]}()")
    return match[2].encode()


def with_secret_of(token: bytes, value: bytes) -> bytes:
    """Return *value* with the secret of *token* in place of its own."""
    return secret_of(token) + value[len(secret_of(value)) :]


def lend(lease: LeaseState, verb: Verb) -> str:
    """Return the token with which another process may continue it from now on.

    Until then, or until it is detached, it is renewed here: if this process dies before the
    token is delivered, the key is free after one ttl.
    """
    lease.is_detached = True
    secret = secret_of(lease.token).partition(b"~")[0]  # without what a `resume` noted in it
    return token_for(verb, secret if lease.guarded else UNGUARDED)


# ---- continuing


def resume_request(key: bytes, options: HoldOptions, secret: bytes, token: bytes) -> Request:
    """Continue what *secret* was made for, under *token*, if the key still has that secret."""
    if options.limit is not None:
        return _take_permit(key, options, secret, token)
    new, holder, _ = parts_of(token)
    keys, life_ms = [key], 0
    if options.fence_prefix is not None:
        keys, life_ms = [key, companion_key(options.fence_prefix, key)], _FENCE_MS
    words = (secret, new, holder or b"", options.ttl_ms, life_ms)
    return Request(run_script("hold_resume", keys, *words), 1, key)


def hand_back_request(key: bytes, options: HoldOptions, secret: bytes, token: bytes) -> Request:
    """Undo a `resume_request` whose outcome is not known: *secret* can be continued again."""
    new, holder, _ = parts_of(token)
    if options.limit is not None:
        words = (new, detached_permit(secret), b"", options.ttl_ms, 0, b"undo")
        return Request(run_whole_script("hold_permit_resume", [key], *words), 1, key, math.inf)
    words = (new, secret, holder or b"", options.ttl_ms, 0, b"undo")
    return Request(run_whole_script("hold_resume", [key], *words), 1, key, math.inf)


_DETACHED = b"detached"
"""In place of the holder of a permit that was handed over, so that a secret is all of its token."""


def give_permit_request(lease: LeaseState, secret: bytes, ttl_ms: int, until: float) -> Request:
    """Let *secret* continue a permit, for *ttl_ms*: see `read_resume`."""
    key, words = lease.call.key, (lease.token, secret, _DETACHED, ttl_ms, 0, b"give")
    return Request(run_whole_script("hold_permit_resume", [key], *words), 1, key, until)


def keep_permit_request(lease: LeaseState, secret: bytes) -> Request:
    """Undo a `give_permit_request` whose outcome is not known."""
    key, ttl_ms = lease.call.key, lease.call.options.ttl_ms
    words = (secret, lease.token, b"", ttl_ms, 0, b"undo")
    return Request(run_whole_script("hold_permit_resume", [key], *words), 1, key, lease.deadline)


def detached_permit(secret: bytes) -> bytes:
    """Return the token of a permit that *secret* continues."""
    return secret + b"@" + _DETACHED


def _take_permit(key: bytes, options: HoldOptions, secret: bytes, token: bytes) -> Request:
    new, holder, _ = parts_of(token)
    keys, life_ms, prefix = [key], 0, options.fence_prefix
    if prefix is not None:
        keys, life_ms = [key, companion_key(prefix, key), fences_key(options, key)], _FENCE_MS
    words = (detached_permit(secret), new, holder or b"", options.ttl_ms, life_ms, b"take")
    return Request(run_script("hold_permit_resume", keys, *words), 1, key)


def settle_request(key: bytes, secret: bytes, token: bytes, ms: int) -> Request:
    """Keep what *secret* was made for *ms* longer, and no more: its work was done in an outage.

    Unless it was continued. It is delivered when the store is back.
    """
    new, _, holder = token.partition(b"@")
    words = (secret, new, holder, ms, 0)
    return Request(run_whole_script("hold_resume", [key], *words), 1, key, math.inf)


def read_resume(reply: list[Reply], options: HoldOptions) -> Resumed | HeldElsewhere:
    """Return the continued lease, or who holds the key instead."""
    value, is_ours, number = reply
    data = value if isinstance(value, bytes) else None
    if data is not None and is_ours:
        return Resumed(data, None if options.fence_prefix is None else int(str(number)))
    pttl = number if isinstance(number, int) else 0
    return HeldElsewhere(data, math.inf if pttl == -1 else max(pttl, 0) / 1000)
