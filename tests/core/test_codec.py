"""Frames and shapes, without a server."""

import datetime
import decimal
import enum
import uuid
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs._core.cache import Reading, is_due_early, jittered
from dibs._core.codec import JsonCodec, frame, make_codec, unframe
from dibs._core.local import ABSENT, Local, Ticket
from dibs._core.options import CacheOptions, Settings
from dibs._core.shapes import Shape, describe, returned_type
from dibs.errors import UsageError

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(json_values)
def test_json_comes_back(value: Any) -> None:
    """Whatever JSON knows goes through the codec and the frame unchanged."""
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
    """Anything may stand in a key."""
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


def test_pydantic_and_msgspec() -> None:
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


def kept(**options: Any) -> CacheOptions:
    base: dict[str, Any] = {"ttl": 180, "jitter": 0.2, "min_ttl": 60}
    return CacheOptions(Settings(namespace="", on_outage="open"), **{**base, **options})


@given(st.floats(0, 1), st.floats(0, 0.99), st.floats(1, 1000))
def test_jitter_stays_in_its_band(chance: float, jitter: float, ttl: float) -> None:
    """ttl × (1 ± jitter), never below min_ttl."""
    fresh = jittered(kept(ttl=ttl, jitter=jitter, min_ttl=0), chance)
    assert ttl * (1 - jitter) - 1e-6 <= fresh <= ttl * (1 + jitter) + 1e-6
    assert jittered(kept(ttl=10, min_ttl=60), chance) == 60


def test_early_is_likelier_near_the_end_and_for_slow_loads() -> None:
    """XFetch: exp(-left / (early × load)); never without early, never for what is not fresh."""

    def share(left: float, took: float, early: float = 1.0) -> float:
        reading = Reading("fresh", left=left, took=took)
        return sum(is_due_early(reading, early, (n + 0.5) / 1000) for n in range(1000)) / 1000

    assert share(1.0, 1.0) == pytest.approx(0.368, abs=0.01)
    assert share(10.0, 1.0) < 0.001
    assert share(0.1, 1.0) > 0.9
    assert share(1.0, 0.01) < 0.001
    assert share(1.0, 1.0, early=0.0) == 0
    assert not is_due_early(Reading("stale", left=-1.0, took=1.0), 1.0, 0.5)


def test_local_memory_is_bounded_and_doubts() -> None:
    """The oldest goes first; what changed while it was asked for is not kept."""
    local = Local(most=2)
    tickets = {key: _ticket() for key in (b"a", b"b", b"c")}
    gone: list[tuple[bytes, Ticket]] = []
    for key, ticket in tickets.items():
        local.ask(key, ticket)
        gone = local.put(key, key, 10.0, ticket)
    assert gone == [(b"a", tickets[b"a"])]
    assert local.get(b"a", 0.0) is ABSENT
    assert local.get(b"c", 0.0) == b"c"
    assert local.get(b"c", 10.0) is ABSENT
    late = _ticket()
    local.ask(b"d", late)
    local.forget(b"d")
    assert local.put(b"d", 1, 10.0, late) == [(b"d", late)]
    assert local.get(b"d", 0.0) is ABSENT


def test_local_memory_names_the_ticket_that_a_newer_value_replaces() -> None:
    """One ticket stays for each value, so that nobody listens for a key twice."""
    local = Local()
    first, second = _ticket(), _ticket()
    local.ask(b"a", first)
    assert local.put(b"a", 1, 10.0, first) == []
    local.ask(b"a", second)
    assert local.put(b"a", 2, 10.0, second) == [(b"a", first)]
    assert local.get(b"a", 0.0) == 2


def _ticket() -> Ticket:
    return lambda: None
