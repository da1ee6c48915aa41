"""When the sun rises and sets: reckoned from date and place, so that no provider is needed.

The formulas are those of NOAA's solar calculator, after Meeus; at the latitudes of Taiwan they are
right to about a minute. The horizon is that of the sea: behind a mountain the sun rises later.
"""

from datetime import date, datetime, timedelta
from math import acos, asin, cos, degrees, radians, sin, tan

from .forecast import TAIPEI, Sun

_HORIZON = 90.833
"""How far from the zenith the sun's middle is when its upper edge is seen, with refraction."""


def sun_on(day: date, latitude: float, longitude: float) -> Sun:
    """Sunrise and sunset of *day*, in Taiwan's time, to the minute."""
    noon = datetime(day.year, day.month, day.day, 12, tzinfo=TAIPEI)
    rising = _moment(noon, latitude, longitude, morning=True)
    setting = _moment(noon, latitude, longitude, morning=False)
    return Sun(_to_the_minute(rising), _to_the_minute(setting))


def _moment(guess: datetime, latitude: float, longitude: float, *, morning: bool) -> datetime:
    """Twice: the sun's place at noon gives the hour, and its place at that hour the minute."""
    midnight = guess.replace(hour=0)
    for _ in range(2):
        declination, equation = _sun(guess)
        half = _half_a_day(latitude, declination)
        noon = 720 - 4 * longitude - equation + 8 * 60
        guess = midnight + timedelta(minutes=noon - 4 * half if morning else noon + 4 * half)
    return guess


def _half_a_day(latitude: float, declination: float) -> float:
    """The hour angle of the horizon, in degrees."""
    here, there = radians(latitude), radians(declination)
    return degrees(acos(cos(radians(_HORIZON)) / (cos(here) * cos(there)) - tan(here) * tan(there)))


def _sun(at: datetime) -> tuple[float, float]:
    """Its declination in degrees, and the equation of time in minutes."""
    century = ((at.timestamp() / 86_400 + 2_440_587.5) - 2_451_545) / 36_525
    mean = radians((280.46646 + century * 36_000.76983) % 360)
    anomaly = radians(357.52911 + century * 35_999.05029)
    orbit = 0.016708634 - century * 0.000042037
    centre = 1.914602 * sin(anomaly) + 0.019993 * sin(2 * anomaly) + 0.000289 * sin(3 * anomaly)
    node = radians(125.04 - 1934.136 * century)
    longitude = mean + radians(centre - 0.00569 - 0.00478 * sin(node))
    tilt = radians(23.439291 - century * 0.0130042 + 0.00256 * cos(node))
    y = tan(tilt / 2) ** 2
    equation = (
        y * sin(2 * mean)
        - 2 * orbit * sin(anomaly)
        + 4 * orbit * y * sin(anomaly) * cos(2 * mean)
        - y * y * sin(4 * mean) / 2
        - 1.25 * orbit * orbit * sin(2 * anomaly)
    )
    return degrees(asin(sin(tilt) * sin(longitude))), 4 * degrees(equation)


def _to_the_minute(at: datetime) -> datetime:
    return (at + timedelta(seconds=30)).replace(second=0, microsecond=0)
