# Generated from tests/behaviour/_async/test_causes.py by unasync.py – do not edit.
"""Why Redis is unavailable: event, log, exception and `dibs doctor` name the same reason."""

import socket
from collections.abc import Callable

import pytest

from dibs import Dibs, Event, Unavailable
from dibs._core.request import pack
from dibs.testing import CommandFilter, Server
from tests.doctor.examining import examine

from .._threads import eventually
from .outages import timed

REQUESTS = "ERR max requests limit exceeded. Limit: 500000, Usage: 500000."
CAPACITY = "ERR DB capacity quota exceeded"


def reported(url: str, log: pytest.LogCaptureFixture, key: str = "user:1") -> str | None:
    """The code in all three places. None: the call was guarded."""
    events: list[Event] = []
    log.clear()
    with Dibs(url, budget=5, connect=5, listeners=[events.append]) as dibs:
        if (timed(dibs, key))[1]:
            return None
        with pytest.raises(Unavailable) as caught:
            dibs.try_hold(key, ttl=5, on_outage="closed")
    [code] = {event.cause for event in events if event.kind == "outage"}
    assert caught.value.cause == code
    said = next(each.getMessage() for each in log.records if each.name == "dibs")
    assert said.startswith(f"Redis is unavailable ({code}: ")
    return code


@pytest.mark.parametrize("reply", [REQUESTS, CAPACITY])
def test_a_service_whose_quota_is_used_up_is_an_outage(
    valkey: Server, caplog: pytest.LogCaptureFixture, reply: str
) -> None:
    """Requests of this month, or the size of the database: writes are refused, in its own words."""
    caplog.set_level("INFO", "dibs")
    with CommandFilter(valkey.port) as service:
        for command in ("SET", "EVAL", "EVALSHA"):
            service.replace(command, "EVAL", f"return redis.error_reply('{reply}')", "0")
        assert reported(service.url, caplog) == "quota"
        assert examine(service.url)["quota"].severity == "error"
        service.allow_all()
        assert reported(service.url, caplog) is None


def test_a_server_that_loads_its_data_is_an_outage(
    start_server: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    """LOADING after a restart; when the data is loaded, calls are guarded again."""
    caplog.set_level("INFO", "dibs")
    debug = ("--enable-debug-command", "yes")
    server = start_server(
        "valkey", config=(*debug, "--loading-process-events-interval-bytes", "1024")
    )
    client = server.client()
    client.execute_command("DEBUG", "POPULATE", 50_000)
    client.config_set("key-load-delay", 200)
    with socket.create_connection(("127.0.0.1", server.port)) as line:
        line.sendall(pack("DEBUG", "RELOAD"))
        eventually(lambda: client.info("persistence")["loading"])
        assert reported(server.url, caplog) == "loading"
        assert "loading" in examine(server.url)
        client.config_set("key-load-delay", 0)
        eventually(lambda: not client.info("persistence")["loading"])
    assert reported(server.url, caplog) is None


@pytest.mark.only_on("linux")
def test_an_address_without_a_route_is_an_outage(caplog: pytest.LogCaptureFixture) -> None:
    """The system says at once that the network is unreachable, for example in a wrong VPC."""
    caplog.set_level("INFO", "dibs")
    url = "redis://255.255.255.255:6379"
    assert reported(url, caplog) == "unreachable"
    assert "unreachable" in examine(url)


def test_a_server_without_free_connections_is_an_outage(
    own_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """`maxclients`: until others have closed theirs."""
    caplog.set_level("INFO", "dibs")
    client = own_server.client()
    client.config_set("maxclients", 1)
    assert reported(own_server.url, caplog) == "max_clients"
    assert "max-clients" in examine(own_server.url)
    client.config_set("maxclients", 100)
    assert reported(own_server.url, caplog) is None


def test_a_cluster_with_lost_slots_is_an_outage_also_for_keys_of_its_other_nodes(
    start_server: Callable[..., Server], caplog: pytest.LogCaptureFixture
) -> None:
    """CLUSTERDOWN, unless `cluster-require-full-coverage` is no."""
    caplog.set_level("INFO", "dibs")
    server = start_server("valkey", config=("--cluster-enabled", "yes"))
    client = server.client()
    client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 12_000)  # "user:1" is in 10778
    url = server.url.replace("redis://", "redis+cluster://")
    assert reported(url, caplog) == "clusterdown"
    assert "cluster-state" in examine(url)
    client.config_set("cluster-require-full-coverage", "no")
    eventually(lambda: "cluster_state:ok" in str(client.execute_command("CLUSTER", "INFO")))
    assert reported(url, caplog) is None
    assert reported(url, caplog, "user:0") == "clusterdown"
