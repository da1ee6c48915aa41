"""Event loops that are blocked for longer than a lease: it is reported, and nothing is lost."""

import asyncio
import os
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from dibs import AsyncDibs
from dibs._tasks import LoopWatch
from dibs.testing import Server, aeventually, eventually

CARD = "4711"


def block_until(check: Callable[[], object]) -> None:
    """What an endpoint does that calls a client without `await`: nothing else runs meanwhile."""
    until = time.monotonic() + 60
    while not check() and time.monotonic() < until:
        time.sleep(0.05)


def watching() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "dibs loop watch"]


def reports(caplog: pytest.LogCaptureFixture) -> list[str]:
    said = [record.getMessage() for record in caplog.records]
    return [line for line in said if "event loop is blocked" in line]


async def test_a_blocked_loop_is_reported_while_it_is(
    valkey: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """One WARNING with the template and the line that blocks; the result is stored at the end, and
    the retry does not run."""
    runs = 0
    async with AsyncDibs(valkey.url, budget=5) as dibs:

        @dibs.once("charge:{card}", window=60, lease=1.5, after="replay")
        async def charge(card: str) -> int:
            nonlocal runs
            runs += 1
            block_until(lambda: reports(caplog) and not valkey.keys())
            return 17

        assert await charge(CARD) == 17
        assert await charge(CARD) == 17 and runs == 1
    [line] = reports(caplog)
    assert line.startswith("charge:{card}: its lease cannot be renewed")
    assert "block_until" in line and CARD not in line
    assert any("its lease ran out before it ended" in each for each in caplog.messages)
    await aeventually(lambda: not watching())


async def test_a_loop_that_runs_is_not_reported(
    own_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Renewals that are late because the server is silent are an outage, and no blocked loop."""
    async with AsyncDibs(own_server.url, budget=0.2) as dibs:
        async with dibs.claim("order:1", window=60, lease=2) as claim:
            own_server.freeze()
            try:
                await aeventually(lambda: claim.lost)
            finally:
                own_server.thaw()
    assert reports(caplog) == []


async def test_a_loop_that_was_blocked_is_reported_again(
    valkey: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Once for each time."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        for number in (1, 2):
            async with dibs.claim("order:1", window=60, lease=1.5):
                block_until(lambda number=number: len(reports(caplog)) == number)
            watch: Any = dibs._leases.renewer._watch
            await aeventually(lambda watch=watch: not watch._is_reported)
    assert len(reports(caplog)) == 2


def test_many_loops_have_one_watch(valkey: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Of two loops in two threads the one that is blocked is reported; both have one thread."""
    is_over = threading.Event()

    async def claim(name: str, work: Callable[[], Any]) -> None:
        async with AsyncDibs(valkey.url, budget=5) as dibs:
            async with dibs.claim(f"{name}:1", window=60, lease=1.5):
                await asyncio.sleep(0)
                await work()

    async def block() -> None:
        await aeventually(lambda: len(watching()) == 1)
        block_until(lambda: reports(caplog))
        is_over.set()

    async def run() -> None:
        await aeventually(is_over.is_set)

    other = threading.Thread(target=lambda: asyncio.run(claim("good", run)))
    other.start()
    asyncio.run(claim("bad", block))
    other.join()
    [line] = reports(caplog)
    assert line.startswith("bad:*")
    eventually(lambda: not watching())


@pytest.mark.only_on("linux")
def test_a_forked_child_watches_its_own_loop(valkey: Server) -> None:
    """The thread of its parent is not there: it starts another one."""

    async def claim() -> int:
        async with AsyncDibs(valkey.url, budget=5) as dibs, dibs.claim("order:1", window=60):
            await aeventually(lambda: len(watching()) == 1)
            return len(watching())

    async def parent() -> int:
        async with AsyncDibs(valkey.url, budget=5) as dibs, dibs.claim("order:2", window=60):
            await aeventually(lambda: len(watching()) == 1)
            child = os.fork()
            if child == 0:
                asyncio._set_running_loop(None)
                os._exit(asyncio.run(claim()))
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    assert asyncio.run(parent()) == 1


def test_a_loop_that_was_closed_is_not_watched() -> None:
    """Its client may not be, and would keep the thread for ever."""
    watch = LoopWatch(lambda now: None)

    async def leave() -> None:
        watch.begin()

    asyncio.run(leave())
    eventually(lambda: not watching())
