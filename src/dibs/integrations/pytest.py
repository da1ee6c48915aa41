"""Fixtures for pytest: `dibs`, `async_dibs` and `dibs_server`, on a real Valkey.

    # conftest.py
    pytest_plugins = ["dibs.integrations.pytest"]

One server is started for the session, when a test first asks for it, and emptied for each test;
with pytest-xdist, each worker has its own. A test fails if anything in it went on unguarded.
Needs the extra `embedded`, and Linux or macOS.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from .. import AsyncDibs, Dibs, Event
from .._internal_api import Guard

if TYPE_CHECKING:
    from ..testing import Server

BUDGET, CONNECT = 5.0, 30.0
"""How long the server may stay silent, and how long opening a connection may take, in seconds: a
machine that runs tests may be busy."""


def _async_fixture() -> Any:
    """Return the decorator for async fixtures: pytest-asyncio, if installed, runs only its own."""
    if importlib.util.find_spec("pytest_asyncio") is None:
        return pytest.fixture
    return importlib.import_module("pytest_asyncio").fixture


class _Unguarded:
    """Remembers what was granted without a guard."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._lock = Guard()

    def __call__(self, event: Event) -> None:
        if event.kind == "outage" or event.guarded is False:
            with self._lock:
                self._names.append(f"{event.name} ({event.detail or event.kind})")

    def check(self) -> None:
        """Fail the test, if there was anything."""
        if self._names:
            listed = ", ".join(dict.fromkeys(self._names))
            pytest.fail(f"not guarded by dibs: {listed}", pytrace=False)


def _client_options(unguarded: _Unguarded) -> Any:
    limits = {"budget": BUDGET, "connect": CONNECT}
    return {**limits, "on_outage": "closed", "listeners": [unguarded]}


@pytest.fixture(scope="session")
def dibs_process() -> Iterator[Server]:
    """Yield the server of this session. Use `dibs_server`, which is empty."""
    from ..testing import Server  # at first use: most sessions need no server

    with Server.start() as server:
        yield server


@pytest.fixture
def dibs_server(dibs_process: Server) -> Server:
    """Return a `dibs.testing.Server`, empty: its `url` for your settings, its `keys()` to look at.

    A test that freezes or kills it uses a separate `Dibs(dibs_server.url)`.
    """
    dibs_process.flush()
    return dibs_process


@pytest.fixture
def dibs(dibs_server: Server) -> Iterator[Dibs]:
    """Yield a `Dibs` on an empty server. In an outage it raises Unavailable."""
    unguarded = _Unguarded()
    options = _client_options(unguarded)
    with Dibs(dibs_server.url, **options) as dibs:
        yield dibs
    unguarded.check()


@_async_fixture()
async def async_dibs(dibs_server: Server) -> AsyncIterator[AsyncDibs]:
    """Yield an `AsyncDibs` on an empty server, for tests that pytest-asyncio or anyio runs."""
    unguarded = _Unguarded()
    options = _client_options(unguarded)
    async with AsyncDibs(dibs_server.url, **options) as dibs:
        yield dibs
    unguarded.check()
