"""Records, verdicts and times of claims, without a server."""

import math
import pickle
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs._core.capabilities import Engine
from dibs._core.claim import (
    NO_PAYLOAD,
    ExistingClaim,
    Replay,
    answer_duplicate,
    complete_request,
    done_record,
    encoded_note,
    fingerprint_in,
    framed,
    read_claim,
    read_complete,
    read_record,
    running_record,
    seems_dead,
    since_in,
)
from dibs._core.keys import fingerprint
from dibs._core.lease import WON, HoldCall
from dibs._core.options import ClaimOptions, HoldOptions, Settings
from dibs._core.request import REPEATED, ErrorReply, pack
from dibs.errors import Duplicate, Mismatch, UsageError

TOKEN = b"5a1f-2c@web-1:4711"
NOW = 1_731_640_000.0
LUA = Engine(set_nx_get=True, compare_delete="LUA")
ONE, TWO = fingerprint({"a": 1}), fingerprint({"a": 2})

tokens = st.builds(lambda a, b: b"%x-%x@web-1:%d" % (a, b, b), st.integers(0), st.integers(0))
marks = st.just(NO_PAYLOAD) | st.integers().map(fingerprint)
times = st.floats(0, 4e9)


SETTINGS = Settings(namespace="", on_outage="open")
CALL = HoldCall(b"order:4711", "order:4711", None, HoldOptions(SETTINGS, ttl=10, renew=True))


def chosen(**options: Any) -> ClaimOptions:
    return ClaimOptions(**{"window": 60, **options})


def verdict(found: ExistingClaim, mark: bytes = NO_PAYLOAD, **options: Any) -> Any:
    return answer_duplicate(chosen(**options), CALL, mark, found)


def running(mark: bytes = NO_PAYLOAD, *, since: float = NOW, left: float = 7.5) -> ExistingClaim:
    return read_record(running_record(TOKEN, mark, since), left)


def done(
    value: Any, mark: bytes = NO_PAYLOAD, *, left: float = 42.0, **options: Any
) -> ExistingClaim:
    kept = framed(chosen(after="replay", **options), value, NOW, 0.2)
    return read_record(done_record(running_record(TOKEN, mark, NOW), kept), left)


# ---- the record


@given(tokens, marks, times, st.floats(0, 1e6))
def test_a_running_record_says_what_was_put_in(
    token: bytes, mark: bytes, since: float, left: float
) -> None:
    """Fingerprint and time, to the millisecond; who runs it stays readable behind the @."""
    record = running_record(token, mark, since)
    found = read_record(record, left)
    assert found.state == "running" and found.fingerprint == mark and found.left == left
    assert abs(found.since - since) <= 0.001
    assert record.partition(b"@")[2] == token.partition(b"@")[2]
    assert len(record) < 200


@given(tokens, marks, times, st.binary(max_size=50))
def test_a_done_record_says_what_was_put_in(
    token: bytes, mark: bytes, since: float, result: bytes
) -> None:
    """The fingerprint and the result, to the byte; and never who it was."""
    record = done_record(running_record(token, mark, since), result)
    assert read_record(record, 5.0) == ExistingClaim("done", 5.0, mark, result=result)
    assert b"web-1" not in record.partition(b"\n")[0]


@given(st.tuples(tokens, marks, times), st.tuples(tokens, marks, times))
def test_two_claims_never_have_one_record(
    one: tuple[bytes, bytes, float], two: tuple[bytes, bytes, float]
) -> None:
    """The token is in it, running or done: what compares records compares owners."""
    if one[0] != two[0]:
        assert running_record(*one) != running_record(*two)
        left = [done_record(running_record(*each), b"same") for each in (one, two)]
        assert left[0] != left[1]


@given(st.binary() | st.none() | st.integers(), st.floats(-10, 1e9) | st.just(math.inf))
def test_whatever_is_there_can_be_read(value: Any, left: float) -> None:
    """Foreign bytes, foreign types: the key is taken, for a time that is not negative."""
    found = read_record(value, left)
    assert found.state in ("running", "done") and found.left >= 0


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"1",
        TOKEN,
        b"hello my dad",
        b"hello my dad@home",
        b"a - " + b"f" * 600 + b"@b",
        b"a - -1f@b",
        b"a - 0x1f@b",
        b"dibs1 json - 1.0 0.1\n17",
        b"dibs1 ~ 5a1f-2c@web-1:4711",
        b"dibs1 done",
    ],
)
def test_a_foreign_value_runs_without_payload_and_time(value: bytes) -> None:
    """A plain lease, a cached value, another program's: nothing is read into it."""
    assert read_record(value, 5.0) == ExistingClaim("running", 5.0, NO_PAYLOAD, 0.0, value=value)


# ---- claiming


def test_what_the_reply_to_a_claim_means() -> None:
    """nil or our own record: ours. Anything else: another caller's, for the remaining time."""
    mine = running_record(TOKEN, ONE, NOW)
    theirs = running_record(b"77-1@web-2:9", TWO, NOW)
    assert read_claim([None, 10_000], mine) == read_claim([mine, 10_000], mine) == WON
    assert read_claim([theirs, 1500], mine) == ExistingClaim("running", 1.5, TWO, NOW, value=theirs)
    assert read_claim([theirs, -2], mine) == ExistingClaim(
        "running", 0.0, TWO, NOW, value=theirs
    ), "gone meanwhile"
    assert read_claim([b"1", -1], mine) == ExistingClaim("running", math.inf, value=b"1"), (
        "by another program"
    )
    refused = ErrorReply("NOPERM no PTTL")
    assert read_claim([b"1", refused], mine) == ExistingClaim("running", math.inf, value=b"1")
    assert read_claim([done_record(mine, b""), 1500], mine) == ExistingClaim("done", 1.5, ONE)


@pytest.mark.parametrize("note", [5, b"x", "x" * 201, "\ud800", ["x"]])
def test_a_note_is_a_short_text(note: object) -> None:
    """Of 200 characters at most, which can be sent."""
    assert encoded_note(None) == b"" and encoded_note("x" * 200) == b"\n" + b"x" * 200
    with pytest.raises(UsageError, match="note"):
        encoded_note(note)


@given(marks, marks, st.booleans())
def test_a_mismatch_needs_two_payloads(mine: bytes, theirs: bytes, is_done: bool) -> None:
    """Mismatch exactly where both have one and they differ, running or done."""
    found = done(17, theirs) if is_done else running(theirs)
    differ = NO_PAYLOAD not in (mine, theirs) and mine != theirs
    for after in ("release", "hold", "replay"):
        assert isinstance(verdict(found, mine, after=after), Mismatch) == differ


@pytest.mark.parametrize("value", [None, 0, "", {}, [], False, 0.0, {"order": [17]}])
def test_a_result_is_replayed_whatever_it_is(value: Any) -> None:
    """Falsy or not, with after="replay"; otherwise it is a Duplicate that is done."""
    assert verdict(done(value), after="replay") == Replay(value)
    for after in ("release", "hold"):
        got = verdict(done(value), after=after)
        assert isinstance(got, Duplicate) and got.state == "done" and got.retry_after == 42.0


@dataclass
class Order:
    number: int


@dataclass
class Receipt:
    number: int
    paid: bool


def test_a_result_of_another_schema_is_only_done() -> None:
    """Another type, another codec, torn bytes, none at all: Duplicate, and no exception."""
    kept = done(Order(17), type=Order)
    assert verdict(kept, after="replay", type=Order) == Replay(Order(17))
    others: list[dict[str, Any]] = [
        {"type": Receipt}, {"type": int}, {}, {"codec": "pickle"}, {"codec": "json+zlib"},
    ]  # fmt: skip
    for other in others:
        assert isinstance(verdict(kept, after="replay", **other), Duplicate)
    torn = kept._replace(result=kept.result[:-3])
    empty = kept._replace(result=b"")
    for found in (torn, empty):
        got = verdict(found, after="replay", type=Order)
        assert isinstance(got, Duplicate) and got.state == "done"


@given(st.sampled_from(["release", "hold", "replay"]), st.floats(0.001, 1e6), st.floats(0, 1e6))
def test_retry_after_is_never_too_early(after: Any, window: float, left: float) -> None:
    """At least what the store says; one that will hold its key keeps it a window after its end."""
    got = verdict(running(left=left), after=after, window=window)
    assert isinstance(got, Duplicate) and got.state == "running"
    assert got.retry_after == (max(left, window) if after == "hold" else left)
    assert verdict(read_record(TOKEN, left), after="hold").retry_after == left, "a plain lease"


def test_retry_after_of_one_that_is_done_is_what_the_store_says() -> None:
    """No arithmetic on clocks: it is done, and the key is kept that long."""
    for after in ("release", "hold"):
        assert verdict(done(17, left=0.25), after=after, window=3600).retry_after == 0.25
    forever = read_record(b"1", math.inf)
    assert verdict(forever, after="hold").retry_after == math.inf


# ---- the options


def test_how_long_a_crash_blocks_the_key() -> None:
    """By default the window, at least a second, ten at most."""
    asked = [(0.001, 1), (1, 1), (5, 5), (10, 10), (timedelta(days=1), 10)]
    for window, lease in asked:
        assert chosen(window=window).lease == lease
    assert chosen(window=1, lease=timedelta(minutes=1)).lease == 60
    assert chosen(window=60, lease=0.5).lease == 0.5


@pytest.mark.parametrize(
    ("word", "options"),
    [
        ("window", {"window": 0}),
        ("window", {"window": math.inf}),
        ("window", {"window": None}),
        ("lease", {"lease": -1}),
        ("lease", {"lease": "1"}),
        ("after", {"after": ""}),
        ("after", {"after": None}),
        ("on_error", {"on_error": "raise"}),
        ("codec", {"codec": "xml"}),
        ("compression", {"codec": "json+lzma"}),
    ],
)
def test_an_option_that_makes_no_sense(word: str, options: dict[str, Any]) -> None:
    """UsageError, by its name."""
    with pytest.raises(UsageError, match=word):
        chosen(**options)


class Moody:
    """A codec that raises what it likes."""

    name, fingerprint = "moody", "-"

    def encode(self, value: Any) -> bytes:
        raise value

    def decode(self, data: bytes) -> Any:
        raise AssertionError


@pytest.mark.parametrize("error", [LookupError("x"), RecursionError(), UsageError("as it says")])
def test_what_a_codec_raises_is_a_mistake_of_the_caller(error: Exception) -> None:
    """Always a UsageError, so that the claim is ended; its own UsageErrors are passed on."""
    with pytest.raises(UsageError, match=r"moody cannot encode this result|as it says"):
        framed(chosen(codec=Moody()), error, NOW, 0.1)


# ---- completing and sentences


def test_completing_by_script_is_one_command_that_carries_it() -> None:
    """There may be no caller left to answer a NOSCRIPT; delivered until the lease would have
    ended."""
    request = complete_request(LUA, b"order:1", b"the claim", b"what is left", 50_000, 12.5)
    assert request.replies == 1 and request.key == b"order:1" and request.until == 12.5
    assert request.payload.startswith(b"*7\r\n$4\r\nEVAL\r\n")
    assert b"complete.lua" in request.payload and b"$5\r\n50000\r\n" in request.payload


@pytest.mark.parametrize("native", ["DELEX", "DELIFEQ"])
def test_completing_is_a_compare_and_set_where_the_server_has_it(native: Any) -> None:
    """SET … IFEQ … GET: one command without a script, which answers with the old value."""
    engine = Engine(set_nx_get=True, compare_delete=native)
    request = complete_request(engine, b"order:1", b"the claim", b"what is left", 50_000, 12.5)
    words = ("SET", b"order:1", b"what is left", "IFEQ", b"the claim", "PX", 50_000, "GET")
    assert request.payload == pack(*words)
    assert (request.replies, request.until) == (1, 12.5)


@pytest.mark.parametrize(
    ("reply", "done"),
    [
        (1, True),
        (b"the claim", True),
        (b"what is left", True),  # a repeated request
        (0, False),
        (REPEATED, False),
        (-2, False),
        (None, False),
        (b"of another", False),
    ],
)
def test_what_the_reply_to_completing_says(reply: Any, done: bool) -> None:
    """By script 1; by compare-and-set the old value: the claim, or what is left (repeated)."""
    assert read_complete(reply, b"the claim", b"what is left") is done


def test_refusals_carry_facts_and_survive_pickling() -> None:
    """Facts as attributes, a sentence without the key, the same after a trip to another process."""
    errors = [
        verdict(running()),
        verdict(running(), message="one moment, please"),
        verdict(done(17)),
        verdict(read_record(b"1", math.inf)),
        verdict(running(ONE), TWO),
    ]
    for error in errors:
        twin = pickle.loads(pickle.dumps(error))
        assert type(twin) is type(error) and vars(twin) == vars(error)
        assert str(twin) == str(error) and error.key == "order:4711"
        assert "4711" not in f"{error} {error!r}"
    assert [str(error) for error in errors] == [
        "order:* is being processed; try again in 7.5 s",
        "one moment, please",
        "order:* was processed already; try again in 42 s",
        "order:* is being processed",
        "order:* was used before with another payload; use a new key",
    ]


def test_the_fingerprint_and_the_beginning_are_in_the_value_of_a_running_claim() -> None:
    """So that a duplicate, and a table of what was done, can compare it."""
    mark = fingerprint(("a", 1))
    running = running_record(TOKEN, mark, 12.5)
    assert fingerprint_in(running) == mark
    assert since_in(running) == 12.5


@pytest.mark.parametrize(
    ("left", "is_dead"), [(30.0, False), (20.0, False), (19.9, True), (0.0, True)]
)
def test_a_claim_seems_dead_whose_renewal_is_overdue(left: float, is_dead: bool) -> None:
    """It is renewed after a third of its lease; what is done, or has no end, is not dead."""
    options = ClaimOptions(window=60, after="replay", lease=30)
    assert seems_dead(options, ExistingClaim("running", left)) is is_dead
    assert not seems_dead(options, ExistingClaim("done", left))
    assert not seems_dead(options, ExistingClaim("running", math.inf))
