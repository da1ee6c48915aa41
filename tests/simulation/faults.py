"""What goes wrong: faults of lines, network, server and processes, and the plan of one run.

A fault is a moment, a kind and two numbers between 0 and 1, from which it takes its target and its
size. So a plan can be written down, and shortened, without anything else changing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, TypeVar

from .server import ENGINES, REDIS8, VALKEY, Engine
from .system import CLOCK
from .topologies import Cluster, SentinelService

if TYPE_CHECKING:
    from .network import Line
    from .server import Server
    from .world import World

T = TypeVar("T")

RESET = (104, "Connection reset by peer")

SECONDS = 6.0
"""For how long faults begin."""
_LENGTHS = (0.05, 0.11, 0.13, 0.2, 0.24, 0.26, 0.5, 1.0, 1.5)
"""Around half a budget and a whole one, and far more."""
_WAYS = ("clock", "full", "kill", "failover", "restart", "switch", "move")
"""Kinds that change what is promised: only in plans that are made with them."""


@dataclass(frozen=True)
class Fault:
    """One fault."""

    at: float
    kind: str
    target: float
    size: float

    def choose(self, things: Sequence[T]) -> T:
        """The one of *things* that it concerns."""
        return things[int(self.target * len(things))]

    @property
    def length(self) -> float:
        """How long it lasts, in seconds."""
        return _LENGTHS[int(self.size * len(_LENGTHS))]

    def __str__(self) -> str:
        return f"{self.at:.3f} {self.kind} (target {self.target:.2f}, size {self.size:.2f})"


@dataclass(frozen=True)
class Plan:
    """One run: everything that is not decided by the workload's own seed."""

    engine: Engine
    may_kill: bool
    faults: tuple[Fault, ...]
    topology: str = "single"
    absent: frozenset[int] = frozenset()
    """Actors that do not take part: those that are not needed to show a violation."""

    def without_faults(self, first: int, last: int) -> "Plan":
        """The same without some of its faults."""
        return replace(self, faults=self.faults[:first] + self.faults[last:])

    def without_actor(self, number: int) -> "Plan":
        """The same without one of its actors."""
        return replace(self, absent=self.absent | {number})


def draw_plan(
    seed: str, kinds: Sequence[str], topology: str = "single", *, redis8: bool = False
) -> Plan:
    """A plan at random. Some have no faults, each of the others only some of *kinds*.

    *redis8*: on Redis 8.4, where the others are on Valkey.
    """
    random = Random(f"{seed}/plan")
    engine, may_kill = random.choice(ENGINES), random.random() < 0.8
    engine = REDIS8 if redis8 and engine is VALKEY else engine
    if random.random() < 0.1:
        return Plan(engine, may_kill, (), topology)
    chosen = [kind for kind in kinds if random.random() < 0.4] or [random.choice(kinds)]
    mean, faults, at = random.choice((0.15, 0.4, 1.0)), list[Fault](), 0.0
    while (at := at + random.expovariate(1 / mean)) < SECONDS:
        faults.append(Fault(at, random.choice(chosen), random.random(), random.random()))
    return Plan(engine, may_kill, tuple(faults), topology)


def cause(world: "World", fault: Fault) -> None:
    """Let *fault* happen now, and end later."""
    world.note("fault", fault.kind, f"{fault.length} s")
    _KINDS[fault.kind](world, fault)


# ---- lines


def _on_line(change: "Callable[[Line, Fault], None]") -> "Callable[[World, Fault], None]":
    def fault_of_line(world: "World", fault: Fault) -> None:
        lines = list(world.network.lines)
        if lines:
            line = fault.choose(lines)
            world.note("fault", fault.kind, str(line))
            change(line, fault)

    return fault_of_line


def _reset(line: "Line", fault: Fault) -> None:
    line.cut(ConnectionResetError(*RESET) if fault.size < 0.5 else None)


def _silence(line: "Line", fault: Fault) -> None:
    line.is_silent = True


def _late_requests(line: "Line", fault: Fault) -> None:
    line.requests.late_until = CLOCK.now + fault.length


def _late_replies(line: "Line", fault: Fault) -> None:
    line.replies.late_until = CLOCK.now + fault.length


def _late_both(line: "Line", fault: Fault) -> None:
    _late_requests(line, fault)
    _late_replies(line, fault)


def _crossed(line: "Line", fault: Fault) -> None:
    """The replies are late, and then the requests on the line that takes its place are late."""
    line.replies.late_until = CLOCK.now + 0.125 + 0.1 * fault.size
    line.network.late_next[line.process] = fault.length


def _cut_all(world: "World", fault: Fault) -> None:
    for line in list(world.network.lines):
        line.cut(ConnectionResetError(*RESET))


# ---- the network


def _for_a_while(counter: str) -> "Callable[[World, Fault], None]":
    def fault_of_network(world: "World", fault: Fault) -> None:
        def change(by: int) -> None:
            setattr(world.network, counter, getattr(world.network, counter) + by)

        change(+1)
        if counter == "hangs":
            for line in list(world.network.lines):
                line.is_silent = True
        else:
            _cut_all(world, fault)
        world.later(fault.length, change, -1)

    return fault_of_network


def _slow(world: "World", fault: Fault) -> None:
    world.network.slow += (extra := fault.choose((0.02, 0.1, 0.3)))

    def end() -> None:
        world.network.slow = max(world.network.slow - extra, 0.0)

    world.later(fault.length, end)


# ---- the server


def _freeze(world: "World", fault: Fault) -> None:
    host = fault.choose(world.topology.hosts)
    host.stop()
    world.later(fault.length, host.go_on)


def _server(world: "World", fault: Fault) -> "Server":
    return fault.choose(world.topology.hosts).server


def _forget_scripts(world: "World", fault: Fault) -> None:
    _server(world, fault).forget_scripts()


def _loading(world: "World", fault: Fault) -> None:
    server = _server(world, fault)
    server.refusal = "LOADING server is loading the dataset in memory"

    def end() -> None:
        server.refusal = None

    world.later(fault.length, end)


def _restart(world: "World", fault: Fault) -> None:
    _server(world, fault).restart()
    world.lost_data(0.0)


def _failover(world: "World", fault: Fault) -> None:
    """What is written from now on is not replicated; then the replica takes over."""
    server = _server(world, fault)
    state, since = server.keys.copied(), CLOCK.now

    def switch() -> None:
        server.become(state)
        world.lost_data(since)

    world.later(fault.length, switch)


def _full(world: "World", fault: Fault) -> None:
    server = _server(world, fault)
    server.is_full = True

    def end() -> None:
        server.is_full = False

    world.later(fault.length, end)


def _switch(world: "World", fault: Fault) -> None:
    """The replica takes over: half of the times in order, else with writes that it lacks."""
    assert isinstance(world.topology, SentinelService)
    world.topology.switch(0.0 if fault.target < 0.5 else fault.length)


def _move(world: "World", fault: Fault) -> None:
    assert isinstance(world.topology, Cluster)
    world.topology.move(fault.choose((b"k:1", b"k:2")), fault.length)


# ---- processes


def _pause(world: "World", fault: Fault) -> None:
    process = fault.choose(world.living)
    if not process.is_paused:
        world.note("fault", "pause", process.name)
        world.loop.pause(process)
        world.later(2 * fault.length, world.loop.resume, process)


def _kill(world: "World", fault: Fault) -> None:
    if len(world.living) > 1:
        world.kill(fault.choose(world.living))


def _clock(world: "World", fault: Fault) -> None:
    process = fault.choose(world.living)
    process.wall_offset = (fault.size - 0.5) * 20
    world.note("fault", "clock", process.name, f"{process.wall_offset:+.1f} s")


_KINDS: "dict[str, Callable[[World, Fault], None]]" = {
    "reset": _on_line(_reset),
    "silence": _on_line(_silence),
    "late requests": _on_line(_late_requests),
    "late replies": _on_line(_late_replies),
    "late both": _on_line(_late_both),
    "crossed": _on_line(_crossed),
    "cut all": _cut_all,
    "refuse": _for_a_while("refusals"),
    "hang": _for_a_while("hangs"),
    "close at once": _for_a_while("closings"),
    "slow": _slow,
    "freeze": _freeze,
    "forget scripts": _forget_scripts,
    "loading": _loading,
    "restart": _restart,
    "failover": _failover,
    "full": _full,
    "switch": _switch,
    "move": _move,
    "pause": _pause,
    "kill": _kill,
    "clock": _clock,
}
USUAL = tuple(kind for kind in _KINDS if kind not in _WAYS)
"""Faults that no promise of any verb excepts."""
LATE = ("late requests", "late replies", "late both", "crossed")
