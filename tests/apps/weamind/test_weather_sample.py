"""Made-up weather: believable, always the same, and never taken for the real one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.weamind.places.place import Place
from apps.weamind.weather.forecast import TAIPEI, days_ahead, steps_ahead
from apps.weamind.weather.sample import Sample, make_up

XINYI = Place("63000020", "臺北市", "信義區", 25.0330, 121.5654)
HENGCHUN = Place("10013040", "屏東縣", "恆春鎮", 22.0026, 120.7440)
TIMES = st.datetimes(datetime(2024, 1, 1), datetime(2030, 1, 1), timezones=st.just(TAIPEI))  # noqa: DTZ001
PLACES = st.builds(
    Place,
    st.from_regex(r"[0-9]{5}([0-9]{3})?", fullmatch=True),
    st.just("臺北市"),
    st.none() | st.just("信義區"),
    st.floats(21.9, 26.5),
    st.floats(118.0, 122.0),
)


@given(place=PLACES, now=TIMES)
def test_it_is_believable(place: Place, now: datetime) -> None:
    """Everything is known, within what Taiwan has, and the hours fit the days."""
    forecast = make_up(place, now=now)
    assert forecast.sample and "範例資料" in forecast.attribution.text
    assert len(steps_ahead(forecast, now)) == 8 and len(days_ahead(forecast, now)) == 7
    assert forecast.now is not None and forecast.now.sky is not None
    assert 0 <= (forecast.now.humidity or -1) <= 100
    for step in forecast.steps:
        assert step.low is not None and 2 <= step.low <= 40 and step.sky is not None
        assert step.rain in range(0, 100, 10)
        for day in forecast.days:
            if day.on == step.start.date():
                assert day.low is not None and day.high is not None
                assert day.low <= step.low <= day.high <= day.low + 15


def test_a_peak_is_colder_than_its_valley() -> None:
    """By six degrees for every thousand metres; everything else is made up for it, too."""
    now = datetime(2026, 7, 15, 10, 20, tzinfo=TAIPEI)
    valley, peak = make_up(XINYI, now=now), make_up(replace(XINYI, elevation=3000), now=now)
    assert valley.now and peak.now and valley.now.temperature and peak.now.temperature
    assert round(valley.now.temperature - peak.now.temperature, 1) == 18.0
    assert peak.air and peak.sun and peak.now.wind and peak.days[0].uv and not peak.hazards


def test_it_is_always_the_same() -> None:
    """For every caller and in every process; the next hour of a forecast is what it said."""
    now = datetime(2026, 7, 15, 10, 20, tzinfo=TAIPEI)
    early, late = make_up(XINYI, now=now), make_up(XINYI, now=now + timedelta(hours=6))
    assert early == make_up(XINYI, now=now)
    assert early.steps[2:] == late.steps[:14]


def test_it_knows_the_seasons_and_the_south() -> None:
    """Summer is warmer than winter, Hengchun's winter than Taipei's, and noon than the night."""

    def mean(place: Place, month: int, hour: int = 12) -> float:
        days = [datetime(2026, month, day, hour, tzinfo=TAIPEI) for day in range(1, 29)]
        moments = [make_up(place, now=day).now for day in days]
        return sum(moment.temperature or 0 for moment in moments if moment) / len(days)

    assert mean(XINYI, 7) > mean(XINYI, 1) + 8
    assert mean(HENGCHUN, 1) > mean(XINYI, 1) + 2
    assert mean(XINYI, 4, hour=14) > mean(XINYI, 4, hour=4) + 3


async def test_it_can_be_slow() -> None:
    """As slow as it is told to be, for each caller separately."""
    slow = Sample(delay=30)
    fetching = asyncio.create_task(slow.fetch(XINYI))
    await asyncio.sleep(0)
    assert not fetching.done()
    fetching.cancel()
    quick = await Sample().fetch(XINYI)
    assert quick.provider == "sample" and quick.sample
    await slow.aclose()
    await asyncio.wait([fetching])


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf")])
def test_a_delay_is_checked(delay: float) -> None:
    """ValueError, at once."""
    with pytest.raises(ValueError, match="delay"):
        Sample(delay=delay)
