"""How work ends, without a server: what is left, which write follows which, what is reported."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs._core.capabilities import Engine
from dibs._core.claim import (
    COMPLETED,
    LARGEST_RESULT,
    MOST_KEPT,
    ClaimRecord,
    DoneRequest,
    EndingVerdict,
    Met,
    RecordWrite,
    complete_request,
    done_record,
    first_write,
    is_run_over,
    left_by,
    next_write,
    no_room,
    read_record,
    read_write,
    running_record,
    warning_for,
    write_request,
)
from dibs._core.lease import (
    HoldCall,
    LeaseState,
    end_request,
    free_request,
    release_permit,
    release_request,
    shorten_permit,
    shorten_request,
)
from dibs._core.options import HoldOptions, Settings
from dibs._core.request import ErrorReply, OddReply

from .engines import ENGINES

SETTINGS = Settings(namespace="", on_outage="open")
TOKEN = b"5a1f-2c@web-1:4711"
CLAIM = running_record(TOKEN, b"-", 1_731_640_000.0)
OTHER = running_record(b"77-1@web-2:9", b"-", 1_731_640_000.0)

HOWS = st.sampled_from(["returned", "raised", "cancelled", "released", "handed_over"])
WORKS = st.sampled_from(["submission", "job", "run"])
AFTER = st.sampled_from(["release", "hold", "replay"])
ON_ERROR = st.sampled_from(["release", "hold"])


# ---- what is left


@pytest.mark.parametrize(
    ("how", "after", "on_error", "has_result", "left"),
    [
        ("returned", "release", "hold", True, "nothing"),
        ("returned", "hold", "release", True, "done"),
        ("returned", "replay", "release", True, "result"),
        ("returned", "replay", "release", False, "done"),
        ("raised", "replay", "release", True, "nothing"),
        ("raised", "replay", "hold", True, "done"),
        ("cancelled", "hold", "release", False, "nothing"),
        ("cancelled", "release", "hold", False, "done"),
        ("released", "replay", "hold", True, "nothing"),
        ("handed_over", "replay", "hold", True, "untouched"),
    ],
)
def test_what_a_submission_leaves(
    how: Any, after: Any, on_error: Any, has_result: bool, left: str
) -> None:
    """`after` for a success, `on_error` for a failure; whether its lease was lost or not."""
    for lost in (False, True):
        assert left_by(how, after, on_error, has_result=has_result, lost=lost) == left


@given(HOWS, AFTER, ON_ERROR, st.booleans(), WORKS, st.booleans())
def test_what_work_leaves(
    how: Any, after: Any, on_error: Any, has_result: bool, work: Any, lost: bool
) -> None:
    """A job or a run whose lease was lost is never done; a result is never made up."""
    left = left_by(how, after, on_error, has_result=has_result, work=work, lost=lost)
    assert (left == "untouched") is (how == "handed_over")
    if work != "submission" and lost:
        assert left in ("nothing", "untouched")
    if left == "result":
        assert how == "returned" and after == "replay" and has_result


@given(HOWS, st.booleans())
def test_when_a_run_is_over(how: Any, lost: bool) -> None:
    """It returned or raised under its lease; else another machine runs it."""
    assert is_run_over(how, lost=lost) is (how in ("returned", "raised") and not lost)


# ---- how it is written


class Store:
    """A model of one key on a server: what the requests of an end do there."""

    def __init__(self, value: bytes | None, *, is_full: bool, most: int) -> None:
        self.value = value
        self.is_full = is_full
        self.most = most
        """Longer values are refused."""
        self.clock = 1_000_000

    def execute(self, record: ClaimRecord, write: RecordWrite) -> Met:
        """As SET IFEQ and once_record.lua do."""
        value = record.value(write.left)
        is_plain = write.free_until is None and not write.forced
        if self.value is not None and self.value.startswith(value):
            return Met("written")
        if len(value) > self.most or (self.is_full and is_plain):
            return Met("refused")
        if self.value is None and (is_plain or self.clock >= (write.free_until or 0)):
            return Met("free", 0 if is_plain else self.clock)
        if self.value not in (None, record.claim):
            return Met("taken")
        if self.is_full and not write.forced:
            return Met("refused")
        self.value = value
        return Met("written")


STEPS = st.lists(st.sampled_from(["stay", "expire", "take", "end", "fill", "outlast"]), max_size=8)


@given(
    value=st.sampled_from([CLAIM, None, OTHER]),
    result=st.sampled_from([b"", b"{}", b"x" * 5000]),
    is_full=st.booleans(),
    most=st.sampled_from([500, 10_000]),
    steps=STEPS,
)
def test_whatever_the_end_meets(
    value: bytes | None, result: bytes, is_full: bool, most: int, steps: list[str]
) -> None:
    """Between the writes the claim expires, others take the key and end, memory runs out: what is
    another's is never touched, and where the key is ours or free it counts as done, unless the
    time for which it would be kept is over."""
    store, record = Store(value, is_full=is_full, most=most), ClaimRecord(CLAIM, result, 60_000)
    was_taken, was_full, is_over, write = value == OTHER, is_full, False, first_write(record)
    for number in range(7):
        before = store.value
        step = next_write(record, write, store.execute(record, write))
        assert before in (None, CLAIM, store.value), "another's is not touched"
        if not isinstance(step, RecordWrite):
            break
        write = step
        match steps[number] if number < len(steps) else "stay":
            case "expire":
                store.value = None if store.value == CLAIM else store.value
            case "take" if store.value is None:
                store.value, was_taken = OTHER, True
            case "end" if store.value == OTHER:
                store.value = None
            case "fill":
                store.is_full = was_full = True
            case "outlast":  # the time for which the record is kept
                store.clock += 70_000
                is_over = True
            case _:
                store.clock += 1000
    else:
        pytest.fail("it never ends")
    assert isinstance(step, EndingVerdict), "done alone is always taken"
    if step.kind == "late":
        assert was_taken or is_over
    else:
        stored = read_record(store.value, 1.0)
        assert store.value is not None and stored.state == "done"
        assert step.is_reduced is (stored.result != result)
        assert not step.is_reduced or was_full or len(result) > most
    is_quiet = step is COMPLETED
    assert (warning_for(step, "full") is None) is is_quiet
    assert (step.kind, step.code) == ("completed", None) or not is_quiet


def test_a_copy_that_arrives_late_does_nothing() -> None:
    """A late copy of the write to a free key: the record exists already, or its time is over."""
    store, record = Store(None, is_full=False, most=10_000), ClaimRecord(CLAIM, b"{}", 60_000)
    asked = next_write(record, first_write(record), store.execute(record, first_write(record)))
    assert asked == RecordWrite("result", 0)
    write = next_write(record, asked, store.execute(record, asked))
    assert write == RecordWrite("result", store.clock + 60_000)
    assert next_write(record, write, store.execute(record, write)) == EndingVerdict(
        "completed", was_free=True
    )
    assert store.execute(record, write) == Met("written")
    store.value, store.clock = None, store.clock + 60_000
    assert store.execute(record, write).what == "free" and store.value is None


def test_a_record_is_not_written_when_its_time_is_over() -> None:
    """It ends as late: another window would begin, and refuse a submission that is to run."""
    record = ClaimRecord(CLAIM, b"{}", 60_000)
    write = RecordWrite("result", 1_000_000 + 60_000)
    assert next_write(record, write, Met("free", 1_000_000 + 60_000)) == EndingVerdict("late")


def test_done_alone_is_not_longer_than_the_claim() -> None:
    """On a full server it takes no memory; a long note goes first."""
    for note in (b"", b"\njob-17", "\n工作十七".encode(), "\n作".encode() * 60):
        claim = running_record(TOKEN, b"f" * 32, 1_731_640_000.0, note)
        done = ClaimRecord(claim, b"result", 1000).value("done")
        assert len(done) <= len(claim) and read_record(done, 1.0).fingerprint == b"f" * 32
    assert ClaimRecord(CLAIM, b"{}", 1).value("result") == done_record(CLAIM, b"{}")


def test_a_result_beyond_every_limit_is_not_sent() -> None:
    """Redis would close the connection; and what is long is not kept for after an outage."""

    class Long(bytes):
        def __len__(self) -> int:
            return LARGEST_RESULT + 1

    assert first_write(ClaimRecord(CLAIM, Long(b"x"), 1)).left == "done"
    said = warning_for(EndingVerdict("completed", is_reduced=True), None)
    assert said is not None and "bytes" in said
    long = ClaimRecord(CLAIM, b"x" * MOST_KEPT, 1)
    request = write_request(
        ENGINES[0], b"k", long, RecordWrite("result"), long.value("result"), 5.0
    )
    assert request.until == 0.0


@pytest.mark.parametrize("engine", ENGINES)
def test_the_usual_write_is_a_compare_and_set(engine: Engine) -> None:
    """Worth delivering until the lease ends by itself; others go by script."""
    record = ClaimRecord(CLAIM, b"{}", 7000)
    value = record.value("result")
    usual = write_request(engine, b"k", record, RecordWrite("result"), value, 105.0)
    assert usual.payload == complete_request(engine, b"k", CLAIM, value, 7000, 105.0).payload
    assert usual.until == 105.0
    for write in (
        RecordWrite("result", 0),
        RecordWrite("done", None, True),
        RecordWrite("done", 17, True),
    ):
        other = write_request(engine, b"k", record, write, record.value(write.left), 105.0)
        assert b"once_record.lua" in other.payload and not other.until
    later = DoneRequest(b"k", record, 60.0)
    assert b"once_record.lua" in later.payload and later.until == 60.0


@pytest.mark.parametrize(
    ("reply", "met"),
    [
        (1, Met("written")),
        (CLAIM, Met("written")),
        (None, Met("free")),
        (-2, Met("free")),
        (1_731_640_000_000, Met("free", 1_731_640_000_000)),
        (0, Met("taken")),
        (OTHER, Met("taken")),
    ],
)
def test_what_a_write_has_met(reply: Any, met: Met) -> None:
    """By compare-and-set the old value, by script a number."""
    record = ClaimRecord(CLAIM, b"{}", 7000)
    assert read_write(RecordWrite("result"), record, record.value("result"), reply) == met


@pytest.mark.parametrize("reply", [None, -2, [], "OK"])
def test_a_free_key_is_not_written_again_and_again(reply: Any) -> None:
    """The script names the clock of the server; what does not is no answer of it."""
    record = ClaimRecord(CLAIM, b"{}", 7000)
    forced = RecordWrite("done", None, True)
    for write in (RecordWrite("result", 0), RecordWrite("result", 5), forced):
        with pytest.raises(OddReply):
            read_write(write, record, record.value("result"), reply)


def test_which_refusals_a_smaller_write_may_help() -> None:
    """Out of memory, or of a quota; not a replica, and no mistake of the caller."""
    full = no_room(ErrorReply("OOM command not allowed when used memory > 'maxmemory'."))
    assert full is not None and full.sent and full.cause.code == "oom"
    quota = no_room(ErrorReply("ERR max daily request limit exceeded"))
    assert quota is not None and quota.cause.code == "quota"
    assert no_room(ErrorReply("READONLY You can't write against a read only replica.")) is None
    assert no_room(ErrorReply("WRONGTYPE Operation against a key")) is None


# ---- leases and permits


def lease(**options: int) -> LeaseState:
    made = HoldOptions(SETTINGS, ttl=5, **options)
    return LeaseState(HoldCall(b"k", "k", None, made), TOKEN, 100.0)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_lease_is_freed_a_permit_is_given_back(engine: Engine) -> None:
    """Worth delivering until it ends by itself."""
    plain, permit = lease(), lease(limit=3)
    freed = free_request(engine, plain.call, TOKEN, 105.0)
    assert freed.payload == release_request(engine, b"k", TOKEN, 105.0).payload
    given = end_request(engine, permit, 101.0)
    assert given.payload == release_permit(b"k", TOKEN, 105.0).payload
    assert freed.until == given.until == 105.0


@pytest.mark.parametrize("engine", ENGINES)
def test_what_stays_a_moment_is_shortened(engine: Engine) -> None:
    """With `at_least`: for the rest of it, and not at all once it is over."""
    plain, permit = lease(), lease(limit=3)
    plain.stays_until = permit.stays_until = 102.0
    ended = [end_request(engine, each, 101.5).payload for each in (plain, permit)]
    assert ended[0] == shorten_request(engine, b"k", TOKEN, 500, 105.0).payload
    assert ended[1] == shorten_permit(b"k", TOKEN, 500, 105.0).payload
    over = end_request(engine, permit, 102.0).payload
    assert over == release_permit(b"k", TOKEN, 105.0).payload
