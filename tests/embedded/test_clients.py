"""An embedded server behind `Dibs` and `AsyncDibs`."""

import os
import signal

import pytest
import redis

from dibs import AsyncDibs, Dibs
from dibs.testing import eventually

pytestmark = pytest.mark.only_on("linux", "darwin")


def test_a_killed_server_is_started_again() -> None:
    """The embedded server was killed: an outage, and then a new server at the same place."""
    with Dibs("embedded://") as dibs:
        with dibs.hold("user:1", ttl=5) as lease:
            assert lease.guarded
        assert dibs._store._embedded is not None
        with redis.Redis.from_url(dibs._store._embedded._server.url) as client:
            os.kill(client.info("server")["process_id"], signal.SIGKILL)

        def guarded() -> bool:
            with dibs.hold("user:1", ttl=5) as lease:
                return lease.guarded

        eventually(guarded, within=90)


async def test_the_front_door_of_asyncio() -> None:
    """AsyncDibs("embedded://") works without any set-up."""
    async with AsyncDibs("embedded://") as dibs, dibs.hold("user:1", ttl=5) as lease:
        assert lease.guarded
