"""A server of the user's own, named by DIBS_TEST_URL: tests can ask it, but not stop it."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

from dibs.testing import Server

URL = "DIBS_TEST_URL"


class OutsideServer(Server):
    """Answers the questions of tests; a test that would have to hurt it is skipped.

    Tests delete everything in its database, so one that is not empty at the beginning is refused.
    """

    def __init__(self, url: str) -> None:
        self.engine = "own"
        self._url = url
        self._own_commands = Counter[str]()
        self._process = None
        self._client = redis.Redis.from_url(url, protocol=2, socket_timeout=5)
        if self.keys():
            pytest.exit(
                f"{URL}: the database is not empty, and tests would delete what is in it", 4
            )
        self.version = self._read_version()

    @classmethod
    def named(cls) -> OutsideServer | None:
        """The one that the environment names, if it does."""
        return cls(os.environ[URL]) if URL in os.environ else None

    @property
    def url(self) -> str:
        """Where it is."""
        return self._url

    def __repr__(self) -> str:
        version = ".".join(map(str, getattr(self, "version", ())))
        return f"<OutsideServer {version}>"  # its URL may have a password

    @property
    def port(self) -> int:
        """Its port, if a client without a URL finds what tests wrote: here, plain, database 0."""
        parts = urlsplit(self._url)
        if parts.hostname not in ("127.0.0.1", "localhost") or parts.scheme in ("rediss", "unix"):
            pytest.skip("NOT TESTED: the server is not on this machine, or speaks TLS")
        if self.client().get_connection_kwargs().get("db", 0):
            pytest.skip("NOT TESTED: it leads to database 0, and the URL names another one")
        return parts.port or 6379

    @property
    def unix_path(self) -> str:
        """Unknown."""
        pytest.skip("NOT TESTED: the Unix socket of this server is not known")

    def client(self) -> redis.Redis:
        """A plain client for looking from outside."""
        assert self._client is not None
        return self._client

    def flush(self) -> None:
        """Forget all keys of this database and all scripts."""
        before = self.commands("config")  # which Valkey runs by itself, for Lua
        self._ask_server("FLUSHDB")
        self._ask_server("SCRIPT", "FLUSH")
        self._own_commands["config"] += self.commands("config") - before

    def freeze(self) -> None:
        """Skip: a server that is not ours must not be stopped."""
        pytest.skip("NOT TESTED: this server is not ours to stop")

    kill = restart = thaw = freeze

    def close(self) -> None:
        """Leave it alone."""
        self.client().close()

    def _ask_server(self, *words: str) -> Any:
        connection = self.client().connection_pool.get_connection()
        try:
            connection.send_command(*words)
            reply = connection.read_response()
        finally:
            self.client().connection_pool.release(connection)
        self._own_commands[words[0].lower()] += 1
        return reply
