"""Keys, names, templates and times."""

import dataclasses
import datetime
import decimal
import enum
import itertools
import pathlib
import re
import string
import subprocess
import sys
import uuid
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from dibs._core.keys import (
    LONGEST_KEY,
    SLOTS,
    Template,
    _hash_tag,
    check_fields,
    check_ignored,
    checked_namespace,
    companion_key,
    expand,
    public_name,
    seconds,
)
from dibs.errors import UsageError


@given(st.floats(min_value=0.001, max_value=1e8))
def test_a_good_time_comes_back_as_it_went_in(value: float) -> None:
    """Seconds stay seconds."""
    assert seconds(value, "ttl") == value


@given(st.one_of(st.floats(max_value=0.0009), st.just(float("nan")), st.just(float("inf"))))
def test_a_bad_time_is_refused(value: float) -> None:
    """Zero, negative, tiny, NaN, endless."""
    with pytest.raises(UsageError, match="ttl"):
        seconds(value, "ttl")


@given(st.timedeltas(min_value=timedelta(milliseconds=1), max_value=timedelta(days=3000)))
def test_timedeltas_are_times(value: timedelta) -> None:
    """A timedelta is its seconds."""
    assert seconds(value, "ttl") == value.total_seconds()


@given(st.text(min_size=1, max_size=200), st.text(max_size=50))
def test_a_key_is_namespace_and_key(key: str, namespace: str) -> None:
    """Any text that can be written as UTF-8 and is not too long."""
    try:
        data = f"{namespace}{key}".encode()
    except UnicodeEncodeError:
        return
    if len(data) <= LONGEST_KEY:
        assert expand(namespace, key) == data


@given(st.text(alphabet=st.sampled_from("{}ab:"), min_size=1) | st.text(min_size=1, max_size=20))
def test_a_companion_lives_in_the_same_slot(key: str) -> None:
    """`fence:{key}` hashes like `key`, with any braces in the key; `tea }` is one."""
    data = key.encode(errors="replace")
    for namespace in (b"", b"shop:", b"{shop}:", b"a}b:"):
        companion = companion_key(namespace + b"fence:", namespace + data)
        assert key_slot(companion) == key_slot(namespace + data)
        assert companion.startswith(namespace + b"fence:")


@given(st.text(min_size=1), st.text(min_size=1))
def test_a_companion_of_a_tagged_key_shares_its_tag(tag: str, rest: str) -> None:
    """`a{tag}b` and its companion hash by the tag."""
    if "}" in tag or "{" in rest:
        return
    try:
        key = f"{rest}{{{tag}}}".encode()
    except UnicodeEncodeError:
        return
    assert key_slot(companion_key(b"fence:", key)) == key_slot(key)


def test_there_is_a_companion_in_every_slot() -> None:
    """For any slot of a key that cannot be its own tag; always the same one."""
    slots = {key_slot(companion_key(b"lock:", b"}%d" % number)) for number in range(2000)}
    assert slots == {key_slot(b"}%d" % number) for number in range(2000)} and len(slots) > 1500
    assert companion_key(b"shop:lock:", b"shop:tea }") == b"shop:lock:{%b}shop:tea }" % _first_tag(
        key_slot(b"shop:tea }")
    )
    assert all(key_slot(_hash_tag(slot)) == slot for slot in range(SLOTS))


def _first_tag(slot: int) -> bytes:
    letters = string.digits + string.ascii_lowercase + string.ascii_uppercase
    words = ("".join(word).encode() for word in itertools.product(letters, repeat=3))
    return next(word for word in words if key_slot(word) == slot)


@pytest.mark.parametrize("namespace", ["shop:", "{shop}:", "a{shop}b{", "a}b:", ""])
def test_a_namespace_may_be_a_cluster_hash_tag(namespace: str) -> None:
    """All keys in one slot, where that is wanted; a lone closing brace does no harm."""
    assert checked_namespace(namespace) == namespace
    for key in ("a", "a}", "{a", "{a}", "{}", "}{"):
        data = expand(namespace, key)
        assert key_slot(companion_key(f"{namespace}lock:".encode(), data)) == key_slot(data)


@pytest.mark.parametrize("namespace", ["a{b:", "{}:", "}{:", 7, None, "\udcff:"])
def test_a_namespace_that_spoils_every_tag_is_refused(namespace: Any) -> None:
    """Its brace would swallow the tags of companion keys; a lone surrogate cannot be sent."""
    with pytest.raises(UsageError, match="namespace"):
        checked_namespace(namespace)


@given(st.text(min_size=1))
def test_a_public_name_shows_the_first_word_at_most(key: str) -> None:
    """Nothing behind the first colon; without one, nothing that may be an id."""
    name = public_name(key)
    if ":" in key:
        assert name in (f"{key.split(':')[0]}:*", "*")
    elif name != "*":
        assert name == key and len(key) <= 64
        assert not any(letter.isdecimal() or letter in "@ \n" for letter in key)


@pytest.mark.parametrize(
    ("head", "is_shown"),
    [
        ("user", True), ("s3", True), ("es26-v2", True), ("姓名", True), ("{shop}", True),
        ("shop/orders.new", True), ("", False), ("U4711", False), ("ann@shop.example", False),
        ("2001", False), ("order\n2026-01-01 CRITICAL", False), ("a\x1b[2J", False), ("a b", False),
        ("a\u202eb", False), ("a\u2028b", False), ("a\x85b", False), ("x" * 65, False),
    ],
)  # fmt: skip
def test_a_first_word_is_shown_if_it_can_be_one_of_the_code(head: str, is_shown: bool) -> None:
    """What a user may have chosen would be a person's, or a line of its own in a log."""
    assert public_name(f"{head}:7") == (f"{head}:*" if is_shown else "*")


def test_a_template_walks_attributes_and_mappings() -> None:
    """Dotted paths, defaults, literal braces."""

    def handler(event: object, kind: str = "all") -> None: ...

    template = Template("a:{event.source.user}:{kind}:{{x}}", handler)
    source = {"source": {"user": "u1"}}
    assert template((source,), {}) == "a:u1:all:{x}"
    assert template((source,), {"kind": "new"}) == "a:u1:new:{x}"


def test_a_template_needs_no_field() -> None:
    """One key for all calls; braces and a percent sign are what they are."""
    assert [made(text, 1) for text in ("nightly", "{{x}}", "100%")] == ["nightly", "{x}", "100%"]


# ---- what makes a key


class Colour(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    LARGE = 3


class Mode(enum.StrEnum):
    FAST = "fast"


class Order:
    id = 7


@dataclasses.dataclass
class Cart:
    id: int
    items: list[str]


def made(text: str, *values: Any) -> str:
    """The key that *text* makes of *values*, whose parameters are a, b and c."""

    def function(a: Any, b: Any = "x", c: Any = "x") -> None: ...

    return Template(text, function)(values, {})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("u1", "u1"),
        ("tpe-main", "tpe-main"),
        ("100 %", "100 %"),
        ("a:b", "a:b"),
        ("麵", "麵"),
        (42, "42"),
        (-1, "-1"),
        (True, "True"),
        (1.5, "1.5"),
        (decimal.Decimal("1.50"), "1.50"),
        (datetime.date(2026, 11, 15), "2026-11-15"),
        (datetime.datetime(2026, 11, 15, 8, tzinfo=datetime.UTC), "2026-11-15 08:00:00+00:00"),
        (datetime.time(8, 30), "08:30:00"),
        (datetime.timedelta(seconds=5), "0:00:05"),
        (uuid.UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (pathlib.PurePosixPath("a/b"), "a/b"),
        (Colour.RED, "red"),
        (Size.LARGE, "3"),
        (Mode.FAST, "fast"),
        (b"\x00ab", "006162"),
        (bytearray(b"ab"), "6162"),
    ],
)
def test_a_plain_value_is_its_text(value: Any, text: str) -> None:
    """Text, numbers, booleans, dates, ids; an enum is its value, bytes are hexadecimal digits."""
    assert made("processing:user:{a}", value) == f"processing:user:{text}"


@pytest.mark.parametrize(
    "value",
    [object(), Order(), Cart(1, []), {"a": 1}, ["a"], ("a",), {1, 2}, Order, print, 1j, [object()]],
    ids=lambda value: type(value).__name__,
)
def test_what_is_not_plain_is_refused_and_the_fix_named(value: Any) -> None:
    """No address in memory and no order of a set becomes a key."""
    with pytest.raises(UsageError, match=r"\{a\.id\} or \{a:hash\}") as caught:
        made("charge:{a}", value)
    assert type(value).__name__ in str(caught.value)
    with pytest.raises(UsageError, match=r"\{a\.cart\.id\} or \{a\.cart:hash\}"):
        made("charge:{a.cart}", {"cart": value})


def test_a_number_that_fits_no_key_is_refused() -> None:
    """Python writes no number of more than 4300 digits; the hash does not either."""
    for text in ("a:{a}", "a:{a:hash}"):
        with pytest.raises(UsageError, match="digits"):
            made(text, 10**5000)


@pytest.mark.parametrize("value", [None, "", b""])
def test_nothing_is_refused_and_the_fix_named(value: Any) -> None:
    """An empty field would join the keys of all who have none; a hash may be made of it."""
    with pytest.raises(UsageError, match=r"empty.*\{a:hash\}"):
        made("search:{a}", value)
    assert re.fullmatch("search:[0-9a-f]{32}", made("search:{a:hash}", value))


def test_a_hash_takes_any_data() -> None:
    """Order of dicts and sets does not count; what differs has another; long and odd values fit."""
    values: list[Any] = [
        None, "", "a", "x" * 5000, "tea }", "\ud800", 1, "1", True, 1.5, [1], [[1]], {"a": 1},
        {1, 2}, b"1", Cart(1, ["tea"]), Cart(1, ["rice"]),
    ]  # fmt: skip
    keys = [made("search:{a:hash}", value) for value in values]
    assert len(set(keys)) == len(values) and all(len(key) == 39 for key in keys)
    one, two = {"a": 1, "b": {"c", "d"}}, {"b": {"d", "c"}, "a": 1}
    assert made("s:{a:hash}", one) == made("s:{a:hash}", two)
    assert made("s:{a.items:hash}:{b}", Cart(1, ["x"]), "y").endswith(":y")
    with pytest.raises(UsageError, match=r"s:\{a:hash\}.*Order"):
        made("s:{a:hash}", Order())
    with pytest.raises(UsageError, match=r"has no value for 'a\.nothing'"):
        made("s:{a.nothing:hash}", Order())


def test_a_hash_is_the_same_in_every_process() -> None:
    """With any seed of Python's own hashes."""
    program = (
        "from dibs._core.keys import Template\n"
        "print(Template('s:{a:hash}', lambda a: 0)(({'x': {'tea', 'rice', 'soup'}},), {}))"
    )
    keys = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }  # fmt: skip
    assert len(keys) == 1


@pytest.mark.parametrize(
    ("text", "values", "key"),
    [
        ("profile:{a}:{b}", ("t", "u"), "profile:t:u"),
        ("profile:{a}:{b}", ("t", "u:v"), "profile:t:u:v"),
        ("profile:{a}:{b}", ("t:u", "v"), "profile:t%3Au:v"),
        ("profile:{a}:{b}", ("t%3Au", "v"), "profile:t%253Au:v"),
        ("profile:{a}:{b}", ("100%", "50%"), "profile:100%:50%"),
        ("{a}-{b}:x", ("a-b", "c-d"), "a%2Db-c-d:x"),
        ("{a}x{b}", ("1x2", "3"), "1%782x3"),
        ("{a}。{b}", ("。", "。"), "%E3%80%82。。"),
        ("search:{a}", ("tea }",), "search:tea %7D"),
        ("search:{a}", ("{x}",), "search:%7Bx%7D"),
        ("search:{a}", ("%7B",), "search:%257B"),
        ("search:{a}", ("%25 %41 %",), "search:%2525 %41 %"),
        ("cart:{{{a}}}:{b}", ("7", "x}"), "cart:{7}:x%7D"),
    ],
)
def test_only_what_could_be_confused_is_quoted(
    text: str, values: tuple[str, ...], key: str
) -> None:
    """The separator in all fields but the last, and braces; every other value is as it is."""
    assert made(text, *values) == key


odd = st.text(alphabet=st.sampled_from(":%-{}x2357ABDa"), min_size=1, max_size=6)
plain = odd | st.text(min_size=1, max_size=4) | st.integers().map(str)
templates = st.sampled_from(
    [
        "{a}:{b}:{c}",
        "p:{a}-:{b}x{c}",
        "{a}::{b}|{c}x",
        "{a}D{b}A{c}",
        "{a}}}{b}{{{c}",
        "{a}a{b}:{c}:",
    ]
)


@given(templates, st.tuples(plain, plain, plain), st.tuples(plain, plain, plain))
def test_no_two_calls_have_the_same_key(
    text: str, one: tuple[str, ...], two: tuple[str, ...]
) -> None:
    """The key tells the fields apart, whatever characters are in them."""
    assert (made(text, *one) == made(text, *two)) == (one == two)


@given(odd, odd, odd, odd)
def test_a_separator_in_a_value_separates_nothing(a: str, b: str, c: str, d: str) -> None:
    """The same characters cut in another place are another key."""
    for text in ("{a}:{b}", "{a}x{b}", "{a}A{b}"):
        separator = text[3]
        one, two = (f"{a}{separator}{b}", c + d), (a, f"{b}{separator}{c}{d}")
        assert made(text, *one) != made(text, *two)


@pytest.mark.parametrize("letter", "ABCDEFabcdef")
def test_a_separator_that_is_a_hexadecimal_digit_separates(letter: str) -> None:
    """A letter that is also in the code of a brace: `%7B` and B."""
    text = f"{{a}}{letter}{{b}}"
    values = ["%7", "{", "}", "%2", "%", "B", "D", "B{", "D}", "BB"]
    pairs = [(a, b) for a in values for b in values]
    assert len({made(text, a, b) for a, b in pairs}) == len(pairs)


@given(st.text(min_size=1).filter(lambda text: "\x00" not in text))
def test_a_value_never_chooses_the_cluster_slot(value: str) -> None:
    """No brace of a value is left in the key."""
    assert not set("{}") & set(made("search:{a}:{b}", value, value))


@pytest.mark.parametrize(
    "text",
    ["{a}{b}", "x:{a}{b}:{c}", "{a}2{b}", "{a}%{b}", "{a:>4}", "{a!r}", "{}", "{0}", "{a:HASH}"],
)
def test_a_template_that_makes_no_clear_keys_is_refused(text: str) -> None:
    """Nothing between two fields, or what looks like a part of a value: when it is decorated."""
    with pytest.raises(UsageError, match=re.escape(repr(text))):
        made(text, "x")


def test_a_field_that_is_missing_is_named() -> None:
    """By its path, not by the value found instead."""
    with pytest.raises(UsageError, match=r"'a\.id'") as caught:
        made("x:{a.id}", SimpleNamespace(name="secret"))
    assert "secret" not in str(caught.value)


def test_a_template_without_a_function_takes_its_fields_by_name() -> None:
    """The same keys as for a function with these parameters, and it says which it needs."""
    template = Template("order:{shop.id}:{id}:{shop.zone}")
    assert template.fields == ("shop", "id")
    shop = {"id": 7, "zone": "a:b"}
    assert template((), {"shop": shop, "id": "x:y"}) == "order:7:x%3Ay:a:b"
    assert Template("plain").fields == () and Template("plain")((), {}) == "plain"


def of_nothing() -> None: ...
def of_one(item: str) -> None: ...
def of_two(item: str, db: object = None) -> None: ...
def of_class(cls) -> None: ...
def of_many(*items: str, **options: str) -> None: ...


class Shop:
    def menu(self) -> None: ...
    def price(self, item: str) -> None: ...


@pytest.mark.parametrize(
    ("text", "function", "ignore"),
    [
        ("menu", of_nothing, ()),
        ("menu", Shop.menu, ()),
        ("menu", of_class, ()),
        ("price:{item}", of_two, ()),
        ("price:{self.id}", Shop.price, ()),
        ("price", of_one, "item"),
        ("price", of_one, ["item"]),
        ("price", of_two, ("item", "db")),
        ("price", of_many, ("items", "options")),
        ("price:{item}", of_two, ("db",)),
    ],
)
def test_a_template_tells_calls_apart(text: str, function: Any, ignore: Any) -> None:
    """By a field; or there is nothing to tell apart, or it was declared irrelevant."""
    check_fields(text, function, check_ignored(text, function, ignore))


@pytest.mark.parametrize(
    ("text", "function", "ignore", "said"),
    [
        ("price", of_one, (), r"ignore=\('item',\)"),
        ("price:tea", of_two, ("db",), r"'price:tea:{item}'.*ignore=\('db', 'item',\)"),
        ("price", of_many, (), r"'items', 'options',"),
        ("price", Shop.price, (), r"Shop.price\(\).*ignore=\('item',\)"),
        ("price", Shop.menu, ("item",), "no parameter 'item'"),
        ("price:{item.id}", of_one, ("item",), "'item' is a field"),
        ("price", of_one, 17, "ignore must name arguments"),
    ],
)
def test_a_template_that_forgets_the_arguments(
    text: str, function: Any, ignore: Any, said: str
) -> None:
    """UsageError with what to write instead; an f-string in its place is the usual cause."""
    with pytest.raises(UsageError, match=said):
        check_fields(text, function, check_ignored(text, function, ignore))
