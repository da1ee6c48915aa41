"""Jobs whose store is unavailable for a while, in any framework."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from dibs import Dibs, Duplicate, Event, Unavailable
from dibs.integrations._sync.jobs import UniqueJobs
from dibs.integrations._unique_jobs import Job, UniqueKey, UniqueOptions
from dibs.testing import Server, eventually


def report(account: int) -> None: ...


def unique_jobs(dibs: Dibs, **options: object) -> UniqueJobs:
    made = UniqueOptions(**options)  # type: ignore[arg-type]
    return UniqueJobs(dibs, UniqueKey("report:{account}", report, made))


def is_back(dibs: Dibs) -> bool:
    try:
        dibs.peek("report:1")
    except Unavailable:
        return False
    return True


@pytest.mark.parametrize("until", ["end", 60])
def test_a_retry_in_an_outage_takes_its_claim_along(own_server: Server, until: object) -> None:
    """Also with the policy "closed": a job that is tried again is not lost, nor blocked later."""
    with Dibs(own_server.url, on_outage="closed") as dibs:
        jobs = unique_jobs(dibs, until=until, lease=60)
        with jobs.start("report:1", Job("a", None, 0)) as run:
            own_server.freeze()
            token = run.hand_on()
        own_server.thaw()
        eventually(lambda: is_back(dibs))
        with jobs.start("report:1", Job("a", token, 1)):
            with pytest.raises(Duplicate), jobs.queueing("report:1", "b"):
                pass


@pytest.mark.parametrize("is_back_before_its_end", [True, False])
@pytest.mark.parametrize(("until", "is_kept"), [("end", False), (60, True)])
def test_a_job_that_was_started_in_an_outage_does_not_keep_its_key_for_the_queue(
    own_server: Server, until: object, is_kept: bool, is_back_before_its_end: bool
) -> None:
    """It was claimed where it was enqueued, and no worker could continue that claim."""
    with Dibs(own_server.url) as dibs:
        jobs = unique_jobs(dibs, until=until, lease=60, queued=3000)
        with jobs.queueing("report:1", "a") as (token, *_):
            pass
        own_server.freeze()
        with jobs.start("report:1", Job("a", token, 0)):
            if is_back_before_its_end:
                own_server.thaw()
                eventually(lambda: is_back(dibs))
        own_server.thaw()
        client: Any = own_server.client()
        eventually(lambda: client.pttl("report:1") <= 60_050)
        eventually(lambda: bool(client.exists("report:1")) is is_kept)


def test_a_job_that_was_started_in_an_outage_can_be_tried_again(own_server: Server) -> None:
    """It is no duplicate of itself: the claim that waits in the store is its own."""
    with Dibs(own_server.url) as dibs:
        jobs = unique_jobs(dibs, lease=1, queued=3000)
        with jobs.queueing("report:1", "a") as (token, *_):
            pass
        own_server.freeze()
        with jobs.start("report:1", Job("a", token, 0)) as run:
            token = run.hand_on()
        own_server.thaw()
        eventually(lambda: is_back(dibs))
        with jobs.start("report:1", Job("a", token, 1)):
            assert dibs.peek("report:1") is not None
        assert dibs.peek("report:1") is None


def test_a_job_that_was_enqueued_in_an_outage_is_guarded_where_it_runs(own_server: Server) -> None:
    """If the store is back by then: a second one is a duplicate."""
    events: list[Event] = []
    with Dibs(own_server.url, listeners=[events.append]) as dibs:
        jobs = unique_jobs(dibs)
        assert dibs.peek("report:1") is None
        own_server.freeze()
        with jobs.queueing("report:1", "a") as (token, *_):
            pass
        own_server.thaw()
        eventually(lambda: "recovered" in {event.kind for event in events})
        with jobs.start("report:1", Job("a", token, 0)):
            assert dibs.peek("report:1") is not None
            with pytest.raises(Duplicate), jobs.queueing("report:1", "b"):
                pass
        assert dibs.peek("report:1") is None


def test_a_job_that_loses_its_claim_is_a_line_in_the_log(
    own_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """The keys were deleted while it ran: another one may have run beside it."""
    caplog.set_level(logging.INFO, "dibs")
    with Dibs(own_server.url, budget=5) as dibs:
        jobs = unique_jobs(dibs, lease=1)
        with jobs.start("report:1", Job("a", None, 0)) as run:
            own_server.flush()
            eventually(lambda: run.lost)
        with jobs.start("report:1", Job("b", None)):
            with pytest.raises(Duplicate):
                jobs.start("report:1", Job("c", None))
    said = [record.getMessage() for record in caplog.records]
    assert (
        "report:{account}: the claim of job a was lost while it ran; it may have run twice" in said
    )
    assert "report:{account}: job c is not run: job b exists" in said
