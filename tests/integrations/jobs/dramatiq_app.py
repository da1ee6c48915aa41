"""Dramatiq actors that run the commands of a test; see job_control.py."""

from __future__ import annotations

from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import AsyncIO, CurrentMessage
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

from dibs import Dibs
from dibs.integrations.dramatiq import unique
from tests.integrations.jobs.job_control import URL, JobFailed, note_page, wait_for_command

LEASE = 2

broker = RedisBroker(url=URL, heartbeat_timeout=3000, maintenance_chance=1_000_000)
broker.add_middleware(Results(backend=RedisBackend(url=URL)))
broker.add_middleware(CurrentMessage())
broker.add_middleware(AsyncIO())
dramatiq.set_broker(broker)
dibs = Dibs(URL, namespace="unique:", budget=5)


def until_end() -> Any:
    """Another class for each actor: the tests want them to be duplicates of each other."""
    return unique(dibs, "work:{key}", queued=60, lease=LEASE)


def _steered(key: str) -> str:
    message: Any = CurrentMessage.get_current_message()
    command = wait_for_command(key, message and message.message_id)
    if command == "retry":
        raise dramatiq.Retry("told to", delay=500)
    return key


@dramatiq.actor(actor_class=until_end(), store_results=True, max_retries=3, throws=JobFailed)
def work(key: str) -> str:
    return _steered(key)


@dramatiq.actor(actor_class=until_end(), store_results=True)
async def work_on_a_loop(key: str) -> str:
    return key


@dramatiq.actor(
    actor_class=unique(dibs, "filtered:{key}:{filters:hash}", lease=LEASE), store_results=True
)
def filtered(key: str, filters: dict[Any, str]) -> str:
    return _steered(key)


@dramatiq.actor(actor_class=until_end(), queue_name="nobody")
def waiting(key: str) -> None: ...


@dramatiq.actor(actor_class=until_end(), queue_name="doomed", store_results=True)
def doomed(key: str) -> str:
    return _steered(key)


@dramatiq.actor(
    actor_class=unique(dibs, "once:{key}", until="start", lease=LEASE), store_results=True
)
def until_started(key: str) -> str:
    return _steered(key)


@dramatiq.actor(
    actor_class=unique(dibs, "alone:{key}", until="start", alone=True, lease=LEASE),
    store_results=True,
)
def alone(key: str) -> str:
    return _steered(key)


@dramatiq.actor(
    actor_class=unique(dibs, "hourly:{key}", until=3600, lease=LEASE),
    store_results=True,
    throws=JobFailed,
)
def hourly(key: str) -> str:
    return _steered(key)


@dramatiq.actor(
    actor_class=unique(dibs, "short:{key}", queued=0.05, lease=LEASE), store_results=True
)
def impatient(key: str) -> str:
    return _steered(key)


@dramatiq.actor(store_results=True)
def plain(key: str) -> str:
    return key


@dramatiq.actor(actor_class=unique(dibs, "pages:{key}", lease=LEASE), store_results=True)
def pages(key: str, left: int) -> int:
    """A job that sends itself: the next page."""
    note_page(key, left)
    if left:
        pages.send(key, left - 1)
    return left


@dramatiq.actor(actor_class=unique(dibs, "piped:{key}", lease=LEASE), store_results=True)
def piped(key: str, value: int) -> int:
    """A part of a pipeline, of which each part has the same key."""
    note_page(key, value)
    return value + 1


in_turns = unique(dibs, "turn:{key}", queue=True, queued=60, lease=LEASE)


@dramatiq.actor(actor_class=in_turns, store_results=True, max_retries=3, throws=JobFailed)
def in_turn(key: str) -> str:
    return _steered(key)


@dramatiq.actor(actor_class=in_turns, store_results=True, max_retries=3, throws=JobFailed)
def also_in_turn(key: str) -> str:
    return _steered(key)
