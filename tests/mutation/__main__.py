"""Do tests notice small changes to the code?

    python -m tests.mutation src/dibs/_core/lease.py --sample 40
    python -m tests.mutation                          the modules and scripts that matter most
    python -m tests.mutation --again                  the same without those that were killed

Which tests reach which functions is known from `make map`. A mutant that survives is not noticed by
the tests that reach it, within the budget; one that cannot be noticed belongs into
tests/mutation/equivalent.txt, with the reason.
"""

import argparse
import random
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from .mutants import Mutant, mutants_of
from .runner import Mutating, read_reach

MAP = Path(".pytest_cache/v/dibs")
RESULTS = Path("build/mutants.txt")
EQUIVALENT = Path(__file__).with_name("equivalent.txt")
TESTS = ["tests/core", "tests/http", "tests/model", "tests/behaviour"]
LUA = "src/dibs/_core/lua"
ALIVE = ("survived", "unreached")
MODULES = [
    *(f"src/dibs/_core/{name}.py" for name in (
        "connection", "multiplexer", "lease", "once", "cache", "schedule", "flights",
    )),
    *(f"src/dibs/_async/{name}.py" for name in (
        "leases", "claim", "loader", "writer", "scheduled",
    )),
    *(f"src/dibs/_http/{name}.py" for name in ("submission", "policy", "responses")),
    "src/dibs/integrations/_claims.py",
]  # fmt: skip


def main() -> int:
    """The command."""
    arguments = _arguments()
    RESULTS.parent.mkdir(exist_ok=True)
    before = _killed() if arguments.again else {}
    mutants = [each for each in _chosen(arguments) if each.name not in before]
    RESULTS.write_text("".join(before.values()))
    plugin = Mutating(mutants, read_reach(MAP), arguments.jobs, arguments.budget, _report)
    _collect(arguments.tests, plugin)
    return _summary()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.mutation", description=__doc__)
    parser.add_argument("files", nargs="*", help="modules and scripts; without: a chosen list")
    parser.add_argument("--tests", nargs="+", default=TESTS)
    parser.add_argument("--sample", type=int, default=20, help="mutants of each file, at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--budget", type=float, default=25.0, help="seconds of tests for each")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--again", action="store_true", help="only those that were not killed")
    return parser.parse_args()


def _collect(tests: list[str], plugin: object) -> None:
    options = ["-q", "-p", "no:cacheprovider", "--engine", "valkey", "--engine", "valkey-lua"]
    tests = [*tests, "--ignore=tests/behaviour/_sync"]
    pytest.main([*options, *tests], plugins=[plugin])


def _chosen(arguments: argparse.Namespace) -> list[Mutant]:
    files = arguments.files or [*MODULES, *sorted(map(str, Path(LUA).glob("*.lua")))]
    chance = random.Random(arguments.seed)
    equivalent = _equivalent()
    chosen: list[Mutant] = []
    for file in files:
        mutants = [each for each in mutants_of(file) if each.name not in equivalent]
        chosen += chance.sample(mutants, min(arguments.sample, len(mutants)))
    return chosen


def _equivalent() -> set[str]:
    lines = EQUIVALENT.read_text("utf-8").splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def _killed() -> dict[str, str]:
    """The lines of the run before, by mutant, without those that no test has noticed."""
    lines = RESULTS.read_text("utf-8").splitlines(keepends=True)
    return {line.split("\t")[1]: line for line in lines if not line.startswith(ALIVE)}


def _report(mutant: Mutant, outcome: str, test: str) -> None:
    # One write each: several processes append to the file.
    with RESULTS.open("a", encoding="utf-8") as results:
        results.write(f"{outcome}\t{mutant.name}\t{mutant.line}\t{test}\n")


def _summary() -> int:
    rows = [line.split("\t") for line in RESULTS.read_text("utf-8").splitlines()]
    alive = [row for row in rows if row[0] in ALIVE]
    for outcome, name, line, _ in sorted(alive, key=lambda row: row[1]):
        print(f"{outcome}: {name} (line {line})")
    files = Counter(row[1].partition(" ")[0] for row in rows)
    kept = Counter(row[1].partition(" ")[0] for row in alive)
    for file, count in files.items():
        print(f"{file}: {count - kept[file]} of {count} killed")
    print(f"{len(rows) - len(alive)} of {len(rows)} mutants killed, {time.process_time():.0f} s")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
