"""Codes, words and numbers, each by itself."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.weamind.weather.failure_text import failure_text
from apps.weamind.weather.forecast import TAIPEI, Sky
from apps.weamind.weather.provider import Reason, WeatherUnavailable
from apps.weamind.weather.sky import from_cwa, from_wmo, worst
from apps.weamind.weather.values import celsius, code, percent, rounded, taiwan_time

DOCUMENTED = [
    0, 1, 2, 3, 45, 48, 51, 53, 55, 56, 57, 61, 63, 65, 66, 67, 71, 73, 75, 77, 80, 81, 82, 85, 86,
    95, 96, 99,
]  # fmt: skip


def is_chinese(text: str) -> bool:
    return all("\u4e00" <= letter <= "\u9fff" for letter in text)


# ---- WMO


def test_every_code_of_open_meteo() -> None:
    """Has its own words, and a picture."""
    skies = [from_wmo(number, night=False) for number in DOCUMENTED]
    for sky in skies:
        assert sky is not None and is_chinese(sky.text) and not is_chinese(sky.emoji)
    assert len({sky.text for sky in skies if sky}) == len(DOCUMENTED)


def test_every_other_code() -> None:
    """From 40 on it has the words of its family; below, and outside, it is not known."""
    for number in range(100):
        sky = from_wmo(number, night=False)
        assert (sky is not None) == (number in DOCUMENTED or number >= 40), number
    for number in (None, -1, 100):
        assert from_wmo(number, night=False) is None


def test_the_worst_of_some_hours() -> None:
    """Decides what is shown; unknown hours do not."""
    assert worst([0, 95, None, 61]) == 95
    assert worst([None, None]) is None


# ---- the office's words


@pytest.mark.parametrize(
    ("text", "emoji", "by_night"),
    [
        ("晴", "☀️", "🌙"),
        ("晴時多雲", "🌤️", "🌙"),
        ("多雲時晴", "⛅", "☁️"),
        ("多雲", "⛅", "☁️"),
        ("多雲時陰", "🌥️", "☁️"),
        ("陰", "☁️", "☁️"),
        ("陰短暫雨", "🌦️", "🌧️"),
        ("陰有雨", "🌧️", "🌧️"),
        ("多雲午後短暫雷陣雨", "⛈️", "⛈️"),
        ("短暫陣雨或雷雨", "⛈️", "⛈️"),
        ("晴有霧", "🌫️", "🌫️"),
        ("局部雨或雪", "🌨️", "🌨️"),
        ("沙塵", "🔹", "🔹"),
    ],
)
def test_words_have_pictures(text: str, emoji: str, by_night: str) -> None:
    """The worst that the words mention, as it looks at that hour."""
    assert from_cwa(text, None, night=False) == Sky(text, emoji)
    assert from_cwa(text, "01", night=True) == Sky(text, by_night)


def test_every_code_of_the_office() -> None:
    """1 to 42, but 40, which it does not use: words that have a picture."""
    for number in range(1, 43):
        for written in (str(number), f"{number:02}", number):
            sky = from_cwa(None, written, night=False)
            assert (sky is not None) == (number != 40)
            assert sky is None or (is_chinese(sky.text) and sky.emoji != "🔹")


@pytest.mark.parametrize("nothing", [None, "", " ", "-99", "99", 7.5, True, [], {}, "X" * 30, "①"])
def test_neither_words_nor_a_code(nothing: Any) -> None:
    """Is nothing to show."""
    assert from_cwa(nothing, nothing, night=False) is None


def test_long_words_are_cut() -> None:
    """However much is sent."""
    sky = from_cwa("晴\x00\n時" * 1000, None, night=False)
    assert sky is not None and len(sky.text) == 20 and is_chinese(sky.text)


# ---- numbers and times


@pytest.mark.parametrize(
    ("raw", "value"),
    [(23, 23.0), ("23", 23.0), ("-3.5", -3.5), (" 23 ", 23.0), (0, 0.0), ("0", 0.0), ("", None),
     ("-99", None), (-99, None), ("-99.0", None), (None, None), (True, None), ("1_8", None),
     ("２５", None), ("NaN", None), (math.nan, None), (math.inf, None), (10**400, None),
     ("9" * 5000, None), ([], None), ({}, None), ("1e1", None), ("51", None), ("+7", 7.0)],
)  # fmt: skip
def test_only_temperatures_that_taiwan_can_have_are_known(raw: Any, value: float | None) -> None:
    """Numbers, and strings of digits, that Taiwan can have. All else is not known."""
    assert celsius(raw) == value


@given(st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.none()))
def test_anything_is_a_number_or_nothing(raw: Any) -> None:
    """No exception, and never what cannot be true."""
    for reading, least, most in ((celsius, -30, 50), (percent, 0, 100), (code, 0, 99)):
        value = reading(raw)
        assert value is None or least <= value <= most
    assert taiwan_time(raw) is None


def test_rounding_is_what_people_do() -> None:
    """Half a degree goes up, below zero too; nothing is minus zero."""
    assert [rounded(value) for value in (22.5, 23.5, -0.4, -0.5, -1.6)] == [23, 24, 0, 0, -2]


@pytest.mark.parametrize(
    ("raw", "hour"),
    [("2026-03-01T18:00", 18), ("2026-03-01 18:00:00", 18), ("2026-03-01T18:00:00+08:00", 18),
     ("2026-03-01T18:00:00Z", 2), ("2026-03-01T18:00:00+09:00", 17), ("2026-03-01", None),
     ("20260301T180000", None), ("2026-13-01T18:00", None), ("0001-01-01T00:00:00+14:00", None),
     ("9999-12-31T23:59:59-14:00", None), ("18:00", None), ("", None), (None, None), (7, None)],
)  # fmt: skip
def test_times_are_taiwans_where_nothing_else_is_said(raw: Any, hour: int | None) -> None:
    """Taiwan's, where they say nothing else; a date alone is no time."""
    time = taiwan_time(raw)
    assert (time and time.hour) == hour
    assert time is None or time.utcoffset() == TAIPEI.utcoffset(None)


# ---- apologies


@pytest.mark.parametrize("reason", Reason)
def test_every_failure_has_a_sentence(reason: Reason) -> None:
    """A sentence in Chinese, without an internal word."""
    error = WeatherUnavailable("open-meteo", reason, status=503, retry_after=90)
    words = failure_text(error)
    assert words.startswith("😥 抱歉") and words.endswith("。") and len(words) < 60
    for internal in ("open-meteo", "503", "HTTP", "key", "{", reason.value):
        assert internal not in words


def test_when_to_come_again() -> None:
    """In words, as far as it is known."""

    def sorry(seconds: float | None) -> str:
        return failure_text(WeatherUnavailable("cwa", Reason.RATE_LIMITED, retry_after=seconds))

    assert "過一分鐘再試" in sorry(None) and "過一分鐘再試" in sorry(5)
    assert "過 5 分鐘再試" in sorry(300) and "過一小時再試" in sorry(3600)


def test_an_error_writes_its_own_sentence() -> None:
    """With its facts as attributes."""
    error = WeatherUnavailable("cwa", Reason.STATUS, status=502)
    assert str(error) == "no forecast from cwa: an answer with an error (HTTP 502)"
    assert (error.provider, error.reason, error.status) == ("cwa", Reason.STATUS, 502)
