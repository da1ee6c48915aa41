"""Cron expressions: what they say, and a search that always ends. Pure."""

import random
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dibs import UsageError
from dibs._core.schedule import MOST_COUNTED, NAMED, Cron
from tests.crons import against_croniter, changes, differences

BERLIN, CHATHAM = ZoneInfo("Europe/Berlin"), ZoneInfo("Pacific/Chatham")
LORD_HOWE, APIA = ZoneInfo("Australia/Lord_Howe"), ZoneInfo("Pacific/Apia")
ZONES = [UTC, BERLIN, CHATHAM, LORD_HOWE, APIA, ZoneInfo("America/New_York")]
EXPRESSIONS = [
    "0 3 * * *", "30 2 * * *", "*/15 * * * *", "15 1-3 * * *", "0 */2 * * *", "0 0 1 * *",
    "30 2 * * SUN", "0 0 L * *", "5 2,14 * * MON-FRI", "*/5 3 * * *", "0 50 3 * * *", "@daily",
]  # fmt: skip
MOMENTS = st.integers(1_577_836_800_000, 2_208_988_800_000)  # 2020 to 2039


def at(text: str, zone: Any = UTC, fold: int = 0) -> int:
    moment = datetime.fromisoformat(text).replace(tzinfo=zone, fold=fold)
    return int(moment.timestamp()) * 1000


def shown(rule: Cron, since: int, count: int) -> list[str]:
    """The next runs, as the wall clock shows them, without the offset."""
    found: list[str] = []
    for _ in range(count):
        since = rule.following(since)
        found.append(f"{datetime.fromtimestamp(since / 1000, rule.zone):%Y-%m-%d %H:%M:%S}")
    return found


# ---- where clocks are changed


@pytest.mark.parametrize("expression", ["* 3 * * *", "*/5 3 * * *", "*/15 3 * * *", "0 50 3 * * *"])
def test_a_search_ends_on_the_night_of_a_clock_change(expression: str) -> None:
    """Chatham, 2027-04-04: 03:45 goes back to 02:45, and an hour begins twice in its middle."""
    rule = Cron(expression, CHATHAM)
    begin, end = at("2027-04-03T23:00:00", CHATHAM), at("2027-04-05T23:00:00", CHATHAM)
    run, runs = rule.following(begin), list[int]()
    while run < end:
        assert len(runs) < 500 and run > begin
        runs.append(run)
        begin, run = run, rule.following(run)
    assert len(runs) == {"* 3 * * *": 165, "*/5 3 * * *": 33, "*/15 3 * * *": 11}.get(expression, 2)


@pytest.mark.parametrize("zone", ZONES[1:], ids=str)
def test_runs_around_a_clock_change_are_those_that_the_wall_clock_shows(zone: tzinfo) -> None:
    """Compared minute by minute; `python -m tests.crons` does it in every zone."""
    numbers = random.Random(7)
    years = (2011, 2013) if zone is APIA else (2026, 2028)
    for change in changes(zone, *years):
        assert differences(zone, change, numbers, 4) == []


def test_in_utc_another_library_finds_the_same_runs() -> None:
    """Random expressions, five runs of each."""
    compared, different = against_croniter(random.Random(7), 60)
    assert compared > 20 and different == []


@given(st.sampled_from(EXPRESSIONS), st.sampled_from(ZONES), MOMENTS)
@example("30 2 * * *", BERLIN, at("2026-10-25T02:10:00", BERLIN, fold=1))
@example("30 2 * * *", BERLIN, at("2026-03-29T03:10:00", BERLIN))
@example("15 1-3 * * *", LORD_HOWE, at("2026-04-05T01:45:00", LORD_HOWE, fold=1))
@example("*/5 3 * * *", CHATHAM, at("2027-04-04T03:10:00", CHATHAM, fold=1))
def test_latest_and_following_agree(expression: str, zone: Any, now: int) -> None:
    """At any time, and with any clock changes of the zone: one order of the same runs."""
    rule = Cron(expression, zone)
    latest = rule.latest(now)
    assert latest <= now < rule.following(latest)
    assert rule.following(latest - 1) == latest
    assert rule.following(latest) == rule.following(now)


def test_a_run_in_an_hour_that_is_left_out_comes_right_after_it() -> None:
    """Spring in Berlin: there is no 02:30 on that day; the run is not lost."""
    for expression in ("30 2 * * *", "0 30 2 * * *", "0,30 2 * * *"):
        rule = Cron(expression, BERLIN)
        run = rule.following(at("2026-03-28T03:00:00", BERLIN))
        assert run == at("2026-03-29T03:00:00", BERLIN)
        assert rule.following(run) > at("2026-03-30T01:59:00", BERLIN)
    assert shown(Cron("30 2 * * *", APIA), at("2011-12-29T12:00:00", APIA), 2) == [
        "2011-12-31 00:00:00", "2011-12-31 02:30:00",
    ]  # fmt: skip


def test_a_run_in_an_hour_that_comes_twice_comes_once() -> None:
    """Autumn in Berlin: 02:30 the first time. Frequent runs come in both hours."""
    daily = Cron("30 2 * * *", BERLIN)
    first = daily.following(at("2026-10-25T00:00:00", BERLIN))
    assert first == at("2026-10-25T02:30:00", BERLIN, fold=0)
    assert daily.following(first) == at("2026-10-26T02:30:00", BERLIN)
    assert daily.latest(at("2026-10-25T02:45:00", BERLIN, fold=1)) == first
    often = Cron("*/15 * * * *", BERLIN)
    begin, end = at("2026-10-25T01:59:00", BERLIN), at("2026-10-25T03:00:00", BERLIN)
    assert often.count(begin, end) == 9


# ---- what expressions say


@pytest.mark.parametrize(
    ("expression", "runs"),
    [
        ("0 10-10/2 * * *", ["2026-01-01 10:00:00", "2026-01-02 10:00:00"]),
        ("0 10/6 * * *", ["2026-01-01 10:00:00", "2026-01-01 16:00:00", "2026-01-01 22:00:00"]),
        ("0 0 22-22/1 * *", ["2026-01-22 00:00:00", "2026-02-22 00:00:00"]),
        ("0 0 * * 3-3/4", ["2026-01-07 00:00:00", "2026-01-14 00:00:00"]),
        ("0 0 * * 7", ["2026-01-04 00:00:00", "2026-01-11 00:00:00"]),
        ("0 0 * * sat-sun", None),
        ("0 0 * * 6-7", ["2026-01-03 00:00:00", "2026-01-04 00:00:00"]),
        ("0 0 13 * fri", ["2026-01-02 00:00:00", "2026-01-09 00:00:00", "2026-01-13 00:00:00"]),
        ("0 0 */1 * fri", ["2026-01-02 00:00:00", "2026-01-09 00:00:00"]),
        ("0 0 L * *", ["2026-01-31 00:00:00", "2026-02-28 00:00:00"]),
        ("0 0 LW 1-2 *", ["2026-01-30 00:00:00", "2026-02-27 00:00:00"]),
        ("0 0 15,L * *", ["2026-01-15 00:00:00", "2026-01-31 00:00:00", "2026-02-15 00:00:00"]),
        ("0 0 * * MON#2", ["2026-01-12 00:00:00", "2026-02-09 00:00:00"]),
        ("0 0 * * 5L", ["2026-01-30 00:00:00", "2026-02-27 00:00:00"]),
        ("0 0 1 JAN,jul *", ["2026-01-01 00:00:00", "2026-07-01 00:00:00"]),
        ("10,5 59 23 * * *", ["2026-01-01 23:59:05", "2026-01-01 23:59:10"]),
        ("0 0 29 2 *", ["2028-02-29 00:00:00", "2032-02-29 00:00:00"]),
    ],
)
def test_fields_are_read_as_in_crontab(expression: str, runs: list[str] | None) -> None:
    """Lists, ranges, steps, names; a range of one value with a step is that value."""
    since = at("2026-01-01T00:00:00") - 1
    if runs is None:
        with pytest.raises(UsageError, match="'SAT-SUN' is no day of the week"):
            Cron(expression, UTC)
        return
    assert shown(Cron(expression, UTC), since, len(runs)) == runs


@pytest.mark.parametrize("name", [*NAMED, "@Daily", " @weekly "])
def test_usual_expressions_have_a_name(name: str) -> None:
    """@daily and others, as in crontab(5)."""
    named, written = Cron(name, BERLIN), Cron(NAMED[name.strip().upper()], BERLIN)
    since = at("2026-01-01T00:00:00")
    assert shown(named, since, 3) == shown(written, since, 3)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("", "it has 0 fields"),
        ("0 3 * *", "it has 4 fields in place of five"),
        ("0 0 0 3 * * *", "it has 7 fields"),
        ("@reboot", "it has 1 fields .* @daily"),
        ("61 3 * * *", r"'61' is no minute \(0 to 59\)"),
        ("0 24 * * *", "'24' is no hour"),
        ("0 3 0 * *", "'0' is no day of the month"),
        ("0 3 * 13 *", "'13' is no month"),
        ("0 3 * * 8", "'8' is no day of the week"),
        ("0 3 * * MON#6", "'MON#6' is no day of the week"),
        ("0 3 * * L", "'L' is no day of the week"),
        ("0 3 * * #2", "is no day of the week"),
        ("60 0 3 * * *", "'60' is no second"),
        ("*/0 * * * *", r"'\*/0' is no minute"),
        ("5-1 * * * *", "'5-1' is no minute"),
        ("1,,2 * * * *", "is no minute"),
        ("² * * * *", "is no minute"),
        ("٣ * * * *", "is no minute"),
        ("*/10000 * * * *", "is no minute"),
        ("- * * * *", "is no minute"),
        ("*-5 * * * *", "is no minute"),
        ("0 3 L/2 * *", "'L/2' is no day of the month"),
        ("0 0 30 2 *", "is never due"),
        ("0 0 31 4,6 *", "is never due"),
        (5, "a text such as .* not 5; an interval is every="),
        (b"0 3 * * *", "a text such as"),
    ],
)
def test_an_expression_that_makes_no_sense_is_refused(expression: Any, words: str) -> None:
    """With a sentence that names the part that is wrong."""
    with pytest.raises(UsageError, match=words):
        Cron(expression, UTC)


@given(st.text("0123456789*/,-#LW @daily?MONX", max_size=24))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Nothing else is raised, and nothing takes for ever."""
    try:
        rule = Cron(text, CHATHAM)
    except UsageError:
        return
    assert rule.following(at("2027-04-03T12:00:00")) > at("2027-04-03T12:00:00")


# ---- bounds


def test_counting_has_an_end() -> None:
    """After years without a machine it does not count every minute."""
    rule = Cron("* * * * *", UTC)
    assert rule.count(at("2020-01-01T00:00:00"), at("2026-01-01T00:00:00")) == MOST_COUNTED
    assert rule.count(at("2026-01-01T00:00:00"), at("2026-01-01T00:05:00")) == 5


def test_a_rare_expression_has_a_latest_run_or_none() -> None:
    """The fifth Monday of a February: runs are decades apart."""
    rule = Cron("0 0 * 2 MON#5", UTC)
    assert rule.latest(at("2026-01-01T00:00:00")) == at("2016-02-29T00:00:00")
    assert rule.following(at("2026-01-01T00:00:00")) == at("2044-02-29T00:00:00")
    assert rule.following(at("2072-03-01T00:00:00")) == at("2112-02-29T00:00:00")
    assert Cron("0 0 29 2 *", UTC).latest(at("1971-01-01T00:00:00")) == 0


def test_a_zone_may_be_any_tzinfo() -> None:
    """One that has no offset is refused."""
    taipei = timezone(timedelta(hours=8))
    assert Cron("0 3 * * *", taipei).following(at("2026-11-15T00:00:00")) == at(
        "2026-11-15T19:00:00"
    )
    with pytest.raises(UsageError, match="cannot be used"):
        Cron("0 3 * * *", tzinfo())


def test_the_last_weekday_of_a_month_is_the_last_one() -> None:
    """Also where the same weekday exactly a week before the last day comes first."""
    rule = Cron("0 0 * * 5L", UTC)
    assert rule.following(at("2025-10-01T00:00Z")) == at("2025-10-31T00:00Z")
    assert rule.following(at("2025-10-31T00:00Z")) == at("2025-11-28T00:00Z")


CHANGE = datetime(2026, 3, 29, tzinfo=UTC)


class MidnightZone(tzinfo):
    """An hour ahead from `CHANGE` on, which is where a new day is searched."""

    def utcoffset(self, dt: datetime | None) -> timedelta:
        is_later = dt is not None and dt.replace(tzinfo=UTC) >= CHANGE + timedelta(hours=1)
        return timedelta(hours=1 if is_later else 0)

    def dst(self, dt: datetime | None) -> timedelta:
        return self.utcoffset(dt)

    def fromutc(self, dt: datetime) -> datetime:
        return dt + timedelta(hours=1 if dt.replace(tzinfo=UTC) >= CHANGE else 0)


def test_a_change_of_the_clock_at_midnight_utc_is_no_second_early() -> None:
    """0:30 does not exist on that day: it runs at the change, not before it."""
    rule = Cron("30 0 * * *", MidnightZone())
    assert rule.following(at("2026-03-28T12:00Z")) == at("2026-03-29T00:00Z")
