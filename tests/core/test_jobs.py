"""What the claim of a job says of the worker that has fetched its message."""

import pytest

from dibs._core.inspection import KeyInfo, KeyReading, classify
from dibs._core.jobs import (
    LastRun,
    ResultWatch,
    ServerClock,
    covers,
    ended_request,
    fetch_request,
    fetched_by,
    read_ended,
    standing_of,
)
from dibs._core.lease_value import holder_in, note_in, worker_in

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


def test_a_run_covers_what_was_sent_before_it() -> None:
    """With half a lease between the two, in which clocks may differ; and never its own message."""
    run = LastRun("b", 110.0)
    assert covers(run, "a", 100.0, 10.0)
    assert not covers(run, "b", 100.0, 10.0)
    assert not covers(run, "a", 106.0, 10.0)
    assert not covers(run, "a", None, 10.0) and not covers(None, "a", 100.0, 10.0)


def test_the_record_of_a_run_is_read_as_it_was_written() -> None:
    """Its id, and when it began."""
    request = ended_request(b"k", b"5a1f00000000000000-2c@w:1", LastRun("job 7", 90.0), 100.0, 5000)
    value = request.payload.split(b"\r\n", 6)[6].partition(b"\r\n$2\r\nPX")[0]
    assert read_ended(value) == LastRun("job 7", 90.0)
    assert read_ended(None) is None and read_ended(b"something else") is None


def test_the_clock_of_the_server_is_measured_now_and_then() -> None:
    """A measurement that took long says too little."""
    clock = ServerClock()
    assert clock.at(5.0) is None
    clock.measured(10.0, 11.0, 500.0)
    assert clock.at(11.0) is None
    clock.measured(10.0, 10.2, 500.0)
    assert clock.at(11.1) == pytest.approx(501.0)
    assert clock.at(80.0) is None


def test_where_a_job_is() -> None:
    """From what its key has, and the last run."""
    claim = KeyInfo("k", "claim", "running", 30.0, note="a")
    assert standing_of(claim, None, "a", 10.0) == "queued"
    assert standing_of(claim._replace(worker="w"), None, "a", 10.0) == "fetched"
    assert standing_of(claim._replace(remaining=9.0), None, "a", 10.0) == "running"
    assert standing_of(KeyInfo("k", "done", "done", 9.0, note="a"), None, "a", 10.0) == "done"
    assert standing_of(claim._replace(note="b"), None, "a", 10.0) == "gone"
    assert standing_of(None, LastRun("a", 1.0), "a", 10.0) == "done"


def test_a_result_is_waited_for_while_it_may_come() -> None:
    """A second after the end of the job at most, and a lease after it was lost."""
    watch = ResultWatch(10.0)
    assert [watch.look(at, "running") for at in (0.0, 50.0)] == ["wait", "wait"]
    assert [watch.look(at, "gone") for at in (60.0, 69.0, 70.0)] == ["wait", "wait", "gone"]
    assert watch.look(71.0, "running") == "wait"  # it was delivered again
    assert [watch.look(at, "done") for at in (80.0, 80.5, 81.0)] == ["wait", "wait", "done"]
    assert ResultWatch(10.0, ended_for=60.0).look(0.0, "done") == "done"
