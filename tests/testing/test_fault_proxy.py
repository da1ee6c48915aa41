"""`dibs.testing.FaultProxy`: each fault is what it is called."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest
import redis
import redis.asyncio

from dibs.testing import (
    Certificates,
    FaultProxy,
    Server,
    eventually,
)

from .clients import SHORT, answer, caller, has_reply, is_silent, wire


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
    with caller(proxy.url, timeout=SHORT) as client:
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
    """No client ever gets another request's reply: after a gap there is nothing."""
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
    with caller(proxy.url, timeout=SHORT) as client:
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
    """Old and new connections hang; after healing, connections that lost nothing continue."""
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
        proxy.delay(replies=1.0)
        connection.sendall(b"SET key 1\r\n")
        eventually(valkey.keys)
        assert not has_reply(connection)
        assert connection.recv(5) == b"+OK\r\n"
        valkey.flush()
        proxy.delay(requests=1.0)
        started = time.monotonic()
        connection.sendall(b"SET key 1\r\n")
        assert not valkey.keys()
        assert connection.recv(5) == b"+OK\r\n"
        assert time.monotonic() - started > 0.99


def test_delayed_replies_overlap_and_keep_their_order(proxy: FaultProxy) -> None:
    """Ten requests on a long line take one delay, not ten, and no reply overtakes another."""
    proxy.delay(replies=1.0)
    with wire(proxy.port) as connection, connection.makefile("rb") as stream:
        started = time.monotonic()
        for turn in range(10):
            connection.sendall(b"ECHO %d\r\n" % turn)
            time.sleep(0.005)
        echoes = [(stream.readline(), stream.readline())[1] for _ in range(10)]
        assert time.monotonic() - started < 9
    assert echoes == [b"%d\r\n" % turn for turn in range(10)]


def test_a_torn_reply_arrives_in_pieces(proxy: FaultProxy) -> None:
    """No read gets more than a piece at a time, and in the end all has arrived."""
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


def test_requests_or_replies_of_one_connection_are_late(valkey: Server, proxy: FaultProxy) -> None:
    """The others go on; what a client has left on its connection arrives all the same."""
    with wire(proxy.port) as other:
        with wire(proxy.port) as connection:
            proxy.hold_replies(match=b"INCR")
            connection.sendall(b"INCR key\r\n")
            assert is_silent(connection)
            assert answer(other, b"INCR key\r\n") == b":2\r\n"
            proxy.hold_requests(match=b"INCR")
            proxy.deliver()
            connection.settimeout(5)
            assert connection.recv(100) == b":1\r\n"
            connection.sendall(b"INCR key\r\n")
            assert is_silent(connection)
        assert answer(other, b"GET key\r\n") == b"$1\r\n2\r\n"
        assert proxy.triggered == 2
        proxy.deliver()
        eventually(lambda: valkey.client().get("key") == b"3")


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
        with caller(proxy.url, timeout=SHORT) as client, pytest.raises(redis.TimeoutError):
            client.ping()


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
        received = connection.recv(4096)
    assert b"before" in received
    assert b"after" in received
    assert b"lost" not in received


def test_a_dead_target_resets_the_caller(own_server: Server) -> None:
    """The proxy adds no hang, whether the server died before or meanwhile."""
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
    async with redis.asyncio.Redis.from_url(proxy.url, retry=None, socket_timeout=60) as client:
        proxy.cut_after_request(match=b"SET\r\n")
        with pytest.raises(redis.ConnectionError):
            await client.set("key", "1")
        proxy.swallow_replies(match=b"GET\r\n")
        hasty = redis.asyncio.Redis.from_url(proxy.url, retry=None, socket_timeout=2)
        async with hasty:
            with pytest.raises(redis.TimeoutError):
                await hasty.get("key")
        assert await client.get("key") == b"1"


def test_a_cut_during_a_tls_handshake_ends_the_connection(valkey: Server, tmp_path: Path) -> None:
    """A client that is still shaking hands does not end up on a line that leads nowhere."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        FaultProxy(valkey.port, tls=Certificates(tmp_path)) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as client,
    ):
        proxy.cut()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            with context.wrap_socket(client, do_handshake_on_connect=False) as secure:
                secure.do_handshake()
                secure.sendall(b"PING\r\n")
                assert secure.recv(100) == b""


def test_a_cut_reaches_clients_that_have_just_connected(proxy: FaultProxy) -> None:
    """Clients that have connected before the call are cut off, later ones are not."""
    clients = [socket.create_connection(("127.0.0.1", proxy.port), timeout=10) for _ in range(5)]
    proxy.cut()
    for client in clients:
        with client, contextlib.suppress(ConnectionError):
            client.sendall(b"PING\r\n")
            assert client.recv(100) == b""
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=10) as later:
        later.sendall(b"PING\r\n")
        assert later.recv(100) == b"+PONG\r\n"
