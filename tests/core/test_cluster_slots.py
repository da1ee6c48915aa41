"""Which node of a cluster has a key, and what redirections mean."""

from redis.crc import key_slot

from dibs._core.cluster_slots import (
    Ask,
    Moved,
    Node,
    TryAgain,
    asking,
    read_asked,
    read_redirect,
    read_slots,
    slot_of,
    where_to_ask,
    with_host,
)
from dibs._core.request import ErrorReply, Request, pack


def test_the_map_of_a_cluster() -> None:
    """Ranges of slots; a node without a name is the one that was asked."""
    reply = [
        [0, 1, [b"10.0.0.1", 7000, b"id"]],
        [2, 2, [b"", 7001, b"id"], [b"r", 1, b"id"]],
        [3, 3],
    ]
    asked = Node("here", 1)
    assert read_slots(reply, asked) == [  # type: ignore[arg-type]
        (0, 1, Node("10.0.0.1", 7000)),
        (2, 2, Node("here", 7001)),
    ]


def test_nodes_without_a_host_name() -> None:
    """`?`: it should announce a name and has none. Its IP address is given, in either protocol."""
    reply = [
        [0, 1, [b"?", 7000, b"id", {b"ip": b"10.0.0.1"}]],
        [2, 2, [b"?", 7001, b"id", [b"hostname", b"", b"ip", b"10.0.0.2"]]],
        [3, 3, [b"?", 7002, b"id", []]],
    ]
    assert [each.node for each in read_slots(reply, Node("here", 1))] == [  # type: ignore[arg-type]
        Node("10.0.0.1", 7000),
        Node("10.0.0.2", 7001),
        Node("here", 7002),
    ]


def test_a_redirection_to_a_node_without_a_host_name() -> None:
    """It is the one with that port. If there are several, a new map has to say."""
    asked, there = Node("here", 1), Node("10.0.0.2", 7002)
    moved = read_redirect(ErrorReply("MOVED 7 ?:7002"), asked)
    assert with_host(moved, [asked, there]) == Moved(7, there)
    assert with_host(moved, [asked]) == TryAgain()
    assert with_host(moved, [there, Node("10.0.0.3", 7002)]) == TryAgain()
    named = read_redirect(ErrorReply("ASK 7 10.0.0.9:7002"), asked)
    assert with_host(named, [there]) is named
    assert with_host(None, [there]) is None


def test_redirections_are_read() -> None:
    """Over there for good, over there this time, or again in a moment; other errors are none."""
    asked, there = Node("here", 1), Node("10.0.0.2", 7002)
    assert read_redirect(ErrorReply("MOVED 7 10.0.0.2:7002"), asked) == Moved(7, there)
    assert read_redirect(ErrorReply("MOVED 7 :7002"), asked) == Moved(7, Node("here", 7002))
    assert read_redirect(ErrorReply("ASK 7 10.0.0.2:7002"), asked) == Ask(7, there)
    assert isinstance(read_redirect(ErrorReply("TRYAGAIN Multiple keys"), asked), TryAgain)
    assert read_redirect(ErrorReply("ERR no"), asked) is None
    assert read_redirect(None, asked) is None


def test_a_slot_is_that_of_what_is_in_braces() -> None:
    """As the servers count."""
    for key in (b"user:1", b"fence:{user:1}", b"a{}b", b"a{b", b"{a}{b}", b""):
        assert slot_of(key) == key_slot(key)
    assert slot_of(b"fence:{user:1}") == slot_of(b"user:1")


def test_asking_comes_before_each_command() -> None:
    """It counts for one command only; the replies to it are left out."""
    commands = [pack("SET", b"k", b"*1\r\n$1\r\n"), pack("PTTL", b"k")]
    request = asking(Request(b"".join(commands), 2, b"k", 5.0))
    ask = pack("ASKING")
    assert request.payload == ask + commands[0] + ask + commands[1]
    assert (request.replies, request.key, request.until) == (4, b"k", 5.0)
    assert read_asked([b"OK", None, b"OK", 7], Request(b"", 2, b"k")) == [None, 7]
    assert read_asked([b"OK", 1], Request(b"", 1, b"k")) == 1


def test_nodes_that_answer_are_asked_first() -> None:
    """Then those that did not, then the seeds; none of them twice."""
    one, two, three = (Node("here", port) for port in (1, 2, 3))
    assert where_to_ask([one, two, one], {one}, [three, two]) == [two, one, three]
