"""Which day and which hours are meant, what is asked about them, and the one line that answers."""

from __future__ import annotations

from datetime import date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from local_line.sources import Source, new_id

from apps.weamind.line import texts
from apps.weamind.line.abroad import abroad, abroad_in
from apps.weamind.line.answer import answer_line
from apps.weamind.line.messages import question_fields
from apps.weamind.line.question import PLAIN, Question, find_question, read_question
from apps.weamind.line.regions import region
from apps.weamind.line.setting import read_settings
from apps.weamind.line.smalltalk import smalltalk
from apps.weamind.line.understanding import LONGEST, understand
from apps.weamind.line.when import find_when
from apps.weamind.places import atlas
from apps.weamind.places.search import search
from apps.weamind.weather.forecast import (
    TAIPEI,
    Attribution,
    Day,
    Forecast,
    Hazard,
    Moment,
    Sky,
    Step,
)

from .conftest import XINYI, RunBot
from .test_bot_handlers import Talk, data_of, mentioning

pytestmark = pytest.mark.only_on("linux", "darwin")
NOW = datetime(2026, 11, 18, 14, 20, tzinfo=TAIPEI)
"""A Wednesday."""


def spell(words: str, now: datetime = NOW) -> str | None:
    """The label, and from when to when, as day and hour."""
    when, _ = find_when(words, now)
    if when is None:
        return None
    return f"{when.label.strip()} {when.start:%d.%H}-{when.end:%d.%H}"


# ------------------------------------------------------------------------------- times


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("今天", "今天 18.00-19.00"), ("明天", "明天 19.00-20.00"), ("後天", "後天 20.00-21.00"),
        ("大後天", "大後天 21.00-22.00"), ("昨天", "昨天 17.00-18.00"),
        ("明仔載", "明天 19.00-20.00"), ("tomorrow", "明天 19.00-20.00"),
        ("今晚", "今晚 18.18-19.00"), ("今天晚上", "今晚 18.18-19.00"),
        ("tonight", "今晚 18.18-19.00"), ("明早", "明天早上 19.06-19.12"),
        ("明天早上", "明天早上 19.06-19.12"), ("後天早上", "後天早上 20.06-20.12"),
        ("早上", "明天早上 19.06-19.12"), ("晚上", "今晚 18.18-19.00"),
        ("下午", "今天下午 18.12-18.18"), ("半夜", "今天半夜 18.22-19.06"),
        ("週末", "這個週末 21.00-23.00"), ("這周末", "這個週末 21.00-23.00"),
        ("下週末", "下週末 28.00-30.00"), ("假日", "這個週末 21.00-23.00"),
        ("週三", "週三 18.00-19.00"), ("禮拜二", "週二 24.00-25.00"),
        ("星期天", "週日 22.00-23.00"), ("這週二", "這週二 17.00-18.00"),
        ("下週一", "下週一 23.00-24.00"), ("下禮拜三", "下週三 25.00-26.00"),
        ("下週三晚上", "下週三晚上 25.18-26.00"), ("下週", "下週 23.00-30.00"),
        ("11/20", "11/20 20.00-21.00"), ("11月20日", "11/20 20.00-21.00"),
        ("25號", "11/25 25.00-26.00"), ("10號", "12/10 10.00-11.00"),
        ("跨年", "12/31 晚上 31.18-01.00"),
        ("二十號", "11/20 20.00-21.00"), ("二十五號", "11/25 25.00-26.00"),
        ("25號板橋", "11/25 25.00-26.00"), ("埔里25號", "11/25 25.00-26.00"),
        ("淡水老街25號", "11/25 25.00-26.00"), ("25號3點", "11/25 下午3點 25.15-25.16"),
        ("20號出門", "11/20 20.00-21.00"), ("20號之後", "11/20 20.00-21.00"),
        ("信義路五段7號", None), ("市府路1號", None), ("民權路二段30號", None), ("7號出口", None),
        ("建國二路28號3樓", None), ("一段12巷5弄8號", None), ("中山路1-3號", None),
        ("國道三號", None), ("民生路二十號", None), ("信義路五段7號 25號", "11/25 25.00-26.00"),
        ("一小時後", "今天下午3點 18.15-18.16"), ("兩個鐘頭後", "今天下午4點 18.16-18.17"),
        ("半小時後", "今天下午2點 18.14-18.15"), ("一個半小時後", "今天下午3點 18.15-18.16"),
        ("30分鐘後", "今天下午2點 18.14-18.15"), ("12小時後", "明天凌晨2點 19.02-19.03"),
        ("99小時後", "11/22 下午5點 22.17-22.18"), ("in 2 hours", "今天下午4點 18.16-18.17"),
        ("透早", "明天清晨 19.05-19.08"), ("暗時", "今晚 18.18-19.00"),
        ("今仔日", "今天 18.00-19.00"), ("明仔早起", "明天早上 19.06-19.12"),
        ("暝時", "今晚 18.18-19.00"), ("明年", "明年 01.00-29.00"),
        ("明年1/1", "1/1 01.00-02.00"), ("三個月後", "幾個月後 18.00-15.00"),
        ("下晡", "今天下午 18.12-18.18"), ("上週", "上週 09.00-16.00"),
        ("上週三", "上週三 11.00-12.00"), ("上週末", "上週末 14.00-16.00"),
        ("明後日", "後天 20.00-21.00"), ("来週", "下週 23.00-30.00"),
        ("土曜日", "週六 21.00-22.00"),
        ("明天下午三點", "明天下午3點 19.15-19.16"), ("明天3點", "明天下午3點 19.15-19.16"),
        ("8點", "明天早上8點 19.08-19.09"), ("晚上八點半", "今天晚上8點 18.20-18.21"),
        ("20:30", "今天晚上8點 18.20-18.21"), ("明天早上8點", "明天早上8點 19.08-19.09"),
        ("明後天", "明後天 19.00-21.00"), ("這幾天", "接下來幾天 18.00-22.00"),
        ("現在", "現在 18.14-18.15"), ("等一下", "接下來 3 小時 18.14-18.17"),
        ("一點都不冷", None), ("板橋", None), ("台北101", None), ("", None),
        ("中正路8號旁的路", None), ("星期三天氣", "週三 18.00-19.00"),
        ("三天", "接下來幾天 18.00-22.00"),
        ("下午三點到五點", "今天下午3點到5點 18.15-18.17"),
        ("3-5點", "今天下午3點到5點 18.15-18.17"),
        ("早上10點到下午2點", "明天早上10點到下午2點 19.10-19.14"),
        ("8點到下午5點", "今天早上8點到下午5點 18.08-18.17"),
        ("13:00-15:00", "今天下午1點到3點 18.13-18.15"),
        ("晚上10點到2點", "今天晚上10點到凌晨2點 18.22-19.02"),
        ("晚上12點", "今天晚上12點 19.00-19.01"),
        ("11/18-11/20", "11/18到11/20 18.00-21.00"), ("11/20~22", "11/20到11/22 20.00-23.00"),
        ("20號到22號", "11/20到11/22 20.00-23.00"), ("20號到台北", "11/20 20.00-21.00"),
        ("週五到週日", "週五到週日 20.00-23.00"), ("下週五六日", "下週五到週日 27.00-30.00"),
        ("下週五到下週日", "下週五到下週日 27.00-30.00"), ("週六日", "週六到週日 21.00-23.00"),
        ("禮拜六、日", "週六到週日 21.00-23.00"), ("今天到週五", "今天到週五 18.00-21.00"),
        ("週六日月潭", "週六 21.00-22.00"), ("週五六龜", "週五 20.00-21.00"),
        ("週五六點", "週五早上6點 20.06-20.07"),
        ("明天到台北", "明天 19.00-20.00"), ("this saturday", "週六 21.00-22.00"),
        ("next sunday", "下週日 29.00-30.00"),
    ],
)  # fmt: skip
def test_days_and_hours_are_understood(words: str, expected: str | None) -> None:
    """What people say, on a Wednesday afternoon."""
    assert spell(words) == expected


def test_on_a_sunday() -> None:
    """The weekend is today, and next Monday is tomorrow."""
    sunday = datetime(2026, 11, 15, 9, 0, tzinfo=TAIPEI)
    assert spell("週末", sunday) == "這個週末 15.00-16.00"
    assert spell("下週一", sunday) == "下週一 16.00-17.00"
    assert spell("週日", sunday) == "週日 15.00-16.00"


def test_the_year_ends() -> None:
    """Dates that are over are those of the next year; a day that no month has is none."""
    eve = datetime(2026, 12, 31, 20, 0, tzinfo=TAIPEI)
    for words, day in [("1/1", date(2027, 1, 1)), ("2號", date(2027, 1, 2))]:
        when, _ = find_when(words, eve)
        assert when is not None and when.start.date() == day
    assert find_when("2/30", eve)[0] is None
    assert spell("明天", eve) == "明天 01.00-02.00"


@given(st.text(max_size=40), st.integers(0, 20 * 365 * 24))
def test_any_text_has_a_time_or_none(words: str, hours: int) -> None:
    """It never fails, and a time has a beginning and an end; what a button carries comes back."""
    now = NOW + timedelta(hours=hours)
    question, _ = find_question(words, now)
    if question is not None and question.when is not None:
        assert question.when.start < question.when.end
        again = read_question(question.topic, question.when.label, now)
        assert again.topic == question.topic and again.when is not None


@pytest.mark.parametrize(
    "words",
    ["今晚", "明天早上", "下週一", "週末", "11/20", "明天下午三點", "現在", "下午三點到五點",
     "晚上10點到2點", "下週五六日", "11/20-22"],
)  # fmt: skip
def test_a_button_carries_the_question(words: str) -> None:
    """The same time after a tap."""
    question, _ = find_question(f"{words}會下雨嗎", NOW)
    assert question is not None and question.topic == "rain"
    fields = question_fields(question)
    assert read_question(fields["topic"], fields["when"], NOW) == question
    assert read_question("nonsense", "nonsense", NOW) == PLAIN == read_question(None, None, NOW)


# ------------------------------------------------------------------------------- answers

SUNNY, WET = Sky("晴朗", "☀️"), Sky("有雨", "🌧️")


def made(rain: int | None, low: float | None, high: float | None, sky: Sky | None) -> Forecast:
    """The same weather for two days and a week."""
    start = NOW.replace(hour=12, minute=0)
    three = timedelta(hours=3)
    steps = [
        Step(start + three * n, start + three * (n + 1), sky, low, high, rain) for n in range(16)
    ]
    days = [Day(NOW.date() + timedelta(days=n), sky, low, high, rain) for n in range(7)]
    moment = Moment(NOW, sky, high, high, 70)
    return Forecast(
        "66000", "臺中市", NOW, moment, tuple(steps), tuple(days), "test", Attribution("test")
    )


def said(words: str, forecast: Forecast) -> str | None:
    question, _ = find_question(words, NOW)
    return answer_line(forecast, question or PLAIN, now=NOW)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("明天會下雨嗎", "明天臺中市 ☀️ 晴朗，降雨機率 10%，不用帶傘。"),
        ("明天要帶傘嗎", "明天臺中市 ☀️ 晴朗，降雨機率 10%，不用帶傘。"),
        ("明天天氣", "明天臺中市 ☀️ 晴朗，20~28°，降雨機率 10%，不用帶傘。"),
        ("今晚會冷嗎", "今晚臺中市 ☀️ 晴朗，20~28°，不會冷，穿件薄外套就好。"),
        ("後天要穿外套嗎", "後天臺中市 ☀️ 晴朗，20~28°，穿件薄外套就好。"),
        ("週末會熱嗎", "這個週末臺中市 ☀️ 晴朗，20~28°，有點熱。"),
        ("可以曬衣服嗎", "今天臺中市 ☀️ 晴朗，降雨機率 10%，適合曬衣服。"),
        ("現在幾度", "現在臺中市 ☀️ 晴朗，28°，體感 28°。"),
        ("明天幾度", "明天臺中市 ☀️ 晴朗，20~28°。"),
        ("濕度", "現在臺中市濕度 70%，還算舒適。"),
        ("會下雪嗎", "今天臺中市 ☀️ 晴朗，20~28°，預報沒有下雪。"),
        ("明天會出太陽嗎", "明天臺中市 ☀️ 晴朗，20~28°，降雨機率 10%，會出太陽。"),
        ("明天適合爬山嗎", "明天臺中市 ☀️ 晴朗，20~28°，降雨機率 10%，適合出門。"),
        ("週六到週日天氣", "週六到週日臺中市 ☀️ 晴朗，20~28°，降雨機率 10%，不用帶傘。"),
        ("明天下午三點到五點會下雨嗎", "明天下午3點到5點臺中市 ☀️ 晴朗，降雨機率 10%，不用帶傘。"),
        ("明天要開冷氣嗎", "明天臺中市 ☀️ 晴朗，20~28°，有點熱。"),
        ("明天會飄雨嗎", "明天臺中市 ☀️ 晴朗，降雨機率 10%，不用帶傘。"),
        ("下週五天氣", "下週五臺中市的預報還沒有出來，目前只到 11/24（週二）。"),
        (
            "下週天氣",
            "下週目前只有 11/23（週一）到 11/24（週二）的預報："
            "臺中市 ☀️ 晴朗，20~28°，降雨機率 10%，不用帶傘。",
        ),
        (
            "明天會下雨嗎 要穿外套嗎",
            "明天臺中市 ☀️ 晴朗，降雨機率 10%，不用帶傘，20~28°，穿件薄外套就好。",
        ),
        (
            "明天會冷嗎 紫外線強嗎",
            "明天臺中市 ☀️ 晴朗，20~28°，降雨機率 10%，不用帶傘，不會冷，"
            "穿件薄外套就好。紫外線只有今天的資料。",
        ),
        ("昨天有下雨嗎", "昨天已經過了，以下是臺中市接下來的預報。"),
        ("紫外線", "目前沒有臺中市的紫外線資料，以下是天氣預報。"),
        ("空氣品質", "目前沒有臺中市的空氣品質資料，以下是天氣預報。"),
        ("風大嗎", "目前沒有臺中市的風速資料，以下是天氣預報。"),
        ("日出", "目前沒有臺中市的日出日落時間資料，以下是天氣預報。"),
        ("天氣", None),
        ("", None),
    ],
)
def test_the_answer_on_a_fine_day(words: str, expected: str | None) -> None:
    """One line, in the words of the forecast; what it lacks is said, not invented."""
    assert said(words, made(10, 20, 28, SUNNY)) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("明天會下雨嗎", "明天臺中市 🌧️ 有雨，降雨機率 80%，記得帶傘，0–3 時最可能下雨。"),
        ("明天可以曬棉被嗎", "明天臺中市 🌧️ 有雨，降雨機率 80%，不適合曬衣服。"),
        ("明天冷嗎", "明天臺中市 🌧️ 有雨，9~14°，會冷，要穿厚外套，注意保暖。"),
        ("明天適合出門嗎", "明天臺中市 🌧️ 有雨，9~14°，降雨機率 80%，不太適合戶外活動。"),
    ],
)
def test_the_answer_on_a_wet_day(words: str, expected: str) -> None:
    """The other way round."""
    assert said(words, made(80, 9, 14, WET)) == expected


@pytest.mark.parametrize(
    "words",
    ["明天會下雨嗎", "冷嗎", "熱嗎", "外套", "現在幾度", "曬衣服", "濕度", "下雪", "出太陽",
     "適合爬山", "明天天氣", "今晚天氣", "颱風", "紫外線", "日出", "風大嗎", "現在會下雨嗎"],
)  # fmt: skip
def test_what_nobody_knows(words: str) -> None:
    """A forecast with nothing in it: no figure is made up, and nothing fails."""
    empty = made(None, None, None, None)
    for forecast in (empty, Forecast("66000", "臺中市", NOW, None, (), (), "x", Attribution("x"))):
        line = said(words, forecast)
        assert line and "None" not in line and "°" not in line and "機率" not in line


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [(0, 6, "非常冷"), (8, 15, "保暖"), (20, 28, "適合出門"), (28, 37, "太熱")],
)
def test_an_outing_in_the_cold_and_in_the_heat(low: float, high: float, says: str) -> None:
    """A dry day at 0° is no day to go out just so."""
    line = said("明天適合爬山嗎", made(10, low, high, SUNNY))
    assert (
        line is not None and says in line and line.endswith("，適合出門。") == (says == "適合出門")
    )


def test_waves_and_closed_schools_have_their_own_pages() -> None:
    """A link has nothing behind it that would break it."""
    for words, page in [("浪高", "ocean.cwa.gov.tw/"), ("停班停課", "nds.html")]:
        line = said(words, made(10, 20, 28, SUNNY))
        assert line is not None and line.endswith(page)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("我好難過想死", True), ("不想活了", True), ("在台北好想死", True), ("我想自殺", True),
        ("熱到想死", False), ("累得想死", False), ("想死你了", False), ("熱死了", False),
        ("笑死", False), ("冷死了算了", False), ("板橋", False),
    ],
)  # fmt: skip
def test_who_wants_to_die(words: str, expected: bool) -> None:
    """And who only says that it is hot."""
    intent = understand(words, private=True, mentioned=False, search=search)
    assert (intent.data == "distress") is expected
    if expected:
        assert "1925" in texts.SMALLTALK["distress"]


def test_a_typhoon_warning_comes_first() -> None:
    """What is in force is named; the rest is the weather administration's."""
    from dataclasses import replace

    warned = replace(made(10, 20, 28, SUNNY), hazards=(Hazard("臺中市", "海上颱風警報"),))
    line = said("有颱風嗎", warned)
    assert line is not None and line.startswith("⚠️ 臺中市：海上颱風警報") and "cwa.gov.tw" in line


# ------------------------------------------------------------------------------- words


def test_settings_that_are_written() -> None:
    """Which of the two, and where."""
    for words, expected in [
        ("把住家設成板橋", ("home", "板橋")), ("住家改板橋好了", ("home", "板橋")),
        ("板橋設為住家", ("home", "板橋")), ("公司設為內湖", ("office", "內湖")),
        ("設定住家 淡水", ("home", "淡水")), ("set home to banqiao", ("home", "banqiao")),
        ("辦公室:內湖", ("office", "內湖")), ("公司 內湖", ("office", "內湖")),
    ]:  # fmt: skip
        assert expected in list(read_settings(words)), words
    assert list(read_settings("板橋天氣")) == []


def test_abroad_and_regions() -> None:
    """Names of other countries are known, and no place of Taiwan is among them."""
    assert abroad("東京") == "東京" and abroad("new york") == "NewYork" and abroad("板橋") is None
    assert abroad_in("我要去日本東京玩") in ("日本", "東京")
    for county in atlas.counties():
        for place in (county, *atlas.towns_of(county.county)):
            short = (place.town or place.county)[:-1]
            assert abroad(place.name) is None and abroad(short) is None, place.name
            assert not region(short) and smalltalk(place.name) is None
    assert [place.name for place in region("高屏")] == ["高雄市", "屏東縣"]


def test_no_place_is_taken_for_something_else() -> None:
    """Every county and township, alone and with 天氣, is what it was before there was any talk."""
    for county in atlas.counties():
        for place in (county, *atlas.towns_of(county.county)):
            for words in (place.name, f"{place.name}天氣", f"明天{place.name}會下雨嗎"):
                intent = understand(words, private=True, mentioned=False, search=search, now=NOW)
                assert intent.kind == "forecast" and intent.places[0] == place, (words, intent)


@given(st.text(max_size=60))
def test_any_text_is_understood_somehow(words: str) -> None:
    """Any text, in private and in a group: an answer or silence, and no error."""
    for private in (True, False):
        understand(words, private=private, mentioned=False, search=search, now=NOW)


# ------------------------------------------------------------------------------- as people see it


async def test_a_question_survives_the_choice(run_bot: RunBot) -> None:
    """信義區明天會下雨嗎: asked which, then answered what was asked, with the line as altText."""
    async with run_bot() as bot:
        asked = await Talk(bot).say("信義區明天會下雨嗎")
        await bot.line.tap(data_of(asked, "基隆市信義區"))
        line, card = (await bot.replies(3))[1:]
        assert line["text"].startswith("明天基隆市信義區") and "降雨機率" in line["text"]
        assert card["altText"] == line["text"]


async def test_a_home_that_is_written(run_bot: RunBot) -> None:
    """It is set, and what is asked next is about it; of two such places, one is chosen."""
    async with run_bot() as bot:
        me = Talk(bot)
        assert (await me.say("把住家設成板橋"))["text"].startswith("✅")
        await bot.line.say("要帶傘嗎")
        line, card = (await bot.replies(3))[1:]
        assert "新北市板橋區" in line["text"] and card["type"] == "flex"
        which = Talk(bot, bot.line.somebody())
        asked = await which.say("公司設為信義區")
        assert asked["text"].startswith(texts.WHICH_TO_SET.format(kind="公司"))
        assert "\n1. 臺北市信義區\n2. 基隆市信義區" in asked["text"]
        done = await which.tap(data_of(asked, "臺北市信義區"))
        assert "公司設為 臺北市信義區" in done["text"]


async def test_settings_are_not_for_groups(run_bot: RunBot) -> None:
    """Who writes it there is told where to."""
    async with run_bot() as bot:
        group = Talk(bot, Source.group(new_id("group"), bot.line.somebody().chat_id))
        said = await group.send(mentioning("@WeaMind 把住家設成板橋"))
        assert said["text"] == texts.ONLY_IN_PRIVATE


async def test_the_weather_is_out_and_comes_back(
    run_bot: RunBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The button to try again still knows the question."""
    from apps.weamind.weather.provider import Reason, WeatherUnavailable

    async with run_bot(gated=True) as bot:
        bot.gate.opened.set()
        works = bot.gate.fetch

        async def fails(place: object) -> object:
            raise WeatherUnavailable("sample", Reason.STATUS, status=503)

        monkeypatch.setattr(bot.gate, "fetch", fails)
        sorry = await Talk(bot).say("明天板橋會下雨嗎")
        monkeypatch.setattr(bot.gate, "fetch", works)
        await bot.line.tap(data_of(sorry, "🔄 再試一次"))
        line, _ = (await bot.replies(3))[1:]
        assert line["text"].startswith("明天新北市板橋區")


async def test_an_own_place_by_tap_knows_the_question(run_bot: RunBot) -> None:
    """Data that a button carries is read with care: what makes no sense is left out."""
    async with run_bot() as bot:
        me = Talk(bot)
        await me.tap(f"action=set&type=home&place={XINYI}")
        card = await me.tap("action=weather&type=home&topic=nonsense&when=%00")
        assert card["type"] == "flex"


def test_a_question_is_a_value() -> None:
    """Nothing but a card, unless something is asked."""
    assert PLAIN.is_plain and not Question("rain").is_plain and question_fields(PLAIN) == {}


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "words",
    [
        "有沒有",
        "會不會",
        "不會",
        "要不要",
        "還會",
        "有多",
        "多",
        "在還在",
        "需不需要",
        "路十",
        "弄八之",
        "巷 ",
    ],
)
@pytest.mark.parametrize("end", ["", "!", "嗎", "路"])
def test_a_text_that_says_one_word_again_and_again_is_read_at_once(words: str, end: str) -> None:
    """Whatever a person types: the bot reads it while it answers everybody else."""
    text = (words * LONGEST)[: LONGEST - len(end)] + end
    find_question(text, NOW)
    understand(text, private=True, mentioned=False, search=search)
