"""Types of every kind, for the tests of what comes back from JSON."""

import datetime
import decimal
import enum
import json
import uuid
from collections import Counter, OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
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

from dibs._core.codec import JsonCodec

T = TypeVar("T")
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
class Picky:
    number: int

    def __post_init__(self) -> None:
        if self.number > 5:
            raise ValueError("too many")


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


class Hidden(pydantic.BaseModel):
    number: float
    _loaded_by: object = pydantic.PrivateAttr(default_factory=object)


class Model(pydantic.BaseModel):
    name: str
    day: Date
    data: bytes = b""
    anything: Any = None


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


class Conn:
    pass
