"""The bot on the Central Weather Administration, when that is broken: what people read then."""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import pytest

from apps.weamind.weather.cwa import Cwa
from apps.weamind.weather.failure_text import failure_text
from apps.weamind.weather.forecast import TAIPEI
from apps.weamind.weather.provider import Reason, WeatherUnavailable

from .conftest import RunBot, RunningBot, is_forecast
from .recorded import upstream as does
from .recorded.upstream import Behaviour, Upstream, recorded, saying

NOW = datetime(2026, 3, 1, 18, 20, tzinfo=TAIPEI)
TOWNSHIP = recorded("cwa_township")
SHORT, PLENTY = 0.3, 20.0


def elements(body: Any) -> list[Any]:
    """The weather elements of the one township in *body*."""
    return body["records"]["Locations"][0]["Location"][0]["WeatherElement"]


MISSING = ["溫度", "天氣現象", "3小時降雨機率", "風速"]


@asynccontextmanager
async def bot_on(
    run_bot: RunBot,
    monkeypatch: pytest.MonkeyPatch,
    behaviour: Behaviour,
    *,
    deadline: float = PLENTY,
) -> AsyncIterator[RunningBot]:
    """The whole bot; its weather is CWA's, which does as *behaviour* says."""
    async with Upstream(behaviour) as upstream:

        def provider(*_: object, **__: object) -> Cwa:
            options: Any = {"base_url": upstream.url, "deadline": deadline, "clock": lambda: NOW}
            return Cwa("a-key-for-tests", **options)

        monkeypatch.setattr("apps.weamind.main.open_provider", provider)
        async with run_bot() as bot:
            yield bot


@pytest.mark.parametrize(
    ("behaviour", "reason", "deadline"),
    [
        (saying({"message": "Internal Server Error"}, 500), Reason.STATUS, PLENTY),
        (saying(b"<html>busy</html>", content_type="text/html"), Reason.UNREADABLE, PLENTY),
        (saying({"success": "true", "records": {}}), Reason.NO_DATA, PLENTY),
        (saying({"message": "Unauthorized"}, 401), Reason.BAD_KEY, PLENTY),
        (does.hanging, Reason.TIMEOUT, SHORT),
        (does.dripping, Reason.TIMEOUT, SHORT),
    ],
    ids=["500", "html", "empty", "key", "silent", "slow"],
)
async def test_cwa_is_broken(
    run_bot: RunBot,
    monkeypatch: pytest.MonkeyPatch,
    behaviour: Behaviour,
    reason: Reason,
    deadline: float,
) -> None:
    """The person gets one sentence about it, within the deadline of a fetch."""
    async with bot_on(run_bot, monkeypatch, behaviour, deadline=deadline) as bot:
        await bot.line.say("板橋")
        [said] = await bot.line.wait_for_messages(1)
        assert said["text"] == failure_text(WeatherUnavailable("", reason))


@pytest.mark.parametrize("missing", MISSING)
async def test_cwa_leaves_something_out(
    run_bot: RunBot, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """The card omits it; nothing replaces it."""
    body = copy.deepcopy(TOWNSHIP)
    elements(body)[:] = [each for each in elements(body) if each["ElementName"] != missing]
    async with bot_on(run_bot, monkeypatch, saying(body)) as bot:
        await bot.line.say("板橋")
        [said] = await bot.line.wait_for_messages(1)
    assert is_forecast(said)
    text = json.dumps(said, ensure_ascii=False)
    assert not any(word in text for word in ("None", "nan", "null", "°°", "-99"))


async def test_cwa_has_no_values_at_all(run_bot: RunBot, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every element is present and empty: a sentence, not an empty card."""
    body = copy.deepcopy(TOWNSHIP)
    for element in elements(body):
        element["Time"] = []
    async with bot_on(run_bot, monkeypatch, saying(body)) as bot:
        await bot.line.say("板橋")
        [said] = await bot.line.wait_for_messages(1)
    assert said["text"].startswith("😥 抱歉")
