"""All interleavings of a few clients on the real scripts, one request of which is executed twice.

A state is what the server has, what each client knows, and what may still happen. From each state
every client takes each step that it can, time may move on to the next expiry, and a request that
was sent may be executed once more. All states that can be reached are visited, each once.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from dibs._core import capabilities

from .keyspace import Value
from .server import Engine, Server

BEGIN = 1_000_000
"""Milliseconds on the server's clock."""

Words = tuple[bytes, ...]
When = Literal["never", "in time", "late"]
"""When one request may be executed twice: never; both times before its client goes on, by the reply
to the second (a connection that is ended at the server allows no more); or once more at any time
after its client went on, which does not know of it."""


def script(name: str, keys: Iterable[bytes], *arguments: bytes | int) -> Words:
    """A call of a script of dibs."""
    names = list(keys)
    return (
        b"EVAL",
        capabilities._script_source(name),
        b"%d" % len(names),
        *names,
        *map(word, arguments),
    )


def command(*words: bytes | int) -> Words:
    """A call of a command."""
    return tuple(map(word, words))


def word(value: bytes | int) -> bytes:
    """An argument as bytes."""
    return value if isinstance(value, bytes) else b"%d" % value


class State(NamedTuple):
    """Everything at one moment."""

    values: tuple[tuple[bytes, Any], ...]
    expiries: tuple[tuple[bytes, int], ...]
    clock: int
    clients: tuple[Any, ...]
    """What each of them knows: anything that can be compared."""
    facts: Any
    """What only the observer knows."""
    copies: tuple[Words, ...] = ()
    """Requests that may be executed again."""
    repeats: int = 0
    jumps: int = 0
    """How often a request may still be executed again, and time move on."""
    asked: tuple[int, ...] = ()
    """When each client has sent its request for the first time; 0: not yet."""
    ticks: int = 0
    """Microseconds: no two requests are executed at the same time."""

    def having(self, number: int, client: Any) -> "State":
        """The same, and a client knows something else."""
        return self._replace(clients=(*self.clients[:number], client, *self.clients[number + 1 :]))

    def sent(self, number: int, clock: int) -> "State":
        """The same, and a client has sent its request at *clock*; 0: it has its reply."""
        asked = self.asked
        return self._replace(asked=(*asked[:number], clock, *asked[number + 1 :]))

    def value(self, key: bytes) -> Any:
        """What the server has at *key*."""
        return dict(self.values).get(key)


class Step(NamedTuple):
    """What a client can do next: *request*, if there is one, then *then* with its reply."""

    label: str
    request: Words | None
    then: Callable[[State, Any], State]


class Client:
    """A program: from what it knows to what it may do next."""

    first: Any = "begin"
    """What it knows at the beginning."""

    def steps(self, state: State, known: Any) -> Iterable[Step]:
        """Its next steps; nothing: it has ended."""
        raise AssertionError("each has its own")


@dataclass(frozen=True)
class Exploration:
    """Clients on one server, and what must be true in each state."""

    engine: Engine
    clients: tuple[Client, ...]
    wrong: Callable[[State], str | None]
    """What is wrong in a state; None: nothing."""
    facts: Any = None
    repeated: When = "never"
    jumps: int = 0
    given: tuple[tuple[bytes, bytes, int], ...] = ()
    """What the server has at the beginning: keys, values, and for how long."""

    def first(self) -> State:
        """Where it begins."""
        known = tuple(client.first for client in self.clients)
        repeats = 0 if self.repeated == "never" else 1
        asked = (0,) * len(known)
        values = tuple((key, value) for key, value, _ in self.given)
        expiries = tuple((key, BEGIN + life) for key, _, life in self.given)
        return State(values, expiries, BEGIN, known, self.facts, (), repeats, self.jumps, asked)


class Result(NamedTuple):
    """All states were visited: how many, and the shortest way to one that is wrong."""

    states: int
    wrong: str | None
    path: list[str]


def explore(exploration: Exploration) -> Result:
    """Visit all states, the nearest first."""
    first, machine = exploration.first(), _Machine(exploration)
    came_from: dict[State, tuple[State, str] | None] = {first: None}
    front = [first]
    while front:
        following = list[State]()
        for state in front:
            for label, after in machine.following(state):
                if after in came_from:
                    continue
                came_from[after] = state, label
                wrong = exploration.wrong(after)
                if wrong is not None:
                    return Result(len(came_from), wrong, _path(came_from, after))
                following.append(after)
        front = following
    return Result(len(came_from), None, [])


def _path(came_from: dict[State, tuple[State, str] | None], state: State) -> list[str]:
    labels = list[str]()
    while (found := came_from[state]) is not None:
        state, label = found
        labels.append(label)
    return labels[::-1]


class _Machine:
    """From a state to those that follow it."""

    def __init__(self, exploration: Exploration) -> None:
        self._exploration = exploration
        self._clock = 0.0
        self._server = Server(exploration.engine, lambda: self._clock)

    def following(self, state: State) -> Iterable[tuple[str, State]]:
        """Everything that can happen next."""
        for number, client in enumerate(self._exploration.clients):
            for step in client.steps(state, state.clients[number]):
                yield from self._taken(state, number, step)
        for copy in state.copies:
            after, reply = self._executed(state, copy)
            label = f"again: {_named(copy)} => {reply}"
            yield label, after._replace(copies=(), repeats=0)
        if state.jumps and state.expiries:
            yield self._jumped(state)

    def _taken(self, state: State, number: int, step: Step) -> Iterable[tuple[str, State]]:
        label = f"{number}: {step.label}"
        if step.request is None:
            yield label, step.then(state, None)
            return
        state = state.sent(number, state.asked[number] or state.clock)
        after, reply = self._executed(state, step.request)
        if state.repeats and self._exploration.repeated == "in time":
            yield f"{label}, whose reply is lost", after._replace(repeats=0)
        if state.repeats and self._exploration.repeated == "late":
            after = after._replace(copies=tuple(dict.fromkeys((*state.copies, step.request))))
        yield f"{label} => {reply}", step.then(after, reply).sent(number, 0)

    def _jumped(self, state: State) -> tuple[str, State]:
        """Time moves on to behind the next expiry."""
        clock = min(expiry for _, expiry in state.expiries) + 1
        self._load(state._replace(clock=clock))
        self._server.keys.sweep()
        after = self._saved(state)._replace(clock=clock, jumps=state.jumps - 1)
        return f"{clock - state.clock} ms pass", after

    def _executed(self, state: State, request: Words) -> tuple[State, Any]:
        self._load(state)
        reply = self._server.execute(list(request))
        return self._saved(state._replace(ticks=state.ticks + 1)), reply

    def _load(self, state: State) -> None:
        self._clock = state.clock / 1000 + state.ticks / 1e6
        keys = self._server.keys
        keys.values = {key: _thawed(value) for key, value in state.values}
        keys.expiries = dict(state.expiries)

    def _saved(self, state: State) -> State:
        keys = self._server.keys
        values = tuple(sorted((key, _frozen(value)) for key, value in keys.values.items()))
        return state._replace(values=values, expiries=tuple(sorted(keys.expiries.items())))


def _frozen(value: Value) -> Any:
    return value if isinstance(value, bytes) else tuple(sorted(value.items()))


def _thawed(value: Any) -> Value:
    return value if isinstance(value, bytes) else dict(value)


def _named(request: Words) -> str:
    if request[0] != b"EVAL":
        return b" ".join(request[:3]).decode()
    name = request[1].partition(b".lua")[0].removeprefix(b"-- ").decode()
    return f"{name} {b' '.join(request[3:6]).decode()}"


def on(exploration: Exploration, **changes: Any) -> Exploration:
    """The same with some changes."""
    return replace(exploration, **changes)
