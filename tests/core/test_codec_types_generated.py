"""Types and values at random: each comes back as it was, or is refused."""

import datetime
import uuid
from typing import (
    Any,
    Literal,
)

from hypothesis import given
from hypothesis import strategies as st

from dibs._core.codec import JsonCodec
from dibs.errors import UsageError

from .sample_types import (
    CASES,
    Accepted,
    Box,
    Date,
    Dec,
    Level,
    Model,
    Moment,
    Odd,
    Page,
    Pair,
    Point,
    Rejected,
    Size,
    Struct,
    exact,
    there_and_back,
)

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
