"""Breaker, pushes and slots, without a server."""

import math
from typing import Any

from redis.crc import key_slot

from dibs import Busy, LeaseLost, Unavailable
from dibs._core.breaker import Breaker
from dibs._core.request import ErrorReply, Request, pack
from dibs._core.slots import (
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
)
from dibs._core.watch import (
    LONGEST_PAUSE,
    Pushes,
    Watching,
    read_push,
    read_tracked,
    read_watch,
    watch_request,
)


def test_the_breaker_tells_news_once() -> None:
    """Open at the first failure, closed at the first answer, and it knows how long it was."""
    breaker = Breaker()
    assert not breaker.is_open
    assert breaker.heal(1.0) is None
    assert breaker.trip(10.0, "refused")
    assert breaker.is_open
    assert not breaker.trip(11.0, "timed out")
    assert breaker.cause == "refused", "what the outage began with"
    assert breaker.heal(12.5) == 2.5
    assert not breaker.is_open


def test_what_a_push_says() -> None:
    """Keys, everything, or nothing to us."""
    assert read_push([b"invalidate", [b"a", b"b"]]) == [b"a", b"b"]
    assert read_push([b"invalidate", None]) is None
    assert read_push([b"message", b"channel", b"text"]) == []
    assert read_push([]) == []


def test_what_watching_says() -> None:
    """Free, held, held for ever; told, or to be polled."""
    request = watch_request(b"k")

    def answer(*replies: Any, pushes: bool = True) -> Watching:
        return read_watch(read_tracked(list(replies), request, pushes=pushes))

    assert answer(b"OK", b"OK", 1500) == Watching(1.5, tracked=True)
    assert answer(b"OK", 1500) == Watching(1.5, tracked=True)
    assert answer(b"OK", 1500, pushes=False) == Watching(1.5, tracked=False)
    assert answer(b"OK", -2).remaining == 0.0
    assert answer(b"OK", -1).remaining == math.inf
    refused = ErrorReply("NOPERM no")
    assert not answer(refused, refused, 1500).tracked


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


def test_a_redirection() -> None:
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
    """Then those that did not, then the seeds; nobody twice."""
    one, two, three = (Node("here", port) for port in (1, 2, 3))
    assert where_to_ask([one, two, one], {one}, [three, two]) == [two, one, three]


def test_errors_carry_facts_and_survive_pickling() -> None:
    """Facts as attributes, a sentence without the key, the same after a trip to another process."""
    import pickle

    busy = Busy("user:42", 3.21, "web-1:7", "user:{id}")
    lost = LeaseLost("user:42", 7, "user:{id}")
    out = Unavailable("refused", "user:{id}")
    for error in (busy, lost, out):
        twin = pickle.loads(pickle.dumps(error))
        assert str(twin) == str(error)
        assert vars(twin) == vars(error)
        assert "42" not in str(error)
    assert "web-1:7" in str(busy)
    assert "3.21" in str(busy)


def test_pushes_without_a_change_are_answered_ever_more_slowly() -> None:
    """The pause doubles up to the longest one; then there are looks without registering."""
    pushes, pauses = Pushes().heard(0.0, pushed=False, changed=True), list[float]()
    now = 0.0
    for _ in range(9):
        pushes = pushes.heard(now, pushed=True, changed=False)
        pauses.append(pushes.pause)
        now += pushes.pause
        pushes = pushes.heard(now, pushed=False, changed=False)
        if pushes.pause:
            break
    assert pauses == [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.1]
    assert pushes.pause == LONGEST_PAUSE, "it polls"
    assert pushes.heard(now + 3, pushed=False, changed=False).pause == 0, "and tries again"


def test_a_push_about_a_change_is_answered_at_once() -> None:
    """Another holder: register now, and forget the pauses. So does a registration that is kept."""
    paused = Pushes().heard(0.0, pushed=True, changed=False)
    assert paused.pause > 0
    assert paused.heard(1.0, pushed=True, changed=True) == Pushes(0.0, 0.0, 1.0)
    kept = paused.heard(1.0, pushed=False, changed=False)
    assert kept.pause == 0 and kept.backed_off > 0
    assert kept.heard(3.0, pushed=False, changed=False).backed_off == 0
