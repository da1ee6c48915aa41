"""The stored form of a type, and the fingerprint that changes with it."""

import enum
from dataclasses import dataclass
from typing import (
    Any,
)

from dibs._core.codec_types import Shape, describe

from .sample_types import (
    Accepted,
    Date,
    Dec,
    Model,
    Movie,
    Node,
    Page,
    Partial,
    Rejected,
    Size,
    Struct,
)


def test_the_fingerprint_changes_with_the_stored_form() -> None:
    """A member more, another type of key, another value of an enum; not the order of a union."""

    class Other(enum.Enum):
        SMALL = "s"
        LARGE = "x"

    Other.__qualname__ = "Size"
    of = [
        Accepted, Rejected, Accepted | Rejected, Accepted | None, Accepted | Rejected | None,
        list[Accepted], dict[int, str], dict[str, Date], dict[int, Date], Size, Other, Node,
        Page[Date], Page[int], tuple[int, str], tuple[int, ...], Movie, Partial, Model, Struct,
    ]  # fmt: skip
    assert len({Shape(each).fingerprint for each in of}) == len(of)
    assert Shape(Accepted | Rejected).fingerprint == Shape(Rejected | Accepted).fingerprint
    assert Shape(Dec | str | None).fingerprint == Shape(None | str | Dec).fingerprint


def test_entries_of_the_old_form_are_misses() -> None:
    """What was stored before the members of unions were has another fingerprint."""
    import hashlib

    @dataclass
    class Before:
        a: int

    Before.__qualname__ = "Before"
    old = hashlib.sha256(b"Before(a:int)").hexdigest()[:8]
    assert describe(Before) == "Before(a:int)" and Shape(Before).fingerprint != old


def test_a_type_that_is_used_many_times_is_described_in_a_few_words() -> None:
    """Classes that name each other twice, twenty levels deep, do not grow for ever."""
    of: Any = Accepted
    for _ in range(20):
        of = Page[of]
    assert len(describe(of)) < 10_000
