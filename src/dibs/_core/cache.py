"""Cached values: entries, their ages, their tags, and copies in this process.

A delete during a load:

    0.0  P1 finds no value. `cache_lock` puts a mark where the value will be and gives P1 the lock.
    0.1  P1 reads the database: the old price.
    0.2  P2 writes the new price, and deletes the value (a plain `DEL` does): the mark is gone.
    0.3  P1 stores: `cache_store` finds no mark, and does not keep the old price. Its callers get
         it; those that came after 0.0 ask once more, because the `as_of` of the load is older.
    0.4  P3 finds no value, and loads the new price.

A lock without a mark would store the old price at 0.3, for the whole of its ttl.
"""

import inspect
import math
import re
from collections.abc import Callable, Iterable
from typing import Any, Final, Generic, Literal, NamedTuple, Protocol, TypeVar, cast

from ..errors import UsageError
from .capabilities import run_script, run_whole_script
from .causes import Absent
from .codec import FAILURE, MARK, loading_mark, unframe
from .keys import Template, companion_key, expand, roots_of
from .lease import ANOTHER_TYPE
from .options import CacheOptions, Settings
from .request import SIZE, OddReply, Reply, Request, pack, parts_in
from .signatures import signature_of
from .tracking import Tracked, Watching, read_watch


class Waiting(Protocol):
    """A piece of work that may wait for another one."""

    @property
    def awaits(self) -> "Waiting | None":
        """The one that it waits for."""
        ...


def refuse_cycle(flight: Waiting) -> None:
    """Raise UsageError if what *flight* waits for waits, in the end, for *flight* itself.

    With threads two flights may begin to wait for each other at the same time. Each says whom it
    waits for before it looks, so at least one of them sees the other.
    """
    seen: list[Waiting] = [flight]
    at = flight.awaits
    while at is not None and at is not flight:
        if any(at is each for each in seen):
            return  # others go round in a circle, and have got the error
        seen.append(at)
        at = at.awaits
    if at is flight:
        raise UsageError("the load of this value requests the value itself: a deadlock")


Versions = list[bytes | None]
"""One for each tag, in order. None: there is none, and no value fits."""
UNTAGGED: Versions = []

TAG_NAME = "tag:*"
"""What events call a tag: it may hold personal data."""

TAKEN = "the key of a tag is a lease, a claim or something else; choose another tag or namespace"

TAG_LIFE = 86_400.0
"""How long a version lives after the last load with it, at least: outdated values are misses."""


def checked_tags(tags: object) -> tuple[str, ...]:
    """Return *tags* as a tuple. Raises UsageError if it is no list of strings."""
    if isinstance(tags, str) or not isinstance(tags, Iterable):
        raise UsageError(f"tags must be a list of strings, such as ['branch:7'], not {tags!r}")
    listed = list(cast("Iterable[Any]", tags))
    if not all(isinstance(tag, str) and tag for tag in listed):
        raise UsageError("a tag must be a non-empty string")
    return tuple(dict.fromkeys(listed))


def tag_key(namespace: str, tag: object) -> bytes:
    """Where the version of a tag lives. UsageError: empty, too long, or not a string."""
    if not isinstance(tag, str) or not tag:
        raise UsageError("a tag must be a non-empty string")
    return expand(namespace, f"tag:{tag}")


def tag_keys(namespace: str, tags: Iterable[str]) -> tuple[bytes, ...]:
    """Return where the versions of some tags live."""
    return tuple([tag_key(namespace, tag) for tag in tags])


def version_request(key: bytes) -> Request:
    """Return the version of a tag; tracked, it registers for its change."""
    return Request(pack("GET", key), 1, key)


def tag_version_request(key: bytes, version: bytes, life: float) -> Request:
    """Return the version of a tag for a load that begins: the stored one, or else *version*."""
    args = (version, round(max(2 * life, TAG_LIFE) * 1000))
    return Request(run_script("cache_tag", [key], *args), 1, key)


def read_versions(replies: list[Reply]) -> Versions:
    """Return what those requests found."""
    return [reply if isinstance(reply, bytes) else None for reply in replies]


def read_begun(replies: list[Any]) -> Versions:
    """Return what `begin_request` found. UsageError: a tag's key is another thing, or is refused.

    A reply that is a UsageError says what the server refused.
    """
    for reply in replies:
        if reply == 0 or (isinstance(reply, UsageError) and str(reply) == ANOTHER_TYPE):
            raise UsageError(TAKEN)
        if isinstance(reply, UsageError):
            raise reply
    return read_versions(replies)


MOST_LOCAL_VALUES = 10_000
"""Values that are remembered at most; the oldest goes first."""

LONGEST_LOCK_PAUSE = 0.5
"""Seconds without a look whether changes were missed, after which the next reader looks."""

ABSENT: Any = object()
"""Not None: that is a value like any other."""

Ticket = Callable[[], None]
"""Taken before the store is asked, one for each question; called when the key changes."""


class LocalValue(NamedTuple):
    """A value, until when it may be served, and the ticket with which it came."""

    value: Any
    until: float
    ticket: Ticket


class Local:
    """Key → value, until a time, or until the server reports a change.

    Any thread may forget at any moment. Hence the order in `put` (the value, then the look at its
    ticket) and in `forget` (the ticket, then the value): one of the two always sees the other.
    """

    def __init__(self, is_behind: Callable[[float], bool], most: int = MOST_LOCAL_VALUES) -> None:
        """*is_behind*: whether the server may have reported changes that were not read yet.

        That is so after a pause of this process.
        """
        self._is_behind = is_behind
        self._asked_at = 0.0
        self._most = most
        self._values: dict[bytes, LocalValue] = {}
        self._tickets: dict[bytes, Ticket] = {}

    def get(self, key: bytes, now: float) -> Any:
        """Return the value; ABSENT: ask the store."""
        entry = self._values.get(key)
        if entry is None or entry[1] <= now:
            return ABSENT
        if now - self._asked_at > LONGEST_LOCK_PAUSE:
            if self._is_behind(now):
                return ABSENT
            self._asked_at = now
        return entry[0]

    def ask(self, key: bytes, ticket: Ticket) -> None:
        """The store is about to be asked; its answer comes with this ticket."""
        self._tickets[key] = ticket

    def drop(self, key: bytes, ticket: Ticket) -> None:
        """The answer that came with this ticket is not to be remembered."""
        if self._tickets.get(key) is ticket:
            self._tickets.pop(key, None)

    def put(
        self, key: bytes, value: Any, until: float, ticket: Ticket
    ) -> list[tuple[bytes, Ticket]]:
        """Remember it, unless it changed since the ticket was taken.

        Returns the keys and tickets that are of no further use.
        """
        if self._tickets.get(key) is not ticket:
            return [(key, ticket)]
        old = self._values.pop(key, None)
        entry = self._values[key] = LocalValue(value, until, ticket)
        gone = [] if old is None else [(key, old.ticket)]
        if self._tickets.get(key) is not ticket:  # it changed in between
            if self._values.get(key) is entry:
                self._values.pop(key, None)
            return [*gone, (key, ticket)]
        if len(self._values) > self._most:
            gone += self._oldest_out()
        return gone

    def _oldest_out(self) -> list[tuple[bytes, Ticket]]:
        try:
            key = next(iter(self._values))
        except (RuntimeError, StopIteration):  # other threads are at it as well
            return []
        self._tickets.pop(key, None)
        old = self._values.pop(key, None)
        return [] if old is None else [(key, old.ticket)]

    def forget(self, key: bytes) -> None:
        """It changed, or may have: whatever was asked for before now is not remembered either."""
        self._tickets.pop(key, None)
        self._values.pop(key, None)


_STARS = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


class ItemTemplate:
    """`menu:{branch_id}` for a function of many `branch_ids`: a key for each item of a list.

    The list is the first parameter of the function. The one field that is no parameter stands for
    an item of it; all others are filled from the call's arguments. UsageError: there is no such
    field, or more than one.
    """

    def __init__(self, text: str, function: Callable[..., Any]) -> None:
        self.text = text
        parameters = signature_of(function).parameters
        names = [name for name in parameters if name not in ("self", "cls")]
        self._where = getattr(function, "__qualname__", repr(function))
        if not names:
            raise UsageError(f"{text!r}: {self._where}() has no parameter for a list of items")
        self.parameter = names[0]
        stars = _STARS.get(parameters[self.parameter].kind)
        if stars is not None:
            message = "the first parameter must be the list of items"
            raise UsageError(f"{text!r}: {message}, not {stars}{self.parameter}")
        self._place = list(parameters).index(self.parameter)
        self._item = _field_of_items(text, self._where, list(parameters), self.parameter)
        self._of_one = _of_one(function, self.parameter, self._item)
        self._key_of = Template(text, self._of_one)

    def for_items(self, text: str) -> Template:
        """Return another template for the same items; called with `of_item`."""
        return Template(text, self._of_one)

    def items(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """The items of a call, each once. TypeError: none are given, or one cannot be hashed."""
        if self.parameter in kwargs:
            given = kwargs[self.parameter]
        elif len(args) > self._place:
            given = args[self._place]
        else:
            raise TypeError(f"{self._where}() missing its list of items, {self.parameter!r}")
        if isinstance(given, str | bytes) or not isinstance(given, Iterable):
            kind = type(given).__name__
            raise UsageError(f"{self.text!r}: {self.parameter} must be a list of items, not {kind}")
        return list(dict.fromkeys(cast("Iterable[Any]", given)))

    def key(self, item: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """The key of one item. UsageError: a field is missing, None, empty or not plain."""
        return self._key_of(*self.of_item(item, args, kwargs))

    def of_item(
        self, item: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a call for one item."""
        return self._with_argument(self._item, item, args, kwargs)

    def arguments(
        self, items: list[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of the call, for other items."""
        return self._with_argument(self.parameter, items, args, kwargs)

    def _with_argument(
        self, name: str, value: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if len(args) > self._place:
            return (*args[: self._place], value, *args[self._place + 1 :]), kwargs
        rest = {each: given for each, given in kwargs.items() if each != self.parameter}
        return args, {**rest, name: value}


def _field_of_items(text: str, where: str, parameters: list[str], listed: str) -> str:
    unknown = [root for root in roots_of(text) if root not in parameters]
    if listed in roots_of(text):
        raise UsageError(f"{text!r}: name one item of {listed!r}, not the list: {{item}}")
    if len(unknown) != 1:
        message = f"exactly one field must stand for an item of {listed!r}"
        raise UsageError(f"{text!r}: {message} of {where}(), and be no parameter; found {unknown}")
    return unknown[0]


def _of_one(function: Callable[..., Any], listed: str, item: str) -> Callable[..., Any]:
    """Return a function like *function*, of one item in place of the list."""
    signature = signature_of(function)
    parameters = [
        parameter.replace(name=item) if parameter.name == listed else parameter
        for parameter in signature.parameters.values()
    ]

    def of_one() -> None: ...

    of_one.__qualname__ = getattr(function, "__qualname__", "function")
    setattr(of_one, "__signature__", signature.replace(parameters=parameters))  # noqa: B010
    return of_one


DAY = 86_400.0
"""For how long a delete is still delivered after an outage, if the ttl is not known."""
MARK_LIFE = 3600.0
"""How long a mark may stand where a leader died; it blocks no caller."""

# A lease or a running claim (see `token_maker` and `running_record`), or what a claim left behind.
_LEASE = re.compile(rb"[0-9a-f]{16,}-[0-9a-f]+[@ ]|dibs1 done ")
_MOST_KEYS = 10_000
"""Keys whose place in the store is remembered for each function; working it out is not cheap."""
HELD = "a lease or a claim holds this key; a cached value needs another key"


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
    """Return where a value, its lock and its tags live. Raises UsageError if a bad key or tag."""
    namespace = settings.namespace
    data = expand(namespace, key)
    lock = load_lock_key(namespace, data) if lock_key is None else expand(namespace, lock_key)
    return CacheKeys(options, name, data, lock, tag_keys(namespace, tags))


def load_lock_key(namespace: str, key: bytes) -> bytes:
    """Return the key that is locked during a load, if the caller names no other."""
    return companion_key(f"{namespace}lock:".encode(), key)


class LoadRequest(NamedTuple):
    """One value that is wanted, and how to load it."""

    keys: CacheKeys
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def options(self) -> CacheOptions:
        """Return how the value is kept."""
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


ValueState = Literal["fresh", "stale", "missing", "poison", "failed", "held", "outdated"]
"""outdated: one of its tags was invalidated."""


class Reading(NamedTuple):
    """What the store had, and whether it is ours to load."""

    state: ValueState
    value: Any = None
    left: float = 0.0
    """Seconds that it stays fresh (negative: that it has been stale)."""
    life: float = 0.0
    """Seconds that the store keeps it."""
    took: float = 0.0
    """How long its load took."""
    won: bool = False
    made_at: float = 0.0
    """When it was loaded, in seconds since the epoch, by the clock of its process."""
    head: bytes = b""
    """outdated: the line about it, by which it is known again."""
    resting: bool = False
    """A load has just failed, and no process tries again for a while."""
    lock: bytes = b""
    """won: the lock, as the server has it. Only the execution that took it knows it."""
    is_foreign: bool = False
    """The lock is not that of a load: another program wrote it, or it has no ttl."""


def is_served(reading: Reading, options: CacheOptions) -> bool:
    """Return True if the value is fresh, or old where callers do not wait for a fresh one."""
    is_old = reading.state == "stale" and (reading.resting or not options.stale_after)
    return reading.state == "fresh" or is_old


class LoadClaim(NamedTuple):
    """A value that is ours to load."""

    request: LoadRequest
    token: bytes
    reading: Reading
    """What the claim has read."""

    @property
    def lock(self) -> bytes:
        """Return what must be the lock's value when the result is stored."""
        return self.reading.lock


class LoadAnswer(NamedTuple):
    """What a flight found, for all who joined it."""

    value: Any
    as_of: float
    """No change of the value that was complete before this (local) time was missed."""
    kind: Literal["waited", "hit", "stale"] = "waited"
    """The event of those who join: a load was waited for, or a value was there."""


def answer_in(result: Any, key: bytes) -> LoadAnswer | None:
    """Return what a flight found for *key*; None: ask again. Raises what its load raised for it."""
    answer = result if isinstance(result, LoadAnswer) else result.get(key)
    if isinstance(answer, Exception):
        raise answer
    return answer


# ---- when


def jittered(options: CacheOptions, chance: float, ttl: float | None = None) -> float:
    """Return how long a value stays fresh: the ttl, give or take; *chance* is between 0 and 1.

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
    """Return the value; and how long it lives, where that matters."""
    word = b"%b%b\r\n" % (SIZE[len(key)], key)
    if options.stale or options.early or options.local:
        return Request(_GET + word + _PTTL + word, 2, key)
    return Request(_GET + word, 1, key)


def read_reply(reply: Reply, options: CacheOptions, versions: Versions = UNTAGGED) -> Reading:
    """Return what `read_request` found. *versions*: those of its tags, now."""
    value, pttl = reply if isinstance(reply, list) else (reply, None)
    return _reading_of(value, pttl, options, versions)


def _reading_of(
    data: Reply, pttl: Reply, options: CacheOptions, versions: Versions, *, won: bool = False
) -> Reading:
    if not isinstance(data, bytes):
        if data:  # None, or a script's false: there is no value
            raise OddReply
        return Reading("missing", won=won)
    try:
        if not data.startswith(options.head):
            if data.startswith(MARK):
                return _behind_mark(data, pttl, options, versions, won=won)
            return _reading_of_unreadable(data, pttl, options, versions, won=won)
        life = _time_to_live(pttl, options)
        left = life - options.stale
        head, newline, payload = data.partition(b"\n")
        if not newline:
            return Reading("poison", life=life, won=won)
        made_at, took, *tagged = head[len(options.head) :].split(b" ")
        if tagged != versions:
            return Reading("outdated", life=life, won=won, head=head + newline)
        value = options.codec.decode(payload)
        state = "fresh" if left > 0 else "stale"
        return Reading(state, value, left, life, float(took), won, float(made_at))
    except Exception:  # whatever is wrong with these bytes: they are no value
        return Reading("poison", life=options.ttl, won=won)


def _time_to_live(pttl: Reply, options: CacheOptions) -> float:
    return pttl / 1000 if isinstance(pttl, int) and pttl >= 0 else options.ttl


def _behind_mark(
    data: bytes, pttl: Reply, options: CacheOptions, versions: Versions, *, won: bool
) -> Reading:
    """Return the value that `cache_lock.lua` put behind a mark, as long as it lives; or none."""
    head, newline, value = data.partition(b"\n")
    if not newline or not isinstance(pttl, int):  # without its life: the claim will tell
        return Reading("missing", won=won)
    left = pttl - int(head.rpartition(b" ")[2])
    return _reading_of(value if left > 0 else None, left, options, versions, won=won)


def _reading_of_unreadable(
    data: bytes, pttl: Reply, options: CacheOptions, versions: Versions, *, won: bool
) -> Reading:
    """A failure that is remembered, or bytes of another codec, schema, version or program."""
    if _LEASE.match(data):
        return Reading("held")
    life = _time_to_live(pttl, options)
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


def stored_request(keys: CacheKeys) -> Request:
    """Return the value, and how long it lives."""
    return Request(pack("GET", keys.key) + pack("PTTL", keys.key), 2, keys.key)


def read_stored(
    reply: Reply, options: CacheOptions, versions: Versions, now: float
) -> Found[Any] | None:
    """Return what `stored_request` found. Raises UsageError if the key is a lease's."""
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
    loading_mark, pttl = answer.replies
    return read_watch(Tracked([pttl], answer.tracked)) if loading_mark == 1 else None


def validity_request(keys: CacheKeys) -> Request:
    """Return whether a load may still be stored."""
    return Request(pack("EXISTS", keys.key) + pack("GET", keys.lock), 2, keys.key)


def read_validity(replies: list[Reply], lock: bytes) -> bool:
    """Return True if the load with this lock still has it, and its value was not deleted."""
    return replies == [1, lock]


# ---- locking


IF_NEEDED, ALWAYS = b"0", b"1"
"""When to load: where there is no fresh value, or in any case. (Or: where a value begins so.)"""


def lock_request(keys: CacheKeys, token: bytes, when: bytes) -> Request:
    """Return the value, and the right to load it where it needs to be: one round trip."""
    options = keys.options
    args = (
        token,
        round(options.lock_ttl * 1000),
        round(options.stale * 1000),
        when,
        loading_mark(token),
        round(max(MARK_LIFE, 2 * options.load_timeout) * 1000),
        round((max(options.load_timeout, options.lock_ttl) + options.lock_ttl) * 1000),
    )
    return Request(run_script("cache_lock", [keys.key, keys.lock], *args), 1, keys.key)


def read_lock(reply: Reply, options: CacheOptions, versions: Versions = UNTAGGED) -> Reading:
    """Return what `lock_request` found, and whether we load."""
    value, left, won, *lock = parts_in(reply)
    if won not in (0, 1, 2, 3):
        raise OddReply
    reading = _reading_of(value, left, options, versions, won=won == 1)
    if lock and isinstance(lock[0], bytes):
        return reading._replace(lock=lock[0])
    return reading._replace(resting=won == 2, is_foreign=won == 3)


# ---- storing


def store_request(keys: CacheKeys, lock: bytes, data: bytes, life: float) -> Request:
    """Store the result, if the lock is still ours and the value was not deleted meanwhile."""
    args = (lock, data, max(round(life * 1000), 1))
    return Request(run_script("cache_store", [keys.key, keys.lock], *args), 1, keys.key)


def put_request(keys: CacheKeys, data: bytes, life: float) -> Request:
    """Store a value that was not loaded, in place of the old one and of a load under way."""
    args = (data, max(round(life * 1000), 1))
    return Request(run_script("cache_put", [keys.key, keys.lock], *args), 1, keys.key)


def unlock_request(keys: CacheKeys, token: bytes, until: float, rest: float = 0.0) -> Request:
    """Return the load failed: let another process try, after *rest* seconds."""
    args = (token, loading_mark(token), round(rest * 1000))
    script = run_whole_script("cache_unlock", [keys.key, keys.lock], *args)
    return Request(script, 1, keys.key, until)


def invalidate_request(key: bytes, lock: bytes, until: float) -> Request:
    """Delete the value and, with its lock, the right of a load under way to store its result."""
    return Request(run_whole_script("cache_invalidate", [key, lock]), 1, key, until)
