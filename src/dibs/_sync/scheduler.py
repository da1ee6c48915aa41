# Generated from src/dibs/_async/scheduler.py by unasync.py – do not edit.
"""Runs the scheduled functions of a client for the length of a `with` block."""

from collections.abc import Callable

from .._system import time
from .._threads import monotonic
from ..errors import UsageError
from .leases import Leases
from .runner import Runner, MachineClock
from .scheduled import ScheduledFunction


class Scheduler:
    """`with dibs.scheduler():`; runs what `scheduled` has registered until the block ends."""

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

    def __enter__(self) -> "Scheduler":
        if self._runners:
            raise UsageError("this scheduler is already running")
        self._leases.store.must_be_open()
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
        """Look at the clock now; done by itself every 30 s, and when a fire is due."""
        for runner in self._runners:
            runner.look()

    def __repr__(self) -> str:
        state = "running" if self._runners else "not running"
        return f"<{type(self).__name__}: {len(self._schedules)} functions, {state}>"
