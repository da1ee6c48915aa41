# Printed from tests/behaviour/_async/test_cluster.py by tools/unasync.py – do not edit.
"""A cluster whose slots move and whose nodes go: leases stay where they are looked for."""

import logging
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from dibs import Dibs, Busy, Unavailable
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

from .._threads import eventually, sleep

StartServer = Callable[..., Server]
SHARE = 16384 // 3


def owner_first(slot: int, servers: list[Server]) -> list[Server]:
    owner = servers[min(slot // SHARE, 2)]
    return [owner, *[server for server in servers if server is not owner]]


def url_of(servers: list[Server]) -> str:
    return "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in servers)


def test_a_slot_that_is_half_moved_is_guarded(start_server: StartServer) -> None:
    """ASK: old keys are at the source, new ones at the target; nobody gets a key twice."""
    servers = start_cluster(start_server)
    slot = slot_of("user:1")
    source, target, third = owner_first(slot, servers)
    with (
        Dibs(url_of(servers), budget=2, on_outage="closed") as one,
        Dibs(url_of(servers), budget=2, on_outage="closed") as two,
    ):
        old = one.try_hold("{user:1}:old", ttl=60)
        open_slot(slot, source, target)
        new = one.try_hold("{user:1}:new", ttl=60)
        assert old is not None and new is not None and old.guarded and new.guarded
        assert source.keys() == ["{user:1}:old"] and target.keys() == ["{user:1}:new"]
        for key in ("{user:1}:old", "{user:1}:new"):
            with pytest.raises(Busy) as busy:
                with two.hold(key, ttl=5):
                    pytest.fail("held twice")
            assert 50 < busy.value.retry_after <= 60
        assert old.extend(60) and new.extend(60)
        assert migrate_keys(slot, source, target) == 1
        assert two.try_hold("{user:1}:old", ttl=5) is None
        assert old.release() and new.release()
        assert two.try_hold("{user:1}:old", ttl=60) is not None
        move_slot(slot, source, target, third)
        assert one.try_hold("{user:1}:old", ttl=5) is None
        assert one.try_hold("{user:1}:new", ttl=5) is not None


def test_waiting_renewing_and_claims_in_a_slot_that_is_half_moved(
    start_server: StartServer,
) -> None:
    """What needs one key goes on as ever."""
    servers = start_cluster(start_server)
    source, target, _ = owner_first(slot_of("user:1"), servers)
    open_slot(slot_of("user:1"), source, target)
    with (
        Dibs(url_of(servers), budget=2, on_outage="closed") as one,
        Dibs(url_of(servers), budget=2, on_outage="closed") as two,
    ):
        with one.hold("user:1", ttl=0.6, renew=True) as lease:
            assert two.try_hold("user:1", ttl=5, wait=1.5) is None
            assert not lease.lost
        with two.hold("user:1", ttl=5, wait=5) as lease:
            assert lease.guarded
        with one.claim("order:{user:1}", window=60, after="replay") as claim:
            claim.complete(7)
        with two.claim("order:{user:1}", window=60, after="replay") as claim:
            assert claim.replayed and claim.result == 7


def test_keys_on_both_sides_are_an_outage(start_server: StartServer) -> None:
    """A fence needs two keys at one place (TRYAGAIN): within the budget, then the policy."""
    servers = start_cluster(start_server)
    slot = slot_of("user:1")
    source, target, third = owner_first(slot, servers)
    with Dibs(url_of(servers), budget=0.3, on_outage="closed") as dibs:
        with dibs.hold("user:1", ttl=5, fence=True) as lease:
            before = lease.fence
        open_slot(slot, source, target)
        with pytest.raises(Unavailable, match="TRYAGAIN"):
            dibs.try_hold("user:1", ttl=5, fence=True)
        migrate_keys(slot, source, target)
        move_slot(slot, source, target, third)
        with dibs.hold("user:1", ttl=5, fence=True) as lease:
            assert lease.fence and before and lease.fence > before


def test_a_node_that_was_replaced_is_not_called_any_more(start_server: StartServer) -> None:
    """Its replica has its slots: nobody dials the dead one, also if nobody asks for anything."""
    masters, replicas = start_replicated_cluster(start_server)
    keys = [f"user:{number}" for number in range(40)]
    with Dibs(url_of(masters), budget=0.5) as dibs:
        for key in keys:
            with dibs.hold(key, ttl=5) as lease:
                assert lease.guarded
        masters[1].kill()
        mine = next(key for key in keys if SHARE <= slot_of(key) < 2 * SHARE)
        assert not _is_guarded(dibs, mine)
        eventually(lambda: is_master(replicas[1]), within=30)
        with listening(masters[1].port) as calls:

            def is_silent() -> bool:
                return _is_silent(calls)

            def is_guarded() -> bool:
                return _is_guarded(dibs, mine)

            eventually(is_silent, within=20)
            eventually(is_guarded, within=20)
            assert _is_silent(calls)


def test_the_outage_of_a_node_that_was_replaced_ends_in_the_log(
    start_server: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    """One WARNING and one INFO, though the dead node itself never answers again."""
    caplog.set_level(logging.INFO, logger="dibs")
    masters, replicas = start_replicated_cluster(start_server)
    with Dibs(url_of(masters), budget=0.5) as dibs:
        key = next(f"user:{n}" for n in range(99) if SHARE <= slot_of(f"user:{n}") < 2 * SHARE)
        assert _is_guarded(dibs, key)
        masters[1].kill()
        assert not _is_guarded(dibs, key)

        def has_ended() -> bool:
            _is_guarded(dibs, key)
            return any(record.levelname == "INFO" for record in caplog.records)

        eventually(lambda: is_master(replicas[1]), within=30)
        eventually(has_ended, within=20)
        assert _is_guarded(dibs, key)
    levels = [record.levelname for record in caplog.records if record.name == "dibs"]
    assert levels == ["WARNING", "INFO"]
    assert "user" not in caplog.text


def test_a_release_for_a_node_that_died_goes_to_its_successor(
    start_server: StartServer,
) -> None:
    """The replica has the key: it is given back there, long before its ttl is over."""
    masters, replicas = start_replicated_cluster(start_server)
    with Dibs(url_of(masters), budget=0.5) as dibs:
        key = next(f"user:{n}" for n in range(99) if SHARE <= slot_of(f"user:{n}") < 2 * SHARE)
        lease = dibs.try_hold(key, ttl=600)
        assert lease is not None and lease.guarded
        eventually(lambda: key in replicas[1].keys())
        masters[1].kill()
        assert not lease.release()
        eventually(lambda: is_master(replicas[1]), within=30)
        eventually(lambda: replicas[1].keys() == [], within=30)


def _is_guarded(dibs: Dibs, key: str) -> bool:
    with dibs.hold(key, ttl=5) as lease:
        return lease.guarded


@contextmanager
def listening(port: int) -> Iterator[socket.socket]:
    """Somebody else at the address of a server that is gone."""
    with socket.create_server(("127.0.0.1", port)) as calls:
        calls.setblocking(False)
        yield calls


def _is_silent(calls: socket.socket) -> bool:
    """True: nobody calls for a while in which a probe would have come several times."""
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        try:
            calls.accept()[0].close()
            return False
        except BlockingIOError:
            sleep(0.05)
    return True
