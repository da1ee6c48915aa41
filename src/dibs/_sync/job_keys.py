# Generated from src/dibs/_async/job_keys.py by unasync.py – do not edit.
"""What jobs keep beside their claims: heartbeats of workers, and the last run of a key."""

from collections.abc import Callable
from typing import Any

from .._core.connection import Outage
from .._core.inspection import read_time
from .._core.jobs import (
    ENDED,
    HEARTBEAT,
    HEARTBEAT_NAME,
    LastRun,
    ServerClock,
    ended_request,
    fetch_request,
    read_ended,
    worker_id,
)
from .._core.keys import expand, milliseconds
from .._core.lease import HoldCall, LeaseState, read_acquire, secret_in, value_request
from .._core.options import HoldOptions, Settings
from .._core.request import Request, pack
from .._threads import monotonic
from ..errors import Unavailable, UsageError
from .lease_table import Leases


class JobKeys:
    """Reads and writes them. Every method: Unavailable, UsageError."""

    def __init__(self, leases: Leases, namespace: str) -> None:
        self._leases = leases
        self._namespace = namespace
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
        """Whether *key* has a value, as the heartbeat of a worker that lives."""
        return self._ask(value_request(expand(self._namespace, key))) is not None

    def clock(self) -> float | None:
        """The server's time; None: it cannot be told well enough, or Redis does not answer."""
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
        """The last run with *key* that has completed."""
        request = value_request(expand(self._namespace, ENDED + key))
        return self._ask(request, read_ended)

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
