# Generated from tests/behaviour/_async/test_hold_all.py by unasync.py – do not edit.
"""What `hold_all()` promises, on every engine and on a cluster."""

import random
from typing import Any

import pytest

from dibs import Dibs, Busy, Event, LeaseLost, Unavailable, UsageError
from dibs.testing import FaultProxy, Server

from .._threads import Background, eventually, sleep

SEATS = ["seat:B2", "seat:A1", "seat:C3"]


def test_all_are_held_or_none(server: Server) -> None:
    """Busy names the key in the way, and no other key is taken; then all are, until the end."""
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        with one.hold("seat:C3", ttl=30):
            for dibs in (one, two):
                with pytest.raises(Busy) as caught:
                    with dibs.hold_all(SEATS, ttl=30):
                        pytest.fail("held one that is taken")
                assert caught.value.key == "seat:C3" and 0 < caught.value.retry_after <= 30
                assert caught.value.holder == one._leases.identity.holder
                assert caught.value.is_here == (dibs is one)
            assert server.keys() == ["seat:C3"]
        with two.hold_all(SEATS, ttl=30) as leases:
            assert [*leases] == SEATS and len(leases) == 3 and leases.guarded and not leases.lost
            assert sorted(server.keys()) == sorted(SEATS)
            assert 0 < leases.remaining <= 30 and leases["seat:A1"].key == "seat:A1"
            leases.check()
            for key in SEATS:
                assert one.try_hold(key, ttl=1) is None
        assert server.keys() == [] and leases.lost
        with pytest.raises(LeaseLost):
            leases.check()


def test_it_is_one_round_trip(server: Server) -> None:
    """However many keys, it is one request: the server runs one script."""
    with Dibs(server.url, budget=5) as dibs:
        with dibs.hold_all(["warm", "up"], ttl=5):
            pass
        before = server.client().info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]
        with dibs.hold_all([f"seat:{n}" for n in range(20)], ttl=5):
            stats = server.client().info("commandstats")
            assert stats["cmdstat_evalsha"]["calls"] == before + 1


def test_the_same_keys_in_any_order_at_once(server: Server) -> None:
    """Callers who name them in other orders exclude each other, and none waits for ever."""
    inside = list[str]()

    def move(dibs: Dibs, number: int) -> None:
        keys = random.Random(number).sample(SEATS, 2)
        with dibs.hold_all(keys, ttl=30, wait=120):
            assert not {*keys} & {*inside}
            inside.extend(keys)
            sleep(0.001)
            for key in keys:
                inside.remove(key)

    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        tasks = [Background(move, (one, two)[number % 2], number) for number in range(12)]
        for task in tasks:
            task.result()
    assert server.keys() == []


def test_one_that_waits_for_all_is_not_starved(server: Server) -> None:
    """Single keys of it are held in turn, and never all are free: it keeps what it has got."""
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        first = one.try_hold("seat:A1", ttl=60)
        second = one.try_hold("seat:B2", ttl=60)
        assert first is not None and second is not None

        def wait() -> bool:
            with two.hold_all(["seat:A1", "seat:B2"], ttl=5, wait=60) as leases:
                return leases["seat:A1"].remaining > 4 and leases["seat:B2"].remaining > 4

        waiter = Background(wait)
        eventually(lambda: bool(two._leases.waiters.queues))
        (second if b"seat:A1" in two._leases.waiters.queues else first).release()
        (first if b"seat:A1" in two._leases.waiters.queues else second).release()
        assert waiter.result()
        assert server.keys() == []


def test_a_wait_that_is_over_leaves_nothing(server: Server) -> None:
    """Busy after `wait`; what was kept while it waited is released."""
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        for taken in SEATS:
            with one.hold(taken, ttl=30):
                with pytest.raises(Busy) as caught:
                    with two.hold_all(SEATS, ttl=5, wait=0.05):
                        pytest.fail("held one that is taken")
                assert caught.value.key == taken
                assert server.keys() == [taken]
            assert server.keys() == []


def test_each_has_a_fence(server: Server) -> None:
    """fence=True: each key has its own, which grows."""
    with Dibs(server.url, budget=5) as dibs:
        found = list[Any]()
        for _ in range(2):
            with dibs.hold_all(SEATS, ttl=5, fence=True) as leases:
                found.append([leases[key].fence for key in SEATS])
        with dibs.hold("seat:A1", ttl=5, fence=True) as lease:
            found.append([lease.fence] * 3)
    assert all(before < after for before, after in zip(found[0], found[1], strict=True))
    assert found[1][1] < found[2][1]


def test_they_are_renewed_extended_and_lost(server: Server) -> None:
    """renew=True keeps all; if one key is taken away, the group is lost, the others released."""
    with Dibs(server.url, budget=5) as dibs:
        with dibs.hold_all(SEATS, ttl=1.2, renew=True) as leases:
            sleep(1.8)
            assert not leases.lost and leases.extend(30)
            assert leases.remaining > 25
        assert server.keys() == []
        with dibs.hold_all(SEATS, ttl=30) as leases:
            server.client().set("seat:A1", "another")
            assert not leases.extend(60)
            with pytest.raises(LeaseLost):
                leases.check()
        assert server.keys() == ["seat:A1"]
        server.client().delete("seat:A1")
        with dibs.hold_all(SEATS, ttl=30) as leases:
            assert leases.release()
            assert server.keys() == [] and not leases.release()


def test_permits_of_several_keys(server: Server) -> None:
    """limit=: a permit of each key, or none."""
    with Dibs(server.url, budget=5) as dibs:
        with dibs.hold_all(SEATS, ttl=30, limit=2), dibs.hold("seat:C3", ttl=30, limit=2):
            with pytest.raises(Busy) as caught:
                with dibs.hold_all(SEATS, ttl=30, limit=2):
                    pytest.fail("held one that is taken")
            assert caught.value.key == "seat:C3"
            with dibs.hold_all(["seat:A1", "seat:B2"], ttl=30, limit=2):
                pass
        assert server.keys() == []


def test_a_body_that_raises_releases_all(server: Server) -> None:
    """Its exception reaches the caller unchanged."""
    with Dibs(server.url, budget=5) as dibs:
        with pytest.raises(LookupError):
            with dibs.hold_all(SEATS, ttl=30):
                raise LookupError
        assert server.keys() == []


def test_a_reply_that_is_lost(valkey: Server, proxy: FaultProxy) -> None:
    """The request is repeated, and recognised as ours, with the same fences."""
    with Dibs(proxy.url) as dibs:
        with dibs.hold_all(["warm", "up"], ttl=5, fence=True):
            pass
        proxy.swallow_replies()
        with dibs.hold_all(SEATS, ttl=30, fence=True) as leases:
            assert leases.guarded and proxy.triggered == 1
            fences = [leases[key].fence for key in SEATS]
        assert [key for key in valkey.keys() if key.startswith("seat")] == []
        assert None not in fences


def test_an_outage_is_the_policys(own_server: Server) -> None:
    """open: all go on unguarded; closed: Unavailable, and nothing is left behind."""
    with Dibs(own_server.url) as dibs:
        with dibs.hold("warm", ttl=5):
            pass
        own_server.freeze()
        with dibs.hold_all(SEATS, ttl=30) as leases:
            assert not leases.guarded
        with pytest.raises(Unavailable):
            with dibs.hold_all(SEATS, ttl=30, on_outage="closed"):
                pytest.fail("held in an outage")
        own_server.thaw()
        eventually(lambda: own_server.keys() == [])


def test_events_are_those_of_each_key(server: Server) -> None:
    """acquired and released for each; busy for the one in the way, under the given name."""
    events: list[Event] = []
    with Dibs(server.url, budget=5, listeners=[events.append]) as dibs:
        with dibs.hold_all(SEATS[:2], ttl=30, name="seats"):
            with pytest.raises(Busy, match="seats is held"):
                with dibs.hold_all(SEATS, ttl=30, name="seats"):
                    pytest.fail("held one that is taken")
    kinds = [(event.kind, event.name) for event in events]
    assert kinds == [("acquired", "seats")] * 2 + [("busy", "seats")] + [("released", "seats")] * 2


def test_a_block_that_tells(server: Server) -> None:
    """or_none(): the block begins with None if one is taken; also for `hold`, with renewal."""
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        with one.hold("seat:A1", ttl=1.2, renew=True).or_none() as lease:
            assert lease is not None and lease.guarded
            sleep(1.8)
            assert not lease.lost
            with two.hold("seat:A1", ttl=30).or_none() as other:
                assert other is None
            with two.hold_all(SEATS, ttl=30).or_none() as leases:
                assert leases is None
            assert server.keys() == ["seat:A1"]
            with pytest.raises(Busy):  # of the block itself: it is not swallowed
                with two.hold("seat:B2", ttl=30).or_none(), two.hold("seat:A1", ttl=30):
                    pytest.fail("held twice")
        with two.hold_all(SEATS, ttl=30).or_none() as leases:
            assert leases is not None and len(leases) == 3
        assert server.keys() == []


@pytest.mark.parametrize("keys", [[], ["a", "b", "a"], "seat", 7, [""], None])
def test_keys_that_make_no_sense(server: Server, keys: Any) -> None:
    """UsageError, before anything is sent."""
    with Dibs(server.url) as dibs:
        with pytest.raises(UsageError):
            dibs.hold_all(keys, ttl=5)
