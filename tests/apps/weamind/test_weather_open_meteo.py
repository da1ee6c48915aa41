"""Open-Meteo's answers: what is read from them, and what is not believed."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.weamind.places.atlas import landmarks
from apps.weamind.places.place import Place
from apps.weamind.weather.forecast import TAIPEI, Air, Forecast, Moment, Sky, Wind
from apps.weamind.weather.open_meteo import OpenMeteo, read
from apps.weamind.weather.provider import Reason, WeatherUnavailable

from .recorded.mutations import mutated
from .recorded.upstream import Upstream, hanging, recorded, saying

XINYI = Place("63000020", "臺北市", "信義區", 25.0330, 121.5654)
NOW = datetime(2026, 3, 1, 17, 50, tzinfo=TAIPEI)
ANSWER = recorded("open_meteo_forecast")
HOUR = timedelta(hours=1)


def answer(**changes: Any) -> Any:
    return recorded("open_meteo_forecast") | changes


def without(block: str, name: str) -> Any:
    changed = recorded("open_meteo_forecast")
    del changed[block][name]
    return changed


def unavailable(body: Any) -> Reason:
    with pytest.raises(WeatherUnavailable) as caught:
        read(body, XINYI, now=NOW)
    return caught.value.reason


# ---- what it says


def test_what_a_forecast_holds() -> None:
    """The place, the moment, sixteen steps from the current one, four days, and whom to thank."""
    forecast = read(answer(), XINYI, now=NOW)
    assert (forecast.place_code, forecast.place_name) == ("63000020", "臺北市信義區")
    assert forecast.updated_at == NOW and forecast.provider == "open-meteo" and not forecast.sample
    at = datetime(2026, 3, 1, 17, 45, tzinfo=TAIPEI)
    assert forecast.now == Moment(at, Sky("多雲", "⛅"), 23.4, 25.1, 78)
    assert [step.start.hour for step in forecast.steps[:4]] == [15, 18, 21, 0]
    assert len(forecast.steps) == 16 and len(forecast.days) == 4
    assert forecast.attribution.text == "Weather data by Open-Meteo.com"
    assert forecast.attribution.url == "https://open-meteo.com/"
    assert forecast.attribution.licence_url == "https://creativecommons.org/licenses/by/4.0/"


def test_a_step_is_told_by_its_own_hours() -> None:
    """The temperature when it begins, the worst sky, and the rain of the three hours inside:
    a probability is about the hour before its time."""
    hourly = answer()["hourly"]
    hourly["temperature_2m"] = [float(index % 40) for index in range(96)]
    hourly["precipitation_probability"] = [index % 100 for index in range(96)]
    hourly["weather_code"] = [0] * 96
    hourly["weather_code"][19] = 95
    step = read(answer(hourly=hourly), XINYI, now=NOW).steps[1]
    assert (step.start.hour, step.end.hour) == (18, 21)
    assert (step.low, step.high, step.rain) == (18.0, 18.0, 21)
    assert step.sky == Sky("雷雨", "⛈️")


def test_days_are_from_the_daily_block() -> None:
    """The lowest, the highest and the wettest, as they were reported."""
    daily, first = ANSWER["daily"], read(answer(), XINYI, now=NOW).days[0]
    assert first.on == date(2026, 3, 1)
    assert first.low == daily["temperature_2m_min"][0]
    assert first.high == daily["temperature_2m_max"][0]
    assert first.rain == daily["precipitation_probability_max"][0]


def test_the_sun_does_not_shine_at_night() -> None:
    """A clear night has a moon."""
    hourly = answer()["hourly"] | {"weather_code": [0] * 96}
    steps = read(answer(hourly=hourly), XINYI, now=NOW).steps
    assert {step.sky.emoji for step in steps if step.sky and step.start.hour in (18, 0)} == {"🌙"}
    assert {step.sky.emoji for step in steps if step.sky and step.start.hour in (9, 15)} == {"☀️"}


# ---- what it does not say


def test_null_is_not_zero() -> None:
    """What is null in a list is None in its step, and only there."""
    hourly = answer()["hourly"]
    hourly["temperature_2m"][18] = None
    hourly["precipitation_probability"][22] = None
    steps = read(answer(hourly=hourly), XINYI, now=NOW).steps
    assert steps[1].low is steps[1].high is None and steps[1].rain is not None
    assert steps[2].rain is None and steps[2].low is not None
    assert steps[3].low is not None and steps[3].rain is not None


@pytest.mark.parametrize("name", ["temperature_2m", "precipitation_probability", "weather_code"])
@pytest.mark.parametrize("broken", ["missing", "null", "empty", "shorter", "longer", "no list"])
def test_a_list_that_does_not_fit_its_times_says_nothing(name: str, broken: str) -> None:
    """It is unclear which value belongs to which hour: none is shown, the other variables are."""
    hourly = answer()["hourly"]
    values = hourly[name]
    changes = {"null": None, "empty": [], "shorter": values[1:], "longer": [*values, 0]}
    if broken == "missing":
        del hourly[name]
    else:
        hourly[name] = changes.get(broken, "20")
    steps = read(answer(hourly=hourly), XINYI, now=NOW).steps
    shown = {
        "temperature_2m": [step.low for step in steps],
        "precipitation_probability": [step.rain for step in steps],
        "weather_code": [step.sky for step in steps],
    }
    assert set(shown.pop(name)) == {None}
    assert all(None not in values[:8] for values in shown.values())


def test_hours_with_a_gap_say_nothing() -> None:
    """Times that are not one hour apart are not believed at all."""
    for index, time in ((10, "2026-03-01T11:00"), (10, None), (0, "yesterday"), (95, 7)):
        hourly = answer()["hourly"]
        hourly["time"][index] = time
        assert unavailable(answer(hourly=hourly)) is Reason.NO_DATA


def test_fahrenheit_is_not_celsius() -> None:
    """A variable in another unit than we read is not shown, however believable its numbers."""
    units = ANSWER["hourly_units"] | {"temperature_2m": "°F"}
    steps = read(answer(hourly_units=units), XINYI, now=NOW).steps
    assert all(step.low is None and step.rain is not None for step in steps[:8])
    current = ANSWER["current_units"] | {"temperature_2m": "°F"}
    moment = read(answer(current_units=current), XINYI, now=NOW).now
    assert moment is not None and moment.temperature is None and moment.humidity == 78


@pytest.mark.parametrize("offset", [0, 32_400, None, "28800", 28_801])
def test_another_zone_is_unreadable(offset: Any) -> None:
    """The times name no zone, so a wrong one would shift every hour."""
    assert unavailable(answer(utc_offset_seconds=offset)) is Reason.UNREADABLE


@pytest.mark.parametrize(
    "body", [None, [], [{}], {}, "forecast", 7, {"error": True, "reason": "x"}]
)
def test_what_is_no_answer(body: Any) -> None:
    """Another document than a forecast, also a list of forecasts, is unreadable."""
    assert unavailable(body) is Reason.UNREADABLE


def test_yesterdays_answer_says_nothing() -> None:
    """Hours that are over are not shown as those to come."""
    with pytest.raises(WeatherUnavailable) as caught:
        read(answer(), XINYI, now=NOW + timedelta(days=4))
    assert caught.value.reason is Reason.NO_DATA


@pytest.mark.parametrize("block", ["current", "daily"])
def test_without_a_block(block: str) -> None:
    """Without the moment, or the days, the hours are still shown."""
    for value in (None, [], {}, "x", {"time": None}):
        forecast = read(answer(**{block: value}), XINYI, now=NOW)
        assert (forecast.now is None) if block == "current" else (forecast.days == ())
        assert len(forecast.steps) == 16


@pytest.mark.parametrize("name", ["temperature_2m_max", "weather_code", "time"])
def test_a_day_without_one_of_its_values(name: str) -> None:
    """It is shown without it; without its date it is not shown."""
    days = read(without("daily", name), XINYI, now=NOW).days
    if name == "time":
        assert days == ()
    else:
        assert all((day.high if name == "temperature_2m_max" else day.sky) is None for day in days)
        assert len(days) == 4 and days[0].low is not None


# ---- fuzz


@settings(max_examples=300)
@given(body=mutated(ANSWER), minutes=st.integers(0, 3 * 24 * 60))
def test_a_broken_answer_is_never_a_wrong_number(body: Any, minutes: int) -> None:
    """With anything missing or replaced: no forecast, or one whose every number was reported, for
    the time that it is shown at."""
    try:
        forecast = read(body, XINYI, now=NOW + timedelta(minutes=minutes))
    except WeatherUnavailable:
        return
    check_hours(body, forecast)
    check_days(body, forecast)
    check_moment(body, forecast)


def check_hours(body: Any, forecast: Forecast) -> None:
    for step in forecast.steps:
        if step.low is not None:
            assert step.low == step.high == reported(body, "hourly", "temperature_2m", step.start)
        if step.rain is not None:
            hours = [step.start + HOUR * number for number in (1, 2, 3)]
            said = [reported(body, "hourly", "precipitation_probability", hour) for hour in hours]
            assert step.rain == pytest.approx(max(said), abs=0.5)


def check_days(body: Any, forecast: Forecast) -> None:
    for day in forecast.days:
        at = datetime(day.on.year, day.on.month, day.on.day, tzinfo=TAIPEI)
        shown = {
            "temperature_2m_min": day.low,
            "temperature_2m_max": day.high,
            "precipitation_probability_max": day.rain,
        }
        for name, value in shown.items():
            assert value is None or value == pytest.approx(
                reported(body, "daily", name, at), abs=0.5
            )


def check_moment(body: Any, forecast: Forecast) -> None:
    if forecast.now is None:
        return
    current = body["current"]
    shown = {
        "temperature_2m": forecast.now.temperature,
        "apparent_temperature": forecast.now.feels_like,
        "relative_humidity_2m": forecast.now.humidity,
    }
    assert as_time(current["time"]) == forecast.now.at
    for name, value in shown.items():
        assert value is None or value == pytest.approx(float(current[name]), abs=0.5)


def reported(body: Any, block: str, name: str, at: datetime) -> Any:
    """What the answer has for a time, looked up the slow and simple way."""
    for time, value in zip(body[block]["time"], body[block][name], strict=True):
        if as_time(time) == at:
            return float(value)
    raise AssertionError(f"no value for {at}")


def as_time(text: Any) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return time if time.tzinfo else time.replace(tzinfo=TAIPEI)


# ---- over the wire


async def test_what_it_is_asked() -> None:
    """The coordinates, celsius, Taiwan's time and eight days; no key, and no person."""
    async with Upstream(saying(ANSWER)) as upstream:
        provider = OpenMeteo(base_url=upstream.url, clock=lambda: NOW)
        forecast = await provider.fetch(XINYI)
        await provider.aclose()
    assert forecast == read(answer(), XINYI, now=NOW)
    [asked] = upstream.asked
    assert asked.path == "/v1/forecast"
    assert (asked.query["latitude"], asked.query["longitude"]) == ("25.0330", "121.5654")
    assert asked.query["timezone"] == "Asia/Taipei" and asked.query["forecast_days"] == "8"
    assert asked.query["temperature_unit"] == "celsius"
    assert "authorization" not in asked.headers


def test_bad_settings_are_told_before_anything_is_asked() -> None:
    """An address without a host, a deadline of nothing: ValueError."""
    for url in ("", "api.example", "ftp://api.example", "https://"):
        with pytest.raises(ValueError, match="address"):
            OpenMeteo(base_url=url)
    for deadline in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="deadline"):
            OpenMeteo(deadline=deadline)


# ---- elevation, wind, UV index, air


def more(**current: Any) -> Any:
    """An answer with wind and UV index, which the recorded one is too old to have."""
    body = answer()
    body["current"] |= current
    body["daily"]["uv_index_max"] = [7.6] * len(body["daily"]["time"])
    return body


async def test_a_peak_is_asked_for_with_its_elevation() -> None:
    """The valley's temperature is not that of 玉山; a township has no one elevation."""
    [peak] = [each.place for each in landmarks() if each.place.name == "玉山"]
    async with Upstream(saying(ANSWER)) as upstream:
        provider = OpenMeteo(base_url=upstream.url, clock=lambda: NOW)
        forecast = await provider.fetch(peak)
        await provider.fetch(XINYI)
        await provider.aclose()
    assert [asked.query.get("elevation") for asked in upstream.asked] == ["3952", None]
    assert (forecast.place_name, forecast.area, forecast.elevation) == (
        "玉山", "南投縣信義鄉", 3952,
    )  # fmt: skip
    assert not forecast.of_area


def test_wind_uv_index_and_sun() -> None:
    """Where they are reported; a wind of unknown strength is none; the sun is reckoned."""
    wind = {"wind_speed_10m": 3.4, "wind_direction_10m": 45, "wind_gusts_10m": 8.1}
    forecast = read(more(**wind), XINYI, now=NOW)
    assert forecast.now and forecast.now.wind == Wind(3.4, "東北風", 8.1)
    assert forecast.days[0].uv == 8 and forecast.sun and forecast.sun.rises.hour == 6
    assert not forecast.now.wind or forecast.air is None
    unknown = read(more(wind_direction_10m=45), XINYI, now=NOW)
    assert unknown.now and unknown.now.wind is None
    other_unit = more(**wind)
    other_unit["current_units"]["wind_speed_10m"] = "km/h"
    knots = read(other_unit, XINYI, now=NOW)
    assert knots.now and knots.now.wind is None


AIR = {"utc_offset_seconds": 28800, "current": {"time": "2026-03-01T17:00", "us_aqi": 52}}


@pytest.mark.parametrize(
    ("behaviour", "air"),
    [
        (saying(AIR), Air(52, datetime(2026, 3, 1, 17, tzinfo=TAIPEI))),
        (saying({}), None),
        (saying(AIR | {"utc_offset_seconds": 0}), None),
        (saying({"utc_offset_seconds": 28800, "current": {"time": "x", "us_aqi": None}}), None),
        (saying(b"", 500), None),
        (hanging, None),
    ],
)
async def test_the_air_comes_from_another_host(behaviour: Any, air: Air | None) -> None:
    """Asked at the same time; with any error of it, there is still a forecast."""
    async with Upstream(saying(ANSWER)) as weather, Upstream(behaviour) as other:
        provider = OpenMeteo(
            base_url=weather.url, air_url=other.url, deadline=20, clock=lambda: NOW
        )
        assert (await provider.fetch(XINYI)).air == air
        await provider.aclose()
    [asked] = other.asked
    assert (asked.path, asked.query["current"]) == ("/v1/air-quality", "us_aqi")


async def test_a_forecast_that_fails_leaves_no_question_behind() -> None:
    """Its failure is the answer, also if the air is known."""
    async with Upstream(saying(b"", 500)) as weather, Upstream(saying(AIR)) as other:
        provider = OpenMeteo(base_url=weather.url, air_url=other.url, clock=lambda: NOW)
        with pytest.raises(WeatherUnavailable, match="500"):
            await provider.fetch(XINYI)
        await provider.aclose()
