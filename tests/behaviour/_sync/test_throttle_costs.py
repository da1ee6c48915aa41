# Generated from tests/behaviour/_async/test_throttle_costs.py by unasync.py – do not edit.
"""Limits by cost, of several rates, with a wait for a turn, settled later; and by the calendar."""

from time import monotonic
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from dibs import Dibs, Busy, Event, Unavailable, UsageError
from dibs.testing import FaultProxy, Server

from .._threads import Background, eventually
from ..events import kinds

KEY = "tokens:42"


def test_a_call_tells_what_is_left(server: Server) -> None:
    """How many may follow at once, and after how long there is one more."""
    with Dibs(server.url, budget=5) as dibs:
        first = dibs.throttle(KEY, limit=5, per=3600)
        assert (first.left, first.guarded) == (4, True) and 700 < first.reset <= 720
        assert (dibs.throttle(KEY, limit=5, per=3600, cost=3)).left == 1
        assert repr(first).endswith("Throttling of 'tokens:*': left=4 reset=720>")


def test_a_cost_is_taken_as_a_whole_or_not_at_all(server: Server) -> None:
    """A call that costs more than is left takes nothing, and says when it could."""
    with Dibs(server.url, budget=5) as dibs:
        dibs.throttle(KEY, limit=100, per=3600, cost=70)
        with pytest.raises(Busy) as caught:
            dibs.throttle(KEY, limit=100, per=3600, cost=40)
        assert 300 < caught.value.retry_after <= 360, "ten units more: 36 s each"
        assert (dibs.throttle(KEY, limit=100, per=3600, cost=30)).left == 0


def test_a_look_counts_nothing(server: Server) -> None:
    """cost=0; a key that nobody has used is not created."""
    with Dibs(server.url, budget=5) as dibs:
        assert (dibs.throttle(KEY, limit=5, per=3600, cost=0)).left == 5
        assert (dibs.quota(KEY, limit=5, per="day", cost=0)).left == 5
        assert server.keys() == []
        dibs.throttle(KEY, limit=5, per=3600)
        for _ in range(2):
            assert (dibs.throttle(KEY, limit=5, per=3600, cost=0)).left == 4


def test_of_several_rates_all_count_or_none(server: Server) -> None:
    """Five at once, seven a day: what the second refuses is not taken from the first."""
    rates: dict[str, Any] = {"limit": 5, "per": 3600, "also": [(7, 86_400)]}
    with Dibs(server.url, budget=5) as dibs:
        assert (dibs.throttle(KEY, cost=4, **rates)).left == 1
        with pytest.raises(Busy):
            dibs.throttle(KEY, cost=4, **rates)
        assert (dibs.throttle(KEY, cost=1, **rates)).left == 0
        with pytest.raises(Busy) as caught:
            dibs.throttle(KEY, cost=4, **rates)
        assert caught.value.retry_after > 20_000, "the day is further away than the hour"


def test_a_look_is_never_refused(server: Server) -> None:
    """Also where a settlement has taken more than there is."""
    exact: dict[str, Any] = {"limit": 5, "per": 3600, "exact": True}
    with Dibs(server.url, budget=5) as dibs:
        for key, options in (("rate:1", {"limit": 5, "per": 3600}), ("window:1", exact)):
            call = dibs.throttle(key, **options)
            call.settle(9)
            with pytest.raises(Busy):
                dibs.throttle(key, **options)
            look = dibs.throttle(key, cost=0, **options)
            assert look.left == 0 and 3500 < look.reset <= 3600


def test_tokens_and_calls_are_limited_in_one_request(server: Server) -> None:
    """A call costs its tokens of the first rate, and one of the second."""
    rates: dict[str, Any] = {"limit": 1000, "per": 60, "also": [(3, 3600, 1)]}
    with Dibs(server.url, budget=5) as dibs:
        assert (dibs.throttle(KEY, cost=900, **rates)).left == 100
        with pytest.raises(Busy) as tokens:
            dibs.throttle(KEY, cost=900, **rates)
        assert 40 < tokens.value.retry_after <= 48, "800 tokens more: 60 ms each"
        assert (dibs.throttle(KEY, cost=10, **rates)).left >= 90
        last = dibs.throttle(KEY, cost=10, **rates)
        assert last.left == 0 and 1100 < last.reset <= 1200, "no call, though there are tokens"
        with pytest.raises(Busy) as calls:
            dibs.throttle(KEY, **rates)
        assert 1100 < calls.value.retry_after <= 1200
        assert (dibs.throttle(KEY, cost=0, **rates)).left == 0


def test_a_settlement_is_about_tokens_and_not_about_calls(server: Server) -> None:
    """The call took place."""
    rates: dict[str, Any] = {"limit": 1000, "per": 3600, "also": [(2, 3600, 1)]}
    with Dibs(server.url, budget=5) as dibs:
        call = dibs.throttle(KEY, cost=1000, **rates)
        call.settle(0)
        assert call.left == 1000
        dibs.throttle(KEY, cost=1000, **rates)
        with pytest.raises(Busy) as caught:
            dibs.throttle(KEY, **rates)
        assert caught.value.retry_after > 1000, "not only for tokens"


def test_who_waits_gets_its_turn(server: Server) -> None:
    """Each call takes its turn when it arrives, and no turn is given twice."""
    ends: list[float] = []
    with Dibs(server.url, budget=5) as dibs:

        def turn() -> None:
            dibs.throttle(KEY, limit=20, per=1, burst=1, wait=30, on_outage="closed")
            ends.append(monotonic())

        began = monotonic()
        waiting = [Background(turn) for _ in range(9)]
        for each in waiting:
            each.result()
    for turns, end in enumerate(sorted(ends)):
        assert end - began >= turns * 0.05


def test_who_cannot_have_its_turn_in_time_is_refused_at_once(server: Server) -> None:
    """It does not wait in vain, and takes nothing."""
    with Dibs(server.url, budget=5) as dibs:
        dibs.throttle(KEY, limit=1, per=3600)
        value = server.client().get(KEY)
        with pytest.raises(Busy) as caught:
            dibs.throttle(KEY, limit=1, per=3600, wait=60)
        assert caught.value.retry_after > 3500 and server.client().get(KEY) == value


def test_a_function_waits_for_its_turn(server: Server) -> None:
    """`wait=` of the decorator; the event says how long it was."""
    events: list[Event] = []
    with Dibs(server.url, budget=5, listeners=[events.append]) as dibs:

        @dibs.throttled("api", limit=20, per=1, burst=1, wait=30)
        def call() -> str:
            return "called"

        assert [call(), call()] == ["called"] * 2
    assert kinds(events) == ["passed", "passed"]
    assert events[0].waited == 0 and 0 < (events[1].waited or 0) <= 0.05


@pytest.mark.parametrize("verb", ["throttle", "quota"])
def test_a_cost_is_settled_when_it_is_known(server: Server, verb: str) -> None:
    """Less is given back; more is taken, beyond what is left."""
    options: dict[str, Any] = {"limit": 100, "per": 3600 if verb == "throttle" else "month"}
    with Dibs(server.url, budget=5) as dibs:
        use = getattr(dibs, verb)
        reserved = use(KEY, cost=60, **options)
        reserved.settle(25)
        assert reserved.left == 75
        reserved.settle(25)
        assert (use(KEY, cost=0, **options)).left == 75
        reserved.settle(130)
        with pytest.raises(Busy):
            use(KEY, **options)
        reserved.settle(0)
        assert (use(KEY, cost=0, **options)).left == 100
        with pytest.raises(UsageError):
            reserved.settle(-1)


# ---- never more than the limit in any time


def test_a_window_never_has_more_than_the_limit(server: Server) -> None:
    """Five at once, and then none until the first of them is `per` old."""
    with Dibs(server.url, budget=5) as dibs:
        left = [(dibs.throttle(KEY, limit=5, per=3600, exact=True)).left for _ in range(5)]
        assert left == [4, 3, 2, 1, 0]
        with pytest.raises(Busy) as caught:
            dibs.throttle(KEY, limit=5, per=3600, exact=True)
        assert 3500 < caught.value.retry_after <= 3600
        assert (
            dibs.throttle(KEY, limit=5, per=3600, exact=True, cost=0, wait=3600)
        ).left == 0


def test_a_window_lets_as_many_through_as_have_left_it(server: Server) -> None:
    """With a wait: the next one has its turn when enough of the oldest are gone, in one request."""
    ends: list[float] = []
    with Dibs(server.url, budget=5) as dibs:

        def turn() -> None:
            dibs.throttle(KEY, limit=2, per=0.1, exact=True, wait=30, on_outage="closed")
            ends.append(monotonic())

        began = monotonic()
        for each in [Background(turn) for _ in range(7)]:
            each.result()
    for number, end in enumerate(sorted(ends)):
        assert end - began >= number // 2 * 0.1


def test_a_window_counts_costs_and_settles_them(server: Server) -> None:
    """All or nothing; what is settled to nothing leaves no key."""
    rate: dict[str, Any] = {"limit": 100, "per": 3600, "exact": True}
    with Dibs(server.url, budget=5) as dibs:
        first = dibs.throttle(KEY, cost=60, **rate)
        with pytest.raises(Busy):
            dibs.throttle(KEY, cost=50, **rate)
        first.settle(20)
        assert first.left == 80
        second = dibs.throttle(KEY, cost=50, **rate)
        first.settle(70)
        assert (second.left, first.left) == (30, 0)
        assert server.client().zscore(KEY, "=120") == 0
        first.settle(0)
        second.settle(0)
        assert server.keys() == []


def test_a_window_that_is_over_is_not_settled(server: Server) -> None:
    """Its units have come back."""
    with Dibs(server.url, budget=5) as dibs:
        first = dibs.throttle(KEY, limit=9, per=0.05, exact=True, cost=4)
        eventually(lambda: server.keys() == [])
        first.settle(9)
        assert server.keys() == []


def test_a_call_in_a_window_whose_reply_was_lost_counts_once(server: Server) -> None:
    """The repeated request is recognised."""
    with FaultProxy(server.port) as line:
        with Dibs(line.url, budget=1) as dibs:
            dibs.throttle(KEY, limit=3, per=3600, exact=True)
            line.swallow_replies(match=KEY.encode())
            dibs.throttle(KEY, limit=3, per=3600, exact=True, on_outage="closed")
            third = dibs.throttle(KEY, limit=3, per=3600, exact=True)
            assert (line.triggered, third.left) == (1, 0)


def test_a_window_touches_no_other_set(server: Server) -> None:
    """Nor a rate of another kind; and a list of keys shows it as a rate."""
    with Dibs(server.url, budget=5) as dibs:
        server.client().zadd(KEY, {"a": 1})
        with pytest.raises(UsageError, match="another type"):
            dibs.throttle(KEY, limit=3, per=60, exact=True)
        assert server.client().zrange(KEY, 0, -1) == [b"a"]
        dibs.throttle("other", limit=3, per=60)
        with pytest.raises(UsageError, match="another type"):
            dibs.throttle("other", limit=3, per=60, exact=True)
        with pytest.raises(UsageError):
            dibs.throttle("third", limit=3, per=60, exact=True, burst=1)


# ---- quotas


def test_a_quota_is_for_a_day_of_the_calendar(server: Server) -> None:
    """Three; then Busy until midnight there, and the key expires with the day."""
    options: dict[str, Any] = {"limit": 3, "per": "day", "timezone": "Asia/Taipei"}
    with Dibs(server.url, budget=5, namespace="shop:") as dibs:
        assert [(dibs.quota(KEY, **options)).left for _ in range(3)] == [2, 1, 0]
        with pytest.raises(Busy) as caught:
            dibs.quota(KEY, **options)
        assert caught.value.state == "throttled"
        left = server.client().pttl(f"shop:{KEY}") / 1000
        assert 0 < caught.value.retry_after <= 86_400 and abs(left - caught.value.retry_after) < 5


def test_a_quota_of_another_period_begins_anew(server: Server) -> None:
    """What was used yesterday is not used today, also if the key is still there."""
    server.client().set(KEY, f"dibs1 quota {10**15} 3 0123456789abcdef-1", px=60_000)
    with Dibs(server.url, budget=5) as dibs:
        assert (dibs.quota(KEY, limit=3, per="day", timezone=ZoneInfo("UTC"))).left == 2


def test_a_machine_whose_clock_is_days_away_counts_in_the_servers_day(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's clock says which day it is."""
    with Dibs(server.url, budget=5) as dibs:
        dibs.quota(KEY, limit=3, per="day")
        monkeypatch.setattr(
            f"{type(dibs).__module__.rpartition('.')[0]}.throttle.time", lambda: 1e9
        )
        assert (dibs.quota(KEY, limit=3, per="day")).left == 1


def test_a_settlement_of_yesterday_is_not_counted_today(server: Server) -> None:
    """Its period is over."""
    with Dibs(server.url, budget=5) as dibs:
        yesterday = dibs.quota(KEY, limit=9, per="day", cost=4)
        value = server.client().get(KEY).replace(b"dibs1 quota ", b"dibs1 quota 1")
        server.client().set(KEY, value, px=60_000)
        today = dibs.quota(KEY, limit=9, per="day", cost=2)
        assert today.left == 7
        yesterday._outcome = yesterday._outcome._replace(period=1)
        yesterday.settle(9)
        assert (dibs.quota(KEY, limit=9, per="day", cost=0)).left == 7


@pytest.mark.parametrize("value", ["text", "dibs1 rate 1;1:1 a-1"])
def test_a_quota_does_not_touch_another_value(server: Server, value: str) -> None:
    """UsageError, and a rate is another value."""
    server.client().set(KEY, value)
    with Dibs(server.url, budget=5) as dibs:
        with pytest.raises(UsageError, match="another type"):
            dibs.quota(KEY, limit=3, per="day")
    assert server.client().get(KEY) == value.encode()


def test_a_quota_whose_reply_was_lost_counts_once(server: Server) -> None:
    """The repeated request is recognised."""
    with FaultProxy(server.port) as line:
        with Dibs(line.url, budget=1) as dibs:
            dibs.quota(KEY, limit=3, per="day")
            line.swallow_replies(match=KEY.encode())
            dibs.quota(KEY, limit=3, per="day", on_outage="closed")
            assert (line.triggered, (dibs.quota(KEY, limit=3, per="day")).left) == (1, 0)


@pytest.mark.parametrize(
    "options",
    [
        {"limit": 0, "per": "day"},
        {"limit": 3, "per": "fortnight"},
        {"limit": 3, "per": "day", "timezone": "Mars/Olympus"},
        {"limit": 3, "per": "day", "cost": 4},
    ],
)
def test_a_quota_that_is_invalid_is_refused_before_any_request(
    options: dict[str, Any],
) -> None:
    """UsageError; nothing is connected."""
    with Dibs("redis://127.0.0.1:1") as dibs:
        with pytest.raises(UsageError):
            dibs.quota(KEY, **options)


def test_in_an_outage_nothing_is_counted_and_nothing_settled(line: FaultProxy) -> None:
    """open: unguarded, and says so; closed: Unavailable."""
    line.refuse()
    with Dibs(line.url) as dibs:
        allowed = dibs.quota(KEY, limit=1, per="day")
        assert (allowed.guarded, allowed.left) == (False, 0)
        allowed.settle(5)
        with pytest.raises(Unavailable):
            dibs.quota(KEY, limit=1, per="day", on_outage="closed")
        assert "unguarded" in repr(allowed)
