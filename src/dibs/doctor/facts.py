"""What the doctor knows about its target, and what it says about it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from .._doctor_api import DEFAULT_BUDGET, OLDEST, Engine

TargetKind = Literal["server", "cluster", "sentinel", "embedded"]
CommandRight = Literal["allowed", "denied", "missing"]
"""Of a command: it works; this user may not run it; the server, or a proxy, does not know it."""

UNREACHABLE = frozenset(
    (
        "dns", "refused", "socket", "unreachable", "silent", "closed", "not-redis",
        "proxy-backend", "embedded",
    )
)  # fmt: skip
"""Failures to reach any server: the exit code is another one."""

PROBE = "dibs:probe:5b0c1e2f7a93"
"""After the namespace: the only key that is used. It does not exist, and is not created."""


SETTINGS = (
    "maxmemory", "maxmemory-policy", "maxclients", "timeout", "tcp-keepalive",
    "tracking-table-max-keys", "min-replicas-to-write", "save",
)  # fmt: skip
"""What servers are asked for with CONFIG GET: what a rule reads, and nothing else."""
FIGURES = (
    "used_memory", "connected_clients", "tracking_total_keys", "min_slaves_good_slaves",
    "master_repl_offset", "master_host", "master_port",
)  # fmt: skip
"""What rules read of INFO as a text or number."""


@dataclass(frozen=True)
class Examination:
    """What was to be examined: the target, without its secrets, and the settings of the client."""

    kind: TargetKind
    address: str
    namespace: str = ""
    budget: float = DEFAULT_BUDGET
    tls: bool = False
    user: str | None = None
    database: int = 0
    service: str = ""

    @property
    def probe(self) -> str:
        """The key that is used."""
        return self.namespace + PROBE

    def server_url(self, address: str) -> str:
        """Return the URL of a single server, with TLS if the target has it."""
        return f"{'rediss' if self.tls else 'redis'}://{address}"

    def cluster_url(self, address: str) -> str:
        """Return the URL of a cluster, with TLS if the target has it."""
        return f"redis+cluster://{address}{'?ssl=true' if self.tls else ''}"


@dataclass(frozen=True)
class ConnectionFailure:
    """Why a server could not be asked. `code` is that of the finding."""

    code: str
    detail: str
    names: tuple[str, ...] = ()
    """Of a certificate for another host: the names that it is for."""


@dataclass(frozen=True)
class Clock:
    """How far the local clock is ahead of the server's, and how exact that is, in seconds."""

    ahead: float
    error: float


@dataclass(frozen=True)
class ServerFacts:
    """One server. What is not known is None, or missing in a mapping."""

    address: str
    failure: ConnectionFailure | None = None
    protocol: int | None = None
    plain: bool = False
    """Connected without HELLO, CLIENT and COMMAND, on which the connection is closed."""
    info: Mapping[str, str] = field(default_factory=dict[str, str])
    config: Mapping[str, str] = field(default_factory=dict[str, str])
    engine: Engine = OLDEST
    commands: Mapping[str, CommandRight] = field(default_factory=dict[str, CommandRight])
    keys: CommandRight | None = None
    """Whether this user may read and write keys of the namespace."""
    refusal: str | None = None
    """The code of an outage with which a harmless write is answered: `oom`, `misconf` …"""
    user: str | None = None
    latency: tuple[float, ...] = ()
    clock: Clock | None = None
    unknown: Mapping[str, str] = field(default_factory=dict[str, str])
    """What could not be asked, and why."""

    takes_any_password: bool = False
    """The user of the URL has no password on the server, so that the one of the URL is ignored."""

    @property
    def is_answering(self) -> bool:
        """Return whether commands were answered."""
        return bool(self.commands)

    @property
    def is_sentinel(self) -> bool:
        """Return whether it watches other servers, and has no keys."""
        return "sentinel" in (self.info.get("redis_mode"), self.info.get("server_mode"))

    def text(self, name: str) -> str | None:
        """Return a setting, by its name in the configuration; INFO has some of them, too.

        KeyError: no server is asked for it, so a rule about it would never find anything.
        """
        if name not in SETTINGS and name not in FIGURES:
            raise KeyError(
                f"A rule of the doctor reads {name!r}, which no server is asked for: add it to "
                "SETTINGS (CONFIG GET) or FIGURES (INFO) in dibs/doctor/facts.py."
            )
        value = self.config.get(name)
        return self.info.get(name.replace("-", "_")) if value is None else value

    def number(self, name: str) -> int | None:
        """Return a setting or a figure of INFO. None: it is not known."""
        text = self.text(name)
        return int(text) if text is not None and re.fullmatch(r"-?\d+", text) else None

    @property
    def product(self) -> str | None:
        """Redis, Valkey, or what the server calls itself."""
        if "redis_version" not in self.info:
            return None
        return self.info.get("server_name", "redis").capitalize()

    @property
    def version(self) -> str | None:
        """Its own version: Valkey also names the one of Redis that it is compatible with."""
        return self.info.get("valkey_version") or self.info.get("redis_version")


@dataclass(frozen=True)
class ClusterNode:
    """One node of a cluster, as another one sees it."""

    address: str
    role: Literal["primary", "replica"]
    flags: frozenset[str]
    slots: int


@dataclass(frozen=True)
class ClusterFacts:
    """What the nodes of a cluster say about it."""

    info: Mapping[str, str] = field(default_factory=dict[str, str])
    nodes: tuple[ClusterNode, ...] = ()
    covered: int | None = None
    """Slots that have a node."""


@dataclass(frozen=True)
class Replica:
    """One replica of a Sentinel service, as a sentinel sees it."""

    address: str
    flags: frozenset[str]
    link: str
    """Its connection to the primary: ok, or err."""

    @property
    def is_up(self) -> bool:
        """Return whether it could be promoted."""
        return not self.flags & {"s_down", "o_down", "disconnected"} and self.link != "err"


@dataclass(frozen=True)
class SentinelFacts:
    """What one sentinel says about the service."""

    address: str
    failure: ConnectionFailure | None = None
    state: Mapping[str, str] = field(default_factory=dict[str, str])
    """Its reply to SENTINEL MASTER; empty: it does not know the service."""
    services: tuple[str, ...] = ()
    replicas: tuple[Replica, ...] | None = None
    """None: it did not say."""
    quorum: str | None = None
    """Why it could not begin a failover; "": it could; None: it did not say."""

    @property
    def is_lost(self) -> bool:
        """Return whether it does not answer at all."""
        return self.failure is not None and self.failure.code in UNREACHABLE


@dataclass(frozen=True)
class KeyFacts:
    """What a bounded SCAN has seen. Keys are counted, never kept."""

    seen: int = 0
    total: int | None = None
    mine: int = 0
    """How many keys are in the namespace."""
    foreign: Mapping[str, int] = field(default_factory=dict[str, int])
    """Types that dibs does not use, under the namespace, and how many keys have them."""
    namespaces: frozenset[str] = frozenset()
    """Namespaces of dibs, as the companion keys show them: fences, locks, requests, schedules."""


@dataclass(frozen=True)
class TargetFacts:
    """Everything that is known when the time is over."""

    asked: Examination
    servers: tuple[ServerFacts, ...] = ()
    sentinels: tuple[SentinelFacts, ...] = ()
    clocks: Mapping[str, Clock] = field(default_factory=dict[str, Clock])
    """Of the replicas of a Sentinel service, by their address."""
    cluster: ClusterFacts | None = None
    keys: KeyFacts | None = None
    unknown: Mapping[str, str] = field(default_factory=dict[str, str])
    seconds: float = 0.0

    @property
    def writable(self) -> tuple[ServerFacts, ...]:
        """The servers that are asked for leases: primaries that answer."""
        there = [each for each in self.servers if each.is_answering]
        return tuple(each for each in there if each.info.get("role") != "slave")


Severity = Literal["error", "warning", "note"]
"""error: calls fail or are not guarded. warning: they may be, or something is lost. note."""
ORDER: tuple[Severity, ...] = ("error", "warning", "note")


@dataclass(frozen=True)
class Finding:
    """One finding. Its code is listed in docs/doctor.md."""

    code: str
    severity: Severity
    seen: str
    why: str
    fix: str
    commands: tuple[str, ...] = ()
    """Server commands that are the fix, for redis-cli or valkey-cli."""
    details: tuple[str, ...] = ()
    """What was seen, item by item."""
    where: tuple[str, ...] = ()
    """The servers it concerns."""


def amount(size: int) -> str:
    """Return a number of bytes, for people."""
    value, unit = float(size), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.3g} {unit}" if value < 1000 else f"{value:.0f} {unit}"


def milliseconds_text(seconds: float) -> str:
    """Return a duration, for people."""
    return f"{seconds * 1000:.2g} ms" if seconds < 0.0995 else f"{seconds * 1000:.0f} ms"
