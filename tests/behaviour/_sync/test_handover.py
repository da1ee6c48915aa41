# Generated from tests/behaviour/_async/test_handover.py by unasync.py – do not edit.
"""A lease or a claim that is taken in one process and continued in another, by its token."""

from typing import Any

import pytest

from dibs import Dibs, Busy, Duplicate, Event, LeaseLost, Unavailable, UsageError
from dibs.claims import open_claims
from dibs.testing import FaultProxy, Server

from .._threads import Background, eventually, sleep
from ..events import kinds
from .submissions import NOWHERE, claimed, refused

pytestmark = pytest.mark.usefixtures("nothing_stays_open")


def handed_over(dibs: Dibs, key: str = "order:1", ttl: float = 60, **more: Any) -> str:
    """Claim it, and detach the claim for another process."""
    options = {"window": 600, **more}
    with dibs.claim(key, **options) as claim:
        token = claim.detach(ttl=ttl)
        assert open_claims() == 0, "it is open where it is continued"
        return token


# ---- claims


def test_a_claim_is_continued_where_its_token_is(server: Server) -> None:
    """Claimed here, completed there; duplicates are refused from the first to the last moment."""
    with Dibs(server.url, budget=5) as web, Dibs(server.url, budget=5) as worker:
        token = handed_over(web, after="replay")
        assert 50_000 < server.client().pttl("order:1") <= 60_050
        assert (refused(web)).retry_after > 50
        with worker.claim("order:1", window=600, after="replay", token=token) as claim:
            assert claim.guarded and not claim.replayed and claim.is_open
            assert server.client().pttl("order:1") <= 10_050, "kept alive here, by its lease"
            assert (refused(web)).state == "running"
            claim.complete(17)
        with web.claim("order:1", window=600, after="replay") as claim:
            assert claim.replayed and claim.result == 17


def test_what_continues_a_claim_ends_it_as_its_options_say(valkey: Server) -> None:
    """Released, kept or freed after an exception: by the block that continues it."""
    with Dibs(valkey.url, budget=5) as dibs:
        with dibs.claim("order:1", window=60, token=handed_over(dibs)):
            pass
        assert valkey.keys() == []
        with dibs.claim("order:1", window=60, token=handed_over(dibs), after="hold"):
            pass
        assert (refused(dibs)).state == "done"
        valkey.flush()
        with pytest.raises(KeyError):
            with dibs.claim("order:1", window=60, token=handed_over(dibs)):
                raise KeyError("mine")
        assert valkey.keys() == []


def test_the_window_of_a_continued_claim_begins_at_its_end(valkey: Server) -> None:
    """The time in the queue does not count."""
    with Dibs(valkey.url, budget=5) as dibs:
        token = handed_over(dibs)
        with dibs.claim("order:1", window=600, token=token, after="hold") as claim:
            assert claim._lease is not None
            claim._lease.elsewhere = 3600.0  # it waited for an hour
        assert 590_000 < valkey.client().pttl("order:1") <= 600_050


def test_a_continued_claim_is_renewed(valkey: Server) -> None:
    """However long the job takes."""
    events: list[Event] = []
    with (
        Dibs(valkey.url, budget=5, listeners=[events.append]) as dibs,
        Dibs(valkey.url, budget=5) as other,
    ):
        token = handed_over(dibs)
        with dibs.claim("order:1", window=60, lease=1.5, token=token) as claim:
            eventually(lambda: kinds(events).count("renewed") > 1)
            assert not claim.lost
            assert (refused(other)).state == "running"


def test_a_token_is_worth_nothing_after_it_was_used(valkey: Server) -> None:
    """A job that is delivered twice is done once: Duplicate while it runs and after it is done."""
    with Dibs(valkey.url, budget=5) as one, Dibs(valkey.url, budget=5) as two:
        token = handed_over(one)
        options: dict[str, Any] = {"window": 600, "token": token, "after": "hold"}
        with one.claim("order:1", **options):
            for dibs in (one, two):
                assert (refused(dibs, **options)).state == "running"
        assert (refused(two, **options)).state == "done"


def test_a_redelivered_job_is_handed_the_result(valkey: Server) -> None:
    """With `replay`, a second delivery of a finished job gets its result."""
    with Dibs(valkey.url, budget=5) as dibs:
        options: dict[str, Any] = {"window": 600, "after": "replay"}
        options["token"] = handed_over(dibs, after="replay")
        with dibs.claim("order:1", **options) as claim:
            claim.complete({"order": 17})
        with dibs.claim("order:1", **options) as claim:
            assert claim.replayed and claim.result == {"order": 17}


def test_a_token_never_claims_a_free_key(valkey: Server) -> None:
    """LeaseLost: the job came too late, or was freed; nothing is written."""
    events: list[Event] = []
    with Dibs(valkey.url, budget=5, listeners=[events.append]) as dibs:
        token = handed_over(dibs, ttl=0.05)
        sleep(0.2)
        with pytest.raises(LeaseLost) as caught:
            with dibs.claim("order:1", window=60, token=token):
                pytest.fail("claimed anew")
        assert valkey.keys() == [] and "order:*" in str(caught.value)
    assert kinds(events) == ["claimed", "detached", "lost"]


def test_a_token_does_not_touch_the_claim_of_another(valkey: Server) -> None:
    """It expired, and another caller submitted it: that claim is not disturbed."""
    with Dibs(valkey.url, budget=5) as one, Dibs(valkey.url, budget=5) as two:
        token = handed_over(one, ttl=0.05)
        sleep(0.2)
        with two.claim("order:1", window=60) as claim:
            before = valkey.client().get("order:1")
            assert (refused(one, token=token)).state == "running"
            assert valkey.client().get("order:1") == before and not claim.lost


def test_a_redelivered_job_may_wait_for_the_one_that_runs(valkey: Server) -> None:
    """With `wait`: its result; and LeaseLost if it fails, so that the worker claims it again."""
    with Dibs(valkey.url, budget=5) as one, Dibs(valkey.url, budget=5) as two:
        for outcome in ("done", "failed"):
            key = f"order:{outcome}"
            options: dict[str, Any] = {"window": 60, "after": "replay", "wait": 15}
            options["token"] = handed_over(one, key, after="replay")

            def again(key: str, options: dict[str, Any]) -> Any:
                with two.claim(key, **options) as claim:
                    assert claim.replayed
                    return claim.result

            with pytest.raises(KeyError):
                with one.claim(key, **options) as claim:
                    second = Background(again, key, options)
                    sleep(0.1)
                    claim.complete(17)
                    if outcome == "done":
                        claim.finish()
                    raise KeyError("mine")
            if outcome == "done":
                assert second.result() == 17
            else:
                with pytest.raises(LeaseLost):
                    second.result()


# ---- what the process that detached it can still do


def test_an_exception_after_detaching_frees_the_key(valkey: Server) -> None:
    """The queue refused the job: no worker would ever continue it, so the block ends the claim."""
    with Dibs(valkey.url, budget=5) as dibs:
        with pytest.raises(OSError, match="queue"):
            with dibs.claim("order:1", window=600) as claim:
                claim.detach(ttl=600)
                raise OSError("no queue")
        with pytest.raises(OSError, match="queue"):
            with dibs.hold("report:1", ttl=5) as lease:
                lease.detach(ttl=600)
                raise OSError("no queue")
        assert valkey.keys() == []


def test_an_exception_after_detaching_does_not_disturb_who_continues(valkey: Server) -> None:
    """The job was delivered although enqueueing raised: its claim is not ours to end."""
    with Dibs(valkey.url, budget=5) as one, Dibs(valkey.url, budget=5) as two:
        with pytest.raises(OSError, match="line"):
            with one.claim("order:1", window=600) as first:
                token = first.detach(ttl=600)
                claiming = two.claim("order:1", window=600, token=token)
                second = claiming.__enter__()
                raise OSError("the line broke")
        assert not second.lost and (refused(one)).state == "running"
        claiming.__exit__(None, None, None)
        assert valkey.keys() == []


def test_a_detached_claim_is_over_here(valkey: Server) -> None:
    """It cannot be completed, detached again or given a note; its block ends without a command."""
    with Dibs(valkey.url, budget=5) as dibs:
        with dibs.claim("order:1", window=600, after="hold") as claim:
            claim.detach(ttl=60)
            assert not claim.is_open and not claim.lost and "detached" in repr(claim)
            with pytest.raises(UsageError, match="detached"):
                claim.complete(17)
            with pytest.raises(UsageError, match="detached"):
                claim.detach(ttl=60)
            assert claim.set_note("late") is False
            assert claim.finish() is False
            before = valkey.commands()
        assert valkey.commands() == before
        assert (refused(dibs)).state == "running"


def test_only_what_runs_can_be_detached(valkey: Server) -> None:
    """Not a replay, not what has ended; LeaseLost for what was lost."""
    with Dibs(valkey.url, budget=5) as dibs:
        with dibs.claim("order:1", window=60, after="replay") as claim:
            claim.complete(17)
        with pytest.raises(UsageError, match="ended"):
            claim.detach(ttl=5)
        with dibs.claim("order:1", window=60, after="replay") as claim:
            with pytest.raises(UsageError, match="replay"):
                claim.detach(ttl=5)
        with dibs.hold("report:1", ttl=5) as lease:
            valkey.client().delete("report:1")
            with pytest.raises(LeaseLost):
                lease.detach(ttl=5)
        assert lease.lost


# ---- leases


def test_a_lease_is_continued_where_its_token_is(server: Server) -> None:
    """Held from the first `with` to the end of the last, by one holder at a time."""
    events: list[Event] = []
    with (
        Dibs(server.url, budget=5) as web,
        Dibs(server.url, budget=5, listeners=[events.append]) as worker,
    ):
        with web.hold("report:1", ttl=5) as lease:
            token = lease.detach(ttl=60)
            assert "detached" in repr(lease) and token not in repr(lease)
        assert 50_000 < server.client().pttl("report:1") <= 60_050
        assert web.try_hold("report:1", ttl=5) is None
        with worker.hold("report:1", ttl=5, token=token, renew=True) as lease:
            assert lease.guarded and not lease.lost
            assert server.client().pttl("report:1") <= 5_050
            with pytest.raises(LeaseLost):
                with web.hold("report:1", ttl=5, token=token):
                    pytest.fail("two of them")
            with pytest.raises(Busy):
                with worker.hold("report:1", ttl=5):
                    pytest.fail("two of them")
        assert server.keys() == []
    assert kinds(events) == ["resumed", "busy", "released"]


def test_a_lease_of_try_hold_can_be_detached(valkey: Server) -> None:
    """The caller that detached it no longer releases it."""
    with Dibs(valkey.url, budget=5) as dibs:
        lease = dibs.try_hold("report:1", ttl=5)
        assert lease is not None
        token = lease.detach(ttl=60)
        assert lease.release() is False and lease.extend(5) is False
        with dibs.hold("report:1", ttl=5, token=token):
            pass
        assert valkey.keys() == []


def test_a_continued_lease_has_a_greater_fence(server: Server) -> None:
    """Writes of the first holder have a smaller fence."""
    with Dibs(server.url, budget=5) as dibs:
        with dibs.hold("report:1", ttl=5, fence=True) as first:
            token = first.detach(ttl=60)
        with dibs.hold("report:1", ttl=5, fence=True, token=token) as second:
            assert first.fence and second.fence and second.fence > first.fence
        with dibs.hold("report:1", ttl=5, fence=True) as third:
            assert third.fence and third.fence > second.fence


# ---- faults


@pytest.mark.parametrize("fault", ["cut", "swallow"])
def test_a_lost_reply_to_detach_or_continue_is_asked_for_again(
    valkey: Server, fault: str
) -> None:
    """The repeated request is recognised: the token works, and once."""
    with FaultProxy(valkey.port) as line:
        lose = line.cut_after_request if fault == "cut" else line.swallow_replies
        with Dibs(line.url, budget=1.5) as dibs:
            with dibs.claim("order:1", window=60) as claim:
                lose(match=b"order:1")
                token = claim.detach(ttl=60)
            lose(match=b"order:1")
            with dibs.claim("order:1", window=60, token=token) as claim:
                assert claim.guarded and line.triggered == 2
                assert (refused(dibs, token=token)).state == "running"
        assert valkey.keys() == []


@pytest.mark.parametrize("verb", ["hold", "claim"])
def test_a_reply_that_comes_after_the_ttl_does_not_end_what_is_continued(
    valkey: Server, verb: str
) -> None:
    """The line is slower than the ttl: it is kept from the reply on, as a new lease is."""
    with FaultProxy(valkey.port) as line:
        with Dibs(line.url, budget=5) as dibs:
            continuing: Any
            if verb == "hold":
                with dibs.hold("order:1", ttl=60) as taken:
                    token = taken.detach(ttl=60)
                continuing = dibs.hold("order:1", ttl=0.5, token=token)
            else:
                token = handed_over(dibs)
                continuing = dibs.claim("order:1", window=60, lease=0.5, token=token)
            line.delay(replies=0.6)
            slow = Background(_continued, continuing)
            eventually(lambda: valkey.client().pttl("order:1") <= 500)
            valkey.client().pexpire("order:1", 60_000)
            line.delay()
            assert slow.result() == (False, True)


def _continued(continuing: Any) -> tuple[bool, bool]:
    with continuing as held:
        return held.lost, held.guarded


def test_an_outage_while_detaching(own_server: Server) -> None:
    """open: a token all the same, and an event; closed: Unavailable."""
    events: list[Event] = []
    with Dibs(own_server.url, budget=0.3, listeners=[events.append]) as dibs:
        with dibs.claim("order:1", window=600, lease=60) as claim:
            own_server.freeze()
            assert claim.detach(ttl=60)
            assert not claim.is_open
        own_server.thaw()
        assert "outage" in kinds(events) and "detached" in kinds(events)
    with Dibs(own_server.url, budget=0.3, on_outage="closed") as dibs:
        with pytest.raises(Unavailable):
            with dibs.claim("order:2", window=600, lease=60) as claim:
                own_server.freeze()
                claim.detach(ttl=60)
        own_server.thaw()


def test_what_was_not_guarded_is_continued_unguarded(valkey: Server) -> None:
    """The store was out when it was claimed: the job runs, and says so; closed: Unavailable."""
    events: list[Event] = []
    with (
        Dibs(NOWHERE, budget=0.5) as web,
        Dibs(valkey.url, budget=5, listeners=[events.append]) as worker,
    ):
        token = handed_over(web)
        with worker.claim("order:1", window=60, token=token) as claim:
            assert not claim.guarded and not claim.replayed
        assert (events[0].kind, events[0].cause) == ("outage", "handed_over")
        with pytest.raises(Unavailable):
            with worker.claim("order:1", window=60, token=token, on_outage="closed"):
                pytest.fail("let through")


def test_an_outage_while_continuing(own_server: Server) -> None:
    """open: unguarded; closed: Unavailable. The token is still good when the store is back.

    Not that of the open one: its work is done, so its key becomes free.
    """
    with (
        Dibs(own_server.url, budget=5) as web,
        Dibs(own_server.url, budget=0.3) as worker,
    ):
        token, other = handed_over(web), handed_over(web, "order:2")
        worker.peek("warm:up")
        own_server.freeze()
        with pytest.raises(Unavailable):
            with worker.claim("order:1", window=60, token=token, on_outage="closed"):
                pytest.fail("let through")
        with worker.claim("order:2", window=60, lease=30, token=other) as claim:
            assert not claim.guarded
        own_server.thaw()

        def continued() -> bool:
            try:
                with web.claim("order:1", window=60, token=token):
                    return True
            except Duplicate:  # what was sent before is being taken back
                return False

        for _ in range(100):
            if continued():
                return
            sleep(0.1)
        pytest.fail("the token was spent by an attempt whose reply was lost")


def test_a_hand_over_that_was_answered_and_not_heard_keeps_its_time(
    valkey: Server,
) -> None:
    """Continuing is undone when Redis answers again: the token is good for what it had left. What
    was to be continued ends with the work, though it was unguarded.
    """
    with FaultProxy(valkey.port) as line:
        with Dibs(line.url, budget=0.3) as worker, Dibs(valkey.url) as web:
            worker.peek("warm:up")
            with web.claim("order:0", window=600, token=handed_over(web, "order:0")):
                pass  # so that the server knows the script
            token = handed_over(web, ttl=60)
            line.swallow_replies(1000, match=b"order:1")
            with worker.claim("order:1", window=600, lease=5, token=token) as claim:
                assert not claim.guarded
                line.heal()
                eventually(lambda: token.partition(":")[2] in value_of(valkey, "order:1"))
                assert valkey.client().pttl("order:1") > 50_000
            eventually(lambda: valkey.keys() == [])


def value_of(server: Server, key: str) -> str:
    return (server.client().get(key) or b"").decode()


def test_bad_tokens_and_notes_are_refused_before_anything_is_sent() -> None:
    """Also the token of the other verb: a claim is no lease."""
    with Dibs(NOWHERE, on_outage="closed") as dibs:
        for token in ("", "x", "hold:", "claim:1-1", 17, b"hold:1-1"):
            with pytest.raises(UsageError, match="token"):
                dibs.hold("order:1", ttl=5, token=token)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=r"hold\(\)"):
            dibs.claim("order:1", window=5, token="hold:1-1")
        for note in ("x" * 201, b"x", 17, "\ud800"):
            with pytest.raises(UsageError, match="note"):
                dibs.claim("order:1", window=5, note=note)  # type: ignore[arg-type]


# ---- notes


def test_duplicates_are_told_the_note(server: Server) -> None:
    """Here and in another process; never in an event, a sentence or a repr."""
    events: list[Event] = []
    with (
        Dibs(server.url, budget=5) as one,
        Dibs(server.url, budget=5, listeners=[events.append]) as two,
    ):
        note = "job-17 @ 隊列\nline two"
        with one.claim("order:1", window=60, note=note) as claim:
            assert claim.note == note
            for dibs in (one, two):
                error = refused(dibs)
                assert error.note == note
                assert "job-17" not in f"{error} {error!r} {claim!r}"
            found = two.peek("order:1")
            assert found is not None and found.note == note
            assert found.holder and "job" not in found.holder
        assert "job-17" not in repr(events)
        with one.claim("order:1", window=60):
            assert (refused(two)).note is None


def test_a_note_is_told_after_the_end_and_after_a_hand_over(valkey: Server) -> None:
    """As long as the key exists: queued, running elsewhere, done."""
    with Dibs(valkey.url, budget=5) as dibs:
        token = handed_over(dibs, note="job-17", after="hold", payload={"a": 1})
        assert (refused(dibs)).note == "job-17"
        with dibs.claim("order:1", window=60, after="hold", token=token) as claim:
            assert claim.note == "job-17"
            assert (refused(dibs)).note == "job-17"
        error = refused(dibs, payload={"a": 1})
        assert (error.note, error.state) == ("job-17", "done")


def test_a_note_can_be_changed_while_it_runs(valkey: Server) -> None:
    """Jobs learn their id late. The claim is renewed, completed and released as before."""
    events: list[Event] = []
    with (
        Dibs(valkey.url, budget=5, listeners=[events.append]) as one,
        Dibs(valkey.url, budget=5) as two,
    ):
        options: dict[str, Any] = {"window": 60, "lease": 1.5, "after": "replay"}
        with one.claim("order:1", **options) as claim:
            for note in ("job-1", "", "job-2", None, "job-3"):
                assert claim.set_note(note) is True
                assert claim.note == note == (refused(two)).note == (refused(one)).note
            events.clear()
            eventually(lambda: "renewed" in kinds(events))
            assert not claim.lost
            claim.complete(17)
        assert (refused(two, after="release")).note == "job-3"
        with two.claim("order:1", **options) as claim:
            assert claim.result == 17
        valkey.flush()
        with one.claim("order:1", window=60) as claim:
            claim.set_note("job-4")
        assert valkey.keys() == []


@pytest.mark.parametrize("fault", ["cut", "swallow"])
def test_a_note_whose_reply_is_lost_does_not_lose_the_claim(
    valkey: Server, fault: str
) -> None:
    """It is repeated; and where the server stays silent, the next renewal makes sure of it."""
    events: list[Event] = []
    with FaultProxy(valkey.port) as line:
        lose = line.cut_after_request if fault == "cut" else line.swallow_replies
        with Dibs(line.url, budget=4, listeners=[events.append]) as dibs:
            with dibs.claim("order:1", window=60, lease=30) as claim:
                lose(match=b"order:1")
                assert claim.set_note("job-1") is True
                lose(2, match=b"order:1")
                claim.set_note("job-2")
                events.clear()
                eventually(lambda: "renewed" in kinds(events), within=90)
                assert not claim.lost and claim.note == "job-2"
    with Dibs(valkey.url, budget=5) as other:
        claimed(other)


def test_a_claim_ends_as_usual_before_its_note_was_brought(own_server: Server) -> None:
    """The next renewal would have brought it; the end makes sure of it first."""
    events: list[Event] = []
    with Dibs(own_server.url, budget=0.3, listeners=[events.append]) as dibs:
        with dibs.claim("order:1", window=600, lease=600, after="hold") as claim:
            own_server.freeze()
            assert claim.set_note("job-1") is False
            assert claim.note == "job-1"
            own_server.thaw()
            eventually(lambda: "recovered" in kinds(events), within=90)
        duplicate = refused(dibs, after="hold")
        assert duplicate.state == "done" and duplicate.note == "job-1"


def test_a_note_in_an_outage_is_brought_later(own_server: Server) -> None:
    """False, and an `outage` event; the claim continues, and the next renewal stores the note."""
    events: list[Event] = []
    with (
        Dibs(own_server.url, budget=0.3, listeners=[events.append]) as one,
        Dibs(own_server.url, budget=5) as two,
    ):
        with one.claim("order:1", window=600, lease=6) as claim:
            own_server.freeze()
            assert claim.set_note("job-1") is False
            own_server.thaw()
            for _ in range(100):
                if (refused(two)).note == "job-1":
                    break
                sleep(0.1)
            assert not claim.lost and (refused(two)).note == "job-1"
            eventually(lambda: "recovered" in kinds(events), within=90)
        assert "outage" in kinds(events) and "lost" not in kinds(events)
        claimed(two)
