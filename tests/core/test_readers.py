"""What is read from the store is not believed: no bytes make a reader raise something odd."""

import contextlib
import math
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from dibs._core import cache, claim, codec, inspection, lease, schedule, tracking
from dibs._core.connection import Outage, interpret
from dibs._core.inspection import KeyReading, classify
from dibs._core.request import OddReply, Reply
from dibs.errors import UsageError
from tests.odd_replies import TOKEN, mutated

SEEN = b"9b1e" + b"0" * 28
CODECS = [
    codec.make_codec(name, of)
    for name in ("json", "orjson", "msgspec", "json+zlib")
    for of in (None, dict[str, list[int | str]])
]


def framed(each: codec.Codec) -> bytes:
    return codec.frame(
        each.name, each.fingerprint, 1731640000.123, 0.2, each.encode({"a": [1, "x"]})
    )


RECORDS = [
    TOKEN + b"@web-1:4711",
    TOKEN + b" " + SEEN + b" 193310c1a40@web-1:4711\nnote %C3",
    b"dibs1 done " + TOKEN + b" note%20x " + SEEN + b"\n" + framed(CODECS[0]),
    b"dibs1 ~ " + TOKEN + b"@h:1 5000\n" + framed(CODECS[0]),
    b"dibs1 ! - 1731640000.1 0.1 0123456789abcdef\nValueError",
    b"dibs1 rate 12 34",
    b"!",
    b"0123456789abcdef",
    b"1731640000000 web-1:4711 finished 1731640000000 12",
    b"1731640000000 web-1:4711 new",
    *map(framed, CODECS),
]
KEYS = [b"ns:a", b"ns:fence:{a}", b"ns:lock:{a}", b"ns:scheduled-last:a", b"ns:tag:a", b"ns:\xff"]
TTLS = [-2, -1, 0, 1, 4000, 10**15, 10**400, None, 1.5, True]
OPTIONS: list[Any] = [
    SimpleNamespace(codec=each, head=codec.head_of(each), stale=stale, ttl=10.0)
    for each in CODECS
    for stale in (0.0, 5.0)
]


def is_value(reading: cache.Reading) -> None:
    """What callers do with it."""
    assert math.isfinite(reading.left) and isinstance(reading.won, bool)


def readers(chance: random.Random, value: bytes) -> list[Callable[[], object]]:
    """Every reader of values, as the store's replies could call it."""
    ttl, options = chance.choice(TTLS), chance.choice(OPTIONS)
    pairs: list[Reply] = [value, chance.choice([b"1731640000000", 1.0, b"nan", b"x", 5]), value, 3]
    key, clock = chance.choice(KEYS), 1731640000.0
    return [
        lambda: is_value(cache.read_reply([value, ttl], options, [b"0123456789abcdef"])),
        lambda: is_value(cache.read_lock([value, 5, chance.randrange(4), value], options)),
        lambda: claim.read_claim([value, ttl], b"x"),
        lambda: (
            claim.fingerprint_in(value),
            claim.since_in(value),
            claim.done_record(value, b"x"),
        ),
        lambda: lease.read_peek([value, ttl]),
        lambda: lease.read_acquire([[value, value], ttl], TOKEN),
        lambda: lease.read_permit([[value, ttl, value]], TOKEN),
        lambda: lease.read_resume([value, 1, value], OPTIONS[0]),
        lambda: schedule.read_look([value, 1731640000000], lambda each: each),
        lambda: schedule.read_record(value),
        lambda: tracking.read_notes(pairs, 1.0),
        lambda: tracking.read_push([b"invalidate", [value]]),
        lambda: classify("ns:", KeyReading(key, b"string", [ttl, value]), clock),
        lambda: classify("ns:", KeyReading(key, b"zset", [5, 2, pairs]), clock),
        lambda: inspection.with_companions(
            classify("ns:", KeyReading(key, b"string", [5, value]), clock),
            [[value, b"0"], value, value, pairs, [value, 5]],
        ),
        lambda: inspection.read_info(value),
        lambda: codec.unframe(value),
    ]


@pytest.mark.parametrize("seed", range(10))
def test_no_bytes_make_a_reader_raise_something_odd(seed: int) -> None:
    """Records with changed bytes: an answer, or an outage that says why."""
    chance = random.Random(seed)
    for _ in range(400):
        value = mutated(chance.choice(RECORDS), chance)
        for read in readers(chance, value):
            with contextlib.suppress(Outage):
                interpret(read)


@pytest.mark.parametrize(
    "data",
    [
        b"dibs1 ~ x abc\n{}",
        b"dibs1 ! - 1 1\n\xff",
        b"dibs1 ! - nan inf\n",
        b"dibs1 json - 1 1\n" + b"[" * 200_000,
        b"dibs1 json - x 1\n1",
    ],
)
def test_a_value_that_cannot_be_read_is_none(data: bytes) -> None:
    """Poison, as any other foreign bytes; or a failure whose name is odd."""
    assert cache.read_reply([data, 5000], OPTIONS[0]).state in ("poison", "failed")


def test_a_note_that_is_no_text_is_shown_as_well_as_it_can_be() -> None:
    """The claim is done all the same."""
    found = claim.read_record(b"dibs1 done " + TOKEN + b" \xff 9b\nx", 5.0)
    assert (found.state, found.note) == ("done", "\ufffd")


@pytest.mark.parametrize(
    ("key", "data"),
    [
        (b"fence:{order:1}", b"9" * 5000),
        (b"scheduled-last:x", b"1731640000000 h finished 1 " + b"9" * 5000),
        (b"scheduled-last:x", b"9" * 5000),
        (b"bad", b"dibs1 done " + TOKEN + b" \xff 9b\nx"),
    ],
)
def test_one_bad_record_does_not_hide_the_others(key: bytes, data: bytes) -> None:
    """It is a row like any other."""
    assert classify("", KeyReading(key, b"string", [-1, data]), 1.0).key == key.decode()


def test_what_cannot_be_classified_is_a_row_that_says_so() -> None:
    """As a reply that is none."""
    entry = classify("", KeyReading(b"k", b"string", []), 1.0)
    assert (entry.kind, entry.state) == ("foreign", "unreadable")


def test_what_a_reader_raises_is_an_outage_that_quotes_nothing() -> None:
    """Errors of dibs pass; the others may quote the reply."""

    def read(error: Exception) -> None:
        raise error

    with pytest.raises(Outage) as caught:
        interpret(read, ValueError("user:42"))
    assert caught.value.cause.code == "protocol" and caught.value.sent
    assert "42" not in str(caught.value)
    with pytest.raises(UsageError):
        interpret(read, UsageError("x"))
    with pytest.raises(Outage):
        interpret(read, OddReply())


def test_a_scan_that_does_not_end_is_an_outage() -> None:
    """A cursor may come back once or twice, while a table is resized."""
    scan = inspection.Scan()
    for cursor in [b"1", b"2", b"1"]:
        assert scan.advanced(cursor) == cursor
    with pytest.raises(Outage):
        for _ in range(20):
            scan.advanced(b"1")
