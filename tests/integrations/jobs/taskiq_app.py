"""Taskiq tasks that run the commands of a test; see job_control.py."""

from __future__ import annotations

import asyncio
from typing import Annotated

from taskiq import Context, SimpleRetryMiddleware, TaskiqDepends
from taskiq_redis import RedisAsyncResultBackend, RedisStreamBroker

from dibs import AsyncDibs
from dibs.integrations.taskiq import unique
from tests.integrations.jobs.job_control import URL, JobFailed, note_page, wait_for_command

LEASE = 5
Here = Annotated[Context, TaskiqDepends()]


def made_broker(queue: str) -> RedisStreamBroker:
    """The broker of a queue; what is not acknowledged for two seconds is delivered again."""
    broker = RedisStreamBroker(URL, queue, consumer_group_name=queue, idle_timeout=2000)
    broker.add_middlewares(SimpleRetryMiddleware(default_retry_count=5))
    return broker.with_result_backend(RedisAsyncResultBackend(URL))


broker, nobody = made_broker("default"), made_broker("nobody")
dibs = AsyncDibs(URL, namespace="unique:", budget=5)


async def _steered(key: str, task_id: str) -> str:
    command = await asyncio.to_thread(wait_for_command, key, task_id)
    if command == "retry":
        raise JobFailed("told to")
    return key


@unique(dibs, "work:{key}", queued=60, lease=LEASE)
@broker.task(retry_on_error=True, max_retries=3)
async def work(key: str, here: Here) -> str:
    return await _steered(key, here.message.task_id)


@unique(dibs, "work:{key}", queued=60, lease=LEASE)
@broker.task
def work_in_a_thread(key: str, *, here: Here) -> str:
    return wait_for_command(key, here.message.task_id)


@unique(dibs, "once:{key}", until="start", lease=LEASE)
@broker.task
async def until_started(key: str, here: Here) -> str:
    return await _steered(key, here.message.task_id)


@unique(dibs, "alone:{key}", until="start", alone=True, lease=LEASE)
@broker.task(retry_on_error=True, max_retries=3)
async def alone(key: str, here: Here) -> str:
    return await _steered(key, here.message.task_id)


@unique(dibs, "hourly:{key}", until=3600, lease=LEASE)
@broker.task
async def hourly(key: str, here: Here) -> str:
    return await _steered(key, here.message.task_id)


@unique(dibs, "short:{key}", queued=0.05, lease=LEASE)
@broker.task
async def impatient(key: str, here: Here) -> str:
    return await _steered(key, here.message.task_id)


@broker.task
async def plain(key: str) -> str:
    return key


@unique(dibs, "pages:{key}", lease=LEASE)
@broker.task
async def pages(key: str, left: int) -> int:
    """A job that sends itself: the next page."""
    await asyncio.to_thread(note_page, key, left)
    if left:
        await pages.kiq(key, left - 1)
    return left


in_turns = unique(dibs, "turn:{key}", queue=True, queued=60, lease=LEASE)


@in_turns
@broker.task(retry_on_error=True, max_retries=3)
async def in_turn(key: str, here: Here) -> str:
    return await _steered(key, here.message.task_id)


@in_turns
@broker.task(retry_on_error=True, max_retries=3)
async def also_in_turn(key: str, here: Here) -> str:
    return await _steered(key, here.message.task_id)
