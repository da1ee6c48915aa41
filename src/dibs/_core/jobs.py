"""Jobs: which worker has fetched the message of one, which run of a key was the last, which wait.

A worker that fetches a message writes its name into the claim of the job, after the holder:

    5a1f…-2c - 193310c1a40@web-1:4711 fetched:7c20…-5
    job-17

`job:worker:7c20…-5` is a lease of that worker process, its heartbeat. Where it is free the worker
is dead, or stood still for that long: nobody will start the job before its message is delivered
again, and another job may have its key. If the worker goes on all the same, it finds that taken.

With `queue=True` a job whose key is taken waits in `job:queue:<its key>`, a sorted set, with its
message, and with a ticket as its score; it is sent when the key is free, the lowest ticket first.
`job:queues:<its template>` names the keys that have such a set, for workers that look after them.
"""

import json
from typing import Any, Literal, NamedTuple, cast

from .capabilities import run_script, run_whole_script
from .claim import NO_PAYLOAD, done_record, read_record, running_record
from .codec import frame, unframe
from .inspection import QUEUE as QUEUE
from .inspection import QUEUES as QUEUES
from .inspection import KeyInfo
from .lease_value import FETCHED, parts_of, secret_of
from .request import Reply, Request, pack

HEARTBEAT = "job:worker:"
"""Before the id of a worker: the lease that it has while it lives."""
HEARTBEAT_NAME = "job:worker:{id}"
"""What events call it."""


def worker_id(token: bytes) -> str:
    """Return the id of the worker whose heartbeat has *token*."""
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


# ---- the last run of a key that has completed

ENDED = "job:ended:"
"""Before the key of a job: which run with that key was the last to complete, and when it began."""


class LastRun(NamedTuple):
    """The last run with a key that has completed."""

    job_id: str
    began_at: float
    """By the server's clock, as all times here."""


def ended_request(key: bytes, token: bytes, run: LastRun, now: float, ms: int) -> Request:
    """Note that *run* has completed, for *ms*. *token*: any of this process."""
    result = frame("json", "-", now, max(now - run.began_at, 0.0), b"null")
    running = running_record(token, NO_PAYLOAD, now, b"\n" + run.job_id.encode())
    return Request(pack("SET", key, done_record(running, result), "PX", ms), 1, key)


def read_ended(value: Reply) -> LastRun | None:
    """Return the last run, from the value of its key; None: none is known."""
    if not isinstance(value, bytes):
        return None
    record = read_record(value, 0.0)
    noted = unframe(record.result)
    if noted is None or record.note is None:
        return None
    return LastRun(record.note, noted.made_at - noted.took)


def covers(last: LastRun | None, job_id: str, sent_at: float | None, lease: float) -> bool:
    """Return whether the run *last* has done what job *job_id* was sent for, at *sent_at*.

    It began after that, so it has seen all that the sender had done. Between the two are two thirds
    of a lease at least: the claim of the job that was sent had to end first. That pays for clocks
    that are measured at some distance from the server.
    """
    if last is None or sent_at is None or last.job_id == job_id:
        return False
    return last.began_at >= sent_at + lease / 2


class ServerClock:
    """The clock of the server, as this process knows it: measured now and then."""

    KEPT = 60.0
    """Seconds for which a measurement is used."""
    PRECISE = 0.25
    """Seconds: one that took longer says too little."""

    def __init__(self) -> None:
        self._ahead = self._until = 0.0

    def at(self, now: float) -> float | None:
        """Return the server's time at *now*, a local one; None: it has to be measured."""
        return now + self._ahead if now < self._until else None

    def measured(self, sent: float, received: float, time: float) -> None:
        """The server has said its *time* between *sent* and *received*; 0: not really."""
        if time and received - sent <= self.PRECISE:
            self._ahead, self._until = time - (sent + received) / 2, received + self.KEPT


# ---- jobs that wait for their turn


LOOK = "job:look:"
"""Before the same: the lease of the worker that looks after them."""


class WaitingJob(NamedTuple):
    """A job that waits for its turn."""

    job_id: str
    message: str
    """What its framework sends when it is its turn."""
    sending: str
    """Tells the times apart at which its id was sent."""
    entry: str
    """Tells the times apart at which it was put here."""
    ticket: int = 0
    """The lowest is the next one. 0: it has none yet."""

    @property
    def sent_at(self) -> float:
        """The ticket as seconds, which its message takes along: it keeps its place."""
        return self.ticket / 1e6

    @property
    def turn_key(self) -> str:
        """The key of sending it, where several may be sent at once."""
        return f"job:turn:{self.entry}"


def ticket_of(sent_at: float | None) -> int:
    """Return the ticket that a message has brought along; 0: none."""
    return 0 if sent_at is None else round(sent_at * 1e6)


def wait_request(key: bytes, job: WaitingJob) -> Request:
    """Let *job* wait at *key*; the reply is its ticket."""
    member = json.dumps([job.entry, job.sending, job.job_id, job.message]).encode()
    return Request(run_script("job_wait", [key], member, job.ticket), 1, key)


def read_ticket(reply: Reply) -> int:
    """Return the ticket of a job. Raises ValueError if it is none."""
    if not isinstance(reply, bytes):
        raise TypeError("no ticket")
    return int(reply)


def next_request(key: bytes, count: int) -> Request:
    """Return the next jobs that wait at *key*, so many at most."""
    return Request(pack("ZRANGE", key, 0, count - 1, "WITHSCORES"), 1, key)


def read_keys(reply: Reply) -> list[str]:
    """Return keys; what is no text is left out."""
    items: list[Any] = cast("list[Any]", reply) if isinstance(reply, list) else []
    return [each.decode(errors="ignore") for each in items if isinstance(each, bytes)]


def read_waiting(reply: Reply) -> list[WaitingJob]:
    """Jobs that wait; what cannot be read is left out."""
    items: list[Any] = cast("list[Any]", reply) if isinstance(reply, list) else []
    # RESP3 nests members and scores.
    nested: list[list[Any]] = [item if isinstance(item, list) else [item] for item in items]
    flat: list[Any] = [each for pair in nested for each in pair]
    jobs = [_waiting(*pair) for pair in zip(flat[::2], flat[1::2], strict=False)]
    return [job for job in jobs if job is not None]


def _waiting(member: Any, score: Any) -> WaitingJob | None:
    try:
        entry, sending, job_id, message = (str(each) for each in json.loads(member))
        return WaitingJob(job_id, message, sending, entry, int(float(score)))
    except (TypeError, ValueError):
        return None


def leave_request(key: bytes, ticket: int) -> Request:
    """The job with *ticket* waits no longer."""
    return Request(pack("ZREMRANGEBYSCORE", key, ticket, ticket), 1, key)


# ---- whether the result of a job can still come

Standing = Literal["queued", "fetched", "running", "done", "gone"]
"""Of a job: waiting in a queue, in the memory of a worker, running, completed; or its key has
ended otherwise, or is another job's: it has failed, or was lost with a worker."""


def standing_of(entry: KeyInfo | None, last: LastRun | None, job_id: str, lease: float) -> Standing:
    """Where job *job_id* is, from what its key has (*entry*), and the last run with that key."""
    if entry is not None and entry.note == job_id:
        if entry.kind == "done":
            return "done"
        if entry.kind == "claim":
            waits = (entry.remaining or 0.0) > lease
            return "fetched" if entry.worker else "queued" if waits else "running"
    return "done" if last is not None and last.job_id == job_id else "gone"


class ResultWatch:
    """Whether to wait for the result of a job that is somewhere else."""

    STORED_WITHIN = 1.0
    """Seconds between the end of a job and the moment when its framework has stored the result."""

    def __init__(self, lease: float, ended_for: float = 0.0) -> None:
        """*lease*: of the job. *ended_for*: how long it has been done, in seconds."""
        self._lease = lease
        self._done_at = -ended_for if ended_for else None
        self._gone_at: float | None = None

    def look(self, waited: float, standing: Standing) -> Literal["wait", "done", "gone"]:
        """Return whether the result may come, *waited* seconds after the first look.

        done: there is none, and will be none. gone: the job itself was lost, or has failed without
        a result; its message may be delivered again.
        """
        self._done_at = _first_seen(self._done_at, waited) if standing == "done" else None
        self._gone_at = _first_seen(self._gone_at, waited) if standing == "gone" else None
        if self._done_at is not None:
            return "done" if waited - self._done_at >= self.STORED_WITHIN else "wait"
        if self._gone_at is not None:
            patience = max(self._lease, self.STORED_WITHIN)
            return "gone" if waited - self._gone_at >= patience else "wait"
        return "wait"


def _first_seen(seen: float | None, now: float) -> float:
    return now if seen is None else seen
