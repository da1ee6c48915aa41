"""Cancelling a call at one of its pauses: the first await that has to wait, the second, …"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any

from .asgi import App, Receive, Scope, Send


class Cancellation:
    """A layer around an app that cancels its own call, once, at the nth pause.

    Early: while the call waits. Late: when what it waits for has just come, and it does not know
    yet, such as the reply to a claim that was granted.
    """

    def __init__(self, pause: int, *, late: bool) -> None:
        self.done = False
        self._pause = pause
        self._late = late

    def __str__(self) -> str:
        return f"cancelled at pause {self._pause}, {'late' if self._late else 'early'}"

    def __call__(self, app: App) -> App:
        """Put the layer around an app."""

        async def layer(scope: Scope, receive: Receive, send: Send) -> None:
            await _Watched(app(scope, receive, send), self._at_a_pause)

        return layer

    def _at_a_pause(self, number: int, waiting: Any) -> None:
        if number != self._pause:
            return
        self.done = True
        task = asyncio.current_task()
        assert task is not None
        if self._late and waiting is not None:
            # Called before the task's own callback: the task finds itself cancelled on waking up.
            done: asyncio.Future[Any] = waiting
            done.add_done_callback(lambda _: task.cancel())
        else:
            asyncio.get_running_loop().call_soon(task.cancel)


class _Watched:
    """Awaits something, and reports each pause in it: its number, and what is waited for."""

    def __init__(self, work: Awaitable[None], pausing: Callable[[int, Any], None]) -> None:
        self._work = work
        self._pausing = pausing

    def __await__(self) -> Generator[Any, Any, None]:
        steps = self._work.__await__()
        thrown: BaseException | None = None
        pauses = 0
        while True:
            try:
                waiting = next(steps) if thrown is None else _throw(steps, thrown)
            except StopIteration:
                return
            pauses += 1
            self._pausing(pauses, waiting)
            try:
                thrown = yield waiting
            except BaseException as error:
                thrown = error


def _throw(steps: Any, error: BaseException) -> Any:
    return steps.throw(error)
