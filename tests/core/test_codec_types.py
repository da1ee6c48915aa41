"""A value comes back from JSON with the type it had."""

import datetime
import json
import sys
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import (
    Any,
    Literal,
    TypedDict,
)

import pytest

from dibs._core.codec import JsonCodec
from dibs._core.codec_types import returned_type

from .sample_types import (
    CASES,
    DAY,
    Accepted,
    Conn,
    Date,
    Dec,
    Movie,
    Odd,
    Page,
    Pair,
    Rejected,
    T,
    exact,
    there_and_back,
)


@pytest.mark.parametrize(("of", "value"), CASES)
def test_a_value_comes_back_with_the_type_it_had(of: Any, value: Any) -> None:
    """The member of a union, the type of a key, every class; alone, in a list, in a field."""
    assert exact(there_and_back(of, value)) == exact(value)
    assert exact(there_and_back(list[of], [value])) == exact([value])
    assert exact(there_and_back(Page[of], Page([value], value))) == exact(Page([value], value))
    assert exact(there_and_back(of | None, value)) == exact(value)


@pytest.mark.parametrize(
    ("of", "value", "plain"),
    [
        (Accepted | None, Accepted(1), {"number": 1}),
        (Accepted | None, None, None),
        (Date | int, DAY, "2026-01-02"),
        (list[Accepted] | Accepted, [Accepted(1)], [{"number": 1}]),
        (dict[int, Date], {1: DAY}, {"1": "2026-01-02"}),
        (Accepted | Rejected, Rejected(1, "x"), ["Rejected", {"number": 1, "reason": "x"}]),
        (Accepted | Rejected | None, None, None),
        (Accepted | Rejected | str, "x", "x"),
        (Dec | str, "12", ["str", "12"]),
        (Dec | str, Dec("12"), ["Decimal", "12"]),
        (bytes, b"a", "YQ=="),
        (Pair, Pair(DAY, 1), ["2026-01-02", 1]),
        (Odd, Odd.PAIR, "PAIR"),
        (datetime.timedelta, datetime.timedelta(seconds=1.5), 1.5),
    ],
)
def test_what_json_can_tell_apart_is_stored_as_it_is(of: Any, value: Any, plain: Any) -> None:
    """Readable by people and other programs; a tag is added only where one is needed."""
    assert json.loads(JsonCodec(of).encode(value)) == plain


def test_a_class_inside_a_function_may_name_itself() -> None:
    """Also where its name cannot be resolved from outside."""

    @dataclass
    class Inner:
        value: int
        next: "Inner | None" = None

    assert there_and_back(Inner, Inner(1, Inner(2))) == Inner(1, Inner(2))


if sys.version_info >= (3, 12):  # when the type statement came

    def test_aliases_are_what_they_stand_for() -> None:
        """Also those that name themselves, and generic ones."""
        names: dict[str, Any] = {"Date": Date}
        exec(
            "type Json = dict[str, Json] | list[Json] | str | int | float | bool | None\n"
            "type Days[T] = dict[T, list[Date]]\n"
            "type Chain = tuple[int, Chain] | None\n",
            names,
        )
        days = names["Days"]
        for of, value in (
            (names["Json"], {"a": [1, None, {"b": True}]}),
            (days[int], {1: [DAY]}),
            (names["Chain"], (1, (2, None))),
            (list[days[str]], [{"a": [DAY]}]),
        ):
            assert exact(there_and_back(of, value)) == exact(value)


if sys.version_info >= (3, 12):  # when class Page[T] came

    def test_type_parameters_may_be_named_in_text(monkeypatch: pytest.MonkeyPatch) -> None:
        """`from __future__ import annotations` and quotes."""
        module = types.ModuleType("sheets")
        monkeypatch.setitem(sys.modules, "sheets", module)
        names = vars(module)
        exec(
            "from __future__ import annotations\n"
            "from dataclasses import dataclass\n"
            "@dataclass\nclass Sheet[T]:\n    items: list[T]\n    next: Sheet[T] | None = None\n"
            "@dataclass\nclass Titled[U](Sheet[U]):\n    title: U | None = None\n",
            names,
        )
        sheet, titled = names["Sheet"], names["Titled"]
        for of, value in (
            (sheet[Date], sheet([DAY], sheet([DAY]))),
            (titled[Date], titled([DAY], None, DAY)),
        ):
            assert there_and_back(of, value) == value


def test_only_what_says_more_than_json_counts() -> None:
    """Keys that are no text, unions with more than JSON, bytes: yes. Plain JSON: no."""
    more = (dict[int, str], Accepted | Rejected, Dec | str, bytes, Movie, Pair, set[int], Conn)
    less = (dict[str, Any], list[int] | str, int | None, TypedDict("Plain", {"a": int}), T, Any,
            Literal["a"], Mapping[str, int], object, None)  # fmt: skip
    for of in (*more, *less):

        def function() -> Any: ...

        function.__annotations__["return"] = of
        assert (returned_type(function) is None) == (of in less)
