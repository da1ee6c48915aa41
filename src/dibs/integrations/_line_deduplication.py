"""Each event once: LINE delivers some again, and their reply token is good for one answer only."""

from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import Literal

from .. import AsyncDibs, Dibs, Duplicate
from .._interface import fork_safe_lock
from ._line_events import EVENT_NAME, WINDOW, event_key

State = Literal["running", "done"]
Skipped = Callable[[State], object]


class EventMemory:
    """The latest keys of this process and their states, up to *size*; the oldest go first."""

    def __init__(self, size: int = 10_000) -> None:
        self._size = size
        self._states: OrderedDict[str, State] = OrderedDict()
        self._lock = fork_safe_lock()

    def __len__(self) -> int:
        return len(self._states)

    def get(self, key: str) -> State | None:
        """Its state. None: never seen, or too long ago."""
        return self._states.get(key)

    def begin(self, key: str) -> State | None:
        """Its state. None: it was not known, and is running from now on."""
        with self._lock:
            state = self._states.get(key)
            if state is None:
                self._put(key, "running")
            return state

    def put(self, key: str, state: State) -> None:
        """Remember it."""
        with self._lock:
            self._put(key, state)

    def drop(self, key: str) -> None:
        """It may come again."""
        with self._lock:
            self._states.pop(key, None)

    def end(self, key: str, *, is_done: bool) -> None:
        """It is done; or it may come again."""
        self.put(key, "done") if is_done else self.drop(key)

    def _put(self, key: str, state: State) -> None:
        self._states[key] = state
        self._states.move_to_end(key)
        if len(self._states) > self._size:
            self._states.popitem(last=False)


class Deduplication:
    """Which events are new: by a claim that all processes share.

    While the store is out, this process still knows what it has seen itself; other processes do
    not. *skipped* is called with the state of the first delivery, for each event that is not new.
    """

    def __init__(self, dibs: AsyncDibs, *, skipped: Skipped | None = None) -> None:
        self._dibs = dibs
        self._skipped = skipped
        self._memory = EventMemory()

    @asynccontextmanager
    async def first_time(self, event: object) -> AsyncGenerator[bool, None]:
        """True: it is yours to work on, until the block ends. False: it was there before.

        If the block raises, the event may be delivered and worked on again. One without an id
        cannot be distinguished from others, and is always new.
        """
        key = event_key(event)
        state = None if key is None else self._memory.begin(key)
        if key is None or state is not None:
            yield _is_new(state, self._skipped)
            return
        is_done = False
        try:
            async with AsyncExitStack() as stack:
                is_new = await self._claimed(stack, key)
                yield is_new
            is_done = is_new  # what another process does, it may yet fail to do
        finally:
            self._memory.end(key, is_done=is_done)

    async def _claimed(self, stack: AsyncExitStack, key: str) -> bool:
        claim = self._dibs.claim(
            key, window=WINDOW, after="hold", on_error="release", name=EVENT_NAME
        )
        try:
            await stack.enter_async_context(claim)
        except Duplicate as duplicate:
            return _is_new(duplicate.state, self._skipped)
        return True


class ThreadDeduplication:
    """The same for threads."""

    def __init__(self, dibs: Dibs, *, skipped: Skipped | None = None) -> None:
        self._dibs = dibs
        self._skipped = skipped
        self._memory = EventMemory()

    @contextmanager
    def first_time(self, event: object) -> Generator[bool, None, None]:
        """As in `Deduplication`."""
        key = event_key(event)
        state = None if key is None else self._memory.begin(key)
        if key is None or state is not None:
            yield _is_new(state, self._skipped)
            return
        is_done = False
        try:
            with ExitStack() as stack:
                is_new = self._claimed(stack, key)
                yield is_new
            is_done = is_new
        finally:
            self._memory.end(key, is_done=is_done)

    def _claimed(self, stack: ExitStack, key: str) -> bool:
        claim = self._dibs.claim(
            key, window=WINDOW, after="hold", on_error="release", name=EVENT_NAME
        )
        try:
            stack.enter_context(claim)
        except Duplicate as duplicate:
            return _is_new(duplicate.state, self._skipped)
        return True


def _is_new(state: State | None, skipped: Skipped | None) -> bool:
    if state is not None and skipped is not None:
        skipped(state)
    return state is None
