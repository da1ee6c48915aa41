# Generated from tests/behaviour/_async/test_events.py by unasync.py – do not edit.
"""What listeners receive."""

import logging

import pytest

from dibs import Dibs, Busy, Event, Unavailable
from dibs.testing import Server

from .._threads import sleep


def test_a_life_of_a_lease(server: Server) -> None:
    """acquired, busy, released, late – with their facts, in order, without personal data."""
    events: list[Event] = []
    with Dibs(server.url, budget=5, listeners=[events.append]) as dibs:
        with dibs.hold("user:U4711", ttl=5, fence=True) as lease:
            with pytest.raises(Busy):
                with dibs.hold("user:U4711", ttl=5):
                    pytest.fail("held twice")
        slow = dibs.try_hold("user:U4711", ttl=0.3, name="user:{id}")
        sleep(0.4)
        assert slow is not None
        slow.release()
    kinds = [event.kind for event in events]
    assert kinds == ["acquired", "busy", "released", "acquired", "late"]
    acquired, busy, released, _, late = events
    assert acquired.guarded is True and acquired.fence == lease.fence
    assert busy.retry_after is not None and 4 < busy.retry_after <= 5
    assert released.held is not None and late.held is not None and late.held >= 0.3
    assert late.name == "user:{id}" and acquired.name == "user:*"
    assert "U4711" not in repr(events) and lease.token not in repr(events)


def test_a_listener_that_raises_hurts_nobody(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """A failing listener is logged; the others and the caller go on."""
    seen: list[str] = []

    def broken(event: Event) -> None:
        raise RuntimeError("listener")

    listeners = [broken, lambda event: seen.append(event.kind)]
    with caplog.at_level(logging.ERROR, "dibs"):
        with (
            Dibs(server.url, budget=5, listeners=listeners) as dibs,
            dibs.hold("a:b", ttl=5),
        ):
            pass
    assert seen == ["acquired", "released"]
    assert "listener" in caplog.text


def test_an_outage_has_a_code_and_a_sentence() -> None:
    """Metrics read the code, people the sentence; it is the same for the event and the error."""
    events: list[Event] = []
    with Dibs("redis://127.0.0.1:1", listeners=[events.append]) as dibs:
        with dibs.hold("user:U4711", ttl=5):
            pass
        with pytest.raises(Unavailable) as caught:
            with dibs.hold("user:U4711", ttl=5, on_outage="closed"):
                pytest.fail("let through")
    assert {event.cause for event in events if event.kind == "outage"} == {"refused"}
    assert all(event.detail for event in events if event.kind == "outage")
    assert caught.value.cause == "refused"
    assert caught.value.detail in str(caught.value)
