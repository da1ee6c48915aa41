# Generated from tests/behaviour/_async/test_other_server.py by unasync.py – do not edit.
"""Behind the same address there is another server now: an older one, with the same keys."""

from collections.abc import Callable

from dibs import Dibs
from dibs.testing import FaultProxy, Server
from tests.conditions import stand_in

from .._threads import eventually

StartServer = Callable[..., Server]


def copy_keys(source: Server, target: Server) -> None:
    """As replication would have done."""
    for key in source.client().keys():
        value, ms = source.client().get(key), source.client().pttl(key)
        target.client().set(key, value, px=ms)


def replace(proxy: FaultProxy, source: Server, target: Server) -> None:
    """The address leads to *target* from now on."""
    copy_keys(source, target)
    proxy.move_to(target.port)
    proxy.cut()


def test_a_lease_is_released_on_an_older_server(start_server: StartServer) -> None:
    """A failover to a replica of an older version, without the commands that were used: the key can
    still be released there."""
    new, old = start_server("valkey"), start_server(stand_in("redis7"))
    with FaultProxy(new.port) as proxy:
        with Dibs(proxy.url, budget=5, on_outage="closed") as dibs:
            lease = dibs.try_hold("user:1", ttl=60)
            assert lease is not None
            replace(proxy, new, old)
            assert lease.release()
            assert old.keys() == []


def test_a_claim_is_completed_on_an_older_server(start_server: StartServer) -> None:
    """Its result is stored, and duplicates get it."""
    new, old = start_server("valkey"), start_server(stand_in("redis7"))
    with FaultProxy(new.port) as proxy:
        with Dibs(proxy.url, budget=5, on_outage="closed") as dibs:
            with dibs.claim("order:1", window=60, after="replay") as claim:
                replace(proxy, new, old)
                claim.complete(7)
            with dibs.claim("order:1", window=60, after="replay") as claim:
                assert claim.replayed and claim.result == 7
            assert old.keys() == ["order:1"]


def test_a_key_is_extended_on_an_older_server(start_server: StartServer) -> None:
    """The first request after the change is that of an extension."""
    new, old = start_server("valkey"), start_server(stand_in("redis7"))
    with FaultProxy(new.port) as proxy:
        with Dibs(proxy.url, budget=5, on_outage="closed") as dibs:
            lease = dibs.try_hold("user:1", ttl=30)
            assert lease is not None
            replace(proxy, new, old)
            assert lease.extend(90)
            assert old.client().pttl("user:1") > 60_000
            assert lease.release()


def test_a_release_in_an_outage_reaches_the_older_server(start_server: StartServer) -> None:
    """It was made for the server that went; it is delivered to the one that came."""
    new, old = start_server("valkey"), start_server(stand_in("redis7"))
    with FaultProxy(new.port) as proxy:
        with Dibs(proxy.url, budget=0.3, connect=1) as dibs:
            lease = dibs.try_hold("user:1", ttl=60)
            assert lease is not None and lease.guarded
            proxy.refuse()
            replace(proxy, new, old)
            assert not lease.release()
            proxy.heal()
            eventually(lambda: old.keys() == [])
