"""Jobs that a test controls: each reports that it has started, and runs the command of the test.

Everything goes through lists on the server that is also the broker, so that no test sleeps.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import redis

URL = os.environ.get("JOBS_URL", "redis://127.0.0.1:1")
"""Where broker, results and keys are; a worker gets it from its environment."""
STORE_URL = os.environ.get("JOBS_STORE_URL") or URL
"""Where the keys are, if that is another server."""
PATIENCE = float(os.environ.get("JOBS_PATIENCE", "120"))
"""Seconds: a worker that is started on a busy machine may need more than half a minute."""


class Started(NamedTuple):
    """A run of a job."""

    id: str
    pid: int


class JobFailed(Exception):
    """What a job raises if the command is to fail."""


def client_of(url: str) -> Any:
    """A client whose connections wait for as long as a test does."""
    return redis.Redis.from_url(url, decode_responses=True, socket_timeout=PATIENCE + 5)


def wait_for_command(key: str, job_id: str | None) -> str:
    """Inside a job: report that it has started; the command of the test ("finish", "retry").

    JobFailed: the command is "fail".
    """
    with client_of(URL) as client:
        client.rpush(f"every:{key}", str(job_id))  # first: a test may kill us after the next one
        client.rpush(f"started:{key}", f"{job_id} {os.getpid()}")
        command: Any = client.blpop([f"commands:{key}"], PATIENCE)
    if command is None or command[1] == "fail":
        raise JobFailed(f"the command for {key} was to fail")
    return command[1]


def note_page(key: str, page: int) -> None:
    """Inside a job: report which page of *key* it has worked on."""
    with client_of(URL) as client:
        client.rpush(f"pages:{key}", page)


class JobControl:
    """A test's side: waits for jobs to start, and sends them commands."""

    def __init__(self, url: str) -> None:
        self.client = client_of(url)

    def started(self, key: str) -> Started:
        """The next run of a job with *key*. AssertionError: none starts."""
        found = self.client.blpop([f"started:{key}"], PATIENCE)
        assert found is not None, f"no job with the key {key!r} has started"
        job_id, pid = found[1].split()
        return Started(job_id, int(pid))

    def send(self, key: str, command: str = "finish") -> None:
        """Send a command to the job that runs, or to the next one."""
        self.client.rpush(f"commands:{key}", command)

    def runs(self, key: str) -> list[str]:
        """The ids of all runs so far."""
        return self.client.lrange(f"every:{key}", 0, -1)

    def pages(self, key: str) -> list[int]:
        """The pages of *key* that were worked on, so far."""
        return [int(each) for each in self.client.lrange(f"pages:{key}", 0, -1)]

    def close(self) -> None:
        """Close the connection."""
        self.client.close()
