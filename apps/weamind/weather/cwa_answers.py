"""What the answers of the Central Weather Administration say.

Elements have been renamed more than once, so they are known by the keys of their values, or by the
units; and keys have been written `likeThis` and `LikeThis`, so both are read. Every value is a
string, and what is not known is missing, empty, or "-99".
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, timedelta
from typing import Generic, NamedTuple, TypeVar

from ..places.place import Place
from .forecast import (
    DAYS_KEPT,
    STEP,
    STEPS_KEPT,
    TAIPEI,
    Attribution,
    Day,
    Forecast,
    Moment,
    Sky,
    Step,
    Wind,
    is_night,
    says_something,
    step_starts,
)
from .provider import Reason, WeatherUnavailable
from .sky import from_cwa
from .sun import sun_on
from .values import celsius, felt_celsius, field, nodes, percent, taiwan_time, wind_speed

NAME = "cwa"
ATTRIBUTION = Attribution(
    text="資料來源：中央氣象署",
    url="https://opendata.cwa.gov.tw/",
    licence="政府資料開放授權條款",
    licence_url="https://data.gov.tw/license",
)
_CELSIUS = ("C", "°C", "℃", "攝氏度")
_PERCENT = ("百分比", "%")
_STEPS_IN_A_DAY = 8
_DAYTIME = range(6, 18)
T = TypeVar("T")
Words = tuple[object, object]


class Entry(NamedTuple):
    """A value, or several, at a time, or for a while."""

    start: datetime
    end: datetime | None
    values: dict[str, object]


class Slot(NamedTuple, Generic[T]):
    """One value for a while."""

    start: datetime
    end: datetime
    value: T


def read_township(body: object, place: Place, *, now: datetime) -> Forecast:
    """What F-D0047-… says of one township. WeatherUnavailable: nothing that can be shown."""
    entries = read_entries(body, place)
    rain = _slots(entries, "ProbabilityOfPrecipitation", percent)
    temperature = _points(entries, "Temperature", celsius)
    skies = _skies(entries)
    steps = tuple(
        Step(start, start + STEP, _sky(skies, start), degrees, degrees, _during(rain, start))
        for start in step_starts(now)
        for degrees in [temperature.get(start)]
    )
    days = tuple(_days(_steps_of_days(now), temperature, skies, rain))
    return _forecast(place, now, _moment(entries, temperature, skies, now), steps, days)


def read_county(body: object, place: Place, *, now: datetime) -> Forecast:
    """What F-C0032-001 says of one county. WeatherUnavailable: nothing that can be shown."""
    periods: dict[tuple[datetime, datetime], list[dict[str, object]]] = {}
    for start, end, values in read_entries(body, place):
        if end is not None and end > now:
            periods.setdefault((start, end), []).append(values)
    steps = tuple(_period(*times, periods[times]) for times in sorted(periods))
    return _forecast(place, now, None, steps[:STEPS_KEPT], ())


def _forecast(
    place: Place,
    now: datetime,
    moment: Moment | None,
    steps: tuple[Step, ...],
    days: tuple[Day, ...],
) -> Forecast:
    if not says_something(steps):
        raise WeatherUnavailable(NAME, Reason.NO_DATA)
    return Forecast(
        place_code=place.code,
        place_name=place.name,
        updated_at=now.astimezone(TAIPEI),
        now=moment,
        steps=steps,
        days=days,
        provider=NAME,
        attribution=ATTRIBUTION,
        area=place.area if place.landmark else "",
        elevation=place.elevation,
        of_area=place.landmark is not None,
        sun=sun_on(now.astimezone(TAIPEI).date(), place.latitude, place.longitude),
    )


# ---- the way to the values


def read_entries(body: object, place: Place) -> list[Entry]:
    """Every value for *place*, or for the township of a landmark, with its time.

    WeatherUnavailable: it is no answer, or not about this place.
    """
    return list(_entries(_location(body, place, place.town or place.county)))


def _location(body: object, place: Place, name: str) -> dict[str, object]:
    """The part about *place*. WeatherUnavailable: it is no answer, or not about this place."""
    records = field(body, "Records")
    if field(body, "Success") not in ("true", True) or not isinstance(records, dict):
        raise WeatherUnavailable(NAME, Reason.UNREADABLE)
    for group in nodes(records, "Locations") or [records]:
        for location in nodes(group, "Location"):
            if _is_about(group, location, place, name):
                return location
    raise WeatherUnavailable(NAME, Reason.NO_DATA)


def _is_about(group: object, location: object, place: Place, name: str) -> bool:
    """By its code; without one, by its name, which another county may have, too."""
    geocode = field(location, "Geocode")
    if isinstance(geocode, str) and geocode:
        return geocode in (place.area_code, f"{place.area_code}000")  # a county, among townships
    county = field(group, "LocationsName")
    is_here = county is None or spelt(county) in (place.county, "臺灣")
    return is_here and spelt(field(location, "LocationName")) == name


def spelt(name: object) -> str:
    """A name with 臺; empty, if it is none."""
    return name.strip().replace("台", "臺") if isinstance(name, str) else ""


def _entries(location: object) -> Iterator[Entry]:
    for element in nodes(location, "WeatherElement"):
        for time in nodes(element, "Time"):
            at = taiwan_time(field(time, "DataTime"))
            start, end = taiwan_time(field(time, "StartTime")), taiwan_time(field(time, "EndTime"))
            if at is not None:
                yield Entry(at, None, _values(time))
            elif start is not None and end is not None and start < end:
                yield Entry(start, end, _values(time))


def _values(time: object) -> dict[str, object]:
    """What is said, whether as a list of objects or as one."""
    said: dict[str, object] = {}
    parameter = field(time, "Parameter")
    for values in nodes(time, "ElementValue") or [parameter]:
        if isinstance(values, dict):
            said = values | said
    return said


# ---- townships


def _points(
    entries: list[Entry], key: str, reading: Callable[[object], T | None]
) -> dict[datetime, T]:
    """The values of a key that are about a time; the first, where there are two."""
    said = ((entry.start, reading(entry.values.get(key))) for entry in entries if not entry.end)
    points: dict[datetime, T] = {}
    for at, value in said:
        if value is not None:
            points.setdefault(at, value)
    return points


def _slots(entries: list[Entry], key: str, reading: Callable[[object], T | None]) -> list[Slot[T]]:
    """The values of a key that are for a while, the shortest first: they say more."""
    said = [
        Slot(entry.start, entry.end, value)
        for entry in entries
        if entry.end and (value := reading(entry.values.get(key))) is not None
    ]
    return sorted(said, key=lambda slot: slot.end - slot.start)


def _skies(entries: list[Entry]) -> list[Slot[Words]]:
    """What the sky looks like, in words and as a code; the picture depends on the hour."""
    said = [
        Slot(entry.start, entry.end, (entry.values.get("Weather"), entry.values.get("WeatherCode")))
        for entry in entries
        if entry.end and entry.values.keys() & {"Weather", "WeatherCode"}
    ]
    return sorted(said, key=lambda slot: slot.end - slot.start)


def _during(slots: Iterable[Slot[T]], at: datetime) -> T | None:
    return next((slot.value for slot in slots if slot.start <= at < slot.end), None)


def _sky(skies: list[Slot[Words]], at: datetime, *, day: bool = False) -> Sky | None:
    text, code = _during(skies, at) or (None, None)
    return from_cwa(text, code, night=not day and is_night(at))


def _moment(
    entries: list[Entry],
    temperature: dict[datetime, float],
    skies: list[Slot[Words]],
    now: datetime,
) -> Moment | None:
    """The weather of this hour, where the forecast has begun."""
    hour = now.astimezone(TAIPEI).replace(minute=0, second=0, microsecond=0)
    if hour not in temperature:
        return None
    feels_like = _points(entries, "ApparentTemperature", felt_celsius).get(hour)
    humidity = _points(entries, "RelativeHumidity", percent).get(hour)
    wind = _wind(entries, hour)
    return Moment(hour, _sky(skies, hour), temperature[hour], feels_like, humidity, wind)


def _wind(entries: list[Entry], hour: datetime) -> Wind | None:
    speed = _points(entries, "WindSpeed", wind_speed).get(hour)
    direction = _points(entries, "WindDirection", _words).get(hour)
    return None if speed is None else Wind(speed, direction)


def _words(raw: object) -> str | None:
    """Some Chinese characters, and neither "-" nor a number."""
    words = raw.strip() if isinstance(raw, str) else ""
    return words if 0 < len(words) < 10 and words.isalpha() and not words.isascii() else None


def _steps_of_days(now: datetime) -> list[list[datetime]]:
    """When the steps begin, for each day from today."""
    today = now.astimezone(TAIPEI).replace(hour=0, minute=0, second=0, microsecond=0)
    days = [today + timedelta(days=number) for number in range(DAYS_KEPT + 1)]
    return [[day + STEP * number for number in range(_STEPS_IN_A_DAY)] for day in days]


def _days(
    days: list[list[datetime]],
    temperature: dict[datetime, float],
    skies: list[Slot[Words]],
    rain: list[Slot[int]],
) -> Iterator[Day]:
    """Days that are known from midnight to midnight: part of a day has no known maximum."""
    for starts in days:
        if all(start in temperature for start in starts):
            degrees = _of_day(temperature, starts[0].date())
            chances = [_during(rain, start) for start in starts]
            sky = _sky(skies, _telling(starts, chances), day=True)
            yield Day(starts[0].date(), sky, min(degrees), max(degrees), _highest(chances))


def _of_day(temperature: dict[datetime, float], day: date) -> list[float]:
    return [degrees for at, degrees in temperature.items() if at.date() == day]


def _telling(starts: list[datetime], chances: list[int | None]) -> datetime:
    """The step whose sky stands for the day: the wettest between morning and evening, or noon."""
    daytime = [number for number, start in enumerate(starts) if start.hour in _DAYTIME]
    return starts[
        max(daytime, key=lambda number: (chances[number] or 0, starts[number].hour == 12))
    ]


def _highest(chances: list[int | None]) -> int | None:
    known = [chance for chance in chances if chance is not None]
    return max(known) if len(known) == len(chances) else None


# ---- counties


def _period(start: datetime, end: datetime, said: list[dict[str, object]]) -> Step:
    """Half a day of a county: two temperatures, of which the lower is the lowest."""
    degrees = [value for value in _with_unit(said, _CELSIUS, celsius) if value is not None]
    low, high = sorted(degrees) if len(degrees) == 2 else (None, None)
    rain = next(iter(_with_unit(said, _PERCENT, percent)), None)
    text, code = next(_with_code(said), (None, None))
    return Step(start, end, from_cwa(text, code, night=is_night(start)), low, high, rain)


def _with_unit(
    said: list[dict[str, object]], units: tuple[str, ...], reading: Callable[[object], T]
) -> Iterator[T]:
    for values in said:
        if field(values, "ParameterUnit") in units:
            yield reading(field(values, "ParameterName"))


def _with_code(said: list[dict[str, object]]) -> Iterator[tuple[object, object]]:
    for values in said:
        if field(values, "ParameterValue") is not None and not field(values, "ParameterUnit"):
            yield field(values, "ParameterName"), field(values, "ParameterValue")
