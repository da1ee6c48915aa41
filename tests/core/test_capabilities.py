"""What a server can do: facts in, decisions out, without a server."""

from typing import Any

import pytest

from dibs import UsageError
from dibs._core.capabilities import (
    PLAIN,
    PLAIN_AGAIN,
    RESP2,
    RESP3,
    RESP3_AGAIN,
    SCRIPTS,
    ClosedAtScript,
    Dialect,
    Engine,
    Handshake,
    Negotiation,
    ScriptMemory,
    common_engine,
    read_engine,
    run_script,
    run_whole_script,
    with_scripts,
)
from dibs._core.request import ErrorReply, Request, deciding_error, pack

from .engines import ENGINES

NOPERM = ErrorReply("NOPERM User app has no permissions to run the 'eval' command")
UNKNOWN = ErrorReply("ERR unknown command 'x', with args beginning with: 'y'")
NOSCRIPT = ErrorReply("NOSCRIPT No matching script.")
OTHER_KEY = ErrorReply("NOPERM No permissions to access a key")
ALL, NONE = [[b"x"]] * 8, [None] * 8
REST = [b"OK", [], 0, 0, None, 0]
"""The answers to CLIENT TRACKING, ZRANGE, ZREM, ZREMRANGEBYSCORE, ZSCORE and PEXPIREAT …"""
FINE = [None, 0, -2, 0, 1, *REST]
"""… and before them to GET, DEL, PTTL, PEXPIRE and EVAL."""


def finish(handshake: Handshake, *answers: list[Any]) -> Engine:
    for answer in answers[:-1]:
        assert handshake.received(answer) is None
    engine = handshake.received(answers[-1])
    assert engine is not None
    return engine


def test_a_native_server_is_asked_once_more_for_its_delete() -> None:
    """COMMAND tells that it exists, the try that it is allowed; else a script does it."""
    assert finish(Handshake(), [ALL, *FINE], [0]) == Engine(set_nx_get=True, compare_delete="DELEX")
    without = finish(Handshake(), [ALL, *FINE], [UNKNOWN])
    assert without.compare_delete == "LUA" and without.refused == {"DELEX"}


@pytest.mark.parametrize("reply", [[], NONE, b"OK", UNKNOWN, NOPERM, ["x"], {}])
def test_a_server_that_does_not_tell_is_taken_for_the_oldest(reply: Any) -> None:
    """An empty list, nothing but nils, an error, something else: never "too old"."""
    engine = finish(Handshake(), [reply, *FINE])
    assert not engine.set_nx_get and engine.compare_delete == "LUA" and engine.tracking


def test_a_key_that_is_not_ours_says_nothing_about_the_command() -> None:
    """Nor do redirections, or a server that cannot serve at the moment."""
    moved, loading = ErrorReply("MOVED 1 h:1"), ErrorReply("LOADING Redis is loading")
    for reply in (OTHER_KEY, moved, loading, ErrorReply("READONLY no")):
        assert finish(Handshake(), [NONE, *[reply] * 5, *REST]).refused == frozenset()


def test_changes_are_followed_where_server_and_connection_allow_it() -> None:
    """Elsewhere waiters poll, and nothing else is lost."""
    assert finish(Handshake(), [NONE, *FINE]).tracking
    refused = finish(Handshake(), [NONE, *FINE[:5], NOPERM, *REST[1:]])
    assert not refused.tracking and refused.refused == {"CLIENT TRACKING"}
    assert not finish(Handshake(pushes=False), [NONE, *FINE]).tracking


def test_without_a_release_there_is_no_engine() -> None:
    """The sentence names what is missing, and what would do instead."""
    with pytest.raises(UsageError, match="EVAL"):
        finish(Handshake(), [NONE, None, 0, -2, 0, NOPERM, *REST])
    handshake = Handshake()
    assert handshake.received([ALL, None, 0, -2, 0, NOPERM, *REST]) is None
    with pytest.raises(UsageError, match="EVAL or DELEX"):
        handshake.received([UNKNOWN])
    native = finish(Handshake(), [ALL, NOPERM, NOPERM, -2, NOPERM, NOPERM, *REST], [0])
    assert native.compare_delete == "DELEX"


@pytest.mark.parametrize("text", ["NOAUTH Authentication required.", "LOADING Redis is loading"])
def test_a_server_that_cannot_tell_now_is_asked_later(text: str) -> None:
    """No password, or still starting: not a lack of commands."""
    with pytest.raises(ConnectionError):
        Handshake().received([ErrorReply(text), *FINE])


def test_a_plain_greeting_asks_nothing_that_a_proxy_might_not_know() -> None:
    """No COMMAND, no CLIENT; EVAL alone and last, so that its lack differs from a crash."""
    handshake = Handshake(plain=True, pushes=False)
    assert b"COMMAND" not in handshake.request.payload and b"client" not in (
        handshake.request.payload
    )
    assert handshake.closed() is None
    engine = finish(handshake, [None, 0, -2, 0], [1])
    assert engine.whole_scripts and not engine.tracking
    assert isinstance(handshake.closed(), ClosedAtScript)


def test_connections_that_are_cut_at_the_same_time_are_one_failure() -> None:
    """Threads open several at once, and one fault cuts them all, perhaps at a script."""
    negotiation = Negotiation()

    def cut(began: int) -> Dialect | None:
        return negotiation.after(PLAIN, refused=False, closed=True, at_script=True, began=began)

    for _ in range(2):
        began = negotiation.at_scripts
        for _ in range(4):
            assert cut(began) is None
    negotiation.worked(PLAIN, 1.0)
    assert cut(2) is None and negotiation.at_scripts == 1


def test_a_server_that_closes_at_every_script_permits_none() -> None:
    """Three times in a row, and not twice: a server that restarts does that as well."""
    negotiation = Negotiation()

    def closed(dialect: Dialect, *, at_script: bool = True) -> Dialect | None:
        return negotiation.after(dialect, refused=False, closed=True, at_script=at_script)

    for _ in range(2):
        assert closed(PLAIN) is None, "the next connection is opened later, and by RESP3"
    assert closed(RESP3, at_script=False) == RESP3_AGAIN, "it is asked more than scripts"
    assert closed(PLAIN, at_script=False) == PLAIN_AGAIN, "this one was closed at something else"
    for _ in range(2):
        assert closed(PLAIN_AGAIN) is None
    negotiation.worked(PLAIN, 1.0)
    for _ in range(2):
        assert closed(PLAIN) is None
    with pytest.raises(UsageError, match="EVAL"):
        closed(PLAIN)


def test_a_crash_does_not_make_a_server_resp2_for_ever() -> None:
    """Closed once: the same again. Closed twice: plainly. What worked so is kept for a while."""
    negotiation = Negotiation()
    assert negotiation.first(0.0) == RESP3
    assert negotiation.after(RESP3, refused=False, closed=True) == RESP3_AGAIN
    assert negotiation.after(RESP3_AGAIN, refused=False, closed=True) == PLAIN
    assert negotiation.after(PLAIN, refused=False, closed=True) == PLAIN_AGAIN
    assert negotiation.after(PLAIN_AGAIN, refused=False, closed=True) is None
    assert negotiation.first(1.0) == RESP3, "nothing has worked"
    negotiation.worked(PLAIN_AGAIN, 2.0)
    assert negotiation.first(3.0) == PLAIN
    assert negotiation.first(2.0 + Negotiation.LASTS) == RESP3
    assert negotiation.after(PLAIN, refused=False, closed=False) is None
    assert negotiation.first(3.0) == RESP3, "it does not work any more"


@pytest.mark.parametrize("dialect", [RESP3, RESP2, PLAIN])
def test_a_dialect_that_worked_a_while_ago_is_not_given_up(dialect: Dialect) -> None:
    """An operator closes its connections: that says nothing about HELLO, or about scripts."""
    negotiation = Negotiation()
    negotiation.worked(dialect, 1.0)
    assert negotiation.first(2.0) == dialect
    again = negotiation.after(dialect, refused=False, closed=True)
    assert again == dialect._replace(again=True)
    assert negotiation.after(again, refused=False, closed=True) is None
    assert negotiation.first(1.0 + Negotiation.LASTS) == RESP3
    assert negotiation.after(RESP3_AGAIN, refused=False, closed=True) == PLAIN


def test_the_reason_for_closed_connections_is_looked_for_until_there_is_none() -> None:
    """And never after a connection has worked."""
    negotiation = Negotiation()
    assert negotiation.may_have_alert
    negotiation.has_no_alert()
    assert not negotiation.may_have_alert
    negotiation = Negotiation()
    negotiation.worked(RESP3, 1.0)
    assert not negotiation.may_have_alert


INFO = b"id=7 addr=127.0.0.1:4711 laddr=10.0.0.1:6379 fd=8 name= age=0"


@pytest.mark.parametrize(
    ("info", "kill"), [(NOPERM, 0), (INFO, NOPERM), (b"?", 0), (INFO, UNKNOWN)]
)
def test_a_server_that_does_not_end_connections_is_one_like_others(info: Any, kill: Any) -> None:
    """Nothing else depends on that right, and a refusal costs nothing in each request."""
    handshake = Handshake(ending=True)
    assert finish(handshake, [NONE, *FINE, info, kill]).refused == frozenset()
    assert handshake.client is None


def test_the_server_says_how_it_names_the_connection() -> None:
    """In the same round trip as all the rest; a proxy that knows no CLIENT is not asked."""
    handshake = Handshake(ending=True)
    finish(handshake, [NONE, *FINE, INFO, 0])
    assert handshake.client == (b"7", b"127.0.0.1:4711", b"10.0.0.1:6379")
    assert b"client" not in Handshake(plain=True, ending=True).request.payload


def test_a_refused_end_of_connections_is_remembered() -> None:
    """A server keeps a log of what it refuses."""
    negotiation = Negotiation()
    assert negotiation.may_end(1.0)
    negotiation.worked(RESP3, 1.0, ends=False)
    negotiation.worked(RESP3, 2.0, ends=False)
    assert not negotiation.may_end(Negotiation.REFUSED)
    assert negotiation.may_end(1.0 + Negotiation.REFUSED)


def test_a_refused_hello_leads_to_resp2() -> None:
    """An error reply is an answer; a timeout is none."""
    negotiation = Negotiation()
    assert negotiation.after(RESP3, refused=True, closed=False) == RESP2
    assert negotiation.after(RESP2, refused=True, closed=False) is None
    assert negotiation.after(RESP3, refused=False, closed=False) is None
    negotiation.worked(RESP3, 1.0)
    assert negotiation.first(2.0) == RESP3


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_sent_whole_asks_the_same(name: str) -> None:
    """Only the script takes the place of its digest; what follows it stays."""
    tail = pack("PTTL", b"k")
    request = Request(run_script(name, [b"k"], b"$7\r\nEVALSHA\r\n", 5) + tail, 2, b"k", 9.0)
    whole = with_scripts(request)
    assert whole.payload == run_whole_script(name, [b"k"], b"$7\r\nEVALSHA\r\n", 5) + tail
    assert (whole.replies, whole.key, whole.until) == (2, b"k", 9.0)
    assert with_scripts(whole) is whole


def test_evalsha_is_given_up_where_it_never_works() -> None:
    """A server that forgets now and then is asked by digest; one that always does is not."""
    memory, request = ScriptMemory(), Request(run_script("cache_lock", [b"k"]), 1, b"k")
    for now in (0.0, 100.0, 200.0, 300.0, 400.0):
        assert memory.lacks(request, NOSCRIPT, now)
        memory.gave(request, now + 0.01)
        assert not memory.send_whole(None, now)
    for now in (500.0, 500.1, 500.2, 500.3):
        assert memory.lacks(request, NOSCRIPT, now)
        memory.gave(request, now + 0.01)
    assert memory.send_whole(None, 501.0)
    assert not memory.send_whole(None, 501.0 + ScriptMemory.LASTS)


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_script_that_many_callers_miss_at_once_is_missed_once(*, is_restarted: bool) -> None:
    """A server that has just started lacks it for all: that is no proxy that always does."""
    memory, request = ScriptMemory(), Request(run_script("cache_lock", [b"k"]), 1, b"k")
    if is_restarted:
        memory.gave(request, 6.0)
    for number in range(100):
        assert memory.lacks(request, NOSCRIPT, 7.0 + number / 1000)
    for number in range(100):
        memory.gave(request, 7.3)
        assert memory.lacks(request, NOSCRIPT, 7.1 + number / 1000)
    assert not memory.send_whole(None, 7.4)


def test_a_forbidden_evalsha_is_given_up_at_once() -> None:
    """And no other error is taken for it."""
    memory, request = ScriptMemory(), Request(run_script("cache_lock", [b"k"]), 1, b"k")
    other = Request(pack("GET", "evalsha"), 1, b"k")
    error = ErrorReply("NOPERM User app has no permissions to run the 'evalsha' command")
    assert not memory.lacks(other, error, 1.0)
    assert not memory.lacks(request, UNKNOWN, 1.0)
    assert memory.lacks(request, error, 1.0) and memory.send_whole(None, 2.0)


def test_the_first_command_decides() -> None:
    """A refused PTTL behind a SET that was done is no failure of the request."""
    assert deciding_error([None, UNKNOWN]) is None
    assert deciding_error([UNKNOWN, 5]) is UNKNOWN
    assert deciding_error(UNKNOWN) is UNKNOWN
    assert deciding_error([]) is None


def test_a_cluster_can_do_what_its_weakest_node_can() -> None:
    """And is refused what any of them refuses."""
    one = Engine(set_nx_get=True, compare_delete="DELEX", refused=frozenset({"EVAL"}))
    two = Engine(set_nx_get=True, compare_delete="DELEX", tracking=False, whole_scripts=True)
    both = common_engine([one, two])
    assert both == Engine(
        set_nx_get=True,
        compare_delete="DELEX",
        tracking=False,
        whole_scripts=True,
        refused=frozenset({"EVAL"}),
    )


def test_what_a_server_can_do() -> None:
    """COMMAND INFO: nil where it does not know the command."""
    y, n = [[b"x"], [b"x"]], [None, None]
    assert read_engine([*y, *y, *y, *n]) == ENGINES[0]
    assert read_engine([*y, *y, *n, *y]) == ENGINES[1]
    assert read_engine([*y, *y, *n, *n]) == ENGINES[2]
    assert read_engine([*y, *n, *n, *n]) == ENGINES[3]
    assert common_engine(ENGINES) == ENGINES[3]
    assert common_engine(ENGINES[:1]) == ENGINES[0]
