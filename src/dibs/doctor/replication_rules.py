"""Rules about replicas: the target is one, there are too few, or they lag behind."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from .facts import Asked, ServerFacts
from .finding import Finding

_LAG, _BEHIND = 2, 1_000_000
"""Seconds since a replica reported, and bytes it has not got, from which on it lags."""


class Replica(NamedTuple):
    """A replica, as its primary sees it."""

    address: str
    state: str
    lag: int
    behind: int

    @property
    def is_good(self) -> bool:
        """Whether it has nearly all that its primary has."""
        return self.state == "online" and self.lag <= _LAG and self.behind <= _BEHIND


def replicas_of(server: ServerFacts) -> list[Replica]:
    """The replicas in `INFO replication`: `slave0:ip=…,port=…,state=online,offset=…,lag=1`."""
    end = server.number("master_repl_offset") or 0
    lines = [value for name, value in server.info.items() if re.fullmatch(r"slave\d+", name)]
    return [_replica(dict(re.findall(r"(\w+)=([^,]*)", line)), end) for line in lines]


def _replica(known: dict[str, str], end: int) -> Replica:
    offset, lag = (int(known.get(name) or 0) for name in ("offset", "lag"))
    address = f"{known.get('ip')}:{known.get('port')}"
    return Replica(address, known.get("state", ""), lag, max(end - offset, 0))


def replica_target(server: ServerFacts, asked: Asked) -> Iterator[Finding]:
    """The target is a replica, which refuses writes."""
    if server.info.get("role") != "slave" and server.refusal not in ("readonly", "masterdown"):
        return
    if asked.kind == "cluster":
        return  # a node of its own right
    primary = ":".join(filter(None, [server.text("master_host"), server.text("master_port")]))
    yield Finding(
        "replica",
        "error",
        f"{server.address} is a replica" + (f" of {primary}." if primary else "."),
        "It refuses writes (READONLY), so no lease can be acquired: that is an outage.",
        f"Use the primary: {asked.server_url(primary or 'HOST:PORT')}; or redis+sentinel://…,"
        " which finds it."
        " To make this server the primary:",
        ("REPLICAOF NO ONE",),
    )


def lagging(server: ServerFacts, asked: Asked) -> Iterator[Finding]:
    """Replicas that lack what their primary has."""
    late = [each for each in replicas_of(server) if not each.is_good]
    if late:
        yield Finding(
            "replica-lag",
            "warning",
            f"{len(late)} of {len(replicas_of(server))} replicas lag behind:",
            "After a failover, leases that were not replicated are granted again.",
            "Look at the load, the network and the log of the replicas (`master_link_status` in"
            " `INFO replication`).",
            ("INFO replication",),
            details=tuple(
                f"{each.address}: {each.state}, reported {each.lag} s ago,"
                f" {each.behind} bytes behind"
                for each in late
            ),
        )


def too_few(server: ServerFacts, asked: Asked) -> Iterator[Finding]:
    """Fewer replicas than the server needs to accept writes."""
    wanted = server.number("min-replicas-to-write") or 0
    good = server.number("min_slaves_good_slaves")
    if good is None:
        good = sum(each.state == "online" for each in replicas_of(server))
    if server.refusal == "noreplicas" or (wanted > good and server.info.get("role") == "master"):
        yield Finding(
            "no-replicas",
            "error",
            f"The server needs {wanted or 'more'} replicas to accept writes, and has {good}.",
            "It refuses writes (NOREPLICAS), so no lease can be acquired: that is an outage.",
            "Start the replicas; or lower the number, also in the configuration file:",
            (f"CONFIG SET min-replicas-to-write {good}",),
        )


def unconfirmed(server: ServerFacts, asked: Asked) -> Iterator[Finding]:
    """A primary that goes on alone when it is cut off from its replicas."""
    replicas = replicas_of(server)
    if not replicas or server.number("min-replicas-to-write") != 0:
        return
    yield Finding(
        "min-replicas",
        "warning" if len(replicas) > 1 else "note",
        f"min-replicas-to-write is 0, with {len(replicas)} replicas.",
        "A primary that has lost its replicas goes on to grant leases that no replica will know;"
        " after the failover there may be two holders.",
        "Let it refuse writes then, also in the configuration file; with at least two replicas,"
        " or the loss of one is an outage:",
        ("CONFIG SET min-replicas-to-write 1", "CONFIG SET min-replicas-max-lag 2"),
    )


RULES = (replica_target, lagging, too_few, unconfirmed)
