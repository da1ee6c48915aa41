"""What the claim of a job says of the worker that has fetched its message."""

from dibs._core.inspection import KeyInfo, KeyReading, classify
from dibs._core.jobs import fetch_request, fetched_by
from dibs._core.lease import holder_in, note_in, worker_in

WAITING = b"5a1f00000000000000-2c - 193310c1a40@web-1:4711\njob-17"
FETCHED = b"5a1f00000000000000-2c - 193310c1a40@w-1:12 fetched:7c2000000000000000-5\njob-17"


def test_a_claim_names_the_worker_that_has_its_message() -> None:
    """Beside the holder and the note, which are as they were for older programs."""
    assert (worker_in(WAITING), worker_in(FETCHED)) == (None, "7c2000000000000000-5")
    assert (holder_in(FETCHED), note_in(FETCHED)) == ("w-1:12", "job-17")


def test_an_entry_has_the_heartbeat_of_its_worker() -> None:
    """Only where a worker has fetched the message, and has not begun."""
    reading = KeyReading(b"n:k", b"string", [5000, FETCHED])
    entry = classify("n:", reading, 0.0)
    assert (entry.holder, entry.note) == ("w-1:12", "job-17")
    assert fetched_by(entry) == "job:worker:7c2000000000000000-5"
    assert fetched_by(KeyInfo("k", "claim", "running")) is None


def test_a_request_that_may_be_late_carries_its_script() -> None:
    """Nobody is there to send it again when the server does not know that."""
    words = (b"k", b"5a1f-2c", b"7c20-5@w-1:12", 1000)
    assert b"EVALSHA" in fetch_request(*words).payload
    late = fetch_request(*words, 12.5)
    assert b"EVALSHA" not in late.payload and late.until == 12.5
    assert b"w-1:12 fetched:7c20-5" in late.payload
