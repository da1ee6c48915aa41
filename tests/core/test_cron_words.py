"""A cron expression in words: what a person reads below what was typed."""

import pytest

from dibs import UsageError
from dibs._core.cron_words import cron_words
from dibs.cli.cron_and_sql import until


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("* * * * *", "every minute"),
        ("*/15 9-17 * * MON-FRI", "every 15 minutes, from 9 to 17 h, Mon–Fri"),
        ("0 3 * * *", "at 03:00"),
        ("@daily", "at 00:00"),
        ("15 * * * *", "every hour at :15"),
        ("0 */6 * * *", "at :00, every 6 hours"),
        ("30 9,17 1 * *", "at 09:30 and 17:30, on day 1 of the month"),
        ("0 0 L * *", "at 00:00, on the last day of the month"),
        ("0 9 1 * 1", "at 09:00, on day 1 of the month or Mon"),
        ("0 9 * * MON#2", "at 09:00, Mon number 2 of the month"),
        ("0 9 * 1,JUL 7", "at 09:00, Sun, in Jan, Jul"),
        ("*/10 * * * * *", "every 10 seconds"),
        ("5,35 * * * *", "at minute 5,35"),
    ],
)
def test_an_expression_has_words(expression: str, words: str) -> None:
    """Times as on a clock, days and months by their names."""
    assert cron_words(expression) == words


def test_what_is_no_expression_has_none() -> None:
    """The number of fields is what it needs."""
    with pytest.raises(UsageError, match="it has 2 fields"):
        cron_words("0 3")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(-1, "0 s"), (42, "42 s"), (480, "8 min"), (19200, "5 h 20 min"), (300_000, "3 days")],
)
def test_a_time_ahead_is_short(seconds: float, words: str) -> None:
    """As it is said."""
    assert until(seconds) == words
