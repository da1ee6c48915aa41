"""What people in Taiwan write and tap beyond the examples, and what must not be said to a group."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from local_line.sources import Source, new_id

from apps.weamind.line import texts
from apps.weamind.line.understanding import understand
from apps.weamind.places.search import search
from apps.weamind.weather.sky import from_wmo

from .conftest import HOME, XINYI, RunBot, RunningBot, is_forecast
from .test_bot_handlers import Talk, data_of, labels, mentioning

pytestmark = pytest.mark.only_on("linux", "darwin")


# ------------------------------------------------------------------------------- between two


async def test_a_question_about_the_weather_of_no_place(run_bot: RunBot) -> None:
    """It is asked where, and the person's own places are a tap away: nothing was not found.

    The question is kept until the place is known. Who has a home is answered for it at once.
    """
    async with run_bot() as bot:
        me = Talk(bot)
        for words in ("天氣", "今天會下雨嗎？", "明天天氣如何", "ｗｅａｔｈｅｒ?", "明天氣溫幾度"):
            asked = await me.say(words)
            assert asked["text"] == texts.WHERE
            assert labels(asked) == ["🏠 住家", "🏢 公司", "傳送位置"]
        await me.tap(f"action=set&type=home&place={XINYI}")
        home = data_of(asked, "🏠 住家")
        await bot.line.tap(home)
        line, card = (await bot.replies(8))[6:]
        assert line["text"].startswith("明天臺北市信義區") and card["altText"] == line["text"]
        await bot.line.say("天氣")
        assert (await bot.replies(9))[-1]["altText"].startswith("臺北市信義區")


async def test_a_place_that_is_only_guessed(run_bot: RunBot) -> None:
    """One that may be meant is asked about as one, and not as several."""
    async with run_bot() as bot:
        me = Talk(bot)
        for words, name in [("永和車站", "新北市永和區"), ("桃園國際機場", "桃園市")]:
            asked = await me.say(words)
            assert asked["text"] == texts.THIS_PLACE.format(place=name) == f"您是說{name}嗎？"
            assert labels(asked) == [name]
            assert is_forecast(await me.tap(data_of(asked, name)))


async def test_a_text_without_a_place_is_answered_with_the_map(run_bot: RunBot) -> None:
    """A text or a picture that says nothing to the bot: the map is a tap away."""
    async with run_bot() as bot:
        unknown = await Talk(bot).say("阿斯嘉")
        assert unknown["text"] == texts.UNKNOWN_TEXT.format(said="阿斯嘉")
        assert labels(unknown) == ["傳送位置"]


@pytest.mark.parametrize(
    ("words", "data"),
    [
        ("設定住家", "action=settings&type=home"),
        ("設定公司", "action=settings&type=office"),
        ("住家天氣", HOME),
        ("公司天氣？", "action=weather&type=office"),
        ("ｈｅｌｐ！", "action=other&type=help"),
        ("\u3000「最近查詢」\u3000", "action=recent_queries"),
    ],
)
def test_what_a_button_says_can_be_written(words: str, data: str) -> None:
    """Also in wide letters, with the word for weather, and between quotation marks."""
    intent = understand(words, private=True, mentioned=False, search=search)
    assert (intent.kind, intent.data) == ("command", data)


async def test_settings_while_the_database_is_out(run_bot: RunBot, postgres: Any) -> None:
    """The bot does not say that nothing is set, because it cannot know."""
    async with run_bot(database_url=postgres.new_database()) as bot:
        me = Talk(bot)
        await me.tap(f"action=set&type=home&place={XINYI}")
        postgres.stop()
        try:
            said = await me.tap("action=settings")
        finally:
            await asyncio.to_thread(postgres.start)
        assert texts.NOT_SET not in said["text"] and said["text"].count(texts.NOT_READ) == 2
        assert len(labels(said)) == 2


@pytest.mark.parametrize(
    ("slow", "data"),
    [
        ("meet", "action=recent_queries"),
        ("meet", "action=settings"),
        ("set_place", f"action=set&type=home&place={XINYI}"),
        ("delete", "action=delete&sure=yes"),
    ],
)
async def test_dots_while_the_database_takes_long(
    run_bot: RunBot, monkeypatch: pytest.MonkeyPatch, slow: str, data: str
) -> None:
    """After any tap: a person who waits sees that something happens, and then the answer."""
    from apps.weamind.user.database import UserDatabase

    dots_are_there, original = threading.Event(), getattr(UserDatabase, slow)

    def slowly(self: UserDatabase, *arguments: Any) -> Any:
        dots_are_there.wait(20)
        return original(self, *arguments)

    monkeypatch.setattr(UserDatabase, slow, slowly)
    monkeypatch.setattr("apps.weamind.user.users.LONGEST", 30.0)
    async with run_bot() as bot:
        await bot.line.tap(data)
        try:
            await _dots_shown(bot)
        finally:
            dots_are_there.set()
        [answer] = await bot.replies(1)
        assert answer["text"] not in (texts.NO_ACCESS, texts.NOT_DELETED_NOW)


async def _dots_shown(bot: RunningBot) -> None:
    async with asyncio.timeout(10):
        while not any(call.route.endswith("/loading/start") for call in bot.line.calls):
            await asyncio.sleep(0.01)


# ------------------------------------------------------------------------------- in groups


async def test_a_group_is_offered_nothing_that_is_refused_there(run_bot: RunBot) -> None:
    """No map, because locations are not read there; no settings, because they are personal."""
    async with run_bot() as bot:
        group = Talk(bot, Source.group(new_id("group"), bot.line.somebody().chat_id))
        for words in ("@WeaMind 其他", "@WeaMind 說明"):
            said = await group.send(mentioning(words))
            assert (said["text"], labels(said)) == (texts.WELCOME_TO_GROUP, [])
        for words, text in [
            ("@WeaMind 哈囉", texts.WELCOME_TO_GROUP),
            ("@WeaMind", texts.WELCOME_TO_GROUP),
            ("@WeaMind 天氣", texts.WHERE_IN_GROUP),
            ("@WeaMind 謝謝", texts.SMALLTALK["thanks"]),
            ("@WeaMind 阿斯嘉", texts.UNKNOWN_TEXT_IN_GROUP.format(said="阿斯嘉")),
        ]:
            said = await group.send(mentioning(words))
            assert (said["text"], labels(said)) == (text, [])
        for ask in (group.send(mentioning("@WeaMind 目前位置")),
                    group.tap("action=weather&type=current")):  # fmt: skip
            said = await ask
            assert (said["text"], labels(said)) == (texts.NO_LOCATION_IN_GROUP, [])
        said = await group.tap(f"action=set&type=home&place={XINYI}")
        assert said["text"].startswith("✅") and labels(said) == ["臺北市信義區"]


# ------------------------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("words", "kind"),
    [("今仔日台南熱毋", "forecast"), ("明仔早起台中會冷無", "forecast"), ("今仔日會熱無", "own"),
     ("今仔日熱死人", "own")],
)  # fmt: skip
def test_questions_in_taiwanese(words: str, kind: str) -> None:
    """無 and 毋 at the end ask; they belong to no name."""
    assert understand(words, private=True, mentioned=False, search=search).kind == kind


def test_words_that_are_said_in_taiwan() -> None:
    """Rain and snow have the names of Taiwan's forecasts, not those of tables of codes."""
    words = {sky.text for code in range(100) if (sky := from_wmo(code, night=False))}
    assert not words & {"中雨", "中雪", "微毛毛雨", "濃毛毛雨"}
    assert {"小雨", "有雨", "大雨", "毛毛雨", "綿綿細雨"} <= words
