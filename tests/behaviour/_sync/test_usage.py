# Generated from tests/behaviour/_async/test_usage.py by unasync.py – do not edit.
"""Bad input: a clear error, before anything is written."""

import copy
import pickle
from datetime import timedelta
from typing import Any

import pytest

from dibs import Dibs, UsageError
from dibs.testing import Server

NOWHERE = "redis://127.0.0.1:1"


@pytest.mark.parametrize(
    "ttl",
    [0, -1, float("nan"), float("inf"), "5", None, True, timedelta(0), timedelta(seconds=-1), 1e-9],
)
def test_a_bad_ttl(ttl: Any) -> None:
    """ttl must be a positive, finite time."""
    with Dibs(NOWHERE) as dibs:
        with pytest.raises(UsageError, match="ttl"):
            dibs.hold("user:1", ttl=ttl)
        with pytest.raises(UsageError, match="ttl"):
            dibs.try_hold("user:1", ttl=ttl)


@pytest.mark.parametrize("key", ["", "x" * 1025, "ä" * 513, None, 7, b"bytes"])
def test_a_bad_key(key: Any) -> None:
    """A key is a non-empty string of at most 1024 bytes."""
    with Dibs(NOWHERE) as dibs:
        with pytest.raises(UsageError, match="key"):
            dibs.hold(key, ttl=5)
        with pytest.raises(UsageError, match="key"):
            dibs.peek(key)


def test_a_client_is_not_pickled() -> None:
    """A process that is spawned needs one of its own: the error says so."""
    with Dibs(NOWHERE) as dibs:
        for copied in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(UsageError, match="create one in each process"):
                copied(dibs)


def test_other_bad_options() -> None:
    """wait, max_hold, on_outage, budget: checked where they enter."""
    with Dibs(NOWHERE) as dibs:
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
        Dibs(NOWHERE, budget=0)
    with pytest.raises(UsageError, match="on_outage"):
        Dibs(NOWHERE, on_outage="ajar")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "target",
    ["http://localhost", "localhost:6379", "", "redis+sentinel://h:1", "redis+cluster://", 7, None],
)
def test_a_bad_target(target: Any) -> None:
    """An unknown scheme or a URL without its parts: UsageError that names the known ones."""
    with pytest.raises(UsageError):
        Dibs(target)


def test_times_may_be_timedeltas(valkey: Server) -> None:
    """Seconds, float or timedelta."""
    with Dibs(valkey.url, budget=timedelta(milliseconds=250)) as dibs:
        with dibs.hold("user:1", ttl=timedelta(seconds=5), wait=timedelta(0)) as lease:
            assert 4 < lease.remaining <= 5


def test_a_usage_error_is_a_value_error() -> None:
    """Frameworks that know ValueError know UsageError."""
    assert issubclass(UsageError, ValueError)


def test_keys_and_times_that_python_cannot_digest(valkey: Server) -> None:
    """A lone surrogate, an endless integer: UsageError, not the exception from below."""
    with Dibs(valkey.url, budget=5) as dibs:
        with pytest.raises(UsageError, match="Unicode"):
            dibs.hold("user:\ud800", ttl=5)
        with pytest.raises(UsageError, match="ttl"):
            dibs.hold("user:1", ttl=10**400)
