# Generated from tests/behaviour/_async/test_events.py by unasync.py – do not edit.
"""What listeners receive."""

import logging
from collections.abc import Callable

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


class Tally:
    """A listener that counts holds, and wants to see everything else."""

    counted = frozenset({"acquired", "released"})

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, bool | None]] = []
        self.durations: dict[str, list[float | None]] = {"acquired": [], "released": []}
        self.seen: list[str] = []

    def counter(self, kind: str, name: str, *, guarded: bool | None) -> Callable[..., object]:
        self.asked.append((kind, name, guarded))
        return self.durations[kind].append

    def __call__(self, event: Event) -> None:
        self.seen.append(event.kind)


def test_a_listener_may_count_without_events(server: Server) -> None:
    """It is asked once for each kind and name, and told of the durations; others get events."""
    tally, seen = Tally(), list[str]()
    listeners = [tally, lambda event: seen.append(event.kind)]
    with Dibs(server.url, budget=5, listeners=listeners) as dibs:
        for number in range(3):
            with dibs.hold(f"user:U{number}", ttl=5):
                pass
        with dibs.hold("user:U1", ttl=5):
            with pytest.raises(Busy):
                with dibs.hold("user:U1", ttl=5):
                    pytest.fail("held twice")
    assert tally.asked == [("acquired", "user:*", True), ("released", "user:*", True)]
    assert tally.durations["acquired"] == [0.0] * 4
    assert [isinstance(held, float) for held in tally.durations["released"]] == [True] * 4
    assert tally.seen == ["busy"]
    assert seen == [*["acquired", "released"] * 3, "acquired", "busy", "released"]


def test_a_counter_that_raises_hurts_nobody(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither the one that is asked for it, nor what it returns."""

    class Broken(Tally):
        def counter(self, kind: str, name: str, *, guarded: bool | None) -> Callable[..., object]:
            if kind == "acquired":
                raise RuntimeError("no counter")
            return lambda seconds: 1 / 0

    tally = Tally()
    for listeners in ([Broken()], [Broken(), tally]):
        caplog.clear()
        with Dibs(server.url, budget=5, listeners=listeners) as dibs:
            with dibs.hold("a:b", ttl=5):
                pass
        assert "no counter" in caplog.text and "ZeroDivisionError" in caplog.text
    assert [len(durations) for durations in tally.durations.values()] == [1, 1]


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
