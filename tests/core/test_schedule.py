"""When a function is due, and what happens to Runs that were missed: pure."""

import inspect
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs import UsageError
from dibs._core.cluster_slots import slot_of
from dibs._core.keys import companion_key
from dibs._core.options import Settings
from dibs._core.request import OddReply
from dibs._core.schedule import (
    GRACE_MS,
    KEPT_MS,
    MOST_AHEAD_MS,
    Cron,
    DueRule,
    Interval,
    Look,
    ScheduleOptions,
    clock_offset,
    is_apart,
    kept_ms,
    lease_name,
    next_runs,
    next_step,
    offset_text,
    pause,
    plausible,
    read_last,
    read_look,
    records_key,
    takes_run,
)

SETTINGS = Settings(namespace="", on_outage="open")
MINUTE = 60_000
HOUR = 60 * MINUTE
BERLIN = ZoneInfo("Europe/Berlin")
MOMENTS = st.integers(1_577_836_800_000, 2_208_988_800_000)  # 2020 to 2039


def at(text: str, zone: Any = UTC, fold: int = 0) -> int:
    moment = datetime.fromisoformat(text).replace(tzinfo=zone, fold=fold)
    return int(moment.timestamp()) * 1000


# ---------------------------------------------------------------------------------------- rules


@given(st.integers(1, 10_000), MOMENTS, st.integers(0, 10**9))
def test_an_interval_is_counted_from_the_epoch(every: int, now: int, further: int) -> None:
    """Two machines that were started at different times agree on every run."""
    rule = Interval(every)
    latest = rule.latest(now)
    assert latest <= now < rule.following(now) and latest % (every * 1000) == 0
    assert rule.following(now) - latest == every * 1000
    assert rule.count(now, now + further) == (now + further) // (every * 1000) - latest // (
        every * 1000
    )


def test_an_expression_is_read_in_its_zone() -> None:
    """03:00 in Taipei is 19:00 UTC of the day before; the default is UTC, on every machine."""
    taipei = ScheduleOptions(SETTINGS, key="k", timezone="Asia/Taipei").rule("0 3 * * *")
    assert taipei.following(at("2026-11-15T00:00:00")) == at("2026-11-15T19:00:00")
    utc = ScheduleOptions(SETTINGS, key="k").rule("0 3 * * *")
    assert utc.following(at("2026-11-15T00:00:00")) == at("2026-11-15T03:00:00")


# -------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("cron", "options", "words"),
    [
        (None, {}, "either a cron expression or every="),
        ("0 3 * * *", {"every": 60}, "either a cron expression or every="),
        ("0 3 * *", {}, "cannot be read: it has 4 fields"),
        (5, {}, "a text such as"),
        ("0 3 * * *", {"timezone": "Asia/Taipeh"}, "no time zone 'Asia/Taipeh'"),
        ("0 3 * * *", {"timezone": 8}, "no time zone 8"),
        ("0 3 * * *", {"missed": "all"}, 'missed must be "once" or "skip"'),
        (None, {"every": 0.5}, "every must be at least"),
        (None, {"every": True}, "every must be seconds"),
        (None, {"every": 60, "timezone": "Asia/Taipei"}, "has no timezone"),
        (None, {"every": 60, "ttl": 0}, "ttl must be at least"),
        (None, {"every": 60, "at_least": -1}, "at_least must be"),
        (None, {"every": 60, "on_outage": "maybe"}, "on_outage must be"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(cron: Any, options: Any, words: str) -> None:
    """With a sentence that says what is wrong, before anything is sent."""
    with pytest.raises(UsageError, match=words.replace("?", r"\?")):
        ScheduleOptions(SETTINGS, key="k", **options).rule(cron)


def test_a_function_may_ask_for_its_run_and_for_nothing_else() -> None:
    """What it needs beside must have a default."""

    def plain(limit: int = 3, *rest: int, **more: int) -> None: ...
    def with_run(run: object, limit: int = 3) -> None: ...
    def asking(user_id: str) -> None: ...

    assert not _takes_run(plain)
    assert _takes_run(with_run)
    with pytest.raises(UsageError, match="user_id"):
        _takes_run(asking)


def _takes_run(function: Any) -> bool:
    return takes_run(list(inspect.signature(function).parameters.values()))


# -------------------------------------------------------------------------------- what to do now

HOURLY = Interval(3600)
NOON = at("2026-11-15T12:00:00")


def test_nothing_is_due_until_the_next_run() -> None:
    """The last run is over: look again at the next one."""
    step = next_step(HOURLY, NOON, NOON + 5 * MINUTE, "once", None)
    assert step.run is step.skip is None and step.look_at == NOON + HOUR


def test_a_run_that_is_due_is_run() -> None:
    """By its scheduled time, however late this machine looks."""
    for late in (0, 1, GRACE_MS, 59 * MINUTE):
        step = next_step(HOURLY, NOON - HOUR, NOON + late, "once", None)
        assert step.run == NOON and step.missed == 0


def test_a_clock_that_is_behind_sees_that_it_was_done() -> None:
    """Another machine, whose clock is ahead, has run later runs: nothing, until after them."""
    step = next_step(HOURLY, NOON + HOUR, NOON + 59 * MINUTE, "once", None)
    assert step.run is None and step.look_at == NOON + 2 * HOUR


def test_of_several_missed_runs_the_last_one_is_run_late() -> None:
    """missed="once": it replaces all of them, and the others are counted."""
    step = next_step(HOURLY, NOON - 5 * HOUR, NOON + 20 * MINUTE, "once", None)
    assert step.run == NOON and step.missed == 4


def test_missed_runs_can_be_skipped() -> None:
    """missed="skip": more than a minute late is too late; less is not missed."""
    step = next_step(HOURLY, NOON - 5 * HOUR, NOON + GRACE_MS + 1, "skip", None)
    assert step.skip == NOON and step.run is None and step.missed == 5
    step = next_step(HOURLY, NOON - 5 * HOUR, NOON + GRACE_MS, "skip", None)
    assert step.run == NOON and step.missed == 4


def test_a_run_that_is_taken_over_is_not_missed() -> None:
    """A machine that has waited since it was due runs it after a crash, however long the first one
    worked."""
    step = next_step(HOURLY, NOON - HOUR, NOON + 50 * MINUTE, "skip", NOON)
    assert step.run == NOON
    step = next_step(HOURLY, NOON - HOUR, NOON + 50 * MINUTE, "skip", NOON - HOUR)
    assert step.skip == NOON


@given(
    st.sampled_from([Interval(60), Interval(7), Interval(3600), Cron("*/5 * * * *", BERLIN)]),
    st.lists(st.integers(0, 400_000), min_size=1, max_size=30),
    st.sampled_from(["once", "skip"]),
)
def test_every_run_is_over_once_in_order(rule: DueRule, pauses: list[int], missed: Any) -> None:
    """Over any history of looks: runs grow, each is run, or counted as missed, exactly once."""
    start = now = last = rule.latest(NOON)
    runs: list[int] = []
    lost = 0
    for each in pauses:
        now += each
        step = next_step(rule, last, now, missed, None)
        done = step.run or step.skip
        assert (done is None) == (rule.latest(now) <= last)
        if done is None:
            assert now < step.look_at == rule.following(now)
            continue
        assert last < done <= now
        lost += step.missed
        runs += [done] if step.run else []
        last = done
    assert runs == sorted(set(runs))
    assert len(runs) + lost == rule.count(start, last)


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 20_000)), min_size=1, max_size=200),
    st.lists(st.integers(-15_000, 15_000), min_size=5, max_size=5),
)
def test_machines_whose_clocks_are_apart_run_each_run_once(
    looks: list[tuple[int, int]], offsets: list[int]
) -> None:
    """Five clocks up to 30 s apart and one record: no run twice, in any order of looks."""
    rule, last, time = Interval(10), NOON, NOON
    runs: list[int] = []
    for machine, passed in looks:
        time += passed
        step = next_step(rule, last, time + offsets[machine], "once", None)
        if step.run is not None:
            runs.append(step.run)
            last = step.run
    assert runs == sorted(set(runs))


def test_the_clock_is_looked_at_now_and_then() -> None:
    """It may be set, and a machine may sleep: no wait lasts for hours."""
    assert pause(NOON + 5_000, NOON) == 5
    assert pause(NOON + HOUR, NOON) == 30
    assert pause(NOON - 1, NOON) == 0


# -------------------------------------------------------------------------------- in the store


@pytest.mark.parametrize("namespace", ["", "shop:", "{shop}:", "a}b:"])
@pytest.mark.parametrize("key", ["tick", "job:{42}", "tea }", "{a", "{}"])
def test_all_keys_of_a_schedule_are_in_one_slot(namespace: str, key: str) -> None:
    """The last run, the records, the lease and its fence: scripts get several of them."""
    last = f"{namespace}scheduled-last:{key}".encode()
    lease = namespace.encode() + lease_name(last).encode()
    records = records_key(f"{namespace}runs:".encode(), last)
    fence = companion_key(f"{namespace}fence:".encode(), lease)
    assert {slot_of(each) for each in (records, lease, fence)} == {slot_of(last)}


def test_what_is_recorded_can_be_read() -> None:
    """A time and who recorded it; anything else is nothing."""
    assert read_last(b"1763208000000 web-1:4711") == 1763208000000
    for odd in (None, b"", b"x", b"-5 a", 17, [b"1"]):
        assert read_last(odd) is None


@given(st.integers(-200_000, 200_000), st.integers(0, 90_000), st.integers(0, 90_000))
def test_a_clock_is_corrected_by_as_little_as_the_evidence_asks_for(
    ahead: int, before: int, after: int
) -> None:
    """The server is asked, and answers at some moment between: never in the wrong direction."""
    server = NOON
    offset = clock_offset(server + ahead + after, before + after, server)
    right = -ahead
    assert abs(offset) <= abs(right) and offset * right >= 0
    assert abs(right - offset) <= before + after
    if before == after == 0:
        assert offset == right


def test_a_machine_that_is_more_than_a_minute_apart_stands_aside() -> None:
    """Ahead or behind; what may be the delay of a reply does not count."""
    assert not is_apart(clock_offset(NOON + 60_000, 0, NOON))
    assert is_apart(clock_offset(NOON + 60_001, 0, NOON))
    assert is_apart(clock_offset(NOON - 60_001, 0, NOON))
    assert not is_apart(clock_offset(NOON + 7_200_000, 7_200_000, NOON))
    assert offset_text(clock_offset(NOON + 90_000, 0, NOON)) == "90 s ahead of"
    assert offset_text(clock_offset(NOON - 7_200_000, 5, NOON)) == "7200 s behind"


def test_what_the_store_knows_of_a_schedule_is_read() -> None:
    """A record, and the time; a record that is ahead of that time by too much is none."""
    assert read_look([b"%d a" % NOON, NOON + 5], int) == Look(NOON, NOON + 5)
    assert read_look([None, NOON], int) == Look(None, NOON)
    assert read_look([b"%d a" % (NOON + 2 * HOUR), NOON], int) == Look(None, NOON)
    with pytest.raises(OddReply):
        read_look(None, int)


def test_a_record_of_a_wrong_clock_is_not_believed() -> None:
    """A machine whose clock is a year ahead must not stop a schedule for a year."""
    assert plausible(NOON + MOST_AHEAD_MS, NOON) == NOON + MOST_AHEAD_MS
    assert plausible(NOON + MOST_AHEAD_MS + 1, NOON) is None
    assert plausible(None, NOON) is None


def test_the_last_run_is_remembered_past_the_next_one() -> None:
    """By a month, however long the period."""
    assert kept_ms(HOURLY, NOON) == HOUR + KEPT_MS
    yearly = Cron("0 0 1 1 *", UTC)
    assert kept_ms(yearly, at("2026-01-01T00:00:00")) == 365 * 24 * HOUR + KEPT_MS


def test_the_next_runs_of_an_expression() -> None:
    """As many as are asked for, in the zone that is named."""
    noon = int(datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp() * 1000)
    taipei = ZoneInfo("Asia/Taipei")
    expected = [datetime(2026, 3, day, 3, tzinfo=taipei) for day in (2, 3, 4)]
    assert next_runs("0 3 * * *", "Asia/Taipei", noon, 3) == expected
    assert next_runs("0 3 * * *", "UTC", noon, 0) == []
    with pytest.raises(UsageError):
        next_runs("0 3 * * *", "Nowhere", noon, 1)
