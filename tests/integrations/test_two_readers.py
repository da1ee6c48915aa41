"""The guard's idea of who, where and what is the application's. See `two_readers`."""

import pytest

from dibs.testing import Server

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
