"""Which server is the master: which sentinel to believe, and what an error tells."""

import pytest

from dibs._core.cluster_slots import (
    Master,
    Reconnections,
    choose,
    concerns,
    is_master,
    reaction_to,
    read_master,
)
from dibs._core.lease import store_is_out
from dibs._core.request import ErrorReply

OLD = Master("10.0.0.1", 6379, 3)
NEW = Master("10.0.0.2", 6379, 4)


def test_the_first_answer_is_taken() -> None:
    """Nothing is known yet: the answer with the highest epoch."""
    assert choose(None, [], 3) is None
    assert choose(None, [OLD], 3) == OLD
    assert choose(None, [OLD, NEW, OLD], 3) == NEW


def test_one_sentinel_with_a_higher_epoch_is_enough() -> None:
    """The sentinel that leads a failover knows first: the others still name the old master."""
    assert choose(OLD, [OLD, NEW, OLD], 3) == NEW
    assert choose(OLD, [NEW], 3) == NEW


def test_a_sentinel_that_was_cut_off_is_not_believed() -> None:
    """It names the old master with the old epoch, also if it is the only one that answers."""
    assert choose(NEW, [OLD], 3) == NEW
    assert choose(NEW, [OLD, NEW], 3) == NEW
    assert choose(NEW, [], 3) == NEW


def test_sentinels_that_were_set_up_anew_are_believed_if_they_agree() -> None:
    """They count from 0 again: more than half of them agree, and none names the master we know."""
    anew = Master("10.0.0.3", 6379, 0)
    assert choose(NEW, [anew, anew], 3) == anew
    assert choose(NEW, [anew], 3) == NEW
    assert choose(NEW, [anew, anew, NEW], 3) == NEW
    assert choose(NEW, [anew], 1) == anew


def test_an_answer_is_read_as_bytes_or_text() -> None:
    """As redis-py gives it, in either protocol; None: the service is not known."""
    assert read_master((b"10.0.0.1", b"6379"), {"config-epoch": 3}) == OLD
    assert read_master(("10.0.0.1", 6379), {"config-epoch": "3"}) == OLD
    assert read_master(("10.0.0.1", 6379), {}) == OLD._replace(epoch=0)
    assert read_master(None, {}) is None


@pytest.mark.parametrize(
    ("data", "is_ours"),
    [
        (b"main 10.0.0.1 6379 10.0.0.2 6379", True),
        ("main 10.0.0.1 6379 10.0.0.2 6379", True),
        (b"slave 10.0.0.2:6379 10.0.0.2 6379 @ main 10.0.0.1 6379", True),
        (b"master main 10.0.0.1 6379", True),
        (b"mainframe 10.0.0.1 6379 10.0.0.2 6379", False),
        (1, False),
    ],
)
def test_what_is_published_about_our_service(data: object, is_ours: bool) -> None:
    """The name is one of the words, on any channel."""
    assert concerns({"type": "message", "data": data}, "main") is is_ours
    assert not concerns({"type": "subscribe", "data": data}, "main")
    assert not concerns(None, "main")


def test_only_the_role_of_a_master_is_accepted() -> None:
    """A server that does not say is not refused: its errors will tell."""
    assert is_master([b"master", 0, []]) and is_master(["master", 0, []])
    assert not is_master([b"slave", b"10.0.0.1", 6379])
    assert is_master([]) and is_master(b"?")


@pytest.mark.parametrize(
    ("text", "code", "what"),
    [
        ("READONLY You can't write against a read only replica.", "readonly", "reconnect"),
        (
            "ERR Error running script (call to f_1): @user_script:9: @user_script: 9: -READONLY "
            "You can't write against a read only replica. ",
            "readonly",
            "reconnect",
        ),
        ("NOREPLICAS Not enough good replicas to write.", "noreplicas", "ask"),
        ("MASTERDOWN Link with MASTER is down", "masterdown", "reconnect"),
        ("CLUSTERDOWN Hash slot not served", "clusterdown", "reconnect"),
        ("OOM command not allowed when used memory > 'maxmemory'.", "oom", None),
    ],
)
def test_what_an_error_says_about_the_server(text: str, code: str, what: str | None) -> None:
    """A replica: reconnect. A master without replicas: ask. After other words on Redis 6."""
    assert store_is_out(ErrorReply(text)) == code
    assert reaction_to(code) == what


def test_a_mistake_is_no_outage() -> None:
    """Also where it names a code in passing."""
    assert store_is_out(ErrorReply("WRONGTYPE Operation against a key")) is None
    assert store_is_out(ErrorReply("ERR the word READONLY without a reason")) is None


def test_the_master_is_looked_for_at_most_ten_times_a_second() -> None:
    """Many callers meet the same error at once: one of them looks."""
    reconnections = Reconnections()
    assert [reconnections.may_look(now) for now in (5.0, 5.0, 5.05, 5.2)] == [
        True,
        False,
        False,
        True,
    ]


def test_the_first_error_of_a_replica_reconnects_also_from_a_new_connection() -> None:
    """The server was demoted a moment after the connection was opened."""
    assert Reconnections().may_reconnect(now=5.0, opened_at=4.9)


def test_the_connection_of_a_reconnection_is_used_for_a_second() -> None:
    """However long opening it took; then there is another one."""
    reconnections = Reconnections()
    assert reconnections.may_reconnect(now=5.0, opened_at=0.0)
    assert not reconnections.may_reconnect(now=7.1, opened_at=7.0)
    assert not reconnections.may_reconnect(now=7.9, opened_at=7.0)
    assert reconnections.may_reconnect(now=8.0, opened_at=7.0)
