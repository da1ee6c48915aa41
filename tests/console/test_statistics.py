"""The figures of a process, from its events: pure, no server, no clock."""

import threading
from typing import Any

from dibs import Event
from dibs._event_counting import Durations
from dibs.console.statistics import MOST_NAMES, MOST_OUTAGES, Statistics
from dibs.errors import OTHER


def counted(*events: Event) -> dict[str, Any]:
    statistics = Statistics()
    for event in events:
        statistics(event)
    return statistics.facts()


def made(kind: Any, name: str = "order:{id}", at: float = 100.0, **facts: Any) -> Event:
    return Event(kind=kind, name=name, at=at, **facts)


def of_template(facts: dict[str, Any], name: str = "order:{id}") -> dict[str, Any]:
    return next(each for each in facts["templates"] if each["name"] == name)


def test_grants_waits_and_holds_are_counted_by_template() -> None:
    """Counts by kind, the mean and the longest hold, and how long callers waited."""
    facts = of_template(
        counted(
            made("acquired", guarded=True, waited=0.2),
            made("released", guarded=True, held=1.0),
            made("acquired", guarded=True, waited=0.0),
            made("released", guarded=True, held=3.0),
            made("busy", waited=0.0, retry_after=1.0),
        )
    )
    assert facts["counts"] == {"acquired": 2, "released": 2, "busy": 1}
    assert (facts["held_mean"], facts["held_most"]) == (2.0, 3.0)
    assert facts["waits"]["count"] == 1 and facts["waits"]["most"] == 0.2


def test_the_hit_rate_is_of_those_who_looked_for_a_value() -> None:
    """Hits in memory, on the server, and stale ones, of all reads; None without reads."""
    facts = counted(
        *[made(kind) for kind in ("hit", "local_hit", "stale", "miss")], made("busy", "x")
    )
    assert of_template(facts)["hit_rate"] == 0.75
    assert of_template(facts, "x")["hit_rate"] is None


def test_load_times_have_a_mean_a_bound_for_most_and_a_longest() -> None:
    """The 95 % bound is that of a bucket, and never more than the longest."""
    loads = [made("loaded", took=0.004)] * 95 + [made("loaded", took=0.9)] * 5
    facts = of_template(counted(*loads))["loads"]
    assert facts["count"] == 100 and facts["p95"] == 0.005 and facts["most"] == 0.9
    alone = Durations([0.5, 1.0])
    alone.observe(0.7)
    assert alone.at_most(0.95) == 0.7
    assert Durations([]).at_most(0.95) is None


def test_an_outage_lasts_from_the_first_call_it_touches_to_the_recovery() -> None:
    """One outage, however many calls it touches; how many they were."""
    [outage] = counted(
        made("outage", at=100.0, cause="silent"),
        made("acquired", at=100.1, guarded=False),
        made("outage", at=101.0, cause="silent"),
        made("recovered", "*", at=103.0, lasted=3.5, cause="silent"),
        made("acquired", at=104.0, guarded=True),
    )["outages"]
    assert outage == {"began": 99.5, "ended": 103.0, "cause": "silent", "calls": 2}


def test_a_guarded_answer_ends_an_outage_too() -> None:
    """Some outages have no recovery: the server answered all the time, with an error."""
    statistics = Statistics()
    statistics(made("outage", at=100.0, cause="readonly"))
    assert statistics.facts()["outages"][0]["ended"] is None
    statistics(made("acquired", at=105.0, guarded=True))
    statistics(made("recovered", "*", at=106.0, lasted=5.0, cause="readonly"))
    [outage] = statistics.facts()["outages"]
    assert outage["ended"] == 105.0


def test_unguarded_grants_are_counted() -> None:
    """Those that were let through while the server was out; their ends do not count again."""
    facts = counted(made("acquired", guarded=False), made("released", guarded=False, held=1.0))
    assert of_template(facts)["unguarded"] == 1 and of_template(facts)["held_mean"] is None


def test_memory_is_bounded_whatever_the_names_and_however_many_outages() -> None:
    """An id that was formatted into a name fills no memory; old outages make room."""
    statistics = Statistics()
    for number in range(3 * MOST_NAMES):
        statistics(made("hit", f"menu:{number}"))
        statistics(made("outage", at=float(number), cause="silent"))
        statistics(made("recovered", "*", at=number + 0.5, lasted=0.5))
    facts = statistics.facts()
    assert len(facts["templates"]) <= MOST_NAMES + 1
    total = sum(each["counts"].get("hit", 0) for each in facts["templates"])
    assert total == 3 * MOST_NAMES and of_template(facts, OTHER)
    assert len(facts["outages"]) == MOST_OUTAGES


def test_no_event_is_lost_between_threads() -> None:
    """Four threads, each with more events than are counted at once."""
    statistics = Statistics()

    def work() -> None:
        for _ in range(5000):
            statistics(made("hit"))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert of_template(statistics.facts())["counts"] == {"hit": 20_000}
