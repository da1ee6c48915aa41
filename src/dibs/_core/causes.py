"""Why a call failed: codes for machines, sentences for people."""

import re
from collections.abc import Mapping
from typing import Any, cast

from ..errors import OTHER, Cause, Unavailable, UsageError
from .codec import NO_VALUE

SENTENCES = {
    # Redis is unavailable: outage, recovered, degraded, rejected_write, Unavailable.
    "silent": "no answer within the budget",
    "refused": "the server refused the connection",
    "disconnected": "the server closed the connection",
    "connect": "no connection was opened within the connect time-out",
    "unreachable": "the network has no route to the server",
    "dns": "the name of the server cannot be resolved",
    "tls": "the TLS handshake failed",
    "auth": "the server refused the credentials",
    "max_clients": "the server has reached its maximum number of clients",
    "saturated": "all connections of this process are busy",
    "disabled": "dibs is disabled by DIBS_DISABLED",
    "handed_over": "it was not guarded when it was detached",
    "closed": "the client was closed",
    "protocol": "the server's reply could not be read",
    "loading": "the server is loading its data",
    "readonly": "the server is a read-only replica",
    "masterdown": "the server is a replica without a connection to its master",
    "noreplicas": "the server has too few replicas to accept writes",
    "misconf": "the server cannot persist its data and rejects writes",
    "oom": "the server is out of memory",
    "busy": "the server is busy running a script",
    "clusterdown": "the cluster does not serve this slot",
    "tryagain": "the slot is being moved to another node",
    "no_master": "Sentinel reports no master",
    "quota": "a quota of the managed service is exhausted",
    "backend": "the proxy cannot reach its server",
    "embedded": "the embedded server could not be started",
    "no_thread": "no thread can be started to renew it, as when the interpreter shuts down",
    # How a change of the master was detected: switched.
    "announced": "a sentinel announced another master",
    "asked": "the sentinels reported another master when polled",
    "connecting": "the sentinels reported another master to a new connection",
    # Why a claim leaked.
    "cleared": "clear_current_claims abandoned it",
    "dropped": "it was garbage-collected before it ended",
    "outage": "Redis was unavailable when it ended",
    # Why a lease was lost.
    "expired": "it was not renewed in time, or reached max_hold",
    "taken": "another holder has the key, or it was deleted",
    "denied": "the server refused to renew it",
    # How a claim ended where its end was not the usual one ("expired": see above).
    "not_stored": "its result could not be stored; it counts as done",
    # Why a load did not store its value.
    "load_failed": "the load failed",
    "load_cancelled": "the load was cancelled",
    "wait_over": "the wait for a load in another process timed out",
    "foreign_lock": "another program has the lock of the load",
    "superseded": "the value was deleted or loaded elsewhere meanwhile",
    # Why a stream was not stored.
    "too_long": "it has more bytes than most= allows",
    # Why a run of a scheduled function failed.
    "raised": "the function raised an exception",
    "lease_lost": "its lease was lost; another machine takes over",
    "stopped": "the scheduler was stopped; another machine takes over",
    # Why a machine starts no runs: clock_skew.
    "clock": "the clock of this machine differs from the server's",
    OTHER: "an error without a specific code",
}
"""Every code, and what it means."""

_FIRST_WORDS = {
    word.upper(): word
    for word in (
        "loading", "readonly", "masterdown", "noreplicas", "misconf", "oom", "busy",
        "clusterdown", "tryagain",
    )
}  # fmt: skip
# Redis 6 and KeyDB wrap the error of a command in a script: "ERR Error running script …: -OOM …".
_IN_A_SCRIPT = re.compile(r"\bscript\b.*[\s:]-(" + "|".join(_FIRST_WORDS) + r")\b", re.DOTALL)
# Errors of proxies and managed services.
_PHRASES = (
    (re.compile(r"max number of clients|max concurrent connections", re.I), "max_clients"),
    (re.compile(r"\b(limit|quota) exceeded\b", re.I), "quota"),
    (
        re.compile(
            r"^(ERR )?(connection refused|connection timed out|connection reset|host is down"
            r"|no route to host|broken pipe|upstream failure|no upstream host"
            r"|no server connection|server connection)",
            re.I,
        ),
        "backend",
    ),
)


def cause_for(code: str, detail: str = "") -> Cause:
    """Return the cause with *code*. *detail*: a more precise sentence than the usual one."""
    return Cause(detail or SENTENCES[code], code)


def code_of_reply(text: str) -> str | None:
    """Return the code of an error reply that means an outage.

    None: the request itself was wrong.
    """
    code = _FIRST_WORDS.get(text.partition(" ")[0])
    if code is not None:
        return code
    wrapped = _IN_A_SCRIPT.search(text)
    if wrapped is not None:
        return _FIRST_WORDS[wrapped.group(1)]
    return next((code for phrase, code in _PHRASES if phrase.search(text)), None)


class Absent(KeyError):
    """A load of many values returned none for this one. Callers get `as_unavailable()`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def as_unavailable(self) -> Unavailable:
        """Return the error for a caller of this one value."""
        why = cause_for("load_failed", "the loader returned no value for it")
        return Unavailable(why, self.name, KeyError.__name__)


def picked(name: str, items: list[Any], result: Any) -> list[Any]:
    """Return what a load of many returned, as a value for each item, or an Absent.

    Raises UsageError if no dict.
    """
    if not isinstance(result, Mapping):
        kind = type(result).__name__
        raise UsageError(f"{name}: the loader must return a dict of values by item, not {kind}")
    values = cast("Mapping[Any, Any]", result)
    return [values[item] if item in values else Absent(name) for item in items]


def failure_name(error: Exception) -> str:
    """Return what is remembered of a load that failed so.

    Which type, and nothing that may be secret.
    """
    return NO_VALUE if isinstance(error, Absent) else type(error).__name__


def load_error(failure: str, name: str) -> Absent | Unavailable:
    """Return what is raised for a failure that is remembered."""
    if failure == NO_VALUE:
        return Absent(name)
    return Unavailable(cause_for("load_failed", f"the last load failed ({failure})"), name, failure)
