"""Acquire, extend, release and peek: the bytes that are sent, and what replies mean."""

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs._core.capabilities import Engine
from dibs._core.lease import (
    Holding,
    Won,
    acquire_request,
    extend_request,
    read_acquire,
    read_extend,
    read_peek,
    release_request,
    shorten_request,
    value_request,
)
from dibs._core.lease_value import holder_in, token_maker

from .engines import ENGINES

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
    """Redis 8.4 and Valkey 9: three native commands, where no script may be run.

    Otherwise an extension goes by script, which never shortens.
    """
    for engine in ENGINES[:2]:
        assert b"EVALSHA" in extend_request(engine, b"k", b"t", 5).payload
        sent = [
            acquire_request(engine, b"k", b"t", 5),
            extend_request(replace(engine, refused=frozenset(("EVAL",))), b"k", b"t", 5),
            release_request(engine, b"k", b"t", 1.0),
        ]
        words = [command[0] for request in sent for command in commands(request.payload)]
        assert b"EVALSHA" not in words
    delex = release_request(ENGINES[0], b"k", b"t", 1.0)
    assert commands(delex.payload) == [[b"DELEX", b"k", b"IFEQ", b"t"]]


def test_what_the_reply_to_an_acquire_means() -> None:
    """nil or our own token: ours. Anything else: another holder's, for the remaining time."""
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


lines = st.text(st.characters(exclude_characters="\n"), min_size=1)


@given(st.integers(1), lines.map(lambda text: text.encode(errors="replace")))
def test_a_token_tells_its_holder_and_nothing_else(number: int, holder: bytes) -> None:
    """Behind the @ it says who; two numbers never make one token."""
    token = token_maker(b"ab12", holder, number)()
    assert token != token_maker(b"ab12", holder, number + 1)()
    reading = read_acquire([token, 100], b"other")
    assert isinstance(reading, Holding)
    assert reading.holder == holder.decode(errors="replace")


@pytest.mark.parametrize("value", [None, 5, [b"a"], b"dibs1 done 1\nresult"])
def test_a_value_that_is_no_lease_has_no_holder(value: Any) -> None:
    """Another type, or the record of what was done."""
    assert holder_in(value) is None
