"""Each event once: LINE delivers some again, and their reply token is good for one answer only.

A redelivery that is answered, be it with "please wait", takes the answer away from the first
delivery. So this comes before anything else, the processing lock included.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Literal

from dibs import AsyncDibs, Duplicate
from dibs.integrations.linebot import EVENT_NAME, WINDOW, event_key

from ..core.metrics import Metrics

State = Literal["running", "done"]


class Memory:
    """The latest keys of this process, and their states: a few thousand, the oldest go first."""

    def __init__(self, size: int = 10_000) -> None:
        self._size = size
        self._states: OrderedDict[str, State] = OrderedDict()

    def __len__(self) -> int:
        return len(self._states)

    def get(self, key: str) -> State | None:
        """Its state. None: never seen, or too long ago."""
        return self._states.get(key)

    def put(self, key: str, state: State) -> None:
        """Remember it."""
        self._states[key] = state
        self._states.move_to_end(key)
        if len(self._states) > self._size:
            self._states.popitem(last=False)

    def drop(self, key: str) -> None:
        """It may come again."""
        self._states.pop(key, None)


class Deduplication:
    """Which events are new: by a claim that all processes share.

    While the store is out, this process still knows what it has seen itself. That is not a lock,
    and other processes do not know.
    """

    def __init__(self, dibs: AsyncDibs, *, counted_in: Metrics) -> None:
        self._dibs = dibs
        self._metrics = counted_in
        self._memory = Memory()

    @asynccontextmanager
    async def first_time(self, event: object) -> AsyncIterator[bool]:
        """True: it is yours to work on, until the block ends. False: it was there before.

        If the block raises, the event may be delivered and worked on again. One without an id
        cannot be distinguished from others, and is always new.
        """
        key = event_key(event)
        if key is None:
            yield True
        elif state := self._memory.get(key):
            yield self._duplicate(state)
        else:
            self._memory.put(key, "running")
            is_done = False
            try:
                async with AsyncExitStack() as stack:
                    is_new = await self._claimed(stack, key)
                    yield is_new
                is_done = is_new  # what another process does, it may yet fail to do
            finally:
                if is_done:
                    self._memory.put(key, "done")
                else:
                    self._memory.drop(key)

    async def _claimed(self, stack: AsyncExitStack, key: str) -> bool:
        claiming = self._dibs.claim(
            key, window=WINDOW, after="hold", on_error="release", name=EVENT_NAME
        )
        try:
            await stack.enter_async_context(claiming)
        except Duplicate as duplicate:
            return self._duplicate(duplicate.state)
        return True

    def _duplicate(self, state: State) -> bool:
        self._metrics.deduplicated.labels(state).inc()
        return False
