"""Tasks that are cancelled at every possible moment."""

import asyncio
import functools
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any

from dibs import AsyncDibs

MOST_STEPS = 60
Scenario = Callable[[AsyncDibs], Coroutine[Any, Any, None]]


@types.coroutine
def cancelled_at(step: int, body: Any) -> Generator[Any, Any, bool]:
    """Run *body*, cancelling the task at its *step*-th suspension. False: it has fewer."""
    body = body.__await__()
    count = 0
    resume = functools.partial(body.send, None)
    while True:
        try:
            waiting_for = resume()
        except StopIteration:
            return False
        if count == step:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        count += 1
        try:
            resume = functools.partial(body.send, (yield waiting_for))
        except BaseException as error:
            resume = functools.partial(body.throw, error)


async def run_cancelled_at(step: int, work: Coroutine[Any, Any, None]) -> bool:
    """Run *work* in a task that is cancelled at its *step*-th suspension. False: it has fewer."""

    async def body() -> bool:
        return await cancelled_at(step, work)

    task = asyncio.ensure_future(body())
    await asyncio.wait([task])
    if not task.cancelled():
        assert task.result() is False
    return task.cancelled()


async def cancelled_after(ticks: int, work: Coroutine[Any, Any, None]) -> None:
    """Run *work* in a task that is cancelled from outside, after so many turns of the loop."""
    task = asyncio.ensure_future(work)
    for _ in range(ticks):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled() or task.exception() is None
