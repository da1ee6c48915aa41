# Generated from tests/behaviour/_async/test_once_waiting.py by unasync.py – do not edit.
"""What `wait=` and `duplicate=` promise on `once` and `claim`, on every engine."""

import time
from typing import Any

import pytest

from dibs import Dibs, Duplicate, Event, Mismatch, UsageError
from dibs._sync import waiters
from dibs.testing import Server

from .._threads import Background, eventually, sleep


def _second(dibs: Dibs, **options: Any) -> str:
    with dibs.claim("order:1", window=60, **options) as claim:
        if claim.replayed:
            return f"replayed {claim.result}"
        return claim.complete("done by the second")


def _waits(dibs: Dibs) -> bool:
    return b"order:1" in dibs._leases.waiters.queues


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "elsewhere"])
def test_a_duplicate_waits_for_the_result(
    server: Server, elsewhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """replay: it gets the result of the first one, woken by its end and not by a timer."""
    monkeypatch.setattr(waiters, "_LOOK_AGAIN", 3600.0)
    events: list[Event] = []
    with (
        Dibs(server.url, budget=5, listeners=[events.append]) as one,
        Dibs(server.url, budget=5, listeners=[events.append]) as other,
    ):
        two = other if elsewhere else one
        with one.claim("order:1", window=60, after="replay", lease=30) as claim:
            waiter = Background(lambda: _second(two, after="replay", wait=60))
            eventually(lambda: _waits(two))
            sleep(0.1)
            claim.complete("order 17")
        assert waiter.result() == "replayed order 17"
    replayed = next(event for event in events if event.kind == "replayed")
    assert replayed.waited is not None and replayed.waited >= 0.1


def test_a_duplicate_that_waits_from_now_on_sees_that_it_is_done(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended after the duplicate had asked, and before the server was to tell it of changes."""
    register = waiters.Waiters._register
    monkeypatch.setattr(waiters, "_LOOK_AGAIN", 3600.0)
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        with one.claim("order:1", window=60, after="replay", lease=30) as claim:

            def register_late(*args: Any) -> Any:
                claim.complete("order 17")
                claim.finish()
                return register(*args)

            monkeypatch.setattr(waiters.Waiters, "_register", register_late)
            assert _second(two, after="replay", wait=10) == "replayed order 17"


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "elsewhere"])
@pytest.mark.parametrize("end", ["fails", "releases"])
def test_a_duplicate_takes_over_if_nothing_was_left(
    server: Server, elsewhere: bool, end: str
) -> None:
    """The first one fails, or leaves nothing behind: the duplicate does it."""
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as other:
        two = other if elsewhere else one
        first = one.claim("order:1", window=60, after="replay", lease=30)
        claim = first.__enter__()
        waiter = Background(lambda: _second(two, after="replay", wait=15))
        eventually(lambda: _waits(two))
        if end == "fails":
            assert claim.fail()
        else:
            claim.release()
            assert claim.finish()
        assert waiter.result() == "done by the second"
        assert _second(two, after="replay") == "replayed done by the second"


def test_a_duplicate_takes_over_when_the_first_one_died(server: Server) -> None:
    """Its lease expires without a notification: the timer wakes the waiter."""
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        claim = one.claim("order:1", window=60, lease=1).__enter__()
        claim.leak("dropped")
        assert _second(two, wait=15) == "done by the second"


def test_a_duplicate_waits_no_longer_than_it_may(server: Server) -> None:
    """The first one runs on: Duplicate, running, then and not earlier."""
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        with one.claim("order:1", window=60, lease=30):
            for dibs in (one, two):
                since = time.monotonic()
                with pytest.raises(Duplicate) as caught:
                    _second(dibs, wait=0.3, message="one moment, please")
                assert 0.25 < time.monotonic() - since < 25, "the first one's lease ends after 30 s"
                assert caught.value.state == "running" and 0 < caught.value.retry_after <= 30
                assert str(caught.value) == "one moment, please"


def test_what_is_done_is_not_waited_for(server: Server) -> None:
    """Done and not replayed, or another payload: an error at once, however long `wait` is."""
    with Dibs(server.url, budget=5) as dibs:
        with dibs.claim("order:1", window=60, after="hold"):
            pass
        since = time.monotonic()
        with pytest.raises(Duplicate) as caught:
            _second(dibs, wait=60)
        assert caught.value.state == "done"
        with dibs.claim("order:2", window=60, payload={"a": 1}):
            with pytest.raises(Mismatch):
                with dibs.claim("order:2", window=60, payload={"a": 2}, wait=60):
                    pytest.fail("claimed twice")
        assert time.monotonic() - since < 20


def test_a_duplicate_that_waits_is_told_when_it_is_held(server: Server) -> None:
    """after="hold": the end of the first one is the answer, done; the window is not waited for."""
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:
        with one.claim("order:1", window=600, after="hold", lease=30):
            waiter = Background(lambda: _second(two, after="hold", wait=15))
            eventually(lambda: _waits(two))
        with pytest.raises(Duplicate) as caught:
            waiter.result()
        assert caught.value.state == "done" and caught.value.retry_after > 500


def test_many_calls_one_execution(server: Server) -> None:
    """Thirty equal calls of a decorated function, in two processes: one does it, all get it."""
    calls = 0
    with Dibs(server.url, budget=5) as one, Dibs(server.url, budget=5) as two:

        def pay(key: str) -> dict[str, int]:
            nonlocal calls
            calls += 1
            sleep(0.2)
            return {"payment": calls}

        options: dict[str, Any] = {"window": 60, "after": "replay", "wait": 15}
        wrapped = [dibs.once("payment:{key}", **options)(pay) for dibs in (one, two)]
        waiters = [Background(wrapped[number % 2], "k-1") for number in range(30)]
        for waiter in waiters:
            assert waiter.result() == {"payment": 1}
        assert calls == 1


def test_a_duplicate_is_answered_by_a_function(server: Server) -> None:
    """duplicate=: it gets the error, and its result is the result of the call."""
    with Dibs(server.url, budget=5) as dibs:

        def later(error: Duplicate) -> str:
            return f"later: {error.state}"

        @dibs.once("order:{key}", window=60, after="hold", duplicate=lambda error: error.state)
        def order(key: str) -> str:
            return "ordered"

        @dibs.once("order:{key}", window=60, after="hold", duplicate=later, wait=0.1)
        def order_later(key: str) -> str:
            return "ordered"

        assert [order("1") for _ in range(2)] == ["ordered", "done"]
        assert order_later("1") == "later: done"
        with dibs.claim("order:2", window=60):
            assert order("2") == "running"
            assert order_later("2") == "later: running"


def test_only_a_duplicate_of_this_call_is_answered(server: Server) -> None:
    """A Mismatch, and a Duplicate that the function itself raises, reach the caller."""
    with Dibs(server.url, budget=5) as dibs:

        @dibs.once("order:{key}", window=60, payload=["n"], duplicate=lambda error: "answered")
        def order(key: str, n: int) -> str:
            if n == 7:
                raise Duplicate("inner", 1.0, "done")
            with dibs.claim(f"order:{key}", window=60):
                return "unreachable"

        with pytest.raises(Duplicate):
            order("1", 7)
        with pytest.raises(Duplicate):
            order("1", 1)
        with dibs.claim("order:2", window=60, payload={"n": 1}):
            with pytest.raises(Mismatch):
                order("2", 2)
        assert server.keys() == []


def test_waiting_through_an_outage(own_server: Server) -> None:
    """The store goes away while a duplicate waits: the policy decides, before the wait is over."""
    with Dibs(own_server.url, budget=0.3) as one:
        with Dibs(own_server.url, budget=0.3) as two:
            claim = one.claim("order:1", window=60, lease=30).__enter__()
            waiter = Background(lambda: _second(two, wait=60))
            eventually(lambda: _waits(two))
            own_server.kill()
            assert waiter.result() == "done by the second"
            claim.leak("dropped")


def test_the_wait_of_a_duplicate_is_checked() -> None:
    """A negative or senseless wait: UsageError, when it is written."""
    with Dibs("redis://127.0.0.1:1") as dibs:
        with pytest.raises(UsageError, match="wait"):
            dibs.claim("order:1", window=60, wait=-1)
        with pytest.raises(UsageError, match="wait"):
            dibs.once("order:{key}", window=60, wait=float("nan"))
