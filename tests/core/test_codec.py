"""Values and the framed bytes in which they are stored."""

import datetime
import decimal
import enum
import sys
import tracemalloc
import uuid
import zlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs._core.codec import JsonCodec, frame, make_codec, unframe
from dibs._core.codec_types import Shape, describe, returned_type
from dibs.errors import UsageError

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_json_comes_back(value: Any) -> None:
    """Any JSON value goes through the codec and the frame unchanged."""
    codec = JsonCodec()
    try:
        data = frame(codec.name, codec.fingerprint, 1.5, 0.25, codec.encode(value))
    except UnicodeEncodeError:
        return  # lone surrogates
    entry = unframe(data)
    assert entry is not None
    assert codec.decode(entry.payload) == value
    assert (entry.codec, entry.made_at, entry.took) == ("json", 1.5, 0.25)


@given(st.binary(max_size=200))
def test_foreign_bytes_never_raise(data: bytes) -> None:
    """A key may hold anything."""
    unframe(data)
    unframe(b"dibs1 " + data)


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


@dataclass(frozen=True)
class Option:
    label: str
    extra: decimal.Decimal


@dataclass
class Item:
    name: str
    price: int
    size: Size
    options: list[Option]
    tags: set[str]
    by_day: dict[int, float]
    until: datetime.datetime | None
    ident: uuid.UUID
    pair: tuple[int, str]
    kind: Literal["food", "drink"] = "food"


ITEM = Item(
    "麵", 120, Size.LARGE, [Option("大", decimal.Decimal("10.50"))], {"hot"}, {1: 2.5},
    datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.UTC), uuid.UUID(int=7), (1, "x"),
)  # fmt: skip


def test_dataclasses_come_back_whole() -> None:
    """Nested dataclasses, containers, unions, enums, dates, decimals, ids."""
    for of, value in (
        (Item, ITEM),
        (list[Item], [ITEM]),
        (dict[str, Item], {"a": ITEM}),
        (Item | None, None),
    ):
        codec = make_codec("json", of)
        assert codec.decode(codec.encode(value)) == value


def test_another_schema_is_another_fingerprint() -> None:
    """A field more, a type changed: old bytes are not read into new classes."""

    @dataclass
    class Before:
        a: int

    @dataclass
    class After:
        a: int
        b: str

    assert Shape(Before).fingerprint != Shape(After).fingerprint
    assert Shape(list[Before]).fingerprint != Shape(Before).fingerprint
    assert "a:int" in describe(Before)


def test_wrong_shapes_do_not_pass() -> None:
    """Bytes that are JSON but not of the type: an exception, which the cache counts as a miss."""
    shape = Shape(Item)
    for plain in ({}, [], None, 7, {"name": 1}):
        with pytest.raises((TypeError, KeyError, ValueError, AttributeError)):
            shape.from_plain(plain)
    with pytest.raises(UsageError, match="Item"):
        shape.to_plain({"name": "x"})


def test_models_of_pydantic_and_msgspec_come_back() -> None:
    """Their models, also inside containers."""
    msgspec = pytest.importorskip("msgspec")
    pydantic = pytest.importorskip("pydantic")

    class Struct(msgspec.Struct):
        name: str
        when: datetime.date

    class Model(pydantic.BaseModel):
        name: str
        when: datetime.date

    day = datetime.date(2026, 1, 2)
    for of in (Struct, Model):
        value = of(name="a", when=day)
        for shape, whole in ((of, value), (list[of], [value])):
            codec = make_codec("json", shape)
            assert codec.decode(codec.encode(whole)) == whole
            assert codec.fingerprint != "-"


def test_the_return_annotation_is_used_where_it_says_more_than_json() -> None:
    """Item: yes. dict, Any, nothing: plain JSON."""

    async def typed() -> list[Item]: ...  # type: ignore[empty-body]
    async def plain() -> dict[str, Any]: ...  # type: ignore[empty-body]
    async def silent(): ...  # type: ignore[no-untyped-def]

    assert returned_type(typed) == list[Item]
    assert returned_type(plain) is None
    assert returned_type(silent) is None


@pytest.mark.parametrize("name", ["orjson", "msgspec"])
def test_a_quicker_json_makes_the_same_promises(name: str) -> None:
    """The type that a value had, or a UsageError: never a float for an int, or None for NaN."""
    codec = make_codec(name, None)
    for value in (None, {"a": [1, -2.5, "ü\u2028", True, None, {}]}, 2**63, 1e22, -0.0, ""):
        assert repr(codec.decode(codec.encode(value))) == repr(value)
    infinite, lone = float("inf"), "\ud800"
    for odd in (float("nan"), [None, {"a": infinite}], (1, -infinite), lone, {1, 2}, {1: 2}):
        with pytest.raises(UsageError):
            codec.encode(odd)
    try:
        assert codec.decode(codec.encode(2**70)) == 2**70
    except UsageError:
        pass  # orjson ends at 64 bits
    of = dict[int, decimal.Decimal]
    typed = make_codec(name, of)
    assert typed.decode(typed.encode({1: decimal.Decimal("2.50")})) == {1: decimal.Decimal("2.50")}
    assert typed.fingerprint == make_codec("json", of).fingerprint


def test_a_codec_that_is_not_installed_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error when the function is decorated, with what to install."""
    monkeypatch.setitem(sys.modules, "orjson", None)
    with pytest.raises(UsageError, match="pip install orjson"):
        make_codec("orjson", None)


class Level(enum.IntEnum):
    LOW = 1


ODD = st.sampled_from(
    [
        float("nan"), float("inf"), (1, 2), {1, 2}, {1: 2}, {None: 1}, {True: 1}, b"x", "\ud800",
        decimal.Decimal("1.5"), datetime.date(2024, 1, 2), uuid.UUID(int=7), 2**70, -0.0, 1.0,
        Level.LOW, OrderedDict(a=1), [(1,)], {"a": {2: 3}}, {"a": {"b": {1}}}, object(),
    ]
)  # fmt: skip
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text()


@pytest.mark.parametrize("name", ["json", "orjson", "msgspec"])
@given(
    st.recursive(
        PLAIN | ODD, lambda each: st.lists(each) | st.dictionaries(st.text(), each), max_leaves=5
    )
)
def test_the_short_cut_answers_as_the_long_way(name: str, value: Any) -> None:
    """The same bytes and the same value, or refused by both."""
    codec = cast(JsonCodec, make_codec(name, None))

    def attempt(pack: Callable[[Any], tuple[bytes, Any]]) -> Any:
        try:
            data, back = pack(value)
        except UsageError as error:
            return str(error)
        except ValueError:
            return "unreadable"
        return data, repr(back)

    def the_long_way(value: Any) -> tuple[bytes, Any]:
        data = codec._encode_plain(value)  # pyright: ignore[reportPrivateUsage]
        return data, codec.decode(data)

    assert attempt(codec.pack) == attempt(the_long_way)


@pytest.mark.parametrize("name", ["json+zlib", "bytes+zlib:1"])
def test_a_compressed_value_is_read_up_to_a_limit(name: str) -> None:
    """A writer of half a megabyte must not fill the memory; it is a miss like other bytes."""
    codec, most = make_codec(name, None), 64 if name == "json+zlib" else 1
    assert codec.name == name.partition(":")[0]
    whole = zlib.compress(b'"' + b"x" * (most * 1024 * 1024 - 2) + b'"')
    assert len(codec.decode(whole)) >= most * 1024 * 1024 - 2
    tracemalloc.start()
    for bomb in (zlib.compress(b"0" * (most * 1024 * 1024 + 1)), whole[:-9]):
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        with pytest.raises(ValueError, match="too long"):
            codec.decode(bomb)
        assert tracemalloc.get_traced_memory()[1] - before < 3 * most * 1024 * 1024
    tracemalloc.stop()


def test_a_value_that_could_not_be_read_again_is_not_compressed() -> None:
    """It says how to keep it all the same."""
    value = b"x" * (1024 * 1024 + 1)
    with pytest.raises(UsageError, match=r"bytes\+zlib:2"):
        make_codec("bytes+zlib:1", None).encode(value)
    codec = make_codec("bytes+zlib:2", None)
    assert codec.decode(codec.encode(value)) == value
    for wrong in ("json+zlib:", "json+zlib:0", "json+zlib:1MB", "json+gzip"):
        with pytest.raises(UsageError):
            make_codec(wrong, None)
