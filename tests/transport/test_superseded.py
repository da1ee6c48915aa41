"""Connections of requests that were sent again on another connection."""

import socket
import sys
import threading
from collections.abc import Iterator

import pytest

from dibs._core.request import Request
from dibs._transport.pool import ThreadConnection
from dibs._transport.pooled import Superseded


@pytest.fixture
def switching() -> Iterator[None]:
    """Threads take turns as often as Python lets them."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Line:
    """Stands for redis-py's connection: a socket pair without a reader."""

    protocol = 3

    def __init__(self) -> None:
        self._sock, self._other = socket.socketpair()

    def disconnect(self) -> None:
        self._sock.close()
        self._other.close()


def test_a_second_connection_of_the_same_key_replaces_the_first() -> None:
    """The first is closed at once, not left to the garbage collector."""
    first, second = ThreadConnection(Line(), 1.0), ThreadConnection(Line(), 1.0)
    kept = Superseded()
    kept.keep(b"user:1", first)
    kept.keep(b"user:1", second)
    assert first.is_closed
    assert not second.is_closed
    kept.close()
    assert second.is_closed


@pytest.mark.usefixtures("switching")
def test_threads_keep_and_follow_at_the_same_time() -> None:
    """A thread that releases a key gets no error from the connections of other threads."""
    kept, errors = Superseded(), list[Exception]()

    def work(start: int) -> None:
        try:
            for number in range(start, start + 600):
                key = b"%d" % (number * 7919 % 40)
                if number % 2:
                    kept.keep(key, ThreadConnection(Line(), 1.0))
                else:
                    kept.follow(Request(b"", 1, key, 1.0))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(start,)) for start in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept.close()
    assert errors == []
