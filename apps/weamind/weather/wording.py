"""The words for a forecast, in Traditional Chinese; an unknown value is a dash."""

from datetime import date, datetime, timedelta

from .forecast import (
    STEP,
    TAIPEI,
    Day,
    Forecast,
    Moment,
    Step,
    Wind,
    air_of,
    day_of,
    days_ahead,
    hazards_now,
    is_stale,
    moment_of,
    steps_ahead,
)
from .scales import air_class, beaufort, uv_class
from .values import rounded

UNKNOWN = "–"
SAMPLE = "範例資料"
_NUMERALS = "零一二三四五六七"
_WEEKDAYS = "一二三四五六日"
_HIGH = 100
"""From this elevation in metres on, a card says how high a landmark is."""
_COLDER = 500
"""From this elevation on, its weather differs from that of the township around it."""


def forecast_text(forecast: Forecast, *, now: datetime) -> str:
    """The whole forecast as plain text, for where no card can be shown."""
    steps, days = steps_ahead(forecast, now), days_ahead(forecast, now)
    top = [f"📍 {forecast.place_name}", whereabouts(forecast), headline(forecast, now)]
    parts = [
        [*filter(None, top), *_warned(forecast, now)],
        [steps_name(steps), *map(step_line, steps)],
        [days_name(days), *(day_line(day, now) for day in days)],
        ["其他", *(f"{sign} {name} {value}" for sign, name, value in conditions(forecast, now))],
        [*notes(forecast, now), *_credit(forecast)],
    ]
    return "\n\n".join("\n".join(part) for part in parts if len(part) > 1)


def summary(forecast: Forecast, *, now: datetime) -> str:
    """The answer in one sentence: for notifications, and for screen readers."""
    sentences = [
        f"{forecast.place_name} {headline(forecast, now)}",
        *_warned(forecast, now),
        _range_of(steps_ahead(forecast, now)),
        *(day_line(day, now) for day in days_ahead(forecast, now)[:2]),
        *notes(forecast, now),
    ]
    return "。".join(sentence for sentence in sentences if sentence)


def headline(forecast: Forecast, now: datetime) -> str:
    """The weather now; where the provider has none, that of the hours that come first."""
    moment = moment_of(forecast, now)
    if moment is not None:
        return f"現在 {_sky(moment)} {degrees(moment.temperature)}{_details(moment)}"
    step = next(iter(steps_ahead(forecast, now)), None)
    return f"{hours(step)} {_sky(step)} {temperature_range(step)}" if step else UNKNOWN


def whereabouts(forecast: Forecast) -> str:
    """Of a landmark: its township and its height, 新北市瑞芳區・海拔 300 公尺; else nothing."""
    height = forecast.elevation
    known = [forecast.area, f"海拔 {height} 公尺" if height is not None and height >= _HIGH else ""]
    return "・".join(filter(None, known))


def warning(forecast: Forecast, now: datetime) -> str:
    """The official warnings in force: 新北市 大雨特報、陸上強風特報; nothing, if there are none."""
    names = dict.fromkeys(hazard.name for hazard in hazards_now(forecast, now))
    county = forecast.hazards[0].county if names else ""
    return f"{county} {'、'.join(names)}" if names else ""


def area_note(forecast: Forecast) -> str:
    """That it is the forecast of the township, where that makes a difference; else nothing."""
    if not forecast.of_area or (forecast.elevation or 0) < _COLDER:
        return ""
    return f"這是{forecast.area}的預報，高處會更冷"


def conditions(forecast: Forecast, now: datetime) -> list[tuple[str, str, str]]:
    """A picture, a name and what is known: air, UV index, wind, sunrise and sunset."""
    air, day, moment = air_of(forecast, now), day_of(forecast, now), moment_of(forecast, now)
    rows: list[tuple[str, str, str]] = []
    if air is not None:
        rows.append(("🍃", "空氣品質", f"AQI {air.aqi} {air_class(air.aqi)}"))
    if day is not None and day.uv is not None:
        rows.append(("🌞", "紫外線", f"今天最高 {day.uv} {uv_class(day.uv)}"))
    if moment is not None and moment.wind is not None:
        rows.append(("🎐", "風", wind_words(moment.wind)))
    if forecast.sun is not None:
        rises, sets = _local(forecast.sun.rises), _local(forecast.sun.sets)
        rows.append(("🌅", "日出日落", f"{rises:%H:%M} – {sets:%H:%M}"))
    return rows


def wind_words(wind: Wind) -> str:
    """東北風 3 級，陣風 5 級."""
    force = f"{wind.direction or ''} {beaufort(wind.speed)} 級".strip()
    strong = "" if wind.gusts is None else f"，陣風 {beaufort(wind.gusts)} 級"
    return force + strong


def details(moment: Moment) -> list[str]:
    """How it feels, as far as it is known."""
    feels = f"體感 {degrees(moment.feels_like)}" if moment.feels_like is not None else ""
    damp = f"濕度 {moment.humidity}%" if moment.humidity is not None else ""
    return [detail for detail in (feels, damp) if detail]


def degrees(value: float | None) -> str:
    """As people say it: whole degrees."""
    return UNKNOWN if value is None else f"{rounded(value)}°"


def temperature_range(part: Step | Day) -> str:
    """One temperature, or from the lowest to the highest."""
    low, high = degrees(part.low), degrees(part.high)
    return high if low == high else f"{low.removesuffix('°')}~{high}"


def chance(rain: int | None) -> str:
    """The probability of rain."""
    return UNKNOWN if rain is None else f"{rain}%"


def hours(step: Step) -> str:
    """The hours: 09–12 時."""
    return f"{_local(step.start):%H}–{_local(step.end):%H} 時"


def step_name(step: Step) -> str:
    """Short: when it begins, or from when to when where it is not the usual three hours."""
    return f"{_local(step.start):%H} 時" if step.end - step.start == STEP else hours(step)


def day_name(day: Day, now: datetime) -> str:
    """Today, tomorrow, or which day of the week."""
    distance = day.on - _local(now).date()
    names = {timedelta(0): "今天", timedelta(days=1): "明天"}
    return names.get(distance, f"週{_WEEKDAYS[day.on.weekday()]}")


def day_date(day: date) -> str:
    """3/2."""
    return f"{day.month}/{day.day}"


def step_line(step: Step) -> str:
    """One step of the next 24 hours."""
    return f"{hours(step)} {_emoji(step)} {temperature_range(step)} 💧{chance(step.rain)}"


def day_line(day: Day, now: datetime) -> str:
    """One day."""
    name = f"{day_name(day, now)} {day_date(day.on)}"
    return f"{name} {_sky(day)} {temperature_range(day)} 💧{chance(day.rain)}"


def steps_name(steps: tuple[Step, ...]) -> str:
    """How far they reach: 未來 24 小時, as a rule."""
    reach = steps[-1].end - steps[0].start if steps else timedelta(0)
    return f"未來 {round(reach / timedelta(hours=1))} 小時"


def days_name(days: tuple[Day, ...]) -> str:
    """How many there are: 未來七天, as a rule."""
    return f"未來{_NUMERALS[min(len(days), 7)]}天"


def notes(forecast: Forecast, now: datetime) -> list[str]:
    """What people must know before they believe it, and how old it is."""
    sample = [f"※ {forecast.attribution.text}"] if forecast.sample else []
    age = stale_note if is_stale(forecast, now) else updated
    return [*filter(None, [area_note(forecast)]), *sample, age(forecast, now)]


def stale_note(forecast: Forecast, now: datetime) -> str:
    """How old it is."""
    return f"資料更新於 {_clock(forecast, now)}，可能不是最新"


def updated(forecast: Forecast, now: datetime) -> str:
    """When it was asked for."""
    return f"更新 {_clock(forecast, now)}"


def _clock(forecast: Forecast, now: datetime) -> str:
    at = _local(forecast.updated_at)
    day = "" if at.date() == _local(now).date() else f"{day_date(at)} "
    return f"{day}{at:%H:%M}"


def _warned(forecast: Forecast, now: datetime) -> list[str]:
    return [f"⚠️ {words}" for words in [warning(forecast, now)] if words]


def _details(moment: Moment) -> str:
    known = details(moment)
    return f"（{'，'.join(known)}）" if known else ""


def _range_of(steps: tuple[Step, ...]) -> str:
    lows = [step.low for step in steps if step.low is not None]
    highs = [step.high for step in steps if step.high is not None]
    if not lows or not highs:
        return ""
    reach = f"{degrees(min(lows))} 到 {degrees(max(highs))}"
    return f"{steps_name(steps)} {reach}{_wettest(steps)}"


def _wettest(steps: tuple[Step, ...]) -> str:
    known = [step for step in steps if step.rain is not None]
    if not known:
        return ""
    step = max(known, key=lambda step: step.rain or 0)
    return f"，降雨機率最高 {chance(step.rain)}（{hours(step)}）" if step.rain else "，幾乎不會下雨"


def _sky(part: Moment | Step | Day) -> str:
    return f"{part.sky.emoji} {part.sky.text}" if part.sky else UNKNOWN


def _emoji(part: Step) -> str:
    return part.sky.emoji if part.sky else UNKNOWN


def _credit(forecast: Forecast) -> list[str]:
    """The attribution; none if the forecast is made up."""
    credit = forecast.attribution
    words = (credit.text, credit.url, credit.licence, credit.licence_url)
    return [] if forecast.sample else [" ".join(filter(None, words))]


def _local(time: datetime) -> datetime:
    return time.astimezone(TAIPEI)
