"""A Celery application whose tasks run the commands of a test; see job_control.py."""

from __future__ import annotations

from typing import Any

from celery import Celery

from dibs import Dibs
from dibs.integrations.celery import unique
from tests.integrations.jobs.job_control import URL, note_page, wait_for_command

LEASE = 2

app = Celery("jobs", broker=URL, backend=URL)
app.conf.update(
    broker_connection_retry_on_startup=True,
    broker_transport_options={"visibility_timeout": 3600},
    task_default_retry_delay=0,
    worker_prefetch_multiplier=1,
)
dibs = Dibs(URL, namespace="unique:", budget=5)


def until_end() -> Any:
    """Another base for each task: the tests want them to be duplicates of each other."""
    return unique(dibs, "work:{key}", queued=60, lease=LEASE)


def _steered(task: Any, key: str) -> str:
    command = wait_for_command(key, task.request.id)
    if command == "retry":
        raise task.retry(countdown=1)
    return key


@app.task(base=until_end(), bind=True)
def work(self: Any, key: str, note: str = "") -> str:
    return _steered(self, key)


@app.task(base=until_end(), bind=True, acks_late=True, reject_on_worker_lost=True)
def careful(self: Any, key: str) -> str:
    return _steered(self, key)


@app.task(base=until_end(), bind=True, acks_late=True)
def late(self: Any, key: str) -> str:
    return _steered(self, key)


@app.task(base=unique(dibs, "patient:{key}", lease=600), bind=True)
def patient(self: Any, key: str) -> str:
    return _steered(self, key)


@app.task(base=until_end(), bind=True, time_limit=1)
def limited(self: Any, key: str) -> str:
    return _steered(self, key)


@app.task(base=unique(dibs, "once:{key}", until="start", lease=LEASE), bind=True)
def until_started(self: Any, key: str) -> str:
    return _steered(self, key)


@app.task(base=unique(dibs, "alone:{key}", until="start", alone=True, lease=LEASE), bind=True)
def alone(self: Any, key: str) -> str:
    return _steered(self, key)


@app.task(base=unique(dibs, "last:{key}", until="start", again="postpone", lease=LEASE), bind=True)
def debounced(self: Any, key: str, text: str) -> str:
    _steered(self, key)
    return text


@app.task(base=unique(dibs, "hourly:{key}", until=3600, lease=LEASE), bind=True)
def hourly(self: Any, key: str) -> str:
    return _steered(self, key)


@app.task(base=unique(dibs, "short:{key}", queued=0.05, lease=LEASE), bind=True)
def impatient(self: Any, key: str) -> str:
    return _steered(self, key)


@app.task(base=unique(dibs, "filtered:{key}:{filters:hash}", lease=LEASE), bind=True)
def filtered(self: Any, key: str, filters: dict[Any, str]) -> str:
    return _steered(self, key)


@app.task(base=unique(dibs, "after:{value}", lease=LEASE))
def chained(value: str) -> str:
    return f"after {value}"


@app.task
def plain(key: str) -> str:
    return key


@app.task(base=unique(dibs, "pages:{key}", lease=LEASE))
def pages(key: str, left: int) -> int:
    """A job that sends itself: the next page."""
    note_page(key, left)
    if left:
        pages.delay(key, left - 1)
        pages.delay(key, left - 1)  # the same as the first
    return left


in_turns = unique(dibs, "turn:{key}", queue=True, queued=60, lease=LEASE)


@app.task(base=in_turns, bind=True)
def in_turn(self: Any, key: str) -> str:
    return _steered(self, key)


@app.task(base=in_turns, bind=True)
def also_in_turn(self: Any, key: str) -> str:
    return _steered(self, key)
