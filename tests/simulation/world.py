"""One run: a server, a network, processes, and the record of what happened."""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from .faults import Plan, cause
from .loop import SimulatedLoop, Stuck
from .network import Network
from .server import Server, Session
from .system import BEGIN, CLOCK, EPOCH, OUTSIDE, Process
from .topologies import TOPOLOGIES, Topology

_SWEEP = 0.1
"""How often the server removes what has expired, in seconds."""
_ON_ITS_WAY = 1.0
"""The longest time between the execution of a request and the moment its caller knows."""
_REPLACED_AFTER = 0.5
"""Seconds until a process that was killed is started again."""


class World:
    """The world of one seed. One at a time: they share the virtual clock."""

    def __init__(self, seed: str, plan: Plan, *, is_traced: bool = False) -> None:
        CLOCK.now = BEGIN
        self.seed = seed
        self.plan = plan
        self.loop = SimulatedLoop()
        self.loop.set_exception_handler(self._complain)
        self.network = self.loop.network = Network(self.loop, seed)
        self.processes = list[Process]()
        self.replace: Callable[[Process], None] | None = None
        """Called some time after a process was killed, with the process that takes its place."""
        self.losses = list[tuple[float, float]]()
        """When the server lost data: what was written since the first time, at the second."""
        self.violations = list[str]()
        self.violated_at: float | None = None
        """When the first promise was broken."""
        self.counts: Counter[str] = Counter()
        self.trace: list[tuple[float, tuple[Any, ...]]] | None = [] if is_traced else None
        self._digest = hashlib.sha1(usedforsecurity=False)
        self.topology: Topology = TOPOLOGIES[plan.topology](self)

    @property
    def server(self) -> Server:
        """The server; the first, if there are several."""
        return self.topology.hosts[0].server

    # ---- the record

    def note(self, *facts: Any) -> None:
        """Something happened."""
        self._digest.update(repr((CLOCK.now, facts)).encode())
        if self.trace is not None:
            self.trace.append((CLOCK.now - BEGIN, facts))

    def violate(self, sentence: str) -> None:
        """A promise was broken."""
        self.note("VIOLATION", sentence)
        self.violations.append(f"{CLOCK.now - BEGIN:.4f} {sentence}")
        self.violated_at = self.violated_at or CLOCK.now - BEGIN

    @property
    def digest(self) -> str:
        """The same for the same run."""
        return self._digest.hexdigest()[:16]

    def observe(self, session: Session | None, words: list[bytes], reply: Any) -> None:
        """A server has executed a command."""
        line = getattr(session, "line", None)
        self.note("server", str(line), words, reply)

    def _complain(self, _loop: Any, facts: dict[str, Any]) -> None:
        self.violate(f"the event loop: {facts['message']} {facts.get('exception')!r}")

    def lost_data(self, since: float, after: float = 0.0) -> None:
        """What was written since *since* is lost, and what will be in the next *after* seconds."""
        self.losses.append((since, CLOCK.now + after))
        self.note("data lost", since)

    def has_lost(self, since: float) -> bool:
        """Whether the server has lost data since shortly before *since*, when a reply arrived."""
        return any(lost_at >= since - _ON_ITS_WAY for _, lost_at in self.losses)

    def has_lost_what_it_wrote_at(self, moment: float) -> bool:
        """Whether what the server wrote at *moment*, by its own clock, was lost."""
        return any(since <= moment - EPOCH <= lost_at for since, lost_at in self.losses)

    # ---- processes

    @property
    def living(self) -> list[Process]:
        """The processes that were not killed."""
        return [process for process in self.processes if not process.is_dead]

    def start_process(self) -> Process:
        """Another process."""
        process = OUTSIDE.copy().run(Process, len(self.processes) + 1, self.seed)
        self.processes.append(process)
        return process

    def kill(self, process: Process) -> None:
        """End *process*, as `kill -9` does; another takes its place a little later."""
        self.note("kill", process.name)
        self.loop.kill(process)
        self.network.leave(process)
        self.later(_REPLACED_AFTER, self._start_again)

    def _start_again(self) -> None:
        process = self.start_process()
        self.note("start", process.name)
        if self.replace is not None:
            self.replace(process)

    # ---- time

    def later(self, seconds: float, function: Callable[..., None], *arguments: Any) -> None:
        """Call *function* after *seconds*, outside of every process."""
        self.loop.call_later(seconds, function, *arguments, context=OUTSIDE)

    async def faults(self) -> None:
        """Let the faults of the plan happen, and end."""
        end = 0.0
        for fault in self.plan.faults:
            self.later(max(BEGIN + fault.at - CLOCK.now, 0.0), cause, self, fault)
            end = max(end, fault.at + 2 * fault.length + _REPLACED_AFTER)
        await asyncio.sleep(max(end + BEGIN - CLOCK.now, 0.0) + 0.001)
        self.network.late_next.clear()
        self.note("healed")

    def _sweep(self) -> None:
        for host in self.topology.hosts:
            if not host.stops:
                host.server.keys.sweep()
        self.later(_SWEEP, self._sweep)

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        """Run *main* until it ends, or until no task can run."""
        asyncio.set_event_loop(self.loop)
        self.later(_SWEEP, self._sweep)
        try:
            task = self.loop.create_task(main, context=OUTSIDE.copy())
            self.loop.run_until_complete(task)
        except Stuck as error:
            self.violate(str(error))
        finally:
            asyncio.set_event_loop(None)
