"""The bot's answers: texts, places, taps, settings, groups, and goodbyes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from linebot.v3 import WebhookParser
from local_line import events
from local_line.sources import Source, new_id

from apps.weamind.line import messages, texts
from apps.weamind.line.bot import chat_of
from apps.weamind.line.events import Mention, Mentionee, Message, parse_webhook
from apps.weamind.line.postbacks import parse_postback, postback_data
from apps.weamind.line.service import type_of
from apps.weamind.line.understanding import COMMANDS, is_mentioned, understand, without_mentions
from apps.weamind.places import atlas
from apps.weamind.places.search import search

from .conftest import BANQIAO, HOME, OFFICE, SECRET, XINYI, RunBot, RunningBot, is_forecast, signed

pytestmark = pytest.mark.only_on("linux", "darwin")


class Talk:
    """One chat: each verb returns the one message that comes back."""

    def __init__(self, bot: RunningBot, source: Source | None = None) -> None:
        self.bot, self.source = bot, source
        self._seen = 0

    async def _next(self) -> dict[str, Any]:
        self._seen += 1
        return (await self.bot.replies(self._seen, source=self.source))[-1]

    async def say(self, words: str) -> dict[str, Any]:
        await self.bot.line.say(words, source=self.source)
        return await self._next()

    async def tap(self, data: str) -> dict[str, Any]:
        await self.bot.line.tap(data, source=self.source)
        return await self._next()

    async def at(self, latitude: float, longitude: float) -> dict[str, Any]:
        await self.bot.line.share_location(latitude, longitude, source=self.source)
        return await self._next()

    async def send(self, draft: events.Draft) -> dict[str, Any]:
        await self.bot.line.send(draft, source=self.source)
        return await self._next()

    async def nothing(self, *drafts: events.Draft) -> None:
        """The bot is silent."""
        await self.bot.line.batch(drafts, source=self.source)
        await self.bot.settled()
        assert len(self.bot.line.chat(self.source).sent) == self._seen


def labels(message: dict[str, Any]) -> list[str]:
    return [item["action"]["label"] for item in message.get("quickReply", {}).get("items", [])]


def data_of(message: dict[str, Any], label: str) -> str:
    """What a tap on that quick reply sends."""
    items = message["quickReply"]["items"]
    [data] = [item["action"]["data"] for item in items if item["action"]["label"] == label]
    return data


# ------------------------------------------------------------------------------- texts and places


async def test_a_text_is_answered_by_the_places_in_it(run_bot: RunBot) -> None:
    """A place: its forecast. Several: which one. None: a hint. All of them by name, not by code."""
    async with run_bot() as bot:
        me = Talk(bot)
        sure = await me.say("台北信義")
        assert is_forecast(sure) and sure["altText"].startswith("臺北市信義區")
        several = await me.say("東區")
        assert several["text"].startswith(f"{texts.WHICH_PLACE}\n1. ")
        assert set(labels(several)) == {"新竹市東區", "臺中市東區", "嘉義市東區", "臺南市東區"}
        chosen = await me.tap(data_of(several, "臺南市東區"))
        assert chosen["altText"].startswith("臺南市東區")
        assert (await me.say("宜蘭天氣"))["altText"].startswith("宜蘭縣")
        unknown = texts.UNKNOWN_TEXT.format(said="asdf qwerty")
        assert (await me.say("asdf qwerty"))["text"] == unknown


async def test_a_location_is_answered_by_its_town(run_bot: RunBot) -> None:
    """The town at that point; at sea and abroad the bot says that there is none."""
    async with run_bot() as bot:
        me = Talk(bot)
        assert (await me.at(25.0337, 121.5645))["altText"].startswith("臺北市信義區")
        for latitude, longitude in [(24.46, 118.07), (35.68, 139.76), (23.0, 124.0), (0, 0)]:
            assert (await me.at(latitude, longitude))["text"] == texts.OUTSIDE


async def test_other_kinds_of_messages(run_bot: RunBot) -> None:
    """A sticker: something friendly. A picture: a short hint. Both between two."""
    async with run_bot() as bot:
        me = Talk(bot)
        assert (await me.send(events.sticker()))["text"] == texts.STICKER
        assert (await me.send(events.image()))["text"] == texts.UNKNOWN_KIND


# ------------------------------------------------------------------------------- own places


async def test_home_and_office(run_bot: RunBot) -> None:
    """Not set: asked for. Set by the button of a card: the forecast, by tap or by word."""
    async with run_bot() as bot:
        me = Talk(bot)
        for data, button in [(HOME, "🏠 設定住家"), (OFFICE, "🏢 設定公司")]:
            unset = await me.tap(data)
            assert labels(unset) == [button] and "還沒有設定" in unset["text"]
        card = json.dumps(await me.say("板橋"))
        assert f"action=set&type=home&place={BANQIAO}" in card
        assert (
            "住家設為 新北市板橋區"
            in (await me.tap(f"action=set&type=home&place={BANQIAO}"))["text"]
        )
        assert (
            "公司設為 臺北市信義區"
            in (await me.tap(f"action=set&type=office&place={XINYI}"))["text"]
        )
        assert (await me.tap(HOME))["altText"].startswith("新北市板橋區")
        assert (await me.tap(OFFICE))["altText"].startswith("臺北市信義區")
        assert (await me.say("住家"))["altText"].startswith("新北市板橋區")
        you = Talk(bot, bot.line.somebody())
        assert "還沒有設定" in (await you.tap(HOME))["text"]


async def test_the_current_location(run_bot: RunBot) -> None:
    """A tap on the map: a button that opens LINE's own."""
    async with run_bot() as bot:
        asked = await Talk(bot).tap("action=weather&type=current")
        [item] = asked["quickReply"]["items"]
        assert item["action"]["type"] == "location"


async def test_recent_queries(run_bot: RunBot) -> None:
    """The last five places that are neither home nor office, below every forecast, too."""
    async with run_bot() as bot:
        me = Talk(bot)
        assert (await me.tap("action=recent_queries"))["text"] == texts.NO_QUERIES_YET
        await me.tap(f"action=set&type=home&place={XINYI}")
        for place in ("板橋", "淡水", "台北信義", "烏來", "中壢", "鳳山", "恆春", "板橋"):
            card = await me.say(place)
        expected = ["屏東縣恆春鎮", "高雄市鳳山區", "桃園市中壢區", "新北市烏來區"]
        assert labels(card) == [*expected, "新北市淡水區", "傳送位置"]
        recent = await me.tap("action=recent_queries")
        assert recent["text"].startswith(f"{texts.RECENT}\n1. 新北市板橋區\n2. ")
        assert labels(recent) == ["新北市板橋區", *expected]
        again = await me.tap(data_of(recent, "桃園市中壢區"))
        assert again["altText"].startswith("桃園市中壢區")


async def test_settings_by_chat(run_bot: RunBot) -> None:
    """Home or office, county, town: by quick replies, never more than 13, with pages."""
    async with run_bot() as bot:
        me = Talk(bot)
        start = await me.tap("action=settings")
        assert labels(start) == ["🏠 設定住家", "🏢 設定公司"]
        assert start["text"].count("尚未設定") == 2
        counties = await me.tap(data_of(start, "🏠 設定住家"))
        second = await me.tap(data_of(counties, "下一頁 ➡️"))
        back = await me.tap(data_of(second, "⬅️ 上一頁"))
        assert back == counties
        names = [name for name in labels(counties) + labels(second) if "頁" not in name]
        assert names == [place.name for place in atlas.counties()] and len(names) == 22
        page = counties if "高雄市" in labels(counties) else second
        towns = await me.tap(data_of(page, "高雄市"))
        seen: list[str] = []
        while True:
            assert len(labels(towns)) <= 13
            seen += [name for name in labels(towns) if "頁" not in name]
            if "下一頁 ➡️" not in labels(towns):
                break
            towns = await me.tap(data_of(towns, "下一頁 ➡️"))
        assert seen == [town.town for town in atlas.towns_of("高雄市")] and len(seen) == 38
        done = await me.tap(data_of(towns, seen[-1]))
        assert f"住家設為 高雄市{seen[-1]}" in done["text"]
        assert f"住家：高雄市{seen[-1]}" in (await me.say("設定"))["text"]


async def test_a_page_for_settings(run_bot: RunBot) -> None:
    """A link to LIFF, only where there is one."""
    async with run_bot(liff_id="123-abc", line_login_channel_id="123") as bot:
        start = await Talk(bot).tap("action=settings")
        assert start["quickReply"]["items"][-1]["action"] == {
            "type": "uri", "label": "在網頁上設定", "uri": "https://liff.line.me/123-abc",
        }  # fmt: skip


async def test_delete_my_data(run_bot: RunBot) -> None:
    """The bot asks first, by word and by tap; then all data is deleted."""
    async with run_bot() as bot:
        me = Talk(bot)
        await me.tap(f"action=set&type=home&place={XINYI}")
        await me.say("板橋")
        other = await me.tap("action=other&type=menu")
        assert "刪除我的資料" in labels(other)
        sure = await me.tap(data_of(other, "刪除我的資料"))
        assert sure == await me.say("刪除我的資料") and sure["text"] == texts.DELETE_SURE
        assert (await me.tap(data_of(sure, "取消")))["text"] == texts.NOT_DELETED
        assert is_forecast(await me.tap(HOME))
        assert (await me.tap(data_of(sure, "確定刪除")))["text"] == texts.DELETED
        assert "還沒有設定" in (await me.tap(HOME))["text"]
        assert (await me.tap("action=recent_queries"))["text"] == texts.NO_QUERIES_YET


async def test_help_is_given_by_tap_and_by_word(run_bot: RunBot) -> None:
    """By tap and by word."""
    async with run_bot() as bot:
        me = Talk(bot)
        assert (await me.say("說明"))["text"] == (await me.say("Help？"))["text"] == texts.HELP


async def test_unknown_postback_data_is_answered_and_does_nothing(run_bot: RunBot) -> None:
    """Data that no button of ours has: a polite answer, and nothing else happens."""
    async with run_bot() as bot:
        me = Talk(bot)
        for data in (
            "x", "action=drop", "action=weather", "action=weather&type=mars", "=&=&", "action=set",
            "action=weather&type=place&place=99999", "action=set&type=home&place='; DROP TABLE",
            f"action=set&type=castle&place={XINYI}", "action=set&type=home", "a=" + "1" * 290,
        ):  # fmt: skip
            assert (await me.tap(data))["text"] == texts.UNKNOWN_TAP, data
        for data in ("action=settings&type=home&page=x", "action=settings&type=home&page=999",
                     "action=settings&type=home&county=63000020",
                     "action=settings&type=home&county=x&page=-1"):  # fmt: skip
            assert (await me.tap(data))["text"] == texts.WHICH_COUNTY.format(kind="住家"), data
        assert "還沒有設定" in (await me.tap(HOME))["text"]


# ------------------------------------------------------------------------------- coming and going


async def test_follow_and_unfollow(run_bot: RunBot, tmp_path: Any) -> None:
    """Welcome; gone; back again, with the places as they were."""
    import sqlite3
    from contextlib import closing

    def is_active() -> bool:
        with closing(sqlite3.connect(tmp_path / "bot.db")) as database:
            [(active,)] = database.execute("SELECT is_active FROM weamind_users")
            return bool(active)

    async with run_bot() as bot:
        me = Talk(bot)
        assert (await me.send(bot.line.following(bot.line.me)))["text"] == texts.WELCOME
        await me.tap(f"action=set&type=home&place={XINYI}")
        await me.nothing(bot.line.unfollowing(bot.line.me))
        assert not is_active()
        assert (await me.send(bot.line.following(bot.line.me)))["text"] == texts.WELCOME
        assert is_active() and is_forecast(await me.tap(HOME))


# ------------------------------------------------------------------------------- groups


async def test_in_a_group(run_bot: RunBot) -> None:
    """Silent, unless it is asked about the weather of a place, or is mentioned."""
    async with run_bot() as bot:
        everybody = Talk(bot, Source.group(new_id("group"), bot.line.somebody().chat_id))
        await bot.line.join(source=everybody.source or bot.line.me)
        assert (await everybody._next())["text"] == texts.WELCOME_TO_GROUP
        await everybody.nothing(
            events.text("板橋"), events.text("晚餐吃什麼"), events.text("天氣真好"),
            events.text("東區天氣"), events.text("住家"), events.sticker(), events.image(),
            events.location(25.0337, 121.5645), events.text("刪除我的資料"),
        )  # fmt: skip
        card = await everybody.say("板橋天氣")
        assert is_forecast(card) and labels(card) == []
        several = await everybody.send(mentioning("@WeaMind 東區"))
        assert len(labels(several)) == 4
        assert is_forecast(await everybody.send(mentioning("@WeaMind 板橋")))
        hello = await everybody.send(mentioning("@WeaMind 哈囉"))
        assert hello["text"] == texts.WELCOME_TO_GROUP
        unknown = await everybody.send(mentioning("@WeaMind 阿斯嘉"))
        assert unknown["text"] == texts.UNKNOWN_TEXT_IN_GROUP.format(said="阿斯嘉")


def mentioning(words: str) -> events.Draft:
    draft = events.text(words)
    mentionee = {"index": 0, "length": 8, "type": "user", "userId": "U0", "isSelf": True}
    message = draft.content["message"] | {"mention": {"mentionees": [mentionee]}}
    return events.Draft("message", {"message": message})


async def test_personal_things_are_private(run_bot: RunBot) -> None:
    """In a group no person's places are shown; with and without an id of the person."""
    async with run_bot() as bot:
        person = bot.line.somebody()
        await Talk(bot, person).tap(f"action=set&type=home&place={XINYI}")
        for source in (
            Source.group(new_id("group"), person.chat_id),
            Source.room(new_id("room"), person.chat_id),
            Source.group(new_id("group")),
        ):
            chat = Talk(bot, source)
            for data in (HOME, "action=recent_queries", "action=settings", "action=delete",
                         "action=delete&sure=yes"):  # fmt: skip
                assert (await chat.tap(data))["text"] == texts.ONLY_IN_PRIVATE
        nobody = Talk(bot, Source.group(new_id("group")))
        said = await nobody.tap(f"action=set&type=home&place={BANQIAO}")
        assert said["text"] == texts.ONLY_IN_PRIVATE


# ------------------------------------------------------------------------------- bad days


async def test_the_weather_is_out(run_bot: RunBot, monkeypatch: pytest.MonkeyPatch) -> None:
    """An apology without internals, and a button to try again, which works when it is back."""
    from apps.weamind.weather.provider import Reason, WeatherUnavailable

    async with run_bot(gated=True) as bot:
        bot.gate.opened.set()
        works = bot.gate.fetch

        async def fails(place: Any) -> Any:
            raise WeatherUnavailable("sample", Reason.STATUS, status=503)

        monkeypatch.setattr(bot.gate, "fetch", fails)
        me = Talk(bot)
        sorry = await me.say("板橋")
        assert "抱歉" in sorry["text"] and "503" not in sorry["text"]
        monkeypatch.setattr(bot.gate, "fetch", works)
        assert is_forecast(await me.tap(data_of(sorry, "🔄 再試一次")))


async def test_the_database_is_out(run_bot: RunBot, postgres: Any) -> None:
    """Who asks for a place gets it; for their own, is told why not; the new are welcome."""
    async with run_bot(database_url=postgres.new_database()) as bot:
        me = Talk(bot)
        await me.tap(f"action=set&type=home&place={XINYI}")
        postgres.stop()
        try:
            assert is_forecast(await me.say("板橋"))
            assert (await me.tap(HOME))["text"] == texts.NO_ACCESS
            assert (await me.tap("action=delete&sure=yes"))["text"] == texts.NOT_DELETED_NOW
            set_it = f"action=set&type=home&place={XINYI}"
            assert (await me.tap(set_it))["text"] == texts.NO_ACCESS
            assert (await me.send(bot.line.following(bot.line.me)))["text"] == texts.WELCOME
            assert len(labels(await me.tap("action=settings"))) == 2
        finally:
            postgres.start()
        assert is_forecast(await me.tap(HOME))


# ------------------------------------------------------------------------------- the SDK's objects


async def test_the_sdks_events_fit_the_same_handlers(run_bot: RunBot) -> None:
    """What line-bot-sdk's parser makes of a webhook is answered like what ours makes of it."""
    from apps.weamind.line.bot import Bot
    from apps.weamind.line.processor import EventProcessor

    seen: list[EventProcessor] = []
    original = EventProcessor.__init__

    def watched(self: EventProcessor, bot: Bot, *args: Any, **kwargs: Any) -> None:
        seen.append(self)
        original(self, bot, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EventProcessor, "__init__", watched)
        async with run_bot() as bot:
            group = Source.group(new_id("group"), bot.line.somebody().chat_id)
            room = Source.room(new_id("room"), bot.line.somebody().chat_id)
            made = bot.line.happen([
                events.text("台北信義"), events.location(25.0337, 121.5645),
                events.postback("action=other"), events.follow(), events.sticker(),
                mentioning("@WeaMind 板橋").by(group), events.text("板橋天氣").by(room),
                events.join().by(group), events.unfollow(),
                events.text("板橋").in_standby(),
            ])  # fmt: skip
            for event in made:
                if event["type"] == "message":
                    event["message"].setdefault("quoteToken", "q")
            body = json.dumps({"destination": "U0", "events": made})
            signature = signed(body.encode())["X-Line-Signature"]
            sdk = WebhookParser(SECRET).parse(body, signature)
            ours = parse_webhook(body.encode()).events
            assert [type_of(event) for event in sdk] == [type_of(event) for event in ours]
            assert [chat_of(event) for event in sdk] == [chat_of(event) for event in ours]
            outcomes = [await seen[0].work(event) for event in sdk]
            assert outcomes == ["done"] * 9 + ["standby"]
            sent = await bot.line.wait_for_messages(5)
            assert [is_forecast(message) for message in sent] == [True, True, False, False, False]
            assert sent[3]["text"] == texts.WELCOME and sent[4]["text"] == texts.STICKER
            assert is_forecast(bot.line.chat(group).sent[0])
            assert is_forecast(bot.line.chat(room).sent[0])
            # The same events again, as ours: known already.
            assert [await seen[0].work(event) for event in ours[:9]] == ["duplicate"] * 9


# ------------------------------------------------------------------------------- pure parts


@given(st.text(max_size=400))
def test_any_data_is_read(data: str) -> None:
    """Any data of a button: fields, or nothing."""
    fields = parse_postback(data)
    assert all(isinstance(each, str) for pair in fields.items() for each in pair)


def test_data_there_and_back() -> None:
    """What a button is given comes back; the first of two fields counts; too long is refused."""
    data = postback_data("set", type="home", place="中文&=", page=3)
    assert parse_postback(data) == {
        "action": "set", "type": "home", "place": "中文&=", "page": "3",
    }  # fmt: skip
    assert parse_postback("action=other&action=delete") == {"action": "other"}
    with pytest.raises(ValueError, match="300"):
        postback_data("x", y="z" * 300)
    assert parse_postback("a=1&" * 20) == parse_postback(None) == parse_postback("x" * 301) == {}


@given(st.integers(0, 60), st.integers(-5, 99))
def test_pages_have_at_most_thirteen_items_and_miss_none(count: int, number: int) -> None:
    """However many there are: at most 13 on a page, and walking through them meets each once."""
    items = [messages.tap(str(each), "x", n=each) for each in range(count)]

    def turn(label: str, page: int) -> dict[str, Any]:
        return messages.tap(label, "turn", page=page)

    assert len(messages.paged(items, number, turn)) <= 13
    seen: list[dict[str, Any]] = []
    page = 0
    while True:
        shown = messages.paged(items, page, turn)
        seen += [item for item in shown if item in items]
        after = [item for item in shown if item["action"]["label"] == "下一頁 ➡️"]
        if not after:
            break
        page = int(parse_postback(after[0]["action"]["data"])["page"])
    assert seen == items


@given(
    st.text(max_size=30),
    st.lists(st.builds(Mentionee, st.integers(0, 40), st.integers(0, 40), st.booleans())),
)
def test_mentions_are_cut_out(text: str, mentionees: list[Mentionee]) -> None:
    """Wherever LINE says that they are, and however wrong it is."""
    message = Message("text", text, mention=Mention(tuple(mentionees)))
    assert isinstance(without_mentions(message), str)
    assert is_mentioned(message) == any(each.is_self for each in mentionees)


def test_mentions_count_in_utf16() -> None:
    """An emoji before the mention counts twice, as LINE counts."""
    message = Message("text", "🌧️@WeaMind 板橋", mention=Mention((Mentionee(3, 8, True),)))
    assert without_mentions(message) == "🌧️ 板橋"
    assert without_mentions(Message("text", "板橋")) == "板橋"


def test_words_that_do_what_buttons_do() -> None:
    """Each is understood alone, with what people put around it, and hides no place."""
    for word, data in COMMANDS.items():
        for said in (word, f" {word}！", f"「{word}」"):
            intent = understand(said, private=True, mentioned=False, search=search)
            assert (intent.kind, intent.data) == ("command", data)
        assert not search(word).sure
