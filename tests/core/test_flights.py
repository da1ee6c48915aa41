"""Loads that wait for one another: one that would wait for itself is refused."""

from itertools import pairwise

import pytest

from dibs import UsageError
from dibs._core.cache import refuse_cycle


class Flight:
    """A load, and the one that it waits for."""

    awaits: "Flight | None" = None


def row(count: int) -> list[Flight]:
    """Loads of which each waits for the next."""
    flights = [Flight() for _ in range(count)]
    for one, other in pairwise(flights):
        one.awaits = other
    return flights


def test_a_load_may_wait_for_others() -> None:
    """However many wait in a row: the last one waits for none, so it ends."""
    for flight in row(5):
        refuse_cycle(flight)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_load_that_waits_for_itself_is_refused(count: int) -> None:
    """Directly, or by way of others: each of them gets an error."""
    flights = row(count)
    flights[-1].awaits = flights[0]
    for flight in flights:
        with pytest.raises(UsageError, match="requests the value itself"):
            refuse_cycle(flight)


def test_a_load_that_waits_for_a_circle_is_not_part_of_it() -> None:
    """Those in the circle have their error; looking ends all the same."""
    outside, first, second = row(3)
    second.awaits = first
    refuse_cycle(outside)
