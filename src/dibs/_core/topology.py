"""Which server is the master: what sentinels say, which of them to believe, what an error means.

A sentinel answers with an address and the epoch of its configuration. Every failover has a higher
epoch than the one before, so of two answers the one with the higher epoch is the newer. A sentinel
that was cut off from the others goes on to name the old master, with the old epoch.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from .request import Reply

CHANNELS = (
    "+switch-master",
    "+promoted-slave",
    "+failover-state-reconf-slaves",
    "+config-update-from",
    "+convert-to-slave",
)
"""What to subscribe to. The sentinel that leads a failover publishes `+switch-master` last, after
the other replicas follow it, but names the new master from `+promoted-slave` on."""

LOOK_EVERY = 1.0
"""Seconds between two questions, whether or not a subscription is up."""
ASK_AFTER_FAILURE = 5.0
"""Seconds for which a sentinel that did not answer is asked only if no other one answers."""
RECONNECT_EVERY = 0.1
"""Seconds between two reconnections because of errors that a replica answers, at least."""
RECONNECT_AFTER = 1.0
"""Seconds for which the connection of such a reconnection is used before there is another one.

The server is the same, as a rule. On a line where opening takes long, nobody would be served.
"""


class Master(NamedTuple):
    """Where a sentinel says that the master is, and the epoch of that configuration."""

    host: str
    port: int
    epoch: int

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens."""
        return self.host, self.port


def read_master(
    address: tuple[bytes | str, bytes | str | int] | None, state: Mapping[str, Any]
) -> Master | None:
    """The answer of one sentinel; None: it does not know the service."""
    if not address:
        return None
    host, port = address
    name = host.decode() if isinstance(host, bytes) else host
    return Master(name, int(port), int(state.get("config-epoch", 0)))


def choose(known: Master | None, answers: list[Master], sentinels: int) -> Master | None:
    """The master, by what we know and what some of the *sentinels* (how many there are) say.

    A higher epoch wins. Sentinels that were set up anew count from 0 again: if more than half of
    all sentinels answer, and none of them names the master that we know, they are right.
    """
    newest = max(answers, key=lambda master: master.epoch, default=None)
    if known is None or newest is None:
        return newest or known
    if newest.epoch > known.epoch:
        return newest
    nobody_agrees = all(master.address != known.address for master in answers)
    return newest if nobody_agrees and len(answers) > sentinels // 2 else known


def concerns(message: object, service: str) -> bool:
    """True: a sentinel published something about *service*. Ask who the master is now."""
    match message:
        case {"type": "message" | b"message", "data": bytes() | str() as data}:
            text = data.decode(errors="replace") if isinstance(data, bytes) else data
            return service in text.split()
        case _:
            return False


def is_master(role: Reply) -> bool:
    """Whether the answer to ROLE is that of a master."""
    if not isinstance(role, list) or not role:
        return True  # a server or proxy that does not say: its errors will
    return role[0] in (b"master", "master")


# ---- errors that say: this is not the master, or not any more

_NOT_A_MASTER = frozenset(("readonly", "noreplicas", "masterdown", "clusterdown"))

Reaction = Literal["reconnect", "ask"]


def reaction_to(code: str) -> Reaction | None:
    """What an error with that code says about the server; None: nothing.

    READONLY, MASTERDOWN: it is a replica, connect anew. CLUSTERDOWN: it has no node for the slot,
    perhaps because it has left the cluster; ask another one. NOREPLICAS: it is a master that lost
    its replicas, perhaps because one of them has taken its place.
    """
    if code not in _NOT_A_MASTER:
        return None
    return "ask" if code == "noreplicas" else "reconnect"


class Reconnections:
    """How often such errors make us look for the master: not at every one of them."""

    __slots__ = ("_looked_at", "_reconnected_at")

    def __init__(self) -> None:
        self._looked_at = -math.inf
        self._reconnected_at = math.inf

    def may_look(self, now: float) -> bool:
        """False: that was done a moment ago."""
        if now - self._looked_at < RECONNECT_EVERY:
            return False
        self._looked_at = now
        return True

    def may_reconnect(self, now: float, opened_at: float) -> bool:
        """False: the newest connection, opened at *opened_at*, is that of the last reconnection,
        and has not been used for long."""
        if self._reconnected_at <= opened_at and now - opened_at < RECONNECT_AFTER:
            return False
        self._reconnected_at = now
        return True
