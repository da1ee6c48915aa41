"""Do tests notice small changes to the code?

    python -m tests.mutation src/dibs/_core/lease.py --sample 40
    python -m tests.mutation                          the modules and scripts that matter most
    python -m tests.mutation --again                  the same without those that were killed

Each mutant is tried by the pure tests that reach it, then in the simulation, then by tests with
servers, until one of them fails; each time for a budget of CPU seconds. Which tests reach which
functions is known from `make map`. A mutant that survives is judged: a test that notices it, or the
reason why none can in tests/mutation/equivalent.txt. Calls of loggers are not changed: what a log
says is no promise.
"""

import argparse
import os
import random
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from .changing import Tried
from .mutants import Mutant, mutants_of

MAP = Path(".pytest_cache/v/dibs")
RESULTS = Path("build/mutants.txt")
EQUIVALENT = Path(__file__).with_name("equivalent.txt")
PURE = ["tests/core", "tests/http"]
SERVERS = [
    "tests/model", "tests/behaviour", "tests/integrations", "tests/databases",
    *(f"tests/races/test_{name}.py" for name in ("loads", "loops", "schedules")),
]  # fmt: skip
SIMULATED = ("src/dibs/_core/", "src/dibs/_async/", "src/dibs/_transport/")
LUA = "src/dibs/_core/lua"
ALIVE = ("survived", "unreached", "unchanged")
EQUAL = "equivalent"
MODULES = [
    *(f"src/dibs/_core/{name}.py" for name in (
        "connection", "multiplexer", "lease", "claim", "cache", "schedule",
    )),
    *(f"src/dibs/_async/{name}.py" for name in (
        "lease_table", "claim", "cache_load", "cache_values", "scheduled",
    )),
    *(f"src/dibs/_http/{name}.py" for name in ("submission", "policy", "responses")),
    "src/dibs/integrations/_async/http_claims.py",
]  # fmt: skip


def main() -> int:
    """The command."""
    arguments = _arguments()
    RESULTS.parent.mkdir(exist_ok=True)
    before = _settled() if arguments.again else {}
    mutants, equivalent = _chosen(arguments), _equivalent()
    RESULTS.write_text("")
    for each in mutants:
        # Those of another sample would count as noticed, and what survived of it not as missed.
        if each.name in equivalent:
            _report(each, Tried(EQUAL, ""))
        elif not before.get(each.name, EQUAL).startswith(EQUAL):
            _write(before[each.name])
    for stage in _stages(arguments):
        settled = _settled()
        _in_fork(stage, [each for each in mutants if each.name not in settled])
    return _summary()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.mutation", description=__doc__)
    parser.add_argument("files", nargs="*", help="modules and scripts; without: a chosen list")
    parser.add_argument("--tests", nargs="+", help="only these, and no simulation")
    parser.add_argument("--sample", type=int, default=20, help="mutants of each file, at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--budget", type=float, default=4.0, help="CPU seconds of each stage")
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--again", action="store_true", help="only those that were not killed")
    return parser.parse_args()


Stage = Callable[[list[Mutant]], None]


def _stages(arguments: argparse.Namespace) -> list[Stage]:
    """What needs no server first. Each is for a process that has not imported dibs."""
    jobs, budget = arguments.jobs, arguments.budget

    def by_tests(tests: list[str], mutants: list[Mutant]) -> None:
        import pytest

        from .runner import Mutating, read_reach

        if tests is PURE:
            mutants = [each for each in mutants if not each.file.endswith(".lua")]
        plugin = Mutating(mutants, read_reach(MAP), jobs, budget, _report)
        options = ["-q", "-p", "no:cacheprovider", "--engine", "valkey", "--engine", "valkey-lua"]
        pytest.main([*options, *tests, "--ignore=tests/behaviour/_sync"], plugins=[plugin])

    def simulated(mutants: list[Mutant]) -> None:
        from .simulated import run_simulated

        there = [each for each in mutants if each.file.startswith(SIMULATED)]
        run_simulated(there, jobs, budget, _report)

    if arguments.tests:
        return [partial(by_tests, arguments.tests)]
    return [partial(by_tests, PURE), simulated, partial(by_tests, SERVERS)]


def _in_fork(stage: Stage, mutants: list[Mutant]) -> None:
    if mutants and (child := os.fork()) == 0:
        stage(mutants)
        os._exit(0)
    elif mutants:
        os.waitpid(child, 0)


def _chosen(arguments: argparse.Namespace) -> list[Mutant]:
    files = arguments.files or [*MODULES, *sorted(map(str, Path(LUA).glob("*.lua")))]
    chosen: list[Mutant] = []
    for file in files:
        # Each has its chance by its name: the sample stays where another function changes.
        mutants = sorted(mutants_of(file), key=lambda each: _chance(arguments.seed, each))
        chosen += mutants[: arguments.sample]
    return chosen


def _chance(seed: int, mutant: Mutant) -> float:
    return random.Random(f"{seed} {mutant.name}").random()


def _equivalent() -> set[str]:
    lines = EQUIVALENT.read_text("utf-8").splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def _rows() -> dict[str, list[str]]:
    """What is known of each mutant: that it was noticed, or the last line."""
    rows: dict[str, list[str]] = {}
    for line in RESULTS.read_text("utf-8").splitlines():
        row = line.split("\t")
        known = rows.get(row[1])
        if known is None or known[0] == "unreached" or row[0] not in ALIVE:
            rows[row[1]] = row
    return rows


def _settled() -> dict[str, str]:
    """The lines of those that are noticed, or equivalent, by mutant."""
    return {name: "\t".join(row) + "\n" for name, row in _rows().items() if row[0] not in ALIVE}


def _report(mutant: Mutant, tried: Tried) -> None:
    _write(f"{tried.outcome}\t{mutant.name}\t{mutant.line}\t{tried.test}\n")


def _write(line: str) -> None:
    # One write each: several processes append to the file.
    with RESULTS.open("a", encoding="utf-8") as results:
        results.write(line)


def _summary() -> int:
    rows = _rows().values()
    alive = [row for row in rows if row[0] in ALIVE]
    for outcome, name, line, _ in sorted(alive, key=lambda row: row[1]):
        print(f"{outcome}: {name} (line {line})")
    for file in [*dict.fromkeys(map(_file, rows)), ""]:
        outcomes = [row[0] for row in rows if row[1].startswith(file)]
        equal = outcomes.count(EQUAL)
        tried = len(outcomes) - equal
        noticed = tried - sum(outcome in ALIVE for outcome in outcomes)
        print(f"{file or 'all'}: {noticed} of {tried} noticed, {equal} equivalent")
    print(f"{sum(os.times()[:4]):.0f} CPU s")
    return 1 if alive else 0


def _file(row: list[str]) -> str:
    return row[1].partition(" ")[0]


if __name__ == "__main__":
    sys.exit(main())
