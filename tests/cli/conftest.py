"""A server on which something of every kind is held."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from dibs import Dibs, Lease
from dibs.testing import Server

NAMESPACE = "shop:"


class Shop(NamedTuple):
    """A server, and a client of it."""

    server: Server
    dibs: Dibs
    lease: Lease

    @property
    def url(self) -> str:
        return self.server.url


@pytest.fixture
def shop(valkey: Server) -> Iterator[Shop]:
    """A fenced lease, two permits, a claim that is done, a value, and keys of other programs."""
    valkey.client().set("bank:account", "1")
    with Dibs(valkey.url, namespace=NAMESPACE, budget=5, on_outage="closed") as dibs:
        lease = dibs.try_hold("job:nightly", ttl=600, fence=True)
        assert lease is not None
        assert dibs.try_hold("gpu:1", ttl=300, limit=2) and dibs.try_hold("gpu:1", ttl=400, limit=2)
        with dibs.claim("order:alice:7", window=500, after="replay", note="job 17") as claim:
            claim.complete("x" * 2000)
        dibs.get_or_load("menu:b1", lambda: "soup", ttl=100, tags=["branch:7"])
        yield Shop(valkey, dibs, lease)
