"""Loads that failed: what is remembered of them, and what callers get."""

import pytest

from dibs import Unavailable, UsageError
from dibs._core.causes import Absent, failure_name, load_error, picked


def test_what_a_load_returned_for_each_item() -> None:
    """A value, None included, or that there is none; more than was asked for is ignored."""
    one, two, three = picked("menu:{x}", ["a", "b", "c"], {"a": None, "c": 3, "d": 4})
    assert one is None and isinstance(two, Absent) and three == 3
    assert isinstance(two, KeyError) and "menu:{x}" in str(two)
    with pytest.raises(UsageError, match="must return a dict"):
        picked("menu:{x}", ["a"], [1])


def test_a_remembered_failure_carries_the_name_of_its_exception() -> None:
    """Not the exception: it may hold anything, and its class may not be known here."""
    error = load_error(failure_name(OSError("the bank of 42 is closed")), "rate:{x}")
    assert isinstance(error, Unavailable)
    assert (error.cause, error.failure, error.name) == ("load_failed", "OSError", "rate:{x}")
    assert "42" not in str(error)


def test_an_item_without_a_value_is_remembered_as_such() -> None:
    """A class of another program is not taken for it; callers get a plain Unavailable."""
    absent = load_error(failure_name(Absent("menu:{x}")), "menu:{x}")
    assert isinstance(absent, Absent)
    other = load_error(failure_name(type("Absent", (Exception,), {})()), "menu:{x}")
    assert not isinstance(other, Absent)
    error = absent.as_unavailable()
    assert type(error) is Unavailable
    assert (error.cause, error.failure) == ("load_failed", "KeyError")
