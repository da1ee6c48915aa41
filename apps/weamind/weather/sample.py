"""Made-up weather, without a network: for trying the bot out, and always labelled as such.

The same place always has the same weather at the same hour. It depends on the season, the hour and
the elevation, is warmer in the south, and has thunderstorms on summer afternoons. There are no
official warnings.
"""

import asyncio
import hashlib
import math
from collections.abc import Callable
from datetime import datetime, timedelta

from ..places.place import Place
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
    step_starts,
)
from .sky import from_wmo, worst
from .sun import sun_on
from .values import compass

NAME = "sample"
ATTRIBUTION = Attribution(text="範例資料，並非真實天氣")
_MEANS = (16.6, 17.2, 19.0, 22.5, 26.0, 28.3, 30.1, 29.7, 27.8, 24.7, 22.0, 18.2)
"""Of Taipei, by month, in degrees."""
_HOUR = timedelta(hours=1)
_WARMEST_AT = 14


class Sample:
    """A provider that needs nothing, and can be slow on purpose."""

    name = NAME
    fresh_for = 0.0
    """Cheap to make, and slow only for those who want to see what slowness does."""

    def __init__(
        self,
        *,
        delay: float = 0.0,
        clock: Callable[[], datetime] = lambda: datetime.now(TAIPEI),
    ) -> None:
        """ValueError: the delay is not valid."""
        if not 0 <= delay < math.inf:
            raise ValueError("a delay must be a number of seconds, 0 or more")
        self._delay = delay
        self._clock = clock

    async def fetch(self, place: Place) -> Forecast:
        """A forecast, after the delay."""
        await asyncio.sleep(self._delay)
        return make_up(place, now=self._clock())

    async def aclose(self) -> None:
        """Do nothing: there are no connections."""


def make_up(place: Place, *, now: datetime) -> Forecast:
    """Plausible, made-up weather for *place*."""
    local = now.astimezone(TAIPEI)
    hour = local.replace(minute=0, second=0, microsecond=0)
    return Forecast(
        place_code=place.code,
        place_name=place.name,
        updated_at=local,
        now=_moment(place, hour),
        steps=tuple(_step(place, start) for start in step_starts(local)),
        days=tuple(_day(place, hour + timedelta(days=number)) for number in range(DAYS_KEPT)),
        provider=NAME,
        attribution=ATTRIBUTION,
        sample=True,
        area=place.area if place.landmark else "",
        elevation=place.elevation,
        air=Air(30 + round(60 * _random(place, hour, "air")), hour),
        sun=sun_on(local.date(), place.latitude, place.longitude),
    )


def _moment(place: Place, hour: datetime) -> Moment:
    degrees, damp = _temperature(place, hour), _humidity(place, hour)
    feels = round(degrees + (damp - 60) / 10 * max(0.0, degrees - 20) / 10, 1)
    sky = from_wmo(_code(place, hour), night=is_night(hour))
    return Moment(hour, sky, degrees, feels, damp, _wind(place, hour))


def _wind(place: Place, hour: datetime) -> Wind:
    speed = round(1 + 6 * _random(place, hour, "wind"), 1)
    return Wind(speed, compass(360 * _random(place, hour, "direction")), round(speed * 1.8, 1))


def _step(place: Place, start: datetime) -> Step:
    hours = [start + _HOUR * number for number in range(3)]
    sky = from_wmo(worst(_code(place, hour) for hour in hours), night=is_night(start))
    degrees = _temperature(place, start)
    return Step(
        start, start + STEP, sky, degrees, degrees, max(_rain(place, hour) for hour in hours)
    )


def _day(place: Place, within: datetime) -> Day:
    hours = [within.replace(hour=hour) for hour in range(24)]
    degrees = [_temperature(place, hour) for hour in hours]
    sky = from_wmo(worst(_code(place, hour) for hour in hours[6:18]), night=False)
    rain = max(_rain(place, hour) for hour in hours)
    uv = round((10 if within.month in range(4, 11) else 6) * (1.1 - _wetness(place, within) * 0.7))
    return Day(within.date(), sky, min(degrees), max(degrees), rain, uv)


def _temperature(place: Place, at: datetime) -> float:
    mean = _season(at) + (25.05 - place.latitude) * (1.6 if at.month in (11, 12, 1, 2, 3) else 0.4)
    mood = (_random(place, at, "warmth") - 0.5) * 5 + (_random(place, at, "town", own=True) - 0.5)
    swing = 3.5 * math.cos((at.hour - _WARMEST_AT) / 24 * math.tau)
    height = 0.006 * (place.elevation or 0)
    return round(mean + mood + swing * (1.2 - _wetness(place, at)) - height, 1)


def _season(at: datetime) -> float:
    """The mean of the day, between the middles of two months."""
    position = at.month - 1 + (at.day - 15) / 30
    before = math.floor(position)
    share = position - before
    return _MEANS[before % 12] * (1 - share) + _MEANS[(before + 1) % 12] * share


def _wetness(place: Place, at: datetime) -> float:
    """0 for a dry day, 1 for a wet one."""
    return _random(place, at, "wetness")


def _rain(place: Place, at: datetime) -> int:
    """In tens of per cent; in summer mostly between 14 and 18 o'clock."""
    chance = _wetness(place, at) * 70
    if at.month in range(6, 10):
        chance = chance * 0.5 + (45 if at.hour in range(14, 18) else 0)
    return min(90, round(chance / 10) * 10)


def _code(place: Place, at: datetime) -> int:
    rain, cloud = _rain(place, at), _wetness(place, at)
    if rain >= 60:
        return 95 if at.month in range(6, 10) else 63
    if rain >= 50:
        return 80
    return (0, 1, 2, 3)[min(3, int(cloud * 5))]


def _humidity(place: Place, at: datetime) -> int:
    by_hour = 8 * math.cos((at.hour - 4) / 24 * math.tau)
    return round(62 + 24 * _wetness(place, at) + by_hour)


def _random(place: Place, at: datetime, what: str, *, own: bool = False) -> float:
    """0 to 1, the same all day; towns of a county share it, unless it is their *own*."""
    where = place.code if own else place.code[:5]
    seed = f"{where}:{at:%Y-%m-%d}:{what}".encode()
    return int.from_bytes(hashlib.sha256(seed).digest()[:4], "big") / 2**32
