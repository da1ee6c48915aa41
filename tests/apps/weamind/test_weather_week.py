"""Seven days from the weather administration, and landmarks, which it knows by their township."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import pytest
from hypothesis import given, settings

from apps.weamind.places.atlas import by_code, landmarks
from apps.weamind.places.place import Place
from apps.weamind.weather.cwa import _TOWNSHIPS, Cwa, _week_of
from apps.weamind.weather.cwa_answers import read_township
from apps.weamind.weather.cwa_week import read_week, with_week
from apps.weamind.weather.forecast import TAIPEI, Sky, days_ahead
from apps.weamind.weather.forecasts import Forecasts
from apps.weamind.weather.provider import Reason, WeatherUnavailable
from dibs import AsyncDibs
from dibs.testing import Server

from .recorded.mutations import mutated
from .recorded.upstream import Upstream, recorded, saying

BANQIAO = Place("65000010", "新北市", "板橋區", 25.0115, 121.4509)
NOW = datetime(2026, 3, 1, 18, 20, tzinfo=TAIPEI)
TOWNSHIP, WEEK = recorded("cwa_township"), recorded("cwa_week")
KEY = "a-key-for-tests"


def landmark(name: str) -> Place:
    (place,) = [each.place for each in landmarks() if each.place.name == name]
    return place


def test_a_day_is_a_daytime_and_the_night_after_it() -> None:
    """The highest of both, the lowest of both, the look and the UV index of the daytime."""
    first, *_, last = read_week(WEEK, BANQIAO)
    assert (first.on, first.sky) == (date(2026, 3, 2), Sky("多雲時晴", "⛅"))
    assert (first.low, first.high, first.rain, first.uv) == (16, 25, 20, 4)
    assert (last.on, last.rain, last.uv) == (date(2026, 3, 8), None, 10)


def test_the_week_adds_the_days_that_three_days_lack() -> None:
    """Exact days stay as they are, and get the UV index; after them come those of the week."""
    short = read_township(TOWNSHIP, BANQIAO, now=NOW)
    long = with_week(short, read_week(WEEK, BANQIAO))
    assert [day.on.day for day in days_ahead(long, NOW)] == [2, 3, 4, 5, 6, 7, 8]
    for exact, shown in zip(short.days, long.days, strict=False):
        assert (exact.low, exact.high, exact.rain) == (shown.low, shown.high, shown.rain)
        assert shown.uv is not None
    assert with_week(short, ()) == short


async def test_without_the_week_the_forecast_is_shorter() -> None:
    """Its own failure costs no more than its days; the other one's is the answer."""

    async def only_three_days(writer: Any) -> None:
        week = upstream.asked[-1].path.endswith("071")
        await (saying(b"{}", 500) if week else saying(TOWNSHIP))(writer)

    async with Upstream(only_three_days) as upstream:
        provider = Cwa(KEY, base_url=upstream.url, clock=lambda: NOW)
        forecast = await provider.fetch(BANQIAO)
        assert [day.on.day for day in forecast.days] == [2, 3, 4]
        upstream.behaviour = saying(b"{}", 401)
        with pytest.raises(WeatherUnavailable) as caught:
            await provider.fetch(BANQIAO)
        assert caught.value.reason is Reason.BAD_KEY
        await provider.aclose()


async def test_a_week_that_is_asked_for_too_often(valkey: Server) -> None:
    """The three days are shown, and nothing is asked until the pause of all datasets is over."""

    async def only_three_days(writer: Any) -> None:
        week = upstream.asked[-1].path.endswith("071")
        limited = saying(b"", 429, retry_after="300")
        await (limited if week else saying(TOWNSHIP))(writer)

    async with Upstream(only_three_days) as upstream, AsyncDibs(valkey.url) as dibs:
        provider = Cwa(KEY, base_url=upstream.url, clock=lambda: NOW)
        forecasts = Forecasts(dibs, provider)
        assert [day.on.day for day in (await forecasts.get(BANQIAO)).days] == [2, 3, 4]
        asked = len(upstream.asked)
        other = Place("65000020", "新北市", "三重區", 25.0626, 121.4870)
        with pytest.raises(WeatherUnavailable) as caught:
            await forecasts.get(other)
        assert caught.value.reason is Reason.RATE_LIMITED
        assert len(upstream.asked) == asked == 2
        await provider.aclose()


def test_the_numbers_of_datasets() -> None:
    """The week of a county is two after its three days, for all of them."""
    assert (_week_of("F-D0047-001"), _week_of("F-D0047-069")) == ("F-D0047-003", "F-D0047-071")
    assert not {_week_of(each) for each in _TOWNSHIPS.values()} & set(_TOWNSHIPS.values())


@settings(max_examples=150)
@given(body=mutated(WEEK))
def test_a_broken_week_is_never_a_wrong_number(body: Any) -> None:
    """Days that were reported, within what Taiwan has, or none at all."""
    try:
        days = read_week(body, BANQIAO)
    except WeatherUnavailable:
        return
    for day in days:
        assert day.low is None or -30 <= day.low <= 50
        assert day.rain is None or 0 <= day.rain <= 100
        assert day.uv is None or 0 <= day.uv <= 25


def test_the_week_of_a_county() -> None:
    """Its code has three zeros more there, and its group is called after the island."""
    body = recorded("cwa_week")
    group = body["records"]["Locations"][0]
    group["LocationsName"] = "台灣"
    group["Location"][0] |= {"LocationName": "新北市", "Geocode": "65000000"}
    county = by_code("65000")
    assert county and len(read_week(body, county)) == 7
    del group["Location"][0]["Geocode"]
    assert len(read_week(body, county)) == 7


# ---- landmarks


def test_a_landmark_has_the_forecast_of_its_township() -> None:
    """Under its own name; whose forecast it is, is known."""
    campus = landmark("臺灣藝術大學")
    forecast = read_township(TOWNSHIP, campus, now=NOW)
    assert (forecast.place_name, forecast.area, forecast.of_area) == (
        "臺灣藝術大學", "新北市板橋區", True,
    )  # fmt: skip
    assert forecast.steps == read_township(TOWNSHIP, BANQIAO, now=NOW).steps
    assert not read_township(TOWNSHIP, BANQIAO, now=NOW).of_area


async def test_an_islet_without_a_township_has_no_forecast() -> None:
    """The forecast of the harbour that administers 東沙島 is not shown for it, and no provider is
    asked."""
    async with Upstream(saying(TOWNSHIP)) as upstream:
        provider = Cwa(KEY, base_url=upstream.url, clock=lambda: NOW)
        with pytest.raises(WeatherUnavailable) as caught:
            await provider.fetch(landmark("東沙島"))
        assert caught.value.reason is Reason.NO_DATA and upstream.asked == []
        await provider.aclose()


def test_the_wind_of_this_hour() -> None:
    """Metres per second and a direction in words."""
    now = read_township(TOWNSHIP, BANQIAO, now=NOW).now
    assert now and now.wind and (now.wind.speed, now.wind.direction) == (3.0, "偏東風")
