# Generated from src/dibs/_async/job_keys.py by unasync.py – do not edit.
"""What jobs keep beside their claims: heartbeats of workers, the last run of a key, who waits."""

from collections.abc import Callable
from typing import Any

from .._core.connection import Outage
from .._core.inspection import read_time
from .._core.jobs import (
    ENDED,
    HEARTBEAT,
    HEARTBEAT_NAME,
    LOOK,
    QUEUE,
    QUEUES,
    LastRun,
    ServerClock,
    WaitingJob,
    ended_request,
    fetch_request,
    leave_request,
    next_request,
    read_ended,
    read_keys,
    read_ticket,
    read_waiting,
    wait_request,
    worker_id,
)
from .._core.keys import expand, milliseconds
from .._core.lease import HoldCall, LeaseState, read_acquire, secret_in, value_request
from .._core.options import HoldOptions, OutagePolicy, Settings
from .._core.request import Request, pack
from .._threads import monotonic
from ..errors import Unavailable, UsageError
from .lease_table import Leases


class JobKeys:
    """Reads and writes them. Every method: Unavailable, UsageError."""

    def __init__(self, leases: Leases, namespace: str, policy: OutagePolicy) -> None:
        self._leases = leases
        self._namespace = namespace
        self._policy: OutagePolicy = policy
        self._heartbeats: dict[float, LeaseState] = {}
        """Those of this process: workers have one for each length of a lease."""
        self._clock = ServerClock()

    def fetch(self, key: str, token: str, kept: float, lease: float) -> bool:
        """Name this process in the claim of a job that waits; kept for *kept* seconds at least.

        *lease*: how long after its end this process counts as alive. False: the job does not wait
        with *token*.
        """
        heartbeat = self._heartbeat(lease)
        data, secret = expand(self._namespace, key), secret_in("claim", token)
        words = (data, secret, heartbeat.token, milliseconds(kept))
        try:
            return self._ask(fetch_request(*words)) == 1
        except Unavailable:  # the message stays here, so that it is not too late then
            self._leases.store.transport.post(fetch_request(*words, monotonic() + kept))
            raise

    def is_taken(self, key: str) -> bool:
        """Return whether *key* has a value, as the heartbeat of a worker that lives."""
        return self._ask(value_request(expand(self._namespace, key))) is not None

    def clock(self) -> float | None:
        """Return the server's time.

        None: it cannot be told well enough, or Redis does not answer.
        """
        now = monotonic()
        if (known := self._clock.at(now)) is not None:
            return known
        try:
            time = self._ask(Request(pack("TIME"), 1, b""), read_time)
        except (Unavailable, UsageError):
            return None
        self._clock.measured(now, monotonic(), time)
        return self._clock.at(monotonic())

    def note_end(self, key: str, job_id: str, began_at: float, kept: float) -> bool:
        """Note that a run with *key* has completed. False: the time cannot be told."""
        if (now := self.clock()) is None:
            return False
        data, token = expand(self._namespace, ENDED + key), self._leases.new_token()
        run = LastRun(job_id, began_at)
        self._ask(ended_request(data, token, run, now, milliseconds(kept)))
        return True

    def last_run(self, key: str) -> LastRun | None:
        """Return the last run with *key* that has completed."""
        request = value_request(expand(self._namespace, ENDED + key))
        return self._ask(request, read_ended)

    # ---- jobs that wait for their turn

    def is_closed_in_outage(self, policy: OutagePolicy | None) -> bool:
        """Whether a job is refused in an outage, by its own *policy* or that of the client."""
        return (policy or self._policy) == "closed"

    def new_id(self) -> str:
        """Return another id each time."""
        return worker_id(self._leases.new_token())

    def wait(self, shape: str, key: str, job: WaitingJob) -> WaitingJob:
        """Let *job* wait for *key*, one of the keys of *shape*; with its ticket."""
        data = expand(self._namespace, QUEUE + key)
        ticket = self._ask(wait_request(data, job), read_ticket)
        index = expand(self._namespace, QUEUES + shape)
        self._ask(Request(pack("ZADD", index, ticket, key.encode()), 1, index))
        return job._replace(ticket=ticket)

    def waiting(self, key: str, count: int = 1) -> list[WaitingJob]:
        """Return the next jobs that wait for *key*."""
        data = expand(self._namespace, QUEUE + key)
        return self._ask(next_request(data, count), read_waiting)

    def leave(self, key: str, ticket: int) -> None:
        """Let the job with *ticket* wait for *key* no longer: it was sent."""
        self._ask(leave_request(expand(self._namespace, QUEUE + key), ticket))

    def awaited(self, shape: str, count: int) -> list[str]:
        """Return the keys of *shape* that jobs may wait for.

        Those first that have waited for longest.
        """
        index = expand(self._namespace, QUEUES + shape)
        return self._ask(Request(pack("ZRANGE", index, 0, count - 1), 1, index), read_keys)

    def forget(self, shape: str, key: str) -> None:
        """Nobody waits for *key* any more."""
        index, word = expand(self._namespace, QUEUES + shape), key.encode()
        self._ask(Request(pack("ZREM", index, word), 1, index))
        if jobs := self.waiting(key):  # one came in at this moment
            self._ask(Request(pack("ZADD", index, jobs[0].ticket, word), 1, index))

    def may_look(self, shape: str, every: float) -> bool:
        """Return whether to look after the keys of *shape*: one worker does, in *every* seconds."""
        key = expand(self._namespace, LOOK + shape)
        words = pack("SET", key, self._leases.new_token(), "NX", "PX", milliseconds(every))
        return self._ask(Request(words, 1, key)) is not None

    def _heartbeat(self, ttl: float) -> LeaseState:
        leases, known = self._leases, self._heartbeats.get(ttl)
        if known is not None and leases.owns(known) and not known.is_lost_at(monotonic()):
            return known
        token = leases.new_token()
        text = HEARTBEAT + worker_id(token)
        options = HoldOptions(Settings(self._namespace, "closed"), ttl=ttl, renew=True)
        call = HoldCall(expand(self._namespace, text), text, HEARTBEAT_NAME, options)
        lease = leases.acquire(call, token, read_acquire)
        if not isinstance(lease, LeaseState) or not lease.guarded:
            raise UsageError(f"{text} is taken, or nothing is guarded")
        leases.renewer.keep(lease)
        self._heartbeats[ttl] = lease
        return lease

    def _ask(self, request: Request, read: Callable[[Any], Any] | None = None) -> Any:
        store = self._leases.store
        try:
            now, _ = store.opened()
            reply = store.ask(request, now)
            return reply if read is None else store.read(read, reply)
        except Outage as outage:
            raise Unavailable(outage.cause, "a job") from None
