"""The explorations: for each script, clients that use it and what must be true of them."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from .explorer import Client, Exploration, State, Step, Words, command, script
from .server import REDIS6, REDIS8, VALKEY, Engine
from .stream_explorations import STREAMS

K, LOCK, FENCE, FENCES = b"k", b"lock:{k}", b"fence:{k}", b"fences:{k}"
TAG, LAST, RUNS = b"tag:t", b"last", b"runs:{last}"
SHORT, LONG = 10_000, 30_000
DAY = 86_400_000


def token(number: int) -> bytes:
    """What a client takes keys with."""
    return b"%018x-%d@p%d:1" % (number + 10, 1, number)


# ---- hold


class Held(NamedTuple):
    """A client has the key, as far as it knows."""

    until: int
    fence: int = 0
    extended: int = 0


class Holder(Client):
    """Takes the key once, extends it by different times, releases it."""

    def __init__(self, number: int, extensions: tuple[int, ...] = ()) -> None:
        self.number = number
        self.token = token(number)
        self.extensions = extensions

    def acquire(self) -> Words:
        """The request that takes the key."""
        return script("hold_acquire", [K], self.token, SHORT)

    def extend(self, ttl: int) -> Words:
        """The request that keeps it."""
        return script("hold_extend", [K], self.token, ttl)

    def release(self) -> Words:
        """The request that gives it back."""
        return script("hold_release", [K], self.token)

    def fence_in(self, reply: Any) -> int | None:
        """The fence, or 0, of a key that was got; None: another has it."""
        return 0 if reply is None or reply == self.token else None

    def steps(self, state: State, known: Any) -> Iterable[Step]:
        if known == "begin":
            yield Step("asks", self.acquire(), self._asked)
        elif isinstance(known, Held):
            if known.extended < len(self.extensions) and state.clock < known.until:
                ttl = self.extensions[known.extended]
                yield Step(f"extends by {ttl}", self.extend(ttl), self._extended(known, ttl))
            yield Step("leaves", None, lambda after, _: after.having(self.number, "leaving"))
        elif known == "leaving":
            yield Step("releases", self.release(), self._released)

    def _asked(self, state: State, reply: Any) -> State:
        fence = self.fence_in(reply)
        if fence is None:
            return state.having(self.number, "refused")
        until = state.asked[self.number] + SHORT
        if fence and state.clock < until:  # else it was lost before it was got
            state = state._replace(facts=(*state.facts, fence))
        return state.having(self.number, Held(until, fence))

    def _extended(self, known: Held, ttl: int) -> Any:
        def then(state: State, reply: Any) -> State:
            until = state.asked[self.number] + ttl if reply in (1, "OK") else 0
            return state.having(
                self.number, known._replace(until=until, extended=known.extended + 1)
            )

        return then

    def _released(self, state: State, reply: Any) -> State:
        return state.having(self.number, "released")


class NativeHolder(Holder):
    """The same by commands."""

    def acquire(self) -> Words:
        return command(b"SET", K, self.token, b"NX", b"GET", b"PX", SHORT)

    def extend(self, ttl: int) -> Words:
        return command(b"SET", K, self.token, b"IFEQ", self.token, b"PX", ttl)

    def release(self) -> Words:
        return command(b"DELIFEQ", K, self.token)


class Redis8Holder(NativeHolder):
    """The same as Redis 8.4 has it."""

    def release(self) -> Words:
        return command(b"DELEX", K, b"IFEQ", self.token)


class FencedHolder(Holder):
    """The same with fences."""

    def acquire(self) -> Words:
        return script("hold_acquire_fenced", [K, FENCE], self.token, SHORT, DAY)

    def fence_in(self, reply: Any) -> int | None:
        return reply[1] if reply[0] is None else None


class PermitHolder(Holder):
    """The same with one of two permits, and a fence."""

    def acquire(self) -> Words:
        return script("hold_permit", [K, FENCE, FENCES], self.token, SHORT, 2, DAY)

    def extend(self, ttl: int) -> Words:
        return script("hold_permit_extend", [K], self.token, ttl)

    def release(self) -> Words:
        return command(b"ZREM", K, self.token)

    def fence_in(self, reply: Any) -> int | None:
        return None if isinstance(reply, list) else reply


def not_held(state: State) -> str | None:
    """A client that has the key, by its own clock, does not have it at the server."""
    for number, known in enumerate(state.clients):
        is_sure = isinstance(known, Held) and state.clock < known.until
        if is_sure and token(number) not in (*state.facts, *_tokens(state.value(K))):
            return f"client {number} is sure for {known.until - state.clock} ms, and is wrong"
    return left_behind(state) or falling_fences(state)


def _tokens(value: Any) -> Iterable[bytes]:
    """Who has the key, or permits of it."""
    return [value] if isinstance(value, bytes) else dict(value or ())


def left_behind(state: State) -> str | None:
    """All clients have ended, no further step is possible, and the key is taken."""
    is_over = all(known in ("released", "refused") for known in state.clients)
    if is_over and state.value(K) is not None:
        return "the key is taken, and no client has it"
    return None


def falling_fences(state: State) -> str | None:
    """Fences, in the order in which clients got them."""
    fences = state.facts or ()
    return "a fence is not new" if len(set(fences)) < len(fences) else None


# ---- once


class Submitter(Client):
    """Claims a submission, works, and leaves that it is done: also if its claim has expired."""

    def __init__(self, number: int, *, native: bool) -> None:
        self.number = number
        self.record = token(number)
        self.left = b"dibs1 done " + self.record
        self.native = native

    def steps(self, state: State, known: Any) -> Iterable[Step]:
        if known == "begin":
            yield Step("claims", self._claim(), self._claimed)
        elif isinstance(known, Held):
            yield Step("completes", self._complete(), self._completed)
            yield Step("fails", self._release(), self._failed)
        elif known == "free":
            yield Step("looks", self._recording(0), self._looked)
        elif isinstance(known, int):
            yield Step("records", self._recording(known), self._recorded)

    def _claim(self) -> Words:
        if self.native:
            return command(b"SET", K, self.record, b"NX", b"GET", b"PX", SHORT)
        return script("hold_acquire", [K], self.record, SHORT)

    def _complete(self) -> Words:
        if self.native:
            return command(b"SET", K, self.left, b"IFEQ", self.record, b"PX", LONG, b"GET")
        return script("once_complete", [K], self.record, self.left, LONG)

    def _release(self) -> Words:
        if self.native:
            return command(b"DELIFEQ", K, self.record)
        return script("hold_release", [K], self.record)

    def _recording(self, until: int) -> Words:
        return script("once_record", [K], self.record, self.left, LONG, until, b"0")

    def _claimed(self, state: State, reply: Any) -> State:
        if reply is not None and reply != self.record:
            return state.having(self.number, "refused")
        known = Held(state.asked[self.number] + SHORT)
        return self._noted(state.having(self.number, known), "ran")

    def _noted(self, state: State, kind: str) -> State:
        return state._replace(facts=(*state.facts, (kind, self.number, state.clock)))

    def _completed(self, state: State, reply: Any) -> State:
        if reply in (1, self.record, self.left):
            return self._noted(state.having(self.number, "done"), "done")
        return state.having(self.number, "free" if reply in (-2, None) else "lost")

    def _looked(self, state: State, reply: Any) -> State:
        return state.having(self.number, reply + SHORT // 2 if reply > 1 else "lost")

    def _recorded(self, state: State, reply: Any) -> State:
        if reply == 1:
            return self._noted(state.having(self.number, "done"), "done")
        return state.having(self.number, "lost")

    def _failed(self, state: State, reply: Any) -> State:
        return state.having(self.number, "failed")


def done_twice(state: State) -> str | None:
    """After one was done, and before its record has expired, none may run."""
    done_at = None
    for kind, _, clock in state.facts:
        if kind == "ran" and done_at is not None and clock < done_at + LONG:
            return "it runs again after it was done"
        done_at = clock if kind == "done" else done_at
    is_over = all(isinstance(known, str) and known != "begin" for known in state.clients)
    if is_over and (value := state.value(K)) and not value.startswith(b"dibs1 done"):
        return "it is claimed, and no client runs it"
    return None


# ---- handing over


class Giver(Client):
    """Has the key, and hands it over."""

    first = "has"

    def __init__(self, number: int) -> None:
        self.number = number

    def steps(self, state: State, known: Any) -> Iterable[Step]:
        if known == "has":
            secret = b"%018x-2@p0:1" % 99
            hand = script("once_complete", [K], token(self.number), secret, LONG)
            yield Step("hands over", hand, lambda after, _: after.having(self.number, "gave"))


class Taker(Client):
    """Continues what was handed over, then releases it; or undoes it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.secret = b"%018x-7" % number

    def steps(self, state: State, known: Any) -> Iterable[Step]:
        given = b"%018x-2" % 99
        if known == "begin" and state.clients[0] == "gave":
            holder = b"p%d:1" % self.number
            resume = script("hold_resume", [K, FENCE], given, self.secret, holder, SHORT, DAY)
            yield Step("continues", resume, self._continued)
        elif isinstance(known, bytes):
            yield Step("leaves", None, lambda after, _: after.having(self.number, (known,)))
        elif isinstance(known, tuple):
            release = script("hold_release", [K], known[0])
            yield Step("releases", release, lambda after, _: after.having(self.number, "released"))
            undo = script("hold_resume", [K], self.secret, given, b"p0:1", SHORT, DAY, b"undo")
            yield Step("undoes it", undo, lambda after, _: after.having(self.number, "undone"))

    def _continued(self, state: State, reply: Any) -> State:
        return state.having(self.number, reply[0] if reply[1] == 1 else "refused")


class Fetcher(Client):
    """Names itself in what was handed over."""

    def __init__(self, number: int) -> None:
        self.number = number

    def steps(self, state: State, known: Any) -> Iterable[Step]:
        if known == "begin" and state.clients[0] == "gave":
            name = b"p%d:1 fetched:%d" % (self.number, self.number)
            fetch = script("job_fetch", [K], b"%018x-2" % 99, name, LONG)
            yield Step("fetches", fetch, lambda after, _: after.having(self.number, "fetched"))


class PermitGiver(Client):
    """Has the one permit, and hands it over."""

    first = "begin"

    def __init__(self, number: int) -> None:
        self.number = number

    def steps(self, state: State, known: Any) -> Iterable[Step]:
        mine = token(self.number)
        if known == "begin":
            take = script("hold_permit", [K], mine, LONG, 1)
            yield Step("takes", take, lambda after, _: after.having(self.number, "has"))
        elif known == "has":
            words = (mine, _GIVEN_SECRET, b"detached", LONG, 0, b"give")
            give = script("hold_permit_resume", [K], *words)
            yield Step("hands over", give, lambda after, _: after.having(self.number, "gave"))


class PermitTaker(Taker):
    """Continues the permit, then releases it; or undoes it."""

    def steps(self, state: State, known: Any) -> Iterable[Step]:
        given = _GIVEN_SECRET + b"@detached"
        if known == "begin" and state.clients[0] == "gave":
            words = (given, self.secret, b"p%d:1" % self.number, SHORT, 0, b"take")
            yield Step("continues", script("hold_permit_resume", [K], *words), self._continued)
        elif isinstance(known, bytes):
            yield Step("leaves", None, lambda after, _: after.having(self.number, (known,)))
        elif isinstance(known, tuple):
            release = command(b"ZREM", K, known[0])
            yield Step("releases", release, lambda after, _: after.having(self.number, "released"))
            undo = script("hold_permit_resume", [K], self.secret, given, b"", SHORT, 0, b"undo")
            yield Step("undoes it", undo, lambda after, _: after.having(self.number, "undone"))


def permit_continued_twice(state: State) -> str | None:
    """Two clients continue one permit."""
    continuing = [known for known in state.clients if isinstance(known, bytes)]
    return "two continue one permit" if len(continuing) > 1 else None


_GIVEN_SECRET = b"%018x-2" % 99


def continued_twice(state: State) -> str | None:
    """Two clients continue one lease, or one does that does not have it."""
    continuing = [known for known in state.clients if isinstance(known, bytes)]
    if len(continuing) > 1:
        return "two continue one lease"
    if continuing and state.value(K) != continuing[0] and state.jumps:
        return "who continues it does not have it"
    return None


# ---- cached values


def frame(version: int) -> bytes:
    """A value as it is stored."""
    return b"dibs1 json - 1 0.1\n%d" % version


def version_in(value: Any) -> int | None:
    """The version in a stored value; None: it is none."""
    is_value = isinstance(value, bytes) and value.startswith(b"dibs1 json")
    return int(value.partition(b"\n")[2]) if is_value else None


class Truth(NamedTuple):
    """The data behind a cached value."""

    version: int = 0
    announced: int = 0
    """Readers must get this one, or a later one."""
    stale: str | None = None
    """What a reader got that is older."""


class Loader(Client):
    """Reads a value; loads it if need be, and stores it or gives up."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.token = token(number)
        self.mark = b"dibs1 ~ " + self.token

    def steps(self, state: State, known: Any) -> Iterable[Step]:
        keys = [K, LOCK]
        if known == "begin":
            lock = script("cache_lock", keys, self.token, 3000, 0, b"0", self.mark, DAY, 33000)
            yield Step("asks", lock, self._locked)
        elif isinstance(known, tuple) and known[0] == "loads":
            yield Step("loads", None, self._loaded)
        elif isinstance(known, tuple):
            store = script("cache_store", keys, known[2], frame(known[1]), 60_000)
            yield Step(f"stores {known[1]}", store, self._stored)
            yield self._unlock("fails")
        elif known == "undoes":
            yield self._unlock("unlocks")

    def _unlock(self, label: str) -> Step:
        unlock = script("cache_unlock", [K, LOCK], self.token, self.mark, b"0")
        return Step(label, unlock, lambda after, _: after.having(self.number, "done"))

    def _locked(self, state: State, reply: Any) -> State:
        if reply[2] == 1:
            return state.having(self.number, ("loads", self.proof(reply)))
        version = version_in(reply[0])
        if version is not None and version < state.facts.announced:
            state = state._replace(facts=state.facts._replace(stale=f"a reader got {version}"))
        return state.having(self.number, "done")

    def proof(self, reply: list[Any]) -> bytes:
        """With what the lock is known again."""
        return reply[3]

    def _loaded(self, state: State, _: Any) -> State:
        proof = state.clients[self.number][1]
        return state.having(self.number, ("has", state.facts.version, proof))

    def _stored(self, state: State, reply: Any) -> State:
        return state.having(self.number, "done" if reply == 1 else "undoes")


class Writer(Client):
    """Changes the data, then invalidates the value or sets it."""

    def __init__(self, number: int, *, sets: bool = False) -> None:
        self.number = number
        self.sets = sets

    def steps(self, state: State, known: Any) -> Iterable[Step]:
        if known == "begin":
            yield Step("writes", None, self._wrote)
        elif isinstance(known, Written):
            put = script("cache_put", [K, LOCK], frame(known.version), 60_000)
            drop = script("cache_invalidate", [K, LOCK])
            request = put if self.sets else drop
            yield Step(f"announces {known.version}", request, self._announced(known))

    def _wrote(self, state: State, _: Any) -> State:
        truth = state.facts._replace(version=state.facts.version + 1)
        return state.having(self.number, Written(truth.version, self.sets))._replace(facts=truth)

    def _announced(self, known: "Written") -> Any:
        def then(state: State, _: Any) -> State:
            state = state.having(self.number, "done")
            # What is set at the same time may be executed before or after it.
            if any(isinstance(each, Written) and each.is_set for each in state.clients):
                return state
            announced = max(state.facts.announced, known.version)
            return state._replace(facts=state.facts._replace(announced=announced))

        return then


class Written(NamedTuple):
    """A writer has changed the data, and not announced it yet."""

    version: int
    is_set: bool


def outdated(state: State) -> str | None:
    """The cache has a value that is older than one that was announced, or a reader got one."""
    version = version_in(state.value(K))
    if version is not None and version < state.facts.announced:
        return f"version {version} is stored after {state.facts.announced} was announced"
    return state.facts.stale


class TagLoader(Client):
    """Learns the version of a tag, and invalidates it."""

    def __init__(self, number: int) -> None:
        self.number = number

    def steps(self, state: State, known: Any) -> Iterable[Step]:
        mine = b"%016x" % (self.number + 1)
        if known == "begin":
            begin = script("cache_tag", [TAG], mine, DAY)
            yield Step(
                "asks for the tag", begin, lambda after, reply: after.having(self.number, reply)
            )
        elif isinstance(known, bytes):
            yield Step("invalidates the tag", command(b"DEL", TAG), self._invalidated(known))

    def _invalidated(self, version: bytes) -> Any:
        def then(state: State, _: Any) -> State:
            return state.having(self.number, "done")._replace(facts=(*state.facts, version))

        return then


def old_tag(state: State) -> str | None:
    """A tag has an invalidated version again."""
    return (
        "a tag has a version again that was invalidated"
        if state.value(TAG) in state.facts
        else None
    )


# ---- schedules, and people


def recording(run: int, secret: bytes) -> Words:
    """The request that records a run, and ends the lease that *secret* holds."""
    facts = (run, b"p", 100 * DAY, 10**15, secret, 0)
    return script("schedule_record", [LAST, RUNS, K], *facts)


class Recorder(Client):
    """Records that a run is over."""

    def __init__(self, number: int, run: int) -> None:
        self.number = number
        self.run = run

    def steps(self, state: State, known: Any) -> Iterable[Step]:
        if known == "begin":
            yield Step(f"records {self.run}", recording(self.run, b""), self._recorded)

    def _recorded(self, state: State, _: Any) -> State:
        return state.having(self.number, "done")._replace(facts=max(state.facts, self.run))


def moved_back(state: State) -> str | None:
    """The record is older than one that was confirmed."""
    value = state.value(LAST)
    is_back = value is not None and int(value.split()[0]) < state.facts
    return "a record was moved back" if is_back else None


class Running(NamedTuple):
    """A machine executes the run."""

    until: int


class Machine(FencedHolder):
    """Looks, takes the lease, looks again, executes the run, records that and releases: one run.

    Another client may come between the two requests of one write.
    """

    def steps(self, state: State, known: Any) -> Iterable[Step]:
        look, number = script("schedule_look", [LAST]), self.number
        if known == "begin":
            yield Step("looks", look, self._saw)
        elif known == "asking":
            yield Step("asks", self.acquire(), self._asked)
        elif isinstance(known, Held):
            yield Step("looks again", look, self._began(known.until))
        elif isinstance(known, Running):
            is_over = "recording" if state.clock < known.until else "leaving"
            yield Step("ends", None, lambda after, _: after.having(number, is_over))
        elif known == "recording":
            yield Step("records", recording(1000, self.token), self._recorded)
        elif known == "leaving":
            yield Step("releases", self.release(), self._released)

    def _saw(self, state: State, reply: Any) -> State:
        return state.having(self.number, "asking" if reply[0] is None else "released")

    def _asked(self, state: State, reply: Any) -> State:
        until = state.asked[self.number] + SHORT
        return state.having(self.number, Held(until) if reply[0] is None else "refused")

    def _began(self, until: int) -> Any:
        def then(state: State, reply: Any) -> State:
            if reply[0] is not None or state.clock >= until:
                return state.having(self.number, "leaving")
            is_again = state.facts == "over"
            after = state._replace(facts="again") if is_again else state
            return after.having(self.number, Running(until))

        return then

    def _recorded(self, state: State, reply: Any) -> State:
        return state.having(self.number, "released")._replace(facts="over")


def run_again(state: State) -> str | None:
    """A run begins that is over; or a machine that is sure of the lease does not have it."""
    if state.facts == "again":
        return "a run that is over is repeated"
    for number, known in enumerate(state.clients):
        is_sure = isinstance(known, Held | Running) and state.clock < known.until
        if is_sure and state.value(K) != token(number):
            return f"machine {number} is sure, and is wrong"
    return left_behind(state)


class Person(Client):
    """Sees who has the key, and frees it."""

    def __init__(self, number: int) -> None:
        self.number = number

    def steps(self, state: State, known: Any) -> Iterable[Step]:
        if known == "begin":
            yield Step("looks", command(b"GET", K), self._saw)
        elif isinstance(known, bytes):
            yield Step("decides to free it", None, self._decided)
        elif isinstance(known, tuple):
            free = script("inspect_release", [K], known[0].partition(b"@")[0] + b"@")
            yield Step("frees it", free, lambda after, _: after.having(self.number, "released"))

    def _saw(self, state: State, reply: Any) -> State:
        return state.having(self.number, reply if reply is not None else "released")

    def _decided(self, state: State, _: Any) -> State:
        """From now on the holder that was seen may lose it; any other may not."""
        seen = state.clients[self.number]
        return state.having(self.number, (seen,))._replace(facts=(*state.facts, seen))


# ---- throttle


class Caller(Client):
    """Calls once; two of three may."""

    def __init__(self, number: int) -> None:
        self.number = number

    def steps(self, state: State, known: Any) -> Iterable[Step]:
        if known == "begin":
            secret = token(self.number).partition(b"@")[0]
            count = script("throttle", [K], secret, 0, 1000 * SHORT, 2, 1, 0)
            yield Step("calls", count, self._called)

    def _called(self, state: State, reply: Any) -> State:
        return state.having(self.number, "passed" if reply[0] == 1 else "refused")


class Spender(Caller):
    """Uses one of two units of a day; the later periods never come."""

    def steps(self, state: State, known: Any) -> Iterable[Step]:
        if known == "begin":
            secret = token(self.number).partition(b"@")[0]
            periods = (0, 1, 2**52, 2**52 + 1)
            yield Step("spends", script("quota", [K], secret, 1, 2, b"", *periods), self._called)


class Windowed(Caller):
    """Uses one of two units of a window that is longer than the exploration."""

    def steps(self, state: State, known: Any) -> Iterable[Step]:
        if known == "begin":
            secret = token(self.number).partition(b"@")[0]
            yield Step("counts", script("window", [K], secret, 1, 0, 2**50, 2), self._called)


def miscounted(state: State) -> str | None:
    """More are let through than may be; or fewer, because one was counted twice."""
    passed = state.clients.count("passed")
    if passed > 2:
        return f"{passed} of 2 are let through"
    return "a call was counted twice" if passed < 2 and "begin" not in state.clients else None


# ---- all of them


def _holding(engine: Engine, kind: type[Holder], count: int, *extensions: int) -> Exploration:
    """Holders, the first of which extends its lease; time may pass twice."""
    clients = [kind(number, extensions if number == 0 else ()) for number in range(count)]
    return Exploration(engine, tuple(clients), not_held, facts=(), jumps=2)


def _submitting(engine: Engine, *, native: bool) -> Exploration:
    clients = tuple(Submitter(number, native=native) for number in range(3))
    return Exploration(engine, clients, done_twice, facts=(), jumps=1)


def _caching(*clients: Client, jumps: int = 0) -> Exploration:
    return Exploration(VALKEY, clients, outdated, facts=Truth(), jumps=jumps)


_GIVEN = ((K, token(0), SHORT),)
_RECORDERS = (Recorder(0, 1000), Recorder(1, 2000), Recorder(2, 3000))

EXPLORATIONS: dict[str, Exploration] = {
    **STREAMS,
    "hold, by script": _holding(REDIS6, Holder, 3),
    "hold, by command": _holding(VALKEY, NativeHolder, 3),
    "hold, extended by script": _holding(REDIS6, Holder, 3, SHORT, LONG),
    "hold, extended by command": _holding(VALKEY, NativeHolder, 3, SHORT, LONG),
    "hold, extended on Redis 8.4": _holding(REDIS8, Redis8Holder, 2, SHORT, LONG),
    "fences": _holding(VALKEY, FencedHolder, 3),
    "permits": _holding(VALKEY, PermitHolder, 3),
    "permits, extended": _holding(VALKEY, PermitHolder, 3, SHORT, LONG),
    "once, by script": _submitting(REDIS6, native=False),
    "once, by command": _submitting(VALKEY, native=True),
    "hand-over": Exploration(
        VALKEY, (Giver(0), Taker(1), Taker(2)), continued_twice, jumps=1, given=_GIVEN
    ),
    "fetched": Exploration(
        VALKEY, (Giver(0), Fetcher(1), Taker(2), Taker(3)), continued_twice, jumps=1, given=_GIVEN
    ),
    "permits, handed over": Exploration(
        VALKEY, (PermitGiver(0), PermitTaker(1), PermitTaker(2)), permit_continued_twice, jumps=1
    ),
    "cached, invalidated": _caching(Loader(0), Loader(1), Writer(2), jumps=1),
    "cached, two writers": _caching(Loader(0), Writer(1), Writer(2), jumps=1),
    "cached, set": _caching(Loader(0), Writer(1, sets=True), Writer(2)),
    "cached, set twice": _caching(Loader(0), Writer(1, sets=True), Writer(2, sets=True)),
    "tags": Exploration(
        VALKEY, (TagLoader(0), TagLoader(1), TagLoader(2)), old_tag, facts=(), jumps=1
    ),
    "schedules": Exploration(VALKEY, _RECORDERS, moved_back, facts=0),
    "runs": Exploration(VALKEY, (Machine(0), Machine(1), Machine(2)), run_again, jumps=1),
    "throttle": Exploration(VALKEY, (Caller(0), Caller(1), Caller(2)), miscounted),
    "window": Exploration(VALKEY, (Windowed(0), Windowed(1), Windowed(2)), miscounted),
    "quota": Exploration(VALKEY, (Spender(0), Spender(1), Spender(2)), miscounted),
    "freed by a person": Exploration(
        VALKEY, (NativeHolder(0), NativeHolder(1), Person(2)), not_held, facts=(), jumps=1
    ),
}
