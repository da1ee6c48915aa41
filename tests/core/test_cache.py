"""A cached value: fresh, stale or missing; how long it counts, and when it is refreshed."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs._core.cache import Reading, is_due_early, jittered, make_recipe


def recipe(**options: Any) -> Any:
    base: dict[str, Any] = {
        "ttl": 180, "jitter": 0.2, "min_ttl": 60, "lock_ttl": 3, "wait": None, "poll": 0.08,
        "stale": 0, "early": 0, "negative_ttl": 0, "load_timeout": 30, "local": False,
        "codec": "json", "type": None, "on_outage": "open",
    }  # fmt: skip
    return make_recipe("menu:{id}", **{**base, **options})


@given(st.floats(0, 1), st.floats(0, 0.99), st.floats(1, 1000))
def test_jitter_stays_in_its_band(chance: float, jitter: float, ttl: float) -> None:
    """ttl × (1 ± jitter), never below min_ttl."""
    fresh = jittered(recipe(ttl=ttl, jitter=jitter, min_ttl=0), chance)
    assert ttl * (1 - jitter) - 1e-6 <= fresh <= ttl * (1 + jitter) + 1e-6
    assert jittered(recipe(ttl=10, min_ttl=60), chance) == 60


def test_early_is_likelier_near_the_end_and_for_slow_loads() -> None:
    """XFetch: exp(-left / (early × load)); never without early, never for what is not fresh."""

    def share(left: float, took: float, early: float = 1.0) -> float:
        reading = Reading("fresh", left=left, took=took)
        return sum(is_due_early(reading, early, (n + 0.5) / 1000) for n in range(1000)) / 1000

    assert share(1.0, 1.0) == pytest.approx(0.368, abs=0.01)
    assert share(10.0, 1.0) < 0.001
    assert share(0.1, 1.0) > 0.9
    assert share(1.0, 0.01) < 0.001
    assert share(1.0, 1.0, early=0.0) == 0
    assert not is_due_early(Reading("stale", left=-1.0, took=1.0), 1.0, 0.5)
