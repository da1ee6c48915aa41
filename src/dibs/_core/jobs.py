"""Jobs: which worker has fetched the message of one, and whether that worker lives.

A worker that fetches a message writes its name into the claim of the job, after the holder:

    5a1f…-2c - 193310c1a40@web-1:4711 fetched:7c20…-5
    job-17

`job:worker:7c20…-5` is a lease of that worker process, its heartbeat. Where it is free the worker
is dead, or stood still for that long: nobody will start the job before its message is delivered
again, and another job may have its key. If the worker goes on all the same, it finds that taken.
"""

from .capabilities import run_script, run_whole_script
from .inspection import KeyInfo
from .lease import FETCHED, parts_of, secret_of
from .request import Request

HEARTBEAT = "job:worker:"
"""Before the id of a worker: the lease that it has while it lives."""
HEARTBEAT_NAME = "job:worker:{id}"
"""What events call it."""


def worker_id(token: bytes) -> str:
    """The id of the worker whose heartbeat has *token*."""
    return secret_of(token).decode()


def fetch_request(
    key: bytes, secret: bytes, heartbeat: bytes, ms: int, until: float | None = None
) -> Request:
    """Name a worker in the claim of a job that waits with *secret*. 1: it is named.

    *heartbeat*: the token of its lease. *until*: the request may be delivered later, until then.
    """
    holder = (parts_of(heartbeat).holder or b"") + FETCHED + secret_of(heartbeat)
    words = (secret, holder, ms)
    if until is None:
        return Request(run_script("job_fetch", [key], *words), 1, key)
    return Request(run_whole_script("job_fetch", [key], *words), 1, key, until)


def fetched_by(entry: KeyInfo) -> str | None:
    """The key of the heartbeat of the worker that has fetched the job of *entry*; None: none has.

    What runs has no such worker: its claim is renewed, and names its process.
    """
    return None if entry.worker is None else HEARTBEAT + entry.worker
