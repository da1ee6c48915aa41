"""Streams without a server: records, items in pieces, and what becomes of those who follow."""

import pytest

from dibs import UsageError
from dibs._core.connection import Outage
from dibs._core.options import Settings
from dibs._core.request import ErrorReply, OddReply
from dibs._core.stream import (
    DONE,
    HEAD_SIZE,
    HELD,
    TOO_LONG,
    ItemParser,
    ItemsHead,
    ItemsReading,
    Lost,
    StreamOptions,
    after_loss,
    failed_mark,
    is_continued,
    items_head,
    new_record,
    packed_item,
    read_appended,
    read_begun,
    read_ended,
    read_head,
    read_invalidated,
    read_items,
    read_record,
    stream_info,
    stream_keys,
)
from dibs._core.tracking import Tracked

SETTINGS = Settings("shop:", "open")
OPTIONS = StreamOptions(SETTINGS, ttl=60)
RUN, OTHER = b"0123456789abcdef", b"fedcba9876543210"
ITEMS = [b'"one"', b"", b"x" * 1000, b"!done \n", b"7:seven"]


def test_a_record_is_read_as_it_was_written() -> None:
    """Also where the name of the host has spaces."""
    record = new_record(OPTIONS, RUN, OTHER, 1731640000.123, "host of mine:42")
    assert read_record(record.encoded()) == record
    over = record._replace(is_over=True, took=1.5, items=7)
    assert read_record(over.encoded()) == over
    assert record.fits(OPTIONS)
    assert not record.fits(StreamOptions(SETTINGS, ttl=60, type=list[int]))
    assert not record.fits(StreamOptions(SETTINGS, ttl=60, codec="pickle"))


@pytest.mark.parametrize("value", [None, 7, b"", b"dibs1 stream ", b"dibs1 json - 1 2\n", b"\xff"])
def test_what_is_no_record_is_none(value: object) -> None:
    """Bytes of another program, or of another version."""
    assert read_record(value) is None  # type: ignore[arg-type]


def test_a_head_has_always_one_size() -> None:
    """The scripts count on it."""
    for head in (items_head(RUN), items_head(RUN, 9_999_999_999, 9_999_999_999)):
        assert len(head) == HEAD_SIZE
    assert read_head(items_head(RUN, 70, 3)) == ItemsHead(True, RUN, 3, 70)
    assert read_head(items_head(RUN).replace(b" live ", b" over ")) == ItemsHead(False, RUN, 0, 0)
    for value in (None, b"", b"x" * HEAD_SIZE, items_head(RUN)[:-1]):
        assert read_head(value) is None


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100, 5000])
@pytest.mark.parametrize("mark", [DONE, TOO_LONG, failed_mark(ValueError("secret"))])
def test_items_arrive_in_pieces_of_any_size(size: int, mark: bytes) -> None:
    """Each of them once, and whole; then how the run ended."""
    data = b"".join(map(packed_item, ITEMS)) + mark
    parser = ItemParser()
    found: list[bytes] = []
    for at in range(0, len(data), size):
        assert parser.ending is None
        found += parser.feed(data[at : at + size])
    assert found == ITEMS
    assert parser.ending in (("done", ""), ("too_long", ""), ("failed", "ValueError"))


@pytest.mark.parametrize("data", [b"x:y", b"-1:", b"12345678901234567890", b"!what\n", b" 1:x"])
def test_bytes_that_are_no_items_are_noticed(data: bytes) -> None:
    """OddReply: they are not taken for an end, nor waited for."""
    with pytest.raises(OddReply):
        ItemParser().feed(data)


def test_who_has_received_nothing_asks_again() -> None:
    """Whatever the policy; others are told, or begin anew, and never get two runs in one."""
    dead, silent = Lost(), Lost(Outage("no answer", sent=True))
    for policy in ("raise", "restart", "resume"):
        assert after_loss(policy, dead, 0) == after_loss(policy, silent, 0) == "again"
    assert after_loss("restart", dead, 3) == "restart"
    for policy, lost in (("raise", dead), ("resume", dead), ("restart", silent)):
        with pytest.raises(Lost):
            after_loss(policy, lost, 3)


def test_who_continues_a_run_must_have_had_all_of_it() -> None:
    """A replica without the last items has taken over, and the run was continued on it."""
    head = ItemsHead(True, OTHER, 3, 70)
    assert is_continued(None, head, 0)
    assert is_continued(OTHER, head, 500)
    assert is_continued(RUN, head, 70)
    assert not is_continued(RUN, head, 71)


def test_the_items_of_a_run_are_in_the_slot_of_its_stream() -> None:
    """Their name has the id of the run; the namespace is that of all keys."""
    keys = stream_keys(SETTINGS, OPTIONS, "answer:{prompt}", "answer:x")
    assert keys.key == b"shop:answer:x"
    assert keys.items(RUN) == b"shop:stream:{shop:answer:x}:" + RUN
    tagged = stream_keys(SETTINGS, OPTIONS, "answer:{prompt}", "{7}:x")
    assert tagged.items(RUN) == b"shop:stream:shop:{7}:x:" + RUN


def test_replies_about_streams_are_read() -> None:
    """What no server answers is an OddReply; the key of a lease a UsageError."""
    assert read_begun([1, b"x"]) == (True, b"x")
    assert read_begun([0, b"x"]) == (False, b"x")
    with pytest.raises(UsageError, match=HELD):
        read_begun([-1, b""])
    assert (read_appended(7), read_appended(-1)) == (7, None)
    assert read_ended([1, 9]) == (True, True, 9)
    assert read_ended([0, 9]) == (True, False, 9)
    assert read_ended([2, 9]) == (False, False, 9)
    assert read_ended([-1, 0]) == (True, False, 0)
    assert read_invalidated(b"") is None
    with pytest.raises(UsageError, match=HELD):
        read_invalidated(0)
    reading = read_items(Tracked([b"5:", items_head(RUN), 65_000], tracked=True))
    assert reading == ItemsReading(b"5:", ItemsHead(True, RUN, 0, 0), 5.0, True)
    for read in (read_begun, read_appended, read_ended, read_invalidated):
        for reply in (None, ErrorReply("ERR"), [7, 7], 1.5, [1]):
            with pytest.raises((OddReply, ValueError)):
                read(reply)  # type: ignore[arg-type]


def test_what_is_stored_is_described() -> None:
    """None: the process of the run has died, or its items are gone."""
    record = new_record(OPTIONS, RUN, RUN, 100.0, "host:1")
    live = ItemsReading(b"", ItemsHead(True, RUN, 3, 0), 2.0, False)
    assert stream_info(record, live, 130.0) == ("running", 3, 30.0)
    over = record._replace(is_over=True, items=4)
    assert stream_info(over, live._replace(silence_left=-60.0), 130.0) == ("done", 4, 30.0)
    assert stream_info(record, live._replace(silence_left=0.0), 130.0) is None
    assert stream_info(over, live._replace(head=None), 130.0) is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"most": 0}, "number of bytes"),
        ({"most": True}, "number of bytes"),
        ({"most": 1.5}, "number of bytes"),
        ({"on_restart": "again"}, "on_restart must be"),
        ({"lease": 0}, "lease"),
        ({"stall": -1}, "stall"),
        ({"ttl": 0}, "ttl"),
        ({"codec": "yaml"}, "unknown codec"),
        ({"on_outage": "maybe"}, "on_outage"),
    ],
)
def test_an_option_that_means_nothing_is_refused(options: dict[str, object], message: str) -> None:
    """Before any I/O."""
    with pytest.raises(UsageError, match=message):
        StreamOptions(SETTINGS, **{"ttl": 60, **options})  # type: ignore[arg-type]
