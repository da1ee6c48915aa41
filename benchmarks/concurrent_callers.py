"""n callers at once, as threads or as tasks, each doing the same until stopped.

Every caller does it once before the clock starts: connections are open, scripts loaded and
imports done, so that what is timed is the steady state. Calls under way when time is up are
finished and counted, and the clock stops after the last of them.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

Step = Callable[[], object]
AsyncStep = Callable[[], Awaitable[object]]


@dataclass
class Tally:
    """What the callers did: how many steps, in how long, for how much CPU of this process."""

    steps: int
    seconds: float
    cpu: float

    def as_dict(self) -> dict[str, float]:
        return {"rate": self.steps / self.seconds, "cpu_us": self.cpu / self.steps * 1e6}


class Clock:
    """Wall clock and CPU clock of this process, started together."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def tally(self, steps: int) -> Tally:
        return Tally(steps, time.perf_counter() - self._wall, time.process_time() - self._cpu)


def in_threads(makers: Sequence[Callable[[], Step]], seconds: float) -> Tally:
    """One thread for each maker; a maker runs inside its thread and returns that thread's step."""
    running, counts, trouble = True, [0] * len(makers), list[BaseException]()
    ready, go = threading.Barrier(len(makers) + 1), threading.Event()

    def caller(number: int) -> None:
        try:
            step = makers[number]()
            step()
            ready.wait()
            go.wait()
            done = 0
            while running:
                step()
                done += 1
            counts[number] = done
        except threading.BrokenBarrierError:
            pass
        except BaseException as error:
            trouble.append(error)
            ready.abort()

    threads = [threading.Thread(target=caller, args=(n,), daemon=True) for n in range(len(makers))]
    for thread in threads:
        thread.start()
    try:
        ready.wait(30)
    except threading.BrokenBarrierError:
        raise (
            trouble[0] if trouble else TimeoutError("a caller did not get ready in 30 s")
        ) from None
    clock = Clock()
    go.set()
    time.sleep(seconds)
    running = False
    for thread in threads:
        thread.join()
    if trouble:
        raise trouble[0]
    return clock.tally(sum(counts))


async def in_tasks(steps: Sequence[AsyncStep], seconds: float) -> Tally:
    """One task for each step, all on the running loop.

    The tasks look at the clock themselves: a timer pending on the loop would make every wait for
    the socket arm one in the kernel too, which costs a lone task about a tenth of its time.
    """
    now = time.perf_counter

    async def caller(step: AsyncStep, end: float) -> int:
        done = 0
        while now() < end:
            await step()
            done += 1
        return done

    await asyncio.gather(*(step() for step in steps))
    clock, end = Clock(), now() + seconds
    counts = await asyncio.gather(*(caller(step, end) for step in steps))
    return clock.tally(sum(counts))
