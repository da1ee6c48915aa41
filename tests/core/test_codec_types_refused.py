"""What would not come back from JSON as it was is refused before it is stored."""

import datetime
import typing
import zoneinfo
from collections import defaultdict, deque
from dataclasses import InitVar, dataclass
from typing import (
    Any,
    Generic,
    Literal,
    NamedTuple,
)

import pydantic
import pytest

from dibs._core.codec import JsonCodec
from dibs._core.codec_types import Shape, returned_type
from dibs.errors import UsageError

from .sample_types import (
    DAY,
    NOON,
    Accepted,
    Conn,
    Date,
    Dec,
    Holder,
    Holding,
    Late,
    Level,
    Mode,
    Model,
    Movie,
    Node,
    Page,
    Pair,
    Picky,
    Rejected,
    Size,
    Struct,
    T,
)


@dataclass
class Growing:
    """Made again from its fields it is another one."""

    number: int

    def __post_init__(self) -> None:
        self.number += 1


@dataclass
class Needy:
    number: int
    more: InitVar[int]


class Secret(pydantic.BaseModel):
    password: pydantic.SecretStr


class SubStruct(Struct):
    more: int = 0


class SubModel(Model):
    more: int = 0


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("of", "value"),
    [
        (Rejected, Rejected(1, None)),  # type: ignore[arg-type]
        (Rejected, Rejected(1.5)),  # type: ignore[arg-type]
        (Rejected, Rejected("1")),  # type: ignore[arg-type]
        (Rejected, Rejected(1, Text("x"))),
        (Rejected, Rejected(1, Mode.FAST)),
        (Rejected, Rejected(Level.LOW)),
        (Rejected, Late(1)),
        (Rejected, {"number": 1, "reason": "x"}),
        (Rejected, None),
        (Accepted | Rejected, Late(1)),
        (Accepted | Rejected, {"number": 1}),
        (list[Date], [NOON]),
        (list[Date], (DAY,)),
        (list[Date], ["2026-01-02"]),
        (dict[str, Date], defaultdict(None, {"a": DAY})),
        (dict[str, Date], {1: DAY}),
        (dict[int, Date], {"1": DAY}),
        (dict[float, Date], {float("nan"): DAY, float("inf") - float("inf"): DAY}),
        (tuple[int, str], (1,)),
        (tuple[int, str], (1, 2)),
        (tuple[int, ...], [1]),
        (set[int], {"a"}),
        (set[int], frozenset({1})),
        (Literal["a", 1], "b"),
        (Literal["a", 1], True),
        (Size, "s"),
        (Dec | str, 12),
        (bytes, "a"),
        (bytes, bytearray(b"a")),
        (datetime.time, datetime.time(1, tzinfo=zoneinfo.ZoneInfo("Asia/Taipei"))),
        (deque[int], deque([1], maxlen=3)),
        (Growing, Growing(1)),
        (Picky, type("Made", (), {})()),
        (Movie, {"name": "a"}),
        (Movie, {"name": "a", "day": DAY, "more": 1}),
        (Movie, {"name": "a", "day": "2026-01-02"}),
        (Pair, (DAY, 1)),
        (Pair, Pair("x", 1)),  # type: ignore[arg-type]
        (Struct, SubStruct("a", DAY)),
        (Struct, Struct("a", "2026-01-02")),  # type: ignore[arg-type]
        (Secret, Secret(password=pydantic.SecretStr("secret"))),
        (Model, Model(name="a", day=DAY, anything=(1, 2))),
        (Holding[Date], Holding("2026-01-02")),
        (Model, SubModel(name="a", day=DAY)),
        (Model, {"name": "a", "day": DAY}),
        (Model, Model(name="a", day=DAY, data=b"\xff")),
        (Model, Model(name="a", day=DAY, anything=DAY)),
        (Model, Model.model_construct(name="secret", day=None)),
        (Holder, Holder(inner=SubModel(name="a", day=DAY))),
        (Any, {1: "a"}),
        (Any, [({"a": {None: 1}},)]),
        (Any, object()),
        (Any, {"\ud800secret"}),
        (Any, "\ud800secret"),
        (Node, "secret"),
        (int, None),
        (str, 1),
        (list[int], [1, None]),
    ],
)  # fmt: skip
def test_what_would_not_come_back_is_refused(of: Any, value: Any) -> None:
    """UsageError before anything is stored, for any exception of the classes; it holds no value."""
    for shape, whole in ((of, value), (list[of], [value]), (Page[of], Page([value]))):
        with pytest.raises(UsageError) as caught:
            JsonCodec(shape).encode(whole)
        assert "secret" not in str(caught.value)
        assert caught.value.__cause__ is None and caught.value.__suppress_context__


def test_the_field_that_does_not_fit_is_named() -> None:
    """By its path and the two types."""
    with pytest.raises(UsageError, match=r"not a .*Page.*items: reason: NoneType is not str"):
        JsonCodec(Page[Rejected]).encode(Page([Rejected(1, None)]))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="Late is not Rejected itself; name both types"):
        JsonCodec(Rejected).encode(Late(1))
    with pytest.raises(UsageError, match="not a Movie: day: str is not date"):
        JsonCodec(Movie).encode({"name": "a", "day": "2026-01-02"})
    with pytest.raises(UsageError, match="Movie has other keys"):
        JsonCodec(Movie).encode({"day": DAY})
    with pytest.raises(UsageError, match=r"dict\[int, …\]"):
        JsonCodec().encode({1: "a"})


def test_a_value_that_has_no_end_is_refused() -> None:
    """A node that is its own successor, a list in itself, a chain of a hundred thousand."""
    node = Node(1)
    node.next = node
    chain = Node(1)
    for _ in range(100_000):
        chain = Node(1, chain)
    endless: list[Any] = []
    endless.append(endless)
    for of, value in ((Node, node), (Node, chain), (None, endless), (list[Any], endless)):
        with pytest.raises(UsageError):
            JsonCodec(of).encode(value)
    while chain.next is not None:  # taken apart by hand: the garbage collector would go as deep
        chain = chain.next


@dataclass
class WithConn:
    name: str
    conns: list[Conn]


@dataclass
class Endless(Generic[T]):
    more: "Endless[list[T]] | None"


@pytest.mark.parametrize(
    "of",
    [
        Conn,
        Text,
        object | Conn,
        list[Conn],
        WithConn,
        dict[str, WithConn | None],
        type[Accepted],
        typing.Callable[[], int],
        defaultdict[str, int],
        tuple[int, *tuple[str, ...]],
        Needy,
        Endless[int],
        typing.Iterator[int],
        complex,
        "a name",
    ],
    ids=str,
)
def test_a_type_that_cannot_be_kept_is_refused_by_itself(of: Any) -> None:
    """Before there is a value: when a function is decorated."""
    with pytest.raises(UsageError, match=r"is not supported.*type= or codec="):
        Shape(of)


def test_the_field_that_cannot_be_kept_is_named() -> None:
    """By its path."""
    with pytest.raises(UsageError, match=r"WithConn\.conns: a Conn has no representation in JSON"):
        Shape(list[WithConn])


def test_two_members_that_nobody_can_tell_apart_are_refused() -> None:
    """The same name and the same fields, of two modules."""

    def make() -> Any:
        @dataclass
        class Twin:
            a: int

        return Twin

    with pytest.raises(UsageError, match="the same name"):
        Shape(make() | make())


class Place(NamedTuple):
    row: int
    seat: int


@pytest.mark.parametrize(
    "value", [Mode.FAST, Level.LOW, Place(1, 2), (1,), [{"a": Mode.FAST}], {1: 2}]
)
def test_what_would_change_is_refused_where_the_annotation_is_not_known(value: Any) -> None:
    """A class of which only type checkers know, or of a function: JSON must be the whole truth."""

    def function() -> Any: ...

    function.__annotations__["return"] = "OnlyForTypeCheckers"
    codec = JsonCodec(returned_type(function).found())
    with pytest.raises(UsageError, match="type="):
        codec.encode(value)
    plain = {"a": [1, None, "x", {"b": 1.5}], "c": True}
    assert codec.decode(codec.encode(plain)) == plain
