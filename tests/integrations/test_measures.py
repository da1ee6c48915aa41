"""Prometheus, OpenTelemetry and the console measure the same: the same events, by one table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dibs import Dibs, Event
from dibs.console.statistics import Statistics
from dibs.testing import Server

from .prometheus.samples import Counted
from .test_opentelemetry import Metrics

NAME = "order:*"


class Measured:
    """One event after another, in each of the three."""

    def __init__(self) -> None:
        self.prometheus = Counted()
        self.otel = Metrics()
        self.console = Statistics()
        self.listeners = [self.prometheus.listener, self.otel.listener, self.console]

    def emit(self, kind: Any, name: str = NAME, **facts: Any) -> None:
        for listener in self.listeners:
            listener(Event(kind=kind, name=name, at=0.0, **facts))

    def waits(self, name: str = NAME) -> list[int]:
        return [
            int(self.prometheus.get("dibs_wait_seconds_count", name=name) or 0),
            self._points("dibs.wait.duration", name),
            self._template(name)["waits"]["count"],
        ]

    def holds(self, name: str = NAME) -> list[float]:
        shown = self._template(name)
        return [
            self.prometheus.get("dibs_hold_seconds_sum", name=name) or 0.0,
            self._points("dibs.hold.duration", name, "sum"),
            shown["held_most"] or 0.0,
        ]

    def _template(self, name: str) -> dict[str, Any]:
        [found] = [each for each in self.console.facts()["templates"] if each["name"] == name]
        return found

    def _points(self, metric: str, name: str, of: str = "count") -> Any:
        if metric not in self.otel.read():
            return 0
        points = self.otel.points(metric).values()
        return sum(getattr(each, of) for each in points if each.attributes["dibs.name"] == name)


@pytest.mark.parametrize(
    "kind", ["acquired", "busy", "waited", "claimed", "duplicate", "replayed", "resumed"]
)
@pytest.mark.parametrize("guarded", [None, False, True])
def test_a_wait_is_one_for_all(kind: str, guarded: bool | None) -> None:
    """For anything that was waited for, and any outcome; 0 s is no wait."""
    measured = Measured()
    measured.emit(kind, waited=0.0, guarded=guarded)
    assert measured.waits() == [0, 0, 0]
    measured.emit(kind, waited=0.5, guarded=guarded)
    assert measured.waits() == [1, 1, 1]


def test_a_duplicate_that_waits_is_a_wait_for_all(valkey: Server) -> None:
    """The first submission ends after the second one came: the second one's wait is counted."""
    measured = Measured()
    listeners = measured.listeners
    with Dibs(valkey.url, budget=5, listeners=listeners) as ours, Dibs(valkey.url) as theirs:
        first = theirs.claim("order:1", window=9, after="hold")
        with first, pytest.raises(Exception, match="order"):
            ours.claim("order:1", window=9, wait=0.05).__enter__()
    assert measured.waits() == [1, 1, 1]


@pytest.mark.parametrize(("kind", "field"), [("elected", "waited"), ("resigned", "held")])
def test_the_hours_of_a_leader_are_in_no_measure(kind: str, field: str) -> None:
    """It stands by for days and leads for days: neither says anything about other callers."""
    measured = Measured()
    measured.emit("released", "indexer", held=3600.0, guarded=True) if kind != "elected" else None
    measured.emit(kind, "indexer", guarded=True, **{field: 9000.0})
    measured.emit("released", "indexer", held=7200.0, guarded=True)
    assert measured.waits("indexer") == [0, 0, 0]
    assert 7200.0 not in measured.holds("indexer")


ENDS: list[tuple[str, bool | None, bool]] = [
    ("hit", None, True), ("renewed", None, True), ("invalidated", None, True),
    ("recovered", None, True), ("acquired", True, True), ("released", True, True),
    ("claimed", True, True), ("resumed", True, True), ("elected", True, True),
    ("acquired", False, False), ("claimed", False, False), ("busy", None, False),
    ("duplicate", None, False), ("local_hit", None, False), ("stale", None, False),
    ("clock_skew", None, False), ("degraded", None, False),
]  # fmt: skip


def as_event(measured: Measured, kind: Any, guarded: bool | None) -> None:
    measured.emit(kind, guarded=guarded)


def as_count(measured: Measured, kind: Any, guarded: bool | None) -> None:
    """As a client does it: no event is made for those that only count."""
    for listener in measured.listeners:
        if kind in listener.counted:
            listener.counter(kind, NAME, guarded=guarded)(None)
        else:
            listener(Event(kind=kind, name=NAME, at=0.0, guarded=guarded))


@pytest.mark.parametrize(("kind", "guarded", "ends"), ENDS)
@pytest.mark.parametrize("happens", [as_event, as_count])
def test_an_answer_ends_the_outage_for_all(
    happens: Callable[[Measured, Any, bool | None], None], kind: str, guarded: bool, ends: bool
) -> None:
    """A hit is an answer; what this process may have decided alone is none."""
    measured = Measured()
    happens(measured, kind, guarded)  # before it: no end
    measured.emit("outage", cause="silent")
    assert measured.console.is_out and measured.prometheus.get("dibs_outage") == 1
    happens(measured, kind, guarded)
    assert measured.console.is_out is not ends
    assert measured.prometheus.get("dibs_outage") == (0 if ends else 1)
    measured.emit("outage", cause="silent")
    assert measured.console.is_out and measured.prometheus.get("dibs_outage") == 1
