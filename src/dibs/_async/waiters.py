"""Waiting for a key: in order of arrival, one contender per process and key, woken, not polling."""

import contextlib
import math
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from .._core.connection import Outage
from .._core.lease import HoldCall, Holding, count_request, has_changed, is_full
from .._core.tracking import NOTE_EVERY, Pushes, Watching, note_request, unnote_request
from .._system import time
from .._tasks import Guard, Signal, current_loop, monotonic
from .store import AsyncStore

T = TypeVar("T")

_LOOK_AGAIN = 2.0
"""A push can be lost: how long to trust that none has come, in seconds."""
_POLL = 0.1
"""Where the server cannot push changes: how often to look."""
_RENEWED = 0.05
"""A key that has this much more time than it should was renewed or acquired again, in seconds."""
_JUST_AFTER = 0.002
"""An expiry is not announced; look this much after it."""
_NOTE_AFTER = 1.0
"""Who has waited so long is noted at the server, for people who look; others cost nothing."""


class Turn(Signal):
    """One who waits. A signal handler may raise before it is out of the queue."""

    has_left = False


class AsyncQueue:
    """Those who wait for one key, what they know of it, and when one of them looks again.

    The knowledge belongs to the queue, not to its first waiter: the next one continues to wait
    where the one before stopped, without asking again. So all of them have the same limit.
    """

    def __init__(self, guard: AbstractContextManager[Any], limit: int | None) -> None:
        self.limit = limit
        self._since, self._wall = monotonic(), time()
        self._noted_at = -math.inf
        self.turns: deque[Turn] = deque()
        self.look_at = 0.0
        self._guard = guard
        self._answer: Holding | None = None
        self._answered_at = 0.0
        self._pushed = False
        self._pushes = Pushes()

    def is_note_due(self, now: float) -> bool:
        """Return whether to note, or note again, that this process waits."""
        is_due = now - self._since >= _NOTE_AFTER and now - self._noted_at >= NOTE_EVERY
        if is_due:
            self._noted_at = now
        return is_due

    def note_by(self, who: bytes) -> bytes:
        """Return what is noted, unchanged as long as a caller waits here."""
        return b"%b %d" % (who, self._wall * 1000)

    @property
    def is_noted(self) -> bool:
        """Return whether there is a note."""
        return self._noted_at > -math.inf

    @property
    def holding(self) -> Holding | None:
        """Return who has the key, as far as this process knows; None: it has not asked yet."""
        if self._answer is None:
            return None
        remaining = self._answered_at + self._answer.remaining - monotonic()
        return Holding(max(remaining, 0.0), *self._answer[1:])

    def answered(self, holding: Holding) -> None:
        """The store said who has the key. What wakes us from now on is news."""
        before = self.holding
        with self._guard:
            now = monotonic()
            changed = before is None or _is_another(before, holding)
            changed = changed or has_changed(self._answer, holding)
            self._pushes = self._pushes.after_reading(now, pushed=self._pushed, changed=changed)
            self._pushed = False
            self._answer, self._answered_at = holding, now
            self.look_at = now + _LOOK_AGAIN  # if the caller is gone before it says when

    @property
    def pause(self) -> float:
        """Return how long to wait before registering for a push again; 0: not at all."""
        return self._pushes.pause

    def look_again(self, pause: float) -> None:
        """Look again after *pause*, unless we were woken since `answered`."""
        with self._guard:
            self.look_at = min(self.look_at, monotonic() + pause)

    def wake(self) -> None:
        """The key may be free: the first looks now."""
        with self._guard:
            self._pushed = True
            self.look_at = 0.0
            first = self.first
            if first is not None:
                first.set()

    @property
    def first(self) -> Turn | None:
        """Return whose turn it is; None: nobody waits."""
        with self._guard:
            while self.turns and self.turns[0].has_left:
                self.turns.popleft()
            return self.turns[0] if self.turns else None


def _is_another(before: Holding, now: Holding) -> bool:
    """Return whether the key has changed hands, or was renewed or released."""
    return before[1:] != now[1:] or now.remaining > before.remaining + _RENEWED


def _is_news(queue: AsyncQueue, watching: Watching) -> bool:
    """Return whether the key has changed between the last look and *watching* it.

    Perhaps it is done.
    """
    known = queue.holding
    return known is not None and known.remaining + _RENEWED < watching.remaining < math.inf


class AsyncWaiters:
    """Those who wait, key by key. The first in a queue contends, the others wait for it."""

    def __init__(
        self,
        store: AsyncStore,
        held_here: Callable[[bytes], Holding | None],
        who: Callable[[], bytes],
    ) -> None:
        self._store = store
        self._who = who
        """What this process is called, where it is noted that it waits."""
        self._held_here = held_here
        """Who has a key, if it is this process."""
        self.open()

    def open(self) -> None:
        """Begin without waiters; again in a forked child."""
        self.queues: dict[bytes, list[AsyncQueue]] = {}
        """Key → its queue; several, if some who wait have another limit than others."""
        self.guard = Guard()
        self._loop: object = None

    async def take(
        self, call: HoldCall, attempt: Callable[[HoldCall], Awaitable[T | Holding]]
    ) -> T | Holding:
        """Return what *attempt* returns once it is not a Holding; or, after `wait`, who has it."""
        deadline = monotonic() + call.options.wait
        self._store.enter()
        turn, queue = Turn(), None
        try:
            queue = self._join(call, turn)
            await self._until_first(queue, turn, deadline)
            if monotonic() >= deadline and queue.holding is not None:
                return self._held_here(call.key) or queue.holding
            return await self._contend(call, attempt, queue, turn, deadline)
        finally:
            turn.has_left = True  # first of all, and without a call
            self._leave(call, queue, turn)

    def wake_next(self, key: bytes) -> None:
        """A lease of this process has ended: the first in the queue may try."""
        for queue in list(self.queues.get(key, ())):
            queue.wake()

    def wake_all(self) -> None:
        """Each waiter looks for itself."""
        for key in list(self.queues):
            self.wake_next(key)

    def _join(self, call: HoldCall, turn: Turn) -> AsyncQueue:
        loop, limit = current_loop(), call.options.limit
        with self.guard:
            if loop is not self._loop:
                # The waiters in these queues belong to a loop that was closed.
                self._loop, self.queues = loop, {}
            queue = self._queue_of(call)
            if queue is None:
                queue = AsyncQueue(self.guard, limit)
                self.queues.setdefault(call.key, []).append(queue)
            queue.turns.append(turn)
            return queue

    def _queue_of(self, call: HoldCall) -> AsyncQueue | None:
        queues = self.queues.get(call.key, ())
        return next((each for each in queues if each.limit == call.options.limit), None)

    def _leave(self, call: HoldCall, queue: AsyncQueue | None, turn: Turn) -> None:
        """*queue*: None if it was interrupted while it joined one."""
        key = call.key
        with self.guard:
            queue = queue or self._queue_of(call)
            if queue is None:
                return
            with contextlib.suppress(ValueError):  # it is not in it, or not any more
                queue.turns.remove(turn)
            first = queue.first
            if first is not None:
                first.set()
                return
            queues = self.queues.get(key, [])
            if queue in queues:
                queues.remove(queue)
                if not queues:
                    del self.queues[key]
        self._store.transport.unwatch(key, queue.wake)
        if queue.is_noted and not self._store.is_closed:
            note = queue.note_by(self._who())
            self._store.transport.post(unnote_request(call, note))

    def _note(self, call: HoldCall, queue: AsyncQueue) -> None:
        """Note on the server that callers wait, if that takes long; a lost note does no harm."""
        transport = self._store.transport
        is_possible = transport.engine is not None and "EVAL" not in transport.engine.refused
        if is_possible and queue.is_note_due(monotonic()):
            transport.post(note_request(call, queue.note_by(self._who())))

    async def _until_first(self, queue: AsyncQueue, turn: Turn, deadline: float) -> None:
        """Until it is our turn to contend, or `wait` is over."""
        while queue.first is not turn:
            turn.clear()
            if queue.first is turn:
                # Between the two looks it became ours; the signal is gone, the turn is not.
                return
            remaining = deadline - monotonic()
            if remaining <= 0:
                return
            await turn.wait(remaining)

    async def _contend(
        self,
        call: HoldCall,
        attempt: Callable[[HoldCall], Awaitable[T | Holding]],
        queue: AsyncQueue,
        turn: Turn,
        deadline: float,
    ) -> T | Holding:
        while True:
            turn.clear()
            self._store.enter()
            if monotonic() >= queue.look_at:
                outcome = await attempt(call)
                if not isinstance(outcome, Holding):
                    queue.look_at = 0.0
                    return outcome
                queue.answered(outcome)
                self._note(call, queue)
                if queue.pause:
                    queue.look_again(queue.pause)
                else:
                    await self._watch(call, queue)
            now = monotonic()
            if now >= deadline and queue.holding is not None:
                return self._held_here(call.key) or queue.holding
            await turn.wait(min(queue.look_at, deadline) - now)

    async def _watch(self, call: HoldCall, queue: AsyncQueue) -> None:
        """Be woken when the key changes; decide when to look without being woken."""
        here = self._held_here(call.key)
        if here is not None:
            # Now and then all the same: another program may delete the key.
            queue.look_again(min(here.remaining + _JUST_AFTER, _LOOK_AGAIN))
            return
        try:
            watching = await self._register(call, queue)
        except Outage:
            queue.look_again(0.0)  # the next attempt meets the same outage, and the policy decides
        else:
            pause = _LOOK_AGAIN if watching.tracked and not _is_news(queue, watching) else _POLL
            is_expired = watching.remaining <= 0
            queue.look_again(
                _JUST_AFTER if is_expired else min(watching.remaining + _JUST_AFTER, pause)
            )

    async def _register(self, call: HoldCall, queue: AsyncQueue) -> Watching:
        """Be woken by the next change of the key; how long there will be none, as it is now."""
        transport = self._store.transport
        if call.options.limit is None:
            return await transport.watch(call.key, queue.wake, monotonic())
        answer = await transport.track(count_request(call.key), queue.wake, monotonic())
        # A permit may have been released before we were registered.
        first, count = queue.holding, answer.replies[0]
        if not isinstance(count, int):
            return Watching(math.inf, tracked=False)  # refused: all we can do is try now and then
        full = first is not None and is_full(count, call.options)
        return Watching(first.remaining if first and full else 0.0, tracked=answer.tracked)
