"""An event loop that moves the virtual clock in place of waiting, and runs no paused process."""

import asyncio
from heapq import heappop
from itertools import count
from typing import TYPE_CHECKING, Any

from .system import CLOCK, PROCESS, Process

if TYPE_CHECKING:
    from .network import Network

_MOST_STEPS = 20_000
"""More turns of the loop at one moment are a loop without an end."""


class Stuck(Exception):
    """No task can run, or one runs for ever."""


class _Numbered:
    """Hashed by a number, not by its place in memory: a set of them always has the same order."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class _Task(_Numbered, asyncio.Task[Any]):
    process: Process | None = None
    """Whose it is; None: nobody's."""


class _Future(_Numbered, asyncio.Future[Any]):
    pass


class SimulatedLoop(asyncio.BaseEventLoop):
    """Handles run in the order in which they became due; ties in the order of their creation."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = count(1)
        self.set_task_factory(self._new_task)
        self.network: Network | None = None
        self._halted: dict[Process, None] = {}
        self._turns = 0

    def time(self) -> float:
        return CLOCK.now

    def _new_task(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> _Task:
        task = _Task(work, loop=loop, **options)
        task.number = next(self._numbers)
        context = options.get("context")
        task.process = PROCESS.get(None) if context is None else context.get(PROCESS)
        return task

    def create_future(self) -> _Future:
        future = _Future(loop=self)
        future.number = next(self._numbers)
        return future

    # ---- processes

    def pause(self, process: Process) -> None:
        """Run nothing of *process* until `resume`."""
        process.pause()
        self._halted[process] = None

    def resume(self, process: Process) -> None:
        """Let *process* go on: all that became due meanwhile is due now."""
        if process.is_paused and not process.is_dead:
            del self._halted[process]
            self._ready.extend(process.resume())

    def kill(self, process: Process) -> None:
        """Run nothing of *process* from now on."""
        process.is_dead = True
        # Also those that the library has started: if they were collected, they would end.
        process.tasks += [
            task for task in asyncio.all_tasks(self) if getattr(task, "process", None) is process
        ]
        process.backlog.clear()
        self._halted[process] = None

    # ---- turns

    def _run_once(self) -> None:
        if not self._ready:
            self._move_clock()
        self._take_due()
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            if handle.cancelled() or (self._halted and self._is_halted(handle)):
                continue
            handle._run()
        self._turns += 1
        if self._turns > _MOST_STEPS:
            raise Stuck("something runs for ever, without waiting")

    def _move_clock(self) -> None:
        scheduled = self._scheduled
        while scheduled and scheduled[0].cancelled():
            heappop(scheduled)._scheduled = False
        if not scheduled:
            raise Stuck("nothing is due and nothing can become due")
        if scheduled[0].when() > CLOCK.now:
            CLOCK.now = scheduled[0].when()
            self._turns = 0

    def _take_due(self) -> None:
        scheduled, now = self._scheduled, CLOCK.now
        while scheduled and scheduled[0].when() <= now:
            handle = heappop(scheduled)
            handle._scheduled = False
            self._ready.append(handle)

    def _is_halted(self, handle: asyncio.Handle) -> bool:
        process = handle._context.get(PROCESS)
        if process not in self._halted:
            return False
        if not process.is_dead:
            process.backlog.append(handle)
        return True

    # ---- what an event loop of a system does otherwise

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any
    ) -> Any:
        assert self.network is not None
        return await self.network.connect(protocol_factory, host, port)

    def run_in_executor(self, *_: Any) -> Any:
        raise Stuck("threads are not simulated")

    def _write_to_self(self) -> None:
        pass

    def _process_events(self, event_list: Any) -> None:
        pass
