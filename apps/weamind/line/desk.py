"""Where events are worked on after LINE has had its 200: side by side, bounded, to the end.

The rule beyond the bound: a webhook whose events do not all fit is refused as a whole, with 503.
LINE counts that as an error of the bot, and delivers it again where redelivery is switched on.
"""

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Sequence

from ..core.metrics import Metrics
from .events import Event

LONGEST = 50.0
"""What one event may take, in seconds: its reply token is good for about a minute."""
_log = logging.getLogger(__name__)

Work = Callable[[Event], Awaitable[str]]
"""Does what an event asks for; returns what became of it, in a word."""
Keep = Callable[[Sequence[Event]], Awaitable[None]]
"""Takes what was cut at the end."""


class Desk:
    """Events under way. One that fails, hangs or is cut short hurts no other."""

    def __init__(
        self,
        work: Work,
        *,
        concurrency: int,
        limit: int,
        counted_in: Metrics,
        longest: float = LONGEST,
    ) -> None:
        self._work = work
        self._limit = limit
        self._longest = longest
        self._room = asyncio.Semaphore(concurrency)
        self._metrics = counted_in
        self._tasks: dict[asyncio.Task[None], Event] = {}

    def __repr__(self) -> str:
        return f"<Desk {len(self._tasks)} of {self._limit} events>"

    def accept(self, events: Sequence[Event]) -> bool:
        """True: each of them will be worked on. False: there is no room for all, so for none."""
        if len(self._tasks) + len(events) > self._limit:
            self._metrics.events.labels("refused").inc(len(events))
            _log.error("no room for %d more events: the webhook is refused", len(events))
            return False
        for event in events:
            task = asyncio.create_task(self._run(event), name="line event")
            self._tasks[task] = event
            task.add_done_callback(self._gone)
        self._metrics.queue.set(len(self._tasks))
        return True

    async def drain(self, within: float, keep: Keep | None = None) -> int:
        """All events are done; those that are not *within* seconds are cut: how many.

        They are given to *keep*, so that somebody else can answer them.
        """
        if not self._tasks:
            return 0
        _log.info("waiting for %d events", len(self._tasks))
        await asyncio.wait(self._tasks, timeout=within)
        left = dict(self._tasks)
        for task in left:
            task.cancel()
        if left:
            _log.error("%d events were not done within %g s, and are cut", len(left), within)
            await asyncio.wait(left)
        cut = [event for task, event in left.items() if task.cancelled()]
        if cut and keep is not None:
            await keep(cut)
        return len(left)

    def _gone(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        self._metrics.queue.set(len(self._tasks))

    async def _run(self, event: Event) -> None:
        outcome = "cut"
        try:
            async with self._room:
                with self._metrics.running.track_inprogress():
                    outcome = await self._outcome(event)
        finally:
            self._metrics.events.labels(outcome).inc()

    async def _outcome(self, event: Event) -> str:
        try:
            async with asyncio.timeout(self._longest) as limit:
                return await self._work(event)
        except Exception as error:
            if limit.expired():
                _log.error("an event took longer than %g s, and is given up", self._longest)
                return "late"
            # Where it happened, and not its words: they may quote what somebody wrote.
            where = "".join(traceback.format_tb(error.__traceback__))
            _log.error("an event failed with %s:\n%s", type(error).__name__, where)
            return "failed"
