"""Jobs that a test steers: each says that it has started, and does what it is told.

Everything goes through lists on the server that is the broker as well, so that nobody sleeps.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import redis

URL = os.environ.get("JOBS_URL", "redis://127.0.0.1:1")
"""Where broker, results and keys are; a worker gets it from its environment."""
PATIENCE = 120
"""Seconds: a worker that is started on a busy machine may need more than half a minute."""


class Started(NamedTuple):
    """A run of a job."""

    id: str
    pid: int


class TriedAgain(Exception):
    """What a job raises that is told to fail."""


def client_of(url: str) -> Any:
    """A client whose connections wait for as long as a test does."""
    return redis.Redis.from_url(url, decode_responses=True, socket_timeout=PATIENCE + 5)


def obey(key: str, job_id: str | None) -> str:
    """Inside a job: say that it has started; the order of the test ("finish", "fail", "retry")."""
    with client_of(URL) as client:
        client.rpush(f"every:{key}", str(job_id))  # first: a test may kill us after the next one
        client.rpush(f"started:{key}", f"{job_id} {os.getpid()}")
        order: Any = client.blpop([f"orders:{key}"], PATIENCE)
    if order is None or order[1] == "fail":
        raise TriedAgain(f"{key} was told to fail")
    return order[1]


class Steering:
    """A test's side: waits for jobs to start, and tells them what to do."""

    def __init__(self, url: str) -> None:
        self.client = client_of(url)

    def started(self, key: str) -> Started:
        """The next run of a job with *key*. AssertionError: none starts."""
        found = self.client.blpop([f"started:{key}"], PATIENCE)
        assert found is not None, f"no job with the key {key!r} has started"
        job_id, pid = found[1].split()
        return Started(job_id, int(pid))

    def order(self, key: str, order: str = "finish") -> None:
        """Tell the job that runs, or the next one, what to do."""
        self.client.rpush(f"orders:{key}", order)

    def runs(self, key: str) -> list[str]:
        """The ids of all runs so far."""
        return self.client.lrange(f"every:{key}", 0, -1)

    def close(self) -> None:
        """Close the connection."""
        self.client.close()
