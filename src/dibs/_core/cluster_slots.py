"""Slots of a cluster, and which node serves each."""

import functools
import math
from binascii import crc_hqx
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from .connection import Outage, Outbox
from .keys import SLOTS
from .request import ErrorReply, OddReply, Reply, Request, commands_in, pack

ASK_SLOTS = Request(pack("CLUSTER", "SLOTS"), 1, b"")
UNKNOWN_HOST = "?"
"""The host of a node that should announce a host name (cluster-preferred-endpoint-type) and has
none."""
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
    """The slot lives on another node now."""

    slot: int
    node: Node


class Ask(NamedTuple):
    """The slot is moving, and this key is not here: ask the other node, this time only."""

    slot: int
    node: Node


class TryAgain(NamedTuple):
    """The slot is moving, and the keys of one request are on both sides, or not there yet."""


Redirect = Moved | Ask | TryAgain


@functools.lru_cache(maxsize=4096)  # a lease asks twice, for the same key
def slot_of(key: bytes) -> int:
    """Return the slot of a key; what is in braces decides, if anything is."""
    if b"{" in key:
        start = key.find(b"{") + 1
        end = key.find(b"}", start)
        if end > start:
            key = key[start:end]
    return crc_hqx(key, 0) % SLOTS


def read_slots(reply: Reply, source: Node) -> list[Range]:
    """Return which node has which slots, from the reply to `ASK_SLOTS`.

    Without a host: that of the node that replied. A node that should announce a host name and has
    none is found by its IP address.
    """
    slots: list[Range] = []
    for entry in reply if isinstance(reply, list) else []:
        match entry:
            case [int(start), int(end), [host, int(port), *more], *_] if 0 <= start <= end < SLOTS:
                name = _decoded_text(host)
                if name == UNKNOWN_HOST:
                    name = _address_in(more)
                slots.append(Range(start, end, Node(name or source.host, port)))
            case _:
                pass  # a slot range without a master
    return slots


def _address_in(more: list[Reply]) -> str:
    """Return the IP address of a node, from what follows its host and port; "": none is given."""
    facts = more[1] if len(more) > 1 else None
    if isinstance(facts, list):  # RESP2
        facts = dict(zip(facts[::2], facts[1::2], strict=False))  # type: ignore[arg-type]
    return _decoded_text(facts.get(b"ip")) if isinstance(facts, dict) else ""


def _decoded_text(word: Reply) -> str:
    return word.decode() if isinstance(word, bytes) else ""


def with_host(redirect: Redirect | None, known: Iterable[Node]) -> Redirect | None:
    """*redirect*; where its node has no host name, to the only one of *known* with that port.

    TryAgain: there is none, or more than one; a new map says where it is.
    """
    if not isinstance(redirect, Moved | Ask) or redirect.node.host != UNKNOWN_HOST:
        return redirect
    candidates = [node for node in known if node.port == redirect.node.port]
    return redirect._replace(node=candidates[0]) if len(candidates) == 1 else TryAgain()


def read_redirect(error: ErrorReply | None, source: Node) -> Redirect | None:
    """`MOVED 3999 127.0.0.1:6381`, `ASK …`, `TRYAGAIN …`; None: the error is something else."""
    if error is None or error.code not in ("MOVED", "ASK", "TRYAGAIN"):
        return None
    if error.code == "TRYAGAIN":
        return TryAgain()
    _, slot, address = str(error).split(" ")[:3]
    host, _, port = address.rpartition(":")
    node = Node(host or source.host, int(port))
    if not 0 <= int(slot) < SLOTS:
        raise OddReply
    return Moved(int(slot), node) if error.code == "MOVED" else Ask(int(slot), node)


def where_to_ask(known: Iterable[Node], doubtful: set[Node], seeds: list[Node]) -> list[Node]:
    """Return whom to ask for the map, in this order: nodes that answer first."""
    nodes = sorted(set(known), key=lambda node: node in doubtful)
    return list(dict.fromkeys([*nodes, *seeds]))


def first_failure(outcomes: list[Any]) -> Exception:
    """Return why there is no map: a mistake in the settings before any outage."""
    unknown = Outage("no node of the cluster knows the slots", sent=False, code="clusterdown")
    failures = [each for each in outcomes if isinstance(each, Exception)]
    mistakes = [each for each in failures if not isinstance(each, Outage)]
    return next(iter([*mistakes, *failures]), unknown)


# ---- ASK


def asking(request: Request) -> Request:
    """Return *request* for a node that takes over its slot: ASKING before each command."""
    commands = [command for command, _ in commands_in(request.payload)]
    payload = b"".join([_ASKING + command for command in commands])
    return Request(payload, 2 * len(commands), request.key, request.until)


def read_asked(replies: list[Reply], request: Request) -> Reply:
    """Return the reply to *request* (a list, if there are several) among those to `asking`."""
    own = replies[1::2]
    return own if request.replies > 1 else own[0]


# ---- what must still be delivered


class Outboxes:
    """Requests for nodes that are out, and for slots whose node is not known (None)."""

    def __init__(self) -> None:
        self._by_node: dict[Node | None, Outbox] = {}

    @property
    def waits_for_map(self) -> bool:
        """Return True if there are requests for slots whose node is not known."""
        return bool(self._by_node.get(None))

    def add(self, node: Node | None, request: Request, now: float) -> None:
        """Keep *request* if it must be delivered and is still worth it."""
        if request.until > now:
            self._by_node.setdefault(node, Outbox()).add(request, now)

    def take(self, node: Node | None, now: float) -> list[Request]:
        """Return all that is still worth delivering."""
        outbox = self._by_node.pop(node, None)
        return [] if outbox is None else outbox.take(now)

    def forget(self, node: Node) -> None:
        """Drop the outbox of *node*: it was delivered."""
        self._by_node.pop(node, None)


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

The server is the same, as a rule. Where opening takes long, no request would be served.
"""


class Master(NamedTuple):
    """Where a sentinel says that the master is, and the epoch of that configuration."""

    host: str
    port: int
    epoch: int

    @property
    def address(self) -> tuple[str, int]:
        """Return where it listens."""
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
    """Return the master, by what we know and what some of the *sentinels* (how many there are) say.

    A higher epoch wins. Sentinels that were set up again count from 0: if more than half of
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
    """Return True if a sentinel published something about *service*. Ask who the master is now."""
    match message:
        case {"type": "message" | b"message", "data": bytes() | str() as data}:
            text = data.decode(errors="replace") if isinstance(data, bytes) else data
            return service in text.split()
        case _:
            return False


def is_master(role: Reply) -> bool:
    """Return whether the answer to ROLE is that of a master."""
    if not isinstance(role, list) or not role:
        return True  # a server or proxy that does not say: its errors will
    return role[0] in (b"master", "master")


# ---- errors that say: this is not, or no longer, the master

_NOT_A_MASTER = frozenset(("readonly", "noreplicas", "masterdown", "clusterdown"))

Reaction = Literal["reconnect", "ask"]


def reaction_to(code: str) -> Reaction | None:
    """Return what an error with that code says about the server; None: nothing.

    READONLY, MASTERDOWN: it is a replica, connect again. CLUSTERDOWN: it has no node for the slot,
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
        """Return False if that was done a moment ago."""
        if now - self._looked_at < RECONNECT_EVERY:
            return False
        self._looked_at = now
        return True

    def may_reconnect(self, now: float, opened_at: float) -> bool:
        """False: the newest connection is that of the last reconnection, and is still young.

        *opened_at*: when the newest connection was opened.
        """
        if self._reconnected_at <= opened_at and now - opened_at < RECONNECT_AFTER:
            return False
        self._reconnected_at = now
        return True
