"""Requests that were repeated on a second connection, and still arrive on the first one.

Each test runs twice: where the server ends the first connection on request, and where it refuses.
"""

from collections.abc import Iterator

import pytest
from redis import Redis

from dibs import AsyncDibs, Busy, Duplicate, Event
from dibs.testing import FaultProxy, Server

from .._tasks import Background, eventually
from ..events import kinds
from .loaders import Loader

BUDGET = 1.0
USER = "no_client_kill"
RULES = "on >secret ~* &* +@all -client +client|info +client|tracking +client|caching"

ENDED = pytest.mark.parametrize("url", ["permitted"], indirect=True)
"""Promised only where the server ends connections."""


@pytest.fixture
def line(server: Server) -> Iterator[FaultProxy]:
    """A line on which requests and replies can be held back."""
    with FaultProxy(server.port) as proxy:
        yield proxy


@pytest.fixture(params=["permitted", "refused"])
def url(request: pytest.FixtureRequest, server: Server, line: FaultProxy) -> Iterator[str]:
    """Of a user that may end connections at the server, or may not."""
    if request.param == "permitted":
        yield line.url
        return
    client = server.client()
    client.execute_command("ACL", "SETUSER", USER, *RULES.split())
    yield line.url.replace("://", f"://{USER}:secret@")
    client.execute_command("ACL", "DELUSER", USER)


def arrive(line: FaultProxy, server: Server) -> None:
    """The late copies arrive; the server has executed what it will ever execute of them."""
    line.deliver()
    for _ in range(3):  # a server reads every connection on which something came before the next
        server.client().ping()


async def test_a_late_extension_does_not_shorten(
    server: Server, line: FaultProxy, url: str
) -> None:
    """The lease has been extended for longer since: no other caller gets the key."""
    async with AsyncDibs(url, budget=BUDGET) as dibs, AsyncDibs(server.url, budget=5) as other:
        lease = await dibs.try_hold("user:1", ttl=60)
        assert lease is not None
        line.hold_requests(match=b"user:1")
        assert await lease.extend(61)
        assert line.triggered == 1
        assert await lease.extend(600)
        arrive(line, server)
        assert server.client().pttl("user:1") > 300_000
        assert await other.try_hold("user:1", ttl=5) is None
        assert await lease.release()
        assert server.keys() == []


@pytest.mark.parametrize("limit", [None, 2])
async def test_a_late_renewal_does_not_shorten(
    server: Server, line: FaultProxy, url: str, limit: int | None
) -> None:
    """A renewal that is delayed, `extend(600)`: the key is kept that long, permit or not."""
    events: list[Event] = []
    async with AsyncDibs(url, budget=BUDGET, listeners=[events.append]) as dibs:
        async with dibs.hold("user:1", ttl=6, renew=True, limit=limit) as lease:
            line.hold_requests(match=b"user:1")
            await eventually(lambda: "renewed" in kinds(events), within=90)
            assert line.triggered == 1
            assert await lease.extend(600)
            arrive(line, server)
            assert server.client().pttl("user:1") > 300_000
            assert not lease.lost
    assert server.keys() == []


@pytest.mark.parametrize("limit", [None, 1])
async def test_a_late_refused_acquire_takes_nothing(
    server: Server, line: FaultProxy, url: str, limit: int | None
) -> None:
    """Busy; the holder releases; then the first copy arrives: the key, or permit, is free."""
    async with AsyncDibs(url, budget=BUDGET) as dibs, AsyncDibs(server.url, budget=5) as other:
        assert await dibs.peek("warm:up") is None
        holder = await other.try_hold("user:1", ttl=600, limit=limit)
        assert holder is not None
        line.hold_requests(match=b"user:1")
        with pytest.raises(Busy):
            async with dibs.hold("user:1", ttl=600, limit=limit):
                pytest.fail("two holders")
        assert line.triggered == 1
        assert await holder.release()
        arrive(line, server)
        await eventually(lambda: server.keys() == [], within=10)


async def test_a_late_refused_claim_takes_nothing(
    server: Server, line: FaultProxy, url: str
) -> None:
    """A duplicate was refused, the first one fails: the next try of the same is not refused."""
    async with AsyncDibs(url, budget=BUDGET) as dibs, AsyncDibs(server.url, budget=5) as other:
        assert await dibs.peek("warm:up") is None
        with pytest.raises(LookupError):
            async with other.claim("order:1", window=600, lease=600):
                line.hold_requests(match=b"order:1")
                with pytest.raises(Duplicate):
                    async with dibs.claim("order:1", window=600, lease=600):
                        pytest.fail("executed twice")
                raise LookupError("the first one fails")
        arrive(line, server)
        await eventually(lambda: server.keys() == [], within=10)


async def test_a_late_second_copy_takes_nothing(server: Server, line: FaultProxy, url: str) -> None:
    """The reply on the first connection is delayed, the repeated request on the second one.

    Whichever of them counts, no key stays taken for a caller that has gone.
    """

    async def hold() -> None:
        try:
            async with dibs.hold("user:1", ttl=600):
                pass
        except Busy:
            pass

    async with AsyncDibs(url, budget=2 * BUDGET) as dibs, AsyncDibs(server.url, budget=5) as other:
        assert await dibs.peek("warm:up") is None
        holder = await other.try_hold("user:1", ttl=600)
        assert holder is not None
        line.hold_replies(match=b"user:1")
        line.hold_requests(match=b"user:1")
        caller = Background(hold)
        await eventually(lambda: line.triggered == 2)
        line.deliver(requests=False)
        await caller.result()
        assert await holder.release()
        arrive(line, server)
        await eventually(lambda: server.keys() == [], within=10)


async def test_a_late_lock_does_not_store_what_was_invalidated(
    server: Server, line: FaultProxy, url: str
) -> None:
    """A load is under way, its value is invalidated, then the lock is asked for once more."""
    loader, fresh = Loader(), Loader()
    async with AsyncDibs(url, budget=BUDGET) as dibs, AsyncDibs(server.url, budget=5) as other:
        here = dibs.cached("menu:{name}", ttl=60)(loader.load)
        there = other.cached("menu:{name}", ttl=60)(fresh.load)
        await here("warm")
        loader.busy = True
        line.hold_requests(match=b"menu:a")
        caller = Background(here, "a")
        await eventually(lambda: loader.loads == 2)
        assert line.triggered == 1
        assert await there.invalidate("a")
        arrive(line, server)
        loader.busy = False
        await caller.result()
        assert await there("a") == {"name": "a", "load": 1}, "not what was loaded before"
        assert fresh.loads == 1


async def test_a_late_tag_does_not_revive_what_was_invalidated(
    server: Server, line: FaultProxy, url: str
) -> None:
    """The version of a tag is asked for once more after the tag was invalidated."""
    loader, fresh = Loader(), Loader()
    async with AsyncDibs(url, budget=BUDGET) as dibs, AsyncDibs(server.url, budget=5) as other:
        here = dibs.cached("menu:{name}", ttl=60, tags=["shop:{name}"])(loader.load)
        there = other.cached("menu:{name}", ttl=60, tags=["shop:{name}"])(fresh.load)
        await here("warm")
        line.hold_requests(match=b"$16\r\n")  # the version that is to begin with
        await here("a")
        assert line.triggered == 1
        assert await other.invalidate_tag("shop:a")
        arrive(line, server)
        assert await there("a") == {"name": "a", "load": 1}, "not what was loaded before"


@ENDED
async def test_a_late_set_does_not_replace_a_newer_value(
    server: Server, line: FaultProxy, url: str
) -> None:
    """Of two values that were set, the one that was set last stays."""
    loader = Loader()
    async with AsyncDibs(url, budget=BUDGET) as dibs, AsyncDibs(server.url, budget=5) as other:
        here = dibs.cached("menu:{name}", ttl=60)(loader.load)
        there = other.cached("menu:{name}", ttl=60)(loader.load)
        assert await here.set("a", value={"name": "a", "load": 0})
        line.hold_requests(match=b"menu:a")
        assert await here.set("a", value={"name": "a", "load": 1})
        assert line.triggered == 1
        assert await there.set("a", value={"name": "a", "load": 2})
        arrive(line, server)
        found = await there.peek("a")
        assert found is not None and found.value["load"] == 2


@ENDED
async def test_requests_of_an_outage_are_not_executed_after_it(
    server: Server, line: FaultProxy, url: str
) -> None:
    """Nothing arrives, it is an outage; what arrives after the recovery takes nothing."""
    events: list[Event] = []
    async with AsyncDibs(url, budget=2, listeners=[events.append]) as dibs:
        async with AsyncDibs(server.url, budget=5) as other:
            await dibs.peek("warm:up")
            line.hold_requests(match=b"user:1")
            line.hold_requests(match=b"user:1")
            async with dibs.hold("user:1", ttl=60) as lease:
                assert not lease.guarded and line.triggered == 2
            await eventually(lambda: "recovered" in kinds(events), within=90)
            async with other.hold("user:1", ttl=60):
                assert await dibs.try_hold("user:1", ttl=60) is None
            arrive(line, server)
            assert server.keys() == []


async def test_connections_by_unix_socket_are_ended(valkey: Server) -> None:
    """They have one address for all; the id is enough while the old one is open."""
    with FaultProxy(valkey.unix_path) as line:
        async with AsyncDibs(line.url, budget=BUDGET) as dibs:
            async with AsyncDibs(valkey.url, budget=5) as other:
                await dibs.peek("warm:up")
                async with other.hold("user:1", ttl=60):
                    line.hold_requests(match=b"user:1")
                    assert await dibs.try_hold("user:1", ttl=60) is None
                arrive(line, valkey)
                assert valkey.keys() == []


async def test_nobody_else_is_ended_after_a_restart(own_server: Server) -> None:
    """After a restart the server counts ids from 1: other clients have those of our old
    connections."""
    events: list[Event] = []
    async with AsyncDibs(own_server.url, budget=0.25, listeners=[events.append]) as dibs:
        async with dibs.hold("user:1", ttl=60):
            own_server.freeze()
        own_server.kill()
        own_server.restart()
        clients = [Redis(port=own_server.port, single_connection_client=True) for _ in range(30)]
        ids = [client.client_id() for client in clients]
        await eventually(lambda: "recovered" in kinds(events), within=90)
        async with dibs.hold("user:1", ttl=60) as lease:
            assert lease.guarded
        assert [client.client_id() for client in clients] == ids
        for client in clients:
            client.close()


async def test_a_load_of_an_outage_is_not_joined_after_it(server: Server, line: FaultProxy) -> None:
    """It began before the recovery and an invalidation: who comes later gets fresh data."""
    events: list[Event] = []
    loader = Loader()
    async with AsyncDibs(line.url, budget=0.25, listeners=[events.append]) as dibs:
        async with AsyncDibs(server.url, budget=5) as other:
            menu = dibs.cached("menu:{name}", ttl=60)(loader.load)
            there = other.cached("menu:{name}", ttl=60)(loader.load)
            await menu("warm")
            line.refuse()
            line.cut()
            loader.busy = True
            first = Background(menu, "a")
            second = Background(menu, "a")
            await eventually(lambda: loader.loads == 2)
            line.accept()
            await eventually(lambda: "recovered" in kinds(events), within=90)
            assert await there.invalidate("a")
            late = Background(menu, "a")
            try:
                await eventually(lambda: loader.loads == 3)
            finally:
                loader.busy = False
            assert (await late.result())["load"] == 3
            assert (await first.result())["load"] == (await second.result())["load"] == 2
