"""The alert rules, and the figures on the page: evaluated on samples of real metrics."""

from __future__ import annotations

import contextvars
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import get_args

import pytest
import yaml

import dibs.claims
from dibs.events import Kind

from .promql import PromQL, Samples, Vector, scraped
from .samples import ROOT, Counted, ends

LONG = dict.fromkeys(("elected", "resigned", "deposed"), "indexer")
LONG |= dict.fromkeys(("started", "finished", "failed", "missed"), "nightly-report")
"""Kinds of elections and schedules: their names are no names of other leases."""


def everything_once(counted: Counted, name: str = "order:{id}") -> None:
    """Emit every event once, so that every metric of an expression has a series, or never will."""
    facts = {"guarded": True, "held": 0.1, "waited": 0.1, "took": 0.1, "lasted": 0.1}
    for kind in get_args(Kind):
        counted.emit(kind, LONG.get(kind, name), cause="cleared", **facts)


def evaluated(expression: str, counted: Counted, happens: Callable[[], object]) -> Vector:
    """What the expression says after *happens*."""
    everything_once(counted)
    before = scraped(counted.registry)
    happens()
    return PromQL(expression, Samples(before, scraped(counted.registry))).result()


def by_name(vector: Vector) -> dict[str, float]:
    return {dict(labels).get("name", ""): value for labels, value in vector.items()}


@pytest.mark.parametrize(
    "wrong",
    ["dibs_claims_set", "sum by (name) (dibs_open_claims)", 'dibs_events_total{outcome="ok"}',
     "increase(dibs_nothing_total[5m])", "dibs_outage 1", "avg(dibs_outage)"],
)  # fmt: skip
def test_a_wrong_expression_is_noticed(counted: Counted, wrong: str) -> None:
    """An unknown metric, label or word: the checks below can fail."""
    with pytest.raises((AssertionError, IndexError)):
        evaluated(wrong, counted, lambda: None)


# ------------------------------------------------------------------------------------- alerts


RULES = yaml.safe_load((ROOT / "deploy/alerts.yml").read_text("utf-8"))
ALERTS = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"]}


def test_the_rules_have_the_form_that_prometheus_wants() -> None:
    """Groups of rules, each with an expression, a span, labels and annotations; no other field."""
    assert list(RULES) == ["groups"]
    for group in RULES["groups"]:
        assert set(group) <= {"name", "interval", "rules"} and group["name"]
        for rule in group["rules"]:
            assert {"alert", "expr", "labels", "annotations"} <= set(rule)
            assert set(rule) <= {"alert", "expr", "labels", "annotations", "for"}
            assert re.fullmatch(r"Dibs[A-Za-z]+", rule["alert"])
            assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s"))
            assert rule["labels"]["severity"] in ("warning", "critical")
            assert set(rule["annotations"]) == {"summary", "description"}
    assert len(ALERTS) == sum(len(group["rules"]) for group in RULES["groups"])


@pytest.mark.parametrize("alert", ALERTS)
def test_a_rule_asks_for_what_is_there(alert: str, counted: Counted) -> None:
    """Each metric and each label in it is exported; its text names labels that it has."""
    everything_once(counted)
    scrape = scraped(counted.registry)
    query = PromQL(ALERTS[alert]["expr"], Samples(scrape, scrape))
    query.result()
    assert query.metrics
    labels = {"job", "name"} if "sum by (job, name)" in ALERTS[alert]["expr"] else {"instance"}
    said = " ".join(ALERTS[alert]["annotations"].values())
    assert set(re.findall(r"\$labels\.(\w+)", said)) <= labels
    assert set(re.findall(r"\bdibs_\w+", said)) <= set(scrape)


Happening = Callable[[Counted], object]
FIRING: list[tuple[str, str, Happening, float | None]] = [
    ("DibsDeleteFailures", "nothing happens", lambda c: None, None),
    ("DibsDeleteFailures", "all is well", lambda c: ends(c, ok=500), None),
    ("DibsDeleteFailures", "one of few", lambda c: ends(c, late=1), None),
    ("DibsDeleteFailures", "nearly enough", lambda c: ends(c, late=19), None),
    ("DibsDeleteFailures", "just 5 %", lambda c: ends(c, ok=95, late=5), None),
    ("DibsDeleteFailures", "6 % late", lambda c: ends(c, ok=94, late=6), 0.06),
    ("DibsDeleteFailures", "6 % in two ways", lambda c: ends(c, ok=94, late=3, leaked=3), 0.06),
    ("DibsDeleteFailures", "all of them", lambda c: ends(c, leaked=20), 1.0),
    ("DibsLongHolds", "nothing happens", lambda c: None, None),
    (
        "DibsLongHolds",
        "quick",
        lambda c: c.emit("released", times=99, held=0.2, guarded=True),
        None,
    ),
    ("DibsLongHolds", "one", lambda c: c.emit("released", held=299.0, guarded=True), None),
    (
        "DibsLongHolds",
        "one slow stream of holds",
        lambda c: c.emit("released", times=15, held=60.0, guarded=True),
        60,
    ),
    (
        "DibsLongHolds",
        "30 s",
        lambda c: c.emit("released", times=20, held=30.0, guarded=True),
        None,
    ),
    ("DibsLongHolds", "31 s", lambda c: c.emit("completed", times=20, held=31.0, guarded=True), 31),
    ("DibsLeakedClaims", "1000", lambda c: ends(c, leaked=1000), None),
    ("DibsLeakedClaims", "1001", lambda c: ends(c, leaked=1001), 1001),
    ("DibsStoreOut", "out", lambda c: c.emit("outage", cause="x"), 1),
    ("DibsStoreOut", "and back", lambda c: (c.emit("outage"), c.emit("recovered", "*")), None),
    ("DibsUnguarded", "guarded", lambda c: c.emit("acquired", guarded=True), None),
    ("DibsUnguarded", "one is not", lambda c: c.emit("acquired", guarded=False), 1),
]


@pytest.mark.parametrize(
    ("alert", "happening", "value"),
    [(alert, happening, value) for alert, _, happening, value in FIRING],
    ids=[f"{alert}: {title}" for alert, title, _, _ in FIRING],
)
def test_an_alert_fires_when_it_must(
    alert: str, happening: Happening, value: float | None, counted: Counted
) -> None:
    """Beyond the limit, with the true value; not at the limit, not for want of numbers."""
    fired = evaluated(ALERTS[alert]["expr"], counted, lambda: happening(counted))
    assert list(fired.values()) == ([] if value is None else [pytest.approx(value)])


class Opened:
    """As much of a claim as the count of open ones wants."""

    name = "order:{id}"

    def leak(self, cause: str) -> None:
        dibs.claims.closed(self)


@contextmanager
def opened(number: int) -> Iterator[None]:
    """So many open claims in this process."""
    claims = [Opened() for _ in range(number)]
    for claim in claims:
        contextvars.Context().run(dibs.claims.opened, claim)
    try:
        yield
    finally:
        for claim in claims:
            dibs.claims.closed(claim)


@pytest.mark.parametrize(("number", "fires"), [(0, False), (1000, False), (1001, True)])
def test_too_many_open_claims(number: int, fires: bool, counted: Counted) -> None:
    """The seed's limit for what it calls the size of its thread-local: more than 1000."""
    with opened(number):
        fired = evaluated(ALERTS["DibsOpenClaims"]["expr"], counted, lambda: None)
    assert list(fired.values()) == ([1001] if fires else [])


def test_every_alert_was_seen_firing() -> None:
    """There is a case above for each of them."""
    assert {alert for alert, _, _, value in FIRING if value is not None} == set(ALERTS) - {
        "DibsOpenClaims"
    }


# ------------------------------------------------------------------------------------- the page


PAGE = (ROOT / "docs/monitoring.md").read_text("utf-8")
BLOCKS = "\n".join(re.findall(r"^```promql\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
FIGURES = dict(re.findall(r"^# (.*)\n((?:(?!#).+\n)+)", BLOCKS, re.MULTILINE))


def a_busy_hour(counted: Counted) -> None:
    """100 submissions: 80 were set, 15 duplicates, 3 replays, 1 mismatch, 1 in an outage."""
    counted.emit("claimed", times=80, guarded=True)
    counted.emit("duplicate", times=15, retry_after=1.0, state="done")
    counted.emit("replayed", times=3)
    counted.emit("mismatch")
    counted.emit("claimed", guarded=False)
    counted.emit("outage", cause="silent")
    counted.emit("outage", times=4, cause="silent", guarded=True)
    counted.emit("completed", times=60, held=0.5, guarded=True)
    counted.emit("released", times=16, held=2.0, guarded=True)
    counted.emit("late", times=2, held=9.0, guarded=True)
    counted.emit("released", held=99.0, guarded=False)
    counted.emit("leaked", cause="cleared", held=1.0)
    counted.emit("leaked", cause="something new", held=1.0)
    counted.emit("hit", times=7)
    counted.emit("local_hit")
    counted.emit("miss", times=2)


EXPECTED = {
    "lock set success rate": {"order:{id}": 80 / 100},
    "lock delete success rate": {"order:{id}": 76 / 80},
    "mean lock hold time, in seconds": {"order:{id}": (60 * 0.5 + 16 * 2 + 2 * 9) / 78},
    "open claims": {"": 3},
    "cleared claims, within an hour": {"order:{id}": 1},
    "share of duplicates": {"order:{id}": 15 / 100},
    "hit rate of a cache": {"order:{id}": 8 / 10},
    "unguarded calls per second": {"order:{id}": 1 / 300},
    "calls refused in outages, within an hour": {"order:{id}": 4},
}


@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_is_what_it_says(figure: str, counted: Counted) -> None:
    """The page's PromQL, on known events, gives the number that was counted by hand."""
    with opened(3):
        found = evaluated(FIGURES[figure], counted, lambda: a_busy_hour(counted))
    if figure.startswith("leaked claims"):
        causes = {dict(labels)["cause"]: value for labels, value in found.items() if value}
        assert causes == {"cleared": 1, "other": 1}
    else:
        others = set(LONG.values())
        shown = {name: each for name, each in by_name(found).items() if name not in others}
        assert shown == pytest.approx(EXPECTED[figure])


def test_the_page_has_every_figure_metric_and_alert() -> None:
    """Nothing is exported or watched in silence, and nothing is promised that is not there."""
    assert set(EXPECTED) <= set(FIGURES)
    counted = Counted()
    everything_once(counted)
    families = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in counted.registry.collect()
    }
    rows = dict(re.findall(r"^\| `(dibs_\w+)` \| ([^|]*)\|", PAGE, re.MULTILINE))
    assert set(rows) == families
    for name, series in scraped(counted.registry).items():
        if name in rows:
            labels = {label for key in series for label, _ in key} - {"job", "instance"}
            assert set(re.findall(r"`(\w+)`", rows[name])) == labels, name
    assert set(re.findall(r"^\| `(Dibs\w+)` \|", PAGE, re.MULTILINE)) == set(ALERTS)
