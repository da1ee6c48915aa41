"""Open-Meteo: weather for any coordinates, without a key. For non-commercial use, CC BY 4.0.

Air quality has its own host, which is asked at the same time. If it does not answer, the forecast
is sent without it.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from ..places.place import Place
from .download import DEADLINE, Downloads
from .forecast import (
    DAYS_KEPT,
    STEP,
    TAIPEI,
    Air,
    Attribution,
    Day,
    Forecast,
    Moment,
    Step,
    Wind,
    is_night,
    says_something,
    step_starts,
)
from .provider import Reason, WeatherUnavailable
from .sky import from_wmo, worst
from .sun import sun_on
from .values import (
    aqi,
    celsius,
    code,
    compass,
    felt_celsius,
    percent,
    taiwan_time,
    uv_index,
    wind_speed,
)

NAME = "open-meteo"
BASE_URL = "https://api.open-meteo.com"
AIR_URL = "https://air-quality-api.open-meteo.com"
ATTRIBUTION = Attribution(
    text="Weather data by Open-Meteo.com",
    url="https://open-meteo.com/",
    licence="CC BY 4.0，經整理",
    licence_url="https://creativecommons.org/licenses/by/4.0/",
)
_EIGHT_HOURS = 28_800
_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
_HOURS_IN_A_STEP = range(int(STEP / _HOUR))
_QUESTION = {
    "current": "temperature_2m,apparent_temperature,relative_humidity_2m,weather_code,"
    "wind_speed_10m,wind_direction_10m,wind_gusts_10m",
    "hourly": "temperature_2m,precipitation_probability,weather_code",
    "daily": "weather_code,temperature_2m_max,temperature_2m_min,precipitation_probability_max,"
    "uv_index_max",
    "timezone": "Asia/Taipei",
    "temperature_unit": "celsius",
    "wind_speed_unit": "ms",
    "forecast_days": str(DAYS_KEPT),
}
_AIR_QUESTION = {"current": "us_aqi", "timezone": "Asia/Taipei"}
_AIR_DEADLINE = 1.5
"""Seconds that the air quality may take: no forecast waits longer for it."""
_UNITS = {celsius: ["°C"], felt_celsius: ["°C"], percent: ["%"], wind_speed: ["m/s", "ms"]}
T = TypeVar("T")


class OpenMeteo:
    """The default provider."""

    name = NAME
    fresh_for = 600.0

    def __init__(
        self,
        *,
        base_url: str = BASE_URL,
        air_url: str | None = None,
        deadline: float = DEADLINE,
        clock: Callable[[], datetime] = lambda: datetime.now(TAIPEI),
    ) -> None:
        """*air_url*: the source of the air quality; None: it is omitted.

        ValueError: an address or the deadline cannot be used. Nothing connects yet.
        """
        self._downloads = Downloads(NAME, base_url, deadline=deadline)
        shorter = min(deadline, _AIR_DEADLINE)
        self._air = Downloads(NAME, air_url, deadline=shorter) if air_url else None
        self._clock = clock

    async def fetch(self, place: Place) -> Forecast:
        """The forecast for the place's coordinates, and for its elevation where it is known.

        WeatherUnavailable: there is none.
        """
        where = {"latitude": f"{place.latitude:.4f}", "longitude": f"{place.longitude:.4f}"}
        high = {} if place.elevation is None else {"elevation": str(place.elevation)}
        body, air = await asyncio.gather(
            self._downloads.json("/v1/forecast", where | high | _QUESTION),
            self._fetch_air(where),
            return_exceptions=True,  # nothing is left under way when one of them fails
        )
        if isinstance(body, BaseException):
            raise body
        forecast = read(body, place, now=self._clock())
        return replace(forecast, air=air if isinstance(air, Air) else None)

    async def _fetch_air(self, where: dict[str, str]) -> Air | None:
        try:
            if self._air is not None:
                return read_air(await self._air.json("/v1/air-quality", where | _AIR_QUESTION))
        except WeatherUnavailable:
            pass  # the card is a row shorter
        return None

    async def aclose(self) -> None:
        """Close all connections."""
        await self._downloads.aclose()
        if self._air is not None:
            await self._air.aclose()


def read(body: object, place: Place, *, now: datetime) -> Forecast:
    """What an answer says. WeatherUnavailable: it is no answer, or says nothing about *now*."""
    if not isinstance(body, dict) or body.get("utc_offset_seconds") != _EIGHT_HOURS:
        raise WeatherUnavailable(NAME, Reason.UNREADABLE)  # in other zones every hour is wrong
    steps = tuple(_steps(body, now))
    if not says_something(steps):
        raise WeatherUnavailable(NAME, Reason.NO_DATA)
    return Forecast(
        place_code=place.code,
        place_name=place.name,
        updated_at=now.astimezone(TAIPEI),
        now=_moment(body),
        steps=steps,
        days=tuple(_days(body, now)),
        provider=NAME,
        attribution=ATTRIBUTION,
        area=place.area if place.landmark else "",
        elevation=place.elevation,
        sun=sun_on(now.astimezone(TAIPEI).date(), place.latitude, place.longitude),
    )


def read_air(body: object) -> Air | None:
    """What the answer of the other host says about the air. None: nothing."""
    if not isinstance(body, dict) or body.get("utc_offset_seconds") != _EIGHT_HOURS:
        return None
    current = body.get("current")
    if not isinstance(current, dict):
        return None
    at, index = taiwan_time(current.get("time")), aqi(current.get("us_aqi"))
    return Air(index, at) if at is not None and index is not None else None


def _moment(body: dict[str, Any]) -> Moment | None:
    current = body.get("current")
    at = taiwan_time(current.get("time")) if isinstance(current, dict) else None
    if not isinstance(current, dict) or at is None:
        return None

    def value(name: str, reading: Callable[[object], T | None]) -> T | None:
        return reading(current.get(name)) if _is_in(body, "current", name, reading) else None

    return Moment(
        at,
        from_wmo(value("weather_code", code), night=is_night(at)),
        value("temperature_2m", celsius),
        value("apparent_temperature", felt_celsius),
        value("relative_humidity_2m", percent),
        _wind(
            value("wind_speed_10m", wind_speed),
            value("wind_direction_10m", compass),
            value("wind_gusts_10m", wind_speed),
        ),
    )


def _wind(speed: float | None, direction: str | None, gusts: float | None) -> Wind | None:
    return None if speed is None else Wind(speed, direction, gusts)


def _steps(body: dict[str, Any], now: datetime) -> Iterable[Step]:
    temperature = _series(body, "hourly", "temperature_2m", celsius)
    rain = _series(body, "hourly", "precipitation_probability", percent)
    codes = _series(body, "hourly", "weather_code", code)
    for start in step_starts(now):
        hours = [start + _HOUR * number for number in _HOURS_IN_A_STEP]
        sky = from_wmo(worst(codes.get(hour) for hour in hours), night=is_night(start))
        degrees = temperature.get(start)
        # A probability is about the hour before its time.
        wet = _highest(rain.get(hour + _HOUR) for hour in hours)
        yield Step(start, start + STEP, sky, degrees, degrees, wet)


def _days(body: dict[str, Any], now: datetime) -> Iterable[Day]:
    low = _series(body, "daily", "temperature_2m_min", celsius)
    high = _series(body, "daily", "temperature_2m_max", celsius)
    rain = _series(body, "daily", "precipitation_probability_max", percent)
    codes = _series(body, "daily", "weather_code", code)
    uv = _series(body, "daily", "uv_index_max", uv_index)
    today = now.astimezone(TAIPEI).replace(hour=0, minute=0, second=0, microsecond=0)
    for at in (today + _DAY * number for number in range(DAYS_KEPT)):
        if any(at in series for series in (low, high, codes)):
            sky = from_wmo(codes.get(at), night=False)
            yield Day(at.date(), sky, low.get(at), high.get(at), rain.get(at), uv.get(at))


def _highest(values: Iterable[int | None]) -> int | None:
    """The highest of all values. None: one is not known, and might have been higher."""
    known = list(values)
    return None if None in known else max(value for value in known if value is not None)


def _series(
    body: dict[str, Any], block: str, name: str, reading: Callable[[object], T | None]
) -> dict[datetime, T]:
    """One variable by time, without unknown values.

    A list whose length differs from that of the times, or times with a gap, are ignored: it is
    unclear which value belongs to which time.
    """
    part = body.get(block)
    raw = part.get(name) if isinstance(part, dict) else None
    times = _times(part, _DAY if block == "daily" else _HOUR)
    if not isinstance(raw, list) or len(raw) != len(times):
        return {}
    if not _is_in(body, block, name, reading):
        return {}
    read = zip(times, map(reading, raw), strict=True)
    return {time: value for time, value in read if value is not None}


def _times(part: object, pace: timedelta) -> list[datetime]:
    raw = part.get("time") if isinstance(part, dict) else None
    if not isinstance(raw, list):
        return []
    dates = [f"{text}T00:00" if pace == _DAY else text for text in raw]
    times = [taiwan_time(text) for text in dates]
    first = times[0] if times else None
    if first is None or times != [first + pace * number for number in range(len(times))]:
        return []
    return [time for time in times if time is not None]


def _is_in(body: dict[str, Any], block: str, name: str, reading: Callable[..., Any]) -> bool:
    """True: the answer does not say that this variable is in another unit than we read."""
    units = body.get(f"{block}_units")
    unit = units.get(name) if isinstance(units, dict) else None
    return unit is None or unit in _UNITS.get(reading, [unit])
