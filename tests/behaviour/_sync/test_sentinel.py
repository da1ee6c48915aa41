# Generated from tests/behaviour/_async/test_sentinel.py by unasync.py – do not edit.
"""A Sentinel service: all clients use the same master, after every failover."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from dibs import Dibs, Unavailable, UsageError
from dibs.events import Event
from dibs.testing import Server
from tests.topologies import Sentinel, Service, is_master, sentinel_service

from .._threads import Background, eventually, redis

StartServer = Callable[..., Server]


def switched(service: Service) -> Server:
    """The successor, from the moment in which a sentinel names it; the old master lives on."""
    service.sentinels[0].failover()
    successor = service.promoted()
    eventually(lambda: service.sentinels[0].master_port() == successor.port, within=90)
    return successor


def test_after_a_switch_nobody_stays_on_the_old_master(
    start_server: StartServer, tmp_path: Path
) -> None:
    """A process that was there before and one that comes later keep each other out."""
    events: list[Event] = []
    with sentinel_service(start_server, tmp_path, replicas=1, sentinels=1) as service:
        with Dibs(service.url, budget=2, listeners=[events.append]) as before:
            assert (before.try_hold("user:0", ttl=60)) is not None
            successor = switched(service)
            eventually(lambda: "switched" in [event.kind for event in events], within=90)
            assert is_master(service.master), "it has learnt before the old master was demoted"
            with Dibs(service.url, budget=2) as later:
                assert later.try_hold("user:1", ttl=60) is not None
                assert before.try_hold("user:1", ttl=60) is None
                assert before.try_hold("user:2", ttl=60) is not None
                assert later.try_hold("user:2", ttl=60) is None
            assert {"user:1", "user:2"} <= set(successor.keys())
            assert not {"user:1", "user:2"} & set(service.master.keys())
    (event,) = [event for event in events if event.kind == "switched"]
    assert event.cause in ("announced", "asked", "connecting") and event.name == "*"


def test_who_waits_at_the_old_master_goes_on_waiting_at_the_new_one(
    start_server: StartServer, tmp_path: Path
) -> None:
    """A key that is held only at the old master does not keep a waiter there."""
    with sentinel_service(start_server, tmp_path, replicas=1, sentinels=1) as service:
        with Dibs(service.url, budget=2) as dibs:
            assert dibs.peek("user:1") is None
            service.master.client().set("user:1", "somebody", px=60_000)
            waiting = Background(_take_in_turn, dibs)
            eventually(lambda: service.master.commands("pttl") > 1)
            successor = switched(service)
            successor.client().delete("user:1")
            assert waiting.result()
            assert is_master(service.master)


def _take_in_turn(dibs: Dibs) -> bool:
    with dibs.hold("user:1", ttl=5, wait=15, on_outage="closed") as lease:
        return lease.guarded


def test_a_replica_that_sentinel_names_is_an_outage(
    start_server: StartServer, tmp_path: Path
) -> None:
    """What Sentinel says may be old: nothing is asked of a server that is no master."""
    with sentinel_service(start_server, tmp_path, replicas=1, sentinels=1) as service:
        other = start_server("valkey")
        service.master.client().execute_command("REPLICAOF", "127.0.0.1", other.port)
        with Dibs(service.url, budget=0.5, on_outage="closed") as dibs:
            with pytest.raises(Unavailable, match="not a master"):
                dibs.try_hold("user:1", ttl=5)


def test_sentinels_that_are_out_do_not_hide_the_others(
    start_server: StartServer, tmp_path: Path
) -> None:
    """One is killed, one hangs: the third is enough, for connecting and for a switch."""
    with sentinel_service(start_server, tmp_path) as service:
        dead, hung, well = service.sentinels
        with Dibs(service.url, budget=2) as before:
            assert before.try_hold("user:0", ttl=60) is not None
            dead.kill()
            hung.freeze()
            with Dibs(service.url, budget=2) as later:
                assert later.try_hold("user:1", ttl=60, on_outage="closed") is not None
                assert before.try_hold("user:1", ttl=60, on_outage="closed") is None
                well.failover()
                port = service.promoted().port
                eventually(lambda: well.master_port() == port, within=90)

                def has_moved() -> bool:
                    with before.hold("user:2", ttl=60):
                        return "user:2" in service.promoted().keys()

                eventually(has_moved, within=90)
                assert is_master(service.master)


def test_two_sentinels_of_three_that_cannot_be_reached(
    start_server: StartServer, tmp_path: Path
) -> None:
    """Packets to them are lost: they are asked at the same time as the third, not before it."""
    with (
        sentinel_service(start_server, tmp_path, replicas=0, sentinels=1) as service,
        unreachable() as one,
        unreachable() as two,
    ):
        hosts = f"127.0.0.1:{one},127.0.0.1:{two},127.0.0.1:{service.sentinels[0].port}"
        url = f"redis+sentinel://{hosts}/main/0"
        with Dibs(url, connect=5, on_outage="closed") as dibs:
            assert dibs.try_hold("user:1", ttl=5) is not None


@contextmanager
def unreachable() -> Iterator[int]:
    """A port where connections are neither accepted nor refused."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(4):
            caller = stack.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(server.getsockname())
        yield server.getsockname()[1]


def test_a_service_that_no_sentinel_knows(start_server: StartServer, tmp_path: Path) -> None:
    """It may appear later: an outage with its own cause."""
    with sentinel_service(start_server, tmp_path, replicas=0, sentinels=1) as service:
        url = service.url.replace("/main/", "/other/")
        with Dibs(url, on_outage="closed") as dibs:
            with pytest.raises(Unavailable, match="'other'") as caught:
                dibs.try_hold("user:1", ttl=5)
            assert caught.value.cause == "no_master"


def test_sentinels_with_a_password(start_server: StartServer, tmp_path: Path) -> None:
    """In the URL, or in the `sentinel_kwargs` of the Sentinel whose `master_for` is handed over."""
    master = start_server("valkey")
    master.client().acl_setuser(
        "ann", enabled=True, passwords=["+secret"], keys=["*"], commands=["+@all"]
    )
    with Sentinel(tmp_path / "s", master, config="requirepass sesame\n") as sentinel:
        place = f"ann:secret@127.0.0.1:{sentinel.port}/main/2"
        url = f"redis+sentinel://{place}?sentinel_password=sesame&client_name=me"
        with Dibs(url, budget=2, on_outage="closed") as dibs:
            eventually(_guarded(dibs))
        manager = redis.sentinel.Sentinel(
            [("127.0.0.1", sentinel.port)], sentinel_kwargs={"password": "sesame"}
        )
        client = manager.master_for("main", username="ann", password="secret", db=2)
        with Dibs(client, budget=2, on_outage="closed") as dibs:
            eventually(_guarded(dibs))
        client.close()
        with pytest.raises(UsageError, match="sentinel_password"):
            with Dibs(f"redis+sentinel://{place}", budget=2) as dibs:
                dibs.try_hold("user:1", ttl=5)


def _guarded(dibs: Dibs) -> Callable[[], object]:
    """A sentinel that has just started does not know its master at once."""

    def hold() -> bool:
        try:
            with dibs.hold("user:1", ttl=5) as lease:
                return lease.guarded
        except Unavailable:
            return False

    return hold


def test_mistakes_in_a_sentinel_target_are_told_before_anything_is_connected() -> None:
    """Unknown options, a replica's client, an `ssl` that is neither true nor false."""
    for query in ("?nonsense=1", "?sentinel_nonsense=1", "?ssl=perhaps"):
        with pytest.raises(UsageError):
            Dibs(f"redis+sentinel://127.0.0.1:1/main{query}")
    manager = redis.sentinel.Sentinel([("127.0.0.1", 1)])
    client = manager.slave_for("main")
    with pytest.raises(UsageError, match="master_for"):
        Dibs(client)
    client.close()
