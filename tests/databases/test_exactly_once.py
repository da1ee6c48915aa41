"""A small storm; the large one is `python -m tests.exactly_once`."""

import pytest

from tests.exactly_once import Storm
from tests.storm_services import HttpStorm


@pytest.mark.parametrize("driver", ["threads", "tasks"])
def test_a_small_storm_leaves_each_intent_once(driver: str) -> None:
    """Processes are killed, Redis is flushed and restarted: one order each, one answer for all."""
    result = Storm(driver, "sqlite", intents=25, seed=7, processes=2).run()
    assert result.is_exact, str(result)


def test_a_small_storm_over_http_leaves_each_intent_once() -> None:
    """Services are killed at statements and between commit and answer; clients retry."""
    result = HttpStorm("fastapi-plain", "sqlite", intents=8, seed=7, processes=2).run()
    assert result.is_exact, str(result)
