"""What the bot knows about the weather of one place: plain facts, which a cache can store.

What nobody knows is None, never 0. All times are aware, those of Taiwan.
"""

from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone

TAIPEI = timezone(timedelta(hours=8), "Asia/Taipei")
"""Taiwan has had no summer time since 1979, so no zone database is needed."""
STEP = timedelta(hours=3)
STEPS_SHOWN, DAYS_SHOWN = 8, 3
STEPS_KEPT, DAYS_KEPT = 16, 4
"""More than is shown: a forecast that is some hours old still has the next 24."""
STALE_AFTER = timedelta(minutes=30)
"""From this age on, people are told that it may not be the newest."""
_MOMENT_LASTS = timedelta(minutes=90)
_CLOCKS_DIFFER = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class Sky:
    """The weather in a word and a picture."""

    text: str
    emoji: str


@dataclass(frozen=True, slots=True)
class Moment:
    """The weather at one moment."""

    at: datetime
    sky: Sky | None
    temperature: float | None
    feels_like: float | None
    humidity: int | None

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
    """A whole day, from midnight to midnight."""

    on: date
    sky: Sky | None
    low: float | None
    high: float | None
    rain: int | None


@dataclass(frozen=True, slots=True)
class Attribution:
    """Who has to be named, with the links that the licence wants."""

    text: str
    url: str | None = None
    licence: str | None = None
    licence_url: str | None = None


@dataclass(frozen=True, slots=True)
class Forecast:
    """The weather of one place, as one provider told it at `updated_at`."""

    place_code: str
    place_name: str
    updated_at: datetime
    now: Moment | None
    steps: tuple[Step, ...]
    days: tuple[Day, ...]
    provider: str
    attribution: Attribution
    sample: bool = False
    """True: nobody observed this, it is made up."""

    def __post_init__(self) -> None:
        _must_be_aware(self.updated_at)


def is_stale(forecast: Forecast, now: datetime) -> bool:
    """True: so old that people must be told."""
    return now - forecast.updated_at > STALE_AFTER


def moment_of(forecast: Forecast, now: datetime) -> Moment | None:
    """What may be called the weather of *now*. None: the provider said nothing about it."""
    moment = forecast.now
    if moment is None or not -_CLOCKS_DIFFER <= now - moment.at < _MOMENT_LASTS:
        return None
    return moment


def steps_ahead(forecast: Forecast, now: datetime) -> tuple[Step, ...]:
    """The next 24 hours: steps that are not over, however old the forecast is."""
    return tuple(step for step in forecast.steps if step.end > now)[:STEPS_SHOWN]


def days_ahead(forecast: Forecast, now: datetime) -> tuple[Day, ...]:
    """Today, where it is known as a whole, and the days after it."""
    today = now.astimezone(TAIPEI).date()
    return tuple(day for day in forecast.days if day.on >= today)[:DAYS_SHOWN]


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
