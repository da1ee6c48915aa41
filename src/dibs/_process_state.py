"""What one client does in this process: leases it has, who waits, what is loaded, its breakers.

Read from memory: nothing is asked of the server, nothing is changed. And whether the process of a
holder is alive.
"""

import os
from itertools import islice
from typing import Any, Literal, NamedTuple

from ._core.lease import LeaseState
from ._core.lease_value import parts_of, token_maker
from ._system import gethostname, getpid, monotonic, urandom
from .events import Listener


def process_name() -> str:
    """Return the host name and id of this process, as a holder is shown."""
    return f"{gethostname()}:{getpid()}"


class Identity:
    """A process, or rather one client in it. A forked child makes another one."""

    def __init__(self) -> None:
        self.holder = process_name()
        """Host name and process id, for people."""
        self._prefix = urandom(9).hex().encode()
        self.waiter = b"%b@%b" % (self._prefix[:12], self.holder.encode())
        """What it is called where it waits; no part of a token that proves anything."""
        self.new_token = token_maker(self._prefix, self.holder.encode())
        """Proof of ownership, never used before."""

    def made(self, token: bytes) -> bool:
        """Return whether *token* was made here."""
        return token.startswith(self._prefix)


class HeldHere(NamedTuple):
    """A lease or claim of this process."""

    key: str
    name: str
    """What events call the key."""
    held: float
    """Seconds since it was acquired."""
    remaining: float
    ttl: float
    is_claim: bool
    is_renewed: bool


class WaitedFor(NamedTuple):
    """A key that this process waits for."""

    key: str
    waiters: int
    holder: str | None
    remaining: float | None


class BreakerState(NamedTuple):
    """The state of a circuit breaker."""

    state: str
    """"closed", "open" or "half-open"."""
    cause: str
    """The code of the outage; "" if there is none."""
    out_for: float | None
    """Seconds since the outage began."""


class ProcessState(NamedTuple):
    """A moment of one client. Lists have at most as many entries as were asked for."""

    holder: str
    """What this process is called as a holder."""
    target: str
    namespace: str
    held: list[HeldHere]
    held_count: int
    waited_for: list[WaitedFor]
    waiter_count: int
    loads: list[str]
    """Keys whose values are loaded, or waited for, by this process."""
    load_count: int
    breakers: list[BreakerState]


def process_state(dibs: Any, most: int = 100) -> ProcessState:
    """Return what *dibs*, a `Dibs` or `AsyncDibs`, does now."""
    leases, namespace = dibs._leases, dibs._settings.namespace
    now, prefix = monotonic(), len(namespace.encode())
    table: dict[bytes, LeaseState] = leases.table
    queues = [
        (key, queue) for key, each in _copied(leases.waiters.queues).items() for queue in list(each)
    ]
    flights = {**dibs._cache._memory.flights, **dibs._cache._memory.refreshes}
    return ProcessState(
        leases.identity.holder, repr(dibs._store), namespace,
        [_held(each, now) for each in islice(_copied(table).values(), most)], len(table),
        [_waited_for(key[prefix:], queue) for key, queue in queues[:most]],
        sum(len(queue.turns) for _, queue in queues),
        [_text(key[prefix:]) for key in islice(flights, most)], len(flights),
        [_breaker(each, now) for each in dibs._store.transport.breakers],
    )  # fmt: skip


def add_listener(dibs: Any, listener: Listener) -> None:
    """Have *listener* called with the events of *dibs* from now on."""
    dibs._events.add(listener)


def listeners_of(dibs: Any) -> tuple[Listener, ...]:
    """Return who listens to *dibs*."""
    return dibs._events.listeners


def _copied(table: dict[bytes, Any]) -> dict[bytes, Any]:
    return table.copy()  # in one step: other threads change it


def _held(lease: LeaseState, now: float) -> HeldHere:
    call = lease.call
    held, remaining = now - lease.since, max(lease.deadline - now, 0.0)
    return HeldHere(
        call.text,
        call.name,
        held,
        remaining,
        call.options.ttl,
        parts_of(lease.token).is_claim,
        bool(call.options.renew),
    )


def _waited_for(key: bytes, queue: Any) -> WaitedFor:
    holding = queue.holding
    holder, remaining = (None, None) if holding is None else (holding.holder, holding.remaining)
    return WaitedFor(_text(key), len(queue.turns), holder, remaining)


def _breaker(breaker: Any, now: float) -> BreakerState:
    state, since = breaker.state, breaker.since
    if state == "closed":
        return BreakerState(state, "", None)
    return BreakerState(state, breaker.cause.code, None if since is None else now - since)


def _text(key: bytes) -> str:
    return key.decode("utf-8", "replace")


# ---- other processes


def alive(holder: str | None) -> Literal["running", "stopped", "ended", "unknown"]:
    """Return whether the process of *holder* exists, as far as this machine can tell."""
    host, _, pid = (holder or "").rpartition(":")
    if host != gethostname() or not (pid.isdecimal() and 0 < int(pid) < 2**31):
        return "unknown"
    if os.name != "posix":  # on Windows, signal 0 is Ctrl-C
        return "unknown"
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return "ended"
    except OSError:  # another user's
        pass
    return _state_of(pid)


def _state_of(pid: str) -> Literal["running", "stopped", "ended"]:
    """Return the state of an existing process, as Linux says; elsewhere it is running."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            state = file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "running"
    return "stopped" if state in "Tt" else "ended" if state in "ZX" else "running"
