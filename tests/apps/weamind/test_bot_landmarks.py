"""Landmarks in the chat: asked for, chosen among namesakes, and set as a home."""

from __future__ import annotations

import pytest

from apps.weamind.places.search import search

from .conftest import HOME, RunBot
from .recorded.line_limits import assert_line_message, texts
from .test_bot_handlers import Talk, data_of, labels

pytestmark = pytest.mark.only_on("linux", "darwin")


async def test_a_landmark_is_answered_with_its_own_card(run_bot: RunBot) -> None:
    """At once, with its township and its height; LINE would take it."""
    async with run_bot() as bot:
        card = await Talk(bot).say("玉山天氣")
        assert_line_message({key: card[key] for key in card if key != "quickReply"})
        assert card["altText"].startswith("玉山 ")
        assert "南投縣信義鄉・海拔 3952 公尺" in texts(card["contents"])


async def test_namesakes_are_asked_about(run_bot: RunBot) -> None:
    """鯉魚潭 is three lakes: a tap on one of them is answered with its card."""
    async with run_bot() as bot:
        me = Talk(bot)
        asked = await me.say("鯉魚潭")
        assert labels(asked) == ["鯉魚潭（花蓮）", "鯉魚潭水庫", "鯉魚潭（埔里）"]
        card = await me.tap(data_of(asked, "鯉魚潭（埔里）"))
        assert card["altText"].startswith("鯉魚潭（埔里） ")


async def test_a_landmark_can_be_home(run_bot: RunBot) -> None:
    """It is stored by its code and comes back; the recent queries have it, too."""
    [place] = search("九份").places
    async with run_bot() as bot:
        me = Talk(bot)
        said = await me.tap(f"action=set&type=home&place={place.code}")
        assert "九份" in said["text"]
        assert (await me.tap(HOME))["altText"].startswith("九份 ")
        await me.say("玉山")
        assert "玉山" in labels(await me.tap("action=recent_queries"))
