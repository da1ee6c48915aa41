"""What the tests of several frameworks ask for."""

import gc
from collections.abc import Iterator

import pytest

from dibs.claims import open_claims


@pytest.fixture
def nothing_stays_open() -> Iterator[None]:
    """Every request ends its claim, however it ends."""
    yield
    gc.collect()
    assert open_claims() == 0
