"""What a viewer is sent: the server's keys, and apart from them what this process does.

Pure: the survey, the figures and the moment come as arguments.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from .._interface import ServerFacts, shorten
from .._process import BreakerState, HeldHere, ProcessState, WaitedFor
from .http import packed
from .rights import Rights
from .survey import MOST_ROWS, Survey, Sweep, View, page_of, search_of

_FACTS = (
    "redis_version", "valkey_version", "server_name", "redis_mode", "os", "role",
    "uptime_in_seconds", "connected_clients", "blocked_clients", "maxclients", "tracking_clients",
    "used_memory", "used_memory_peak", "maxmemory", "maxmemory_policy", "evicted_keys",
    "expired_keys", "instantaneous_ops_per_sec", "total_commands_processed", "keyspace_hits",
    "keyspace_misses", "rejected_connections", "connected_slaves", "master_link_status",
    "min_slaves_good_slaves", "aof_enabled", "rdb_last_bgsave_status", "rdb_last_save_time",
    "loading", "cluster_enabled",
)  # fmt: skip
"""The fields of INFO that are shown: none of them has a key or a secret."""

SAME_FOR = 0.2
"""Seconds for which viewers who look at the same get the same state."""
MOST_STATES = 64
"""Different ones that are kept for that."""


class Moment(NamedTuple):
    """When a state is made."""

    now: float
    """By the monotonic clock."""
    wall: float
    """Seconds since the epoch."""


def state_of(
    survey: Survey,
    process: ProcessState,
    figures: dict[str, Any] | None,
    view: View,
    rights: Rights,
    at: Moment,
) -> dict[str, Any]:
    """Everything that the page shows. *figures*: of this process; None: it does no work itself."""
    return {
        "at": at.wall,
        "target": process.target, "namespace": process.namespace,
        "may": {"release": rights.release, "keys": rights.keys},
        "server": _server(survey, view, rights, at.now),
        "process": None if figures is None else {**_process(process, rights), **figures},
    }  # fmt: skip


class SharedStates:
    """States as JSON, made once for all viewers who look at the same at the same moment."""

    def __init__(self, make: Callable[[View, Rights], dict[str, Any]]) -> None:
        self._make = make
        self._made: dict[tuple[View, Rights], tuple[float, bytes]] = {}

    def of(self, view: View, rights: Rights, cookie: str | None, now: float) -> bytes:
        """The state of a view, with the token of this viewer if it may release."""
        token = packed({"token": cookie if rights.release else None})
        return token[:-1] + b"," + self._shared(view, rights, now)[1:]

    def _shared(self, view: View, rights: Rights, now: float) -> bytes:
        at, body = self._made.get((view, rights), (-math.inf, b""))
        if now - at >= SAME_FOR:
            body = packed(self._make(view, rights))
            if len(self._made) >= MOST_STATES:
                self.forget()
            self._made[view, rights] = now, body
        return body

    def forget(self) -> None:
        """Something was changed: the next state is made anew."""
        self._made.clear()


# ---- the server


def _server(survey: Survey, view: View, rights: Rights, now: float) -> dict[str, Any]:
    sweep, search = survey.shown, search_of(view, keys=rights.keys)
    if search is not None:
        survey.want(search, now)
    return {
        "failure": survey.failure,
        "failing": None if survey.failure is None else now - survey.failed_at,
        "sweep": None if sweep is None else _sweep(survey, sweep, now),
        "view": None if sweep is None else page_of(
            sweep, view, now, keys=rights.keys, release=rights.release
        ),
        "nodes": [_node(each) for each in survey.facts],
        "facts_took": survey.facts_took,
    }  # fmt: skip


def _sweep(survey: Survey, sweep: Sweep, now: float) -> dict[str, Any]:
    return {
        "age": now - (sweep.ended or now), "counts": sweep.counts, "looked": sweep.looked,
        "complete": sweep.ended is not None, "cut": sweep.is_cut, "most": MOST_ROWS,
        "took": None if sweep.ended is None else sweep.ended - sweep.began,
        "unreachable": sorted(sweep.unreachable),
        "reading": None if survey.current is None else survey.current.looked,
    }  # fmt: skip


def _node(facts: ServerFacts) -> dict[str, Any]:
    shown = {name: facts.facts[name] for name in _FACTS if name in facts.facts}
    return {"address": facts.address, "facts": shown}


# ---- this process


def _process(process: ProcessState, rights: Rights) -> dict[str, Any]:
    return {
        "holder": process.holder,
        "held": [_held(each, rights) for each in process.held],
        "held_count": process.held_count,
        "waited_for": [_waited_for(each, rights) for each in process.waited_for],
        "waiter_count": process.waiter_count,
        "loading": [_named(key, rights) for key in process.loads],
        "load_count": process.load_count,
        "breakers": [_breaker(each) for each in process.breakers],
    }


def _held(held: HeldHere, rights: Rights) -> dict[str, Any]:
    return {
        "key": _named(held.key, rights), "name": held.name, "held": held.held,
        "remaining": finite(held.remaining), "claim": held.is_claim, "renewed": held.is_renewed,
    }  # fmt: skip


def _waited_for(waited: WaitedFor, rights: Rights) -> dict[str, Any]:
    return {
        "key": _named(waited.key, rights), "count": waited.waiters, "holder": waited.holder,
        "remaining": finite(waited.remaining),
    }  # fmt: skip


def _breaker(breaker: BreakerState) -> dict[str, Any]:
    return {"state": breaker.state, "cause": breaker.cause, "out_for": breaker.out_for}


def _named(key: str, rights: Rights) -> str:
    return key if rights.keys else shorten(key)


def finite(seconds: float | None) -> float | None:
    """*seconds*; None: for ever, or not known."""
    return None if seconds is None or math.isinf(seconds) else seconds
