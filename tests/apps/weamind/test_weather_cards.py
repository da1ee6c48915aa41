"""Cards: what people see of a forecast, and whether LINE would take it.

The limits are LINE's documented ones (see recorded/line_limits.py); its own SDK must understand the
messages, too.
"""

from __future__ import annotations

import copy
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from linebot.v3.messaging import FlexMessage

from apps.weamind.places.place import Place
from apps.weamind.weather import cwa_answers, open_meteo, sample
from apps.weamind.weather.cards import forecast_message, forecast_text
from apps.weamind.weather.forecast import (
    STEP,
    TAIPEI,
    Air,
    Day,
    Forecast,
    Hazard,
    Moment,
    Sky,
    Step,
    Wind,
    days_ahead,
    hazards_now,
    is_stale,
    moment_of,
    steps_ahead,
)
from apps.weamind.weather.scales import air_class, beaufort, uv_class
from apps.weamind.weather.sky import from_cwa, from_wmo
from apps.weamind.weather.sun import sun_on

from .recorded.line_limits import actions, assert_line_message, contrast, texts, units
from .recorded.upstream import recorded

XINYI = Place("63000020", "臺北市", "信義區", 25.0330, 121.5654)
NOW = datetime(2026, 3, 1, 17, 50, tzinfo=TAIPEI)
CREDITS = (open_meteo.ATTRIBUTION, cwa_answers.ATTRIBUTION, sample.ATTRIBUTION)


def forecast(**changes: Any) -> Forecast:
    """Three steps and two days that are easy to recognise."""
    facts: dict[str, Any] = {
        "place_code": "63000020",
        "place_name": "臺北市信義區",
        "updated_at": NOW,
        "now": Moment(NOW, Sky("多雲", "⛅"), 23.4, 25.1, 78),
        "steps": tuple(step(number, low=20.0 + number, rain=number * 10) for number in range(16)),
        "days": tuple(day(number, low=15.0 + number, high=25.0 + number) for number in range(8)),
        "provider": "open-meteo",
        "attribution": open_meteo.ATTRIBUTION,
    }
    return Forecast(**facts | changes)


def step(number: int, *, low: float | None = 20.0, rain: int | None = 30) -> Step:
    start = NOW.replace(hour=15, minute=0) + STEP * number
    return Step(
        start, start + STEP, Sky("晴朗", "☀️"), low, low, None if rain is None else rain % 100
    )


def day(number: int, *, low: float | None = 15.0, high: float | None = 25.0) -> Day:
    return Day(NOW.date() + timedelta(days=number), Sky("陰天", "☁️"), low, high, 40)


def shown(forecast: Forecast, now: datetime = NOW) -> list[str]:
    message = forecast_message(forecast, now=now)
    assert_line_message(message)
    return texts(message["contents"])


# ---- any forecast at all

SKIES = st.one_of(
    st.none(),
    st.builds(from_wmo, st.integers(0, 99), night=st.booleans()),
    st.builds(
        from_cwa,
        st.text(alphabet="晴多雲時陰短暫陣雨或雷有霧局部午後X", max_size=30),
        st.integers(0, 50),
        night=st.booleans(),
    ),
)
DEGREES = st.none() | st.floats(-30, 50)
CHANCES = st.none() | st.integers(0, 100)
NAMES = st.sampled_from(["臺北市", "臺北市信義區", "屏東縣三地門鄉", "高雄市那瑪夏區"]) | st.text(
    alphabet="臺北市信義區屏東縣三地門鄉阿里山塔塔加鎮", min_size=3, max_size=12
)
UV = st.none() | st.integers(0, 25)
WINDS = st.none() | st.builds(
    Wind, st.floats(0, 110), st.sampled_from([None, "東北風"]), st.none() | st.floats(0, 110)
)
HAZARDS = st.builds(
    Hazard,
    st.just("臺北市"),
    st.sampled_from(["大雨特報", "海上陸上颱風警報", "陸上強風特報", "濃霧特報"]),
    st.none() | st.sampled_from([NOW - timedelta(hours=1), NOW + timedelta(hours=1)]),
    st.none() | st.sampled_from([NOW - timedelta(minutes=1), NOW + timedelta(hours=2)]),
)
MINUTES = st.integers(0, 7 * 60)


@st.composite
def forecasts(draw: st.DrawFn) -> Forecast:
    """What a provider may say: anything may be missing."""
    begin = NOW.replace(hour=15, minute=0)
    hours = draw(st.sampled_from([3, 6, 12]))
    pace = timedelta(hours=hours)
    starts = [begin + pace * number for number in range(draw(st.integers(0, 16)))]
    dates = [date(2026, 3, number) for number in range(1, draw(st.integers(1, 10)))]

    def figures() -> tuple[Any, ...]:
        return draw(SKIES), draw(DEGREES), draw(DEGREES), draw(CHANCES)

    steps = [Step(start, start + pace, *figures()) for start in starts]
    days = [Day(on, *figures(), draw(UV)) for on in dates]
    moment = Moment(
        NOW - timedelta(minutes=draw(st.integers(-20, 200))),
        draw(SKIES), draw(DEGREES), draw(DEGREES), draw(CHANCES), draw(WINDS),
    )  # fmt: skip
    credit = draw(st.sampled_from(CREDITS))
    return forecast(
        place_name=draw(NAMES),
        place_code=draw(st.sampled_from(["63000", "63000020"])),
        now=draw(st.sampled_from([None, moment])),
        steps=tuple(steps),
        days=tuple(days),
        attribution=credit,
        sample=credit is sample.ATTRIBUTION,
        area=draw(st.sampled_from(["", "屏東縣三地門鄉"])),
        elevation=draw(st.none() | st.integers(0, 3952)),
        of_area=draw(st.booleans()),
        air=draw(st.none() | st.builds(Air, st.integers(0, 1000), st.just(NOW))),
        sun=draw(st.sampled_from([None, sun_on(NOW.date(), 25.0, 121.5)])),
        hazards=tuple(draw(st.lists(HAZARDS, max_size=6))),
    )


@settings(max_examples=200)
@given(forecast=forecasts(), late=MINUTES)
def test_line_takes_every_card(forecast: Forecast, late: int) -> None:
    """With any value missing and any weather: within LINE's limits, legible, and no unknown value
    looks like a number."""
    now = NOW + timedelta(minutes=late)
    message = forecast_message(forecast, now=now)
    assert_line_message(message)
    assert_line_message({"type": "text", "text": forecast_text(forecast, now=now)})
    everything = [*texts(message["contents"]), message["altText"], forecast_text(forecast, now=now)]
    for words in everything:
        assert not any(bad in words for bad in ("None", "nan", "inf", "-0°", "Sky("))
    card = "\n".join(texts(message["contents"]))
    for words in (card, message["altText"], forecast_text(forecast, now=now)):
        assert forecast.place_name in words
        assert words.count("範例資料") == forecast.sample
        assert ("可能不是最新" in words) == is_stale(forecast, now)
        assert all(hazard.name in words for hazard in hazards_now(forecast, now))


@settings(max_examples=25)
@given(forecast=forecasts())
def test_lines_own_sdk_understands_it(forecast: Forecast) -> None:
    """It reads the message, and writes the same again: no property is unknown to it."""
    message = forecast_message(forecast, now=NOW)
    model = FlexMessage.from_dict(copy.deepcopy(message))
    assert model is not None and model.to_dict() == message


def test_every_weather_has_a_card() -> None:
    """All codes, by day and by night."""
    for number in range(200):
        sky = from_wmo(number // 2, night=bool(number % 2))
        some = forecast(now=Moment(NOW, sky, 20.0, None, None))
        assert (sky.text if sky else "–") in shown(some)


# ---- what is on it


def test_the_card_at_a_glance() -> None:
    """The place, the weather now and eight steps first; then seven days; then all the rest."""
    words = shown(forecast())
    assert words[:7] == ["臺北市信義區", "更新 17:50", "現在", "23°", "⛅", "多雲", "體感 25°"]
    hours = words[words.index("濕度 78%") + 1 : words.index(open_meteo.ATTRIBUTION.text)]
    assert hours[0::4] == ["15 時", "18 時", "21 時", "00 時", "03 時", "06 時", "09 時", "12 時"]
    assert hours[2::4] == ["20°", "21°", "22°", "23°", "24°", "25°", "26°", "27°"]
    assert hours[3::4] == [f"💧{number}0%" if number else "💧0%" for number in range(8)]
    days = words[words.index("未來七天") + 2 : words.index("空氣、風與日照")]
    assert days[0::6] == ["今天", "明天", "週二", "週三", "週四", "週五", "週六"]
    assert days[1::6][:3] == ["3/1", "3/2", "3/3"] and days[4::6][:2] == ["15~25°", "16~26°"]
    assert words[-2:] == ["設為住家", "設為公司"]


def test_what_nobody_knows_is_a_dash() -> None:
    """Not 0, in the card, in the words, and in the text."""
    steps = (Step(NOW, NOW + STEP, None, None, None, None),)
    empty = forecast(
        now=Moment(NOW, None, None, None, None),
        steps=steps,
        days=(Day(NOW.date(), None, None, None, None),),
    )
    words = shown(empty)
    assert "–" in words and "💧–" in words
    for text in (*words, forecast_text(empty, now=NOW)):
        assert "0°" not in text and "0%" not in text
    zero = forecast(steps=(Step(NOW, NOW + STEP, None, 0.0, 0.0, 0),))
    assert "0°" in shown(zero) and "💧0%" in shown(zero)


def test_a_missing_temperature_is_a_dash() -> None:
    """One of two temperatures that is missing is a dash."""
    half = forecast(days=(day(0, low=None, high=25.0), day(1, low=15.0, high=None)))
    assert {"–~25°", "15~–"} <= set(shown(half))


def test_the_buttons() -> None:
    """Home and office, for the place on the card."""
    home, office = [
        action
        for action in actions(forecast_message(forecast(), now=NOW))
        if action["type"] == "postback"
    ]
    assert home == {
        "type": "postback",
        "label": "設為住家",
        "data": "action=set&type=home&place=63000020",
        "displayText": "把臺北市信義區設為住家",
    }
    assert office["data"] == "action=set&type=office&place=63000020"
    assert office["label"] == "設為公司"


@pytest.mark.parametrize("credit", CREDITS)
def test_whom_it_comes_from(credit: Any) -> None:
    """Named, and linked where the licence wants a link; in the text, too."""
    some = forecast(attribution=credit, sample=credit is sample.ATTRIBUTION)
    links = [
        action["uri"]
        for action in actions(forecast_message(some, now=NOW))
        if action["type"] == "uri"
    ]
    assert ("範例資料" if some.sample else credit.text) in shown(some)
    assert credit.text in forecast_text(some, now=NOW)
    assert links == [url for url in (credit.url, credit.licence_url) if url]
    assert all(url in forecast_text(some, now=NOW) for url in links)


def test_the_words_alone_are_an_answer() -> None:
    """What a notification shows: where, now, the next day's range, the rain and when."""
    words = forecast_message(forecast(), now=NOW)["altText"]
    for part in ("臺北市信義區 現在 ⛅ 多雲 23°", "未來 24 小時 20° 到 27°",
                 "降雨機率最高 70%（12–15 時）", "明天 3/2", "更新 17:50"):  # fmt: skip
        assert part in words
    dry = forecast(steps=tuple(step(number, rain=0) for number in range(8)))
    assert "幾乎不會下雨" in forecast_message(dry, now=NOW)["altText"]


def test_the_plain_text() -> None:
    """A line for each step and each day."""
    lines = forecast_text(forecast(), now=NOW).splitlines()
    assert lines[:2] == ["📍 臺北市信義區", "現在 ⛅ 多雲 23°（體感 25°，濕度 78%）"]
    assert "15–18 時 ☀️ 20° 💧0%" in lines and "12–15 時 ☀️ 27° 💧70%" in lines
    assert "明天 3/2 ☁️ 陰天 16~26° 💧40%" in lines


def test_a_county_has_longer_steps() -> None:
    """Three periods with the lowest and the highest; no days; the heading says how far it goes."""
    county = Place("63000", "臺北市", None, 25.0, 121.5)
    now = datetime(2026, 3, 1, 18, 20, tzinfo=TAIPEI)
    some = cwa_answers.read_county(recorded("cwa_county"), county, now=now)
    words = shown(some, now)
    assert words[2:4] == ["18–06 時", "18~22°"] and "未來 36 小時" in forecast_text(some, now=now)
    assert words.count("18–06 時") == 3 and not any(word.startswith("未來") for word in words)


# ---- landmarks, warnings, and what else is known


def test_a_landmark_says_where_and_how_high_it_is() -> None:
    """Below its name. On the coast the height says nothing and is left out."""
    peak = forecast(place_name="玉山", area="南投縣信義鄉", elevation=3952)
    assert shown(peak)[:3] == ["玉山", "更新 17:50", "南投縣信義鄉・海拔 3952 公尺"]
    beach = forecast(place_name="墾丁", area="屏東縣恆春鎮", elevation=10)
    assert "屏東縣恆春鎮" in shown(beach)
    assert "南投縣信義鄉・海拔 3952 公尺" in forecast_text(peak, now=NOW)


def test_the_forecast_of_a_township_is_not_passed_off_as_that_of_its_peak() -> None:
    """A provider that has only townships: it is said whose forecast it is."""
    peak = forecast(place_name="玉山", area="南投縣信義鄉", elevation=3952, of_area=True)
    assert "這是南投縣信義鄉的預報，高處會更冷" in shown(peak)
    assert "這是南投縣信義鄉的預報" in forecast_message(peak, now=NOW)["altText"]
    campus = forecast(place_name="臺灣大學", area="臺北市大安區", elevation=10, of_area=True)
    assert not any("高處" in words for words in shown(campus))


def test_warnings_in_force_come_first() -> None:
    """Above everything else, each once; neither those that are over nor those still to come."""
    hour = timedelta(hours=1)
    some = forecast(
        hazards=(
            Hazard("臺北市", "大雨特報", NOW - hour, NOW + hour),
            Hazard("臺北市", "陸上強風特報", None, None),
            Hazard("臺北市", "大雨特報", NOW - hour, None),
            Hazard("臺北市", "濃霧特報", NOW - hour, NOW),
            Hazard("臺北市", "低溫特報", NOW + hour, None),
        )
    )
    assert shown(some)[0] == "⚠️ 臺北市 大雨特報、陸上強風特報"
    for words in (forecast_message(some, now=NOW)["altText"], forecast_text(some, now=NOW)):
        assert "⚠️ 臺北市 大雨特報、陸上強風特報" in words and "濃霧" not in words
    assert not any("⚠️" in words for words in shown(forecast()))


def test_what_a_provider_does_not_tell_is_left_out() -> None:
    """No row for what is not known; with all of it, air, UV index, wind and sun."""
    assert shown(forecast())[-4:-2] == ["臺北市信義區", open_meteo.ATTRIBUTION.licence]
    today = Day(NOW.date(), None, None, None, None, 8)
    known = forecast(
        now=Moment(NOW, None, 20.0, None, None, Wind(4.0, "東北風", 9.0)),
        days=(today,),
        air=Air(52, NOW),
        sun=sun_on(NOW.date(), 25.03, 121.56),
    )
    words = shown(known)
    assert words[words.index("空氣品質") + 1] == "AQI 52 普通"
    assert words[words.index("紫外線") + 1] == "今天最高 8 過量級"
    assert words[words.index("風") + 1] == "東北風 3 級，陣風 5 級"
    assert words[words.index("日出日落") + 1] == "06:17 – 17:56"
    later = shown(known, NOW + timedelta(hours=4))
    assert "空氣品質" not in later and "風" not in later and "日出日落" in later


def test_scales_have_the_official_steps() -> None:
    """Air quality, UV index and the Beaufort scale, at their borders."""
    assert [air_class(n) for n in (0, 50, 51, 100, 101, 151, 201, 301, 999)] == [
        "良好", "良好", "普通", "普通", "對敏感族群不健康", "對所有族群不健康", "非常不健康",
        "危害", "危害",
    ]  # fmt: skip
    assert [uv_class(n) for n in (0, 2, 3, 6, 8, 10, 11, 15)] == [
        "低量級", "低量級", "中量級", "高量級", "過量級", "過量級", "危險級", "危險級",
    ]  # fmt: skip
    assert [beaufort(n) for n in (0, 0.2, 0.3, 3.3, 3.4, 10.8, 32.6, 32.7, 90)] == [
        0, 0, 1, 2, 3, 6, 11, 12, 12,
    ]  # fmt: skip


# ---- old forecasts


def test_an_old_forecast_says_so() -> None:
    """From half an hour on, with the time, and the day where it is another one."""
    assert not is_stale(forecast(), NOW + timedelta(minutes=30))
    late = NOW + timedelta(minutes=31)
    assert "⚠️ 資料更新於 17:50，可能不是最新" in shown(forecast(), late)
    assert "資料更新於 17:50，可能不是最新" in forecast_text(forecast(), now=late)
    tomorrow = NOW + timedelta(hours=7)
    assert "資料更新於 3/1 17:50，可能不是最新" in forecast_text(forecast(), now=tomorrow)


def test_an_old_forecast_shows_what_is_still_to_come() -> None:
    """Hours that are over are gone, and eight are left; yesterday is gone; what was the weather
    of its time is not called that of now."""
    now = NOW + timedelta(hours=7)
    assert [step.start.hour for step in steps_ahead(forecast(), now)][:2] == [0, 3]
    assert len(steps_ahead(forecast(), now)) == 8
    assert [day.on.day for day in days_ahead(forecast(), now)] == [2, 3, 4, 5, 6, 7, 8]
    assert moment_of(forecast(), now) is None
    words = shown(forecast(), now)
    assert "現在" not in words and words[2:4] == ["00–03 時", "23°"]


def test_the_zone_of_now_does_not_matter() -> None:
    """The same moment in another zone makes the same card; without a zone it is no moment."""
    assert forecast_message(forecast(), now=NOW.astimezone(UTC)) == forecast_message(
        forecast(), now=NOW
    )
    with pytest.raises(ValueError, match="zone"):
        forecast_message(forecast(), now=NOW.replace(tzinfo=None))


# ---- quick replies


def test_quick_replies() -> None:
    """Up to thirteen, below the card; more is a mistake, reported at once."""
    item = {"type": "action", "action": {"type": "message", "label": "臺北市", "text": "臺北市"}}
    message = forecast_message(forecast(), now=NOW, quick_reply=[item] * 13)
    assert_line_message(message)
    assert message["quickReply"] == {"items": [item] * 13}
    assert "quickReply" not in forecast_message(forecast(), now=NOW, quick_reply=[])
    with pytest.raises(ValueError, match="13"):
        forecast_message(forecast(), now=NOW, quick_reply=[item] * 14)


# ---- the checker itself


def first(message: dict[str, Any]) -> dict[str, Any]:
    return message["contents"]["contents"][0]


def last(message: dict[str, Any]) -> dict[str, Any]:
    return message["contents"]["contents"][-1]


def _broken(change: Any) -> dict[str, Any]:
    message = copy.deepcopy(forecast_message(forecast(), now=NOW))
    change(message)
    return message


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.update(altText=""),
        lambda m: m.update(altText="🌧" * 201),
        lambda m: m.update(unknown=1),
        lambda m: first(m).update(size="huge"),
        lambda m: first(m).update(size="kilo"),
        lambda m: m["contents"].update(contents=m["contents"]["contents"] * 5),
        lambda m: first(m)["body"].update(layout="diagonal"),
        lambda m: first(m)["body"].update(paddingAll="big"),
        lambda m: first(m)["body"]["contents"].append({"type": "text", "text": " "}),
        lambda m: first(m)["body"]["contents"].append({"type": "text"}),
        lambda m: first(m)["body"]["contents"].append(
            {"type": "text", "text": "x", "color": "#DDDDDD"}
        ),
        lambda m: first(m)["body"]["contents"].append(
            {"type": "text", "text": "x", "color": "red"}
        ),
        lambda m: first(m)["body"]["contents"].append({"type": "text", "text": "x", "flex": True}),
        lambda m: first(m)["body"]["contents"].extend(
            [{"type": "text", "text": "很長" * 500}] * 20
        ),
        lambda m: last(m)["footer"]["contents"][0]["contents"][0]["action"].pop("label"),
        lambda m: last(m)["footer"]["contents"][0]["contents"][0]["action"].update(label="字" * 21),
        lambda m: last(m)["footer"]["contents"][0]["contents"][0]["action"].update(data="x" * 301),
    ],
)
def test_the_checker_finds_faults(change: Any) -> None:
    """A message that LINE would refuse does not pass."""
    with pytest.raises((AssertionError, KeyError)):
        assert_line_message(_broken(change))


def test_the_checkers_measures() -> None:
    """Black on white is 21, an emoji is two units long."""
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21)
    assert (units("晴"), units("🌧"), units("a")) == (1, 2, 1)
