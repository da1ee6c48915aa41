"""Rules about clusters and Sentinel services."""

import re
from collections.abc import Iterator

from .cluster import SLOTS
from .facts import Facts, Failure, Node, SentinelFacts
from .finding import Finding

_FAILOVER = "There would be no failover: the outage lasts until the primary is back."


def cluster_target(facts: Facts) -> Iterator[Finding]:
    """A node of a cluster, used as if it were a single server."""
    for server in facts.servers:
        if facts.asked.kind == "server" and server.info.get("cluster_enabled") == "1":
            yield Finding(
                "cluster-target",
                "error",
                f"{server.address} is a node of a cluster, and the URL is that of a single server.",
                "Keys of other nodes are answered with MOVED: these calls fail.",
                f"Use {facts.asked.cluster_url(server.address)}, with another node as well.",
            )


def cluster_state(facts: Facts) -> Iterator[Finding]:
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


def cluster_slots(facts: Facts) -> Iterator[Finding]:
    """Slots without a node."""
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


def cluster_nodes(facts: Facts) -> Iterator[Finding]:
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


def _lost_node(node: Node, failure: Failure | None) -> str:
    what = f"primary of {node.slots} slots" if node.role == "primary" else "replica"
    why = f"{failure.code}, {failure.detail}".rstrip(", ") if failure else "the others say so"
    return f"{node.address}, {what}: {why}"


def sentinel_target(facts: Facts) -> Iterator[Finding]:
    """A sentinel, used as if it were the server that it watches."""
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


def lost_sentinels(facts: Facts) -> Iterator[Finding]:
    """Sentinels of the URL that do not answer."""
    lost = [each for each in facts.sentinels if each.is_lost]
    if lost:
        yield Finding(
            "sentinel-lost",
            "error" if len(lost) == len(facts.sentinels) else "warning",
            f"{len(lost)} of {len(facts.sentinels)} sentinels of the URL do not answer:",
            "dibs asks the others. If none answers, nobody knows the primary: an outage.",
            "Start them, or correct host and port in the URL; the default port is 26379. A password"
            " of the sentinels is ?sentinel_password=…",
            details=tuple(f"{each.address}: {_why(each)}" for each in lost),
        )


def refusing_sentinels(facts: Facts) -> Iterator[Finding]:
    """Servers of the URL that answer, but not as sentinels, or not to us."""
    failed = [each for each in facts.sentinels if each.failure is not None]
    refusing = [each for each in failed if not each.is_lost]
    if refusing:
        yield Finding(
            "sentinel-refuses",
            "error" if len(failed) == len(facts.sentinels) else "warning",
            f"{len(refusing)} of {len(facts.sentinels)} servers of the URL do not answer as"
            " sentinels:",
            "dibs asks the others. If none answers, nobody knows the primary: an outage.",
            "Name host and port of sentinels in the URL; the default port is 26379. Their password"
            " is ?sentinel_password=…, that of the primary is in front of the hosts.",
            details=tuple(f"{each.address}: {_why(each)}" for each in refusing),
        )


def _why(sentinel: SentinelFacts) -> str:
    failure = sentinel.failure
    return f"{failure.code}: {failure.detail}".removesuffix(": ") if failure else ""


def unknown_service(facts: Facts) -> Iterator[Finding]:
    """Sentinels that do not know the service of the URL."""
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


def few_sentinels(facts: Facts) -> Iterator[Finding]:
    """Too few to agree on a failover when one is lost."""
    counts = [int(each.state.get("num-other-sentinels") or 0) + 1 for each in _knowing(facts)]
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


def no_quorum(facts: Facts) -> Iterator[Finding]:
    """Sentinels that say that they could not begin a failover."""
    reasons = sorted({each.quorum for each in _knowing(facts) if each.quorum})
    if not reasons:
        return
    known = max(int(each.state.get("num-other-sentinels") or 0) + 1 for each in _knowing(facts))
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


def primary_down(facts: Facts) -> Iterator[Finding]:
    """The sentinels hold the primary to be down."""
    for state in [each.state for each in _knowing(facts)]:
        if "_down" in state.get("flags", ""):
            yield Finding(
                "sentinel-primary",
                "error",
                f"The sentinels hold the primary {state.get('ip')}:{state.get('port')} to be down.",
                "Until a replica is promoted, this is an outage.",
                "Start it, or wait for the failover. If none comes, read the log of a sentinel.",
            )
            return


def no_replica(facts: Facts) -> Iterator[Finding]:
    """A service without a replica that could be promoted, or with some that are dead."""
    counts = [int(each.state.get("num-slaves") or 0) for each in _knowing(facts)]
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
    listed = [each for sentinel in _knowing(facts) for each in sentinel.replicas or ()]
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


def replica_clocks(facts: Facts) -> Iterator[Finding]:
    """A replica whose clock is not that of the primary: it is the clock after a failover."""
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


def _knowing(facts: Facts) -> list[SentinelFacts]:
    return [each for each in facts.sentinels if each.state]


RULES = (
    cluster_target, cluster_state, cluster_slots, cluster_nodes, sentinel_target, lost_sentinels,
    refusing_sentinels, unknown_service, few_sentinels, no_quorum, primary_down, no_replica,
    replica_clocks,
)  # fmt: skip
