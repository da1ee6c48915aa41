"""Equal payloads have equal fingerprints, others have others: without a server."""

import dataclasses
import datetime
import decimal
import enum
import json
import pathlib
import uuid
from collections import OrderedDict
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qs, parse_qsl

import msgspec
import pydantic
import pytest
from django.utils.datastructures import MultiValueDict
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import QueryParams
from werkzeug.datastructures import MultiDict

from dibs._core.keys import fingerprint
from dibs.errors import UsageError

leaves = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
)
data = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=12,
)
everything = st.recursive(
    leaves | st.binary(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=4) | st.integers() | st.booleans(), inner, max_size=4)
        | st.frozensets(st.integers() | st.text(max_size=4), max_size=4)
    ),
    max_leaves=12,
)


class Colour(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    SMALL = 1


class Mode(enum.StrEnum):
    FAST = "fast"


@dataclasses.dataclass
class Cart:
    id: int
    items: tuple[str, ...]


class Model(pydantic.BaseModel):
    id: int
    items: tuple[str, ...]


class Struct(msgspec.Struct):
    id: int
    items: tuple[str, ...]


def exact(value: Any) -> str:
    """*value* with its types: 1, 1.0 and True are equal to Python, and not to a form."""
    if isinstance(value, dict):
        return f"{{{sorted((exact(key), exact(item)) for key, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{[exact(item) for item in value]}]"
    if isinstance(value, frozenset):
        return f"set({sorted(exact(item) for item in value)})"
    return f"{type(value).__name__}:{value!r}"


def turned(value: Any) -> Any:
    """The same, with every dict in the opposite order."""
    if isinstance(value, dict):
        return {key: turned(value[key]) for key in reversed(value)}
    return [turned(item) for item in value] if isinstance(value, list) else value


@given(data)
def test_json_always_has_a_fingerprint(payload: Any) -> None:
    """For any JSON value: 32 hex digits, the same for any order of keys, also after a round
    trip."""
    mark = fingerprint(payload)
    assert len(mark) == 32 and set(mark) <= set(b"0123456789abcdef")
    assert fingerprint(turned(payload)) == mark
    assert fingerprint(json.loads(json.dumps(payload))) == mark


@given(everything, everything)
def test_different_payloads_differ(one: Any, two: Any) -> None:
    """Equal exactly where the payloads are, types and all."""
    assert (fingerprint(one) == fingerprint(two)) == (exact(one) == exact(two))


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ({1: "a"}, {"1": "a"}),
        ({1: "a"}, {"int:1": "a"}),
        ({1: "a"}, {"~int:1": "a"}),
        ({1: "a"}, {True: "a"}),
        ({None: 1}, {"None": 1}),
        ([{1, 2}], [[1, 2]]),
        ([{1, 2}], [{"~set": ["1", "2"]}]),
        ([{1, 2}], [{"set": ["1", "2"]}]),
        ([b"a"], ["a"]),
        ([b"a"], [{"~bytes": "YQ=="}]),
        ([b"a"], [{"bytes": "YQ=="}]),
        ({"~a": 1}, {"a": 1}),
        ({"~a": 1}, {"~~a": 1}),
        ([1], [True]),
        ([1], [1.0]),
        ([1], ["1"]),
        ([None], ["null"]),
        ([[]], [{}]),
        ([["a"], []], [[], ["a"]]),
        ({"a": {"b": 1}}, {"a": 1, "b": 1}),
        ("a", ["a"]),
        (b"1", 1),
        (b'"a"', "a"),
        (b"null", None),
        (b'{"a":1}', {"a": 1}),
        (b"a", [b"a"]),
        (b"a", {"~bytes": "YQ=="}),
        (b"~a", b"a"),
        (Cart(1, ("a",)), Cart(1, ("b",))),
    ],
)
def test_what_looks_alike_is_not_the_same(one: Any, two: Any) -> None:
    """Text that looks like another type's, and shapes that flatten to the same words."""
    assert fingerprint(one) != fingerprint(two)


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (Cart(1, ("a", "b")), {"items": ["a", "b"], "id": 1}),
        (Model(id=1, items=("a", "b")), Cart(1, ("a", "b"))),
        (Struct(id=1, items=("a", "b")), Cart(1, ("a", "b"))),
        (OrderedDict(b=1, a=2), {"a": 2, "b": 1}),
        (MappingProxyType({"a": 2}), {"a": 2}),
        ([Colour.RED, Size.SMALL, Mode.FAST], ["red", 1, "fast"]),
        (uuid.UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (decimal.Decimal("1.50"), "1.50"),
        (datetime.date(2026, 11, 15), "2026-11-15"),
        (datetime.datetime(2026, 11, 15, tzinfo=datetime.UTC), "2026-11-15T00:00:00+00:00"),
        (datetime.timedelta(seconds=1.5), 1.5),
        (pathlib.PurePosixPath("/a/b"), "/a/b"),
        ([bytearray(b"a")], [b"a"]),
        (bytearray(b"a"), b"a"),
    ],
)
def test_a_value_is_what_it_travels_as(one: Any, two: Any) -> None:
    """Models are their fields, enums their values, times and ids their text."""
    assert fingerprint(one) == fingerprint(two)


def test_a_form_is_all_its_values() -> None:
    """Several values under one name, as frameworks hold them: each of them counts."""
    django, flask = (
        lambda text: MultiValueDict(parse_qs(text)),
        lambda text: MultiDict(parse_qsl(text)),
    )
    for make in (django, flask, QueryParams):
        marks = {fingerprint(make(text)) for text in ("a=1&a=2", "a=3&a=2", "a=1&a=3", "a=1&b=2")}
        assert len(marks) == 4
        assert fingerprint(make("a=1&b=2&a=3")) == fingerprint(make("b=2&a=1&a=3"))
    assert fingerprint(django("a=1&b=2")) == fingerprint(QueryParams("b=2&a=1"))


def test_the_order_of_a_set_does_not_count() -> None:
    """Sets have none."""
    words = [str(number) for number in range(50)]
    assert fingerprint([set(words)]) == fingerprint([frozenset(reversed(words))])


def test_bytes_are_taken_as_they_are() -> None:
    """A body that came over the wire needs no parsing."""
    assert fingerprint(b"a") == fingerprint(b"a") != fingerprint(b"b")


def test_a_number_beyond_reason_is_a_mistake() -> None:
    """Python writes no number of more than 4300 digits: UsageError, not its ValueError."""
    with pytest.raises(UsageError, match="digits"):
        fingerprint({"a": 10**5000})


def test_a_secret_hides_the_payload() -> None:
    """Without it payloads cannot be tried out; another secret makes another fingerprint."""
    marks = {fingerprint("4711"), fingerprint("4711", b"one"), fingerprint("4711", b"two")}
    assert len(marks) == 3


@pytest.mark.parametrize(
    "payload",
    [object(), [object()], {"a": {"b": print}}, {1, object}, Cart, Model, (x for x in "ab")],
    ids=lambda payload: type(payload).__name__,
)
def test_what_is_not_data_is_a_mistake(payload: Any) -> None:
    """A connection, a class, a generator: UsageError that names the type, not the value."""
    with pytest.raises(UsageError, match="payload must be data"):
        fingerprint(payload)


def test_what_has_no_end_is_a_mistake() -> None:
    """Nested too deeply, or in itself: UsageError, not a broken stack."""
    endless: list[Any] = []
    endless.append(endless)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for payload in (endless, deep, {"a": deep}):
        with pytest.raises(UsageError, match="nested"):
            fingerprint(payload)
    while deep:  # taken apart by hand: the garbage collector would go as deep
        deep = deep[0]


def test_text_that_is_no_unicode_has_a_fingerprint() -> None:
    """A lone surrogate, as JSON may smuggle one in: as a value, a key, in a set."""
    payloads: list[Any] = ["\ud800", {"\ud800": 1}, [{"\ud800"}], "\ud801"]
    assert len({fingerprint(payload) for payload in payloads}) == 4
