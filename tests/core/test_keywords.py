"""Options that do not exist, and how those that do are declared."""

from typing import Any, Generic, Required, TypeVar, get_type_hints

import pytest

from dibs import Dibs
from dibs._core.keywords import TypedDict, refuse_unknown

NOWHERE = "redis://127.0.0.1:1"
T = TypeVar("T")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda dibs: dibs.hold("k", tll=1), "hold() … 'tll'. Did you mean 'ttl'?"),
        (lambda dibs: dibs.cached("k", ttl=1, stal=1), "cached() … 'stal'. Did you mean 'stale'?"),
        (lambda dibs: dibs.once("k", windw=1), "once() … 'windw'. Did you mean 'window'?"),
        (
            lambda dibs: dibs.throttle("k", limit=1, pre=1),
            "throttle() … 'pre'. Did you mean 'per'?",
        ),
        (
            lambda dibs: dibs.scheduled("* * * * *", ky="k"),
            "scheduled() … 'ky'. Did you mean 'key'?",
        ),
        (lambda dibs: dibs.hold("k", ttl=1, colour=3), "hold() … 'colour'"),
    ],
)
def test_an_option_that_is_nearly_right_is_named(call: Any, words: str) -> None:
    """The error says which option was meant, on every Python; one that is like none has no hint."""
    with Dibs(NOWHERE) as dibs, pytest.raises(TypeError) as caught:
        call(dibs)
    assert str(caught.value) == words.replace("…", "got an unexpected keyword argument")


class Base(TypedDict, total=False):
    ttl: Required[float]
    wait: float


class Extended(Base, Generic[T], total=False, closed=True):
    owner: T
    wait: int  # type: ignore[misc]


def test_a_closed_class_of_options_has_those_of_its_bases() -> None:
    """Type checkers read a TypedDict; at run time each class knows its options and their types."""
    assert get_type_hints(Base) == {"ttl": float, "wait": float}
    assert get_type_hints(Extended) == {"ttl": float, "wait": int, "owner": T}
    assert list(Extended.__annotations__) == ["ttl", "wait", "owner"]


def test_what_is_neither_an_option_nor_named_beside_them_is_refused() -> None:
    """The first that is unknown, in the order of the call."""
    refuse_unknown("verb", ["ttl", "wait", "dibs"], Extended, "dibs")
    with pytest.raises(TypeError, match=r"verb\(\) got an unexpected keyword argument 'dibs'"):
        refuse_unknown("verb", ["ttl", "dibs", "wat"], Extended)
