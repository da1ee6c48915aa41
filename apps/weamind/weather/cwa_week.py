"""What the weather administration says about the next seven days, in halves of a day.

A daytime goes from 6 to 18 o'clock, a night from 18 to 6; the night belongs to the day on which it
begins. After some days no probability of rain is given, and it is not known.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import date
from typing import TypeVar

from ..places.place import Place
from .cwa_answers import Entry, read_entries
from .forecast import Day, Forecast, Sky
from .sky import from_cwa
from .values import celsius, percent, uv_index

_DAWN, _DUSK = 6, 18
T = TypeVar("T")


def read_week(body: object, place: Place) -> tuple[Day, ...]:
    """The days of F-D0047-… for a week that have a daytime. WeatherUnavailable: it is no answer."""
    days: dict[date, list[Entry]] = {}
    for entry in read_entries(body, place):
        if entry.end is not None and entry.start.hour in (_DAWN, _DUSK):
            days.setdefault(entry.start.date(), []).append(entry)
    return tuple(_days(days))


def with_week(forecast: Forecast, week: Iterable[Day]) -> Forecast:
    """*forecast* with the days that it lacks, and with the UV index of all."""
    days = {day.on: day for day in week}
    for day in forecast.days:
        known = days.get(day.on)
        days[day.on] = replace(day, uv=known.uv if known else None)
    return replace(forecast, days=tuple(days[on] for on in sorted(days)))


def _days(days: dict[date, list[Entry]]) -> Iterator[Day]:
    for on in sorted(days):
        by_day = [entry for entry in days[on] if entry.start.hour == _DAWN]
        if by_day:
            yield _day(on, by_day, [entry for entry in days[on] if entry.start.hour == _DUSK])


def _day(on: date, by_day: list[Entry], by_night: list[Entry]) -> Day:
    both = by_day + by_night
    return Day(
        on,
        next((sky for entry in by_day if (sky := _sky(entry))), None),
        min(_all(both, "MinTemperature", celsius), default=None),
        max(_all(both, "MaxTemperature", celsius), default=None),
        max(_all(both, "ProbabilityOfPrecipitation", percent), default=None),
        max(_all(by_day, "UVIndex", uv_index), default=None),
    )


def _sky(entry: Entry) -> Sky | None:
    return from_cwa(entry.values.get("Weather"), entry.values.get("WeatherCode"), night=False)


def _all(entries: list[Entry], key: str, reading: Callable[[object], T | None]) -> list[T]:
    said = (reading(entry.values.get(key)) for entry in entries)
    return [value for value in said if value is not None]
