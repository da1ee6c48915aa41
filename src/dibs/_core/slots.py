"""Which node of a cluster a key lives on, and what a node says when it lives elsewhere."""

import functools
from binascii import crc_hqx
from collections.abc import Iterable
from typing import Any, NamedTuple

from .breaker import Outage
from .connection import Outbox
from .request import ErrorReply, Reply, Request, commands_in, pack

SLOTS = 16384
ASK_SLOTS = Request(pack("CLUSTER", "SLOTS"), 1, b"")
_ASKING = pack("ASKING")


class Node(NamedTuple):
    """Where a node listens."""

    host: str
    port: int


class Range(NamedTuple):
    """The node that has the slots from *start* to *end*, both included."""

    start: int
    end: int
    node: Node


class Moved(NamedTuple):
    """The slot lives over there now."""

    slot: int
    node: Node


class Ask(NamedTuple):
    """The slot is moving, and this key is not here (any more): ask over there, this time only."""

    slot: int
    node: Node


class TryAgain(NamedTuple):
    """The slot is moving, and the keys of one request are on both sides, or not there yet."""


Redirect = Moved | Ask | TryAgain


@functools.lru_cache(maxsize=4096)  # a lease asks twice, for the same key
def slot_of(key: bytes) -> int:
    """The slot of a key; what is in braces decides, if anything is."""
    if b"{" in key:
        start = key.find(b"{") + 1
        end = key.find(b"}", start)
        if end > start:
            key = key[start:end]
    return crc_hqx(key, 0) % SLOTS


def read_slots(reply: Reply, asked: Node) -> list[Range]:
    """Who has which slots, from the answer to `ASK_SLOTS`. Without a name: the node we asked."""
    slots: list[Range] = []
    for entry in reply if isinstance(reply, list) else []:
        match entry:
            case [int(start), int(end), [host, int(port), *_], *_]:
                name = host.decode() if isinstance(host, bytes) else ""
                slots.append(Range(start, end, Node(name or asked.host, port)))
            case _:
                pass  # a slot range without a master
    return slots


def read_redirect(error: ErrorReply | None, asked: Node) -> Redirect | None:
    """`MOVED 3999 127.0.0.1:6381`, `ASK …`, `TRYAGAIN …`; None: the error is something else."""
    if error is None or error.code not in ("MOVED", "ASK", "TRYAGAIN"):
        return None
    if error.code == "TRYAGAIN":
        return TryAgain()
    _, slot, address = str(error).split(" ")[:3]
    host, _, port = address.rpartition(":")
    node = Node(host or asked.host, int(port))
    return Moved(int(slot), node) if error.code == "MOVED" else Ask(int(slot), node)


def where_to_ask(known: Iterable[Node], doubtful: set[Node], seeds: list[Node]) -> list[Node]:
    """Whom to ask for the map, in this order: nodes that answer first."""
    nodes = sorted(set(known), key=lambda node: node in doubtful)
    return list(dict.fromkeys([*nodes, *seeds]))


def first_failure(outcomes: list[Any]) -> Exception:
    """Why there is no map: a mistake in the settings before any outage."""
    nobody = Outage("no node of the cluster knows the slots", sent=False, code="clusterdown")
    failures = [each for each in outcomes if isinstance(each, Exception)]
    mistakes = [each for each in failures if not isinstance(each, Outage)]
    return next(iter([*mistakes, *failures]), nobody)


# ---- ASK


def asking(request: Request) -> Request:
    """The same request for a node that takes over its slot: ASKING before each command."""
    commands = [command for command, _ in commands_in(request.payload)]
    payload = b"".join([_ASKING + command for command in commands])
    return Request(payload, 2 * len(commands), request.key, request.until)


def read_asked(replies: list[Reply], request: Request) -> Reply:
    """The reply to *request* (a list, if there are several) among those to `asking`."""
    own = replies[1::2]
    return own if request.replies > 1 else own[0]


# ---- what must still be delivered


class Outboxes:
    """Requests for nodes that are out, and for slots whose node is not known (None)."""

    def __init__(self) -> None:
        self._by_node: dict[Node | None, Outbox] = {}

    @property
    def waits_for_map(self) -> bool:
        """True: there are requests for slots whose node is not known."""
        return bool(self._by_node.get(None))

    def add(self, node: Node | None, request: Request, now: float) -> None:
        """Keep *request* if it must be delivered and is still worth it."""
        if request.until > now:
            self._by_node.setdefault(node, Outbox()).add(request, now)

    def take(self, node: Node | None, now: float) -> list[Request]:
        """All that is still worth delivering."""
        outbox = self._by_node.pop(node, None)
        return [] if outbox is None else outbox.take(now)

    def forget(self, node: Node) -> None:
        """It was delivered."""
        self._by_node.pop(node, None)
