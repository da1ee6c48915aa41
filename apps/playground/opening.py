"""A part that is started when first needed, once for all requests that arrive meanwhile."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from starlette.exceptions import HTTPException

T = TypeVar("T")


class Opening(Generic[T]):
    """The services behind a panel. *what*: how a visitor knows them, as in "The shop closes."."""

    def __init__(self, what: str, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._what = what
        self._work = work
        self._task: asyncio.Task[T] | None = None

    async def result(self) -> T:
        """The services. 503: they cannot be started, or the page is about to end."""
        if self._task is None:
            self._task = asyncio.create_task(self._work())
        task = self._task
        await asyncio.wait([task])
        if task.cancelled():
            raise HTTPException(503, f"The {self._what} closes.")
        try:
            return task.result()
        except OSError as error:
            if self._task is task:  # else another request has tried again already
                self._task = None  # the next visitor tries again
            raise HTTPException(503, f"The {self._what} stays closed: {error}.") from None

    async def stop(self) -> None:
        """Stop without waiting for services that are just being started."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
