"""Silence is the server's: what counts as an outage, what does not, and what the log says."""

import contextlib
import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Literal

import pytest

from dibs import AsyncDibs, Event, Unavailable
from dibs.testing import Certificates, FaultProxy, Server

from .._tasks import Background, eventually, sleep

LARGE, LINE_RATE = 8_000_000, 4_000_000
BUDGET = 1.0
"""Less than a large value takes on the line, and more than a busy machine delays a caller."""


@pytest.fixture
def tls_line(own_server: Server, tmp_path: Path) -> Iterator[FaultProxy]:
    with FaultProxy(own_server.port, tls=Certificates(tmp_path)) as proxy:
        yield proxy


async def test_a_slow_handshake_is_not_an_outage(line: FaultProxy) -> None:
    """Opening has its own time limit: a cold start in front of a distant server is guarded."""
    events: list[Event] = []
    line.delay(requests=0.3, replies=0.3)
    began = monotonic()
    async with AsyncDibs(line.url, budget=1, connect=30, listeners=[events.append]) as dibs:
        async with dibs.hold("user:1", ttl=30) as lease:
            assert lease.guarded
            assert monotonic() - began > 1, "it took longer than the budget"
    assert "outage" not in {event.kind for event in events}


@pytest.mark.parametrize("is_first", [True, False])
async def test_opening_a_connection_takes_nothing_off_the_lease(
    line: FaultProxy, *, is_first: bool
) -> None:
    """A ttl that is shorter than the handshake: the lease is not over before it begins."""
    events: list[Event] = []
    async with AsyncDibs(line.url, budget=5, connect=30, listeners=[events.append]) as dibs:
        if not is_first:
            async with dibs.hold("user:1", ttl=30):
                pass
            line.cut()
        line.delay(requests=0.5, replies=0.5)
        async with dibs.hold("user:2", ttl=2.5) as lease:
            assert not lease.lost
        assert "late" not in {event.kind for event in events}


@pytest.mark.parametrize("is_taken", [False, True], ids=["free", "taken"])
async def test_a_reply_that_comes_when_the_lease_is_over_gives_no_lease(
    own_server: Server, line: FaultProxy, *, is_taken: bool
) -> None:
    """The process was stopped, say. The key has expired: it is acquired again, or refused."""
    async with AsyncDibs(line.url, budget=60) as dibs:
        await dibs.peek("warm:up")
        line.hold_replies(match=b"user:1")
        acquiring = Background(partial(dibs.try_hold, ttl=1), "user:1")
        await eventually(lambda: line.triggered == 1)
        await eventually(lambda: own_server.keys() == [])
        if is_taken:
            own_server.client().set("user:1", "another's", px=60_000)
        line.deliver()
        lease = await acquiring.result()
        assert lease is None if is_taken else lease is not None and not lease.lost


async def test_a_request_that_is_never_answered_is_an_outage_though_connections_open(
    line: FaultProxy,
) -> None:
    """A proxy answers the handshake, and the server behind it that has the key does not."""
    async with AsyncDibs(line.url, budget=BUDGET) as dibs:
        await dibs.peek("warm:up")
        line.swallow_replies(1000, match=b"user:1")
        async with dibs.hold("user:1", ttl=60) as lease:
            assert not lease.guarded
            assert line.triggered == 2, "asked on two connections"


async def test_connections_that_were_forgotten_on_the_way_are_not_an_outage(
    line: FaultProxy,
) -> None:
    """A firewall drops idle connections without a notice: another connection is opened."""
    events: list[Event] = []
    async with AsyncDibs(line.url, budget=BUDGET, listeners=[events.append]) as dibs:
        for work in [Background(_hold, dibs, f"user:{number}") for number in range(8)]:
            await work.result()
        events.clear()
        line.silence()
        async with dibs.hold("user:1", ttl=30) as lease:
            assert lease.guarded
    assert "outage" not in {event.kind for event in events}


async def _hold(dibs: AsyncDibs, key: str) -> None:
    async with dibs.hold(key, ttl=30):
        await sleep(0.05)  # so that all of them need a connection at the same time


@pytest.mark.parametrize("kind", ["line", "tls_line"])
async def test_a_large_value_is_stored_over_a_slow_line(
    request: pytest.FixtureRequest, kind: str
) -> None:
    """Bytes that leave are no silence either: the value is stored, and no outage is reported."""
    events: list[Event] = []
    line: FaultProxy = request.getfixturevalue(kind)
    async with AsyncDibs(line.url, budget=BUDGET, listeners=[events.append]) as dibs:

        async def load_little() -> str:
            return "x"

        async def load() -> str:
            return "x" * LARGE

        await dibs.get_or_load("menu:0", load_little, ttl=60)  # from now on it knows the scripts
        events.clear()
        line.throttle(requests=LINE_RATE)
        assert len(await dibs.get_or_load("menu:1", load, ttl=60, lock_ttl=60)) == LARGE
        line.heal()
        assert {"outage", "rejected_write"}.isdisjoint(event.kind for event in events)
        assert await dibs.get_or_load("menu:1", load, ttl=60) == "x" * LARGE
        assert [event.kind for event in events].count("loaded") == 1


async def test_a_handshake_that_is_reset_leaves_no_socket_open(
    own_server: Server, tls_line: FaultProxy
) -> None:
    """A line to nowhere: pytest fails a test that leaves a socket to the garbage collector."""
    own_server.kill()
    async with AsyncDibs(tls_line.url, on_outage="closed") as dibs:
        with pytest.raises(Unavailable):
            await dibs.try_hold("user:1", ttl=5)


async def test_a_connection_for_pushes_that_goes_silent_is_replaced(
    own_server: Server, line: FaultProxy
) -> None:
    """A push is lost with its connection: the value in memory is dropped all the same."""
    values = iter(range(100))
    async with AsyncDibs(line.url) as dibs:

        @dibs.cached("menu:{branch}", ttl=600, local=True)
        async def menu(branch: str) -> int:
            return next(values)

        assert await menu("b1") == 0
        assert await menu("b1") == 0
        line.black_hole()
        own_server.client().delete("menu:b1")
        await sleep(0.2)  # until the push is lost; nothing shows that from outside
        line.heal()  # for new connections: one that has lost bytes stays silent
        for _ in range(100):
            if await menu("b1") == 1:
                return
            await sleep(0.1)
        pytest.fail("an old value was served for ever")


def said(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What the logger `dibs` said."""
    return [record for record in caplog.records if record.name == "dibs"]


async def test_an_outage_is_logged_once_when_it_begins_and_once_when_it_ends(
    own_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Without any set-up: what, what the policy does, how long, how many went unguarded."""
    caplog.set_level(logging.INFO, logger="dibs")
    async with AsyncDibs(own_server.url) as dibs:
        await dibs.peek("user:42")
        own_server.kill()
        for number in range(3):
            async with dibs.hold(f"user:{number}", ttl=5) as lease:
                assert not lease.guarded
        own_server.restart()
        await eventually(lambda: len(said(caplog)) == 2, within=90)
        async with dibs.hold("user:42", ttl=5) as lease:
            assert lease.guarded
    began, ended = said(caplog)
    assert (began.levelname, ended.levelname) == ("WARNING", "INFO")
    assert "unguarded" in began.getMessage()
    assert "unguarded grants meanwhile: 3" in ended.getMessage()
    assert "user" not in began.getMessage() + ended.getMessage()


@pytest.mark.parametrize(
    ("default", "own", "result"),
    [
        ("open", "closed", "proceed unguarded and cached functions are called directly"),
        ("closed", "open", "get Unavailable"),
    ],
)
async def test_the_log_says_that_a_call_may_have_a_policy_of_its_own(
    default: Literal["open", "closed"], own: str, result: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The log line tells the default policy; leaders and schedules have their own."""
    async with AsyncDibs("redis://127.0.0.1:1", on_outage=default) as dibs:
        with contextlib.suppress(Unavailable):
            await dibs.try_hold("user:42", ttl=5)
    [began] = said(caplog)
    assert f'callers {result}, except with on_outage="{own}"' in began.getMessage()
    assert began.getMessage().endswith("; leaders and schedules wait")


async def test_a_server_that_cannot_serve_is_logged_as_an_outage(
    own_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """It answers, but READONLY: logged when it begins, and when a lease is granted again."""
    caplog.set_level(logging.INFO, logger="dibs")
    async with AsyncDibs(own_server.url, on_outage="closed") as dibs:
        async with dibs.hold("user:42", ttl=5):
            pass
        own_server.client().replicaof("127.0.0.1", 1)
        for _ in range(3):
            with pytest.raises(Unavailable):
                await dibs.try_hold("user:42", ttl=5)
        own_server.client().replicaof("NO", "ONE")
        async with dibs.hold("user:42", ttl=5):
            pass
    began, ended = said(caplog)
    assert (began.levelname, ended.levelname) == ("WARNING", "INFO")
    assert "readonly" in began.getMessage() and "Unavailable" in began.getMessage()
