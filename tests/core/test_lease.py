"""Requests and readings, without a server."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs import UsageError
from dibs._core.capabilities import read_engine
from dibs._core.engine import Engine, weakest
from dibs._core.lease import (
    Holding,
    Won,
    acquire_request,
    extend_request,
    make_token,
    mistake,
    read_acquire,
    read_extend,
    read_peek,
    release_request,
    shorten_request,
    store_is_out,
    value_request,
)
from dibs._core.options import is_disabled
from dibs._core.request import ErrorReply, Request, first_error, pack, together

ENGINES = [
    Engine(set_nx_get=True, compare_delete="DELEX"),
    Engine(set_nx_get=True, compare_delete="DELIFEQ"),
    Engine(set_nx_get=True, compare_delete="LUA"),
    Engine(set_nx_get=False, compare_delete="LUA"),
]
keys = st.binary(min_size=1, max_size=100)


def commands(payload: bytes) -> list[list[bytes]]:
    """What a server would read."""
    import hiredis

    reader = hiredis.Reader()
    reader.feed(payload)
    found: list[list[bytes]] = []
    while (command := reader.gets()) is not False:
        found.append(command)
    return found


@pytest.mark.parametrize("engine", ENGINES)
@given(key=keys, token=keys, ttl=st.integers(1, 10**10))
def test_requests_are_well_formed(engine: Engine, key: bytes, token: bytes, ttl: int) -> None:
    """Any key and token, on any engine: as many commands as replies are expected."""
    for request in (
        acquire_request(engine, key, token, ttl),
        extend_request(engine, key, token, ttl),
        release_request(engine, key, token, 1.0),
        shorten_request(engine, key, token, ttl, 1.0),
        value_request(key),
    ):
        assert len(commands(request.payload)) == request.replies
        assert all(key in command for command in commands(request.payload))
        assert request.key == key


def test_an_engine_that_can_takes_no_script() -> None:
    """Redis 8.4 and Valkey 9: three native commands."""
    for engine in ENGINES[:2]:
        sent = [
            acquire_request(engine, b"k", b"t", 5),
            extend_request(engine, b"k", b"t", 5),
            release_request(engine, b"k", b"t", 1.0),
        ]
        words = [command[0] for request in sent for command in commands(request.payload)]
        assert b"EVALSHA" not in words
    delex = release_request(ENGINES[0], b"k", b"t", 1.0)
    assert commands(delex.payload) == [[b"DELEX", b"k", b"IFEQ", b"t"]]


def test_what_an_answer_means() -> None:
    """nil or our own token: ours. Anything else: somebody's, for the remaining time."""
    assert read_acquire([None, 5000], b"t@a") == Won()
    assert read_acquire([b"t@a", 5000], b"t@a") == Won()
    assert read_acquire([[None, 7], 5000], b"t@a") == Won(7)
    assert read_acquire([b"x@web-1:42", 1500], b"t@a") == Holding(1.5, "web-1:42")
    assert read_acquire([[b"x@web-1:42", 0], 1500], b"t@a") == Holding(1.5, "web-1:42")
    assert read_acquire([b"1", -1], b"t@a") == Holding(math.inf, None)
    assert read_acquire([b"1", -2], b"t@a") == Holding(0.0, None)
    assert read_peek([None, -2]) is None
    assert read_extend(b"OK")
    assert read_extend(1)
    assert not read_extend(None)
    assert not read_extend(0)


@given(st.integers(1), st.text(min_size=1).map(lambda text: text.encode(errors="replace")))
def test_a_token_tells_its_holder_and_nothing_else(number: int, holder: bytes) -> None:
    """Behind the @ it says who; two numbers never make one token."""
    token = make_token(b"ab12", number, holder)
    assert token != make_token(b"ab12", number + 1, holder)
    reading = read_acquire([token, 100], b"other")
    assert isinstance(reading, Holding)
    assert reading.holder == holder.decode(errors="replace")


def test_what_a_server_can_do() -> None:
    """COMMAND INFO: nil where it does not know the command."""
    y, n = [[b"x"], [b"x"]], [None, None]
    assert read_engine([*y, *y, *y, *n]) == ENGINES[0]
    assert read_engine([*y, *y, *n, *y]) == ENGINES[1]
    assert read_engine([*y, *y, *n, *n]) == ENGINES[2]
    assert read_engine([*y, *n, *n, *n]) == ENGINES[3]
    assert weakest(ENGINES) == ENGINES[3]
    assert weakest(ENGINES[:1]) == ENGINES[0]


def test_errors_are_told_apart() -> None:
    """A server that cannot serve is an outage; the rest are mistakes, told without the key."""
    assert store_is_out(ErrorReply("LOADING Redis is loading the dataset in memory"))
    assert not store_is_out(ErrorReply("WRONGTYPE Operation against a key"))
    unknown = ErrorReply("ERR unknown command 'X', with args beginning with: 'user:42'")
    assert "user:42" not in str(mistake(unknown))
    assert "ACL" in str(mistake(ErrorReply("NOPERM this user has no permissions")))


def test_many_requests_are_one_write() -> None:
    """together(): the payloads in order, the replies counted."""
    one, two = Request(pack("A"), 1, b"k"), Request(pack("B") + pack("C"), 2, b"k")
    both = together([one, two])
    assert both.payload == one.payload + two.payload
    assert both.replies == 3
    error = ErrorReply("ERR x")
    assert first_error([1, error, None]) is error
    assert first_error([1, None]) is None
    assert first_error(error) is error


def test_what_the_switch_in_the_environment_says() -> None:
    """DIBS_DISABLED: the usual words for yes and no."""
    assert all(is_disabled(setting) for setting in ("1", "true", " YES ", "on"))
    assert not any(is_disabled(setting) for setting in ("", "0", "false", "No", "off"))


def test_a_switch_that_says_neither_is_a_mistake() -> None:
    """A typing error must not decide whether anything is guarded."""
    with pytest.raises(UsageError, match="DIBS_DISABLED"):
        is_disabled("ture")
