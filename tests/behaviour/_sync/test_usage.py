# Generated from tests/behaviour/_async/test_usage.py by unasync.py – do not edit.
"""Bad input: a clear error, before anything is written."""

import copy
import gc
import inspect
import pickle
from datetime import timedelta
from typing import Any

import pytest

from dibs import Dibs, Busy, Unavailable, UsageError, errors
from dibs.testing import Server

NOWHERE = "redis://127.0.0.1:1"


@pytest.mark.parametrize(
    "ttl",
    [0, -1, float("nan"), float("inf"), "5", None, True, timedelta(0), timedelta(seconds=-1), 1e-9],
)
def test_a_bad_ttl_is_refused(ttl: Any) -> None:
    """ttl must be a positive, finite time."""
    with Dibs(NOWHERE) as dibs:
        with pytest.raises(UsageError, match="ttl"):
            dibs.hold("user:1", ttl=ttl)
        with pytest.raises(UsageError, match="ttl"):
            dibs.try_hold("user:1", ttl=ttl)


@pytest.mark.parametrize("key", ["", "x" * 1025, "ä" * 513, None, 7, b"bytes"])
def test_a_bad_key_is_refused(key: Any) -> None:
    """A key is a non-empty string of at most 1024 bytes."""
    with Dibs(NOWHERE) as dibs:
        with pytest.raises(UsageError, match="key"):
            dibs.hold(key, ttl=5)
        with pytest.raises(UsageError, match="key"):
            dibs.peek(key)


def test_a_client_is_not_pickled() -> None:
    """A spawned process needs its own client: the error says so."""
    with Dibs(NOWHERE) as dibs:
        for copied in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(UsageError, match="create one in each process"):
                copied(dibs)


def test_other_bad_options_are_refused() -> None:
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
def test_a_bad_target_is_refused(target: Any) -> None:
    """An unknown scheme or a URL without its parts: UsageError that names the known ones."""
    with pytest.raises(UsageError):
        Dibs(target)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("redis://h/abc", "database"),
        ("redis://h/-1", "database"),
        ("redis://h/1/2", "database"),
        ("redis://h/1.5", "database"),
        ("redis://h?db=-1", "database"),
        ("redis://h?db=one", "database"),
        ("rediss://h:6380/abc", "database"),
        ("redis://h:99999", "port"),
        ("redis://h:0", "port"),
        ("redis://h:-1", "port"),
        ("redis://h:six", "port"),
        ("redis://h?unknown=1", "unknown"),
        ("redis://h?ssl_ca_certs=/ca.pem", "ssl_ca_certs"),
        ("redis://h?protocol=4", "protocol"),
        ("unix://run/redis.sock", "unix:///path"),
        ("unix://", "unix:///path"),
        ("unix:///run/redis.sock?db=x", "database"),
        ("redis+sentinel://h:26379/mymaster/abc", "database"),
        ("redis+sentinel://h:26379/mymaster/1/2", "database"),
        ("redis+sentinel://h:99999/mymaster", "host:port"),
        ("redis+sentinel://h:0/mymaster", "host:port"),
        ("redis+sentinel://h:26379/mymaster?unknown=1", "unknown"),
        ("redis+cluster://h:99999", "host:port"),
        ("redis+cluster://h:7000/1", "single database"),
        ("redis+cluster://h:7000?db=1", "single database"),
    ],
)
def test_a_part_of_a_url_that_is_wrong(target: str, said: str) -> None:
    """Before anything is connected, and never another server or database than the URL says."""
    with pytest.raises(UsageError, match=said):
        Dibs(target)


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        ("redis://", "localhost:6379/0"),
        ("redis://h", "h:6379/0"),
        ("redis://h/", "h:6379/0"),
        ("redis://h/2/", "h:6379/2"),
        ("redis://h/2?db=3", "h:6379/3"),
        ("redis://h:6380/15", "h:6380/15"),
        ("redis://[::1]:6380/2", "[::1]:6380/2"),
        ("redis://u:p%2F0@h:6380/2", "h:6380/2"),
        ("unix:///run/redis.sock?db=2", "/run/redis.sock/2"),
        ("unix://u:p@/run/redis.sock", "/run/redis.sock/0"),
        ("unix://localhost/run/redis.sock", "/run/redis.sock/0"),
        ("redis+cluster://h:7000/0", "cluster h:7000"),
    ],
)
def test_urls_that_redis_py_reads(target: str, shown: str) -> None:
    """They mean the same here."""
    assert f"at {shown}," in repr(Dibs(target))


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


def test_a_class_is_no_function(valkey: Server) -> None:
    """Every decorator refuses it; its stored result would be an unexpected object."""

    class Menu: ...

    with Dibs(valkey.url, budget=5) as dibs:
        for decorate in (
            dibs.cached("menu", ttl=5),
            dibs.cached_many("menu:{item}", ttl=5),
            dibs.exclusive("menu", ttl=5),
            dibs.once("menu", window=5),
            dibs.scheduled(every=60, key="menu"),
        ):
            with pytest.raises(UsageError, match="a class cannot be wrapped"):
                decorate(Menu)


@pytest.mark.parametrize("cron", [5, b"0 3 * * *", ["0 3 * * *"], 0.5, True])
def test_a_schedule_that_is_no_text_is_refused(cron: Any) -> None:
    """With a sentence that names what it should be."""
    dibs = Dibs("redis://127.0.0.1:1")
    with pytest.raises(UsageError, match="a cron expression is a text such as"):
        dibs.scheduled(cron, key="tick")


def entered(dibs: Dibs) -> list[Any]:
    """One of each that does nothing before it is entered."""
    return [
        dibs.hold("user:1", ttl=5),
        dibs.claim("order:1", window=5),
        dibs.leader("poller"),
        dibs.scheduler(),
    ]


def look_at_each(dibs: Dibs) -> None:
    for each in entered(dibs):
        with pytest.raises(UsageError, match="neither true nor false: enter it, `"):
            assert each
        with pytest.raises(UsageError, match=r"cannot be called.*with dibs\."):
            each(len)
        with pytest.raises(UsageError, match="nor is it called"):
            inspect.signature(each)
        with pytest.raises(AttributeError, match=r"no such attribute.*: enter it, `"):
            each.release()
        assert "1" not in repr(each)
        assert "not " in repr(each)


def forget(dibs: Dibs) -> None:
    dibs.hold("user:1", ttl=5)
    gc.collect()


def test_what_must_be_entered_is_not_taken_for_its_outcome() -> None:
    """`if dibs.hold(…)` would go on without the key."""
    with Dibs(NOWHERE) as dibs:
        with pytest.warns(RuntimeWarning, match="does nothing: enter it, `.*with dibs"):
            look_at_each(dibs)


def test_a_block_that_is_forgotten_is_reported() -> None:
    """The statement alone holds nothing, and says so; what was entered, or refused, does not."""
    with Dibs(NOWHERE) as dibs:
        with pytest.warns(RuntimeWarning, match=r"Hold of user:\*, not entered> does nothing"):
            forget(dibs)
        with dibs.hold("user:1", ttl=5) as lease:
            assert not lease.guarded
        with pytest.raises(Unavailable):
            with dibs.hold("user:1", ttl=5, on_outage="closed"):
                raise AssertionError
        gc.collect()


def test_a_client_has_its_errors(valkey: Server) -> None:
    """A client that is called dibs hides the module: `except dibs.Busy` works all the same."""
    with Dibs(valkey.url) as dibs, dibs.hold("user:1", ttl=5):
        with pytest.raises(Busy) as caught:
            with dibs.hold("user:1", ttl=5):
                raise AssertionError
        assert isinstance(caught.value, dibs.Busy)
    for name in ("Busy", "DibsError", "Duplicate", "LeaseLost", "Mismatch", "Unavailable"):
        assert getattr(Dibs, name) is getattr(errors, name)
    assert Dibs.UsageError is UsageError


def test_a_subclass_is_what_is_entered() -> None:
    """`with` gives the client that it was given."""

    class Shop(Dibs):
        pass

    shop = Shop(NOWHERE)
    with shop as entered_shop:
        assert entered_shop is shop
