"""Events as Prometheus metrics, the figures made of them, and the alerts on the figures."""

from __future__ import annotations

import ast
import contextvars
import gc
import logging
import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest
import yaml
from prometheus_client import REGISTRY, CollectorRegistry, Counter, generate_latest
from prometheus_client.parser import text_string_to_metric_families

import dibs.claims
from dibs import AsyncDibs, Busy, Dibs, Duplicate, Event, Mismatch, UsageError
from dibs.events import Kind
from dibs.integrations.prometheus import PrometheusListener
from dibs.testing import Child, Server, eventually

ROOT = Path(__file__).parents[1]
Spawn = Callable[..., Child]
StartServer = Callable[..., Server]
Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]


class Counted:
    """A listener with a registry of its own, and what it shows."""

    def __init__(self, **options: Any) -> None:
        self.registry = CollectorRegistry()
        self.listener = PrometheusListener(self.registry, **options)

    def hear(self, kind: Any, name: str = "order:{id}", *, times: int = 1, **facts: Any) -> None:
        for _ in range(times):
            self.listener(Event(kind=kind, name=name, at=0.0, **facts))

    def get(self, metric: str, **labels: str) -> float | None:
        """The value of one series; None: there is no such series."""
        return self.registry.get_sample_value(metric, labels)

    @property
    def text(self) -> str:
        return generate_latest(self.registry).decode()


@pytest.fixture
def counted() -> Counted:
    return Counted()


def ended(counted: Counted, outcome: str, name: str) -> float | None:
    return counted.get("dibs_claims_deleted_total", name=name, outcome=outcome)


# ------------------------------------------------------------------------------------- counting


def test_every_kind_is_counted_by_name(counted: Counted) -> None:
    """Whatever can happen has a counter, and what is shown can be read by Prometheus."""
    for number, kind in enumerate(get_args(Kind), 1):
        counted.hear(kind, "a:{x}", times=number)
    for number, kind in enumerate(get_args(Kind), 1):
        assert counted.get("dibs_events_total", kind=kind, name="a:{x}") == number
    families = {family.name for family in text_string_to_metric_families(counted.text)}
    assert {"dibs_events", "dibs_claims_set", "dibs_hold_seconds", "dibs_outage"} <= families


def test_leases_on_a_real_server(valkey: Server, counted: Counted) -> None:
    """acquired, busy, released; how long it was held and waited for."""
    with Dibs(valkey.url, listeners=[counted.listener]) as ours, Dibs(valkey.url) as theirs:
        with ours.hold("report:7", ttl=5):
            with pytest.raises(Busy):
                ours.hold("report:7", ttl=5, wait=0.05).__enter__()
        with theirs.hold("report:7", ttl=5), pytest.raises(Busy):
            ours.hold("report:7", ttl=5).__enter__()
    for kind, number in (("acquired", 1), ("busy", 2), ("released", 1)):
        assert counted.get("dibs_events_total", kind=kind, name="report:*") == number
    assert counted.get("dibs_hold_seconds_count", name="report:*") == 1
    held = counted.get("dibs_hold_seconds_sum", name="report:*")
    assert held is not None and held >= 0.05
    assert counted.get("dibs_wait_seconds_count", name="report:*") == 1  # the other did not wait
    waited = counted.get("dibs_wait_seconds_sum", name="report:*")
    assert waited is not None and 0.05 <= waited < 5
    assert "dibs_claims_set_total{" not in counted.text  # a lease is no claim
    assert "report:7" not in counted.text


async def test_claims_on_a_real_server(valkey: Server, counted: Counted) -> None:
    """Set: ok, duplicate, replayed, mismatch. Deleted: ok, whatever is left in the key's place."""
    async with AsyncDibs(valkey.url, listeners=[counted.listener]) as ours:
        for after in ("release", "hold", "replay"):
            async with ours.claim(f"{after}:1", window=9, after=after, payload="a") as claim:
                claim.complete(1)
                with pytest.raises(Duplicate):
                    await ours.claim(f"{after}:1", window=9).__aenter__()
        with pytest.raises(Mismatch):
            await ours.claim("replay:1", window=9, after="replay", payload="b").__aenter__()
        async with ours.claim("replay:1", window=9, after="replay", payload="a") as again:
            assert again.replayed
    for after in ("release", "hold", "replay"):
        name = f"{after}:*"
        assert counted.get("dibs_claims_set_total", name=name, outcome="ok") == 1
        assert counted.get("dibs_claims_set_total", name=name, outcome="duplicate") == 1
        assert counted.get("dibs_claims_set_total", name=name, outcome="outage") == 0
        assert ended(counted, "ok", name) == 1
        assert ended(counted, "late", name) == ended(counted, "leaked", name) == 0
        assert counted.get("dibs_hold_seconds_count", name=name) == 1
    assert counted.get("dibs_claims_set_total", name="replay:*", outcome="replayed") == 1
    assert counted.get("dibs_claims_set_total", name="replay:*", outcome="mismatch") == 1


def test_a_claim_that_was_taken_away_is_a_failed_delete(valkey: Server, counted: Counted) -> None:
    """Its key is another's when it ends: late, and no success."""
    with Dibs(valkey.url, listeners=[counted.listener]) as ours:
        with ours.claim("order:1", window=9):
            valkey.client().set("order:1", "another", ex=9)
        assert valkey.client().get("order:1") == b"another"
    assert ended(counted, "late", "order:*") == 1
    assert ended(counted, "ok", "order:*") == 0


def test_open_claims_are_those_of_this_moment(valkey: Server, counted: Counted) -> None:
    """The gauge asks when it is read."""
    with Dibs(valkey.url, listeners=[counted.listener]) as ours:
        assert counted.get("dibs_open_claims") == 0
        with ours.claim("order:1", window=9), ours.claim("order:2", window=9):
            assert counted.get("dibs_open_claims") == 2
        assert counted.get("dibs_open_claims") == 0


def test_each_way_to_leak_has_its_cause(own_server: Server, counted: Counted) -> None:
    """Cleared, dropped, closed before its end, ended while the store was out: each told apart."""
    ours = Dibs(own_server.url, listeners=[counted.listener])
    cleared = ours.claim("cleared:1", window=9)
    cleared.__enter__()
    assert dibs.claims.clear_current_claims() == 1
    ours.claim("dropped:1", window=9).__enter__()
    gc.collect()
    with ours.claim("outage:1", window=9):
        own_server.kill()
    own_server.restart()
    kept = ours.claim("closed:1", window=9)
    eventually(lambda: counted.get("dibs_outage") == 0)
    with kept:
        ours.close()
    for cause in ("cleared", "dropped", "outage", "closed"):
        name = f"{cause}:*"
        assert counted.get("dibs_claims_leaked_total", name=name, cause=cause) == 1, cause
        assert counted.get("dibs_claims_leaked_total", name=name, cause="other") == 0
        assert ended(counted, "leaked", name) == 1
        assert ended(counted, "ok", name) == 0
    assert counted.get("dibs_open_claims") == 0


def test_a_name_that_is_held_and_then_claimed(counted: Counted) -> None:
    """Ends count as those of claims from the first claim on."""
    counted.hear("released", held=1.0, guarded=True)
    assert ended(counted, "ok", "order:{id}") is None
    counted.hear("claimed", guarded=True)
    counted.hear("released", held=1.0, guarded=True)
    assert ended(counted, "ok", "order:{id}") == 1


def test_loads_of_a_cache(valkey: Server, counted: Counted) -> None:
    """Each load is timed, and each caller is a hit or a miss."""
    with Dibs(valkey.url, listeners=[counted.listener]) as ours:
        menu = ours.cached("menu:{branch}", ttl=60)(lambda branch: branch * 2)
        assert [menu("b"), menu("b"), menu("c")] == ["bb", "bb", "cc"]
    assert counted.get("dibs_load_seconds_count", name="menu:{branch}") == 2
    assert counted.get("dibs_events_total", kind="miss", name="menu:{branch}") == 2
    assert counted.get("dibs_events_total", kind="hit", name="menu:{branch}") == 1


# ------------------------------------------------------------------------------------- outages


def test_an_outage_and_its_end(own_server: Server, counted: Counted) -> None:
    """1 while it lasts, then 0 and its length; what was let through was set by nobody."""
    with Dibs(own_server.url, listeners=[counted.listener]) as ours:
        with ours.claim("order:1", window=9):
            assert counted.get("dibs_outage") == 0
        own_server.kill()
        with ours.claim("order:1", window=9) as claim:
            assert not claim.guarded
        with ours.hold("report:1", ttl=9) as lease:
            assert not lease.guarded
        assert counted.get("dibs_outage") == 1
        own_server.restart()
        eventually(lambda: counted.get("dibs_outage") == 0)
        assert counted.get("dibs_events_total", kind="recovered", name="*") == 1
    lasted = counted.get("dibs_outage_seconds_total")
    assert lasted is not None and lasted > 0
    assert counted.get("dibs_unguarded_total", name="order:*") == 1
    assert counted.get("dibs_unguarded_total", name="report:*") == 1
    assert counted.get("dibs_claims_set_total", name="order:*", outcome="outage") == 1
    assert counted.get("dibs_claims_set_total", name="order:*", outcome="ok") == 1
    assert ended(counted, "ok", "order:*") == 1  # of the other one there was nothing to delete
    assert counted.get("dibs_hold_seconds_count", name="report:*") == 0


def test_a_server_that_cannot_serve_is_no_outage_for_ever(
    start_server: StartServer, counted: Counted
) -> None:
    """Nobody tells when it is over; the next answer does."""
    full = start_server(config=("--maxmemory", "1", "--maxmemory-policy", "noeviction"))
    with Dibs(full.url, listeners=[counted.listener]) as ours:
        with ours.hold("report:1", ttl=9) as lease:
            assert not lease.guarded
        assert counted.get("dibs_outage") == 1
        full.client().config_set("maxmemory", "0")
        with ours.hold("report:1", ttl=9) as lease:
            assert lease.guarded
    assert counted.get("dibs_outage") == 0
    assert counted.get("dibs_events_total", kind="recovered", name="*") is None


def test_a_refusal_is_no_sign_of_life(counted: Counted) -> None:
    """It may come from this very process: only an answer of the store ends an outage."""
    counted.hear("outage", cause="no answer")
    counted.hear("busy", retry_after=1.0, waited=0.0)
    counted.hear("duplicate", retry_after=1.0, state="running")
    counted.hear("local_hit")
    counted.hear("claimed", guarded=False)
    counted.hear("released", guarded=False, held=1.0)
    assert counted.get("dibs_outage") == 1
    counted.hear("claimed", guarded=True)
    assert counted.get("dibs_outage") == 0


# ------------------------------------------------------------------------------------- good manners


def test_names_without_end_are_counted_together() -> None:
    """The first ones by name, all others as one: nothing grows, no event is lost."""
    counted = Counted(most_names=3)
    for number in range(1000):
        counted.hear("claimed", f"order {number}", guarded=True)
        counted.hear("released", f"order {number}", guarded=True, held=0.1)
    names = set(re.findall(r'name="([^"]*)"', counted.text))
    assert names == {"order 0", "order 1", "order 2", "other"}
    assert counted.get("dibs_events_total", kind="claimed", name="other") == 997
    assert ended(counted, "ok", "other") == 997
    assert repr(counted.listener) == "<PrometheusListener 'dibs': 3 names>"


@pytest.mark.parametrize("name", ["\ud800", "", 'a"b\\c\nd', "x" * 10_000, "訂單:{id}"])
def test_any_name_can_be_shown(counted: Counted, name: str) -> None:
    """Also one that is no text, empty, or very long: showing the metrics never fails."""
    counted.hear("hit", name)
    families = text_string_to_metric_families(counted.text)
    samples = [each for family in families for each in family.samples]
    assert sum(each.value for each in samples if each.name == "dibs_events_total") == 1
    assert all(len(each.labels.get("name", "")) <= 200 for each in samples)


def test_it_never_raises(counted: Counted, caplog: pytest.LogCaptureFixture) -> None:
    """What cannot be counted is logged once, and hurts nobody."""
    for _ in range(3):
        counted.hear("released", guarded=True, held="long")  # type: ignore[arg-type]
    assert len([each for each in caplog.records if each.levelno >= logging.ERROR]) == 1
    counted.hear("released", guarded=True, held=1.0)
    assert counted.get("dibs_hold_seconds_sum", name="order:{id}") == 1.0


def test_many_threads_lose_nothing(counted: Counted) -> None:
    """Eight threads count into one listener, all names at once: every event is there."""

    def work() -> None:
        for number in range(500):
            name = f"n{number % 7}"
            counted.hear("claimed", name, guarded=True)
            counted.hear("completed", name, guarded=True, held=0.01)
            counted.hear("outage", name, cause="x")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = [f"n{number}" for number in range(7)]
    assert sum(ended(counted, "ok", name) or 0 for name in names) == 4000
    assert sum(counted.get("dibs_hold_seconds_count", name=name) or 0 for name in names) == 4000
    counted.hear("recovered", "*", cause="x", lasted=1.0)
    assert counted.get("dibs_outage") == 0


def test_a_registry_takes_one_listener_of_a_prefix(counted: Counted) -> None:
    """A second one is refused as a whole; with another prefix it is welcome."""
    before = counted.text
    with pytest.raises(UsageError, match="another prefix"):
        PrometheusListener(counted.registry)
    assert counted.text == before
    Counter("shop_load_seconds", "Of somebody else.", registry=counted.registry)
    with pytest.raises(UsageError, match="another prefix"):
        PrometheusListener(counted.registry, "shop")
    shop = {family.name for family in counted.registry.collect() if family.name[:4] == "shop"}
    assert shop == {"shop_load_seconds"}
    menu = PrometheusListener(counted.registry, "menu_dibs")
    menu(Event(kind="hit", name="menu:{b}", at=0.0))
    assert counted.get("menu_dibs_events_total", kind="hit", name="menu:{b}") == 1


@pytest.mark.parametrize("prefix", ["", "a-b", "1a", "a b", "ä", "a\n", "a:b"])
def test_a_prefix_must_be_one(prefix: str) -> None:
    """Told at once, and not by a Prometheus that cannot read us."""
    with pytest.raises(UsageError, match="prefix"):
        PrometheusListener(CollectorRegistry(), prefix)
    with pytest.raises(UsageError, match="most_names"):
        PrometheusListener(CollectorRegistry(), most_names=0)


def test_without_a_registry_it_is_the_global_one() -> None:
    """PrometheusListener() is all that a service with one /metrics needs."""
    listener = PrometheusListener(prefix="dibs_global_test")
    listener(Event(kind="hit", name="a", at=0.0))
    sample = {"kind": "hit", "name": "a"}
    assert REGISTRY.get_sample_value("dibs_global_test_events_total", sample) == 1


def test_nothing_else_of_dibs_needs_prometheus() -> None:
    """prometheus_client is imported in one file only."""
    for path in (ROOT / "src/dibs").rglob("*.py"):
        names = {
            name
            for node in ast.walk(ast.parse(path.read_text("utf-8")))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in [getattr(node, "module", None), *(each.name for each in node.names)]
        }
        uses = any(name and name.startswith("prometheus_client") for name in names)
        assert uses == (path.name == "prometheus.py" and path.parent.name == "integrations"), path


# --------------------------------------------------------------------------------- many processes


def _count_in_a_process(folder: str, url: str, order: str, outage: bool) -> None:
    """One worker of a service: an order that is done, one at work, and perhaps an outage."""
    import os

    os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
    from dibs import Dibs, Event
    from dibs.integrations.prometheus import PrometheusListener

    listener = PrometheusListener()
    with Dibs(url, listeners=[listener]) as dibs:
        with dibs.claim(f"order:{order}", window=9):
            pass
        with dibs.claim(f"open:{order}", window=9):
            if outage:
                listener(Event(kind="outage", name="order:*", at=0.0, cause="no answer"))
            print("open", flush=True)
            input()
    print("done", flush=True)
    input()


def _collected(folder: str) -> dict[str, float]:
    """What all processes have counted together."""
    import os

    os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
    from prometheus_client import CollectorRegistry
    from prometheus_client.multiprocess import MultiProcessCollector

    registry = CollectorRegistry()
    MultiProcessCollector(registry)
    ok = {"name": "order:*", "outcome": "ok"}
    return {
        "set": registry.get_sample_value("dibs_claims_set_total", ok),
        "held": registry.get_sample_value("dibs_hold_seconds_count", {"name": "order:*"}),
        "open": registry.get_sample_value("dibs_open_claims"),
        "outage": registry.get_sample_value("dibs_outage"),
    }


def test_processes_are_added_up(tmp_path: Path, valkey: Server, spawn: Spawn) -> None:
    """Counters and histograms of all, open claims of those that live, an outage of any."""
    workers = [
        spawn(_count_in_a_process, str(tmp_path), valkey.url, str(number), number == 0)
        for number in range(2)
    ]
    assert [worker.line() for worker in workers] == ["open", "open"]
    seen = spawn(_collected, str(tmp_path)).result()
    assert seen == {"set": 2, "held": 2, "open": 2, "outage": 1}
    for worker in workers:
        worker.tell()
    assert [worker.line() for worker in workers] == ["done", "done"]
    seen = spawn(_collected, str(tmp_path)).result()
    assert (seen["open"], seen["outage"]) == (0, 0)


# ------------------------------------------------------------------------------------- PromQL


class Samples(NamedTuple):
    """Two scrapes of one target."""

    before: dict[str, Vector]
    after: dict[str, Vector]


def scraped(registry: CollectorRegistry) -> dict[str, Vector]:
    """As Prometheus sees it: every series, with the labels of the target."""
    found: dict[str, Vector] = {}
    target = {"job": "orders", "instance": "a:1"}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            labels = frozenset((target | sample.labels).items())
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


WORD = re.compile(
    r'\s*(?:(?P<comment>#[^\n]*)|(?P<number>\d+(?:\.\d+)?(?![\w]))|(?P<text>"[^"]*")'
    r"|(?P<name>[a-zA-Z_]\w*)|(?P<sign>!=|=~|>=|==|[-+*/(){}\[\],=>])|(?P<span>\d+[smh]))"
)
SECONDS = {"s": 1, "m": 60, "h": 3600}


class PromQL:
    """Just enough of it for our expressions; whatever else is in one is an error."""

    def __init__(self, text: str, samples: Samples) -> None:
        self._words = self._split(text)
        self._samples = samples
        self.metrics: set[tuple[str, frozenset[str]]] = set()
        """Each metric that was asked for, with the labels by which it was."""

    def _split(self, text: str) -> list[str]:
        words, place = [], 0
        while text[place:].strip():
            found = WORD.match(text, place)
            assert found, f"not understood: {text[place:]!r}"
            place = found.end()
            if found.lastgroup != "comment":
                words.append(found[found.lastgroup or 0])
        return words

    def result(self) -> Vector:
        value = self._and()
        assert not self._words, f"left over: {self._words}"
        return value

    def _next(self, *expected: str) -> str:
        word = self._words.pop(0)
        assert not expected or word in expected, f"{word!r} instead of {expected}"
        return word

    def _is(self, *words: str) -> bool:
        return bool(self._words) and self._words[0] in words

    # ---- from the loosest to the tightest

    def _and(self) -> Vector:
        left = self._compared()
        while self._is("and"):
            self._next()
            right = self._compared()
            left = {labels: value for labels, value in left.items() if labels in right}
        return left

    def _compared(self) -> Vector:
        left = self._divided()
        if not self._is(">", ">=", "=="):
            return left
        sign, limit = self._next(), float(self._next())
        holds = {">": float.__gt__, ">=": float.__ge__, "==": float.__eq__}[sign]
        return {labels: value for labels, value in left.items() if holds(value, limit)}

    def _divided(self) -> Vector:
        left = self._term()
        while self._is("/"):
            self._next()
            right = self._term()
            left = {
                labels: value / right[labels] if right[labels] else math.nan  # 0 / 0
                for labels, value in left.items()
                if labels in right
            }
        return left

    def _term(self) -> Vector:
        name = self._next()
        if name == "sum":
            return self._summed()
        if name in ("increase", "rate"):
            return self._grown(name)
        metric, matchers = self._selected(name)
        return self._series(self._samples.after, metric, matchers)

    def _summed(self) -> Vector:
        by = self._labels() if self._is("by") else []
        self._next("(")
        inner = self._and()
        self._next(")")
        found: Vector = {}
        for labels, value in inner.items():
            group = frozenset((name, text) for name, text in labels if name in by)
            found[group] = found.get(group, 0.0) + value
        self._need_labels(inner, by)
        return found

    def _labels(self) -> list[str]:
        self._next("by")
        self._next("(")
        names = [self._next()]
        while self._next(",", ")") == ",":
            names.append(self._next())
        return names

    def _need_labels(self, inner: Vector, by: Iterable[str]) -> None:
        for labels in inner:
            assert set(by) <= {name for name, _ in labels}, f"by {by}: there is only {labels}"

    def _grown(self, how: str) -> Vector:
        self._next("(")
        metric, matchers = self._selected(self._next())
        self._next("[")
        span = self._next()
        self._next("]")
        self._next(")")
        before = self._series(self._samples.before, metric, matchers)
        after = self._series(self._samples.after, metric, matchers)
        length = int(span[:-1]) * SECONDS[span[-1]] if how == "rate" else 1
        # A series that begins within the range has no increase before its second sample.
        return {key: (after[key] - before[key]) / length for key in after if key in before}

    def _selected(self, metric: str) -> tuple[str, list[tuple[str, str, str]]]:
        matchers: list[tuple[str, str, str]] = []
        if self._is("{"):
            self._next()
            while not matchers or self._next(",", "}") == ",":
                matchers.append((self._next(), self._next("=", "!=", "=~"), self._next()[1:-1]))
        self.metrics.add((metric, frozenset(label for label, _, _ in matchers)))
        return metric, matchers

    def _series(
        self, scrape: dict[str, Vector], metric: str, matchers: list[tuple[str, str, str]]
    ) -> Vector:
        assert metric in self._samples.after, f"there is no {metric}"
        return {
            labels: value
            for labels, value in scrape.get(metric, {}).items()
            if all(self._fits(dict(labels), *matcher) for matcher in matchers)
        }

    def _fits(self, labels: dict[str, str], label: str, sign: str, wanted: str) -> bool:
        assert label in labels, f"there is no label {label} in {labels}"
        if sign == "=~":
            return re.fullmatch(wanted, labels[label]) is not None
        return (labels[label] == wanted) == (sign == "=")


def everything_once(counted: Counted, name: str = "order:{id}") -> None:
    """Every metric has a series: what an expression asks for is there, or will never be."""
    facts = {"guarded": True, "held": 0.1, "waited": 0.1, "took": 0.1, "lasted": 0.1}
    for kind in get_args(Kind):
        counted.hear(kind, name, cause="cleared", **facts)


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


def ends(counted: Counted, *, ok: int = 0, late: int = 0, leaked: int = 0) -> None:
    counted.hear("claimed", times=ok + late + leaked, guarded=True)
    counted.hear("completed", times=ok, held=1.0, guarded=True)
    counted.hear("late", times=late, held=1.0, guarded=True)
    counted.hear("leaked", times=leaked, held=1.0, cause="cleared")


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
        lambda c: c.hear("released", times=99, held=0.2, guarded=True),
        None,
    ),
    ("DibsLongHolds", "one", lambda c: c.hear("released", held=299.0, guarded=True), None),
    (
        "DibsLongHolds",
        "one slow stream of holds",
        lambda c: c.hear("released", times=15, held=60.0, guarded=True),
        60,
    ),
    (
        "DibsLongHolds",
        "30 s",
        lambda c: c.hear("released", times=20, held=30.0, guarded=True),
        None,
    ),
    ("DibsLongHolds", "31 s", lambda c: c.hear("completed", times=20, held=31.0, guarded=True), 31),
    ("DibsLeakedClaims", "1000", lambda c: ends(c, leaked=1000), None),
    ("DibsLeakedClaims", "1001", lambda c: ends(c, leaked=1001), 1001),
    ("DibsStoreOut", "out", lambda c: c.hear("outage", cause="x"), 1),
    ("DibsStoreOut", "and back", lambda c: (c.hear("outage"), c.hear("recovered", "*")), None),
    ("DibsUnguarded", "guarded", lambda c: c.hear("acquired", guarded=True), None),
    ("DibsUnguarded", "one is not", lambda c: c.hear("acquired", guarded=False), 1),
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
    counted.hear("claimed", times=80, guarded=True)
    counted.hear("duplicate", times=15, retry_after=1.0, state="done")
    counted.hear("replayed", times=3)
    counted.hear("mismatch")
    counted.hear("claimed", guarded=False)
    counted.hear("completed", times=60, held=0.5, guarded=True)
    counted.hear("released", times=16, held=2.0, guarded=True)
    counted.hear("late", times=2, held=9.0, guarded=True)
    counted.hear("released", held=99.0, guarded=False)
    counted.hear("leaked", cause="cleared", held=1.0)
    counted.hear("leaked", cause="something new", held=1.0)
    counted.hear("hit", times=7)
    counted.hear("local_hit")
    counted.hear("miss", times=2)


EXPECTED = {
    "lock set success rate": {"order:{id}": 80 / 100},
    "lock delete success rate": {"order:{id}": 76 / 80},
    "mean lock hold time, in seconds": {"order:{id}": (60 * 0.5 + 16 * 2 + 2 * 9) / 78},
    "open claims": {"": 3},
    "cleared claims, within an hour": {"order:{id}": 1},
    "share of duplicates": {"order:{id}": 15 / 100},
    "hit rate of a cache": {"order:{id}": 8 / 10},
    "unguarded calls per second": {"order:{id}": 1 / 300},
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
        assert by_name(found) == pytest.approx(EXPECTED[figure])


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
