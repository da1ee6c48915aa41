"""The leases of a request: taken before its endpoint, released before its response has ended."""

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Unpack

from .._interface import HoldKeywords
from .asgi import Message, is_last

if TYPE_CHECKING:
    from .. import AsyncDibs, AsyncLease


class RequestLeases:
    """What one request holds.

    It is released before the last piece of the response is sent, as a claim is: whoever has the
    whole response can ask again at once, and a stream is held to its end. What the application
    does afterwards (background tasks) does not hold it.
    """

    def __init__(self, dibs: "AsyncDibs") -> None:
        self._dibs = dibs
        self._stack = AsyncExitStack()
        self._held: list[tuple[AsyncLease, bool]] = []

    async def take(
        self, key: str, name: str | None, **options: Unpack[HoldKeywords]
    ) -> "AsyncLease":
        """Hold *key*. Busy: somebody has it. Unavailable: the store is out."""
        hold = self._dibs.hold(key, name=name, **options)
        lease = await self._stack.enter_async_context(hold)
        self._held.append((lease, options.get("on_late") == "raise"))
        return lease

    def check(self) -> None:
        """LeaseLost: a lease with on_late="raise" was lost."""
        for lease, is_strict in self._held:
            if is_strict:
                lease.check()

    async def sending(self, message: Message) -> None:
        """To be called before a piece of the response is sent. LeaseLost: it is too late for it."""
        if not is_last(message):
            return
        self.check()
        # Not by the stack: a stream is sent by another task than the one that took the lease,
        # and only that one can be cancelled when it is lost.
        while self._held:
            await self._held.pop()[0].release()

    async def leave(self, error: BaseException | None) -> None:
        """The application has returned, or raised *error*. LeaseLost: it was stopped by the loss of
        a lease, or came too late.
        """
        trace = None if error is None else error.__traceback__
        await self._stack.__aexit__(None if error is None else type(error), error, trace)
