"""RQ jobs that run the commands of a test; see job_control.py."""

from __future__ import annotations

import functools
from typing import Any

from rq import Retry, get_current_job

from dibs import Dibs
from dibs.integrations.rq import UniqueQueue, unique
from tests.integrations.jobs.job_control import URL, note_page, wait_for_command

LEASE = 2

dibs = Dibs(URL, namespace="unique:", budget=5)


def _steered(key: str) -> Any:
    job = get_current_job()
    command = wait_for_command(key, job and job.id)
    return Retry(max=1) if command == "retry" else key


@unique(dibs, "work:{key}", queued=60, lease=LEASE)
def work(key: str) -> Any:
    return _steered(key)


@unique(dibs, "work:{key}", queued=60, lease=LEASE)
async def work_on_a_loop(key: str) -> Any:
    return _steered(key)


@unique(dibs, "once:{key}", until="start", lease=LEASE)
def until_started(key: str) -> Any:
    return _steered(key)


@unique(dibs, "alone:{key}", until="start", alone=True, lease=LEASE)
def alone(key: str) -> Any:
    return _steered(key)


@unique(dibs, "hourly:{key}", until=3600, lease=LEASE)
def hourly(key: str) -> Any:
    return _steered(key)


@unique(dibs, "short:{key}", queued=0.05, lease=LEASE)
def impatient(key: str) -> Any:
    return _steered(key)


@unique(dibs, "filtered:{key}:{filters:hash}", lease=LEASE)
def filtered(key: str, filters: dict[Any, str]) -> Any:
    return key


def shouted(function: Any) -> Any:
    """A decorator of the application."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs).upper()

    return call


@shouted
@unique(dibs, "shouted:{key}", lease=LEASE)
def decorated(key: str) -> Any:
    return _steered(key)


def plain(key: str) -> str:
    return key


@unique(dibs, "pages:{key}", lease=LEASE)
def pages(key: str, left: int) -> int:
    """A job that sends itself: the next page."""
    note_page(key, left)
    if left:
        connection = get_current_job().connection  # type: ignore[union-attr]
        UniqueQueue("default", connection=connection).enqueue(pages, key, left - 1)
    return left


in_turns = unique(dibs, "turn:{key}", queue=True, queued=60, lease=LEASE)


@in_turns
def in_turn(key: str) -> Any:
    return _steered(key)


@in_turns
def also_in_turn(key: str) -> Any:
    return _steered(key)
