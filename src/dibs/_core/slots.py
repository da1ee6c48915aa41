"""Which node of a cluster a key lives on, and what a node says when it lives elsewhere."""

from typing import NamedTuple

from .request import ErrorReply, Reply, Request, pack

ASK_SLOTS = Request(pack("CLUSTER", "SLOTS"), 1, b"")


class Node(NamedTuple):
    """Where a node listens."""

    host: str
    port: int


class Moved(NamedTuple):
    """The slot lives over there now."""

    slot: int
    node: Node


def read_slots(reply: Reply, asked: Node) -> dict[int, Node]:
    """Slot → node, from the answer to `ASK_SLOTS`. A node without a name is the one we asked."""
    slots: dict[int, Node] = {}
    for entry in reply if isinstance(reply, list) else []:
        match entry:
            case [int(start), int(end), [host, int(port), *_], *_]:
                name = host.decode() if isinstance(host, bytes) else ""
                node = Node(name or asked.host, port)
                slots.update(dict.fromkeys(range(start, end + 1), node))
            case _:
                pass  # a slot range without a master
    return slots


def read_moved(error: ErrorReply | None, asked: Node) -> Moved | None:
    """`MOVED 3999 127.0.0.1:6381`; None: the error is something else."""
    if error is None or error.code != "MOVED":
        return None
    _, slot, address = str(error).split(" ")[:3]
    host, _, port = address.rpartition(":")
    return Moved(int(slot), Node(host or asked.host, int(port)))


def is_on_the_move(error: ErrorReply | None) -> bool:
    """True: the slot is changing hands right now; asking again in a moment helps.

    A lease in it may be on either side. We do not follow ASK, because a request that looks at
    both sides is not atomic: it could take a key whose holder has not arrived yet.
    """
    return error is not None and error.code in ("ASK", "TRYAGAIN")
