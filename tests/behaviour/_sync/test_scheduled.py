# Generated from tests/behaviour/_async/test_scheduled.py by unasync.py – do not edit.
"""What `scheduled` promises: one machine executes each run, on time or late, or skips it."""

import logging
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from math import inf
from time import monotonic, time
from typing import Any, NamedTuple

import pytest

from dibs import Dibs, Event, Unavailable, UsageError
from dibs._core.schedule import RunEnd, record_request
from dibs.testing import FaultProxy, Server

from .._threads import Background, Interrupt, eventually, sleep
from ..events import kinds
from .schedules import NOON, Clock, has_begun

LEASE = "scheduled:{scheduled-last:tick}"
KEYS = [b"scheduled-last:tick", b"runs:{scheduled-last:tick}", LEASE.encode()]


def of(events: list[Event], *wanted: str) -> list[Event]:
    return [event for event in events if event.kind in wanted]


def test_a_run_is_run_by_one_of_several_machines(server: Server) -> None:
    """Three machines, one clock: once for each run, on the first machine."""
    runs: list[datetime] = []
    clock = Clock()
    with (
        Dibs(server.url, budget=5) as one,
        Dibs(server.url, budget=5) as two,
        Dibs(server.url, budget=5) as three,
    ):
        for dibs in (one, two, three):

            @dibs.scheduled(every=60, key="tick")
            def tick(run: Any) -> None:
                run.lease.check()
                runs.append(run.at)

        with clock.scheduler(one), clock.scheduler(two), clock.scheduler(three):
            eventually(has_begun(server, "tick"))
            for minute in (1, 2, 3):
                clock.set(NOON + 60 * minute)
                eventually(lambda minute=minute: len(runs) == minute)
    assert runs == [datetime.fromtimestamp(NOON + 60 * minute, UTC) for minute in (1, 2, 3)]


def test_clocks_that_are_apart_run_a_run_once(valkey: Server) -> None:
    """By the server's clock: it is ahead of one machine and behind the other."""
    runs: list[str] = []
    ahead, behind = Clock(NOON + 15, ahead=15), Clock(NOON - 15, ahead=-15)
    with Dibs(valkey.url, budget=5) as one, Dibs(valkey.url, budget=5) as two:

        @one.scheduled(every=10, key="tick")
        def early(run: Any) -> None:
            runs.append(f"early {run.at:%M:%S}")

        @two.scheduled(every=10, key="tick")
        def late(run: Any) -> None:
            runs.append(f"late {run.at:%M:%S}")

        with ahead.scheduler(one) as first, behind.scheduler(two):
            eventually(has_begun(valkey, "tick"))
            eventually(lambda: first._runners[0]._last is not None)
            ahead.set(NOON + 24)  # the server: 9
            sleep(0.05)
            assert runs == []
            ahead.set(NOON + 25)
            eventually(lambda: runs == ["early 00:10"])
            eventually(lambda: _last(valkey, "tick") == int(NOON + 10) * 1000)
            behind.set(NOON + 5)  # the server: 20
            eventually(lambda: runs == ["early 00:10", "late 00:20"])
            eventually(lambda: _last(valkey, "tick") == int(NOON + 20) * 1000)
            ahead.set(NOON + 35)
            sleep(0.05)
    assert runs == ["early 00:10", "late 00:20"]


def test_a_machine_that_is_ahead_runs_no_run_before_the_server_s_clock_shows_it(
    valkey: Server, proxy: FaultProxy
) -> None:
    """The network is slow, so that a round trip may explain how far its clock is ahead."""
    runs: list[str] = []
    clock = Clock(NOON + 30.1, ahead=0.1)
    with Dibs(proxy.url, budget=5) as dibs:

        @dibs.scheduled(every=60, key="tick")
        def tick(run: Any) -> None:
            runs.append(f"{run.at:%H:%M}")

        proxy.delay(requests=0.2)
        with clock.scheduler(dibs):
            eventually(has_begun(valkey, "tick"))
            clock.set(NOON + 60.05)  # the server: 59.95
            asked = clock.asked
            eventually(lambda: runs != [] or clock.asked > asked + 3)
            assert runs == []
            clock.set(NOON + 60.1)
            eventually(lambda: runs == ["12:01"])


@pytest.mark.parametrize("wrong", [-7200, -90, 90, 86400])
def test_a_machine_whose_clock_is_wrong_stands_aside(
    valkey: Server, caplog: pytest.LogCaptureFixture, wrong: int
) -> None:
    """It runs nothing and records nothing, logs it once, and continues when its clock is right."""
    runs: list[str] = []
    events: list[Event] = []
    right, clock = Clock(), Clock(NOON + wrong, ahead=wrong)
    with (
        Dibs(valkey.url, budget=5) as one,
        Dibs(valkey.url, budget=5, listeners=[events.append]) as two,
    ):
        for key in ("tick", "tack"):

            @one.scheduled(every=60, key=key)
            def good(run: Any) -> None:
                runs.append(f"good {run.at:%d %H:%M}")

            @two.scheduled(every=60, key=key)
            def bad(run: Any) -> None:
                runs.append(f"bad {run.at:%d %H:%M}")

        with clock.scheduler(two):
            eventually(lambda: of(events, "clock_skew") != [])
            clock.set(NOON + wrong + 60)
            sleep(0.05)
            assert runs == [] and valkey.keys() == []
            with right.scheduler(one):
                eventually(has_begun(valkey, "tick"))
                eventually(has_begun(valkey, "tack"))
                right.set(NOON + 60)
                eventually(lambda: runs == ["good 12 12:01"] * 2)
                eventually(lambda: _last(valkey, "tack") == int(NOON + 60) * 1000)
                eventually(lambda: _last(valkey, "tick") == int(NOON + 60) * 1000)
                clock.set(NOON + wrong + 120)
                sleep(0.05)
            clock.ahead = 0
            clock.set(NOON + 180)
            eventually(lambda: runs[2:] == ["bad 12 12:03"] * 2)
    [event] = of(events, "clock_skew")
    assert event.cause == "clock" and event.name == "*" and event.detail is not None
    side = "ahead of" if wrong > 0 else "behind"
    said_by = re.search(rf"(\d+) s {side} the server's", event.detail)
    # The time that the question was on its way may count for the server's.
    assert said_by is not None and abs(int(said_by[1]) - abs(wrong)) <= 20, event.detail
    said = [each for each in caplog.records if "no scheduled function is run here" in each.message]
    assert [each.levelno for each in said] == [logging.WARNING]


def test_the_time_of_the_server_is_that_of_the_server(valkey: Server) -> None:
    """Real clocks: one machine is right, the other two hours behind, for some runs."""
    runs: list[str] = []
    events: list[Event] = []
    with (
        Dibs(valkey.url, budget=5) as one,
        Dibs(valkey.url, budget=5, listeners=[events.append]) as two,
    ):

        @one.scheduled(every=1, key="tick")
        def good(run: Any) -> None:
            runs.append(f"good {run.at:%H:%M:%S}")

        @two.scheduled(every=1, key="tick")
        def bad(run: Any) -> None:
            runs.append(f"bad {run.at:%H:%M:%S}")

        behind = two.scheduler()
        behind.clock = lambda: time() - 7200
        with behind, one.scheduler():
            eventually(lambda: len(runs) > 1)
            behind.look()
            eventually(lambda: of(events, "clock_skew") != [])
    assert runs == sorted(set(runs)) and not any("bad" in run for run in runs)


def test_a_record_never_moves_back(server: Server) -> None:
    """Whenever a request arrives, and with any clock of its machine."""
    now = int(time()) * 1000
    with Dibs(server.url, budget=5) as dibs:

        def record(run: int) -> int:
            end = RunEnd("web-1:1", "finished", run, 5)
            request = record_request(KEYS, run, end, 60_000, inf, 0, b"")
            dibs._store.opened()
            dibs._store.ask(request, monotonic())
            return _last(server, "tick")

        assert record(now - 86_400_000) == now - 86_400_000
        assert record(now) == now
        assert record(now - 86_400_000) == now  # a copy that is a day late
        assert record(now + 60_000) == now + 60_000
        assert record(now) == now + 60_000
        server.client().set("scheduled-last:tick", f"{now + 7_200_000} wrong:1")
        assert record(now) == now  # no run of now + 2 h can be over


def test_a_new_schedule_does_not_begin_with_a_missed_run(valkey: Server) -> None:
    """Deployed at noon for three o'clock in the morning: nothing runs at noon."""
    runs: list[datetime] = []
    clock = Clock()
    with Dibs(valkey.url, budget=5) as dibs:

        @dibs.scheduled("0 3 * * *", key="nightly", timezone="Asia/Taipei")
        def nightly(run: Any) -> None:
            runs.append(run.at)

        with clock.scheduler(dibs):
            eventually(has_begun(valkey, "nightly"))
            clock.set(NOON + 6.9 * 3600)
            sleep(0.1)
            assert runs == []
            clock.set(NOON + 7 * 3600)
            eventually(lambda: len(runs) == 1)
    assert runs[0].isoformat() == "2024-11-13T03:00:00+08:00"


def test_a_clock_that_is_set_back_while_a_new_schedule_begins(
    valkey: Server, proxy: FaultProxy
) -> None:
    """It begins by the server's clock: the runs up to the wrong time are not over."""
    runs: list[str] = []
    clock = Clock(NOON + 90, ahead=90)
    with Dibs(proxy.url, budget=60) as dibs:

        @dibs.scheduled(every=60, key="tick")
        def tick(run: Any) -> None:
            runs.append(f"{run.at:%H:%M}")

        proxy.hold_requests(match=b"scheduled-last")
        with clock.scheduler(dibs):
            eventually(lambda: proxy.triggered == 1)
            clock.now, clock.ahead = NOON, 0
            proxy.deliver()
            eventually(has_begun(valkey, "tick"))
            clock.set(NOON + 60)
            eventually(lambda: runs == ["12:01"])


def test_a_clock_that_is_set_forward_does_not_hold_up_the_runs_before(
    valkey: Server,
) -> None:
    """A later run seemed due: the server's clock is asked, and the next run by it is run."""
    runs: list[str] = []
    clock = Clock(NOON + 10)
    with Dibs(valkey.url, budget=5) as dibs:

        @dibs.scheduled(every=30, key="tick")
        def tick(run: Any) -> None:
            runs.append(f"{run.at:%H:%M:%S}")

        with clock.scheduler(dibs):
            eventually(has_begun(valkey, "tick"))
            clock.ahead, asked = 45, clock.asked
            clock.set(NOON + 29.5 + 45)
            eventually(lambda: clock.asked > asked)
            clock.now = NOON + 30 + 45
            eventually(lambda: runs == ["12:00:30"], within=20)


def test_a_new_schedule_is_said_to_be_new_until_a_run_is_over(
    valkey: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """In its record and in one line of the log. Later, no machine takes it for new."""
    caplog.set_level(logging.INFO, "dibs")
    clock = Clock()
    with Dibs(valkey.url, budget=5) as one, Dibs(valkey.url, budget=5) as two:
        for dibs in (one, two):

            @dibs.scheduled(every=60, key="tick")
            def tick() -> None: ...

        with clock.scheduler(one):
            eventually(has_begun(valkey, "tick"))
            assert valkey.client().get("scheduled-last:tick").endswith(b" new")
            with clock.scheduler(two):
                clock.set(NOON + 60)
                eventually(lambda: _last(valkey, "tick") == int(NOON + 60) * 1000)
        assert not valkey.client().get("scheduled-last:tick").endswith(b" new")
    said = [line for line in caplog.messages if "new schedule" in line]
    assert len(said) == 1 and said[0].startswith("tick: a new schedule")


def test_a_takeover_names_the_machine_that_had_the_run(
    valkey: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """It is a second run: the log says so, and the loss is one WARNING on the first machine."""
    caplog.set_level(logging.INFO, "dibs")
    runs: list[str] = []
    clock = Clock()
    with Dibs(valkey.url, budget=5) as one, Dibs(valkey.url, budget=5) as two:

        @one.scheduled(every=60, key="tick", ttl=1)
        def long(run: Any) -> None:
            runs.append("one")
            while not run.lease.lost or "two" not in runs:  # or it would try again first
                with suppress(Interrupt):
                    sleep(0.01)
            run.lease.check()

        @two.scheduled(every=60, key="tick")
        def late() -> None:
            runs.append("two")

        with clock.scheduler(one):
            eventually(has_begun(valkey, "tick"))
            clock.set(NOON + 60)
            eventually(lambda: runs == ["one"])
            with clock.scheduler(two):
                eventually(lambda: two._leases.waiters.queues != {})
                eventually(lambda: _looked(two))
                valkey.client().delete(LEASE)  # as if the server had lost its data
                eventually(lambda: runs == ["one", "two"])
            eventually(lambda: any("failed" in line for line in caplog.messages))
    [taken] = [line for line in caplog.messages if "taking over" in line]
    assert f"from {one._leases.identity.holder}" in taken and "the run of " in taken
    lost = [each for each in caplog.records if "its lease was lost" in each.getMessage()]
    assert [each.levelno for each in lost] == [logging.WARNING]


def _looked(dibs: Dibs) -> bool:
    """Whether a machine knows who has the run."""
    queues = [queue for each in dibs._leases.waiters.queues.values() for queue in each]
    return any(queue.holding is not None for queue in queues)


def test_a_run_after_another_one_is_no_takeover(
    valkey: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """at_least: the next run waits for a lease whose run is over."""
    caplog.set_level(logging.INFO, "dibs")
    clock = Clock()
    with Dibs(valkey.url, budget=5) as dibs:

        @dibs.scheduled(every=60, key="tick", at_least=30)
        def tick() -> None: ...

        with clock.scheduler(dibs):
            eventually(has_begun(valkey, "tick"))
            clock.set(NOON + 60)
            eventually(lambda: 20_000 < valkey.client().pttl(LEASE) <= 30_050)
            clock.set(NOON + 120)
            eventually(lambda: _looked(dibs))
            valkey.client().delete(LEASE)
            eventually(lambda: _last(valkey, "tick") == int(NOON + 120) * 1000)
    assert not any("taking over" in line for line in caplog.messages)


def test_runs_of_a_time_without_machines_are_made_up_for_once(valkey: Server) -> None:
    """missed="once": the last of them runs late, with its own time; the others are counted."""
    runs: list[datetime] = []
    events: list[Event] = []
    with Dibs(valkey.url, budget=5, listeners=[events.append]) as dibs:

        @dibs.scheduled(every=3600, key="hourly")
        def hourly(run: Any) -> None:
            runs.append(run.at)

        with Clock().scheduler(dibs):
            eventually(has_begun(valkey, "hourly"))
        with Clock(NOON + 5.5 * 3600).scheduler(dibs):
            eventually(lambda: len(of(events, "finished")) == 1)
    assert runs == [datetime.fromtimestamp(NOON + 5 * 3600, UTC)]
    [started] = of(events, "started")
    [missed] = of(events, "missed")
    assert started.delay == 1800 and started.guarded is True and started.fence is not None
    assert missed.count == 4 and missed.name == "hourly"


def test_runs_of_a_time_without_machines_can_be_skipped(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """missed="skip": counted once in the fleet, and the next one runs when it is due."""
    runs: list[datetime] = []
    events: list[Event] = []
    clock = Clock(NOON + 5.5 * 3600)
    with Dibs(server.url, budget=5, listeners=[events.append]) as dibs:

        @dibs.scheduled(every=3600, key="hourly", missed="skip")
        def hourly(run: Any) -> None:
            runs.append(run.at)

        with Clock().scheduler(dibs):
            eventually(has_begun(server, "hourly"))
        for _ in range(2):
            with clock.scheduler(dibs):
                eventually(lambda: len(of(events, "missed")) == 1)
        with clock.scheduler(dibs):
            clock.set(NOON + 6 * 3600)
            eventually(lambda: len(runs) == 1)
    assert runs == [datetime.fromtimestamp(NOON + 6 * 3600, UTC)]
    assert [event.count for event in of(events, "missed")] == [5]
    assert any("hourly: 5 runs were missed" in line for line in caplog.messages)


def test_a_run_that_is_longer_than_its_period_is_not_overlapped(valkey: Server) -> None:
    """The next machine waits for its end, and then executes the latest run once."""
    runs: list[str] = []
    clock = Clock()
    going: list[bool] = [True]
    with Dibs(valkey.url, budget=5) as one, Dibs(valkey.url, budget=5) as two:
        for dibs in (one, two):

            @dibs.scheduled(every=60, key="long")
            def long(run: Any) -> None:
                runs.append(f"begin {run.at:%M}")
                while going[0]:
                    sleep(0.01)
                runs.append(f"end {run.at:%M}")

        with clock.scheduler(one), clock.scheduler(two):
            eventually(has_begun(valkey, "long"))
            clock.set(NOON + 60)
            eventually(lambda: runs == ["begin 01"])
            for minute in (2, 3, 4):
                clock.set(NOON + 60 * minute)
                sleep(0.05)
            assert runs == ["begin 01"]
            going[0] = False
            eventually(lambda: len(runs) == 4)
            clock.set(NOON + 300)
            eventually(lambda: len(runs) == 6)
    assert runs == ["begin 01", "end 01", "begin 04", "end 04", "begin 05", "end 05"]


def test_a_run_that_somebody_runs_is_not_skipped(valkey: Server) -> None:
    """missed="skip": a machine that comes late waits for the end of a run, and takes over."""
    events: list[Event] = []
    runs: list[str] = []
    going: list[bool] = [True]
    clock = Clock()
    with (
        Dibs(valkey.url, budget=5) as one,
        Dibs(valkey.url, budget=5, listeners=[events.append]) as two,
    ):

        @one.scheduled(every=3600, key="hourly", missed="skip")
        def long() -> None:
            runs.append("one")
            while going[0]:
                sleep(0.01)

        @two.scheduled(every=3600, key="hourly", missed="skip")
        def late() -> None:
            runs.append("two")

        with clock.scheduler(one):
            eventually(has_begun(valkey, "hourly"))
            clock.set(NOON + 3600)
            eventually(lambda: runs == ["one"])
            clock.set(NOON + 3600 + 900)
            with clock.scheduler(two):
                eventually(lambda: two._leases.waiters.queues != {})
                valkey.client().delete(
                    "scheduled:{scheduled-last:hourly}"
                )  # as if its machine had died
                eventually(lambda: runs == ["one", "two"])
            going[0] = False
    assert of(events, "missed") == []


def test_a_server_whose_clock_was_set_back_does_not_stop_a_schedule(valkey: Server) -> None:
    """It was a day ahead, and runs were executed; when it is put right, they go on from there."""
    runs: list[str] = []
    clock = Clock(NOON + 86400)
    with Dibs(valkey.url, budget=5) as dibs:

        @dibs.scheduled(every=60, key="tick")
        def tick(run: Any) -> None:
            runs.append(f"{run.at:%d %H:%M}")

        with clock.scheduler(dibs) as scheduler:
            eventually(has_begun(valkey, "tick"))
            clock.set(NOON + 86460)
            eventually(lambda: len(runs) == 1)
            clock.set(NOON)
            eventually(lambda: scheduler._runners[0]._last == int(NOON) * 1000)
            clock.set(NOON + 60)
            eventually(lambda: len(runs) == 2)
    assert runs == ["13 12:01", "12 12:01"]


def test_schedules_and_leaders_wait_while_dibs_is_disabled(
    valkey: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """DIBS_DISABLED=1: else every machine would lead, and execute every run. "open" does."""
    monkeypatch.setenv("DIBS_DISABLED", "1")
    events: list[Event] = []
    clock = Clock()
    with Dibs(valkey.url, listeners=[events.append]) as dibs:

        @dibs.scheduled(every=60, key="tick")
        def tick() -> None: ...

        @dibs.scheduled(every=60, key="tock", on_outage="open")
        def tock() -> None: ...

        with clock.scheduler(dibs):
            clock.set(NOON + 60)
            eventually(lambda: len(of(events, "finished")) == 1)
        with pytest.raises(Unavailable):
            with dibs.leader("indexer", wait=0.05):
                raise AssertionError("nobody leads")
    assert {event.name for event in of(events, "started", "finished")} == {"tock"}
    assert valkey.keys() == [] and of(events, "elected") == []
    assert "leaders and schedules wait" in caplog.text
    assert "tick: waiting for Redis: dibs is disabled" in caplog.text
    assert "could not be recorded" not in caplog.text


def test_a_function_that_raises_has_had_its_run(
    valkey: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Logged with its traceback, an event with a code; not tried again by every other machine."""
    events: list[Event] = []
    clock = Clock()
    with (
        Dibs(valkey.url, budget=5, listeners=[events.append]) as one,
        Dibs(valkey.url, budget=5, listeners=[events.append]) as two,
    ):
        for dibs in (one, two):

            @dibs.scheduled(every=60, key="broken")
            def broken() -> None:
                raise KeyError("of the function")

        with clock.scheduler(one), clock.scheduler(two):
            eventually(has_begun(valkey, "broken"))
            for minute in (1, 2):
                clock.set(NOON + 60 * minute)
                eventually(lambda minute=minute: len(of(events, "failed")) == minute)
            sleep(0.1)
    assert kinds(of(events, "started", "failed")) == ["started", "failed"] * 2
    assert {event.cause for event in of(events, "failed")} == {"raised"}
    [record, *_] = [each for each in caplog.records if "failed" in each.getMessage()]
    assert record.levelno == logging.ERROR and record.exc_info is not None


def test_a_function_that_ends_by_an_interrupt_of_its_own_ends_no_schedule(
    valkey: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """A task that it waited for was cancelled, or it called sys.exit(): it has had its run."""
    events: list[Event] = []
    clock = Clock()
    with Dibs(valkey.url, budget=5, listeners=[events.append]) as dibs:

        @dibs.scheduled(every=60, key="broken")
        def broken() -> None:
            raise Interrupt

        with clock.scheduler(dibs):
            eventually(has_begun(valkey, "broken"))
            for minute in (1, 2, 3):
                clock.set(NOON + 60 * minute)
                eventually(lambda minute=minute: len(of(events, "failed")) == minute)
    assert {event.cause for event in of(events, "failed")} == {"raised"}
    [record, *_] = [each for each in caplog.records if "failed" in each.getMessage()]
    assert record.levelno == logging.ERROR and record.exc_info is not None


class Ending(NamedTuple):
    """How a function ends that sees that its lease was lost."""

    name: str
    end: Callable[[Any], None]


def _raise(error: BaseException) -> None:
    raise error


ENDINGS = [
    Ending("returns", lambda run: None),
    Ending("checks", lambda run: run.lease.check()),
    Ending("raises", lambda run: _raise(KeyError("of the function"))),
    Ending("is interrupted", lambda run: _raise(Interrupt())),
]


@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "late"])
@pytest.mark.parametrize("ending", ENDINGS, ids=[each.name for each in ENDINGS])
def test_a_run_whose_lease_was_lost_is_not_over(
    valkey: Server, ending: Ending, is_late: bool
) -> None:
    """However its function ends: another machine runs it, and only that one records it."""
    events: list[Event] = []
    runs: list[str] = []
    clock = Clock()
    with (
        Dibs(valkey.url, budget=5, listeners=[events.append]) as one,
        Dibs(valkey.url, budget=5) as two,
    ):

        @one.scheduled(every=60, key="tick", ttl=0.6)
        def first(run: Any) -> None:
            runs.append("one")
            while not run.lease.lost or (is_late and "two" not in runs):
                with suppress(Interrupt):  # a task that continues anyway
                    sleep(0.01)
            ending.end(run)

        @two.scheduled(every=60, key="tick")
        def second() -> None:
            runs.append("two")

        with clock.scheduler(one):
            eventually(has_begun(valkey, "tick"))
            clock.set(NOON + 60)
            eventually(lambda: runs == ["one"])
            valkey.client().set(LEASE, "web-3", px=60_000)  # it was stopped, say
            if is_late:
                valkey.client().delete(LEASE)
                with clock.scheduler(two):
                    eventually(lambda: _last(valkey, "tick") == int(NOON + 60) * 1000)
            eventually(lambda: of(events, "failed") != [])
        if not is_late:
            assert _last(valkey, "tick") == int(NOON) * 1000
            valkey.client().delete(LEASE)
            with clock.scheduler(two):
                eventually(lambda: _last(valkey, "tick") == int(NOON + 60) * 1000)
    assert runs == ["one", "two"]
    assert [event.cause for event in of(events, "failed")] == ["lease_lost"]
    assert of(events, "finished") == []
    holder = two._leases.identity.holder.encode()
    assert valkey.client().get("scheduled-last:tick").split()[1] == holder


def test_nothing_runs_while_redis_is_unavailable(
    own_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """With any outage policy: five machines would run it five times. Later the run is late."""
    runs: list[datetime] = []
    events: list[Event] = []
    clock = Clock()
    with Dibs(own_server.url, budget=0.3, listeners=[events.append]) as dibs:

        @dibs.scheduled(every=60, key="tick")
        def tick(run: Any) -> None:
            runs.append(run.at)

        with clock.scheduler(dibs):
            eventually(has_begun(own_server, "tick"))
            own_server.freeze()
            clock.set(NOON + 60)
            eventually(lambda: "outage" in kinds(events))
            sleep(0.3)
            assert runs == []
            own_server.thaw()
            eventually(lambda: len(runs) == 1)
    assert any("tick: waiting for Redis" in line for line in caplog.messages)


def test_a_schedule_may_run_unguarded(own_server: Server) -> None:
    """on_outage="open": each machine runs it, and says so."""
    events: list[Event] = []
    clock = Clock()
    with Dibs(own_server.url, budget=0.3, listeners=[events.append]) as dibs:

        @dibs.scheduled(every=60, key="tick", on_outage="open")
        def tick() -> None: ...

        with clock.scheduler(dibs):
            eventually(has_begun(own_server, "tick"))
            own_server.freeze()
            clock.set(NOON + 60)
            eventually(lambda: len(of(events, "finished")) == 1)
            own_server.thaw()
    assert [event.guarded for event in of(events, "started")] == [False]


def test_the_end_of_a_run_is_recorded_when_redis_is_back(own_server: Server) -> None:
    """It was done: no machine runs it again because Redis was unavailable at that moment."""
    runs: list[int] = []
    clock = Clock()
    with Dibs(own_server.url, budget=0.3) as dibs:

        @dibs.scheduled(every=60, key="tick")
        def tick() -> None:
            runs.append(1)
            own_server.freeze()

        with clock.scheduler(dibs):
            eventually(has_begun(own_server, "tick"))
            clock.set(NOON + 60)
            eventually(lambda: len(runs) == 1)
            sleep(0.7)
            own_server.thaw()
            eventually(
                lambda: _last(own_server, "tick") == int(NOON + 60) * 1000,
            )
    assert runs == [1]


def _last(server: Server, key: str, namespace: str = "") -> int:
    return int(server.client().get(f"{namespace}scheduled-last:{key}").split()[0])


def test_a_record_that_is_lost_costs_no_run(valkey: Server) -> None:
    """Redis was flushed: machines that run remember which runs are over, and go on."""
    runs: list[str] = []
    clock = Clock()
    with Dibs(valkey.url, budget=5) as dibs:

        @dibs.scheduled(every=60, key="tick")
        def tick(run: Any) -> None:
            runs.append(f"{run.at:%M}")

        with clock.scheduler(dibs):
            eventually(has_begun(valkey, "tick"))
            for minute in (1, 2):
                clock.set(NOON + 60 * minute)
                eventually(lambda minute=minute: len(runs) == minute)
                eventually(lambda: valkey.client().exists(LEASE) == 0)
                valkey.flush()
    assert runs == ["01", "02"]


def test_a_machine_from_the_future_does_not_stop_the_others(server: Server) -> None:
    """Its clock is a year ahead: its record is not believed, and is put right."""
    runs: list[str] = []
    clock = Clock()
    with Dibs(server.url, budget=5) as dibs:

        @dibs.scheduled(every=60, key="tick")
        def tick(run: Any) -> None:
            runs.append(f"{run.at:%M}")

        ahead = int(time() + 365 * 86400) * 1000
        server.client().set("scheduled-last:tick", f"{ahead} wrong:1")
        with clock.scheduler(dibs):
            clock.set(NOON + 60)
            eventually(lambda: runs == ["01"])
            eventually(lambda: _last(server, "tick") == int(NOON + 60) * 1000)
        assert 0 < server.client().pttl("scheduled-last:tick") <= (30 * 86400 + 60) * 1000


def test_two_runs_are_at_least_so_far_apart(valkey: Server) -> None:
    """at_least: the lease stays taken after a quick run; a later run waits for its end."""
    runs: list[str] = []
    clock = Clock()
    with Dibs(valkey.url, budget=5) as dibs:

        @dibs.scheduled(every=60, key="tick", at_least=30)
        def tick(run: Any) -> None:
            runs.append(f"{run.at:%M}")

        with clock.scheduler(dibs):
            eventually(has_begun(valkey, "tick"))
            clock.set(NOON + 60)
            eventually(lambda: _last(valkey, "tick") == int(NOON + 60) * 1000)
            eventually(lambda: 20_000 < valkey.client().pttl(LEASE) <= 30_050)
            clock.set(NOON + 120)
            sleep(0.2)
            assert runs == ["01"]
            valkey.client().delete(LEASE)
            eventually(lambda: runs == ["01", "02"])


@pytest.mark.parametrize("at_least", [0, 30])
def test_a_run_costs_three_round_trips(server: Server, at_least: int) -> None:
    """Look; take the lease and look again; record and release. A machine that is late looks."""
    events: list[Event] = []
    early, late = Clock(), Clock()
    with FaultProxy(server.port) as first, FaultProxy(server.port) as second:
        with (
            Dibs(first.url, budget=5, listeners=[events.append]) as one,
            Dibs(second.url, budget=5) as two,
        ):
            for dibs in (one, two):

                @dibs.scheduled(every=60, key="tick", at_least=at_least)
                def tick() -> None: ...

            with one.hold("warm:up", ttl=5, fence=True):  # the server knows the script
                pass
            events.clear()
            with early.scheduler(one):
                eventually(has_begun(server, "tick"))
                with late.scheduler(two) as idle:
                    eventually(lambda: idle._runners[0]._last is not None)
                    before = first.requests, second.requests
                    early.set(NOON + 60)
                    eventually(lambda: len(of(events, "finished", "released")) == 2)
                    assert _last(server, "tick") == int(NOON + 60) * 1000
                    late.set(NOON + 60)
                    eventually(lambda: idle._runners[0]._last == int(NOON + 60) * 1000)
            assert (first.requests - before[0], second.requests - before[1]) == (3, 1)


def test_a_run_that_is_skipped_costs_two_round_trips(valkey: Server) -> None:
    """Take the lease and look; record and release."""
    events: list[Event] = []
    with FaultProxy(valkey.port) as line:
        with Dibs(line.url, budget=5, listeners=[events.append]) as dibs:

            @dibs.scheduled(every=3600, key="hourly", missed="skip")
            def hourly() -> None: ...

            with dibs.hold("warm:up", ttl=5, fence=True):
                pass
            events.clear()
            clock = Clock()
            with clock.scheduler(dibs):
                eventually(has_begun(valkey, "hourly"))
                before = line.requests
                clock.set(NOON + 3600 + 900)
                eventually(lambda: kinds(events) == ["missed", "released"])
            assert line.requests - before == 2


def test_a_lease_that_is_over_when_it_is_granted_begins_no_run(
    valkey: Server, proxy: FaultProxy, caplog: pytest.LogCaptureFixture
) -> None:
    """Replies take longer than the ttl: the run is executed when they do not."""
    runs: list[bool] = []
    clock = Clock()
    with Dibs(proxy.url, budget=5) as dibs:

        @dibs.scheduled(every=60, key="tick", ttl=0.5)
        def tick(run: Any) -> None:
            runs.append(run.lease.lost)

        with clock.scheduler(dibs):
            eventually(has_begun(valkey, "tick"))
            proxy.delay(replies=0.6)
            clock.set(NOON + 60)
            eventually(lambda: "its lease was lost" in caplog.text or runs != [])
            proxy.heal()
            eventually(lambda: _last(valkey, "tick") == int(NOON + 60) * 1000)
    assert runs == [False]


def test_a_run_that_cannot_be_recorded_keeps_its_lease(own_server: Server) -> None:
    """Not even for a moment is the lease free and the run not over: no other machine runs it."""
    events: list[Event] = []
    clock = Clock()
    client = own_server.client()
    with Dibs(own_server.url, budget=5, listeners=[events.append]) as dibs:

        @dibs.scheduled(every=60, key="tick", ttl=60)
        def tick() -> None:
            client.config_set("maxmemory", 1)

        with clock.scheduler(dibs):
            eventually(has_begun(own_server, "tick"))
            clock.set(NOON + 60)
            eventually(lambda: of(events, "outage") != [])
            assert client.exists(LEASE) and _last(own_server, "tick") == int(NOON) * 1000
            client.config_set("maxmemory", 0)
            eventually(lambda: _last(own_server, "tick") == int(NOON + 60) * 1000)
            assert not client.exists(LEASE)


def test_a_run_whose_function_releases_its_lease_is_over(valkey: Server) -> None:
    """Or hands it over: it is recorded, and what has become of the lease is left alone."""
    clock = Clock()
    with Dibs(valkey.url, budget=5) as dibs:

        @dibs.scheduled(every=60, key="tick")
        def tick(run: Any) -> None:
            if f"{run.at:%M}" == "01":
                assert run.lease.release()
            else:
                run.lease.detach(ttl=60)

        with clock.scheduler(dibs):
            eventually(has_begun(valkey, "tick"))
            for minute, left in ((1, 0), (2, 1)):
                at = int(NOON + 60 * minute)
                clock.set(at)
                eventually(lambda at=at: _last(valkey, "tick") == at * 1000)
                assert valkey.client().exists(LEASE) == left


def test_ending_a_scheduler_lets_a_run_finish(valkey: Server) -> None:
    """Within `drain`; no further run is taken."""
    runs: list[str] = []
    clock = Clock()
    with Dibs(valkey.url, budget=5) as dibs:

        @dibs.scheduled(every=60, key="tick")
        def tick() -> None:
            runs.append("begin")
            clock.set(NOON + 120)
            sleep(0.5)
            runs.append("end")

        with clock.scheduler(dibs):
            eventually(has_begun(valkey, "tick"))
            clock.set(NOON + 60)
            eventually(lambda: runs == ["begin"])
        assert runs == ["begin", "end"]
        eventually(lambda: valkey.client().exists(LEASE) == 0)
    assert _last(valkey, "tick") == int(NOON + 60) * 1000


def test_a_scheduler_that_waits_for_another_machine_ends_at_once(valkey: Server) -> None:
    """The shutdown does not wait for a run elsewhere."""
    clock = Clock()
    going: list[bool] = [True]
    begun: list[int] = []
    with Dibs(valkey.url, budget=5) as one, Dibs(valkey.url, budget=5) as two:

        @one.scheduled(every=60, key="long")
        def long() -> None:
            begun.append(1)
            while going[0]:
                sleep(0.01)

        @two.scheduled(every=60, key="long")
        def never() -> None:
            raise AssertionError("the other one runs it")

        with clock.scheduler(one):
            eventually(has_begun(valkey, "long"))
            clock.set(NOON + 60)
            eventually(lambda: begun == [1])

            def shut_down() -> bool:
                with clock.scheduler(two, drain=60):
                    eventually(lambda: two._leases.waiters.queues != {})
                return True

            assert Background(shut_down).result()
            going[0] = False


def test_mistakes_are_told_before_anything_runs(valkey: Server) -> None:
    """A function of the wrong kind, an argument too many, a key twice, nothing to run."""
    with Dibs(valkey.url, budget=5) as dibs:
        with pytest.raises(UsageError, match="no function is scheduled"):
            with dibs.scheduler():
                pass
        with pytest.raises(UsageError, match="user_id"):

            @dibs.scheduled(every=60, key="tick")
            def asks(user_id: str) -> None: ...

        with pytest.raises(UsageError, match="empty"):
            dibs.scheduled(every=60, key="")
        with pytest.raises(TypeError, match="required keyword-only argument: 'key'"):
            dibs.scheduled(every=60)  # type: ignore[call-arg]

        @dibs.scheduled(every=60, key="tick")
        def first() -> None: ...

        with pytest.raises(UsageError, match="two functions are scheduled with the key 'tick'"):

            @dibs.scheduled(every=60, key="tick")
            def second() -> None: ...

        with pytest.raises(UsageError):
            dibs.scheduler(drain=-1)
        scheduler = dibs.scheduler()
        with scheduler:
            with pytest.raises(UsageError, match="already running"):
                with scheduler:
                    pass
        assert first() is None  # still an ordinary function


# ---- what has run


def test_the_last_runs_can_be_seen(server: Server) -> None:
    """Who ran each, when, for how long, and how it ended; written with the record itself."""
    clock, runs = Clock(), list[int]()
    with Dibs(server.url, budget=5, namespace="shop:") as dibs:

        @dibs.scheduled("* * * * *", key="tick")
        def tick() -> None:
            runs.append(1)
            if len(runs) == 2:
                raise LookupError("no such thing")

        with clock.scheduler(dibs):
            for number in (1, 2, 3):
                eventually(lambda: server.client().exists("shop:scheduled-last:tick") == 1)
                clock.set(NOON + 60 * number)
                eventually(lambda number=number: len(runs) == number)
                at = int(NOON + 60 * number) * 1000
                eventually(lambda at=at: _last(server, "tick", "shop:") == at)
        entry = dibs._inspector().entry("scheduled-last:tick")
    assert entry is not None and entry.holder == dibs._leases.identity.holder
    assert [run.outcome for run in entry.runs] == ["finished", "failed:LookupError", "finished"]
    assert [run.at for run in entry.runs] == [NOON + 180, NOON + 120, NOON + 60]
    assert {run.holder for run in entry.runs} == {entry.holder}
    assert all(0 <= run.took < 600 and run.delay >= 0 for run in entry.runs)
    assert sorted(server.keys()) == [
        "shop:fence:shop:scheduled:{shop:scheduled-last:tick}",
        "shop:runs:{shop:scheduled-last:tick}",
        "shop:scheduled-last:tick",
    ]


def test_the_history_is_bounded_and_a_repeated_record_is_in_it_once(server: Server) -> None:
    """Fifty runs; and it expires with the record."""
    now = int(time()) * 1000
    with Dibs(server.url, budget=5) as dibs:
        dibs._store.opened()
        for number in range(60):
            run = now - (60 - number) * 60_000
            end = RunEnd("a:1", "finished", run, 5)
            request = record_request(KEYS, run, end, 60_000, inf, 0, b"")
            for _ in range(2):
                dibs._store.ask(request, monotonic())
    client = server.client()
    assert client.zcard(KEYS[1]) == 50
    assert client.zrange(KEYS[1], 0, 0)[0].startswith(b"%d " % (now - 50 * 60_000))
    assert 0 < client.pttl(KEYS[1]) <= 60_050


def test_a_user_who_may_not_keep_a_history_executes_runs_all_the_same(valkey: Server) -> None:
    """The rights are those of before: the record is written, the history is not."""
    client = valkey.client()
    rules = "on >secret ~* &* +@all -zadd -zcard -zrem -zrange"
    client.execute_command("ACL", "SETUSER", "few", *rules.split())
    now = int(time()) * 1000
    try:
        with Dibs(valkey.url.replace("://", "://few:secret@"), budget=5) as dibs:
            dibs._store.opened()
            request = record_request(KEYS, now, RunEnd("a:1", "x", now, 5), 60_000, inf, 0, b"")
            dibs._store.ask(request, monotonic())
    finally:
        client.execute_command("ACL", "DELUSER", "few")
    assert valkey.keys() == ["scheduled-last:tick"]
