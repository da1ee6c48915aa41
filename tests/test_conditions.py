"""The conditions under which tests run are what they are called."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

import pytest
import redis
import uvloop

from dibs import Dibs, Unavailable
from dibs.testing import Server
from tests.conditions import CONDITIONS, QUIET, Conditions

TESTS = Path(__file__).parent


@pytest.fixture
def under(request: pytest.FixtureRequest):
    """Conditions by name, in force until the end of the test."""
    conditions = Conditions(request.param)
    with conditions.for_the_run():
        yield conditions


def with_conditions(*names: str):
    return pytest.mark.parametrize("under", [names], indirect=True, ids=["+".join(names)])


def started(conditions: Conditions) -> Server:
    return conditions.start("valkey")


def seconds_of_a_ping(url: str) -> float:
    with redis.Redis.from_url(url) as client:
        client.ping()
        since = time.perf_counter()
        client.ping()
        return time.perf_counter() - since


@with_conditions("tls", "dribble")
def test_tls_and_a_bad_line_hold_at_once(under: Conditions) -> None:
    """The address that a test is given speaks TLS; the server itself is still there without."""
    with started(under) as server, redis.Redis.from_url(server.url) as client:
        assert server.url.startswith("rediss://")
        assert client.echo("x" * 100) == b"x" * 100
        assert server.client().ping()


@with_conditions("echoed")
def test_echoed_requests_are_executed_twice(under: Conditions) -> None:
    """In a row, and the second answer counts; a request that compares again after some others."""
    with started(under) as server, redis.Redis.from_url(server.url) as client:
        assert client.incr("key") == 2
        client.set("lock", "mine")
        assert client.execute_command("DELIFEQ", "lock", "mine") == 1
        server.client().set("lock", "mine")
        for _ in range(4):
            client.ping()
        assert server.keys() == ["key"]


@with_conditions("slow")
def test_slow_is_forty_milliseconds(under: Conditions) -> None:
    """Twenty there, twenty back."""
    with started(under) as server:
        assert seconds_of_a_ping(server.url) >= 0.039


@with_conditions("narrow")
def test_narrow_is_a_limit_on_bytes(under: Conditions) -> None:
    """10 kB take 0.2 s each way."""
    with started(under) as server, redis.Redis.from_url(server.url) as client:
        client.ping()
        since = time.perf_counter()
        assert client.echo("x" * 10_000) == b"x" * 10_000
        assert time.perf_counter() - since >= 0.35


@with_conditions("resp2")
def test_resp2_is_a_server_without_hello(under: Conditions) -> None:
    """A client that insists on RESP3 is refused."""
    with started(under) as server, redis.Redis.from_url(server.url, protocol=3) as client:
        with pytest.raises(redis.ResponseError, match="HELLO"):
            client.ping()


@with_conditions("hasty")
def test_hasty_is_the_default_budget(under: Conditions, own_server: Server) -> None:
    """A test that is generous with its budget meets a server that hangs, and waits for 0.25 s."""
    with Dibs(own_server.url, budget=5, on_outage="closed") as dibs:
        dibs.peek("user:1")
        own_server.freeze()
        with pytest.raises(Unavailable, match=r"0\.25 s|budget"):
            dibs.try_hold("user:1", ttl=5)


@with_conditions("uvloop")
def test_uvloop_is_another_loop(under: Conditions) -> None:
    """Async tests get a loop of uvloop."""
    assert under.new_loop is not None
    loop = under.new_loop()
    assert isinstance(loop, uvloop.Loop)
    loop.close()


@with_conditions("busy")
async def test_a_busy_loop_is_late(under: Conditions) -> None:
    """Ten short sleeps take longer, because the loop has other work."""
    with under.for_a_loop(asyncio.get_running_loop()):
        since = time.perf_counter()
        for _ in range(10):
            await asyncio.sleep(0.006)
        assert time.perf_counter() - since >= 0.1


@with_conditions("busy")
def test_a_busy_interpreter_is_late(under: Conditions) -> None:
    """A thread that sleeps briefly wakes up when the other one releases the interpreter."""
    with under.for_a_test(coroutine=False):
        since = time.perf_counter()
        for _ in range(10):
            time.sleep(0.006)
        assert time.perf_counter() - since >= 0.1


@with_conditions("stopped")
def test_a_stopped_process_misses_time(under: Conditions) -> None:
    """Between two reads of the clock lie 0.4 s, without a sleep."""
    longest, last = 0.0, time.monotonic()
    end = last + 2.5
    with under.for_a_test(coroutine=False):
        while last < end:
            time.sleep(0.005)
            now = time.monotonic()
            longest, last = max(longest, now - last), now
    assert longest >= 0.4


def test_every_test_that_is_left_out_exists() -> None:
    """A name without a test would leave out nothing, unnoticed."""
    source = "".join(file.read_text() for file in TESTS.rglob("test_*.py"))
    names = set(re.findall(r"def (test_\w+)", source))
    for conditions, _, tests in QUIET:
        assert conditions <= CONDITIONS.keys()
        assert tests <= names
