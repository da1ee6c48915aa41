"""Places at which a job waits, so that a test can kill its process, or Redis, just there.

A test puts a fence (`put`); what comes to that place reports its process id and waits for `open`.
Everything goes through the broker, which is not killed. `install` puts the places into dibs.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import AsyncGenerator, Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from dibs._async.claim import AsyncClaim
from dibs._sync.claim import Claim
from dibs.integrations._async.jobs import AsyncRun, AsyncUniqueJobs
from dibs.integrations._sync.jobs import Run, UniqueJobs
from tests.integrations.jobs.job_control import PATIENCE, URL, client_of

IS_ON = "JOBS_FENCES" in os.environ
_THREADS = ThreadPoolExecutor(64)
_ending: contextvars.ContextVar[str | None] = contextvars.ContextVar("ending", default=None)


# ---- the test's side


def put(client: Any, place: str, key: str) -> None:
    """The next job with *key* that comes to *place* waits there."""
    client.rpush(f"fence:{place}:{key}", 1)


def wait_at(client: Any, place: str, key: str) -> int | None:
    """The process that waits there. None: nothing has come."""
    found = client.blpop([f"at:{place}:{key}"], PATIENCE)
    return None if found is None else int(found[1])


def open_fence(client: Any, place: str, key: str) -> None:
    """Let the waiting job continue."""
    client.rpush(f"go:{place}:{key}", 1)


def wait_past(client: Any, place: str, key: str) -> bool:
    """Until something has passed it."""
    return client.blpop([f"past:{place}:{key}"], PATIENCE) is not None


# ---- in a producer or a worker


def reach(place: str, key: str) -> None:
    """This job comes to *place*."""
    if not IS_ON:
        return
    key = key.removeprefix("t:")
    with client_of(URL) as client:
        if client.lpop(f"fence:{place}:{key}"):
            client.rpush(f"at:{place}:{key}", os.getpid())
            client.blpop([f"go:{place}:{key}"], PATIENCE)
        client.rpush(f"past:{place}:{key}", 1)


async def in_thread(function: Callable[..., Any], *args: Any) -> Any:
    """As `asyncio.to_thread`, which has too few threads for all jobs that wait here."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, function, *args)


async def async_reach(place: str, key: str) -> None:
    """The same as `reach`, while the loop keeps running."""
    await in_thread(reach, place, key)


def install() -> None:
    """Put the places into the clients of both kinds."""
    _put_into_threads(UniqueJobs.queueing, UniqueJobs.start, Run.__exit__, Claim.end)
    _put_into_tasks(
        AsyncUniqueJobs.queueing, AsyncUniqueJobs.start, AsyncRun.__aexit__, AsyncClaim.end
    )


def _key_of(run: Any) -> str:
    return "" if run._claim is None else run._claim.key


def _put_into_threads(queueing: Any, start: Any, ends: Any, end: Any) -> None:
    @contextmanager
    def fenced_queueing(self: Any, key: str, *rest: Any) -> Generator[Any]:
        with queueing(self, key, *rest) as token:
            reach("claimed", key)
            yield token
            reach("sent", key)
        reach("kept", key)

    def fenced_start(self: Any, key: str, job: Any) -> Any:
        reach("delivered", key)
        run = start(self, key, job)
        reach("started", key)
        return run

    def fenced_ends(self: Any, *error: Any) -> None:
        key = _key_of(self)
        reach("ending", key)
        _ending.set(key)
        ends(self, *error)
        _ending.set(None)
        reach("ended", key)

    def fenced_end(self: Any, how: Any) -> bool:
        is_ended, key = end(self, how), _ending.get()
        if key is not None:
            _ending.set(None)
            reach("half ended", key)
        return is_ended

    UniqueJobs.queueing, UniqueJobs.start = fenced_queueing, fenced_start  # type: ignore[assignment]
    Run.__exit__, Claim.end = fenced_ends, fenced_end  # type: ignore[method-assign]


def _put_into_tasks(queueing: Any, start: Any, ends: Any, end: Any) -> None:
    @asynccontextmanager
    async def fenced_queueing(self: Any, key: str, *rest: Any) -> AsyncGenerator[Any]:
        async with queueing(self, key, *rest) as token:
            await async_reach("claimed", key)
            yield token
            await async_reach("sent", key)
        await async_reach("kept", key)

    async def fenced_start(self: Any, key: str, job: Any) -> Any:
        await async_reach("delivered", key)
        run = await start(self, key, job)
        await async_reach("started", key)
        return run

    async def fenced_ends(self: Any, *error: Any) -> None:
        key = _key_of(self)
        await async_reach("ending", key)
        _ending.set(key)
        await ends(self, *error)
        _ending.set(None)
        await async_reach("ended", key)

    async def fenced_end(self: Any, how: Any) -> bool:
        is_ended, key = await end(self, how), _ending.get()
        if key is not None:
            _ending.set(None)
            await async_reach("half ended", key)
        return is_ended

    AsyncUniqueJobs.queueing = fenced_queueing  # type: ignore[assignment]
    AsyncUniqueJobs.start = fenced_start  # type: ignore[method-assign]
    AsyncRun.__aexit__, AsyncClaim.end = fenced_ends, fenced_end  # type: ignore[method-assign]
