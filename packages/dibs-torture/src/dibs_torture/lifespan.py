"""The lifespan of the wrapped app around a case, and the tasks that are left after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from .adapter import Adapter
from .asgi import App, Scope, Wrap
from .connection import Connection
from .harness import Harness
from .notifier import PromiseBroken, expect

GRACE = 1.0  # for tasks that are just ending


@asynccontextmanager
async def running_lifespan(harness: Harness, *, wanted: bool) -> AsyncGenerator[None]:
    """Send the app its startup and shutdown, as servers do; end all its calls in between.

    An app that raises at startup has no lifespan: servers go on without one, and so do we.
    """
    life = await _started(harness, harness.app, harness.state) if wanted else None
    try:
        yield
    finally:
        await _end(harness.connections)
        if life is not None and not life.done:
            await _stopped(life)


@asynccontextmanager
async def second_instance(harness: Harness, wrap: Wrap | None = None) -> AsyncGenerator[App]:
    """Put the middleware, or *wrap*, around the same app once more, as another process has it."""
    app = (wrap or harness.wrap)(harness.application)
    life = await _started(harness, app, {})
    try:
        yield app
    finally:
        if not life.done:
            await _stopped(life)


@asynccontextmanager
async def adapter_hooks(adapter: Adapter) -> AsyncGenerator[None]:
    """Call the hooks that the adapter brings, around a case."""
    if adapter.startup is not None:
        await adapter.startup()
    try:
        yield
    finally:
        if adapter.shutdown is not None:
            await adapter.shutdown()


@asynccontextmanager
async def no_leftover_tasks() -> AsyncGenerator[None]:
    """End all tasks that were begun inside. PromiseBroken: one had to be cancelled."""
    before = asyncio.all_tasks()
    leftover: list[str] = []
    try:
        yield
    finally:
        leftover += await _cancel_all(asyncio.all_tasks() - before)
    if leftover:
        raise PromiseBroken(f"tasks were left behind: {', '.join(leftover)}")


def lifespan_scope(state: dict[str, Any]) -> Scope:
    """Return the scope of a lifespan."""
    return {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": state}


async def _started(harness: Harness, app: App, state: dict[str, Any]) -> Connection:
    life = Connection(app, lifespan_scope(state), notifier=harness.notifier)
    life.deliver({"type": "lifespan.startup"})
    await life.wait_sent("lifespan.startup.complete")
    return life


async def _stopped(life: Connection) -> None:
    life.deliver({"type": "lifespan.shutdown"})
    try:
        await life.ended()
        expect(life.error is None, f"the lifespan ended badly: {life.seen}")
    finally:
        await _end([life])


async def _end(connections: Iterable[Connection]) -> None:
    # No verdict here: `no_leftover_tasks` reports what does not end.
    tasks = [connection.task for connection in connections if not connection.done]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=GRACE)


async def _cancel_all(tasks: set[asyncio.Task[Any]]) -> list[str]:
    if tasks:
        await asyncio.wait(tasks, timeout=GRACE)
    stuck = [task for task in tasks if not task.done()]
    for task in stuck:
        task.cancel()
    if stuck:
        await asyncio.wait(stuck, timeout=GRACE)
    return [getattr(task.get_coro(), "__qualname__", task.get_name()) for task in stuck]
