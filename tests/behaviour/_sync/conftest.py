# Generated from tests/behaviour/_async/conftest.py by unasync.py – do not edit.
"""What several behaviour tests ask for."""

from collections.abc import Iterator

import pytest

from dibs.claims import open_claims
from dibs.testing import FaultProxy, Server


@pytest.fixture
def nothing_stays_open() -> Iterator[None]:
    """A test ends every claim that it began."""
    yield
    assert open_claims() == 0


@pytest.fixture
def line(own_server: Server) -> Iterator[FaultProxy]:
    """A line to a server of the test's own, which can be disturbed."""
    with FaultProxy(own_server.port) as proxy:
        yield proxy
