"""Why something happened: a closed set of codes for machines, with a sentence for people.

Metrics and alerts read the code (`Event.cause`, `Unavailable.cause`); it never changes with the
wording. The sentence (`detail`) may be more precise than the one here.
"""

import re

from ..errors import OTHER, Cause

SENTENCES = {
    # The store cannot be used: outage, recovered, degraded, rejected_write, Unavailable.
    "silent": "no answer within the budget",
    "refused": "the server refused the connection",
    "disconnected": "the server closed the connection",
    "connect": "no connection could be opened in time",
    "unreachable": "the network has no route to the server",
    "dns": "the name of the server cannot be resolved",
    "tls": "the TLS handshake failed",
    "auth": "the server refused the credentials",
    "max_clients": "the server has too many connections",
    "saturated": "this process has more callers than its connections can serve in time",
    "disabled": "the guard is switched off",
    "closed": "the Dibs was closed",
    "loading": "the server is loading its data",
    "readonly": "the server is a read-only replica",
    "masterdown": "the server is a replica that has lost its master",
    "noreplicas": "the server has too few replicas to accept writes",
    "misconf": "the server cannot save its data and accepts no writes",
    "oom": "the server is out of memory",
    "busy": "the server is busy running a script",
    "clusterdown": "the cluster cannot serve this slot",
    "tryagain": "the slot is being moved to another node",
    "no_master": "Sentinel knows no master",
    "quota": "the service has used up its quota",
    "backend": "the proxy cannot reach the server behind it",
    "embedded": "the embedded server could not be started",
    # How another master was noticed: switched.
    "announced": "a sentinel announced another master",
    "asked": "the sentinels named another master when they were asked",
    "connecting": "the sentinels named another master to a new connection",
    # How a claim came to leak.
    "cleared": "clear_current_claims gave it up",
    "dropped": "nothing refers to it any more",
    "outage": "the store was out when it ended",
    # How a lease was lost.
    "expired": "it was not renewed in time, or its max_hold is over",
    "taken": "it was not ours any more",
    "denied": "the server refused to renew it",
    # What became of a load.
    "load_failed": "the load failed",
    "load_cancelled": "the load was cancelled",
    "wait_over": "the wait for another load is over",
    "superseded": "the value was deleted, or loaded by another, meanwhile",
    OTHER: "an error without a code of its own",
}
"""Every code, and what it means."""

_FIRST_WORDS = {
    word.upper(): word
    for word in (
        "loading", "readonly", "masterdown", "noreplicas", "misconf", "oom", "busy",
        "clusterdown", "tryagain",
    )
}  # fmt: skip
# Redis 6 and KeyDB wrap what a script ran into: "ERR Error running script …: -OOM command not …".
_IN_A_SCRIPT = re.compile(r"\bscript\b.*[\s:]-(" + "|".join(_FIRST_WORDS) + r")\b", re.DOTALL)
# Errors that proxies and managed services answer with, in place of the server.
_PHRASES = (
    (re.compile(r"max number of clients|max concurrent connections", re.I), "max_clients"),
    (re.compile(r"\blimit exceeded\b", re.I), "quota"),
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
    """The cause with that code. *detail*: a sentence that says more than the usual one."""
    return Cause(detail or SENTENCES[code], code)


def code_of_reply(text: str) -> str | None:
    """What an error reply says about a store that cannot serve; None: the request was wrong."""
    code = _FIRST_WORDS.get(text.partition(" ")[0])
    if code is not None:
        return code
    wrapped = _IN_A_SCRIPT.search(text)
    if wrapped is not None:
        return _FIRST_WORDS[wrapped.group(1)]
    return next((code for phrase, code in _PHRASES if phrase.search(text)), None)
