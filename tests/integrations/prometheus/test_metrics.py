"""Events as Prometheus metrics."""

from __future__ import annotations

import ast
import gc
import logging
import re
import threading
from collections.abc import Callable
from typing import get_args

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, Counter
from prometheus_client.parser import text_string_to_metric_families

import dibs.claims
from dibs import AsyncDibs, Busy, Dibs, Duplicate, Event, Mismatch, Unavailable, UsageError
from dibs.events import Kind
from dibs.integrations.prometheus import PrometheusListener
from dibs.testing import Server, eventually

from .samples import ROOT, Counted

StartServer = Callable[..., Server]


def ended(counted: Counted, outcome: str, name: str) -> float | None:
    return counted.get("dibs_claims_deleted_total", name=name, outcome=outcome)


# ------------------------------------------------------------------------------------- counting


def test_every_kind_is_counted_by_name(counted: Counted) -> None:
    """Every kind of event has a counter, and Prometheus can read the output."""
    for number, kind in enumerate(get_args(Kind), 1):
        counted.emit(kind, "a:{x}", times=number)
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


def test_the_first_hold_of_a_name_is_an_increase(counted: Counted) -> None:
    """Its series begin at 0 when it is acquired: what Prometheus sees first is no increase."""
    counted.emit("acquired", "export:*", guarded=True)
    counted.emit("claimed", "payment:*", guarded=True)
    for name in ("export:*", "payment:*"):
        assert counted.get("dibs_hold_seconds_count", name=name) == 0
    counted.emit("elected", "indexer", guarded=True)
    assert counted.get("dibs_hold_seconds_count", name="indexer") is None


async def test_claims_on_a_real_server(valkey: Server, counted: Counted) -> None:
    """Set: ok, duplicate, replayed, mismatch. Deleted: ok, with any `after`."""
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


def test_who_leads_is_a_gauge(valkey: Server, counted: Counted) -> None:
    """1 while this process leads; the hours in office are no long hold that needs an alert."""
    with Dibs(valkey.url, listeners=[counted.listener]) as ours:
        with ours.leader("indexer"):
            assert counted.get("dibs_leader", name="indexer") == 1
        assert counted.get("dibs_leader", name="indexer") == 0
    assert counted.get("dibs_events_total", kind="elected", name="indexer") == 1
    assert counted.get("dibs_events_total", kind="resigned", name="indexer") == 1
    assert counted.get("dibs_hold_seconds_count", name="indexer") in (None, 0)


def test_scheduled_functions_are_measured(valkey: Server, counted: Counted) -> None:
    """Runs, their delay, missed runs, and when it last went well: for an alert if that is old."""
    clock = [1_731_412_800.0]
    with Dibs(valkey.url, budget=5, listeners=[counted.listener]) as ours:

        @ours.scheduled(every=60, key="tick")
        def tick() -> None: ...

        scheduler = ours.scheduler()
        scheduler.clock, scheduler.server_time = lambda: clock[0], lambda _: int(clock[0] * 1000)
        with scheduler:
            eventually(lambda: valkey.client().exists("scheduled-last:tick"))
            clock[0] += 190
            scheduler.look()
            eventually(lambda: counted.get("dibs_scheduled_seconds_count", name="tick") == 1)
    assert counted.get("dibs_scheduled_delay_seconds_sum", name="tick") == 10
    assert counted.get("dibs_scheduled_missed_total", name="tick") == 2
    assert (counted.get("dibs_scheduled_success_timestamp_seconds", name="tick") or 0) > 1e9
    assert counted.get("dibs_hold_seconds_count", name="tick") in (None, 0)


def test_a_name_that_is_held_and_then_claimed(counted: Counted) -> None:
    """Ends count as those of claims from the first claim on."""
    counted.emit("released", held=1.0, guarded=True)
    assert ended(counted, "ok", "order:{id}") is None
    counted.emit("claimed", guarded=True)
    counted.emit("released", held=1.0, guarded=True)
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
    """1 while it lasts, then 0 and its length; unguarded claims are not counted as set."""
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


def test_what_is_refused_in_an_outage_is_counted_by_name(
    own_server: Server, counted: Counted
) -> None:
    """As `dibs_refused_total`: calls that got Unavailable, not a claim whose end was not
    delivered."""
    with Dibs(own_server.url, listeners=[counted.listener], on_outage="closed") as ours:
        with ours.claim("order:1", window=9):
            assert counted.get("dibs_refused_total", name="order:*") == 0
            own_server.kill()
        for key in ("order:1", "order:2"):
            with pytest.raises(Unavailable), ours.claim(key, window=9):
                pass
        with pytest.raises(Unavailable), ours.hold("report:1", ttl=9):
            pass
        with ours.hold("report:1", ttl=9, on_outage="open"):
            pass
    assert counted.get("dibs_refused_total", name="order:*") == 2
    assert counted.get("dibs_refused_total", name="report:*") == 1
    assert counted.get("dibs_unguarded_total", name="report:*") == 1


def test_a_server_that_cannot_serve_is_no_outage_for_ever(
    start_server: StartServer, counted: Counted
) -> None:
    """Its end is not announced; the next answer shows it."""
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
    counted.emit("outage", cause="no answer")
    counted.emit("busy", retry_after=1.0, waited=0.0)
    counted.emit("duplicate", retry_after=1.0, state="running")
    counted.emit("local_hit")
    counted.emit("claimed", guarded=False)
    counted.emit("released", guarded=False, held=1.0)
    assert counted.get("dibs_outage") == 1
    counted.emit("claimed", guarded=True)
    assert counted.get("dibs_outage") == 0


# ------------------------------------------------------------------------------------- good manners


def test_names_without_end_are_counted_together() -> None:
    """The first ones by name, all others as one: nothing grows, no event is lost."""
    counted = Counted(most_names=3)
    for number in range(1000):
        counted.emit("claimed", f"order {number}", guarded=True)
        counted.emit("released", f"order {number}", guarded=True, held=0.1)
    names = set(re.findall(r'name="([^"]*)"', counted.text))
    assert names == {"order 0", "order 1", "order 2", "other"}
    assert counted.get("dibs_events_total", kind="claimed", name="other") == 997
    assert ended(counted, "ok", "other") == 997
    assert repr(counted.listener) == "<PrometheusListener 'dibs': 3 names>"


@pytest.mark.parametrize("name", ["\ud800", "", 'a"b\\c\nd', "x" * 10_000, "訂單:{id}"])
def test_any_name_can_be_shown(counted: Counted, name: str) -> None:
    """Also one that is no text, empty, or very long: showing the metrics never fails."""
    counted.emit("hit", name)
    families = text_string_to_metric_families(counted.text)
    samples = [each for family in families for each in family.samples]
    assert sum(each.value for each in samples if each.name == "dibs_events_total") == 1
    assert all(len(each.labels.get("name", "")) <= 200 for each in samples)


def test_it_never_raises(counted: Counted, caplog: pytest.LogCaptureFixture) -> None:
    """What cannot be counted is logged once, and does no harm."""
    for _ in range(3):
        counted.emit("released", guarded=True, held="long")  # type: ignore[arg-type]
        assert counted.text
    assert len([each for each in caplog.records if each.levelno >= logging.ERROR]) == 1
    counted.emit("released", guarded=True, held=1.0)
    assert counted.get("dibs_hold_seconds_sum", name="order:{id}") == 1.0


def test_a_listener_that_is_never_read_keeps_little(counted: Counted) -> None:
    """Events are added to the metrics together, a thousand at most."""
    counted.emit("acquired", "report:*", times=2500, guarded=True, waited=0.5)
    counter = counted.listener.counter("acquired", "report:*", guarded=True)
    kept = gc.get_referents(counter.__self__)  # type: ignore[attr-defined]
    assert max(len(each) for each in kept if isinstance(each, list)) < 1000
    assert counted.get("dibs_events_total", kind="acquired", name="report:*") == 2500
    assert counted.get("dibs_wait_seconds_count", name="report:*") == 2500


def test_one_metric_that_is_read_alone_is_up_to_date(counted: Counted) -> None:
    """`/metrics?name[]=dibs_events_total`."""
    counted.emit("released", "a:{x}", guarded=True, held=1.0)
    for name in ("dibs_events_total", "dibs_hold_seconds_count"):
        [family] = counted.registry.restricted_registry([name]).collect()
        assert [sample.value for sample in family.samples] == [1.0]


def test_an_outage_that_begins_after_replies_that_were_not_added_yet(counted: Counted) -> None:
    """What Redis answered before it does not end it; what it answers afterwards does."""
    counted.emit("acquired", "a:{x}", guarded=True, waited=0.0)
    counted.emit("outage", "a:{x}", cause="silent")
    assert counted.get("dibs_outage") == 1
    counted.emit("acquired", "a:{x}", guarded=True, waited=0.0)
    assert counted.get("dibs_outage") == 0


def test_many_threads_lose_nothing(counted: Counted) -> None:
    """Eight threads count into one listener, all names at once: no event is lost."""

    def work() -> None:
        for number in range(500):
            name = f"n{number % 7}"
            counted.emit("claimed", name, guarded=True)
            counted.emit("completed", name, guarded=True, held=0.01)
            counted.emit("outage", name, cause="x")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    names = [f"n{number}" for number in range(7)]
    assert sum(ended(counted, "ok", name) or 0 for name in names) == 4000
    assert sum(counted.get("dibs_hold_seconds_count", name=name) or 0 for name in names) == 4000
    counted.emit("recovered", "*", cause="x", lasted=1.0)
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
    """Reported at once, and not by a Prometheus that cannot read us."""
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
        ours = path.parent.name == "integrations" and path.name.lstrip("_").startswith("prometheus")
        assert ours or not uses, path
