"""Releases that the store could not take: they are delivered once it answers again."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from redis import Redis
from redis.exceptions import ResponseError

from dibs import AsyncDibs, Event
from dibs.testing import FaultProxy, Server

from .._tasks import eventually, sleep
from ..events import kinds
from .outages import BUDGET, timed


async def test_a_release_that_could_not_be_delivered_is_delivered_later(
    own_server: Server,
) -> None:
    """Released while the server was out: the key goes when it is back, not after its ttl."""
    events: list[Event] = []
    async with AsyncDibs(own_server.url, budget=BUDGET, listeners=[events.append]) as dibs:
        lease = await dibs.try_hold("user:1", ttl=60)
        assert lease is not None
        own_server.freeze()
        assert await lease.release() is False
        own_server.thaw()
        await eventually(lambda: "recovered" in kinds(events), within=90)
        await eventually(lambda: own_server.keys() == [])


async def test_a_release_that_a_busy_server_refused_is_delivered_later(
    start_server: Callable[..., Server],
) -> None:
    """It answers BUSY while a script runs: the key is released when it can serve again."""
    server = start_server(config=("--busy-reply-threshold", "50"))
    async with AsyncDibs(server.url, budget=5) as dibs:
        lease = await dibs.try_hold("user:42", ttl=600)
        assert lease is not None
        with running_a_script(server):
            assert not await lease.release()
        await eventually(lambda: server.keys() == [], within=90)


@contextmanager
def running_a_script(server: Server) -> Iterator[None]:
    """The server answers BUSY."""

    def run() -> None:
        with contextlib.suppress(ResponseError):
            server.client().eval("while true do end", 0)

    thread = threading.Thread(target=run)
    thread.start()
    with Redis(port=server.port, protocol=2) as client:  # not over the line of a condition
        while True:
            try:
                client.get("user:0")
            except ResponseError:
                break
        yield
        client.script_kill()
    thread.join()


async def test_a_release_during_the_outage_is_delivered_later(own_server: Server) -> None:
    """Released when the outage was known already: the same."""
    events: list[Event] = []
    async with AsyncDibs(own_server.url, budget=BUDGET, listeners=[events.append]) as dibs:
        lease = await dibs.try_hold("user:1", ttl=60)
        assert lease is not None
        own_server.freeze()
        assert not (await timed(dibs, "other:1"))[1]
        assert await lease.release() is False
        own_server.thaw()
        await eventually(lambda: "recovered" in kinds(events), within=90)
        await eventually(lambda: own_server.keys() == [])


async def test_an_outage_longer_than_the_ttl_leaves_no_key_of_nobody(own_server: Server) -> None:
    """A stopped server takes the key when it resumes, after its caller has gone: the key is
    released."""
    events: list[Event] = []
    async with AsyncDibs(own_server.url, budget=BUDGET, listeners=[events.append]) as dibs:
        await timed(dibs, "warm:up")
        own_server.freeze()
        async with dibs.hold("user:1", ttl=0.5) as lease:
            assert not lease.guarded
        await sleep(0.8)
        own_server.thaw()
        await eventually(lambda: "recovered" in kinds(events), within=90)
        async with dibs.hold("user:1", ttl=30) as lease:
            assert lease.guarded


async def test_a_broken_release_does_not_hide_what_is_owed(own_server: Server) -> None:
    """Many releases to deliver at once, and a connection that breaks: none is lost."""
    with FaultProxy(own_server.port) as line:
        async with AsyncDibs(line.url, budget=0.5) as dibs:
            leases = [await dibs.try_hold(f"user:{n}", ttl=60) for n in range(20)]
            own_server.freeze()
            for lease in leases:
                assert lease is not None
                await lease.release()
            line.cut()
            own_server.thaw()
            await eventually(lambda: own_server.keys() == [], within=90)


async def test_the_lock_of_a_load_that_an_outage_hid_is_given_back(own_server: Server) -> None:
    """The caller has loaded on its own since; the next ones need not wait until the lock ends."""
    events: list[Event] = []

    async def load() -> str:
        return "soup"

    async with AsyncDibs(own_server.url, budget=BUDGET, listeners=[events.append]) as dibs:
        await dibs.get_or_load("menu:0", load, ttl=60)
        own_server.freeze()
        assert await dibs.get_or_load("menu:1", load, ttl=60, lock_ttl=600) == "soup"
        own_server.thaw()
        await eventually(lambda: "recovered" in kinds(events), within=90)
        await eventually(lambda: not [key for key in own_server.keys() if "menu:1" in str(key)])
