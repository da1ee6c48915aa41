"""What the bot knows about the weather of one place: plain facts, which a cache can store.

An unknown value is None, never 0. All times are aware, in Taiwan's zone.
"""

from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from itertools import dropwhile

TAIPEI = timezone(timedelta(hours=8), "Asia/Taipei")
"""Taiwan has had no summer time since 1979, so no zone database is needed."""
STEP = timedelta(hours=3)
STEPS_SHOWN, DAYS_SHOWN = 8, 7
STEPS_KEPT, DAYS_KEPT = 16, 8
"""More than is shown: a forecast that is some hours old still has the next 24, and seven days."""
STALE_AFTER = timedelta(minutes=30)
"""From this age on, the card says that it may not be current."""
_MOMENT_LASTS = timedelta(minutes=90)
_AIR_LASTS = timedelta(hours=3)
_CLOCKS_DIFFER = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class Sky:
    """The weather in a word and an emoji."""

    text: str
    emoji: str


@dataclass(frozen=True, slots=True)
class Wind:
    """How hard it blows, in metres per second, and from where in words: 東北風."""

    speed: float
    direction: str | None = None
    gusts: float | None = None


@dataclass(frozen=True, slots=True)
class Air:
    """The air quality index, as the United States and Taiwan reckon it: 50 is still good."""

    aqi: int
    at: datetime

    def __post_init__(self) -> None:
        _must_be_aware(self.at)


@dataclass(frozen=True, slots=True)
class Sun:
    """When it rises and sets."""

    rises: datetime
    sets: datetime


@dataclass(frozen=True, slots=True)
class Hazard:
    """An official warning for a county, in force from `start` until `end`; None: not known."""

    county: str
    name: str
    start: datetime | None = None
    end: datetime | None = None

    def __post_init__(self) -> None:
        _must_be_aware(*(time for time in (self.start, self.end) if time))

    def is_in_force(self, now: datetime) -> bool:
        """Whether it holds *now*."""
        return (not self.start or self.start <= now) and (not self.end or now < self.end)


@dataclass(frozen=True, slots=True)
class Moment:
    """The weather at one moment."""

    at: datetime
    sky: Sky | None
    temperature: float | None
    feels_like: float | None
    humidity: int | None
    wind: Wind | None = None

    def __post_init__(self) -> None:
        _must_be_aware(self.at)


@dataclass(frozen=True, slots=True)
class Step:
    """A few hours: usually three, of which `low` and `high` are the same temperature."""

    start: datetime
    end: datetime
    sky: Sky | None
    low: float | None
    high: float | None
    rain: int | None
    """The probability of rain, in per cent."""

    def __post_init__(self) -> None:
        _must_be_aware(self.start, self.end)


@dataclass(frozen=True, slots=True)
class Day:
    """A whole day, from midnight to midnight; or a daytime and the night after it."""

    on: date
    sky: Sky | None
    low: float | None
    high: float | None
    rain: int | None
    uv: int | None = None
    """The highest UV index of the day."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """Who has to be named, with the links that the licence wants."""

    text: str
    url: str | None = None
    licence: str | None = None
    licence_url: str | None = None


@dataclass(frozen=True, slots=True)
class Forecast:
    """The weather of one place, as one provider gave it at `updated_at`."""

    place_code: str
    place_name: str
    updated_at: datetime
    now: Moment | None
    steps: tuple[Step, ...]
    days: tuple[Day, ...]
    provider: str
    attribution: Attribution
    sample: bool = False
    """True: this is made up, not observed."""
    area: str = ""
    """Of a landmark: the township that it lies in."""
    elevation: int | None = None
    """Of a landmark: metres above the sea."""
    of_area: bool = False
    """True: it is the forecast of the township, because the provider has none for the landmark."""
    air: Air | None = None
    sun: Sun | None = None
    """Of the day on which it was asked for: the next day it is a minute off."""
    hazards: tuple[Hazard, ...] = ()
    """The official warnings of its county, also some that are not in force yet."""

    def __post_init__(self) -> None:
        _must_be_aware(self.updated_at)


def is_stale(forecast: Forecast, now: datetime) -> bool:
    """True: so old that the card must say so."""
    return now - forecast.updated_at > STALE_AFTER


def moment_of(forecast: Forecast, now: datetime) -> Moment | None:
    """The current weather. None: the provider said nothing about it."""
    moment = forecast.now
    if moment is None or not -_CLOCKS_DIFFER <= now - moment.at < _MOMENT_LASTS:
        return None
    return moment


def steps_ahead(forecast: Forecast, now: datetime) -> tuple[Step, ...]:
    """The next 24 hours that are known: steps that are not over, however old the forecast is."""
    ahead = (step for step in forecast.steps if step.end > now)
    return tuple(dropwhile(_is_empty, ahead))[:STEPS_SHOWN]


def _is_empty(step: Step) -> bool:
    return step.sky is None and step.low is None and step.rain is None


def days_ahead(forecast: Forecast, now: datetime) -> tuple[Day, ...]:
    """Today, where it is known as a whole, and the days after it."""
    today = now.astimezone(TAIPEI).date()
    return tuple(day for day in forecast.days if day.on >= today)[:DAYS_SHOWN]


def day_of(forecast: Forecast, now: datetime) -> Day | None:
    """Today, where the provider has it."""
    days = days_ahead(forecast, now)
    return days[0] if days and days[0].on == now.astimezone(TAIPEI).date() else None


def hazards_now(forecast: Forecast, now: datetime) -> tuple[Hazard, ...]:
    """The official warnings that are in force."""
    return tuple(hazard for hazard in forecast.hazards if hazard.is_in_force(now))


def air_of(forecast: Forecast, now: datetime) -> Air | None:
    """The current air quality. None: not known, or too old."""
    air = forecast.air
    return air if air is not None and now - air.at < _AIR_LASTS else None


def step_starts(now: datetime) -> list[datetime]:
    """When the steps begin that a provider should fill: at 0, 3, 6 … o'clock, the current first."""
    local = now.astimezone(TAIPEI)
    hour = local.hour - local.hour % 3
    first = local.replace(hour=hour, minute=0, second=0, microsecond=0)
    return [first + STEP * number for number in range(STEPS_KEPT)]


def says_something(steps: tuple[Step, ...]) -> bool:
    """True: for the next 24 hours there is at least one temperature, or the look of the sky."""
    return any(step.sky or step.low is not None for step in steps[:STEPS_SHOWN])


def is_night(at: datetime) -> bool:
    """True: the sun does not shine, as far as a picture has to know."""
    return not 6 <= at.astimezone(TAIPEI).hour < 18


def _must_be_aware(*times: datetime) -> None:
    if any(time.tzinfo is None for time in times):
        raise ValueError("a time without a zone")
