"""Official warnings: read, shared, and never in the way of a forecast."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings

from apps.weamind.places.atlas import by_code, landmarks
from apps.weamind.places.place import Place
from apps.weamind.weather.forecast import TAIPEI, Hazard, hazards_now
from apps.weamind.weather.forecasts import Forecasts
from apps.weamind.weather.hazards import Hazards, read_bulletin
from apps.weamind.weather.provider import Reason, WeatherUnavailable
from apps.weamind.weather.sample import Sample
from dibs import AsyncDibs
from dibs.testing import Server

from .recorded.mutations import mutated
from .recorded.upstream import Upstream, hanging, recorded, saying

BANQIAO = Place("65000010", "新北市", "板橋區", 25.0115, 121.4509)
NOW = datetime(2026, 3, 1, 18, 20, tzinfo=TAIPEI)
BULLETIN = recorded("cwa_hazards")
KEY = "a-key-for-tests"


# ---- what it says


def test_every_warning_with_its_county_and_its_time() -> None:
    """Two for 新北市, none for 臺北市; 濃霧 over 馬祖 was over at six."""
    hazards = read_bulletin(BULLETIN).hazards
    assert [(hazard.county, hazard.name) for hazard in hazards] == [
        ("宜蘭縣", "大雨特報"), ("新北市", "豪雨特報"), ("新北市", "陸上強風特報"),
        ("連江縣", "濃霧特報"),
    ]  # fmt: skip
    assert [hazard.is_in_force(NOW) for hazard in hazards] == [True, True, True, False]
    assert not hazards[1].is_in_force(NOW - timedelta(hours=2))
    assert not hazards[1].is_in_force(NOW.replace(hour=23, minute=0))


def test_one_warning_may_be_no_list() -> None:
    """As it has been: an object in the place of a list of one."""
    body = recorded("cwa_hazards")
    conditions = body["records"]["location"][0]["hazardConditions"]
    conditions["hazards"] = conditions["hazards"][0]
    assert read_bulletin(body) == read_bulletin(BULLETIN)


@pytest.mark.parametrize("body", [None, [], {}, {"success": "false", "records": {}}])
def test_what_is_no_bulletin(body: Any) -> None:
    """Unreadable, which is not the same as "no warnings"."""
    with pytest.raises(WeatherUnavailable) as caught:
        read_bulletin(body)
    assert caught.value.reason is Reason.UNREADABLE


@settings(max_examples=150)
@given(body=mutated(BULLETIN))
def test_a_broken_bulletin_is_no_error(body: Any) -> None:
    """Warnings with a county and a readable name, or none."""
    try:
        bulletin = read_bulletin(body)
    except WeatherUnavailable:
        return
    for hazard in bulletin.hazards:
        assert hazard.county and 0 < len(hazard.name) <= 20 and hazard.name.isalnum()


def test_a_time_without_a_zone_is_refused() -> None:
    """As everywhere in a forecast."""
    with pytest.raises(ValueError, match="zone"):
        Hazard("新北市", "大雨特報", datetime(2026, 3, 1))  # noqa: DTZ001


# ---- beside a forecast


async def test_a_forecast_comes_with_the_warnings_of_its_county(valkey: Server) -> None:
    """One request for all callers, with the key in a header; none for an islet far away."""
    async with Upstream(saying(BULLETIN)) as upstream, AsyncDibs(valkey.url, budget=5) as dibs:
        hazards = Hazards(dibs, KEY, base_url=upstream.url, wait=20, deadline=20)
        forecasts = Forecasts(dibs, Sample(clock=lambda: NOW), hazards=hazards)
        banqiao = await forecasts.get(BANQIAO)
        assert [each.name for each in hazards_now(banqiao, NOW)] == ["豪雨特報", "陸上強風特報"]
        taipei = by_code("63000")
        assert taipei and (await forecasts.get(taipei)).hazards == ()
        [islet] = [each.place for each in landmarks() if each.place.name == "東沙島"]
        assert (await forecasts.get(islet)).hazards == ()
        await hazards.aclose()
    [asked] = upstream.asked
    assert asked.path == "/api/v1/rest/datastore/W-C0033-001"
    assert asked.headers["authorization"] == KEY and KEY not in str(asked.query)


@pytest.mark.parametrize(
    "behaviour",
    [saying(b"{}", 500), saying(b"no json"), saying({}), hanging],
    ids=["an error", "no JSON", "something else", "silence"],
)
async def test_without_warnings_the_forecast_goes_out(
    valkey: Server, behaviour: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """With any error in them; it is logged, unless the answer only took too long."""
    async with Upstream(behaviour) as upstream, AsyncDibs(valkey.url, budget=5) as dibs:
        hazards = Hazards(dibs, KEY, base_url=upstream.url, deadline=0.2, wait=5)
        forecasts = Forecasts(dibs, Sample(clock=lambda: NOW), hazards=hazards)
        with caplog.at_level(logging.WARNING):
            assert (await forecasts.get(BANQIAO)).hazards == ()
        assert "no official warnings" in caplog.text and KEY not in caplog.text
        await hazards.aclose()


def test_a_key_is_needed() -> None:
    """ValueError before anything is asked; and no repr shows it."""
    with pytest.raises(ValueError, match="CWA needs"):
        Hazards(AsyncDibs("redis://localhost:1"), "")
    assert KEY not in repr(Hazards(AsyncDibs("redis://localhost:1"), KEY))
