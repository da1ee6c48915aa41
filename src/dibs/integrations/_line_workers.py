"""Where events are worked on after LINE was answered: concurrently, bounded, drained at the end.

Where the limit is exceeded, a webhook whose events do not all fit is refused as a whole, with 503.
LINE counts that as an error of the bot, and delivers it again where redelivery is switched on.
"""

import asyncio
import logging
import threading
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, TypeVar

from .. import DibsError

LONGEST_REPLY = 50.0
"""What one event may take, in seconds: its reply token is good for about a minute."""
_log = logging.getLogger("dibs.linebot")

E = TypeVar("E")
T = TypeVar("T")
Ended = Callable[[str, int], object]
"""Called with what became of events, in a word, and how many they are."""


async def to_its_end(sending: Coroutine[Any, Any, T]) -> T:
    """The result of *sending* a reply. A caller that is cancelled waits for it first.

    A reply that is cancelled while it is sent would use up the token without an answer.
    """
    task = asyncio.create_task(sending, name="line reply")
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
    finally:
        task.cancel()


class WorkerPool(Generic[E]):
    """Events under way, as tasks. One that fails, hangs or is cancelled does not affect the others.

    *work* does what an event asks for and returns what became of it, in a word. *ended* is called
    with that word, or "failed", "late", "cut", "refused"; *queued* with the number of events that
    are not done; *running* makes a context manager for the time in which one is worked on.
    """

    concurrency = 64
    """How many a dispatcher works on at once, if it is not said."""
    replying = staticmethod(to_its_end)

    def __init__(
        self,
        work: Callable[[E], Awaitable[str]],
        *,
        concurrency: int,
        limit: int,
        longest: float = LONGEST_REPLY,
        ended: Ended | None = None,
        queued: Callable[[int], object] | None = None,
        running: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        self._work = work
        self._limit = limit
        self._longest = longest
        self._semaphore = asyncio.Semaphore(concurrency)
        self._ended = ended or _nothing
        self._queued = queued or _nothing
        self._running = running
        self._tasks: dict[asyncio.Task[None], E] = {}
        self._is_draining = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {len(self._tasks)} of {self._limit} events>"

    def accept(self, events: Sequence[E]) -> bool:
        """True: each of them will be worked on. False: they do not all fit, so none is.

        While it drains none is accepted.
        """
        if self._is_draining or len(self._tasks) + len(events) > self._limit:
            _refuse(self._ended, len(events), is_draining=self._is_draining)
            return False
        for event in events:
            task = asyncio.create_task(self._run(event), name="line event")
            self._tasks[task] = event
            task.add_done_callback(self._gone)
        self._queued(len(self._tasks))
        return True

    async def drain(
        self, within: float, keep: Callable[[Sequence[E]], Awaitable[None]] | None = None
    ) -> int:
        """Wait until all events are done; cancel those that are not *within* seconds: how many.

        They are given to *keep*, so that somebody else can answer them.
        """
        if not self._tasks:
            return 0
        self._is_draining = True
        try:
            return await self._drained(within, keep)
        finally:
            self._is_draining = False

    async def _drained(
        self, within: float, keep: Callable[[Sequence[E]], Awaitable[None]] | None
    ) -> int:
        _log.info("waiting for %d events", len(self._tasks))
        await asyncio.wait(self._tasks, timeout=within)
        left = dict(self._tasks)
        for task in left:
            task.cancel()
        if left:
            _log.error("%d events were not done within %g s, and are cancelled", len(left), within)
            await asyncio.wait(left)
        cut = [event for task, event in left.items() if task.cancelled()]
        if cut and keep is not None:
            await keep(cut)
        return len(left)

    def _gone(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        self._queued(len(self._tasks))

    async def _run(self, event: E) -> None:
        outcome = "cut"
        try:
            async with self._semaphore:
                with self._running():
                    outcome = await self._outcome(event)
        finally:
            self._ended(outcome, 1)

    async def _outcome(self, event: E) -> str:
        limit = asyncio.timeout(self._longest)
        try:
            async with limit:
                return await self._work(event)
        except Exception as error:
            if limit.expired():
                _log.error("an event took longer than %g s, and is given up", self._longest)
                return "late"
            return _failed(error)


class ThreadWorkerPool(Generic[E]):
    """The same with threads, which cannot be cut: what takes too long is waited for elsewhere."""

    concurrency = 16

    @staticmethod
    def replying(sent: T) -> T:
        """A reply that was sent: threads are not cancelled."""
        return sent

    def __init__(
        self,
        work: Callable[[E], str],
        *,
        concurrency: int,
        limit: int,
        ended: Ended | None = None,
    ) -> None:
        self._work = work
        self._limit = limit
        self._ended = ended or _nothing
        self._lock = threading.Lock()
        self._futures: set[Future[None]] = set()
        self._is_drained = False
        self._pool = ThreadPoolExecutor(concurrency, "line event")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {len(self._futures)} of {self._limit} events>"

    def accept(self, events: Sequence[E]) -> bool:
        """As in `WorkerPool`."""
        with self._lock:
            fits = not self._is_drained and len(self._futures) + len(events) <= self._limit
            started = [self._pool.submit(self._run, each) for each in events] if fits else []
            self._futures.update(started)
        for future in started:
            future.add_done_callback(self._gone)
        if not fits:
            _refuse(self._ended, len(events), is_draining=self._is_drained)
        return fits

    def drain(self, within: float) -> int:
        """Wait until all events are done, *within* seconds at most: how many are not.

        Those that have not begun by then never will. From now on none is accepted.
        """
        with self._lock:
            self._is_drained = True
            futures = set(self._futures)
        left = len(wait(futures, timeout=within).not_done)
        if left:
            _log.error("%d events were not done within %g s", left, within)
        self._pool.shutdown(wait=False, cancel_futures=True)
        return left

    def _gone(self, future: "Future[None]") -> None:
        with self._lock:
            self._futures.discard(future)
        if future.cancelled():
            self._ended("cut", 1)

    def _run(self, event: E) -> None:
        outcome = "cut"
        try:
            outcome = self._work(event)
        except Exception as error:
            outcome = _failed(error)
        finally:
            self._ended(outcome, 1)


def _refuse(ended: Ended, number: int, *, is_draining: bool) -> None:
    ended("refused", number)
    why = "the process is ending" if is_draining else "the queue is full"
    _log.error("%s: a webhook of %d events is refused", why, number)


def _failed(error: Exception) -> str:
    where = "".join(traceback.format_tb(error.__traceback__))
    _log.error("an event failed with %s\n%s", _described(error), where)
    return "failed"


def _described(error: Exception) -> str:
    """Its type, and what is known to quote nothing that somebody wrote: most errors may do so."""
    kind, status = type(error), getattr(error, "status", None)
    if kind.__module__ == DibsError.__module__:
        sentence = "" if getattr(error, "message", None) else str(error).partition(", not ")[0]
        return f"{kind.__name__}: {sentence}" if sentence else kind.__name__
    if kind.__module__.startswith("linebot.") and isinstance(status, int):
        return f"{kind.__name__}: HTTP status {status}"
    return kind.__name__


def _nothing(*_: object) -> None: ...
