"""The guard sees what the application sees. See `two_readers`, and `selected_readers`."""

import pytest

from dibs.testing import Server

from . import selected_readers
from .two_readers import FRAMEWORKS, compare

REQUESTS = 400


# Starlette leaves the file of a part open that has no end.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("framework", FRAMEWORKS)
async def test_the_guard_sees_what_the_application_sees(valkey: Server, framework: str) -> None:
    """Random names, spellings, repeated lines and encodings: each submission runs once, its
    response goes to nobody else, and no ordinary request is refused.
    """
    counts = await compare(framework, valkey, REQUESTS, seed=1)
    assert min(counts["ran"], counts["replayed"], counts["refused"], counts["mismatch"]) > 5, counts


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("framework", selected_readers.FRAMEWORKS)
async def test_the_guard_selects_what_the_application_reads(valkey: Server, framework: str) -> None:
    """`by=` of a query, a header, JSON and forms: one effect for each user, written in whatever
    way, and no ordinary request is refused.
    """
    counts = await selected_readers.compare(framework, valkey, REQUESTS, seed=1)
    assert min(counts["ran"], counts["refused"], counts["odd"]) > 5, counts
