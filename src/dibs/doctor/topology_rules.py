"""Rules about reaching servers: connections, replicas, Sentinel and clusters."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from .._doctor_api import SLOTS
from .facts import (
    ClusterNode,
    ConnectionFailure,
    Examination,
    Finding,
    SentinelFacts,
    ServerFacts,
    Severity,
    TargetFacts,
)

_FAILOVER = "There would be no failover: the outage lasts until the primary is back."


def cluster_target(facts: TargetFacts) -> Iterator[Finding]:
    """Yield a node of a cluster, used as if it were a single server."""
    for server in facts.servers:
        if facts.asked.kind == "server" and server.info.get("cluster_enabled") == "1":
            yield Finding(
                "cluster-target",
                "error",
                f"{server.address} is a node of a cluster, and the URL is that of a single server.",
                "Keys of other nodes are answered with MOVED: these calls fail.",
                f"Use {facts.asked.cluster_url(server.address)}, with another node as well.",
            )


def cluster_state(facts: TargetFacts) -> Iterator[Finding]:
    """The cluster says itself that it does not serve requests."""
    if facts.cluster is not None and facts.cluster.info.get("cluster_state") == "fail":
        yield Finding(
            "cluster-state",
            "error",
            "The cluster is down (cluster_state:fail).",
            "It answers CLUSTERDOWN: an outage for every key, if `cluster-require-full-coverage`"
            " is yes; else for the keys of the slots that are lost.",
            "Start the nodes that are lost, or promote a replica of each. To serve the slots that"
            " are left meanwhile, on every node:",
            ("CONFIG SET cluster-require-full-coverage no",),
        )


def cluster_slots(facts: TargetFacts) -> Iterator[Finding]:
    """Yield slots without a node."""
    cluster = facts.cluster
    if cluster is None or cluster.covered is None or cluster.covered >= SLOTS:
        return
    yield Finding(
        "cluster-slots",
        "error",
        f"{SLOTS - cluster.covered} of {SLOTS} slots have no node.",
        "Keys of these slots have no server: an outage for them.",
        "Assign them: `redis-cli --cluster fix HOST:PORT`, or CLUSTER ADDSLOTSRANGE on a node.",
    )


def cluster_nodes(facts: TargetFacts) -> Iterator[Finding]:
    """Nodes that are lost: the others say so, or they do not answer us."""
    if facts.cluster is None:
        return
    failed = {each.address: each.failure for each in facts.servers if each.failure is not None}
    lost = [
        node
        for node in facts.cluster.nodes
        if node.address in failed or node.flags & {"fail", "fail?"}
    ]
    if not lost:
        return
    yield Finding(
        "cluster-node",
        "error" if any(node.slots for node in lost) else "warning",
        f"Nodes of the cluster are lost, {len(lost)} of {len(facts.cluster.nodes)}:",
        "Until a replica is promoted, the keys of a lost primary have no server: an outage for"
        " them. A lost replica cannot be promoted.",
        "Start the nodes again. On a replica of a lost primary: CLUSTER FAILOVER TAKEOVER. A node"
        " that will not come back: CLUSTER FORGET, on every node.",
        details=tuple(_lost_node(node, failed.get(node.address)) for node in lost),
    )


def _lost_node(node: ClusterNode, failure: ConnectionFailure | None) -> str:
    what = f"primary of {node.slots} slots" if node.role == "primary" else "replica"
    why = f"{failure.code}, {failure.detail}".rstrip(", ") if failure else "the others say so"
    return f"{node.address}, {what}: {why}"


def sentinel_target(facts: TargetFacts) -> Iterator[Finding]:
    """Yield a sentinel, used as if it were the server that it watches."""
    for server in facts.servers:
        if server.is_sentinel:
            name = _FIRST_SERVICE.search(server.info.get("master0", ""))
            yield Finding(
                "sentinel-target",
                "error",
                f"{server.address} is a sentinel, and the URL is that of a server.",
                "A sentinel knows none of the commands for keys: every call fails.",
                f"Use redis+sentinel://{server.address}/{name[1] if name else 'SERVICE'}"
                + ("?sentinel_ssl=true" if facts.asked.tls else "")
                + ", with other sentinels as well.",
            )


_FIRST_SERVICE = re.compile(r"name=([^,]+)")


def lost_sentinels(facts: TargetFacts) -> Iterator[Finding]:
    """Yield the sentinels of the URL that do not answer."""
    lost = [each for each in facts.sentinels if each.is_lost]
    if lost:
        yield Finding(
            "sentinel-lost",
            "error" if len(lost) == len(facts.sentinels) else "warning",
            f"{len(lost)} of {len(facts.sentinels)} sentinels of the URL do not answer:",
            "dibs asks the others. If none answers, the primary is unknown: an outage.",
            "Start them, or correct host and port in the URL; the default port is 26379. A password"
            " of the sentinels is ?sentinel_password=…",
            details=tuple(f"{each.address}: {_failure_reason(each)}" for each in lost),
        )


def refusing_sentinels(facts: TargetFacts) -> Iterator[Finding]:
    """Yield the servers of the URL that answer, but not as sentinels, or not to us."""
    failed = [each for each in facts.sentinels if each.failure is not None]
    refusing = [each for each in failed if not each.is_lost]
    if refusing:
        yield Finding(
            "sentinel-refuses",
            "error" if len(failed) == len(facts.sentinels) else "warning",
            f"{len(refusing)} of {len(facts.sentinels)} servers of the URL do not answer as"
            " sentinels:",
            "dibs asks the others. If none answers, the primary is unknown: an outage.",
            "Name host and port of sentinels in the URL; the default port is 26379. Their password"
            " is ?sentinel_password=…, that of the primary is in front of the hosts.",
            details=tuple(f"{each.address}: {_failure_reason(each)}" for each in refusing),
        )


def _failure_reason(sentinel: SentinelFacts) -> str:
    failure = sentinel.failure
    return f"{failure.code}: {failure.detail}".removesuffix(": ") if failure else ""


def unknown_service(facts: TargetFacts) -> Iterator[Finding]:
    """Yield the sentinels that do not know the service of the URL."""
    answering = [each for each in facts.sentinels if each.failure is None]
    without = [each for each in answering if not each.state]
    if not without:
        return
    known = sorted({name for each in without for name in each.services})
    names = ", ".join(known[:5]) or "none"
    yield Finding(
        "sentinel-service",
        "error" if len(without) == len(answering) else "warning",
        f"{len(without)} sentinels do not know the service {facts.asked.service!r}; they know:"
        f" {names}.",
        "dibs does not find the primary: an outage, until the service appears.",
        f"Correct the name in the URL: redis+sentinel://…/{known[0] if known else 'SERVICE'}; or"
        " have the sentinels watch it (SENTINEL MONITOR).",
    )


def few_sentinels(facts: TargetFacts) -> Iterator[Finding]:
    """Too few to agree on a failover when one is lost."""
    counts = [
        int(each.state.get("num-other-sentinels") or 0) + 1 for each in _answering_sentinels(facts)
    ]
    if counts and max(counts) < 3:
        yield Finding(
            "sentinel-few",
            "warning",
            f"The service is watched by {max(counts)} sentinels.",
            f"A majority is needed for a failover; if one of fewer than three is lost: {_FAILOVER}",
            "Run three sentinels or more, on different machines.",
        )
    elif counts and len(facts.sentinels) == 1:
        yield Finding(
            "sentinel-url",
            "warning",
            f"The URL names one sentinel, of {max(counts)}.",
            "If it is lost, a process that starts does not find the primary.",
            "Name more of them: redis+sentinel://HOST1:26379,HOST2:26379/…",
        )


def no_quorum(facts: TargetFacts) -> Iterator[Finding]:
    """Yield the sentinels that say that they could not begin a failover."""
    reasons = sorted({each.quorum for each in _answering_sentinels(facts) if each.quorum})
    if not reasons:
        return
    known = max(
        int(each.state.get("num-other-sentinels") or 0) + 1 for each in _answering_sentinels(facts)
    )
    fix, commands = _START_SENTINELS, ()
    if not any("majority" in reason for reason in reasons):
        fix = f"Start the sentinels that are lost, or set the majority of the {known} on each:"
        commands = (f"SENTINEL SET {facts.asked.service} quorum {known // 2 + 1}",)
    yield Finding(
        "sentinel-quorum", "error", "The sentinels cannot agree on a failover now:", _FAILOVER,
        fix, commands, details=tuple(reason[:160] for reason in reasons[:2]),
    )  # fmt: skip


_START_SENTINELS = (
    "Start the sentinels that are lost: a failover needs the majority of all that are known,"
    " whatever the quorum is. Those that are gone for good are forgotten by SENTINEL RESET, on each"
    " of the others."
)


def primary_down(facts: TargetFacts) -> Iterator[Finding]:
    """Yield the sentinels hold the primary to be down."""
    for state in [each.state for each in _answering_sentinels(facts)]:
        if "_down" in state.get("flags", ""):
            yield Finding(
                "sentinel-primary",
                "error",
                f"The sentinels hold the primary {state.get('ip')}:{state.get('port')} to be down.",
                "Until a replica is promoted, this is an outage.",
                "Start it, or wait for the failover. If none comes, read the log of a sentinel.",
            )
            return


def no_replica(facts: TargetFacts) -> Iterator[Finding]:
    """Yield a service without a replica that could be promoted, or with some that are dead."""
    counts = [int(each.state.get("num-slaves") or 0) for each in _answering_sentinels(facts)]
    if not counts:
        return
    if max(counts) == 0:
        yield Finding(
            "sentinel-no-replica",
            "warning",
            "The service has no replica.",
            _FAILOVER,
            "Start a replica (`replicaof HOST PORT` in its configuration).",
        )
        return
    # Sentinels may know different ones, and see different ones: what all that know hold to be down.
    listed = [each for sentinel in _answering_sentinels(facts) for each in sentinel.replicas or ()]
    up = {each.address for each in listed if each.is_up}
    down = sorted({each.address for each in listed} - up)
    if down and not up:
        yield Finding(
            "sentinel-no-replica",
            "warning",
            f"No replica of the service is up: {', '.join(down[:5])}.",
            _FAILOVER,
            _START_REPLICAS,
        )
    elif down:
        yield Finding(
            "sentinel-replica-down",
            "warning",
            f"Replicas of the service are down: {', '.join(down[:5])}.",
            "There are fewer to fail over to, and `min-replicas-to-write` may refuse writes.",
            _START_REPLICAS,
        )


_START_REPLICAS = (
    "Start them, or see why they have no connection to the primary. Those that are gone for good"
    " are forgotten by SENTINEL RESET, on each sentinel."
)
_MOST_APART = 1.0


def replica_clocks(facts: TargetFacts) -> Iterator[Finding]:
    """Yield a replica whose clock is not that of the primary: it is the clock after a failover."""
    primary = next((each.clock for each in facts.servers if each.clock is not None), None)
    if primary is None:
        return
    for address, clock in sorted(facts.clocks.items()):
        behind = clock.ahead - primary.ahead
        if abs(behind) <= _MOST_APART + clock.error + primary.error:
            continue
        side = "behind" if behind > 0 else "ahead of"
        yield Finding(
            "sentinel-clock",
            "warning",
            f"The clock of the replica {address} is {abs(behind):.1f} s {side} the primary's.",
            "After a failover leases end by that clock: ahead, they end early, and there may be two"
            " holders; behind, they stay. Schedules go by it, too.",
            "Synchronise both machines by NTP: `timedatectl set-ntp true`, or `chronyc makestep`.",
        )


def _answering_sentinels(facts: TargetFacts) -> list[SentinelFacts]:
    return [each for each in facts.sentinels if each.state]


TOPOLOGY_RULES = (
    cluster_target, cluster_state, cluster_slots, cluster_nodes, sentinel_target, lost_sentinels,
    refusing_sentinels, unknown_service, few_sentinels, no_quorum, primary_down, no_replica,
    replica_clocks,
)  # fmt: skip


_LAG, _BEHIND = 2, 1_000_000
"""Seconds since a replica reported, and bytes it has not got, from which on it lags."""


class ReplicaLink(NamedTuple):
    """A replica, as its primary sees it."""

    address: str
    state: str
    lag: int
    behind: int

    @property
    def is_good(self) -> bool:
        """Return whether it has nearly all that its primary has."""
        return self.state == "online" and self.lag <= _LAG and self.behind <= _BEHIND


def replicas_of(server: ServerFacts) -> list[ReplicaLink]:
    """Return the replicas in `INFO replication`.

    `slave0:ip=…,port=…,state=online,offset=…,lag=1`.
    """
    end = server.number("master_repl_offset") or 0
    lines = [value for name, value in server.info.items() if re.fullmatch(r"slave\d+", name)]
    return [_replica_link(dict(re.findall(r"(\w+)=([^,]*)", line)), end) for line in lines]


def _replica_link(known: dict[str, str], end: int) -> ReplicaLink:
    offset, lag = (int(known.get(name) or 0) for name in ("offset", "lag"))
    address = f"{known.get('ip')}:{known.get('port')}"
    return ReplicaLink(address, known.get("state", ""), lag, max(end - offset, 0))


def replica_target(server: ServerFacts, scope: Examination) -> Iterator[Finding]:
    """The target is a replica, which refuses writes."""
    if server.info.get("role") != "slave" and server.refusal not in ("readonly", "masterdown"):
        return
    if scope.kind == "cluster":
        return  # a node of the cluster
    primary = ":".join(filter(None, [server.text("master_host"), server.text("master_port")]))
    yield Finding(
        "replica",
        "error",
        f"{server.address} is a replica" + (f" of {primary}." if primary else "."),
        "It refuses writes (READONLY), so no lease can be acquired: that is an outage.",
        f"Use the primary: {scope.server_url(primary or 'HOST:PORT')}; or redis+sentinel://…,"
        " which finds it."
        " To make this server the primary:",
        ("REPLICAOF NO ONE",),
    )


def lagging(server: ServerFacts, scope: Examination) -> Iterator[Finding]:
    """Yield the replicas that lack what their primary has."""
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


def too_few(server: ServerFacts, scope: Examination) -> Iterator[Finding]:
    """Fewer replicas than the server needs to accept writes."""
    minimum = server.number("min-replicas-to-write") or 0
    good = server.number("min_slaves_good_slaves")
    if good is None:
        good = sum(each.state == "online" for each in replicas_of(server))
    if server.refusal == "noreplicas" or (minimum > good and server.info.get("role") == "master"):
        yield Finding(
            "no-replicas",
            "error",
            f"The server needs {minimum or 'more'} replicas to accept writes, and has {good}.",
            "It refuses writes (NOREPLICAS), so no lease can be acquired: that is an outage.",
            "Start the replicas; or lower the number, also in the configuration file:",
            (f"CONFIG SET min-replicas-to-write {good}",),
        )


def unconfirmed(server: ServerFacts, scope: Examination) -> Iterator[Finding]:
    """Yield a primary that continues alone when it is cut off from its replicas."""
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


REPLICATION_RULES = (replica_target, lagging, too_few, unconfirmed)


class _Case(NamedTuple):
    """What a failure is called, and what to do. `{address}` and others are filled in.

    See `_filled_by` for the URLs: of the same kind as that which was asked, with its TLS.
    """

    seen: str
    why: str
    fix: str
    commands: tuple[str, ...] = ()
    severity: Severity = "error"


_OUTAGE = "For dibs this is an outage: callers proceed unguarded, or get Unavailable."
_USAGE = "dibs raises a UsageError at the first call."
CASES: dict[str, _Case] = {
    "dns": _Case(
        "The host name '{host}' cannot be resolved.",
        _OUTAGE,
        "Correct the host name in the URL, or use an IP address.",
    ),
    "refused": _Case(
        "No server listens at {address}: the connection was refused.",
        _OUTAGE,
        "Start the server, or correct host and port in the URL. A server that listens only on"
        " 127.0.0.1 needs `bind` in its configuration.",
    ),
    "socket": _Case(
        "The Unix socket {address} cannot be used.",
        _OUTAGE,
        "Start the server with `unixsocket {address}` in its configuration, or correct the path in"
        " the URL. If permission is denied: `unixsocketperm 770`, and the user of this program in"
        " the group of the server.",
    ),
    "unreachable": _Case(
        "No TCP connection to {address}.",
        _OUTAGE,
        "Correct host and port in the URL, or open the port in the firewall or security group.",
    ),
    "silent": _Case(
        "{address} accepts connections and does not answer.",
        _OUTAGE,
        "The server hangs (stopped, swapping, or in a slow command), or a load balancer has no"
        " server behind it. Look at the server's process and log; restart it.",
    ),
    "closed": _Case(
        "{address} closes the connection.",
        _OUTAGE,
        "Is it a Redis or Valkey server? Look at its log. If `protected-mode` is on, it needs a"
        " password or a `bind` address; a proxy may have no server behind it.",
    ),
    "not-redis": _Case(
        "{address} answers, but not as a Redis or Valkey server does.",
        _OUTAGE,
        "Correct the port in the URL: another service listens there.",
    ),
    "proxy-backend": _Case(
        "The proxy at {address} cannot reach its server.",
        _OUTAGE,
        "Start the server behind the proxy, or correct its address in the proxy's configuration.",
    ),
    "embedded": _Case(
        "The embedded server could not be started.",
        "The first call raises Unavailable or UsageError, whatever the policy.",
        "Install it with `pip install 'pydibs[embedded]'`, or put a valkey-server on the PATH.",
    ),
    "tls-expired": _Case(
        "The certificate of {address} has expired, or is not valid yet.",
        _USAGE,
        "Renew the certificate of the server; check that the clock of this machine is right.",
    ),
    "tls-host": _Case(
        "The certificate of {address} is for another host name.",
        _USAGE,
        "Use the name that the certificate was made for in the URL{names}, or have one made for"
        " {host}.",
    ),
    "tls-ca": _Case(
        "The certificate of {address} is not trusted.",
        _USAGE,
        "Name the file of its CA in the URL: {option}ssl_ca_certs=/path/to/ca.pem",
    ),
    "tls-client": _Case(
        "{address} does not accept our certificate, or misses one.",
        _USAGE,
        "Pass the one it knows: {option}ssl_certfile=/path/to.pem&ssl_keyfile=/path/to.key",
    ),
    "tls-file": _Case(
        "A file that the URL names for TLS is missing or cannot be read.",
        _USAGE,
        "Correct ssl_ca_certs, ssl_certfile and ssl_keyfile in the URL.",
    ),
    "tls-plain": _Case(
        "The URL asks for TLS, and {address} does not speak it.",
        "For dibs this is an outage (no connection was opened), or a UsageError at the first call.",
        "Use {plain} (without TLS), or the port on which the server speaks TLS.",
    ),
    "tls-required": _Case(
        "{address} speaks TLS only, and the URL asks for none.",
        _OUTAGE,
        "Use {secure}, or the port on which the server speaks without TLS.",
    ),
    "tls-failed": _Case(
        "The TLS handshake with {address} failed.",
        "dibs raises a UsageError at the first call, or this is an outage.",
        "Compare the TLS versions and ciphers of both sides: tls-protocols, tls-ciphers and"
        " tls-ciphersuites on the server, ssl_ciphers in the URL; the reason is above.",
    ),
    "auth-missing": _Case(
        "{address} asks for a password.",
        _USAGE,
        "Put it into the URL: {scheme}://:PASSWORD@{place}, with a user {scheme}://USER:PASSWORD@…;"
        " percent-encode special characters.",
    ),
    "auth-wrong": _Case(
        "{address} refuses the password, or does not know the user {user}.",
        _USAGE,
        "Correct user and password in the URL (percent-encode special characters), or set the"
        " password on the server, as an administrator:",
        ("ACL SETUSER {user} on >PASSWORD",),
    ),
    "auth-unset": _Case(
        "The URL has a password, and {address} has none.",
        _USAGE,
        "Remove the password from the URL, or set it on the server.",
    ),
    "acl-connect": _Case(
        "The user {user} may not run a command that the URL asks for.",
        _USAGE,
        "Remove the database number or client_name from the URL, or allow the commands:",
        ("ACL SETUSER {user} +select +client|setname",),
    ),
    "acl-cluster": _Case(
        "The user {user} may not ask {address} for the slots of the cluster.",
        "dibs cannot find the node of a key.",
        "Allow the command on every node:",
        ("ACL SETUSER {user} +cluster|slots",),
    ),
    "database": _Case(
        "{address} does not have database {database}.",
        _USAGE,
        "Use a smaller number in the URL, or raise `databases` in the server's configuration.",
    ),
    "cluster-database": _Case(
        "The URL names database {database}, and {address} is a node of a cluster.",
        "A cluster has a single database.",
        "Use {cluster}, without a number.",
    ),
    "cluster-disabled": _Case(
        "The URL asks for a cluster, and {address} is a single server.",
        "dibs does not find out which node has a key.",
        "Use {server}.",
    ),
    "max-clients": _Case(
        "{address} has reached its maximum number of clients.",
        _OUTAGE,
        "Close connections, or raise the limit:",
        ("CONFIG SET maxclients 10000",),
    ),
    "loading": _Case(
        "{address} is loading its data.",
        "Until it is done, this is an outage.",
        "Wait; `INFO persistence` says how long (loading_eta_seconds).",
        ("INFO persistence",),
    ),
    "busy": _Case(
        "{address} is busy running a script.",
        "Until it ends, this is an outage.",
        "End the script (a function: FUNCTION KILL). One that has written can only be ended with"
        " SHUTDOWN NOSAVE.",
        ("SCRIPT KILL",),
    ),
    "quota": _Case(
        "{address} answers that a quota of the service is exhausted.",
        _OUTAGE,
        "Raise the quota of the managed service.",
    ),
    "settings": _Case(
        "The settings do not allow a connection to {address}.",
        _USAGE,
        "Correct the URL; the reason is above.",
    ),
}


def failed_servers(facts: TargetFacts) -> Iterator[Finding]:
    """Yield the servers that could not be asked.

    In a cluster, another rule tells which nodes are lost.
    """
    failed = [each for each in facts.servers if each.failure and facts.cluster is None]
    for code in dict.fromkeys(each.failure.code for each in failed if each.failure):
        alike = [each for each in failed if each.failure and each.failure.code == code]
        first, rest = alike[0], len(alike) - 1
        name = f"{first.address} (and {rest} more)" if rest else first.address
        assert first.failure is not None
        yield of_failure(first.failure, replace(first, address=name), facts.asked)


def of_failure(failure: ConnectionFailure, server: ServerFacts, scope: Examination) -> Finding:
    """Return the finding for a failure of *server*."""
    case = CASES.get(failure.code, CASES["closed"])
    fill = _filled_by(server, scope, failure.names)
    detail = failure.detail.strip().rstrip(".")
    seen = f"{fill(case.seen).rstrip('.')} ({detail})." if detail else fill(case.seen)
    commands = tuple(fill(command) for command in case.commands)
    return Finding(failure.code, case.severity, seen, fill(case.why), fill(case.fix), commands)


def _filled_by(
    server: ServerFacts, scope: Examination, names: tuple[str, ...]
) -> Callable[[str], str]:
    values = {
        **_urls_for(server.address, scope),
        "{address}": server.address,
        "{host}": server.address.rpartition(":")[0].strip("[]"),
        "{user}": server.user or scope.user or "default",
        "{database}": str(scope.database),
        "{names}": f" ({', '.join(names)})" if names else "",
    }

    def fill(text: str) -> str:
        for name, value in values.items():
            text = text.replace(name, value)
        return text

    return fill


def _urls_for(address: str, scope: Examination) -> dict[str, str]:
    """Return what a fix writes in place of the URL that was asked."""
    urls = {
        "{server}": scope.server_url(address), "{cluster}": scope.cluster_url(address),
        "{scheme}": "rediss" if scope.tls else "redis", "{place}": address,
        "{plain}": f"redis://{address}", "{secure}": f"rediss://{address}",
        "{option}": "rediss://…?",
    }  # fmt: skip
    if scope.kind in ("cluster", "sentinel"):
        scheme = f"redis+{scope.kind}"
        urls |= {
            "{scheme}": scheme, "{place}": "…", "{plain}": f"{scheme}://… without ssl=true",
            "{secure}": f"{scheme}://…?ssl=true", "{option}": f"{scheme}://…?ssl=true&",
        }  # fmt: skip
    return urls


CONNECTING_RULES = (failed_servers,)
