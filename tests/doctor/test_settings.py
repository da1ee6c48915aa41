"""Settings of a server that are bad for dibs: each is found, and its fix works."""

import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from dibs._core.request import pack
from dibs.testing import CommandFilter, Server, eventually

from .examining import apply, examine

StartServer = Callable[..., Server]


@pytest.mark.parametrize(
    ("code", "severity", "settings"),
    [
        ("eviction", "warning", {"maxmemory-policy": "allkeys-lru"}),
        ("eviction", "error", {"maxmemory-policy": "allkeys-lru", "maxmemory": "1gb"}),
        ("eviction", "error", {"maxmemory-policy": "volatile-ttl", "maxmemory": "1gb"}),
        ("tracking-table", "warning", {"tracking-table-max-keys": "100"}),
        ("idle-timeout", "warning", {"timeout": "30"}),
        ("idle-timeout", "note", {"timeout": "300"}),
        ("keepalive", "note", {"tcp-keepalive": "0"}),
        ("persistence", "note", {"appendonly": "no"}),
        ("no-replicas", "error", {"min-replicas-to-write": "1"}),
        ("memory", "error", {"maxmemory": "1mb"}),
    ],
)
def test_a_setting_is_found_and_its_fix_works(
    own_server: Server, code: str, severity: str, settings: dict[str, str]
) -> None:
    """The finding has the right severity, names the command, and is gone after it."""
    client = own_server.client()
    for name, value in settings.items():
        client.config_set(name, value)
    finding = examine(own_server.url)[code]
    assert finding.severity == severity
    apply(finding, own_server)
    assert code not in examine(own_server.url)


def test_eviction_is_found_without_the_right_to_read_the_configuration(own_server: Server) -> None:
    """INFO has the policy, too."""
    own_server.client().config_set("maxmemory-policy", "volatile-lru")
    own_server.client().execute_command(
        "ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all", "-config"
    )
    url = own_server.url.replace("://", "://app:secret@")
    assert "eviction" in examine(url)


def test_the_clock_is_compared_with_that_of_the_server(valkey: Server) -> None:
    """A clock that is wrong by minutes is found, and that it is behind."""
    valkey.client().rpush("clock", int(time.time()) + 300, 0)
    with CommandFilter(valkey.port) as line:
        line.replace("TIME", "LRANGE", "clock", "0", "-1")
        finding = examine(line.url)["clock"]
        assert "behind" in finding.seen and finding.severity == "error"
        assert "do not run on this machine" in finding.why
        line.allow_all()
        assert "clock" not in examine(line.url)


def test_latency_is_compared_with_the_budget_and_the_budget_that_is_named_suffices(
    valkey: Server,
) -> None:
    """Half of the budget is when a request is sent again."""
    finding = examine(valkey.url, budget=1e-6)["latency"]
    assert finding.severity == "error"
    assert "latency" not in examine(valkey.url, budget=30)
    assert float(finding.fix.rpartition("--budget ")[2].rstrip(".")) >= 0.05


def send(server: Server, *words: str | int) -> socket.socket:
    """Send a command, and do not wait for its reply."""
    line = socket.create_connection(("127.0.0.1", server.port))
    line.sendall(pack(*words))
    return line


def test_a_script_that_does_not_end_is_found_and_can_be_killed(start_server: StartServer) -> None:
    """The server answers BUSY to everything else."""
    server = start_server(config=("--lua-time-limit", "10"))
    with send(server, "EVAL", "while true do end", 0):
        finding = eventually(lambda: examine(server.url).get("busy"))
        assert finding
        apply(finding, server)
        eventually(lambda: "busy" not in examine(server.url))


def test_a_server_that_loads_its_data_is_found(start_server: StartServer) -> None:
    """It answers LOADING; when it has loaded, the finding is gone."""
    server = start_server(
        config=(
            *("--enable-debug-command", "yes"),
            *("--loading-process-events-interval-bytes", "1024"),
        )
    )
    client = server.client()
    client.execute_command("DEBUG", "POPULATE", 100_000)
    client.config_set("key-load-delay", 100)
    with send(server, "DEBUG", "RELOAD"):
        assert eventually(lambda: examine(server.url).get("loading"))
        client.config_set("key-load-delay", 0)
        eventually(lambda: "loading" not in examine(server.url))


def test_a_disk_that_cannot_be_written_is_found(own_server: Server) -> None:
    """After a failed snapshot the server refuses writes."""
    client = own_server.client()
    client.config_set("save", "3600 1")
    in_the_way = Path(client.config_get("dir")["dir"]) / "dump.rdb"
    in_the_way.mkdir()
    client.set("a", "1")
    client.bgsave()
    eventually(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")
    finding = examine(own_server.url)["persistence-failing"]
    assert finding.severity == "error"
    in_the_way.rmdir()
    apply(finding, own_server)
    eventually(lambda: "persistence-failing" not in examine(own_server.url))


def test_a_server_with_few_connections_left_is_found(own_server: Server) -> None:
    """Before none is left: there is room for all that the doctor and the test open at once."""
    own_server.client().config_set("maxclients", 100)
    with ExitStack() as open_:
        for _ in range(80):
            open_.enter_context(socket.create_connection(("127.0.0.1", own_server.port)))
        finding = examine(own_server.url)["max-clients"]
        assert finding.severity == "warning"
        apply(finding, own_server)
        assert "max-clients" not in examine(own_server.url)


def test_a_server_that_is_nearly_full_is_found(own_server: Server) -> None:
    """Before it refuses writes."""
    client = own_server.client()
    client.setrange("much", 30_000_000, "x")  # with SET the command would be in memory, too
    client.config_set("maxmemory", int(client.info("memory")["used_memory"] * 1.06))
    finding = examine(own_server.url)["memory"]
    assert finding.severity == "warning"
    apply(finding, own_server)
    assert "memory" not in examine(own_server.url)
