"""What a forecast says about the requested time. Nothing is made up."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from ..weather.forecast import TAIPEI, Day, Forecast, Sky, Step
from ..weather.wording import degrees
from .when import When

POSSIBLE = 30
"""Per cent of rain from which on it should be mentioned."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the forecast knows about a time; None and empty: nothing."""

    label: str
    place: str
    sky: Sky | None = None
    low: float | None = None
    high: float | None = None
    rain: int | None = None
    wettest: Step | None = None
    """The hours in which rain is most likely, where one can tell."""

    @property
    def head(self) -> str:
        """明天臺中市 ☀️ 晴朗"""
        sky = f" {self.sky.emoji} {self.sky.text}" if self.sky else ""
        return f"{self.label}{self.place}{sky}"

    @property
    def temperatures(self) -> str:
        """18~24°; empty: unknown."""
        low, high = degrees(self.low), degrees(self.high)
        if self.low is None or self.high is None:
            return ""
        return high if low == high else f"{low.removesuffix('°')}~{high}"

    @property
    def is_wet(self) -> bool:
        """True: the word for the sky has rain in it."""
        return self.sky is not None and ("雨" in self.sky.text or "雪" in self.sky.text)


def facts_of(forecast: Forecast, when: When, now: datetime) -> Facts | None:
    """About *when*. None: it does not reach so far."""
    steps = [step for step in forecast.steps if step.end > now and _meets(step, when)]
    days = [day for day in forecast.days if when.start.date() <= day.on < last_day(when)]
    is_today = when.start.date() == now.astimezone(TAIPEI).date() and len(days) <= 1
    if (when.is_hours or is_today) and steps:
        return _of_steps(forecast, when, steps, days if not when.is_hours else [])
    if days:
        return _of_days(forecast, when, days, steps)
    return _of_steps(forecast, when, steps, []) if steps else None


def _meets(step: Step, when: When) -> bool:
    return step.start < when.end and step.end > when.start


def last_day(when: When) -> date:
    """The day after the last."""
    end = when.end.astimezone(TAIPEI)
    whole = end.time() == datetime.min.time()
    return end.date() if whole else end.date() + timedelta(days=1)


def _of_steps(forecast: Forecast, when: When, steps: Sequence[Step], days: Sequence[Day]) -> Facts:
    wettest = _wettest(steps)
    sky = wettest.sky if wettest and (wettest.rain or 0) >= POSSIBLE else steps[0].sky
    parts = [*steps, *days]
    return Facts(
        when.label, forecast.place_name, sky or steps[0].sky,
        _least(part.low for part in parts), _most(part.high for part in parts),
        wettest.rain if wettest else None,
        wettest if len(steps) > 1 else None,
    )  # fmt: skip


def _of_days(forecast: Forecast, when: When, days: Sequence[Day], steps: Sequence[Step]) -> Facts:
    wettest = max(days, key=lambda day: -1 if day.rain is None else day.rain)
    return Facts(
        when.label, forecast.place_name, wettest.sky or days[0].sky,
        _least(day.low for day in days), _most(day.high for day in days), wettest.rain,
        _wettest(steps) if len(days) == 1 and len(steps) > 1 else None,
    )  # fmt: skip


def _wettest(steps: Sequence[Step]) -> Step | None:
    known = [step for step in steps if step.rain is not None]
    return max(known, key=lambda step: step.rain or 0) if known else None


def _least(values: Iterable[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
