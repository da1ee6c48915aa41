"""Rates: intervals, requests, what replies mean, what clients get to know."""

import pytest

from dibs._core.options import Settings
from dibs._core.request import OddReply
from dibs._core.throttle import ThrottleOptions, Throttling, read_throttle, throttle_request
from dibs._http.throttle import Throttle

SETTINGS = Settings(namespace="", on_outage="open")


@pytest.mark.parametrize(
    ("limit", "per", "interval"),
    [(5, 60, 12_000_000), (7, 60, 8_571_429), (1, 0.001, 1000), (1_000_000, 0.001, 1)],
)
def test_an_interval_is_a_whole_number_that_never_exceeds_the_limit(
    limit: int, per: float, interval: int
) -> None:
    """Microseconds, rounded up; sums of them are exact."""
    assert ThrottleOptions(SETTINGS, limit=limit, per=per).interval_us == interval


def test_a_request_is_named_by_its_token_without_its_holder() -> None:
    """So that a repeated one is recognised, and no host name is stored."""
    options = ThrottleOptions(SETTINGS, limit=5, per=60)
    payload = throttle_request(b"k", b"abc-1@host:7", options).payload
    assert b"\r\nabc-1\r\n" in payload and b"host" not in payload
    assert payload.endswith(b"$8\r\n12000000\r\n$1\r\n5\r\n")


def test_replies_are_read() -> None:
    """Counted, refused; anything else is an error."""
    assert read_throttle([1, 4, 12_000_000]) == Throttling(passed=True, left=4, reset=12.0)
    assert read_throttle([0, 0, 500_000]) == Throttling(passed=False, left=0, reset=0.5)
    with pytest.raises(OddReply):
        read_throttle(b"OK")


def test_the_fields_are_valid_whatever_the_name_is() -> None:
    """A string of structured fields is printable ASCII; seconds are whole, and at least 1."""
    throttle = Throttle('簡訊:"{user}"', None, None, {"limit": 5, "per": 0.2})
    fields = dict(throttle.answer(Throttling(passed=True, left=4, reset=0.04)).fields)
    assert fields == {
        "ratelimit-policy": '"__:_{user}_";q=5;w=1',
        "ratelimit": '"__:_{user}_";r=4;t=1',
    }
