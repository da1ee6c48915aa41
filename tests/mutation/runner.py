"""A pytest plugin: tests are collected once, and each mutant is a fork in which a function changed.

The first part remembers which lines each test reaches and how long it takes; the second runs for
each mutant the tests that reach its line, the quickest first, until one fails.
"""

import functools
import gc
import os
import pickle
import select
import signal
import sys
import time
import types
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import coverage
import pytest
from _pytest.runner import runtestprotocol

from dibs._core import engine

from .mutants import Mutant, mutated_code, mutated_script

LEAST_LIMIT = 30.0
"""Seconds that a test may take at least before it hangs."""
SLOWER = 8
"""How many times as long as before a test may take."""


class Reach(NamedTuple):
    """What tests reach."""

    tests: dict[tuple[str, int], set[str]]
    """By file and line."""
    seconds: dict[str, float]
    """How long each takes."""

    def of(self, mutant: Mutant) -> list[str]:
        """The tests that reach it, the quickest of each file first."""
        if mutant.file.endswith(".lua"):
            found = self.tests[mutant.function, 0]
        else:
            found = self.tests[mutant.file, mutant.line]
        by_file: dict[str, int] = defaultdict(int)
        ranked: list[tuple[float, str]] = []
        for test in sorted(found, key=lambda each: self.seconds[each]):
            file = test.partition("::")[0]
            ranked.append((self.seconds[test] + 0.15 * by_file[file], test))
            by_file[file] += 1
        return [test for _, test in sorted(ranked)]


class Mapping:
    """Runs the collected tests in several processes, and writes down what they reach."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self._folder, self._jobs = folder, jobs

    @pytest.hookimpl
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """In place of running them."""
        files: dict[Path, list[pytest.Item]] = defaultdict(list)
        for item in session.items:
            files[item.path].append(item)
        groups = sorted(files.values(), key=len)
        _in_processes(self._jobs, lambda number: self._run(number, groups[number :: self._jobs]))
        return True

    def _run(self, number: int, groups: list[list[pytest.Item]]) -> None:
        measured = coverage.Coverage(data_file=None, source=["src/dibs"], concurrency=["thread"])
        tests: dict[tuple[str, int], set[str]] = defaultdict(set)
        seconds: dict[str, float] = {}
        scripts = _scripts_noted(tests)
        items = [item for group in groups for item in group]
        measured.start()
        for item, following in zip(items, [*items[1:], None], strict=True):
            measured.switch_context(item.nodeid)
            scripts.test = item.nodeid
            begun = time.monotonic()
            if _failure(item, following) is None:
                seconds[item.nodeid] = time.monotonic() - begun
        measured.stop()
        data = measured.get_data()
        for file in data.measured_files():
            for line, contexts in data.contexts_by_lineno(file).items():
                tests[os.path.relpath(file), line] |= set(contexts) & seconds.keys()
        reach = Reach({place: found & seconds.keys() for place, found in tests.items()}, seconds)
        (self._folder / f"{number}.pickle").write_bytes(pickle.dumps(reach))


def read_reach(folder: Path) -> Reach:
    """What `Mapping` has written."""
    tests: dict[tuple[str, int], set[str]] = defaultdict(set)
    seconds: dict[str, float] = {}
    for file in folder.glob("*.pickle"):
        part: Reach = pickle.loads(file.read_bytes())
        seconds |= part.seconds
        for place, found in part.tests.items():
            tests[place] |= found
    return Reach(tests, seconds)


class Mutating:
    """Runs the tests of each mutant in a fork of this process."""

    def __init__(
        self,
        mutants: list[Mutant],
        reach: Reach,
        jobs: int,
        budget: float,
        report: Callable[[Mutant, str, str], None],
    ) -> None:
        self._mutants, self._reach, self._jobs = mutants, reach, jobs
        self._budget, self._report = budget, report

    @pytest.hookimpl
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """In place of running them."""
        items = {item.nodeid: item for item in session.items}
        _in_processes(self._jobs, lambda number: self._run(session, items, number))
        return True

    def _run(self, session: pytest.Session, items: dict[str, pytest.Item], number: int) -> None:
        functions = _functions()
        first, *_, last = session.items
        runtestprotocol(first, nextitem=last, log=False)  # servers are started here, for all forks
        for mutant in self._mutants[number :: self._jobs]:
            chosen = [items[test] for test in self._within_budget(mutant) if test in items]
            if not chosen:
                self._report(mutant, "unreached", "")
                continue
            outcome, test = self._try(session, mutant, chosen, functions)
            self._report(mutant, outcome, test)

    def _within_budget(self, mutant: Mutant) -> Iterator[str]:
        spent = 0.0
        for test in self._reach.of(mutant):
            spent += self._reach.seconds[test]
            if spent > self._budget:
                return
            yield test

    def _try(
        self,
        session: pytest.Session,
        mutant: Mutant,
        items: list[pytest.Item],
        functions: dict[str, list[types.FunctionType]],
    ) -> tuple[str, str]:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _as_mutant(session, mutant, items, functions, writing)
        os.close(writing)
        test, is_over = self._follow(reading)
        os.close(reading)
        if not is_over:
            os.killpg(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not is_over:
            return "hangs", test
        outcomes = {0: "survived", 1: "killed"}
        return outcomes.get(os.waitstatus_to_exitcode(status), "died"), test

    def _follow(self, reading: int) -> tuple[str, bool]:
        """The last test that was begun, and whether the fork has ended."""
        text, limit = b"", LEAST_LIMIT
        while select.select([reading], [], [], limit)[0]:
            if not (chunk := os.read(reading, 65536)):
                return _last_line(text), True
            text += chunk
            limit = LEAST_LIMIT + SLOWER * self._reach.seconds.get(_last_line(text), 0.0)
        return _last_line(text), False


def _last_line(text: bytes) -> str:
    return text.decode().strip().rpartition("\n")[2]


def _as_mutant(
    session: pytest.Session,
    mutant: Mutant,
    items: list[pytest.Item],
    functions: dict[str, list[types.FunctionType]],
    writing: int,
) -> None:
    """In the fork: change the code, run the tests, leave."""
    code = 2
    try:
        os.setpgid(0, 0)
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (1, 2):
            os.dup2(nothing, stream)
        _change(mutant, functions)
        session._setupstate.teardown_exact(items[0])
        for item, following in zip(items, [*items[1:], items[0]], strict=True):
            os.write(writing, f"{item.nodeid}\n".encode())
            if _failure(item, following) is not None:
                code = 1
                break
        else:
            code = 0
    finally:
        os._exit(code)


def _change(mutant: Mutant, functions: dict[str, list[types.FunctionType]]) -> None:
    if mutant.file.endswith(".lua"):
        original, changed = engine._source.__wrapped__, mutated_script(mutant)
        engine._source = functools.cache(
            lambda name: changed if name == mutant.function else original(name)
        )
        engine._digest.cache_clear()
        engine._names.cache_clear()
        return
    codes = mutated_code(mutant)
    for function in functions.get(mutant.file, []):
        code = function.__code__
        function.__code__ = codes.get((code.co_qualname, code.co_firstlineno), code)


def _functions() -> dict[str, list[types.FunctionType]]:
    """Every function of the library, by its file."""
    gc.unfreeze()
    functions: dict[str, list[types.FunctionType]] = defaultdict(list)
    for each in gc.get_objects():
        if isinstance(each, types.FunctionType) and "dibs/" in each.__code__.co_filename:
            functions[os.path.relpath(each.__code__.co_filename)].append(each)
    gc.freeze()
    return functions


def _failure(item: pytest.Item, following: pytest.Item | None) -> pytest.TestReport | None:
    reports = runtestprotocol(item, nextitem=following, log=False)
    return next((report for report in reports if report.failed or report.skipped), None)


class _Noted:
    test = ""


def _scripts_noted(tests: dict[tuple[str, int], set[str]]) -> _Noted:
    """Have each use of a script written down: coverage sees only that some script was sent."""
    noted = _Noted()
    digest, source = engine._digest, engine._source

    def note(wrapped: Callable[[str], bytes], name: str) -> bytes:
        tests[name, 0].add(noted.test)
        return wrapped(name)

    for attribute, wrapped in (("_digest", digest), ("_source", source)):
        replacement: Any = functools.partial(note, wrapped)
        replacement.cache_clear = wrapped.cache_clear
        setattr(engine, attribute, replacement)
    return noted


def _in_processes(jobs: int, work: Callable[[int], None]) -> None:
    """Run *work* in forks of this process, and wait for all of them."""
    children: list[int] = []
    for number in range(jobs):
        if (child := os.fork()) == 0:
            code = 1
            try:
                work(number)
                code = 0
            finally:
                sys.stdout.flush()
                os._exit(code)
        children.append(child)
    statuses = [os.waitpid(child, 0)[1] for child in children]
    if any(statuses):
        raise pytest.UsageError("a process of the run has failed")
