"""The answer to a question in Japanese. The card below it is the same in every language."""

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime, timedelta

from ..weather.forecast import TAIPEI, Forecast
from ..weather.wording import chance
from .facts import POSSIBLE, Facts, facts_of, last_day
from .question import Question
from .when import When

HELP = (
    "こんにちは！台湾の天気をお答えします☀️\n"
    "「台北の天気」「明日の高雄は雨？」のように、地名を入れて聞いてください。"
)
THANKS = "どういたしまして😊"
WHERE = "どこの天気ですか？「台北」「高雄」のように地名を送ってください。"
WHICH = "どちらですか？"
UNKNOWN = "その場所は見つかりませんでした😢 台湾の地名（例：台北、花蓮）を送ってください。"
ABROAD = "🌏 お答えできるのは台湾の天気だけです。"
_LIKELY = 60
_KANA = re.compile("[ぁ-ねは-ん]|[ァ-ヶ]{2}|気")
"""Not の, which people in Taiwan write for 的, nor one katakana, as in faces: ¯\\_(ツ)_/¯."""
_SKIES = {
    "☀️": "晴れ", "🌙": "晴れ", "🌤️": "晴れ時々くもり", "⛅": "くもり", "🌥️": "くもり",
    "☁️": "くもり", "🌫️": "霧", "🌦️": "にわか雨", "🌧️": "雨", "⛈️": "雷雨", "🌨️": "雪", "❄️": "大雪",
}  # fmt: skip


def is_japanese(text: str) -> bool:
    """True: no Chinese text has these characters."""
    return _KANA.search(text) is not None


def japanese_line(forecast: Forecast, question: Question, *, now: datetime) -> str:
    """The answer, from what the forecast says; of the rarer topics, how the weather is."""
    place = forecast.place_name.replace("臺", "台")
    today = now.astimezone(TAIPEI).replace(hour=0, minute=0, second=0, microsecond=0)
    when = _known(forecast, question.when or When("", today, today + timedelta(days=1)))
    label = _label(when, today.date())
    if when.is_over(now):
        return f"{label}はもう過ぎました。{place}のこれからの予報はこちらです。"
    if question.topic == "sunrise" and forecast.sun is not None:
        rises, sets = (at.astimezone(TAIPEI) for at in (forecast.sun.rises, forecast.sun.sets))
        return f"{place}の日の出は {rises:%H:%M}、日の入りは {sets:%H:%M} です。"
    facts = facts_of(forecast, when, now)
    if facts is None:
        return f"{label}の{place}の予報はまだ出ていません。"
    sky = f"は {facts.sky.emoji} {_SKIES.get(facts.sky.emoji, '')}".rstrip() if facts.sky else ""
    advice = _ADVICE.get(question.topic, _umbrella)(facts)
    parts = [f"{label}の{place}{sky}", facts.temperatures, _chance(facts), advice]
    return "、".join(part for part in parts if part) + "。"


def _known(forecast: Forecast, when: When) -> When:
    """Of several days those that the forecast has, if it has any."""
    days = [day.on for day in forecast.days if when.start.date() <= day.on < last_day(when)]
    if when.is_hours or not days:
        return when
    end = datetime.combine(max(days) + timedelta(days=1), datetime.min.time(), TAIPEI)
    return replace(when, end=min(when.end, end))


def _label(when: When, today: date) -> str:
    """明日, 明後日の18時〜24時, 11月21日〜22日."""
    start, last = when.start.astimezone(TAIPEI), last_day(when) - timedelta(days=1)
    near = {0: "今日", 1: "明日", 2: "明後日"}
    name = near.get((start.date() - today).days, f"{start.month}月{start.day}日")
    if when.is_now:
        return "今"
    if when.is_hours:
        end = when.end.astimezone(TAIPEI)
        return f"{name}{start.hour}時〜{end.hour or 24}時"
    return name if last <= start.date() else f"{start.month}月{start.day}日〜{last.day}日"


def _chance(facts: Facts) -> str:
    return "" if facts.rain is None else f"降水確率 {chance(facts.rain)}"


def _umbrella(facts: Facts) -> str:
    rain = facts.rain if facts.rain is not None else _LIKELY if facts.is_wet else 0
    if rain >= _LIKELY:
        return "傘をお忘れなく"
    return "傘があると安心です" if rain >= POSSIBLE or facts.is_wet else "傘はいりません"


def _clothes(facts: Facts) -> str:
    if facts.low is None:
        return ""
    for below, words in ((12, "厚い上着が必要です"), (18, "上着が必要です"), (22, "薄い上着を")):
        if facts.low < below:
            return words
    return "上着はいりません"


def _cold(facts: Facts) -> str:
    low = facts.low
    if low is None:
        return ""
    how = "寒いです" if low < 16 else "少し涼しいです" if low < 20 else "寒くありません"
    return f"{how}、{_clothes(facts)}"


def _heat(facts: Facts) -> str:
    high = facts.high
    if high is None:
        return ""
    return "暑いです" if high >= 30 else "少し暑いです" if high >= 27 else "暑くありません"


_ADVICE: dict[str, Callable[[Facts], str]] = {"cold": _cold, "clothes": _clothes, "heat": _heat}
