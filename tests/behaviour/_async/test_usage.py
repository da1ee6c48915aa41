"""Bad input: a clear error, before anything is written."""

import copy
import pickle
from datetime import timedelta
from typing import Any

import pytest

from dibs import AsyncDibs, UsageError
from dibs.testing import Server

NOWHERE = "redis://127.0.0.1:1"


@pytest.mark.parametrize(
    "ttl",
    [0, -1, float("nan"), float("inf"), "5", None, True, timedelta(0), timedelta(seconds=-1), 1e-9],
)
async def test_a_bad_ttl(ttl: Any) -> None:
    """ttl must be a positive, finite time."""
    async with AsyncDibs(NOWHERE) as dibs:
        with pytest.raises(UsageError, match="ttl"):
            dibs.hold("user:1", ttl=ttl)
        with pytest.raises(UsageError, match="ttl"):
            await dibs.try_hold("user:1", ttl=ttl)


@pytest.mark.parametrize("key", ["", "x" * 1025, "ä" * 513, None, 7, b"bytes"])
async def test_a_bad_key(key: Any) -> None:
    """A key is a non-empty string of at most 1024 bytes."""
    async with AsyncDibs(NOWHERE) as dibs:
        with pytest.raises(UsageError, match="key"):
            dibs.hold(key, ttl=5)
        with pytest.raises(UsageError, match="key"):
            await dibs.peek(key)


async def test_a_client_is_not_pickled() -> None:
    """A process that is spawned needs one of its own: the error says so."""
    async with AsyncDibs(NOWHERE) as dibs:
        for copied in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(UsageError, match="create one in each process"):
                copied(dibs)


async def test_other_bad_options() -> None:
    """wait, max_hold, on_outage, budget: checked where they enter."""
    async with AsyncDibs(NOWHERE) as dibs:
        with pytest.raises(UsageError, match="wait"):
            dibs.hold("user:1", ttl=5, wait=-1)
        with pytest.raises(UsageError, match="max_hold"):
            dibs.hold("user:1", ttl=5, renew=True, max_hold=0)
        with pytest.raises(UsageError, match="renew"):
            dibs.hold("user:1", ttl=5, max_hold=60)
        with pytest.raises(UsageError, match="max_hold"):
            dibs.hold("user:1", ttl=5, renew=True, max_hold=3)
        with pytest.raises(UsageError, match="on_outage"):
            dibs.hold("user:1", ttl=5, on_outage="maybe")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="budget"):
        AsyncDibs(NOWHERE, budget=0)
    with pytest.raises(UsageError, match="on_outage"):
        AsyncDibs(NOWHERE, on_outage="ajar")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "target",
    ["http://localhost", "localhost:6379", "", "redis+sentinel://h:1", "redis+cluster://", 7, None],
)
async def test_a_bad_target(target: Any) -> None:
    """An unknown scheme or a URL without its parts: UsageError that names the known ones."""
    with pytest.raises(UsageError):
        AsyncDibs(target)


async def test_times_may_be_timedeltas(valkey: Server) -> None:
    """Seconds, float or timedelta."""
    async with AsyncDibs(valkey.url, budget=timedelta(milliseconds=250)) as dibs:
        async with dibs.hold("user:1", ttl=timedelta(seconds=5), wait=timedelta(0)) as lease:
            assert 4 < lease.remaining <= 5


async def test_a_usage_error_is_a_value_error() -> None:
    """Frameworks that know ValueError know UsageError."""
    assert issubclass(UsageError, ValueError)


async def test_keys_and_times_that_python_cannot_digest(valkey: Server) -> None:
    """A lone surrogate, an endless integer: UsageError, not the exception from below."""
    async with AsyncDibs(valkey.url, budget=5) as dibs:
        with pytest.raises(UsageError, match="Unicode"):
            dibs.hold("user:\ud800", ttl=5)
        with pytest.raises(UsageError, match="ttl"):
            dibs.hold("user:1", ttl=10**400)
