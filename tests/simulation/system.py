"""The simulated system: one virtual clock, and processes that have it, randomness and a name.

Importing this module replaces what `dibs._system` gives to the rest of dibs, so it comes before
every other import of dibs. It is for a process that does nothing else:
`python -m tests.simulation`.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any

from dibs import _system

BEGIN = 1000.0
EPOCH = 1_700_000_000.0
"""The wall clock where the virtual one is 0, in seconds since 1970."""


class Clock:
    """The virtual time of all processes and servers, in seconds."""

    def __init__(self) -> None:
        self.now = BEGIN

    def monotonic(self) -> float:
        """Seconds since some moment."""
        return self.now

    def wall(self) -> float:
        """The true time, in seconds since 1970."""
        return EPOCH + self.now


CLOCK = Clock()


class Process:
    """A process that uses dibs: it can be paused, killed, and have a wrong wall clock."""

    def __init__(self, number: int, seed: str) -> None:
        self.number = number
        self.name = f"p{number}"
        self.random = Random(f"{seed}/{self.name}/library")
        self.wall_offset = 0.0
        self.is_paused = self.is_dead = False
        self.backlog: list[asyncio.Handle] = []
        """What became due while it was paused."""
        self.tasks: list[asyncio.Task[Any]] = []
        """Kept: a killed process runs no `finally`."""
        self._slept = 0.0
        self._paused_at = 0.0
        self.context = copy_context()
        self.context.run(PROCESS.set, self)

    def __repr__(self) -> str:
        return self.name

    def spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run *work* as a task of this process."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(work, context=self.context.copy())
        self.tasks.append(task)
        return task

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call *function* in this process."""
        return self.context.copy().run(function, *arguments)

    def pause(self) -> None:
        """Nothing runs until `resume`."""
        self.is_paused, self._paused_at = True, CLOCK.now

    def resume(self) -> list[asyncio.Handle]:
        """Go on. What is to run, in the order of an event loop: what was ready, then timers."""
        self.is_paused = False
        self._slept += CLOCK.now - self._paused_at
        handles, self.backlog = self.backlog, []
        return sorted(handles, key=lambda handle: isinstance(handle, asyncio.TimerHandle))

    @property
    def awake(self) -> float:
        """Seconds for which it has run, by its own event loop."""
        slept = self._slept + (CLOCK.now - self._paused_at if self.is_paused else 0.0)
        return CLOCK.now - slept


PROCESS: ContextVar[Process] = ContextVar("process")
OUTSIDE = Context()
"""What belongs to no process: the network, the servers, the faults."""


def _wall() -> float:
    return EPOCH + CLOCK.now + PROCESS.get().wall_offset


def _install() -> None:
    if "dibs._tasks" in sys.modules:
        raise RuntimeError("import tests.simulation.system before the rest of dibs")
    _system.monotonic = CLOCK.monotonic
    _system.time = _wall
    _system.random = lambda: PROCESS.get().random.random()
    _system.urandom = lambda size: PROCESS.get().random.randbytes(size)
    _system.gethostname = lambda: PROCESS.get().name
    _system.getpid = lambda: 100 + PROCESS.get().number


_install()
