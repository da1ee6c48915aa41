"""A pytest plugin: tests are collected once; those that reach a mutant are run in its fork.

The quickest first, until one fails twice, or a mutant has had its CPU seconds.
"""

import ast
import functools
import json
import os
import sys
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from _pytest.runner import runtestprotocol

from .changing import Begin, Functions, Tried, cpu_seconds, library_functions, try_mutant
from .mutants import Mutant

SCRIPT_TESTS = "tests/behaviour/test_scripts.py"
Report = Callable[[Mutant, Tried], None]


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
        self, mutants: list[Mutant], reach: Reach, jobs: int, budget: float, report: Report
    ) -> None:
        self._mutants, self._reach, self._jobs = mutants, reach, jobs
        self._budget, self._report = budget, report

    @pytest.hookimpl
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """In place of running them."""
        items = {item.nodeid: item for item in session.items}
        in_processes(self._jobs, self._mutants, partial(self._run, session, items))
        return True

    def _run(
        self, session: pytest.Session, items: dict[str, pytest.Item], mutants: Iterator[Mutant]
    ) -> None:
        functions = library_functions()
        _start_servers(session.items)
        for mutant in mutants:
            chosen = [items[test] for test in self._reach.of(mutant) if test in items]
            tried = self._try(session, mutant, chosen, functions) if chosen else UNREACHED
            self._report(mutant, tried)

    def _try(
        self,
        session: pytest.Session,
        mutant: Mutant,
        items: list[pytest.Item],
        functions: Functions,
    ) -> Tried:
        def notices(begin: Begin) -> bool:
            session._setupstate.teardown_exact(items[0])
            return _is_noticed(items, self._budget, begin)

        seconds = self._reach.seconds
        return try_mutant(mutant, functions, notices, lambda test: seconds.get(test, 0.0))


UNREACHED = Tried("unreached", "")


def _start_servers(items: list[pytest.Item]) -> None:
    """Run a test on each engine, so that no fork has to start one."""
    on_engine = {
        getattr(item, "callspec", None) and item.callspec.params.get("server"): item
        for item in reversed(items)
    }
    for item in on_engine.values():
        runtestprotocol(item, nextitem=items[-1], log=False)


def _is_noticed(items: list[pytest.Item], budget: float, begin: Begin) -> bool:
    until = cpu_seconds() + budget
    for item, following in zip(items, [*items[1:], items[0]], strict=True):
        begin(item.nodeid)
        # Twice: a test that fails now and then on a busy machine has noticed nothing.
        if _fails(item, following) and _fails(item, following):
            return True
        if cpu_seconds() > until:
            break
    return False


def _fails(item: pytest.Item, following: pytest.Item) -> bool:
    return any(report.failed for report in runtestprotocol(item, nextitem=following, log=False))


def in_processes(
    jobs: int, mutants: list[Mutant], work: Callable[[Iterator[Mutant]], None]
) -> None:
    """Run *work* in forks of this process, each with its share, and wait for all of them."""
    reading, writing = os.pipe()
    os.write(writing, b"".join([number.to_bytes(4) for number in range(len(mutants))]))
    os.close(writing)
    children: list[int] = []
    for _ in range(jobs):
        if (child := os.fork()) == 0:
            code = 1
            try:
                # A mutant that hangs keeps one of them, and the others take the rest.
                numbers = iter(lambda: os.read(reading, 4), b"")
                work(mutants[int.from_bytes(number)] for number in numbers)
                code = 0
            except Exception:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(code)
        children.append(child)
    os.close(reading)
    statuses = [os.waitpid(child, 0)[1] for child in children]
    if any(statuses):
        raise RuntimeError("a process of the run has failed")
