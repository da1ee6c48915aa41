# Generated from tests/behaviour/_async/test_cluster.py by unasync.py – do not edit.
"""A cluster whose slots move and whose nodes go: leases stay where they are looked for."""

import logging
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from dibs import Dibs, Busy, Event, Unavailable, UsageError
from dibs.testing import Server
from tests.topologies import (
    is_master,
    migrate_keys,
    move_slot,
    node_id,
    open_slot,
    slot_of,
    start_cluster,
    start_replicated_cluster,
    take_over,
)

from .._threads import Background, eventually, redis, sleep
from ..events import kinds
from .schedules import NOON, Clock

StartServer = Callable[..., Server]
SHARE = 16384 // 3
LEASE = "scheduled:{scheduled-last:tick}"


def owner_first(slot: int, servers: list[Server]) -> list[Server]:
    owner = servers[min(slot // SHARE, 2)]
    return [owner, *[server for server in servers if server is not owner]]


def url_of(servers: list[Server]) -> str:
    return "redis+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in servers)


def test_a_slot_that_is_half_moved_is_guarded(start_server: StartServer) -> None:
    """ASK: old keys are at the source, new ones at the target; no key is granted twice."""
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
    """Operations on one key continue to work."""
    servers = start_cluster(start_server)
    source, target, _ = owner_first(slot_of("user:1"), servers)
    open_slot(slot_of("user:1"), source, target)
    with (
        Dibs(url_of(servers), budget=2, on_outage="closed") as one,
        Dibs(url_of(servers), budget=2, on_outage="closed") as two,
    ):
        with one.hold("user:1", ttl=2, renew=True) as lease:
            assert two.try_hold("user:1", ttl=5, wait=3) is None
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


def test_a_run_costs_three_round_trips_on_a_cluster(start_server: StartServer) -> None:
    """Its lease and its records are in one slot."""
    servers = start_cluster(start_server)
    clock, events = Clock(), list[Event]()
    with Dibs(url_of(servers), budget=5, listeners=[events.append]) as dibs:

        @dibs.scheduled(every=60, key="tick")
        def tick() -> None: ...

        with clock.scheduler(dibs) as scheduler:
            eventually(lambda: any(server.keys() for server in servers))
            eventually(lambda: scheduler._runners[0]._last is not None)
            for minute in (1, 2):  # a node does not know the script, the first time
                before = reads(servers)
                clock.set(NOON + 60 * minute)
                eventually(lambda minute=minute: kinds(events).count("released") == minute)
            assert reads(servers) - before == 3 + len(servers)  # and our own questions
    keys = sorted(key for server in servers for key in server.keys())
    assert keys == sorted(["fence:" + LEASE, "runs:{scheduled-last:tick}", "scheduled-last:tick"])


def reads(servers: list[Server]) -> int:
    """How often the nodes have read from a client."""
    return sum(server.client().info("stats")["total_reads_processed"] for server in servers)


def test_a_run_in_a_slot_that_is_half_moved_is_recorded_before_its_lease_ends(
    start_server: StartServer,
) -> None:
    """Record and lease are on two nodes: neither is touched until they are on one."""
    servers = start_cluster(start_server)
    slot = slot_of("scheduled-last:tick")
    source, target, third = owner_first(slot, servers)
    clock, events = Clock(), list[Event]()
    with Dibs(url_of(servers), budget=0.5, listeners=[events.append]) as dibs:

        @dibs.scheduled(every=60, key="tick", ttl=60)
        def tick() -> None:
            open_slot(slot, source, target)
            words = ("127.0.0.1", target.port, "scheduled-last:tick", 0, 5000)
            source.client().execute_command("MIGRATE", *words)

        with clock.scheduler(dibs):
            eventually(lambda: source.keys() != [])
            clock.set(NOON + 60)
            eventually(lambda: "outage" in kinds(events))
            assert source.client().exists(LEASE)
            migrate_keys(slot, source, target)
            move_slot(slot, source, target, third)
            eventually(lambda: LEASE not in target.keys())
            last = target.client().get("scheduled-last:tick")
            assert int(last.split()[0]) == int(NOON + 60) * 1000


def test_a_node_that_was_replaced_is_not_called_any_more(start_server: StartServer) -> None:
    """Its replica has its slots: the dead node is not dialled, even without any request."""
    masters, replicas = start_replicated_cluster(start_server)
    keys = [f"user:{number}" for number in range(40)]
    with Dibs(url_of(masters), budget=0.5) as dibs:
        for key in keys:
            with dibs.hold(key, ttl=5) as lease:
                assert lease.guarded
        masters[1].kill()
        mine = next(key for key in keys if SHARE <= slot_of(key) < 2 * SHARE)
        assert not _is_guarded(dibs, mine)
        take_over(replicas[1])
        with listening(masters[1]) as calls:

            def is_silent() -> bool:
                return _is_silent(calls)

            def is_guarded() -> bool:
                return _is_guarded(dibs, mine)

            eventually(is_silent, within=90)
            eventually(is_guarded, within=90)
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

        take_over(replicas[1])
        eventually(has_ended, within=90)
        assert _is_guarded(dibs, key)
    levels = [record.levelname for record in caplog.records if record.name == "dibs"]
    assert levels == ["WARNING", "INFO"]
    assert "user" not in caplog.text


def test_a_release_for_a_node_that_died_goes_to_its_successor(
    start_server: StartServer,
) -> None:
    """The replica has the key: it is released there, long before its ttl is over."""
    masters, replicas = start_replicated_cluster(start_server)
    with Dibs(url_of(masters), budget=0.5) as dibs:
        key = next(f"user:{n}" for n in range(99) if SHARE <= slot_of(f"user:{n}") < 2 * SHARE)
        lease = dibs.try_hold(key, ttl=600)
        assert lease is not None and lease.guarded
        eventually(lambda: key in replicas[1].keys())
        masters[1].kill()
        assert not lease.release()
        take_over(replicas[1])
        eventually(lambda: replicas[1].keys() == [], within=90)


def test_a_release_that_is_delivered_later_follows_its_key(start_server: StartServer) -> None:
    """The node with the key refuses it at first; when it is sent again, the slot has moved on."""
    servers = start_cluster(start_server)
    slot = slot_of("user:1")
    source, target, third = owner_first(slot, servers)
    with Dibs(url_of(servers), budget=2) as dibs:
        lease = dibs.try_hold("user:1", ttl=600)
        assert lease is not None and lease.guarded
        open_slot(slot, source, target)
        assert migrate_keys(slot, source, target) == 1
        target.client().config_set("min-replicas-to-write", 1)
        assert not lease.release()
        move_slot(slot, source, target, third)
        assert target.keys() == ["user:1"]
        target.client().config_set("min-replicas-to-write", 0)
        eventually(lambda: target.keys() == [])


def test_who_come_together_ask_for_the_map_once(start_server: StartServer) -> None:
    """A process that starts with many callers does not read the whole map for each of them."""
    servers = start_cluster(start_server)
    with Dibs(url_of(servers[:1]), budget=5) as dibs:
        before = _maps_read(servers)
        holds = [Background(_is_guarded, dibs, f"user:{number}") for number in range(50)]
        assert all([hold.result() for hold in holds])
        assert _maps_read(servers) - before <= 2


def _maps_read(servers: list[Server]) -> int:
    stats = [server.client().info("commandstats") for server in servers]
    return sum(each.get("cmdstat_cluster|slots", {"calls": 0})["calls"] for each in stats)


def test_a_seed_by_another_name_than_the_nodes_announce(start_server: StartServer) -> None:
    """The first call is guarded: the address of a service is on no map."""
    servers = start_cluster(start_server)
    for server in servers:
        with Dibs(f"redis+cluster://localhost:{server.port}", budget=5) as dibs:
            lease = dibs.try_hold("user:1", ttl=60)
            assert lease is not None and lease.guarded
            assert lease.release()


def test_seeds_that_hang_do_not_hide_the_others(start_server: StartServer) -> None:
    """All seeds are asked at the same time: the first answer is enough."""
    servers = start_cluster(start_server)
    with hanging() as one, hanging() as two:
        url = f"redis+cluster://127.0.0.1:{one},127.0.0.1:{two},127.0.0.1:{servers[0].port}"
        since = time.monotonic()
        with Dibs(url, budget=5, connect=30, on_outage="closed") as dibs:
            assert _is_guarded(dibs, "user:1")
            assert time.monotonic() - since < 20


def test_an_invalidation_before_the_map_is_known_is_delivered(
    start_server: StartServer,
) -> None:
    """The first call of a process meets nodes that hang: it deletes when they go on."""
    servers = start_cluster(start_server)
    with Dibs(url_of(servers), budget=5) as writer:
        for number in range(6):
            writer.get_or_load(f"menu:{number}", _load, ttl=600)
    for server in servers:
        server.freeze()
    with Dibs(url_of(servers), budget=0.2, connect=0.3) as dibs:

        @dibs.cached("menu:{number}", ttl=600)
        def menu(number: int) -> int:
            return _load()

        for number in range(6):
            assert not menu.invalidate(number)
        for server in servers:
            server.thaw()
        eventually(lambda: not any(server.keys() for server in servers), within=90)


def _load() -> int:
    return 7


def test_the_log_says_once_that_a_node_is_out_and_once_that_it_was_replaced(
    start_server: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    """A node that is gone for ever does not keep the outage open: the next one is logged, too."""
    caplog.set_level(logging.INFO, "dibs")
    masters, replicas = start_replicated_cluster(start_server)
    keys = [f"user:{number}" for number in range(40)]
    with Dibs(url_of(masters[:1]), budget=0.5) as dibs:
        assert _is_guarded(dibs, "user:1")
        for number in (1, 2):
            caplog.clear()
            mine = next(key for key in keys if slot_of(key) // SHARE == number)
            masters[number].kill()
            assert not _is_guarded(dibs, mine)

            def is_guarded(mine: str = mine) -> bool:
                return _is_guarded(dibs, mine)

            eventually(lambda taker=replicas[number]: is_master(taker), within=90)
            eventually(is_guarded, within=90)
            eventually(lambda: len(_levels(caplog)) > 1)
            assert _levels(caplog) == ["WARNING", "INFO"]


def test_a_slot_that_is_half_moved_is_logged_once(
    start_server: StartServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Its fences are out, everything else is served: not a pair of lines for every call."""
    caplog.set_level(logging.INFO, "dibs")
    servers = start_cluster(start_server)
    source, target, _ = owner_first(slot_of("user:1"), servers)
    with Dibs(url_of(servers), budget=0.2) as dibs:
        with dibs.hold("user:1", ttl=5, fence=True):
            pass
        open_slot(slot_of("user:1"), source, target)
        for number in range(4):
            lease = dibs.try_hold("user:1", ttl=5, fence=True)
            assert lease is not None and not lease.guarded
            assert _is_guarded(dibs, f"user:{number + 2}")
        assert _levels(caplog) == ["WARNING"]


def test_a_node_that_was_reset_is_left_for_those_that_have_its_slots(
    start_server: StartServer,
) -> None:
    """CLUSTER RESET and FORGET: it answers CLUSTERDOWN for its former slots, without a redirect."""
    servers = start_cluster(start_server)
    gone, taker, third = owner_first(slot_of("user:1"), servers)
    first = servers.index(gone) * SHARE
    last = 16383 if gone is servers[2] else first + SHARE - 1
    with Dibs(url_of(servers), budget=2) as dibs:
        with dibs.hold("user:1", ttl=5) as lease:
            assert lease.guarded
        name = node_id(gone)
        gone.client().execute_command("CLUSTER", "RESET")
        for server in (taker, third):
            server.client().execute_command("CLUSTER", "FORGET", name)
        taker.client().execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)

        def is_guarded() -> bool:
            with dibs.hold("user:1", ttl=5) as lease:
                return lease.guarded

        eventually(is_guarded, within=90)


def test_nodes_that_announce_no_host_name(start_server: StartServer) -> None:
    """`cluster-preferred-endpoint-type hostname` without names: the map and MOVED say `?`."""
    config = ("--cluster-preferred-endpoint-type", "hostname")
    servers = start_cluster(start_server, config=config)
    slot = slot_of("user:1")
    source, target, third = owner_first(slot, servers)
    with Dibs(url_of(servers), budget=2, on_outage="closed") as dibs:
        for number in range(6):
            with dibs.hold(f"key:{number}", ttl=5) as lease:
                assert lease.guarded
        move_slot(slot, source, target, third)
        with dibs.hold("user:1", ttl=5):
            assert target.keys() == ["user:1"]


def test_a_cluster_over_tls(start_server: StartServer) -> None:
    """By a URL with `ssl=true`, and by a client; the certificate is checked."""
    config = ("--cluster-enabled", "yes", "--tls-cluster", "yes")
    server = start_server("redis7", tls=True, config=config)
    server.client().execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
    eventually(lambda: _serves(server))
    _, _, rest = server.tls_url.partition("://127.0.0.1:")
    port, _, certificate = rest.partition("?ssl_ca_certs=")
    url = f"redis+cluster://127.0.0.1:{port}?ssl=true&ssl_ca_certs={certificate}"
    with Dibs(url, budget=5, on_outage="closed") as dibs:
        assert _is_guarded(dibs, "user:1")
    client = redis.RedisCluster(
        host="127.0.0.1", port=int(port), ssl=True, ssl_ca_certs=certificate
    )
    with Dibs(client, budget=5, on_outage="closed") as dibs:
        assert _is_guarded(dibs, "user:2")
    client.close()
    with pytest.raises(UsageError, match="not trusted"):
        with Dibs(f"redis+cluster://127.0.0.1:{port}?ssl=true") as dibs:
            dibs.try_hold("user:3", ttl=5)


def test_mistakes_in_a_cluster_target_are_told_before_anything_is_connected() -> None:
    """A database, an option that redis-py does not know, a word where a number belongs."""
    for rest in ("h:1/2", "h:1?nonsense=1", "h:1?ssl=perhaps", "h:port", ""):
        with pytest.raises(UsageError):
            Dibs(f"redis+cluster://{rest}")


def _serves(server: Server) -> bool:
    return "cluster_state:ok" in str(server.client().execute_command("CLUSTER", "INFO"))


def _levels(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.levelname for record in caplog.records if record.name == "dibs"]


def _is_guarded(dibs: Dibs, key: str) -> bool:
    with dibs.hold(key, ttl=5) as lease:
        return lease.guarded


@contextmanager
def hanging() -> Iterator[int]:
    """The port of a server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield silent.getsockname()[1]


@contextmanager
def listening(gone: Server) -> Iterator[socket.socket]:
    """Another server at the address of one that is gone."""
    gone.release_port()
    with socket.create_server(("127.0.0.1", gone.port)) as calls:
        calls.setblocking(False)
        yield calls


def _is_silent(calls: socket.socket) -> bool:
    """True: no connection for a while in which several probes would have come."""
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        try:
            calls.accept()[0].close()
            return False
        except BlockingIOError:
            sleep(0.05)
    return True


def test_several_keys_of_several_slots_are_taken_or_none(start_server: StartServer) -> None:
    """One request for those that share a slot, one order for all; what was taken before the one in
    the way is released."""
    servers = start_cluster(start_server)
    keys = ["user:1", "user:2", "user:3", "{user:2}:wallet"]
    url = url_of(servers)
    with Dibs(url, budget=5) as one, Dibs(url, budget=5) as two:
        with one.hold_all(keys, ttl=60, fence=True) as leases:
            assert leases.guarded and all(leases[key].fence for key in keys)
            for key in keys:
                with pytest.raises(Busy) as busy:
                    with two.hold_all([key, "user:9"], ttl=60):
                        pytest.fail("held twice")
                assert busy.value.key == key
        for taken in keys:
            with one.hold(taken, ttl=60):
                with pytest.raises(Busy) as busy:
                    with two.hold_all(reversed(keys), ttl=60):
                        pytest.fail("held one that is taken")
                assert busy.value.key == taken
        with two.hold_all(reversed(keys), ttl=60, wait=60) as leases:
            assert len(leases) == 4
    left = [key for server in servers for key in server.keys() if not key.startswith("fence:")]
    assert left == []
