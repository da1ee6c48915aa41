"""Rates: intervals, requests, what replies mean, what clients get to know."""

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from dibs import UsageError
from dibs._core.options import Settings
from dibs._core.request import OddReply
from dibs._core.throttle import (
    QuotaOptions,
    ThrottleOptions,
    UsageOutcome,
    period_limits,
    read_quota,
    read_throttle,
    throttle_request,
)
from dibs._http.throttle import Throttle

SETTINGS = Settings(namespace="", on_outage="open")


@pytest.mark.parametrize(
    ("limit", "per", "interval"),
    [(5, 60, 12_000_000), (7, 60, 8_571_429), (1, 0.001, 1000), (1_000_000, 1, 1)],
)
def test_an_interval_is_a_whole_number_that_never_exceeds_the_limit(
    limit: int, per: float, interval: int
) -> None:
    """Microseconds, rounded up; sums of them are exact."""
    assert ThrottleOptions(SETTINGS, limit=limit, per=per).rates == ((interval, limit, 0),)


def test_a_request_is_named_by_its_token_without_its_holder() -> None:
    """So that a repeated one is recognised, and no host name is stored."""
    options = ThrottleOptions(SETTINGS, limit=5, per=60)
    payload = throttle_request(b"k", b"abc-1@host:7", options).payload
    assert b"\r\nabc-1\r\n" in payload and b"host" not in payload
    assert payload.endswith(b"$1\r\n0\r\n$8\r\n12000000\r\n$1\r\n5\r\n$1\r\n1\r\n$1\r\n0\r\n")


def test_replies_are_read() -> None:
    """Counted, refused; anything else is an error."""
    assert read_throttle([1, 4, 12_000_000]) == UsageOutcome(passed=True, left=4, reset=12.0)
    assert read_throttle([0, 0, 500_000]) == UsageOutcome(passed=False, left=0, reset=0.5)
    assert read_throttle([2, 0, 1_500_000]) == UsageOutcome(True, 0, 1.5, delay=1.5)
    assert read_quota([0, 2, 500_000, 7]) == UsageOutcome(False, 2, 0.5, period=7)
    for read in (read_throttle, read_quota):
        with pytest.raises(OddReply):
            read(b"OK")


def test_a_rate_that_is_too_fast_to_count_is_refused() -> None:
    """A whole number of µs for each unit would let a thousandth of it through, in silence."""
    with pytest.raises(UsageError, match="larger units"):
        ThrottleOptions(SETTINGS, limit=1_000_000, per=0.001)


@pytest.mark.parametrize(
    "options",
    [
        {"also": [(5, 0)]},
        {"also": [(0, 5)]},
        {"also": [(5, 60, 6)]},
        {"also": [(5, 60, 0)]},
        {"also": [(5, 60, 1, 1)]},
        {"also": [(5, 60)] * 8},
    ],
)
def test_further_rates_are_checked(options: dict[str, Any]) -> None:
    """What limit=, per= and cost= take, and not too many of them."""
    with pytest.raises(UsageError):
        ThrottleOptions(SETTINGS, limit=1, per=1, **options)


@pytest.mark.parametrize("cost", [-1, 1.5, True, 6])
def test_a_cost_that_can_never_pass_is_refused(cost: Any) -> None:
    """No whole number, or more than the smallest burst."""
    with pytest.raises(UsageError, match="cost"):
        ThrottleOptions(SETTINGS, limit=9, per=1, also=[(5, 60)]).check_cost(cost)
    with pytest.raises(UsageError, match="cost"):
        QuotaOptions(SETTINGS, limit=5, per="day").check_cost(cost)


@pytest.mark.parametrize(
    ("per", "zone", "now", "limits"),
    [
        ("day", "Asia/Taipei", "2026-11-19T23:30+08:00",
         ["2026-11-18T00:00+08:00", "2026-11-19T00:00+08:00", "2026-11-20T00:00+08:00"]),
        ("day", "Europe/Berlin", "2026-10-25T12:00+01:00",  # 25 hours long
         ["2026-10-24T00:00+02:00", "2026-10-25T00:00+02:00", "2026-10-26T00:00+01:00"]),
        ("day", "America/Sao_Paulo", "2018-11-04T12:00-02:00",  # there is no midnight
         ["2018-11-03T00:00-03:00", "2018-11-04T01:00-02:00", "2018-11-05T00:00-02:00"]),
        ("day", "America/Sao_Paulo", "2018-02-17T23:30-03:00",  # the second half past eleven
         ["2018-02-16T00:00-02:00", "2018-02-17T00:00-02:00", "2018-02-18T00:00-03:00"]),
        ("week", "UTC", "2026-11-19T00:00+00:00",
         ["2026-11-09T00:00+00:00", "2026-11-16T00:00+00:00", "2026-11-23T00:00+00:00"]),
        ("month", "UTC", "2026-01-31T23:59+00:00",
         ["2025-12-01T00:00+00:00", "2026-01-01T00:00+00:00", "2026-02-01T00:00+00:00"]),
    ],
)  # fmt: skip
def test_periods_are_those_of_a_calendar(per: Any, zone: str, now: str, limits: list[str]) -> None:
    """The one before, the one of *now*, and where the next one begins."""
    moment = datetime.fromisoformat(now).timestamp()
    found = period_limits(per, ZoneInfo(zone), moment)
    assert found[:3] == [datetime.fromisoformat(each).timestamp() for each in limits]
    assert found == sorted(set(found)) and len(found) == 4


def test_a_lambda_needs_a_name() -> None:
    """Clients read it in the RateLimit fields."""
    with pytest.raises(UsageError, match="name="):
        Throttle(lambda: "key", None, None, {"limit": 5, "per": 1})


def test_the_fields_are_valid_whatever_the_name_is() -> None:
    """A string of structured fields is printable ASCII; seconds are whole, and at least 1."""
    throttle = Throttle('簡訊:"{user}"', None, None, {"limit": 5, "per": 0.2})
    fields = dict(throttle.answer(UsageOutcome(passed=True, left=4, reset=0.04)).fields)
    assert fields == {
        "ratelimit-policy": '"%E7%B0%A1%E8%A8%8A:%22{user}%22";q=5;w=1',
        "ratelimit": '"%E7%B0%A1%E8%A8%8A:%22{user}%22";r=4;t=1',
    }
