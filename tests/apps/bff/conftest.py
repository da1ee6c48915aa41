"""Processes of the BFF, for the tests here."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from dibs.testing import Server

from .service import Bff, Nonsense, Run, Store, Street, running, saying


@pytest.fixture
def run() -> Iterator[Run]:
    with running() as run:
        yield run


@pytest.fixture(scope="module")
def street(servers: Callable[..., Server]) -> Iterator[Street]:
    """A store-service that takes 0.4 s, and two BFFs before it; for all who do no harm."""
    valkey = servers("valkey")
    with running() as run:
        store = Store(delay=0.4)
        run(store, first := Bff(valkey.url, store.url), second := Bff(valkey.url, store.url))
        yield Street(store, first, second)


@pytest.fixture(scope="module")
def nonsense(servers: Callable[..., Server]) -> Iterator[Nonsense]:
    with saying(200, b"") as say, running() as run:
        [bff] = run(Bff(servers("valkey").url, say.url))
        yield Nonsense(say, bff)
