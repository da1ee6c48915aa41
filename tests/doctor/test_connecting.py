"""Servers that cannot be asked: the reason is found, and what is named as the fix works."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from dibs.doctor.report import exit_code, findings
from dibs.testing import FaultProxy, Server
from dibs.testing.ports import bound_socket

from .examining import apply, examine, look


def code_of(url: str) -> tuple[str, int]:
    """The only error, and the exit code."""
    facts = look(url)
    found = findings(facts)
    [error] = [each for each in found if each.severity == "error"]
    return error.code, exit_code(facts, found)


@contextmanager
def answering(answer: Callable[[socket.socket], object]) -> Iterator[str]:
    """A server in Python: *answer* gets each connection."""
    listener = bound_socket()
    listener.listen(16)

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=_answer, args=(answer, client), daemon=True).start()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"redis://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def _answer(answer: Callable[[socket.socket], object], client: socket.socket) -> None:
    with client:
        try:
            answer(client)
        except OSError:
            pass


def test_a_hung_server_is_found_in_time(own_server: Server) -> None:
    """It accepts connections and does not answer; restarted, it is healthy."""
    own_server.freeze()
    assert code_of(own_server.url) == ("silent", 3)
    own_server.restart()
    assert "silent" not in examine(own_server.url)


def test_a_server_that_hangs_in_the_middle_is_found(own_server: Server) -> None:
    """What was known before is in the facts all the same."""
    with FaultProxy(own_server.port) as line:
        line.swallow_replies(10, match=b"CONFIG")
        assert code_of(line.url)[0] == "silent"


def test_a_port_where_nobody_listens_is_found(own_server: Server) -> None:
    """Connections are refused; started again, it is healthy."""
    own_server.kill()
    assert code_of(own_server.url) == ("refused", 3)
    own_server.restart()
    assert "refused" not in examine(own_server.url)


def test_a_server_that_closes_at_once_is_found() -> None:
    """Nothing is concluded about proxies from that."""
    with answering(lambda client: client.close()) as url:
        assert code_of(url) == ("closed", 3)


@pytest.mark.parametrize(
    "bytes_", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"ERROR\r\n", b"\x00\xff\xfe" * 50, b"*1\r\n*"]
)
def test_a_server_that_is_no_redis_is_found(bytes_: bytes) -> None:
    """Another service on that port: nothing is raised, and it is said."""

    def garbage(client: socket.socket) -> None:
        client.recv(1000)
        client.sendall(bytes_)

    with answering(garbage) as url:
        code, exits = code_of(url)
        assert code in ("not-redis", "closed") and exits == 3


def test_a_server_that_answers_everything_with_ok_is_not_believed() -> None:
    """Replies of the wrong kind raise nothing."""

    def nods(client: socket.socket) -> None:
        while client.recv(4096):
            client.sendall(b"+OK\r\n" * 40)

    with answering(nods) as url:
        assert code_of(url) == ("not-redis", 3)
        host = url.removeprefix("redis://")
        assert code_of(f"redis+cluster://{host},{host}") == ("not-redis", 3)


def test_a_server_that_sends_one_byte_at_a_time_costs_no_more_time() -> None:
    """Bytes keep coming, so no read is silent: the whole has a deadline."""
    stop = threading.Event()

    def dribble(client: socket.socket) -> None:
        while not stop.wait(0.05):
            client.sendall(b"+")

    with answering(dribble) as url:
        assert code_of(url) == ("silent", 3)
        stop.set()


def test_a_name_that_does_not_exist_is_found() -> None:
    """The name server says no."""
    assert code_of("redis://no-such-host.invalid:6379") == ("dns", 3)


def test_a_name_server_that_hangs_costs_no_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lookup cannot be interrupted; the doctor does not wait for it."""
    go_on = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: go_on.wait(60) and [])
    try:
        assert code_of("redis://slow.example:6379") == ("dns", 3)
    finally:
        go_on.set()


def test_a_socket_file_that_is_missing_is_found() -> None:
    """For a Unix socket there is no name and no TCP."""
    url = "unix:///nonexistent/redis.sock"
    assert code_of(url) == ("socket", 3)
    finding = examine(url)["socket"]
    assert "/nonexistent/redis.sock" in finding.seen and "unixsocket" in finding.fix
    assert "port" not in finding.fix


# ---- passwords


def test_a_missing_password_is_found(own_server: Server) -> None:
    """With the password in the URL, as the fix says, it is healthy."""
    own_server.client().config_set("requirepass", "secret")
    assert code_of(own_server.url) == ("auth-missing", 1)
    assert "auth-missing" not in examine(own_server.url.replace("://", "://:secret@"))


def test_a_password_that_the_server_does_not_have_is_found(own_server: Server) -> None:
    """Over RESP3 the server takes any; with the fix it compares it. Over RESP2 nothing works."""
    url = own_server.url.replace("://", "://:secret@")
    assert code_of(f"{url}?protocol=2") == ("auth-unset", 1)
    assert "auth-unset" in examine(own_server.url.replace("://", "://default:secret@"))
    finding = examine(url)["auth-unset"]
    assert finding.severity == "warning" and "secret" not in repr(finding)
    apply(finding, own_server, PASSWORD="secret")
    assert "auth-unset" not in examine(url) and "auth-missing" in examine(own_server.url)


@pytest.mark.parametrize("engine", ["valkey", "redis7", "redis6"])
def test_a_wrong_password_is_found_and_can_be_set(
    start_server: Callable[..., Server], engine: str
) -> None:
    """The command that sets it on the server works; the password is in no text."""
    server = start_server(engine)
    server.client().execute_command("ACL", "SETUSER", "shop", "on", ">right", "~*", "+@all")
    url = server.url.replace("://", "://shop:wrong-guess@")
    finding = examine(url)["auth-wrong"]
    assert "wrong-guess" not in repr(finding)
    apply(finding, server, PASSWORD="wrong-guess")
    assert "auth-wrong" not in examine(url)


def test_a_wrong_user_is_found(own_server: Server) -> None:
    """The server does not say which of the two is wrong, so both are named."""
    own_server.client().config_set("requirepass", "secret")
    url = own_server.url.replace("://", "://nobody:secret@")
    assert "nobody" in examine(url)["auth-wrong"].seen
    assert "auth-wrong" not in examine(url.replace("nobody", "default"))


def test_a_database_that_is_not_there_is_found(own_server: Server) -> None:
    """Its number is in the URL."""
    assert code_of(own_server.url + "/99") == ("database", 1)
    assert "database" not in examine(own_server.url + "/3")


def test_a_url_that_asks_for_a_forbidden_command_is_found(own_server: Server) -> None:
    """The command that allows it works."""
    own_server.client().execute_command(
        "ACL", "SETUSER", "app", "on", ">secret", "~*", "+@all", "-select"
    )
    url = own_server.url.replace("://", "://app:secret@") + "/1"
    apply(examine(url)["acl-connect"], own_server)
    assert "acl-connect" not in examine(url)


def test_a_server_without_free_connections_is_found(own_server: Server) -> None:
    """It refuses with a specific error; the fix raises the limit."""
    client = own_server.client()
    client.ping()
    client.config_set("maxclients", 1)
    finding = examine(own_server.url)["max-clients"]
    assert finding.severity == "error"
    client.execute_command(*finding.commands[0].split())
    assert "max-clients" not in examine(own_server.url)


def test_an_ipv6_address_is_named_as_a_url_takes_it() -> None:
    """In brackets, so that what a fix names can be pasted."""
    with socket.socket(socket.AF_INET6) as taken:
        taken.bind(("::1", 0))  # and no server listens
        where = f"[::1]:{taken.getsockname()[1]}"
        facts = look(f"redis://{where}")
    [finding] = findings(facts)
    assert finding.code == "refused" and f"at {where}:" in finding.seen
    assert facts.asked.address == where


def test_a_host_name_that_cannot_be_resolved_is_named() -> None:
    """The operator sees which of the names is wrong."""
    assert "'nowhere.invalid'" in examine("redis://nowhere.invalid:6379")["dns"].seen
