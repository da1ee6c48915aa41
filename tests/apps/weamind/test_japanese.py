"""Questions in Japanese are answered in Japanese."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from apps.weamind.line.japanese import is_japanese, japanese_line
from apps.weamind.line.question import Question
from apps.weamind.line.when import When, find_when
from apps.weamind.places.place import Place
from apps.weamind.weather.forecast import TAIPEI
from apps.weamind.weather.sample import Sample

from .conftest import RunBot, is_forecast

TAIPEI_CITY = Place("63000", "臺北市", None, 25.0375, 121.5637)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("明日の台北は雨？", True),
        ("台北の天気", True),
        ("タイペイ", True),
        ("台北の天氣", False),
        ("明天台北會下雨嗎", False),
        ("¯\\_(ツ)_/¯ 台北", False),
        ("ㄅㄆㄇ", False),
    ],
)
def test_what_is_japanese(text: str, expected: bool) -> None:
    """Not the の that people in Taiwan write for 的, and no face."""
    assert is_japanese(text) is expected


@pytest.mark.parametrize(
    ("when", "beginning"),
    [
        ("明天", "明日の台北市は "),
        ("後天", "明後日の台北市は "),
        ("明天下午", "明日12時〜18時の台北市は "),
        ("三個月後", ""),
        ("昨天", ""),
    ],
)
async def test_for_which_time(when: str, beginning: str) -> None:
    """Days by their names, hours as numbers; what is over or too far is said."""
    now = datetime.now(TAIPEI)
    forecast = await Sample().fetch(TAIPEI_CITY)
    line = japanese_line(forecast, Question("rain", find_when(when, now)[0]), now=now)
    assert line.endswith("。") and "天" not in line
    assert line.startswith(beginning)


async def test_days_that_the_forecast_does_not_have() -> None:
    """They are not named, as if it had them."""
    now = datetime.now(TAIPEI)
    forecast = await Sample().fetch(TAIPEI_CITY)
    last = max(day.on for day in forecast.days)
    midnight = datetime.combine(last, datetime.min.time(), TAIPEI)
    week = When("下週", midnight, midnight + timedelta(days=7))
    line = japanese_line(forecast, Question("cold", week), now=now)
    assert line.startswith(f"{last.month}月{last.day}日の台北市")


async def test_a_choice_keeps_the_language(run_bot: RunBot) -> None:
    """Asked which of two, tapped or by its number."""
    async with run_bot() as bot:
        for tapped in (True, False):
            ann = bot.line.somebody()
            await bot.line.say("明日の新竹は雨ですか", source=ann)
            await bot.settled()
            (asked,) = bot.line.chat(ann).sent
            assert asked["text"].startswith("どちらですか")
            button = asked["quickReply"]["items"][0]["action"]
            await (
                bot.line.tap(button["data"], source=ann)
                if tapped
                else bot.line.say("1", source=ann)
            )
            await bot.settled()
            _, line, card = bot.line.chat(ann).sent
            assert line["text"].startswith("明日の新竹") and is_forecast(card)
