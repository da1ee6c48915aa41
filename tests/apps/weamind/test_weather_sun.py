"""Sunrise and sunset, against the published times."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.weamind.weather.forecast import TAIPEI
from apps.weamind.weather.sun import sun_on


@pytest.mark.parametrize(
    ("day", "latitude", "longitude", "rises", "sets"),
    [
        (date(2024, 1, 1), 25.04, 121.51, "06:39", "17:15"),  # Taipei
        (date(2024, 6, 21), 25.04, 121.51, "05:05", "18:47"),
        (date(2024, 12, 21), 25.04, 121.51, "06:35", "17:10"),
        (date(2025, 1, 1), 22.05, 121.55, "06:33", "17:22"),  # Lanyu, where the year begins
        (date(2025, 1, 1), 22.75, 121.15, "06:36", "17:22"),  # Taitung
    ],
)
def test_published_times(
    day: date, latitude: float, longitude: float, rises: str, sets: str
) -> None:
    """To the minute, in Taiwan's time."""
    sun = sun_on(day, latitude, longitude)
    assert (f"{sun.rises:%H:%M}", f"{sun.sets:%H:%M}") == (rises, sets)


@given(st.dates(date(2000, 1, 1), date(2060, 1, 1)), st.floats(10, 27), st.floats(114, 123))
def test_any_day_anywhere(day: date, latitude: float, longitude: float) -> None:
    """Morning and evening of that day, from 太平島 to 東引: never an error, never another day."""
    sun = sun_on(day, latitude, longitude)
    assert sun.rises.date() == sun.sets.date() == day and sun.rises.tzinfo is TAIPEI
    assert timedelta(hours=10) < sun.sets - sun.rises < timedelta(hours=14)
