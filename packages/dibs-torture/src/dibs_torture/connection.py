"""The server side of one call of an ASGI app: the messages in both directions."""

from __future__ import annotations

import asyncio
from collections import deque

from .asgi import App, Message, Scope
from .notifier import Notifier


class Connection:
    """One call of an app, in its own task. Used as it is for websockets and lifespans."""

    def __init__(self, app: App, scope: Scope, *, notifier: Notifier) -> None:
        self.scope = scope
        self.sent: list[Message] = []
        self.waiting_for_message = False
        self._notifier = notifier
        self._inbox: deque[Message] = deque()
        self.task = asyncio.create_task(self._call(app))
        self.task.add_done_callback(self._note_end)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.seen}>"

    @property
    def done(self) -> bool:
        """Whether the app has returned, or raised."""
        return self.task.done()

    @property
    def error(self) -> BaseException | None:
        """What came out of the app besides messages; None while it runs."""
        if not self.task.done():
            return None
        return asyncio.CancelledError() if self.task.cancelled() else self.task.exception()

    @property
    def unread(self) -> int:
        """How many messages were handed in and not received."""
        return len(self._inbox)

    @property
    def seen(self) -> str:
        """What has come out so far, in words."""
        said = ", ".join(message["type"] for message in self.sent) or "nothing"
        return f"{said}{self._ending()}"

    def deliver(self, message: Message) -> None:
        """Queue the next message for the app."""
        self._inbox.append(message)
        self._notifier.notify()

    async def cancel(self) -> None:
        """Cancel the call, and wait until it has ended."""
        self.task.cancel()
        await self.ended()

    async def ended(self) -> None:
        """Wait until the app has returned or raised."""
        await self._notifier.until(lambda: self.done, lambda: f"the call did not end: {self.seen}")

    async def wait_sent(self, kind: str) -> None:
        """Wait until the app has sent a message of this type."""
        await self._notifier.until(
            lambda: any(message["type"] == kind for message in self.sent) or self.done,
            lambda: f"no {kind} came: {self.seen}",
        )

    async def _call(self, app: App) -> None:
        await app(self.scope, self._receive, self._send)

    async def _receive(self) -> Message:
        # No deadline: an app may listen for as long as it likes. Callers that wait for it have one.
        while not self._inbox:
            self._note_waiting()
            await self._notifier.next()
        self.waiting_for_message = False
        return self._inbox.popleft()

    def _note_end(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()  # retrieved, or asyncio would log it
        self._notifier.notify()

    def _note_waiting(self) -> None:
        if not self.waiting_for_message:
            self.waiting_for_message = True
            self._notifier.notify()

    async def _send(self, message: Message) -> None:
        self.sent.append(dict(message))
        self._notifier.notify()

    def _ending(self) -> str:
        if not self.done:
            return ", and the call goes on"
        return f", then {self.error!r}" if self.error else ""
