"""A value comes back from JSON with the type it had, or is refused before it is stored."""

import datetime
import decimal
import enum
import json
import sys
import types
import typing
import uuid
import zoneinfo
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Optional,
    Self,
    TypedDict,
    TypeVar,
    Union,
)

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs._core.codec import JsonCodec
from dibs._core.shapes import Shape, describe, returned_type
from dibs.errors import UsageError

T = TypeVar("T")
K = TypeVar("K")
Date, Moment, Dec = datetime.date, datetime.datetime, decimal.Decimal
DAY = Date(2026, 1, 2)
NOON = Moment(2026, 1, 2, 12, tzinfo=datetime.UTC)


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mode(enum.StrEnum):
    FAST = "fast"


class Odd(enum.Enum):
    PAIR = (1, 2)
    EMPTY = None
    HALF = 0.5


class Perm(enum.Flag):
    READ = 1
    WRITE = 2


@dataclass
class Accepted:
    number: int


@dataclass
class Rejected:
    number: int
    reason: str = "no money"


@dataclass
class Late(Rejected):
    days: int = 1


@dataclass(frozen=True, slots=True)
class Point:
    x: float
    y: float


@dataclass
class Node:
    value: int
    next: "Node | None" = None
    others: "list[Node]" = field(default_factory=list)


@dataclass
class Tree:
    name: str
    parent: Self | None = None


@dataclass
class Page(Generic[T]):
    items: list[T]
    first: T | None = None


@dataclass
class Dates(Page[Date]):
    title: str = ""


@dataclass
class Keyed(Page[Date], Generic[T]):
    key: T = None  # type: ignore[assignment]


@dataclass
class Named:
    name: str
    _: KW_ONLY
    size: int = 1


@dataclass
class Priced:
    price: Dec
    total: Dec = field(init=False)
    note: str | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.total = self.price * 2


@dataclass
class Growing:
    """Made again from its fields it is another one."""

    number: int

    def __post_init__(self) -> None:
        self.number += 1


@dataclass
class Picky:
    number: int

    def __post_init__(self) -> None:
        if self.number > 5:
            raise ValueError("too many")


@dataclass
class Needy:
    number: int
    more: InitVar[int]


@dataclass(init=False)
class ByHand:
    number: int

    def __init__(self, number: int) -> None:
        self.number = number


class Pair(NamedTuple):
    day: Date
    count: int = 0


class Box(NamedTuple, Generic[T]):
    content: T


class Movie(TypedDict):
    name: str
    day: Date
    stars: NotRequired[int]


class Partial(TypedDict, total=False):
    price: Dec


class Struct(msgspec.Struct):
    name: str
    day: Date
    by_number: dict[int, str] = {}
    either: int | str = 0


class Holding(msgspec.Struct, Generic[T]):
    content: T


class Secret(pydantic.BaseModel):
    password: pydantic.SecretStr


class Hidden(pydantic.BaseModel):
    number: float
    _loaded_by: object = pydantic.PrivateAttr(default_factory=object)


class SubStruct(Struct):
    more: int = 0


class Model(pydantic.BaseModel):
    name: str
    day: Date
    data: bytes = b""
    anything: Any = None


class SubModel(Model):
    more: int = 0


class Aliased(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    number: int = pydantic.Field(alias="theNumber")

    @pydantic.computed_field
    @property
    def double(self) -> int:
        return self.number * 2


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(
        strict=True, val_json_bytes="base64", ser_json_bytes="base64"
    )
    day: Date
    data: bytes = b""


class Root(pydantic.RootModel[list[Date] | None]):
    pass


class Holder(pydantic.BaseModel):
    inner: Model


UserId = NewType("UserId", str)

CASES: list[tuple[Any, Any]] = [
    # unions: the member that it was
    (Accepted | Rejected, Rejected(1, "no money")),
    (Accepted | Rejected, Accepted(1)),
    (Accepted | Rejected | None, None),
    (Accepted | Rejected | str, "Rejected"),
    (Accepted | Rejected | list[str], ["Rejected", "x"]),
    (Union[Accepted, Rejected], Rejected(1)),  # noqa: UP007
    (list[Accepted | Rejected], [Accepted(1), Rejected(2), Accepted(3)]),
    (Rejected | Late, Late(1, "x", 3)),
    (Rejected | Late, Rejected(1, "x")),
    (Decimal_or_text := Dec | str, "12"),
    (Decimal_or_text, "abc"),
    (Decimal_or_text, Dec("12")),
    (Dec | str | None, None),
    (Date | Moment, DAY),
    (Date | Moment, NOON),
    (Date | Moment | str, "2026-01-02"),
    (int | float | None, 1),
    (int | float | None, 1.0),
    (int | str | bool, True),
    (uuid.UUID | str, str(uuid.UUID(int=7))),
    (uuid.UUID | str, uuid.UUID(int=7)),
    (bytes | str, b"YQ=="),
    (bytes | str, "YQ=="),
    (list[int] | tuple[int, ...], (1, 2)),
    (list[int] | tuple[int, ...], [1, 2]),
    (list[int] | set[int], {1, 2}),
    (list[Date] | list[str], ["2026-01-02"]),
    (list[Date] | list[str], [DAY]),
    (dict[str, Date] | dict[int, str], {1: "2026-01-02"}),
    (dict[str, Date] | dict[int, str], {"1": DAY}),
    (dict[str, int] | Accepted, {"number": 1}),
    (dict[str, int] | Accepted, Accepted(1)),
    (Size | str, "s"),
    (Size | str, Size.SMALL),
    (Level | int, 1),
    (Level | int, Level.LOW),
    (Mode | Size, Mode.FAST),
    (Model | Accepted, Model(name="a", day=DAY)),
    (Struct | Model | None, Struct("a", DAY)),
    (Root | None, None),
    (Root | None, Root(None)),
    (Root | None, Root([DAY])),
    (Literal["a", 1] | Date, "a"),
    (Pair | tuple[Date, int], (DAY, 0)),
    (Pair | tuple[Date, int], Pair(DAY, 0)),
    (Any | Accepted, Accepted(1)),
    (Any | Accepted, {"number": 1}),
    # keys of dicts
    (dict[int, str], {1: "a", -5: "b"}),
    (dict[float, int], {1.5: 1, 2.0: 2}),
    (dict[bool, int], {True: 1, False: 0}),
    (dict[Size, int], {Size.SMALL: 1}),
    (dict[Level, int], {Level.LOW: 1}),
    (dict[Odd, int], {Odd.PAIR: 1, Odd.EMPTY: 2}),
    (dict[uuid.UUID, Date], {uuid.UUID(int=7): DAY}),
    (dict[Dec, Dec], {Dec("1.50"): Dec("1E+3")}),
    (dict[Date, int], {DAY: 1}),
    (dict[Moment, int], {NOON: 1}),
    (dict[bytes, int], {b"a": 1}),
    (dict[int | str, int], {1: 1, "1": 2}),
    (dict[int | None, int], {1: 1, None: 2}),
    (dict[tuple[int, Date], int], {(1, DAY): 1}),
    (dict[Point, int], {Point(1.0, 2.0): 1}),
    (dict[UserId, int], {UserId("u"): 1}),
    (dict[Literal["a", "b"], Date], {"a": DAY}),
    (dict[str, dict[int, Date]], {"a": {1: DAY}}),
    (Mapping[int, Date], {1: DAY}),
    (OrderedDict[int, Date], OrderedDict({2: DAY, 1: DAY})),
    (Counter[Date], Counter({DAY: 3})),
    # values
    (Moment, NOON),
    (Moment, Moment(2026, 1, 2, 3, 4, 5, 678)),
    (Moment, Moment(2026, 10, 25, 2, 30, fold=1)),
    (datetime.time, datetime.time(2, 30, fold=1)),
    (datetime.time, datetime.time(1, 2, tzinfo=datetime.UTC)),
    (datetime.timedelta, datetime.timedelta(seconds=1.5)),
    (datetime.timedelta, datetime.timedelta(999_999_999, 1, 1)),
    (datetime.timedelta, datetime.timedelta.max),
    (datetime.timedelta, datetime.timedelta.min),
    (datetime.timedelta, -datetime.timedelta(microseconds=1)),
    (Dec, Dec("-0.00")),
    (bytes, b"\x00\xff\n"),
    (bytes, b""),
    (bytearray, bytearray(b"a")),
    (list[bytes | None], [b"a", None]),
    (Size, Size.LARGE),
    (Odd, Odd.HALF),
    (Perm, Perm.READ | Perm.WRITE),
    (Perm, Perm(0)),
    (Literal[Size.SMALL, b"a", "x"], Size.SMALL),
    (Literal[Size.SMALL, b"a", "x"], b"a"),
    (tuple[()], ()),
    (tuple[int, ...], (1, 2, 3)),
    (tuple[int, Date], (1, DAY)),
    (tuple, (1, "a")),
    (set[Date], {DAY}),
    (frozenset[int], frozenset({1})),
    (deque[Date], deque([DAY])),
    (Sequence[Date], [DAY]),
    (Optional[Date], None),  # noqa: UP045
    (Annotated[Date, "when"], DAY),
    # classes
    (Node, Node(1, Node(2), [Node(3, Node(4))])),
    (Tree, Tree("a", Tree("b"))),
    (Page[Date], Page([DAY], DAY)),
    (Page[Page[Date]], Page([Page([DAY])])),
    (Page[int | Date], Page([1, DAY])),
    (Page, Page([1, "a"])),
    (Dates, Dates([DAY], DAY, "x")),
    (Keyed[int], Keyed([DAY], DAY, 7)),
    (Named, Named("a", size=2)),
    (Priced, Priced(Dec("1.5"))),
    (Picky, Picky(3)),
    (ByHand, ByHand(3)),
    (Point, Point(1, 2.5)),
    (Pair, Pair(DAY, 3)),
    (Box[Date], Box(DAY)),
    (Movie, {"name": "a", "day": DAY}),
    (Movie, {"name": "a", "day": DAY, "stars": 5}),
    (Partial, {}),
    (list[Partial], [{"price": Dec("1")}]),
    (Struct, Struct("a", DAY, {1: "x"}, "1")),
    (list[Struct], [Struct("a", DAY, {}, 1)]),
    (Model, Model(name="a", day=DAY)),
    (Aliased, Aliased(theNumber=3)),
    (Hidden, Hidden(number=float("nan"))),
    (Holding[Date], Holding(DAY)),
    (Holding[dict[int, Date]], Holding({1: DAY})),
    (Strict, Strict(day=DAY, data=b"\xff")),
    (Holder, Holder(inner=Model(name="a", day=DAY))),
    (dict[str, Model], {"a": Model(name="a", day=DAY, anything=[1, {"a": None}])}),
    (list[Any], [1, {"a": [None]}]),
]  # fmt: skip


def exact(value: Any) -> Any:
    """*value* with the types of all its parts: 1, 1.0 and True are equal to Python."""
    if isinstance(value, dict):
        return (type(value), [(exact(key), exact(item)) for key, item in value.items()])
    if isinstance(value, list | tuple | deque):
        return (type(value), [exact(item) for item in value])
    if isinstance(value, set | frozenset):
        return (type(value), sorted(map(repr, map(exact, value))))
    fields = getattr(value, "__dataclass_fields__", None)
    if fields is not None:
        return (type(value), [exact(getattr(value, name)) for name in fields])
    return (type(value), repr(value))


def there_and_back(of: Any, value: Any) -> Any:
    codec = JsonCodec(of)
    data = codec.encode(value)
    json.loads(data)
    return codec.decode(data)


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
    """Readable by people and other programs; a tag is there only where one is needed."""
    assert json.loads(JsonCodec(of).encode(value)) == plain


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
    """UsageError before anything is stored, whatever the classes raise; it holds no value."""
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


class Conn:
    pass


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


def test_a_class_inside_a_function_may_name_itself() -> None:
    """Also where nobody else can look its name up."""

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


# ---- fingerprints


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


# ---- which annotations count


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
    codec = JsonCodec(returned_type(function))
    with pytest.raises(UsageError, match="type="):
        codec.encode(value)
    plain = {"a": [1, None, "x", {"b": 1.5}], "c": True}
    assert codec.decode(codec.encode(plain)) == plain


def test_only_what_says_more_than_json_counts() -> None:
    """Keys that are no text, unions with more than JSON, bytes: yes. Plain JSON: no."""
    more = (dict[int, str], Accepted | Rejected, Dec | str, bytes, Movie, Pair, set[int], Conn)
    less = (dict[str, Any], list[int] | str, int | None, TypedDict("Plain", {"a": int}), T, Any,
            Literal["a"], Mapping[str, int], object, None)  # fmt: skip
    for of in (*more, *less):

        def function() -> Any: ...

        function.__annotations__["return"] = of
        assert (returned_type(function) is None) == (of in less)


# ---- any type, any value


def _of(*cases: tuple[Any, Any]) -> Any:
    return st.sampled_from(cases).flatmap(lambda case: st.tuples(st.just(case[0]), case[1]))


_zones = st.timedeltas(
    datetime.timedelta(hours=-23), datetime.timedelta(hours=23)
).map(datetime.timezone)  # fmt: skip
_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
scalars: list[tuple[Any, Any]] = [
    (int, st.integers() | st.booleans()),
    (float, st.floats() | st.integers()),
    (str, _text),
    (bool, st.booleans()),
    (type(None), st.none()),
    (Dec, st.decimals()),
    (Date, st.dates()),
    (Moment, st.datetimes(timezones=st.none() | _zones)),
    (datetime.time, st.times(timezones=st.none() | _zones)),
    (datetime.timedelta, st.timedeltas()),
    (uuid.UUID, st.uuids()),
    (bytes, st.binary(max_size=5)),
    (Size, st.sampled_from(Size)),
    (Level, st.sampled_from(Level)),
    (Odd, st.sampled_from(Odd)),
    (Literal["a", 1, None], st.sampled_from(["a", 1, None])),
    (Accepted, st.builds(Accepted, st.integers())),
    (Rejected, st.builds(Rejected, st.integers(), _text)),
    (Point, st.builds(Point, st.floats(allow_nan=False), st.floats(allow_nan=False))),
    (Model, st.builds(Model, name=_text, day=st.dates())),
    (Struct, st.builds(Struct, _text, st.dates())),
    (Pair, st.builds(Pair, st.dates(), st.integers())),
]
Typed = tuple[Any, Any]


def _wider(inner: list[Typed], draw: Any) -> Typed:
    """A type made of others, and the strategy of its values."""
    (one, ones), (two, twos) = draw(st.sampled_from(inner)), draw(st.sampled_from(inner))
    hashable = [case for case in scalars if case[0] not in (Accepted, Rejected, Model, Struct, Dec)]
    key, keys = draw(st.sampled_from(hashable))
    keys = keys.filter(lambda each: each == each)
    return draw(
        st.sampled_from(
            [
                (list[one], st.lists(ones, max_size=3)),
                (tuple[one, ...], st.lists(ones, max_size=3).map(tuple)),
                (tuple[one, two], st.tuples(ones, twos)),
                (dict[key, one], st.dictionaries(keys, ones, max_size=3)),
                (set[key], st.sets(keys, max_size=3)),
                (one | two, ones | twos),
                (one | two | None, ones | twos | st.none()),
                (one | list[two] | str, ones | st.lists(twos, max_size=2) | _text),
                (Page[one], st.builds(Page, st.lists(ones, max_size=2), st.none() | ones)),
                (Box[one], st.builds(Box, ones)),
            ]
        )
    )


@st.composite
def typed_values(draw: Any) -> tuple[Any, Any]:
    known = list(scalars)
    for _ in range(draw(st.integers(0, 4))):
        known.append(_wider([*known[-3:], draw(st.sampled_from(scalars))], draw))
    of, values = known[-1]
    return of, draw(values)


@given(typed_values())
def test_every_value_of_every_type_comes_back(case: tuple[Any, Any]) -> None:
    """Random values of random types, nested: with all their types."""
    of, value = case
    assert exact(there_and_back(of, value)) == exact(value)


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(CASES), json_like)
def test_what_is_written_can_be_read_and_nothing_else_is_written(
    case: tuple[Any, Any], value: Any
) -> None:
    """Any value for any type: it is refused, or comes back as it was."""
    of, _ = case
    codec = JsonCodec(of)
    try:
        data = codec.encode(value)
    except UsageError:
        return
    assert exact(codec.decode(data)) == exact(value)
