"""`dibs bench`: figures beside the raw commands, and a server as it was before."""

from dibs.cli.bench import as_row, percentiles
from tests.cli.conftest import Shop
from tests.cli.program import run


def test_it_measures_each_verb_beside_its_baseline_and_leaves_nothing(shop: Shop) -> None:
    """Every part has a rate, percentiles and, beside its baseline, a ratio."""
    before = sorted(shop.server.keys())
    done = run(shop.url, "bench", "--seconds", "0.05", "--json", "--namespace", "shop:")
    found = {each["name"]: each for each in done.json["results"]}
    assert list(found) == ["SET NX + DEL", "hold", "claim", "GET", "cached hit"]
    assert all(set(each) == {"name", "baseline", "rate", "p50", "p95", "p99", "max", "ratio"}
               for each in found.values())  # fmt: skip
    assert found["hold"]["baseline"] == "SET NX + DEL" and found["hold"]["ratio"] > 0
    assert found["GET"]["baseline"] is None and found["GET"]["ratio"] is None
    assert sorted(shop.server.keys()) == before


def test_figures_are_percentiles_of_what_was_measured() -> None:
    """And a ratio at the median."""
    baseline = percentiles("baseline", "", [0.001] * 100)
    slow = percentiles("slow", "baseline", [0.002] * 98 + [0.05] * 2)
    assert (slow.p50, slow.p99, slow.longest) == (0.002, 0.05, 0.05)
    row = as_row(slow, [baseline, slow])
    assert row[2:] == ["2000 µs", "2000 µs", "50 ms", "50 ms", "2.00", "baseline"]
