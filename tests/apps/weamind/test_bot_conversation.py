"""What a text means after what was said before: across processes, for ten minutes, between two."""

from __future__ import annotations

import logging

import pytest
from local_line.sources import Source, new_id

from apps.weamind.line import texts
from apps.weamind.line.conversation import NOTHING, Conversation, answered, open_choice, resume
from apps.weamind.line.conversations import KEPT_FOR, KEY, Conversations
from apps.weamind.line.question import Question
from apps.weamind.line.understanding import Intent, understand
from apps.weamind.places.atlas import by_code
from apps.weamind.places.place import Place
from apps.weamind.places.search import search
from dibs import AsyncDibs
from dibs.testing import Server

from .conftest import BANQIAO, XINYI, RunBot
from .test_bot_handlers import Talk, mentioning

pytestmark = pytest.mark.only_on("linux", "darwin")


def place(code: str) -> Place:
    found = by_code(code)
    assert found is not None
    return found


def after(before: Conversation, text: str) -> Intent:
    """What *text* means after *before*."""
    return resume(understand(text, private=True, mentioned=False, search=search), text, before)


@pytest.mark.parametrize(
    ("words", "sure"),
    [
        ("確定刪除", "yes"), ("確定", "yes"), ("「確定刪除」", "yes"), ("好，刪除", "yes"),
        ("取消", "no"), ("不要", "no"), ("算了", "no"), ("好", None), ("謝謝", None), ("嗯", None),
    ],
)  # fmt: skip
def test_only_clear_words_delete(words: str, sure: str | None) -> None:
    """好 may be said about anything."""
    data = after(open_choice("delete"), words).data
    assert data == f"action=delete&sure={sure}" if sure else "sure" not in data
    assert "sure=yes" not in after(NOTHING, words).data


async def test_another_text_closes_the_question_whether_to_delete(run_bot: RunBot) -> None:
    """A person who changes the subject and then says 確定 is asked again, and loses nothing."""
    async with run_bot() as bot:
        me = Talk(bot)
        assert (await me.say("刪除我的資料"))["text"] == texts.DELETE_SURE
        await me.say("謝謝")
        assert (await me.say("確定刪除"))["text"] == texts.DELETE_SURE
        assert (await me.say("確定刪除"))["text"] == texts.DELETED


@pytest.mark.parametrize("words", ["2", "２", "第二個", "基隆", "基隆市信義區", "二"])
def test_a_choice_by_number_or_name(words: str) -> None:
    """What is offered can be written; the question goes with it."""
    intent = after(open_choice("which", search("信義區").places, Question("rain")), words)
    assert (intent.kind, intent.places[0].county) == ("forecast", "基隆市")
    assert intent.question.topic == "rain"


@pytest.mark.parametrize("words", ["對", "是的", "嗯嗯", "沒錯", "對啊！", "yes", "好", "はい"])
def test_yes_to_the_only_place(words: str) -> None:
    """您是說新北市板橋區嗎？ To a question with two places it is no answer."""
    intent = after(open_choice("which", (place(BANQIAO),), Question("rain")), words)
    assert (intent.kind, intent.places) == ("forecast", (place(BANQIAO),))
    assert intent.question.topic == "rain"
    assert after(open_choice("which", search("信義區").places), words).kind != "forecast"


def test_no_to_the_only_place() -> None:
    """It is not searched for a place of that name."""
    before = open_choice("which", (place(BANQIAO),), Question("rain"))
    assert after(before, "不是").data == after(before, "不對").data == "cancel"


@pytest.mark.parametrize(
    ("words", "county"),
    [
        ("縣", "新竹縣"),
        ("市", "新竹市"),
        ("市區", "新竹市"),
        ("city", "新竹市"),
        ("county", "新竹縣"),
    ],
)
def test_a_choice_by_what_it_is(words: str, county: str) -> None:
    """新竹, of which there are two."""
    assert after(open_choice("which", search("新竹").places), words).places[0].county == county


@pytest.mark.parametrize("words", ["高雄也會嗎", "高雄也是嗎？", "高雄也會下雨嗎"])
def test_the_same_of_another_place(words: str) -> None:
    """The day is that of the question before."""
    asked = understand("台北明天會下雨嗎", private=True, mentioned=False, search=search)
    intent = after(answered(asked.places, asked.question), words)
    assert (intent.kind, intent.places[0].county) == ("forecast", "高雄市")
    assert intent.question == asked.question


@pytest.mark.parametrize("words", ["3", "99", "0", "第九個", "信義"])
def test_no_choice(words: str) -> None:
    """A number that is not there, and a name that all of them have."""
    assert after(open_choice("which", search("信義區").places), words).kind != "forecast"


def test_the_home_by_the_name_alone() -> None:
    """After 設定住家 a township is set, of a county the townships are offered."""
    assert after(open_choice("home"), "板橋") == Intent("set", (place(BANQIAO),), "home")
    county = after(open_choice("office"), "新北市")
    assert county.kind == "command" and "action=settings&type=office&county=" in county.data
    assert after(open_choice("home"), "板橋會下雨嗎").kind == "forecast"


def test_without_a_conversation_nothing_changes() -> None:
    """Also for the words that go on with one."""
    for words in ("那高雄呢", "後天呢", "會冷嗎", "板橋", "2", "取消", "天氣"):
        assert after(NOTHING, words) == understand(
            words, private=True, mentioned=False, search=search
        )


def test_a_new_question_is_not_the_old_one() -> None:
    """A place alone, or another whole question, starts again."""
    before = answered([place(XINYI)], Question("rain"))
    assert after(before, "板橋").question.is_plain
    assert after(before, "板橋會冷嗎").question.topic == "cold"
    assert after(before, "明天天氣如何").question.topic == "weather"
    assert after(before, "那瑪夏").question.is_plain  # a township


async def test_it_is_shared_by_processes_and_ends(valkey: Server) -> None:
    """Under a key with an end, as codes; another process reads it."""
    said = answered([place(BANQIAO)], Question("rain"))
    async with AsyncDibs(valkey.url) as one, AsyncDibs(valkey.url) as other:
        await Conversations(one).note("U1", said)
        assert await Conversations(other).of("U1") == said
        assert await Conversations(other).of("U2") == NOTHING
        key = KEY.format(user_id="U1")
        assert 0 < valkey.client().ttl(key) <= KEPT_FOR
        valkey.client().set(key, b"something else", ex=60)
        assert await Conversations(other).of("U1") == NOTHING


async def test_without_a_store_every_text_stands_alone(run_bot: RunBot) -> None:
    """Every text gets an answer."""
    async with run_bot(redis_url="redis://127.0.0.1:1") as bot:
        me = Talk(bot)
        assert (await me.say("要帶傘嗎"))["text"] == texts.WHERE
        assert (await me.say("板橋"))["type"] == "flex"


async def test_no_text_and_no_id_in_store_or_log(
    run_bot: RunBot, valkey: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """What is remembered are codes and times."""
    caplog.set_level(logging.DEBUG)
    async with run_bot() as bot:
        person = bot.line.somebody()
        await Talk(bot, person).say("請問明天要帶傘嗎")
        stored = valkey.client().get(KEY.format(user_id=person.chat_id))
        assert isinstance(stored, bytes)
        assert "請問".encode() not in stored and b"rain" in stored
        assert person.chat_id not in caplog.text and "帶傘" not in caplog.text


async def test_what_is_deleted_is_forgotten(run_bot: RunBot, valkey: Server) -> None:
    """No place is left of the conversation."""
    async with run_bot() as bot:
        me = Talk(bot, bot.line.somebody())
        for words in ("板橋", "刪除我的資料", "確定刪除"):
            await me.say(words)
        assert (await me.say("會冷嗎"))["text"] == texts.WHERE


async def test_a_group_has_no_conversation(run_bot: RunBot) -> None:
    """There the next text may be another person's; choices have no numbers."""
    async with run_bot() as bot:
        group = Talk(bot, Source.group(new_id("group"), bot.line.somebody().chat_id))
        asked = await group.send(mentioning("@WeaMind 信義區"))
        assert "1. " not in asked["text"] and "・臺北市信義區" in asked["text"]
        assert (await group.send(mentioning("@WeaMind 會冷嗎")))["text"] == texts.WHERE_IN_GROUP
