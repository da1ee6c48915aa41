"""Who waits: notes and what is read of them."""

from dibs._core.lease import HoldCall
from dibs._core.options import HoldOptions, Settings
from dibs._core.tracking import WaitingProcess, note_request, read_notes, unnote_request

OPTIONS = HoldOptions(Settings("shop:", "open"), ttl=5, wait=5)
CALL = HoldCall(b"shop:k", "k", None, OPTIONS)


def test_a_note_lies_beside_its_key() -> None:
    """In the same slot, and in the namespace."""
    for request in (note_request(CALL, b"n"), unnote_request(CALL, b"n")):
        assert b"shop:waiting:{shop:k}" in request.payload and request.key == b"shop:k"


def test_notes_are_read_the_longest_first() -> None:
    """Expired ones, and what is no note, are left out; no clock makes a time negative."""
    notes = [b"0123456789ab@" + each for each in (b"a:1 9000", b"b:2 5000", b"c:3 99000", b"d:4 1")]
    scores = [b"20000", b"20000", b"20000", b"9000"]
    flat = [each for pair in zip(notes, scores, strict=True) for each in pair]
    expected = (WaitingProcess("b:2", 5.0), WaitingProcess("a:1", 1.0), WaitingProcess("c:3", 0.0))
    assert read_notes([*flat, b"text", b"20000"], 10.0) == expected
    nested = [[member, float(score)] for member, score in zip(notes, scores, strict=True)]
    assert read_notes(nested, 10.0) == expected, "as RESP3 has it"
    assert read_notes(None, 10.0) == ()
