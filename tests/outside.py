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
        self._asked = Counter[str]()
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

    @property
    def port(self) -> int:
        """Its port, if it is on this machine."""
        parts = urlsplit(self._url)
        if parts.hostname not in ("127.0.0.1", "localhost") or parts.scheme.endswith("s"):
            pytest.skip("NOT TESTED: the server is not on this machine, or speaks TLS")
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
        self._ask("FLUSHDB")
        self._ask("SCRIPT", "FLUSH")

    def freeze(self) -> None:
        """Skip: a server that is not ours must not be stopped."""
        pytest.skip("NOT TESTED: this server is not ours to stop")

    kill = restart = thaw = freeze

    def close(self) -> None:
        """Leave it alone."""
        self.client().close()

    def _ask(self, *words: str) -> Any:
        connection = self.client().connection_pool.get_connection()
        try:
            connection.send_command(*words)
            reply = connection.read_response()
        finally:
            self.client().connection_pool.release(connection)
        self._asked[words[0].lower()] += 1
        return reply
