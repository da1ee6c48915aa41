"""From the floor to dibs, one step at a time: the commands of a lease, and more around them.

None of these is a client to use: they have no outages, no budget, no retries, no release after a
cancellation, no fork, no events. The last step is what Python takes for an interface like that of
``hold``; what dibs takes beyond it is the price of those.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from time import monotonic
from types import TracebackType
from typing import Any

from . import TTL, floor

_TAKE = (
    b"*7\r\n$3\r\nSET\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$2\r\nNX\r\n$3\r\nGET\r\n$2\r\nPX\r\n$%d\r\n%b\r\n"
    b"*2\r\n$4\r\nPTTL\r\n$%d\r\n%b\r\n"
)
_GIVE = b"*3\r\n$7\r\nDELIFEQ\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n"


class PackedTasks(floor.Tasks):
    """A token for each lease, and commands packed for it."""

    number = 0

    async def take(self, key: bytes, ttl: bytes) -> bytes:
        """Acquire the key; the token."""
        self.number += 1
        token = b"token-%x@host:1" % self.number
        size = len(key)
        words = (size, key, len(token), token, len(ttl), ttl, size, key)
        if await self._line.ask(_TAKE % words, 2) is not None:
            raise AssertionError(f"{key!r} was not free")
        return token

    async def give(self, key: bytes, token: bytes) -> None:
        """Release the key."""
        if await self._line.ask(_GIVE % (len(key), key, len(token), token), 1) != 1:
            raise AssertionError(f"{key!r} was lost")

    def pair_on(self, key: str) -> Callable[[], Awaitable[None]]:
        async def pair() -> None:
            name = key.encode()
            await self.give(name, await self.take(name, b"%d" % (TTL * 1000)))

        return pair


class Block:
    """Acquires and releases with ``async with``."""

    __slots__ = ("_client", "_key", "_token", "_ttl")

    def __init__(self, client: PackedTasks, key: bytes, ttl: float) -> None:
        self._client, self._key, self._ttl = client, key, ttl

    async def __aenter__(self) -> Any:
        self._token = await self._client.take(self._key, b"%d" % (self._ttl * 1000))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        await self._client.give(self._key, self._token)


class BlockTasks(PackedTasks):
    def pair_on(self, key: str) -> Callable[[], Awaitable[None]]:
        async def pair() -> None:
            async with Block(self, key.encode(), TTL):
                pass

        return pair


class State:
    """What is known about a lease: its deadline, by the clock of this process."""

    __slots__ = ("deadline", "is_lost", "is_over", "key", "since", "token")

    def __init__(self, key: bytes, token: bytes, since: float, ttl: float) -> None:
        self.key, self.token, self.since, self.deadline = key, token, since, since + ttl
        self.is_over = self.is_lost = False


class Handle:
    """What the caller gets."""

    __slots__ = ("__weakref__", "state")

    def __init__(self, state: State) -> None:
        self.state = state


class StateBlock(Block):
    """The same with a deadline, a table of the leases of this process, and a lease object."""

    __slots__ = ("_state",)
    _client: StateTasks

    async def __aenter__(self) -> Handle:
        now, key, table = monotonic(), self._key, self._client.table
        if key in table:
            raise AssertionError(f"{key!r} is held here")
        token = await self._client.take(key, b"%d" % (self._ttl * 1000))
        self._state = table[key] = State(key, token, now, self._ttl)
        if monotonic() >= self._state.deadline:
            raise AssertionError(f"{key!r} was lost")
        return Handle(self._state)

    async def __aexit__(self, *raised: object) -> None:
        state, now = self._state, monotonic()
        state.is_lost, state.is_over = now >= state.deadline, True
        self._client.table.pop(state.key, None)
        await self._client.give(state.key, state.token)


class StateTasks(PackedTasks):
    def __init__(self, line: floor.Line) -> None:
        super().__init__(line)
        self.table: dict[bytes, State] = {}

    def pair_on(self, key: str) -> Callable[[], Awaitable[None]]:
        async def pair() -> None:
            async with StateBlock(self, key.encode(), TTL):
                pass

        return pair


class OptionsTasks(StateTasks):
    """The same behind a method with keyword options, checked once for each combination."""

    def __init__(self, line: floor.Line) -> None:
        super().__init__(line)
        self._checked: dict[tuple[object, ...], float] = {}

    def hold(
        self, key: str, *, ttl: float, wait: float = 0.0, renew: bool = False, fence: bool = False
    ) -> StateBlock:
        options = (ttl, wait, renew, fence)
        checked = self._checked.get(options)
        if checked is None:
            checked = self._checked[options] = float(ttl)
        return StateBlock(self, key.encode(), checked)

    def pair_on(self, key: str) -> Callable[[], Awaitable[None]]:
        hold = self.hold

        async def pair() -> None:
            async with hold(key, ttl=TTL):
                pass

        return pair
