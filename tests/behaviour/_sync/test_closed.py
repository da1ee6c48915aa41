# Generated from tests/behaviour/_async/test_closed.py by unasync.py – do not edit.
"""A closed Dibs refuses every call."""

import time

import pytest

from dibs import Dibs, DibsError, Event, UsageError
from dibs.testing import Server

from .._threads import Background, eventually, sleep


def _refuses_everything(dibs: Dibs) -> None:
    loaded: list[str] = []

    @dibs.exclusive("user:{number}", ttl=5)
    def exclusive(number: int) -> None:
        loaded.append("exclusive")

    @dibs.once("order:{number}", window=5)
    def once(number: int) -> None:
        loaded.append("once")

    def load() -> str:
        loaded.append("load")
        return "loaded"

    with pytest.raises(UsageError, match="closed"):
        dibs.try_hold("user:1", ttl=5)
    with pytest.raises(UsageError, match="closed"):
        dibs.try_hold("user:1", ttl=5, wait=1)
    with pytest.raises(UsageError, match="closed"):
        with dibs.hold("user:2", ttl=5, renew=True):
            loaded.append("hold")
    with pytest.raises(UsageError, match="closed"):
        with dibs.claim("order:1", window=5):
            loaded.append("claim")
    for number in (1, 2):
        with pytest.raises(UsageError, match="closed"):
            exclusive(number)
        with pytest.raises(UsageError, match="closed"):
            once(number)
    with pytest.raises(UsageError, match="closed"):
        dibs.peek("user:1")
    with pytest.raises(UsageError, match="closed"):
        dibs.get_or_load("menu:1", load, ttl=60, local=True)
    with pytest.raises(UsageError, match="closed"):
        dibs.get_or_load("menu:2", load, ttl=60)
    assert loaded == []


def test_a_closed_dibs_refuses_every_verb(server: Server) -> None:
    """UsageError: also for keys that it held, claims that it ran and values that it remembered."""

    def load() -> str:
        return "before"

    dibs = Dibs(server.url, budget=5)
    lease = dibs.try_hold("user:1", ttl=60)
    claiming = dibs.claim("order:1", window=60)
    claiming.__enter__()
    dibs.get_or_load("menu:1", load, ttl=60, local=True)
    dibs.get_or_load("menu:1", load, ttl=60, local=True)
    dibs.close()
    _refuses_everything(dibs)
    assert lease is not None and lease.release() is False
    assert lease.extend(5) is False


def test_a_closed_dibs_hands_out_nothing_in_an_outage(own_server: Server) -> None:
    """Closed while the store was out: not even an unguarded lease."""
    dibs = Dibs(own_server.url, budget=0.1)
    assert dibs.try_hold("user:1", ttl=60) is not None
    own_server.kill()

    def is_out() -> bool:
        lease = dibs.try_hold("user:2", ttl=5)
        return lease is not None and not lease.guarded

    while not is_out():
        pass
    dibs.close()
    _refuses_everything(dibs)


def test_a_dibs_that_was_never_used_can_be_closed(valkey: Server) -> None:
    """Nothing connected, nothing to close: and still it is closed."""
    dibs = Dibs(valkey.url)
    dibs.close()
    dibs.close()
    _refuses_everything(dibs)
    eventually(lambda: valkey.keys() == [])


def test_a_closed_dibs_says_so(server: Server) -> None:
    """After close: a UsageError, not a hang. Closing twice is fine."""
    dibs = Dibs(server.url, budget=5)
    with dibs.hold("user:1", ttl=5):
        pass
    dibs.close()
    dibs.close()
    with pytest.raises(UsageError, match="closed"):
        with dibs.hold("user:1", ttl=5):
            pytest.fail("held on a closed dibs")


def test_a_closed_dibs_cannot_be_entered_again(valkey: Server) -> None:
    """It raises on entry, not at the first call inside: a task that was left behind must not
    continue in it."""
    dibs = Dibs(valkey.url, budget=5)
    with dibs:
        assert dibs.try_hold("user:1", ttl=5) is not None
    with pytest.raises(UsageError, match="cannot be opened again"):
        with dibs:
            pytest.fail("entered")


def test_closing_answers_everybody(valkey: Server) -> None:
    """Closed while others wait or work: none of them hangs, none gets a raw exception."""
    with Dibs(valkey.url, budget=5) as other, other.hold("user:1", ttl=60):
        dibs = Dibs(valkey.url, budget=5)
        mine = dibs.try_hold("user:2", ttl=60)
        assert mine is not None

        def wait(key: str) -> str:
            try:
                with dibs.hold(key, ttl=5, wait=60):
                    return "held"
            except DibsError as error:
                return type(error).__name__

        waiters = [Background(wait, key) for key in ("user:1", "user:1", "user:2")]
        sleep(0.3)
        since = time.monotonic()
        dibs.close()
        for waiter in waiters:
            assert waiter.result() == "UsageError"
        assert time.monotonic() - since < 30
        assert mine.release() is False


def test_closing_is_not_reported_as_an_outage(
    own_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Closed while callers wait for a connection: a UsageError, no unguarded lease, no warning."""
    events: list[Event] = []
    own_server.freeze()
    dibs = Dibs(own_server.url, budget=0.2, connect=60, listeners=[events.append])

    def hold(key: str) -> str:
        try:
            with dibs.hold(key, ttl=5) as lease:
                return f"guarded {lease.guarded}"
        except DibsError as error:
            return type(error).__name__

    callers = [Background(hold, f"user:{number}") for number in range(3)]
    sleep(0.3)
    dibs.close()
    assert [caller.result() for caller in callers] == ["UsageError"] * 3
    assert "unavailable" not in caplog.text
    assert [event.kind for event in events] == []


def test_leaving_a_block_after_closing_is_no_error(valkey: Server) -> None:
    """An application that closes dibs before its last request ends: the block ends well."""
    dibs = Dibs(valkey.url, budget=5)
    with dibs.hold("user:1", ttl=5):
        dibs.close()
