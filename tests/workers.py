"""`--workers N|auto`: the tests are collected once, and N forks of this process run them.

pytest-xdist starts N processes, and each imports and collects everything: 25 CPU seconds for each.
A worker takes one module after the other, those that last longest first; when all are taken, half
of what another has left. How long each test lasted is kept in pytest's cache. A worker that dies
fails the test that it ran, and another one goes on.
"""

from __future__ import annotations

import math
import os
import random
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

import pytest
from _pytest._io import TerminalWriter

from tests import fork_server

DURATIONS = "dibs/durations"
UNKNOWN = 0.2
"""Seconds that a test may last that has never run."""
FOR_EACH_CORE = 2
"""Tests wait more than they work; but each worker starts servers of its own."""
MOST_WORKERS = 16


def worker_count(text: str) -> int:
    """How many *text* says; auto: what the cores can feed that this process may use."""
    if text != "auto":
        return int(text)
    is_known = hasattr(os, "sched_getaffinity")  # not on macOS
    cores = len(os.sched_getaffinity(0)) if is_known else os.cpu_count() or 1
    return min(FOR_EACH_CORE * cores, MOST_WORKERS)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    count = session.config.getoption("--workers")
    if not count or session.config.option.collectonly or session.testsfailed:
        return None
    Run(session).run(min(count, len(session.items)))
    return True


# --------------------------------------------------------------------------------- what is next


class Plan:
    """Which test a worker runs next; modules stay together, for the sake of their fixtures."""

    def __init__(
        self, items: list[pytest.Item], durations: dict[str, float], *, in_order: bool = False
    ) -> None:
        self._seconds = [durations.get(item.nodeid, UNKNOWN) for item in items]
        modules: dict[Any, list[int]] = defaultdict(list)
        for number, item in enumerate(items):
            modules[item.path].append(number)
        self._modules = list(modules.values())[::-1]
        if not in_order:
            self._modules.sort(key=self._length)  # the longest is last, and taken first
        self._of_worker: dict[int, list[int]] = {}

    def next(self, worker: int) -> int | None:
        """The number of its next test, or None: there are no more."""
        if not self._of_worker.get(worker):
            self._of_worker[worker] = self._modules.pop() if self._modules else self._stolen()
        left = self._of_worker[worker]
        return left.pop(0) if left else None

    def give_back(self, numbers: list[int], worker: int) -> None:
        """What a worker that died has not run."""
        self._modules.append(numbers + self._of_worker.pop(worker, []))

    def _stolen(self) -> list[int]:
        several = [left for left in self._of_worker.values() if len(left) > 1]
        richest = max(several, key=self._length, default=[])
        half = len(richest) // 2
        stolen = richest[len(richest) - half :]
        del richest[len(richest) - half :]
        return stolen

    def _length(self, numbers: list[int]) -> float:
        return sum(self._seconds[number] for number in numbers)


# -------------------------------------------------------------------------------- in the parent


class Worker:
    """One of the forks: what it has to run, and where it answers."""

    def __init__(self, number: int, pid: int, connection: Connection) -> None:
        self.number = number
        self.pid = pid
        self.connection = connection
        self.has: list[int] = []  # the test that it runs, and the next one
        self.is_leaving = False  # it knows that there are no more


class Run:
    """Workers, and what they report."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._config = session.config
        self._cache: Any = getattr(self._config, "cache", None)  # not with -p no:cacheprovider
        self._durations: dict[str, float] = self._cache.get(DURATIONS, {}) if self._cache else {}
        self._workers: dict[Connection, Worker] = {}
        self._lasted: dict[str, float] = defaultdict(float)
        self._started = 0
        limit = self._config.getoption("--for-seconds")
        self._until = time.monotonic() + limit if limit else math.inf
        self._plan = Plan(session.items, self._durations, in_order=bool(limit))

    def run(self, count: int) -> None:
        """Until every test has been run, or pytest wants to stop."""
        try:
            for _ in range(count):
                self._start()
            while self._workers:
                for connection in wait(list(self._workers)):
                    assert isinstance(connection, Connection)
                    self._read(self._workers[connection])
        finally:
            for worker in list(self._workers.values()):
                self._end(worker)
            if self._cache:
                self._cache.set(DURATIONS, self._durations | self._lasted)

    def _start(self) -> None:
        assert threading.active_count() == 1, "a thread would not be there in a fork"
        number, self._started = self._started, self._started + 1
        folder = self._config._tmp_path_factory.getbasetemp()  # pyright: ignore[reportAttributeAccessIssue]
        ours, its = Pipe()
        if (pid := os.fork()) == 0:
            for connection in [ours, *self._workers]:
                connection.close()
            _work(self._session, number, folder / f"popen-gw{number}", its)
        its.close()
        worker = self._workers[ours] = Worker(number, pid, ours)
        self._give(worker)
        self._give(worker)

    def _give(self, worker: Worker) -> None:
        if worker.is_leaving:
            return
        number = None if self._stops() else self._plan.next(worker.number)
        if number is not None:
            worker.has.append(number)
        else:
            worker.is_leaving = True
        with suppress(ConnectionError):  # it has ended: _read() will see it
            worker.connection.send(number)

    def _stops(self) -> bool:
        late = time.monotonic() >= self._until
        return bool(late or self._session.shouldfail or self._session.shouldstop)

    def _read(self, worker: Worker) -> None:
        try:
            data = worker.connection.recv()
        except (EOFError, ConnectionError):
            self._gone(worker)
            return
        if data is None:
            worker.has.pop(0)
            self._give(worker)
            return
        report = self._config.hook.pytest_report_from_serializable(config=self._config, data=data)
        self._lasted[report.nodeid] += report.duration
        self._config.hook.pytest_runtest_logreport(report=report)

    def _gone(self, worker: Worker) -> None:
        code = self._end(worker)
        if not worker.has:
            return
        item = self._session.items[worker.has.pop(0)]
        words = f"the worker that ran {item.nodeid} ended with {code}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", words, "call")
        self._config.hook.pytest_runtest_logreport(report=report)
        self._plan.give_back(worker.has, worker.number)
        if not self._stops():
            self._start()

    def _end(self, worker: Worker) -> int:
        del self._workers[worker.connection]
        worker.connection.close()
        return os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])


# --------------------------------------------------------------------------------- in a worker


class Reporting:
    """Sends the parent what terminals and files would show."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._connection.send(
            self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        )


class Stderr:
    """The stderr of the moment: what pytest captures, and shows in the report of a test."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()

    def isatty(self) -> bool:
        return False


class Terminal:
    """Where pytest-timeout writes the stacks of a test that hangs."""

    def __init__(self) -> None:
        self._tw = TerminalWriter(Stderr())  # pyright: ignore[reportArgumentType]


def _work(session: pytest.Session, number: int, folder: Any, connection: Connection) -> None:
    code = 1
    try:
        config = session.config
        _begin(config, number, folder, connection)
        client = fork_server.install()
        _run_all(session, connection)
        if client:
            client.close()
        code = 0
    except (EOFError, ConnectionError, KeyboardInterrupt):
        pass  # the parent has stopped
    finally:
        os._exit(code)


def _begin(config: pytest.Config, number: int, folder: Any, connection: Connection) -> None:
    """What pytest has made in the parent, and processes cannot share."""
    os.environ["PYTEST_XDIST_WORKER"] = f"gw{number}"  # `dibs.testing` has ports for each
    random.seed()
    folder.mkdir()
    config._tmp_path_factory._basetemp = folder  # pyright: ignore[reportAttributeAccessIssue]
    plugins = config.pluginmanager
    capture: Any = plugins.getplugin("capturemanager")
    capture.stop_global_capturing()
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what a test prints past the capture
    capture.start_global_capturing()
    plugins.unregister(name="terminalreporter")
    plugins.register(Terminal(), "terminalreporter")
    plugins.register(Reporting(config, connection))


def _run_all(session: pytest.Session, connection: Connection) -> None:
    for item, following in _pairs(_given(session, connection)):
        session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        connection.send(None)


def _given(session: pytest.Session, connection: Connection) -> Iterator[pytest.Item]:
    while (number := connection.recv()) is not None:
        yield session.items[number]


def _pairs(items: Iterator[pytest.Item]) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    """Each with the one behind it, which decides what fixtures stay."""
    item = next(items, None)
    while item is not None:
        following = next(items, None)
        yield item, following
        item = following
