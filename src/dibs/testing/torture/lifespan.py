"""The life of the wrapped app around a case: started before it, stopped and swept after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from .adapter import Adapter
from .asgi import App, Scope, Wrap
from .line import Line
from .news import Broken, expect
from .trial import Trial

GRACE = 1.0  # for tasks that are just ending


@asynccontextmanager
async def alive(trial: Trial, *, wanted: bool) -> AsyncGenerator[None]:
    """Send the app its startup and shutdown, as servers do; end all its calls in between.

    An app that raises at startup has no lifespan: servers go on without one, and so do we.
    """
    life = await _started(trial, trial.app, trial.state) if wanted else None
    try:
        yield
    finally:
        await _end(trial.lines)
        if life is not None and not life.done:
            await _stopped(life)


@asynccontextmanager
async def beside(trial: Trial, wrap: Wrap | None = None) -> AsyncGenerator[App]:
    """Put the middleware, or *wrap*, around the same app once more, as another process has it."""
    app = (wrap or trial.wrap)(trial.stage)
    life = await _started(trial, app, {})
    try:
        yield app
    finally:
        if not life.done:
            await _stopped(life)


@asynccontextmanager
async def hooked(adapter: Adapter) -> AsyncGenerator[None]:
    """Call the hooks that the adapter brings, around a case."""
    if adapter.startup is not None:
        await adapter.startup()
    try:
        yield
    finally:
        if adapter.shutdown is not None:
            await adapter.shutdown()


@asynccontextmanager
async def swept() -> AsyncGenerator[None]:
    """End all tasks that were begun inside; raise Broken if one had to be cancelled for that."""
    before = asyncio.all_tasks()
    left: list[str] = []
    try:
        yield
    finally:
        left += await _sweep(asyncio.all_tasks() - before)
    if left:
        raise Broken(f"tasks were left behind: {', '.join(left)}")


def lifespan_scope(state: dict[str, Any]) -> Scope:
    """Return the scope of a lifespan."""
    return {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": state}


async def _started(trial: Trial, app: App, state: dict[str, Any]) -> Line:
    life = Line(app, lifespan_scope(state), news=trial.news)
    life.tell({"type": "lifespan.startup"})
    await life.said("lifespan.startup.complete")
    return life


async def _stopped(life: Line) -> None:
    life.tell({"type": "lifespan.shutdown"})
    try:
        await life.ended()
        expect(life.error is None, f"the lifespan ended badly: {life.seen}")
    finally:
        await _end([life])


async def _end(lines: Iterable[Line]) -> None:
    # No verdict here: whatever does not end is left for the sweeper.
    tasks = [line.task for line in lines if not line.done]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=GRACE)


async def _sweep(tasks: set[asyncio.Task[Any]]) -> list[str]:
    if tasks:
        await asyncio.wait(tasks, timeout=GRACE)
    stuck = [task for task in tasks if not task.done()]
    for task in stuck:
        task.cancel()
    if stuck:
        await asyncio.wait(stuck, timeout=GRACE)
    return [getattr(task.get_coro(), "__qualname__", task.get_name()) for task in stuck]
