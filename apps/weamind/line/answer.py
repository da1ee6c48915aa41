"""The answer to a question, in one line, from what the forecast says. Nothing is made up."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from ..weather.forecast import TAIPEI, Day, Forecast, Moment, Sky, Step, moment_of
from ..weather.wording import chance, degrees
from .question import Question
from .when import When

_LIKELY, _POSSIBLE = 60, 30
"""Per cent of rain."""
_WEEKDAYS = "一二三四五六日"
TYPHOON_PAGE = "https://www.cwa.gov.tw/V8/C/P/Typhoon/TY_NEWS.html"


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


def answer_line(forecast: Forecast, question: Question, *, now: datetime) -> str | None:
    """The answer, or that the forecast does not have it. None: nothing was asked but the card."""
    if question.is_plain:
        return None
    if question.topic in _ELSEWHERE:
        return _ELSEWHERE[question.topic](forecast.place_name)
    when = question.when
    if when is not None and when.is_over(now):
        return f"{when.label}已經過了，以下是{forecast.place_name}接下來的預報。"
    if question.topic == "humidity":
        return _humidity(forecast, now)
    if (when is None and question.topic in _ABOUT_NOW) or (when is not None and when.is_now):
        return _now(forecast, question, now)
    return _later(forecast, question, when or _rest_of_day(now), now)


def _rest_of_day(now: datetime) -> When:
    midnight = now.astimezone(TAIPEI).replace(hour=0, minute=0, second=0, microsecond=0)
    return When("今天", midnight, midnight + timedelta(days=1))


def _later(forecast: Forecast, question: Question, when: When, now: datetime) -> str:
    facts = facts_of(forecast, when, now)
    if facts is None:
        return _beyond(forecast, when)
    return _sentence(facts.head, *_VERDICTS[question.topic](facts))


def _beyond(forecast: Forecast, when: When) -> str:
    last = max((day.on for day in forecast.days), default=None)
    until = f"，目前只到 {_named(last)}" if last else ""
    return f"{when.label.strip()}{forecast.place_name}的預報還沒有出來{until}。"


def _named(day: date) -> str:
    return f"{day.month}/{day.day}（週{_WEEKDAYS[day.weekday()]}）"


# ---- what the forecast knows


def facts_of(forecast: Forecast, when: When, now: datetime) -> Facts | None:
    """About *when*. None: it does not reach so far."""
    steps = [step for step in forecast.steps if step.end > now and _meets(step, when)]
    days = [day for day in forecast.days if when.start.date() <= day.on < _last_day(when)]
    is_today = when.start.date() == now.astimezone(TAIPEI).date() and len(days) <= 1
    if (when.is_hours or is_today) and steps:
        return _of_steps(forecast, when, steps, days if not when.is_hours else [])
    if days:
        return _of_days(forecast, when, days, steps)
    return _of_steps(forecast, when, steps, []) if steps else None


def _meets(step: Step, when: When) -> bool:
    return step.start < when.end and step.end > when.start


def _last_day(when: When) -> date:
    """The day after the last."""
    end = when.end.astimezone(TAIPEI)
    whole = end.time() == datetime.min.time()
    return end.date() if whole else end.date() + timedelta(days=1)


def _of_steps(forecast: Forecast, when: When, steps: Sequence[Step], days: Sequence[Day]) -> Facts:
    wettest = _wettest(steps)
    sky = wettest.sky if wettest and (wettest.rain or 0) >= _POSSIBLE else steps[0].sky
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


# ---- this moment


_ABOUT_NOW = ("temperature", "wind")


def _now(forecast: Forecast, question: Question, now: datetime) -> str:
    moment = moment_of(forecast, now)
    coming = _later_now(forecast, now)
    if moment is None:
        facts = coming and Facts(
            "現在", coming.place, coming.sky, coming.low, coming.high, coming.rain
        )
        return (
            _sentence(facts.head, *_VERDICTS[question.topic](facts))
            if facts
            else _nothing(forecast)
        )
    facts = Facts(
        "現在", forecast.place_name, moment.sky, moment.temperature, moment.temperature,
        coming.rain if coming else None,
    )  # fmt: skip
    if question.topic in ("temperature", "weather"):
        return _sentence(facts.head, facts.temperatures, _feels(moment))
    return _sentence(facts.head, *_VERDICTS[question.topic](facts))


def _later_now(forecast: Forecast, now: datetime) -> Facts | None:
    return facts_of(forecast, When("現在", now, now + timedelta(hours=1)), now)


def _nothing(forecast: Forecast) -> str:
    return f"目前沒有{forecast.place_name}現在的資料。"


def _feels(moment: Moment) -> str:
    return "" if moment.feels_like is None else f"體感 {degrees(moment.feels_like)}"


def _humidity(forecast: Forecast, now: datetime) -> str:
    moment = moment_of(forecast, now)
    if moment is None or moment.humidity is None:
        return f"目前沒有{forecast.place_name}的濕度資料。"
    how = "很潮濕" if moment.humidity >= 85 else "偏乾燥" if moment.humidity < 50 else "還算舒適"
    return f"現在{forecast.place_name}濕度 {moment.humidity}%，{how}。"


# ---- verdicts: what to say after where and how the sky looks


def _rain(facts: Facts) -> list[str]:
    return [_chance(facts), _umbrella(facts), _when_wettest(facts)]


def _chance(facts: Facts) -> str:
    return "" if facts.rain is None else f"降雨機率 {chance(facts.rain)}"


def _umbrella(facts: Facts) -> str:
    if facts.rain is None:
        return "記得帶傘" if facts.is_wet else "應該不用帶傘"
    if facts.rain >= _LIKELY:
        return "記得帶傘"
    if facts.rain >= _POSSIBLE or facts.is_wet:
        return "帶把傘比較安心"
    return "不用帶傘"


def _when_wettest(facts: Facts) -> str:
    step = facts.wettest
    if step is None or (step.rain or 0) < _POSSIBLE:
        return ""
    start, end = step.start.astimezone(TAIPEI), step.end.astimezone(TAIPEI)
    return f"{start:%-H}–{end.hour or 24} 時最可能下雨"


def _weather(facts: Facts) -> list[str]:
    return [facts.temperatures, *_rain(facts)[:2]]


def _temperature(facts: Facts) -> list[str]:
    return [facts.temperatures or "目前沒有溫度資料"]


def _clothes(facts: Facts) -> list[str]:
    return [facts.temperatures, _advice(facts)]


def _advice(facts: Facts) -> str:
    low, high = facts.low, facts.high
    if low is None or high is None:
        return "目前沒有溫度資料，不知道要不要穿外套"
    for below, words in ((12, "要穿厚外套，注意保暖"), (18, "要穿外套"), (22, "帶件薄外套")):
        if low < below:
            return words
    return "不用外套，穿短袖就好" if high >= 28 else "不用外套，穿薄長袖就好"


def _cold(facts: Facts) -> list[str]:
    low = facts.low
    how = "" if low is None else "會冷" if low < 16 else "有點涼" if low < 20 else "不會冷"
    return [facts.temperatures, how, _advice(facts)]


def _heat(facts: Facts) -> list[str]:
    high = facts.high
    if high is None:
        return ["目前沒有溫度資料"]
    hot = ((33, "很熱，記得補充水分"), (30, "會熱"), (27, "有點熱"))
    how = next((words for above, words in hot if high >= above), "不會熱")
    return [facts.temperatures, how]


def _laundry(facts: Facts) -> list[str]:
    rain = facts.rain
    if rain is None:
        return ["不太適合曬衣服" if facts.is_wet else "應該可以曬衣服"]
    if rain >= _LIKELY:
        return [_chance(facts), "不適合曬衣服"]
    wet = rain >= _POSSIBLE or facts.is_wet
    return [_chance(facts), "曬衣服要留意下雨" if wet else "適合曬衣服"]


def _outing(facts: Facts) -> list[str]:
    rain = facts.rain or 0
    wet = rain >= _POSSIBLE or facts.is_wet
    how = "不太適合戶外活動" if rain >= _LIKELY else "出門記得帶傘" if wet else "適合出門"
    return [facts.temperatures, _chance(facts), how]


def _snow(facts: Facts) -> list[str]:
    snows = facts.sky is not None and "雪" in facts.sky.text
    return [facts.temperatures, "可能下雪" if snows else "預報沒有下雪"]


def _sun(facts: Facts) -> list[str]:
    text = facts.sky.text if facts.sky else ""
    how = "會出太陽" if "晴" in text else "太陽不太會露臉" if text else "目前沒有資料"
    return [facts.temperatures, _chance(facts), how]


def _wind(facts: Facts) -> list[str]:
    return [facts.temperatures, "目前沒有風速的資料"]


_VERDICTS: dict[str, Callable[[Facts], list[str]]] = {
    "weather": _weather, "rain": _rain, "laundry": _laundry, "clothes": _clothes, "cold": _cold,
    "heat": _heat, "temperature": _temperature, "wind": _wind, "snow": _snow, "sun": _sun,
    "outing": _outing,
}  # fmt: skip
_ELSEWHERE: dict[str, Callable[[str], str]] = {
    "typhoon": lambda place: (
        f"🌀 颱風動態與警報請看中央氣象署：{TYPHOON_PAGE}\n以下是{place}的預報。"
    ),
    "air": lambda place: f"目前沒有{place}的空氣品質資料，以下是天氣預報。",
    "uv": lambda place: f"目前沒有{place}的紫外線資料，以下是天氣預報。",
    "sunrise": lambda place: f"目前沒有{place}的日出日落時間，以下是天氣預報。",
}
"""What no provider tells us."""


def _sentence(*parts: str) -> str:
    return "，".join(part for part in parts if part) + "。"
