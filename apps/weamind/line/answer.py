"""The answer to a question, in one line, from what the forecast says. Nothing is made up."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta

from ..weather.forecast import (
    TAIPEI,
    Forecast,
    Moment,
    air_of,
    day_of,
    hazards_now,
    moment_of,
)
from ..weather.scales import air_class, uv_class
from ..weather.values import rounded
from ..weather.wording import chance, degrees, wind_words
from .facts import POSSIBLE, Facts, facts_of, last_day
from .japanese import japanese_line
from .question import Question
from .when import When

_LIKELY = 60
"""Per cent of rain."""
_WEEKDAYS = "一二三四五六日"
SEA_PAGE = "https://ocean.cwa.gov.tw/"
CLOSURE_PAGE = "https://www.dgpa.gov.tw/typh/daily/nds.html"
TYPHOON_PAGE = "https://www.cwa.gov.tw/V8/C/P/Typhoon/TY_NEWS.html"


def answer_line(forecast: Forecast, question: Question, *, now: datetime) -> str | None:
    """The answer, or that the forecast does not have it. None: only the card was asked for."""
    if question.is_japanese:
        return japanese_line(forecast, question, now=now)
    if question.is_plain:
        return None
    return _answer(forecast, question, now)


def short_line(forecast: Forecast, question: Question, *, now: datetime) -> str:
    """The same, and for nothing but the card, today's weather: of several places, one line each."""
    if question.is_japanese:
        return japanese_line(forecast, question, now=now)
    return _answer(forecast, question, now)


def _answer(forecast: Forecast, question: Question, now: datetime) -> str:
    when = question.when
    if when is not None and when.is_over(now):
        return f"{when.label}已經過了，以下是{forecast.place_name}接下來的預報。"
    if when is not None and (days := when.both_days(now.astimezone(TAIPEI))):
        each_day = [replace(question, when=day) for day in days]
        return "\n".join([_answer(forecast, each, now) for each in each_day])
    topics = dict.fromkeys((question.topic, *question.also))
    return _joined([_about(forecast, Question(each, when), now) for each in topics])


def comparison(found: Sequence[Forecast], question: Question, *, now: datetime) -> str | None:
    """Which place has more of what was asked: 高雄市比較熱（最高 26°，臺中市 25°）。

    None: that was not asked, or not all of it is known.
    """
    compared = _COMPARED.get(question.topic)
    if compared is None or not question.is_comparison or question.is_japanese or len(found) < 2:
        return None
    when = question.when or _rest_of_day(now)
    values: list[tuple[float, str]] = []
    for forecast in found:
        facts = facts_of(forecast, when, now)
        value = None if facts is None else compared.value(facts)
        if value is None:
            return None
        values.append((compared.sign * rounded(value), forecast.place_name))
    values.sort(key=lambda each: -each[0])
    shown = [f"{compared.sign * value:.0f}{compared.unit}" for value, _ in values]
    if values[0][0] == values[-1][0]:
        return f"{when.label}一樣{compared.word}（都是{compared.name} {shown[0]}）。"
    others = "、".join(f"{place} {text}" for (_, place), text in zip(values, shown, strict=True))
    return f"{when.label}{values[0][1]}比較{compared.word}（{compared.name}：{others}）。"


@dataclass(frozen=True, slots=True)
class _Compared:
    word: str
    name: str
    value: Callable[[Facts], float | None]
    unit: str = "°"
    sign: int = 1
    """-1: the least of it is the most of what was asked."""


_HEAT = _Compared("熱", "最高", lambda facts: facts.high)
_COMPARED: dict[str, _Compared] = {
    "heat": _HEAT, "temperature": _HEAT, "highest": _HEAT,
    "cold": _Compared("冷", "最低", lambda facts: facts.low, sign=-1),
    "lowest": _Compared("冷", "最低", lambda facts: facts.low, sign=-1),
    "rain": _Compared("可能下雨", "降雨機率", lambda facts: facts.rain, "%"),
}  # fmt: skip
"""What can be compared by one number."""


def _joined(sentences: list[str]) -> str:
    """One sentence of those that begin alike: 明天臺北市 ⛅ 多雲, and what follows from it."""
    if len(sentences) == 1:
        return sentences[0]
    by_head: dict[str, dict[str, None]] = {}
    notes: list[str] = []
    for sentence in sentences:
        first, *more = [sentence] if "http" in sentence else sentence.rstrip("。").split("。")
        head, *parts = [first] if "http" in first else first.split("，")
        by_head[head] = by_head.get(head, {}) | dict.fromkeys(parts)
        notes += more
    lines = [head if "http" in head else _sentence(head, *by_head[head]) for head in by_head]
    return "\n".join(lines) + "".join(f"{note}。" for note in notes)


def _about(forecast: Forecast, question: Question, now: datetime) -> str:
    when = question.when
    if question.topic in _OF_TODAY:
        is_later = when is not None and when.start.date() > now.astimezone(TAIPEI).date()
        return _of_today(forecast, question, now, when if is_later else None)
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
    gap = _gap(forecast, when)
    if gap:
        facts = replace(facts, label="")
    return gap + _sentence(facts.head, *_VERDICTS[question.topic](facts))


def _gap(forecast: Forecast, when: When) -> str:
    """Which of the days the forecast has, if it has not all of them; empty: it has."""
    end = last_day(when)
    days = sorted(day.on for day in forecast.days if when.start.date() <= day.on < end)
    if when.is_hours or not days or days[-1] == end - timedelta(days=1):
        return ""
    until = f"到 {_named(days[-1])}" if len(days) > 1 else ""
    return f"{when.label.strip()}目前只有 {_named(days[0])}{until}的預報："


def _beyond(forecast: Forecast, when: When) -> str:
    last = max((day.on for day in forecast.days), default=None)
    until = f"，目前只到 {_named(last)}" if last else ""
    return f"{when.label.strip()}{forecast.place_name}的預報還沒有出來{until}。"


def _named(day: date) -> str:
    return f"{day.month}/{day.day}（週{_WEEKDAYS[day.weekday()]}）"


# ---- this moment


_ABOUT_NOW = ("temperature",)


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


# ---- what is known for now or for today only


def _humidity(forecast: Forecast, now: datetime) -> str:
    moment = moment_of(forecast, now)
    if moment is None or moment.humidity is None:
        return _unknown(forecast, "濕度")
    how = "很潮濕" if moment.humidity >= 85 else "偏乾燥" if moment.humidity < 50 else "還算舒適"
    return f"現在{forecast.place_name}濕度 {moment.humidity}%，{how}。"


def _wind(forecast: Forecast, now: datetime) -> str:
    moment = moment_of(forecast, now)
    if moment is None or moment.wind is None:
        return _unknown(forecast, "風速")
    return f"現在{forecast.place_name}風力：{wind_words(moment.wind)}。"


def _uv(forecast: Forecast, now: datetime, label: str = "今天") -> str:
    day = day_of(forecast, now)
    if day is None or day.uv is None:
        return _unknown(forecast, "紫外線")
    care = "，記得防曬" if day.uv >= 6 else ""
    return f"{label}{forecast.place_name}紫外線指數最高 {day.uv}，{uv_class(day.uv)}{care}。"


def _air(forecast: Forecast, now: datetime) -> str:
    air = air_of(forecast, now)
    if air is None:
        return _unknown(forecast, "空氣品質")
    care = "，外出建議戴口罩" if air.aqi > 100 else ""
    return f"現在{forecast.place_name}空氣品質 AQI {air.aqi}，{air_class(air.aqi)}{care}。"


def _sunrise(forecast: Forecast, now: datetime) -> str:
    if forecast.sun is None:
        return _unknown(forecast, "日出日落時間")
    rises, sets = (at.astimezone(TAIPEI) for at in (forecast.sun.rises, forecast.sun.sets))
    return f"{forecast.place_name}日出 {rises:%H:%M}，日落 {sets:%H:%M}。"


def _typhoon(forecast: Forecast, now: datetime) -> str:
    warned = dict.fromkeys(each.name for each in hazards_now(forecast, now))
    said = f"⚠️ {forecast.place_name}：{'、'.join(warned)}\n" if warned else ""
    return f"{said}🌀 颱風動態與警報請看中央氣象署：{TYPHOON_PAGE}"


def _closure(forecast: Forecast, now: datetime) -> str:
    return f"🏫 停班停課消息請看行政院人事行政總處：{CLOSURE_PAGE}"


def _of_today(forecast: Forecast, question: Question, now: datetime, later: When | None) -> str:
    """What is known of it; for a *later* day, how the weather will be then."""
    if question.topic == "waves":
        said = _of_today(forecast, Question("wind"), now, later)
        return f"{said}\n🌊 沒有浪高的資料，海象請看中央氣象署：{SEA_PAGE}"
    if later is None or question.topic not in _NOW_ONLY:
        return _OF_TODAY[question.topic](forecast, now)
    if question.topic == "uv" and (day := day_of(forecast, later.start)) and day.uv is not None:
        return _uv(forecast, later.start, later.label)
    said = _later(forecast, Question(when=later), later, now)
    return f"{said}{_NOW_ONLY[question.topic]}只有今天的資料。"


_NOW_ONLY = {"humidity": "濕度", "wind": "風力", "uv": "紫外線", "air": "空氣品質"}
"""What is not forecast for the coming days."""


def _unknown(forecast: Forecast, what: str) -> str:
    return f"目前沒有{forecast.place_name}的{what}資料，以下是天氣預報。"


_OF_TODAY: dict[str, Callable[[Forecast, datetime], str]] = {
    "humidity": _humidity, "wind": _wind, "uv": _uv, "air": _air, "sunrise": _sunrise,
    "typhoon": _typhoon, "waves": _wind, "closure": _closure,
}  # fmt: skip


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
    if facts.rain >= POSSIBLE or facts.is_wet:
        return "帶把傘比較安心"
    return "不用帶傘"


def _when_wettest(facts: Facts) -> str:
    step = facts.wettest
    if step is None or (step.rain or 0) < POSSIBLE:
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
    for below, words in ((12, "要穿厚外套，注意保暖"), (18, "要穿外套"), (22, "穿件薄外套就好")):
        if low < below:
            return words
    return "不用外套，穿短袖就好" if high >= 28 else "不用外套，穿薄長袖就好"


def _cold(facts: Facts) -> list[str]:
    low = facts.low
    how = "" if low is None else "會冷" if low < 16 else "有點涼" if low < 20 else "不會冷"
    return [facts.temperatures, how, _advice(facts)]


def _short_sleeves(facts: Facts) -> list[str]:
    low, high = facts.low, facts.high
    if low is None or high is None:
        return ["目前沒有溫度資料，不知道能不能穿短袖"]
    if low >= 22 and high >= 26:
        return [facts.temperatures, "可以穿短袖"]
    if high >= 26:
        return [facts.temperatures, "白天可以穿短袖，早晚加件薄外套"]
    return [
        facts.temperatures,
        f"穿短袖會冷，{_advice(facts)}" if low < 20 else "穿短袖有點涼，穿件薄外套就好",
    ]


def _highest(facts: Facts) -> list[str]:
    return ["目前沒有溫度資料" if facts.high is None else f"最高 {degrees(facts.high)}"]


def _lowest(facts: Facts) -> list[str]:
    return ["目前沒有溫度資料" if facts.low is None else f"最低 {degrees(facts.low)}"]


def _thunder(facts: Facts) -> list[str]:
    thunders = facts.sky is not None and "雷" in facts.sky.text
    return ["可能打雷，盡量待在室內" if thunders else "預報沒有雷雨", _chance(facts)]


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
    wet = rain >= POSSIBLE or facts.is_wet
    return [_chance(facts), "曬衣服要留意下雨" if wet else "適合曬衣服"]


def _outing(facts: Facts) -> list[str]:
    rain = facts.rain or 0
    wet = rain >= POSSIBLE or facts.is_wet
    how = "不太適合戶外活動" if rain >= _LIKELY else "出門記得帶傘" if wet else "適合出門"
    return [facts.temperatures, _chance(facts), _too_cold_or_hot(facts) or how]


def _too_cold_or_hot(facts: Facts) -> str:
    """For an outing, regardless of the sky; empty: neither."""
    low, high = facts.low, facts.high
    if low is not None and low <= 5:
        return "非常冷，可能結冰，沒有禦寒裝備不適合出門"
    if low is not None and low <= 10 and not facts.is_wet:
        return "會很冷，出門要做好保暖"
    return "太熱了，不太適合戶外活動" if high is not None and high >= 36 else ""


def _snow(facts: Facts) -> list[str]:
    snows = facts.sky is not None and "雪" in facts.sky.text
    return [facts.temperatures, "可能下雪" if snows else "預報沒有下雪"]


def _sun(facts: Facts) -> list[str]:
    text = facts.sky.text if facts.sky else ""
    how = "會出太陽" if "晴" in text else "太陽不太會露臉" if text else "目前沒有資料"
    return [facts.temperatures, _chance(facts), how]


_VERDICTS: dict[str, Callable[[Facts], list[str]]] = {
    "weather": _weather, "rain": _rain, "laundry": _laundry, "clothes": _clothes, "cold": _cold,
    "heat": _heat, "temperature": _temperature, "snow": _snow, "sun": _sun,
    "outing": _outing, "short sleeves": _short_sleeves, "highest": _highest, "lowest": _lowest,
    "thunder": _thunder,
}  # fmt: skip


def _sentence(*parts: str) -> str:
    return "，".join(part for part in parts if part) + "。"
