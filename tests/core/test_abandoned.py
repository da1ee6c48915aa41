"""Connections that were left with requests on them, and how the server names them."""

from dibs._core.request import (
    Abandoned,
    ClientInfo,
    ErrorReply,
    can_end,
    kill_request,
    pack,
    read_client_info,
)


def named(number: int, server: str = "server:6379") -> ClientInfo:
    return ClientInfo(b"%d" % number, b"client:%d" % number, server.encode())


def test_the_name_of_a_connection_is_what_the_server_says() -> None:
    """In either form of a text; anything else is no name, and nothing is ended by it."""
    line = "id=7 addr=10.0.0.9:4711 laddr=10.0.0.1:6379 fd=8 name= age=0"
    expected = ClientInfo(b"7", b"10.0.0.9:4711", b"10.0.0.1:6379")
    assert read_client_info(line.encode()) == read_client_info(line) == expected
    for other in (
        None,
        7,
        b"",
        b"id=7 addr=10.0.0.9:4711",
        ErrorReply("NOPERM no"),
        b"id=x addr= laddr=",
    ):
        assert read_client_info(other) is None


def test_a_connection_is_ended_by_all_its_names() -> None:
    """After a restart the id alone belongs to another client."""
    request = kill_request([named(1), named(2)])
    words = b"CLIENT KILL ID 1 ADDR client:1 LADDR server:6379".split()
    assert request.payload.startswith(pack(*words)) and request.replies == 2


def test_only_the_same_server_can_end_a_connection() -> None:
    """On another one, "there is no such client" proves nothing."""
    assert can_end(named(1), named(2))
    assert not can_end(named(1), named(2, "another:6379"))
    assert not can_end(None, named(2)) and not can_end(named(1), None)


def test_those_that_are_too_many_are_forgotten_the_oldest_first() -> None:
    """A process that is cut off again and again does not grow."""
    abandoned = Abandoned()
    for number in range(2000):
        abandoned.add(named(number), 1.0)
    assert list(abandoned.clients) == [named(number) for number in range(1000, 2000)]


def test_a_connection_by_unix_socket_is_ended_only_while_it_is_open() -> None:
    """All such connections have the same address, and after a restart its id belongs to another
    one."""
    abandoned, path = Abandoned(), "[/run/redis.sock:0]:0"
    abandoned.add(named(1, path), 1.0)
    assert abandoned.due_on(named(2, path), 1.0) == []
    abandoned.add(named(1, path), 1.0, is_open=True)
    assert abandoned.due_on(named(2, path), 1.0) == [named(1, path)]
    assert abandoned.due_on(named(2, path), 1.0) == []


def test_connections_to_another_server_are_forgotten_after_a_while() -> None:
    """What it executes late has no caller that could ask it."""
    abandoned = Abandoned()
    abandoned.add(named(1, "old:1"), 1.0)
    assert abandoned.due_on(named(2, "new:1"), 2.0) == []
    assert abandoned.due_on(named(3, "old:1"), 3.0) == [named(1, "old:1")]
    assert abandoned.due_on(None, 100.0) == [] and not abandoned.clients
