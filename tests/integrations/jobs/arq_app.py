"""arq jobs that run the commands of a test; see job_control.py."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from arq import Retry, func
from arq.connections import RedisSettings

from dibs import AsyncDibs
from dibs.integrations.arq import enqueue_job, unique
from tests.integrations.jobs.job_control import URL, note_page, wait_for_command

LEASE = 5

dibs = AsyncDibs(URL, namespace="unique:", budget=5)


async def _steered(ctx: dict[str, Any], key: str) -> str:
    command = await asyncio.to_thread(wait_for_command, key, ctx["job_id"])
    if command == "retry":
        raise Retry(defer=0.3)
    return key


@unique(dibs, "work:{key}", queued=60, lease=LEASE)
async def work(ctx: dict[str, Any], key: str) -> str:
    return await _steered(ctx, key)


@unique(dibs, "once:{key}", until="start", lease=LEASE)
async def until_started(ctx: dict[str, Any], key: str) -> str:
    return await _steered(ctx, key)


@unique(dibs, "alone:{key}", until="start", alone=True, lease=LEASE)
async def alone(ctx: dict[str, Any], key: str) -> str:
    return await _steered(ctx, key)


@unique(dibs, "hourly:{key}", until=3600, lease=LEASE)
async def hourly(ctx: dict[str, Any], key: str) -> str:
    return await _steered(ctx, key)


@unique(dibs, "pages:{key}", lease=LEASE)
async def pages(ctx: dict[str, Any], key: str, left: int) -> int:
    """A job that sends itself: the next page."""
    await asyncio.to_thread(note_page, key, left)
    if left:
        await enqueue_job(ctx["redis"], pages, key, left - 1)
    return left


in_turns = unique(dibs, "turn:{key}", queue=True, queued=60, lease=LEASE)


@in_turns
async def in_turn(ctx: dict[str, Any], key: str) -> str:
    return await _steered(ctx, key)


@in_turns
async def also_in_turn(ctx: dict[str, Any], key: str) -> str:
    return await _steered(ctx, key)


class WorkerSettings:
    """What the worker runs."""

    functions: ClassVar[list[Any]] = [
        func(each, timeout=60)
        for each in (work, until_started, alone, hourly, pages, in_turn, also_in_turn)
    ]
    redis_settings = RedisSettings.from_dsn(URL)
    allow_abort_jobs = True
    max_tries = 3
    poll_delay = 0.05
