"""Clients that speak the protocol by themselves."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

from dibs.testing import (
    Child,
)

Spawn = Callable[..., Child]
SHORT = 0.3  # how long a test waits for an answer that must not come


@contextmanager
def caller(url: str, *, timeout: float = 5.0) -> Iterator[redis.Redis]:
    """A client that asks once and never tries again."""
    client = redis.Redis.from_url(url, socket_timeout=timeout, retry=Retry(NoBackoff(), 0))
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


def has_reply(connection: socket.socket) -> bool:
    """Whether something can be read now."""
    return bool(select.select([connection], [], [], 0)[0])
