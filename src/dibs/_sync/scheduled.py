# Generated from src/dibs/_async/scheduled.py by unasync.py – do not edit.
"""Scheduled functions: the decorator, the scheduler, and the runner that waits for each run."""

import functools
import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from .._core.causes import cause_for
from .._core.claim import How, is_run_over
from .._core.connection import Outage
from .._core.keys import expand, milliseconds
from .._core.lease import HoldCall, Holding, LeaseState, Won, read_acquire
from .._core.options import Settings
from .._core.request import Reply, Request
from .._core.schedule import (
    LONGEST_LOOK,
    DueRule,
    RunEnd,
    ScheduleOptions,
    ScheduleStep,
    clock_offset,
    elapsed_ms,
    has_begun,
    is_apart,
    kept_ms,
    lease_name,
    look_request,
    next_step,
    offset_text,
    outcome_of,
    pause,
    plausible,
    read_look,
    record_request,
    records_key,
    register_request,
    takes_run,
)
from .._core.signatures import signature_of
from .._events import EventSink
from .._system import time
from .._threads import BackgroundTasks, Guard, Signal, ends_task, maybe_await, monotonic
from ..errors import LeaseLost, Unavailable, UsageError
from ..events import Kind
from .entered import Entered
from .hold import Hold, Lease
from .lease_table import Leases
from .spans import run_in_span

R = TypeVar("R")


class ScheduledRun(NamedTuple):
    """What a scheduled function gets as `run`, if it has such a parameter."""

    at: datetime
    """When it was due, in the time zone of the schedule; also if it runs late."""
    lease: Lease
    """The lease of the schedule: `lost`, `check()` and `fence` tell whether it is still yours."""


class ScheduledFunction:
    """A function, and when it is due. UsageError: it takes other arguments than `run`."""

    def __init__(
        self,
        function: Callable[..., Any],
        rule: DueRule,
        options: ScheduleOptions,
        settings: Settings,
    ) -> None:
        self.function = function
        self.rule = rule
        self.options = options
        self.key = options.key
        self.last_key = last = expand(settings.namespace, f"scheduled-last:{options.key}")
        """Where the last run that is over is recorded."""
        text = lease_name(last)
        data = expand(settings.namespace, text)
        self.call = HoldCall(data, text, options.key, options.lease)
        self.keys = [last, records_key(f"{settings.namespace}runs:".encode(), last), data]
        """Of the last run, of the last records, and of the lease: in one slot of a cluster."""
        self._takes_run = takes_run(list(signature_of(function).parameters.values()))

    def __call__(self, run: ScheduledRun) -> None:
        """Call the function."""
        maybe_await(self.function(run=run) if self._takes_run else self.function())

    def moment(self, run: int) -> datetime:
        """Return *run* as people read it."""
        return datetime.fromtimestamp(run / 1000, self.rule.zone)

    def is_same_as(self, other: "ScheduledFunction") -> bool:
        """Return True if it is the same function of the same module, defined again."""
        one, two = self._named, other._named
        return None not in one and one == two

    @property
    def _named(self) -> tuple[str | None, str | None]:
        function = self.function  # or a partial one, which has no name
        return getattr(function, "__module__", None), getattr(function, "__qualname__", None)


def register(schedules: dict[str, ScheduledFunction], new: ScheduledFunction) -> None:
    """Add a scheduled function. Raises UsageError if another one has its key."""
    known = schedules.get(new.key)
    if known is not None and not known.is_same_as(new):
        raise UsageError(f"two functions are scheduled with the key {new.key!r}")
    schedules[new.key] = new


_log = logging.getLogger("dibs")

_AFTER_OUTAGE = 1.0
"""Seconds until the next try, if Redis is unavailable."""
_AFTER_ERROR = 10.0
"""Seconds until the next try after an unexpected error: each is logged."""
_DELIVER_FOR = 3600.0
"""How long the end of a run is worth recording if Redis is unavailable at that moment."""


class MachineClock:
    """The wall clock of this machine, corrected by the server's: one for all its schedules."""

    def __init__(
        self, read: Callable[[], float], server_time: Callable[[int], int], events: EventSink
    ) -> None:
        self._read = read
        self.server_time = server_time
        self._events = events
        self._offset = 0
        self._guard = Guard()
        self.is_apart = False
        """True: it differs from the server's by too much, so nothing is run here."""

    def own(self) -> int:
        """Return the time of this machine, in milliseconds since the epoch."""
        return int(self._read() * 1000)

    def now(self) -> int:
        """Return the time by the server's clock, as far as is known."""
        return self.own() + self._offset

    def compare(self, server: int, since: float) -> None:
        """The server said that it was *server*; it was asked at *since*."""
        elapsed = milliseconds(monotonic() - since)  # our wall clock may have been set meanwhile
        offset = clock_offset(self.own(), elapsed, server)
        with self._guard:
            was_apart, self.is_apart = self.is_apart, is_apart(offset)
            self._offset = offset
        if self.is_apart != was_apart:
            self._report(offset)

    def _report(self, offset: int) -> None:
        if not self.is_apart:
            _log.info("the clock of this machine agrees with the server's: functions are run again")
            return
        detail = f"the clock of this machine is {offset_text(offset)} the server's"
        _log.warning("%s: no scheduled function is run here until they agree", detail)
        self._events.emit("clock_skew", "*", cause=cause_for("clock", detail))


class Runner:
    """One scheduled function on this machine: waits for its runs, and executes its own."""

    def __init__(
        self, leases: Leases, scheduled: ScheduledFunction, clock: MachineClock
    ) -> None:
        self._leases = leases
        self._scheduled = scheduled
        self._clock = clock
        self._since, self._began = monotonic(), clock.own()
        self._last: int | None = None
        """The last run that is over, as far as is known here; None: the store was not asked."""
        self._awaited: int | None = None
        """The run that this machine runs, or waits to take over."""
        self._before: str | None = None
        """Who had the lease when this machine last asked for it, since `_last` has changed."""
        self._looked_at: int | None = None
        """The server's clock when the lease was taken; None: it did not say."""
        self._is_loss_logged = False
        self._is_delayed = False
        """A run is due, Redis is unavailable, and that was logged."""
        self._is_started = self._stopping = False
        self._wake = Signal()
        self._end = Signal()
        self._threads = BackgroundTasks()

    # ---- beginning and end

    def start(self) -> None:
        """Begin. Raises RuntimeError if the system has no thread for it."""
        rule, moment = self._scheduled.rule, self._scheduled.moment
        following = moment(rule.following(self._began)).isoformat()
        _log.info("%s: scheduled %r, next at %s", self._scheduled.key, rule, following)
        self._is_started = self._threads.spawn(self._run)
        if not self._is_started:
            raise RuntimeError("no thread could be started for a scheduled function")

    def stop(self) -> None:
        """Take no further runs."""
        self._stopping = True
        self.look()
        self._leases.waiters.wake_next(self._scheduled.call.key)

    def look(self) -> None:
        """Look at the clock now."""
        self._wake.set()

    def ended(self, until: float) -> None:
        """Wait until it has ended, or until *until*."""
        if self._is_started and not self._end.wait(until - monotonic()):
            _log.warning("%s: still running when the scheduler ends", self._scheduled.key)

    def cancel(self) -> None:
        """End a task, and wait until it has ended. A thread is left alone."""
        self._threads.stop()

    def _run(self) -> None:
        try:
            while not self._stopping and not self._leases.store.is_closed:
                self._wake.wait(self._try_step())
        finally:
            self._end.set()

    def _try_step(self) -> float:
        """Return what is to be done now.

        If it fails: after how many seconds it is worth another try.
        """
        self._wake.clear()
        try:
            self._step()
        except Unavailable as error:
            self._report_delay(error)
            return _AFTER_OUTAGE
        except Exception:
            if not self._leases.store.is_closed:
                _log.exception("%s: scheduling failed; it is tried again", self._scheduled.key)
            return _AFTER_ERROR
        self._is_delayed = False
        return 0.0

    # ---- what to do now

    def _plan(self, now: int) -> ScheduleStep:
        rule = self._scheduled.rule
        if self._clock.is_apart:
            return ScheduleStep(look_at=now + int(LONGEST_LOOK * 1000))
        if plausible(self._last, now) is None:  # the server's clock was wrong, and has been set
            self._last = rule.latest(now)
        assert self._last is not None
        return next_step(rule, self._last, now, self._scheduled.options.missed, self._awaited)

    def _step(self) -> None:
        """Run what is due, skip what is too late; if there is nothing, wait for it."""
        if self._last is None or self._clock.is_apart:
            self._begin()
        step = self._plan(self._clock.now())
        if step.skip is not None:
            self._skip(step.skip)
        elif step.run is not None:
            self._take(step.run)
        elif not self._stopping:
            self._wake.wait(pause(step.look_at, self._clock.now()))

    def _take(self, run: int) -> None:
        """Wait until *run* is over elsewhere, or is ours to run."""
        self._awaited = run
        attempt = functools.partial(self._attempt, run)
        outcome = self._leases.waiters.take(self._scheduled.call, attempt)
        # If not: it is over, we are stopped, or another machine runs it: look at the clock.
        if isinstance(outcome, LeaseState):
            self._use(outcome)

    def _skip(self, run: int) -> None:
        """Record *run* as over, unless another machine is running: then wait for its end."""
        outcome = self._acquire(self._scheduled.call)
        if isinstance(outcome, LeaseState):
            self._use(outcome)
        else:
            self._awaited = run

    def _attempt(self, run: int, call: HoldCall) -> LeaseState | Holding | None:
        """One try to get *run*. None: there is nothing to get."""
        if self._stopping:
            return None
        now = self._refresh()
        if self._clock.is_apart or (self._last is not None and self._last >= run):
            return None
        if now < run:
            if run <= self._clock.now():  # it is ahead by less than a round trip shows
                self._wake.wait(pause(run, now))
            return None  # else it was set, and another run may be due by the server's clock
        return self._acquire(call)

    def _acquire(self, call: HoldCall) -> LeaseState | Holding:
        """Try to take the lease, and look when it is taken: one write."""
        since, self._looked_at = monotonic(), None

        def read(replies: list[Reply], token: bytes) -> Won | Holding:
            self._looked_at = self._learn(replies.pop(), since)
            return self._leases.store.read(read_acquire, replies, token)

        look = look_request(self._scheduled.last_key)
        outcome = self._leases.acquire(call, None, read, look)
        if isinstance(outcome, Holding):
            self._before = outcome.holder
        return outcome

    # ---- executing a run

    def _use(self, state: LeaseState) -> None:
        """The lease is ours: run what is due, or skip it."""
        self._is_loss_logged, now = False, self._looked_at
        try:
            with Hold(self._leases, self._scheduled.call, state) as lease:
                step = self._plan(self._refresh() if now is None else now)
                lease.check()  # the reply may have come when it was over
                if step.skip is not None:
                    self._report_missed(step.missed)
                    self._record(state, step.skip, "skipped", self._clock.now())
                elif step.run is not None and not self._stopping:
                    self._execute(step.run, step.missed, lease, state)
        except LeaseLost:
            self._report_loss("%s: its lease was lost; another machine may take over")

    def _execute(self, run: int, missed: int, lease: Lease, state: LeaseState) -> None:
        self._report_missed(missed)
        self._report_start(run, lease)
        since, began = monotonic(), self._clock.now()
        how: How = "returned"
        error: BaseException | None = None
        try:
            self._call(ScheduledRun(self._scheduled.moment(run), lease))
        except BaseException as raised:
            how, error = ("cancelled" if ends_task(raised) else "raised"), raised
        lost = lease.lost and (state.is_lost or not state.is_over)  # not if it was released
        if is_run_over(how, lost=lost):
            self._report_over(run, since, error)
            at_least = self._scheduled.options.at_least
            self._record(state, run, outcome_of(error), began, monotonic() - since, at_least)
            return
        self._is_loss_logged = lost
        self._report_end("failed", run, since, cause=cause_for("lease_lost" if lost else "stopped"))
        if error is not None and how == "cancelled":
            raise error

    def _call(self, run: ScheduledRun) -> None:
        events, work = self._leases.events, functools.partial(self._scheduled, run)
        if events.tracers:
            run_in_span(events, self._scheduled.key, work)
        else:
            work()

    # ---- the last run that is over

    def _begin(self) -> None:
        """Learn the last run. A schedule that the store does not know begins now."""
        scheduled, clock = self._scheduled, self._clock
        self._refresh()
        if self._last is not None or clock.is_apart:
            return
        elapsed = elapsed_ms(clock.own() - self._began, milliseconds(monotonic() - self._since))
        self._last = latest = scheduled.rule.latest(clock.now() - elapsed)
        kept = kept_ms(scheduled.rule, latest)
        request = register_request(scheduled.last_key, latest, self._holder, kept)
        if self._ask(request, has_begun):
            message = "%s: a new schedule, Redis has no record of it: nothing is made up"
            _log.info(message, scheduled.key)

    def _refresh(self) -> int:
        """Learn which runs are over by now, and what time it is.

        The time is what the server's clock has shown, so that no run is early. In an outage, with
        "open", it is that of this machine.
        """
        since = monotonic()
        learn = functools.partial(self._learn, since=since)
        now = self._ask(look_request(self._scheduled.last_key), learn)
        return self._clock.now() if now is None else now

    def _learn(self, reply: Reply, since: float) -> int:
        """Return what time it is, by the reply to a look that was sent after *since*."""
        look = self._leases.store.read(read_look, reply, self._clock.server_time)
        self._clock.compare(look.now, since)
        if look.last is not None and (self._last is None or look.last > self._last):
            self._last, self._awaited, self._before = look.last, None, None
        return look.now

    def _record(
        self,
        state: LeaseState,
        run: int,
        outcome: str,
        began: int,
        took: float = 0.0,
        at_least: float = 0.0,
    ) -> None:
        """Record that *run* is over, and in the same step end its lease, or after *at_least*."""
        leases, scheduled, now = self._leases, self._scheduled, monotonic()
        self._last, self._awaited, self._before = max(self._last or 0, run), None, None
        end = RunEnd(leases.identity.holder, outcome, began, milliseconds(took))
        stays_ms = milliseconds(max(state.since + at_least - now, 0.0))
        kept, until = kept_ms(scheduled.rule, run), now + _DELIVER_FOR
        write = functools.partial(record_request, scheduled.keys, run, end, kept, until, stays_ms)
        try:
            leases.store.enter()
            if state.guarded and not state.is_over:
                leases.end(state, write)
            else:  # granted in an outage, or released by the function
                leases.store.transport.post(write(b""))
        except UsageError as error:  # a thread that went on when the scheduler had ended
            _log.error("%s: the end of a run could not be recorded: %s", scheduled.key, error)
            raise
        if state.is_undelivered:
            _log.warning("%s: the end of a run is recorded when Redis is back", scheduled.key)

    def _ask(self, request: Request, read: Callable[[Reply], R]) -> R | None:
        """Return what *read* returns; None: Redis is unavailable, the policy is "open".

        Unavailable: "closed".
        """
        store = self._leases.store
        try:
            now, _ = store.opened()
            return store.read(read, store.ask(request, now))
        except Outage as outage:
            policy = self._scheduled.options.lease.on_outage
            self._leases.store.outage(self._scheduled.key, outage.cause, policy)
            return None

    @property
    def _holder(self) -> bytes:
        return self._leases.identity.holder.encode()

    # ---- events and log lines

    def _report_start(self, run: int, lease: Lease) -> None:
        key, delay = self._scheduled.key, max(self._clock.now() - run, 0) / 1000
        moment = self._scheduled.moment(run).isoformat()
        # With at_least, a lease is kept when its run is over: nothing is taken over then.
        before = None if self._scheduled.options.at_least else self._before
        taking_over = f"taking over from {before}: " if before else ""
        _log.info("%s: %sstarting the run of %s, %.1f s after it", key, taking_over, moment, delay)
        facts = {"guarded": lease.guarded, "fence": lease.fence}
        self._leases.events.emit("started", key, delay=delay, **facts)

    def _report_over(self, run: int, since: float, error: BaseException | None) -> None:
        if error is None:
            self._report_end("finished", run, since)
        else:
            self._report_end("failed", run, since, cause=cause_for("raised"), error=error)

    def _report_end(
        self, kind: Kind, run: int, since: float, error: BaseException | None = None, **facts: Any
    ) -> None:
        key, took = self._scheduled.key, monotonic() - since
        moment = self._scheduled.moment(run).isoformat()
        if kind == "finished":
            _log.info("%s: finished the run of %s in %.1f s", key, moment, took)
        else:
            level = logging.WARNING if error is None else logging.ERROR
            message = "%s: the run of %s failed after %.1f s: %s"
            _log.log(level, message, key, moment, took, facts["cause"], exc_info=error)
        self._leases.events.emit(kind, key, took=took, **facts)

    def _report_loss(self, said: str) -> None:
        """One WARNING for a lease that was lost, wherever that is noticed first."""
        if not self._is_loss_logged:
            self._is_loss_logged = True
            _log.warning(said, self._scheduled.key)

    def _report_missed(self, count: int) -> None:
        if count > 0:
            key = self._scheduled.key
            _log.warning("%s: %d runs were missed", key, count)
            self._leases.events.emit("missed", key, count=count)

    def _report_delay(self, error: Unavailable) -> None:
        if not self._is_delayed:
            self._is_delayed = True
            _log.warning("%s: waiting for Redis: %s", self._scheduled.key, error.detail)


class Scheduler(Entered):
    """`with dibs.scheduler():`; runs what `scheduled` has registered until the block ends."""

    _verb = "scheduler"

    def __init__(
        self, leases: Leases, schedules: dict[str, ScheduledFunction], drain: float
    ) -> None:
        self.clock: Callable[[], float] = time
        """The wall clock, in seconds since the epoch. A test may set another one before it starts.
        """
        self.server_time: Callable[[int], int] = int
        """What is taken for the time of the server, in ms, if it says so much. A test that sets
        `clock` sets it as well."""
        self._leases = leases
        self._schedules = schedules
        self._drain = drain
        self._runners: list[Runner] = []
        self._identity = leases.identity
        """Of the process that runs them."""
        self._is_entered = False

    def __enter__(self) -> "Scheduler":
        self._is_entered = True
        if self._runners:
            raise UsageError("this scheduler is already running")
        self._leases.store.enter()
        if not self._schedules:
            raise UsageError("no function is scheduled; decorate one with @dibs.scheduled(…) first")
        clock = MachineClock(self._read, self._read_server, self._leases.events)
        runners = [Runner(self._leases, each, clock) for each in self._schedules.values()]
        self._runners, self._identity = runners, self._leases.identity
        try:
            for runner in runners:
                runner.start()
        except BaseException:  # no thread to be had
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        runners, self._runners = self._runners, []
        if self._leases.identity is not self._identity:
            return  # this is a forked child: its parent runs them
        until = monotonic() + self._drain
        for runner in runners:
            runner.stop()
        try:
            for runner in runners:
                runner.ended(until)
        finally:  # also where the end itself is cancelled
            for runner in runners:
                runner.cancel()

    def _read(self) -> float:
        return self.clock()

    def _read_server(self, time: int) -> int:
        return self.server_time(time)

    def look(self) -> None:
        """Look at the clock now; done by itself every 30 s, and when a run is due."""
        for runner in self._runners:
            runner.look()

    @property
    def _named(self) -> str:
        return f"of {len(self._schedules)} functions"

    def __repr__(self) -> str:
        state = "running" if self._runners else "not running"
        return f"<{type(self).__name__} {self._named}, {state}>"
