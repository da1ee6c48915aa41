"""A cluster whose slots move and whose nodes go: leases stay where they are looked for."""

import logging
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from dibs import AsyncDibs, Busy, Unavailable
from dibs.testing import Server
from tests.topologies import (
    is_master,
    migrate_keys,
    move_slot,
    open_slot,
    slot_of,
    start_cluster,
    start_replicated_cluster,
)

from .._tasks import eventually, sleep

StartServer = Callable[..., Server]
SHARE = 16384 // 3


def owner_first(slot: int, servers: list[Server]) -> list[Server]:
    owner = servers[min(slot // SHARE, 2)]
    return [owner, *[server for server in servers if server is not owner]]


def url_of(servers: list[Server]) -> str:
    return "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in servers)


async def test_a_slot_that_is_half_moved_is_guarded(start_server: StartServer) -> None:
    """ASK: old keys are at the source, new ones at the target; nobody gets a key twice."""
    servers = start_cluster(start_server)
    slot = slot_of("user:1")
    source, target, third = owner_first(slot, servers)
    async with (
        AsyncDibs(url_of(servers), budget=2, on_outage="closed") as one,
        AsyncDibs(url_of(servers), budget=2, on_outage="closed") as two,
    ):
        old = await one.try_hold("{user:1}:old", ttl=60)
        open_slot(slot, source, target)
        new = await one.try_hold("{user:1}:new", ttl=60)
        assert old is not None and new is not None and old.guarded and new.guarded
        assert source.keys() == ["{user:1}:old"] and target.keys() == ["{user:1}:new"]
        for key in ("{user:1}:old", "{user:1}:new"):
            with pytest.raises(Busy) as busy:
                async with two.hold(key, ttl=5):
                    pytest.fail("held twice")
            assert 50 < busy.value.retry_after <= 60
        assert await old.extend(60) and await new.extend(60)
        assert migrate_keys(slot, source, target) == 1
        assert await two.try_hold("{user:1}:old", ttl=5) is None
        assert await old.release() and await new.release()
        assert await two.try_hold("{user:1}:old", ttl=60) is not None
        move_slot(slot, source, target, third)
        assert await one.try_hold("{user:1}:old", ttl=5) is None
        assert await one.try_hold("{user:1}:new", ttl=5) is not None


async def test_waiting_renewing_and_claims_in_a_slot_that_is_half_moved(
    start_server: StartServer,
) -> None:
    """What needs one key goes on as ever."""
    servers = start_cluster(start_server)
    source, target, _ = owner_first(slot_of("user:1"), servers)
    open_slot(slot_of("user:1"), source, target)
    async with (
        AsyncDibs(url_of(servers), budget=2, on_outage="closed") as one,
        AsyncDibs(url_of(servers), budget=2, on_outage="closed") as two,
    ):
        async with one.hold("user:1", ttl=0.6, renew=True) as lease:
            assert await two.try_hold("user:1", ttl=5, wait=1.5) is None
            assert not lease.lost
        async with two.hold("user:1", ttl=5, wait=5) as lease:
            assert lease.guarded
        async with one.claim("order:{user:1}", window=60, after="replay") as claim:
            claim.complete(7)
        async with two.claim("order:{user:1}", window=60, after="replay") as claim:
            assert claim.replayed and claim.result == 7


async def test_keys_on_both_sides_are_an_outage(start_server: StartServer) -> None:
    """A fence needs two keys at one place (TRYAGAIN): within the budget, then the policy."""
    servers = start_cluster(start_server)
    slot = slot_of("user:1")
    source, target, third = owner_first(slot, servers)
    async with AsyncDibs(url_of(servers), budget=0.3, on_outage="closed") as dibs:
        async with dibs.hold("user:1", ttl=5, fence=True) as lease:
            before = lease.fence
        open_slot(slot, source, target)
        with pytest.raises(Unavailable, match="TRYAGAIN"):
            await dibs.try_hold("user:1", ttl=5, fence=True)
        migrate_keys(slot, source, target)
        move_slot(slot, source, target, third)
        async with dibs.hold("user:1", ttl=5, fence=True) as lease:
            assert lease.fence and before and lease.fence > before


async def test_a_node_that_was_replaced_is_not_called_any_more(start_server: StartServer) -> None:
    """Its replica has its slots: nobody dials the dead one, also if nobody asks for anything."""
    masters, replicas = start_replicated_cluster(start_server)
    keys = [f"user:{number}" for number in range(40)]
    async with AsyncDibs(url_of(masters), budget=0.5) as dibs:
        for key in keys:
            async with dibs.hold(key, ttl=5) as lease:
                assert lease.guarded
        masters[1].kill()
        mine = next(key for key in keys if SHARE <= slot_of(key) < 2 * SHARE)
        assert not await _is_guarded(dibs, mine)
        await eventually(lambda: is_master(replicas[1]), within=30)
        with listening(masters[1].port) as calls:

            async def is_silent() -> bool:
                return await _is_silent(calls)

            async def is_guarded() -> bool:
                return await _is_guarded(dibs, mine)

            await eventually(is_silent, within=20)
            await eventually(is_guarded, within=20)
            assert await _is_silent(calls)


async def test_the_outage_of_a_node_that_was_replaced_ends_in_the_log(
    start_server: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    """One WARNING and one INFO, though the dead node itself never answers again."""
    caplog.set_level(logging.INFO, logger="dibs")
    masters, replicas = start_replicated_cluster(start_server)
    async with AsyncDibs(url_of(masters), budget=0.5) as dibs:
        key = next(f"user:{n}" for n in range(99) if SHARE <= slot_of(f"user:{n}") < 2 * SHARE)
        assert await _is_guarded(dibs, key)
        masters[1].kill()
        assert not await _is_guarded(dibs, key)

        async def has_ended() -> bool:
            await _is_guarded(dibs, key)
            return any(record.levelname == "INFO" for record in caplog.records)

        await eventually(lambda: is_master(replicas[1]), within=30)
        await eventually(has_ended, within=20)
        assert await _is_guarded(dibs, key)
    levels = [record.levelname for record in caplog.records if record.name == "dibs"]
    assert levels == ["WARNING", "INFO"]
    assert "user" not in caplog.text


async def test_a_release_for_a_node_that_died_goes_to_its_successor(
    start_server: StartServer,
) -> None:
    """The replica has the key: it is given back there, long before its ttl is over."""
    masters, replicas = start_replicated_cluster(start_server)
    async with AsyncDibs(url_of(masters), budget=0.5) as dibs:
        key = next(f"user:{n}" for n in range(99) if SHARE <= slot_of(f"user:{n}") < 2 * SHARE)
        lease = await dibs.try_hold(key, ttl=600)
        assert lease is not None and lease.guarded
        await eventually(lambda: key in replicas[1].keys())
        masters[1].kill()
        assert not await lease.release()
        await eventually(lambda: is_master(replicas[1]), within=30)
        await eventually(lambda: replicas[1].keys() == [], within=30)


async def _is_guarded(dibs: AsyncDibs, key: str) -> bool:
    async with dibs.hold(key, ttl=5) as lease:
        return lease.guarded


@contextmanager
def listening(port: int) -> Iterator[socket.socket]:
    """Somebody else at the address of a server that is gone."""
    with socket.create_server(("127.0.0.1", port)) as calls:
        calls.setblocking(False)
        yield calls


async def _is_silent(calls: socket.socket) -> bool:
    """True: nobody calls for a while in which a probe would have come several times."""
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        try:
            calls.accept()[0].close()
            return False
        except BlockingIOError:
            await sleep(0.05)
    return True
