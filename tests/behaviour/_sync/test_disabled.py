# Generated from tests/behaviour/_async/test_disabled.py by unasync.py – do not edit.
"""DIBS_DISABLED=1: nothing is guarded in this process, and it is visible everywhere."""

import logging

import pytest

from dibs import Dibs, Event, UsageError
from dibs.testing import Server

NOWHERE = "redis://127.0.0.1:1"


@pytest.fixture(autouse=True)
def disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIBS_DISABLED", "1")


def test_every_verb_goes_on_unguarded(valkey: Server) -> None:
    """Also where the policy is "closed"; the store is not touched, and nothing waits."""
    events: list[Event] = []
    before = valkey.commands()
    with Dibs(valkey.url, on_outage="closed", listeners=[events.append]) as dibs:
        with dibs.hold("user:1", ttl=5, renew=True, at_least=5) as lease:
            assert not lease.guarded and not lease.lost
            with dibs.hold("user:1", ttl=5, wait=60, fence=True) as other:
                assert not other.guarded and other.fence is None
        assert dibs.try_hold("user:1", ttl=5, on_outage="closed") is not None
        assert dibs.peek("user:1") is None

        @dibs.exclusive("user:{number}", ttl=5)
        def exclusive(number: int) -> str:
            return once(number)

        @dibs.once("order:{number}", window=60, after="replay")
        def once(number: int) -> str:
            return f"order {number}"

        assert [exclusive(1) for _ in range(2)] == ["order 1", "order 1"]
        with dibs.claim("order:1", window=60, wait=60) as claim:
            assert not claim.guarded and not claim.replayed
    assert valkey.commands() == before
    assert {event.cause for event in events if event.kind == "outage"} == {"disabled"}
    assert not any(event.guarded for event in events if event.kind in ("acquired", "claimed"))


def test_cached_functions_are_called(valkey: Server) -> None:
    """Nothing is read, nothing is stored: every call loads."""
    calls = 0
    with Dibs(valkey.url, on_outage="closed") as dibs:

        @dibs.cached("menu:{number}", ttl=60, local=True)
        def menu(number: int) -> int:
            nonlocal calls
            calls += 1
            return calls

        assert [menu(1) for _ in range(3)] == [1, 2, 3]
        assert menu.invalidate(1) is False
        assert menu.refresh(1) == 4
    assert valkey.keys() == []


@pytest.mark.parametrize("target", [NOWHERE, "embedded://", "redis+cluster://127.0.0.1:1"])
def test_no_server_is_needed(target: str) -> None:
    """With any target: no server is started, and no connection is opened."""
    with Dibs(target) as dibs:
        with dibs.hold("user:1", ttl=5) as lease:
            assert not lease.guarded


def test_it_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """One WARNING on the logger dibs for each object; the calls add none."""
    with caplog.at_level(logging.DEBUG, "dibs"):
        with Dibs(NOWHERE) as dibs:
            for _ in range(3):
                assert dibs.try_hold("user:1", ttl=5) is not None
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "DIBS_DISABLED" in caplog.text


def test_it_is_read_when_the_object_is_made(
    valkey: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changing the environment later changes nothing; a value that says nothing is a mistake."""
    monkeypatch.setenv("DIBS_DISABLED", "0")
    with Dibs(valkey.url, budget=5) as dibs:
        monkeypatch.setenv("DIBS_DISABLED", "1")
        with dibs.hold("user:1", ttl=5) as lease:
            assert lease.guarded
    monkeypatch.setenv("DIBS_DISABLED", "perhaps")
    with pytest.raises(UsageError, match="DIBS_DISABLED"):
        Dibs(NOWHERE)


def test_mistakes_are_still_mistakes() -> None:
    """Bad options and targets are found on a machine where it is switched off, too."""
    with pytest.raises(UsageError):
        Dibs("localhost:6379")
    with Dibs(NOWHERE) as dibs:
        with pytest.raises(UsageError, match="ttl"):
            dibs.hold("user:1", ttl=0)
