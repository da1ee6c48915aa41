"""Asking the nodes of a cluster about the cluster."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from .._diagnostics import Address, ErrorReply, Reply
from .asking import lines, refusal, session, text
from .facts import ClusterFacts, Failure, Node
from .failures import Step, failure_of, overdue
from .server import STEP_LIMIT, looked_into

SLOTS = 16384


class SeedGatherer:
    """Asks one node; `facts` is None until it has answered."""

    def __init__(self, address: Address, host: str, port: int) -> None:
        self.name = f"{host}:{port}"
        self.facts: ClusterFacts | None = None
        self._failure: Failure | None = None
        self._address = address
        self._host = host
        self._step: Step = "resolve"

    def run(self) -> None:
        """Ask it. Raises nothing."""
        try:
            with session(self._address, STEP_LIMIT, self._reached) as opened:
                info, nodes, slots = opened.ask(
                    ("CLUSTER", "INFO"), ("CLUSTER", "NODES"), ("CLUSTER", "SLOTS")
                )
            self._failure = unusable(slots)
            if self._failure is None:
                self.facts = read_cluster(info, nodes, slots, self._host)
        except Exception as error:
            self._failure = looked_into(failure_of(error, self._step), self._address)

    @property
    def failure(self) -> Failure:
        """Why it has not answered."""
        return self._failure or overdue(self._step)

    def _reached(self, step: Step) -> None:
        self._step = step


def unusable(slots: Reply) -> Failure | None:
    """Why dibs cannot use this node. None: it can."""
    if not isinstance(slots, ErrorReply):
        return None
    if "cluster support disabled" in str(slots):
        return Failure("cluster-disabled", "the server is not a node of a cluster")
    return Failure("acl-cluster", refusal(slots, "CLUSTER SLOTS") or "")


def read_cluster(info: Reply, nodes: Reply, slots: Reply, host: str) -> ClusterFacts:
    """What a node says. CLUSTER NODES knows more than CLUSTER SLOTS, if it is allowed."""
    by_slots = list(_nodes_of_slots(slots, host))
    known = [each for line in text(nodes).splitlines() if (each := _node(line, host)) is not None]
    covered = sum(each.slots for each in by_slots)
    return ClusterFacts(lines(info), tuple(known or by_slots), covered)


def _node(line: str, host: str) -> Node | None:
    """`id ip:port@bus,name flags primary ping pong epoch link slots …`."""
    words = line.split()
    if len(words) < 8 or "noaddr" in words[2] or "handshake" in words[2]:
        return None
    where = words[1].partition(",")[0].partition("@")[0]
    ip, _, port = where.rpartition(":")
    flags = frozenset(words[2].split(","))
    role: Literal["primary", "replica"] = "primary" if "master" in flags else "replica"
    return Node(f"{ip or host}:{port}", role, flags, sum(map(_size, words[8:])))


def _size(slots: str) -> int:
    """Of "5" or "5-9"; "[5->-…]" is a slot that is being moved, and counts elsewhere."""
    first, _, last = slots.partition("-")
    return int(last or first) - int(first) + 1 if first.isdigit() else 0


def _nodes_of_slots(slots: Reply, host: str) -> Iterator[Node]:
    found: dict[str, Node] = {}
    for entry in slots if isinstance(slots, list) else []:
        if not isinstance(entry, list) or len(entry) < 3:
            continue
        first, last, primary, *replicas = entry
        size = int(text(last)) - int(text(first)) + 1
        node = _node_of_slot(primary, "primary", host)
        known = found.get(node.address, node)
        found[node.address] = replace(known, slots=known.slots + size)
        for each in (_node_of_slot(replica, "replica", host) for replica in replicas):
            found.setdefault(each.address, each)
    yield from found.values()


def _node_of_slot(reply: Reply, role: Literal["primary", "replica"], host: str) -> Node:
    ip, port = (text(reply[0]), text(reply[1])) if isinstance(reply, list) else ("", "0")
    return Node(f"{ip or host}:{port}", role, frozenset(), 0)
