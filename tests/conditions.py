"""Conditions under which tests run: `pytest --condition tls --condition busy tests/behaviour`.

The same tests and the same promises, but the servers of the fixtures lie behind a worse line, or
the process that runs the tests is worse off. Several conditions hold at once.
"""

from __future__ import annotations

import asyncio
import ctypes
import functools
import importlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

from dibs import AsyncDibs, Dibs
from dibs._core.connection import DEFAULT_BUDGET
from dibs.testing import Certificates, Engine, FaultProxy, Server, ServerMissing
from dibs.testing.processes import Process, ended_with_parent
from dibs.testing.servers import OWN, server_program
from tests.echoes import EchoingLine
from tests.outside import URL, OutsideServer

CONDITIONS = {
    "tls": "clients speak TLS",
    "resp2": "the server does not know HELLO, so there is no RESP3",
    "slow": "every byte takes 20 ms, each way",
    "dribble": "bytes arrive in pieces of 7",
    "narrow": "a connection carries 50 kB per second, each way",
    "uvloop": "async tests run on uvloop",
    "busy": "the loop, or the interpreter, is busy four fifths of the time, 20 ms at a stretch",
    "hasty": "a `Dibs` to which a test gives a budget of 5 s gets the default",
    "stopped": "the process is stopped for 0.4 s, runs for 0.8 s, and so on",
    "echoed": "each request is executed twice, on two connections",
}
OF_THE_LINE = {"tls", "slow", "dribble", "narrow", "echoed"}

SLICE, REST = 0.020, 0.005  # of a process that is busy four fifths of the time
STOPPED, RUNNING = 0.4, 0.8
SOON = 0.02  # after the beginning of a test: most are over in less than a second
GENEROUS, DEFAULT = 5, DEFAULT_BUDGET  # budgets: of a test that is not about budgets, and of a user

STAND_INS: dict[Engine, tuple[Engine, ...]] = {
    "redis6": ("redis7", "valkey-lua"),
    "redis7": ("redis6", "valkey-lua"),
}
"""Engines on which dibs needs scripts as well, the most similar first."""

OPTIONAL: tuple[Engine, ...] = ("redis8",)
"""Engines that no package of the tests brings; nothing stands in for them."""

QUIET: list[tuple[set[str], str, set[str]]] = [
    (
        {"stopped"},
        "a pause of 0.4 s leaves no time to renew a lease of 0.6 s",
        {
            "test_a_claim_is_renewed_in_the_next_loop",
            "test_a_command_that_is_refused_costs_no_guard",
            "test_a_hold_is_renewed_in_the_next_loop",
            "test_a_lease_that_was_cut_off_with_its_loop",
        },
    ),
    (
        {"stopped"},
        "a value that may be served for 0.6 s is over after a pause of 0.4 s",
        {"test_a_delete_during_the_refresh_of_an_ending_value_counts"},
    ),
    (
        {"stopped"},
        "the proxy stops with the test, and is a silent server to the process that is looked at",
        {"test_a_stopped_and_continued_client_is_not_an_outage"},
    ),
    (
        {"slow", "dribble"},
        "it makes thousands of round trips, one after another",
        {
            "test_nothing_stays_of_values_in_memory_that_changed",
            "test_signals_at_any_moment",
            "test_stale_reads_in_threads_cost_no_thread_and_no_script_each",
        },
    ),
    (
        {"slow", "dribble", "narrow"},
        "its ten thousand claims, one after another, would take minutes on that line",
        {
            "test_ten_thousand_claims_leave_nothing",
            "test_ten_thousand_claims_of_threads_leave_nothing",
        },
    ),
    (
        {"narrow", "dribble"},
        "its megabytes would take minutes on that line",
        {
            "test_a_large_value_on_a_slow_line_leaves_the_leases_of_tasks_alone",
            "test_a_large_value_on_a_slow_line_leaves_the_leases_of_threads_alone",
            "test_fifty_thousand_acquires_in_one_tick_are_guarded",
            "test_signals_at_any_moment",
        },
    ),
    (
        {"dribble"},
        "fifty loads in one write take longer on that line than their locks last",
        {"test_a_tag_costs_one_key_and_one_command"},
    ),
    (
        {"dribble"},
        "a wake-up and a timer of 2 s cannot be distinguished by the clock on that line",
        {"test_a_duplicate_waits_for_the_result"},
    ),
    (
        {"busy"},
        "it waits 5 s for what thousands of pushes cause, in a loop that is busy",
        {"test_nothing_stays_of_values_in_memory_that_changed"},
    ),
    (
        {"hasty"},
        "its replies take longer than the default budget",
        {
            "test_a_lease_that_is_over_when_it_is_granted_begins_no_run",
            "test_a_reply_that_comes_after_the_ttl_does_not_end_what_is_continued",
            "test_a_slow_reply_does_not_shorten_it",
            "test_opening_a_connection_takes_nothing_off_the_lease",
        },
    ),
    (
        {"echoed"},
        "it counts commands or connections, and each command is executed twice",
        {
            "test_a_free_key_is_taken_in_one_round_trip",
            "test_a_hit_costs_one_command_and_no_load",
            "test_a_hit_with_tags_is_one_round_trip",
            "test_a_permit_costs_one_round_trip",
            "test_a_release_with_at_least_is_one_round_trip",
            "test_a_tag_costs_one_key_and_one_command",
            "test_more_values_in_memory_than_the_server_keeps_track_of",
        },
    ),
    (
        {"echoed"},
        "a schedule whose first record was written twice is not known to be new, and one line of"
        " the log is missing",
        {"test_a_new_schedule_is_said_to_be_new_until_a_run_is_over"},
    ),
    (
        {"tls"},
        "it adds to the URL of the server, which ends with a query",
        {"test_a_database_that_does_not_exist_is_a_mistake"},
    ),
    (
        {"resp2"},
        "a redis-py client of the test's own insists on RESP3",
        {
            "test_a_callers_client_lends_its_settings_and_is_never_closed",
            "test_a_client_with_a_credential_provider",
            "test_a_cluster_client_of_the_caller_is_taken_over",
            "test_a_cluster_over_tls",
        },
    ),
    (
        {"resp2"},
        "it counts on the pushes of RESP3",
        {
            "test_a_tagged_value_in_memory_is_forgotten_with_its_tag",
            "test_a_waiter_elsewhere_is_woken_by_the_release",
            "test_fifty_waiters_are_one_contender",
            "test_four_processes_fifty_tasks_one_load",
            "test_local_memory_is_kept_true_by_the_server",
            "test_many_values_in_memory_cost_no_command",
            "test_signals_do_not_hide_a_silent_connection",
        },
    ),
    (
        {"resp2"},
        "it counts connections, and the first one that asks for RESP3 is closed",
        {
            "test_a_repeated_acquire_whose_caller_is_cancelled",
            "test_threads_share_few_connections",
        },
    ),
    (
        {"resp2"},
        "where HELLO is not known, three connections that are closed at a script mean that there"
        " are no scripts",
        {"test_a_server_that_hangs_up_is_not_taken_for_one_without_scripts"},
    ),
]
"""Tests that do not run under some conditions, and why: a reason, and the names of tests."""

STOP_AND_CONTINUE = f"""
import os, signal, time
watched = os.getppid()
time.sleep({SOON})
while os.getppid() == watched:
    os.kill(watched, signal.SIGSTOP)
    time.sleep({STOPPED})
    os.kill(watched, signal.SIGCONT)
    time.sleep({RUNNING})
"""


class Conditions:
    """What `--condition` asked for."""

    def __init__(self, names: Collection[str]) -> None:
        self._names = frozenset(names)
        self._certificates: Certificates | None = None
        self._echoing_lines: dict[int, EchoingLine] = {}
        self._lasting = ExitStack()

    def start(self, *args: Any, **options: Any) -> Server:
        """`Server.start`, with a `url` that leads over the line of these conditions."""
        if args[:1] == ("own",) and (outside := OutsideServer.named()):
            return outside
        if "resp2" in self._names:
            options["hidden"] = [*options.get("hidden", ()), "HELLO"]
        server = DistantServer.start(*args, **options)
        server.line_to = self.line_to
        return server

    def line_to(self, port: int) -> FaultProxy | None:
        """A proxy as bad as the line is to be; None: it is to be good."""
        if not self._names & OF_THE_LINE:
            return None
        if "echoed" in self._names:
            line = FaultProxy(self._echoing(port).port, tls=self._certificates)
        else:
            line = FaultProxy(port, tls=self._certificates)
        if "slow" in self._names:
            line.delay(requests=0.02, replies=0.02)
        if "narrow" in self._names:
            line.throttle(requests=50_000, replies=50_000)
        if "dribble" in self._names:
            line.split(7)
        return line

    def _echoing(self, port: int) -> EchoingLine:
        """The line of that server on which each request is executed twice."""
        if port not in self._echoing_lines:
            self._echoing_lines[port] = self._lasting.enter_context(EchoingLine(port))
        return self._echoing_lines[port]

    def why_not(self, test: str) -> str | None:
        """Why a test does not run under these conditions; None: it does."""
        for conditions, reason, tests in QUIET:
            if test in tests and (met := conditions & self._names):
                return f"not under {'+'.join(sorted(met))}: {reason}"
        return None

    @property
    def only_async(self) -> bool:
        """True: they concern event loops, and nothing else."""
        return self._names == {"uvloop"}

    @contextmanager
    def for_the_run(self) -> Iterator[None]:
        """What lasts: certificates, also for the proxies that tests make themselves."""
        with self._lasting, ExitStack() as lasting:
            if "tls" in self._names:
                self._certificates = lasting.enter_context(_certificates())
                lasting.enter_context(_proxies_with(self._certificates))
            if "hasty" in self._names:
                lasting.enter_context(_default_budgets())
            yield

    @contextmanager
    def for_a_test(self, *, coroutine: bool) -> Iterator[None]:
        """The conditions that apply to every test."""
        with ExitStack() as lasting:
            if "busy" in self._names and not coroutine:
                lasting.enter_context(_busy_interpreter())
            if "stopped" in self._names:
                lasting.enter_context(_stopped_again_and_again())
            yield

    @contextmanager
    def for_a_loop(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """What an async test meets in its loop."""
        if "busy" not in self._names:
            yield
        else:
            with _busy_loop(loop):
                yield

    @property
    def new_loop(self) -> Callable[[], asyncio.AbstractEventLoop] | None:
        """What makes the loop of an async test; None: asyncio itself."""
        if "uvloop" not in self._names:
            return None
        return cast("Any", importlib.import_module("uvloop")).new_event_loop


class DistantServer(Server):
    """A server whose `url` leads over a line; `port` and the rest lead to the server itself."""

    line_to: Callable[[int], FaultProxy | None]
    _line: FaultProxy | None = None

    @property
    def url(self) -> str:
        """Where clients under these conditions find it."""
        if self._line is None:
            self._line = self.line_to(self.port)
        return self._line.url if self._line is not None else super().url

    def close(self) -> None:
        """Leave nothing behind, also no line."""
        super().close()
        if self._line is not None:
            self._line.close()


@contextmanager
def _certificates() -> Iterator[Certificates]:
    with tempfile.TemporaryDirectory(prefix="dibs-") as folder:
        yield Certificates(Path(folder))


@contextmanager
def _proxies_with(certificates: Certificates) -> Iterator[None]:
    plain = FaultProxy.__init__
    FaultProxy.__init__ = functools.partialmethod(plain, tls=certificates)  # type: ignore[assignment]
    try:
        yield
    finally:
        FaultProxy.__init__ = plain


@contextmanager
def _default_budgets() -> Iterator[None]:
    plain = {kind: kind.__init__ for kind in (Dibs, AsyncDibs)}

    def hasty(init: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(init)
        def make(self: object, *args: Any, budget: Any = DEFAULT, **options: Any) -> None:
            init(self, *args, budget=DEFAULT if budget == GENEROUS else budget, **options)

        return make

    for kind, init in plain.items():
        kind.__init__ = hasty(init)
    try:
        yield
    finally:
        for kind, init in plain.items():
            kind.__init__ = init


@contextmanager
def _busy_loop(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    turn: asyncio.TimerHandle

    def work() -> None:
        nonlocal turn
        time.sleep(SLICE)
        turn = loop.call_later(REST, work)

    turn = loop.call_later(REST, work)
    try:
        yield
    finally:
        turn.cancel()


@contextmanager
def _busy_interpreter() -> Iterator[None]:
    ending = threading.Event()
    sleep = ctypes.PyDLL(None).usleep  # a call through PyDLL keeps the GIL

    def work() -> None:
        while not ending.wait(REST):
            sleep(int(SLICE * 1e6))

    thread = threading.Thread(target=work, name="busy")
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


@contextmanager
def _stopped_again_and_again() -> Iterator[None]:
    helper = Process(ended_with_parent([sys.executable, "-I", "-S", "-c", STOP_AND_CONTINUE]))
    try:
        yield
    finally:
        helper.kill()


def chosen_engines(wanted: Collection[str], known: Collection[Engine]) -> list[Engine]:
    """The engines to run on: those asked for, or a server of the user's own, or all."""
    if main_engine() == "own":
        return ["own"]
    chosen = [engine for engine in known if engine in wanted] if wanted else present(known)
    return list(dict.fromkeys(map(stand_in, chosen)))


def present(engines: Iterable[Engine]) -> list[Engine]:
    """*engines* without those that are optional and not installed."""
    return [engine for engine in engines if engine not in OPTIONAL or is_installed(engine)]


@functools.cache
def is_installed(engine: Engine) -> bool:
    """Whether there is a program for it."""
    with suppress(ServerMissing):
        server_program(engine)
        return True
    return False


@functools.cache
def stand_in(engine: Engine) -> Engine:
    """The engine itself, or one that is installed in its place, so that no promise is skipped."""
    alike = (engine, *STAND_INS.get(engine, ()))
    return next((each for each in alike if is_installed(each)), engine)


def main_engine() -> Engine:
    """The engine of tests that need no particular one."""
    return "own" if {OWN, URL} & os.environ.keys() else "valkey"
