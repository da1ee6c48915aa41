"""A pytest plugin: tests are collected once, and each mutant is a fork in which a function changed.

For each mutant the tests that reach its function are run, the quickest first, until one fails.
"""

import ast
import functools
import gc
import json
import os
import select
import signal
import sys
import types
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from _pytest.runner import runtestprotocol

from dibs._core import capabilities

from .mutants import Mutant, mutated_code, mutated_script

LEAST_LIMIT = 30.0
"""Seconds that a test may take at least before it hangs."""
SCRIPT_TESTS = "tests/behaviour/test_scripts.py"
SLOWER = 8
"""How many times as long as before a test may take."""


class Reach(NamedTuple):
    """What tests reach: the map of `make map`."""

    tests: dict[str, set[str]]
    """By function: `path::name`."""
    seconds: dict[str, float]
    """How long each lasts."""

    def of(self, mutant: Mutant) -> list[str]:
        """The tests that reach it, the quickest of each file first."""
        is_script = mutant.file.endswith(".lua")
        found = self._of_script(mutant.function) if is_script else self._of_function(mutant)
        by_file: dict[str, int] = defaultdict(int)
        ranked: list[tuple[float, str]] = []
        for test in sorted(found, key=self._lasts):
            file = test.partition("::")[0]
            ranked.append((self._lasts(test) + 0.15 * by_file[file], test))
            by_file[file] += 1
        return [test for _, test in sorted(ranked)]

    def _of_function(self, mutant: Mutant) -> set[str]:
        return self.tests.get(f"{mutant.file}::{mutant.function.split('.<locals>')[0]}", set())

    def _of_script(self, name: str) -> set[str]:
        """Those that enter a function which names the script, and those about scripts."""
        users = [self.tests.get(function, set()) for function in functions_naming(name)]
        own = {test for test in self.seconds if test.startswith(SCRIPT_TESTS)}
        return own.union(*users)

    def _lasts(self, test: str) -> float:
        return self.seconds.get(test, 1.0)


def read_reach(folder: Path) -> Reach:
    """What `make map` has left in pytest's cache."""
    stored = json.loads((folder / "reach").read_text("utf-8"))
    names = stored["tests"]
    tests = {name: {names[each] for each in found} for name, found in stored["functions"].items()}
    return Reach(tests, json.loads((folder / "durations").read_text("utf-8")))


@functools.cache
def functions_naming(script: str) -> list[str]:
    """The functions of the library in which the name of a script stands."""
    found: list[str] = []
    for file in Path("src/dibs").rglob("*.py"):
        text = file.read_text("utf-8")
        if f'"{script}"' in text:
            found += [f"{file}::{name}" for name in _functions_with(ast.parse(text), script, "")]
    return found


def _functions_with(node: ast.AST, word: str, path: str) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _functions_with(child, word, f"{path}{child.name}.")
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            constants = [each for each in ast.walk(child) if isinstance(each, ast.Constant)]
            if any(each.value == word for each in constants):
                yield path + child.name


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
            spent += self._reach.seconds.get(test, 1.0)
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
        original, changed = capabilities._source.__wrapped__, mutated_script(mutant)
        capabilities._source = functools.cache(
            lambda name: changed if name == mutant.function else original(name)
        )
        capabilities._digest.cache_clear()
        capabilities._names.cache_clear()
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
