"""The explorations of streams: runs, who continues them, and those who follow."""

from collections.abc import Iterable
from typing import Any

from dibs._core.stream import HEAD_SIZE, KEPT_MS, items_head

from .explorer import Client, Exploration, State, Step, Words, script
from .server import VALKEY

STREAM = b"k"
LEASE, TTL = 1000, 20_000
ITEMS = 2


def run_id(number: int) -> bytes:
    """The id of the run of a client, and of its attempt."""
    return b"%016x" % (number + 1)


def items_key(run: bytes) -> bytes:
    """Where its items are."""
    return b"stream:{k}:" + run


def record(run: bytes, attempt: bytes, state: bytes = b"live") -> bytes:
    """The record of a run."""
    return b"dibs1 stream %b %b %b json - 1.000 0.000 0 p:1\n" % (state, run, attempt)


class Runner(Client):
    """Begins a run and yields two items; where another one is under way, it continues that one.

    An item is the letter of its attempt. Time that passes makes the others seem dead.
    """

    def __init__(self, number: int, *, resumes: bool = False, ends: bool = True) -> None:
        self.number = number
        self.attempt = run_id(number)
        self.resumes = resumes
        self.ends = ends

    def steps(self, state: State, known: Any) -> Iterable[Step]:
        if known == "begin":
            items = items_key(self.attempt)
            arguments = (record(self.attempt, self.attempt), 10**6, items_head(self.attempt))
            more = (LEASE + KEPT_MS, b"", b"")
            begin = script("stream_begin", [STREAM, items, items], *arguments, *more)
            yield Step("begins", begin, self._begun)
        elif isinstance(known, tuple) and known[0] == "runs":
            yield from self._running(*known[1:])
        elif isinstance(known, tuple) and known[0] == "follows" and self.resumes:
            yield from self._continuing(state, known[1])

    def _begun(self, state: State, reply: Any) -> State:
        code, value = reply
        if code == 1:
            return state.having(self.number, ("runs", self.attempt, b"", 0))
        words = value.split(b" ")
        return state.having(self.number, ("follows", words[3]))

    def _running(self, run: bytes, before: bytes, count: int) -> Iterable[Step]:
        """*before*: the items of earlier attempts."""
        mine = b"1:" + self.attempt[-1:]
        offset = len(before) + count * len(mine)
        if count < ITEMS:
            total = b"%010d" % (len(before) // len(mine) + count + 1)
            arguments = (self.attempt, offset, total, LEASE + KEPT_MS, mine)
            append = script("stream_append", [items_key(run)], *arguments)
            yield Step("appends", append, self._appended(run, before, count))
        elif self.ends:
            total = b"%010d" % (len(before) // len(mine) + count)
            live, over = record(run, self.attempt), record(run, self.attempt, b"over")
            lives = (TTL, TTL + KEPT_MS, KEPT_MS)
            arguments = (self.attempt, offset, total, b"!done \n", live, over, *lives)
            end = script("stream_end", [items_key(run), STREAM], *arguments)
            yield Step("ends", end, self._ended(run, before))

    def _appended(self, run: bytes, before: bytes, count: int) -> Any:
        def then(state: State, reply: Any) -> State:
            known = "lost" if reply == -1 else ("runs", run, before, count + 1)
            return state.having(self.number, known)

        return then

    def _ended(self, run: bytes, before: bytes) -> Any:
        def then(state: State, reply: Any) -> State:
            code = reply[0]
            if code != 1:
                return state.having(self.number, "lost")
            return state.having(self.number, ("kept", run, before + self._own()))

        return then

    def _own(self) -> bytes:
        return (b"1:" + self.attempt[-1:]) * ITEMS

    def _continuing(self, state: State, run: bytes) -> Iterable[Step]:
        stored, current = state.value(items_key(run)), state.value(STREAM)
        if stored is None or current is None or b"live" not in current:
            return
        before = stored[HEAD_SIZE:]
        head = items_head(self.attempt, len(before), len(before) // 3)
        arguments = (current, record(run, self.attempt), 10**6, head, LEASE + KEPT_MS)
        size = (KEPT_MS, len(stored))
        resume = script("stream_resume", [STREAM, items_key(run)], *arguments, *size)
        yield Step("continues", resume, self._continued(run, before))

    def _continued(self, run: bytes, before: bytes) -> Any:
        def then(state: State, reply: Any) -> State:
            known = ("runs", run, before, 0) if reply == 1 else "refused"
            return state.having(self.number, known)

        return then


class Forgetter(Client):
    """Invalidates the stream once."""

    def __init__(self, number: int) -> None:
        self.number = number

    def steps(self, state: State, known: Any) -> Iterable[Step]:
        if known == "begin":
            yield Step("forgets", self._forget(), self._forgot)

    def _forget(self) -> Words:
        return script("stream_invalidate", [STREAM])

    def _forgot(self, state: State, reply: Any) -> State:
        state = state._replace(facts=(*state.facts, reply.split(b" ")[3] if reply else b"-"))
        return state.having(self.number, "forgot")


def spliced(state: State) -> str | None:
    """What is stored is no whole run, or one that was forgotten."""
    value = state.value(STREAM)
    if value is None:
        return None
    run, is_over = value.split(b" ")[3], value.startswith(b"dibs1 stream over ")
    if run in state.facts:
        return "a run is there that was forgotten"
    stored = state.value(items_key(run))
    if stored is None or not is_over:
        return None
    body = stored[HEAD_SIZE:]
    letters = body.removesuffix(b"!done \n").replace(b"1:", b"")
    last = value.split(b" ")[4][-1:]
    own = letters[-ITEMS:]
    if not body.endswith(b"!done \n") or own != last * ITEMS:
        return f"what is stored is no whole run: {body!r}"
    # Before them are those of who was continued, each not more often than it yields.
    return None if len(letters) <= 3 * ITEMS else f"an item is there twice: {body!r}"


STREAMS: dict[str, Exploration] = {
    "streams": Exploration(VALKEY, (Runner(0), Runner(1), Runner(2)), spliced, facts=()),
    "streams, forgotten": Exploration(
        VALKEY, (Runner(0), Runner(1), Forgetter(2)), spliced, facts=()
    ),
    "streams, continued": Exploration(
        VALKEY, (Runner(0), Runner(1, resumes=True), Runner(2, resumes=True)), spliced, facts=()
    ),
}
