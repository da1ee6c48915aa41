"""The card in a real browser: in the local LINE's chat, on a phone and on a desk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from apps.weamind.places.search import search
from apps.weamind.weather import open_meteo
from apps.weamind.weather.cards import forecast_message
from apps.weamind.weather.forecast import TAIPEI, Forecast, Hazard
from apps.weamind.weather.sample import make_up
from tests.local_line.conftest import browser, stage
from tests.local_line.stage import Stage

__all__ = ["browser", "stage"]
pytestmark = pytest.mark.only_on("linux", "darwin")

NOW = datetime(2026, 7, 15, 16, 20, tzinfo=TAIPEI)
PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 900}
TALLEST = 420


def forecast(name: str) -> Forecast:
    made_up = make_up(search(name).places[0], now=NOW)
    return replace(made_up, sample=False, attribution=open_meteo.ATTRIBUTION)


def fullest() -> dict[str, Any]:
    """A landmark with warnings, whose forecast is old."""
    some = forecast("朝日溫泉")
    hazards = (Hazard("臺東縣", "豪雨特報"), Hazard("臺東縣", "陸上強風特報"))
    return forecast_message(replace(some, hazards=hazards), now=NOW + timedelta(minutes=40))


@pytest.fixture(params=[PHONE, DESK], ids=["390px", "1280px"])
def page(browser: Any, stage: Stage, request: pytest.FixtureRequest) -> Iterator[Any]:
    context = browser.new_context(viewport=request.param)
    page = context.new_page()
    page.goto(stage.line.page_url)
    page.locator("#bot-name", has_text="My bot").wait_for()
    yield page
    context.close()


@pytest.mark.parametrize(
    "message",
    [
        forecast_message(make_up(search("台北市信義區").places[0], now=NOW), now=NOW),
        forecast_message(forecast("玉山"), now=NOW),
        fullest(),
    ],
    ids=["a township", "a peak", "with everything"],
)
def test_the_weather_of_now_is_in_sight(page: Any, stage: Stage, message: dict[str, Any]) -> None:
    """The card is less than 420 px tall, its first part is seen without scrolling, and no part is
    wider than the chat."""
    stage.bot.says = lambda event: [message]
    page.get_by_role("textbox").first.fill("天氣")
    page.keyboard.press("Enter")
    bubbles = page.locator(".fx-carousel .fx-bubble")
    bubbles.nth(2).wait_for()
    boxes = [bubble.bounding_box() for bubble in bubbles.all()]
    assert len(boxes) == 3 and all(0 < box["height"] < TALLEST for box in boxes), boxes
    now = bubbles.first.get_by_text("現在", exact=True).bounding_box()
    assert 0 <= now["y"] < page.viewport_size["height"] and now["x"] >= 0
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
