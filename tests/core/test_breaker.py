"""The breaker: when a server that does not answer is no longer asked."""

import pytest

from dibs._core.connection import Breaker, Limits


def test_the_breaker_tells_news_once() -> None:
    """Open at the first failure, closed at the first answer, and it knows how long it was."""
    breaker = Breaker()
    assert not breaker.is_open
    assert breaker.close(1.0) is None
    assert breaker.trip(10.0, "refused")
    assert breaker.is_open
    assert not breaker.trip(11.0, "timed out")
    assert breaker.cause == "refused", "what the outage began with"
    assert breaker.close(12.5) == 2.5
    assert not breaker.is_open


def test_the_breaker_names_its_state() -> None:
    """Closed, open, and half-open: asked again, without an answer so far."""
    breaker = Breaker()
    assert (breaker.state, breaker.since) == ("closed", None)
    breaker.trip(10.0, "refused")
    assert (breaker.state, breaker.since) == ("open", 10.0)
    breaker.half_open()
    assert (breaker.state, breaker.since) == ("half-open", 10.0)
    breaker.close(12.0)
    assert (breaker.state, breaker.since) == ("closed", None)


@pytest.mark.parametrize(("budget", "connect"), [(0.25, 2.0), (2.0, 2.0), (5.0, 5.0)])
def test_opening_a_connection_may_take_as_long_as_a_reply(budget: float, connect: float) -> None:
    """Who gives the server a long budget means the first call as well."""
    assert Limits.of(budget).connect == connect
    assert Limits.of(budget, 0.5).connect == 0.5, "what the caller says"
