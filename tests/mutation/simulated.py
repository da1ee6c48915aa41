"""The seeds and explorations of tests/simulation as tests of mutants: nothing waits in them.

For a process that has not imported dibs: the simulation replaces its clock first.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from tests.simulation import system  # noqa: F401 - before everything that imports dibs

from dibs._core import capabilities  # isort: skip
from tests.reach import entered, named
from tests.simulation.explorations import EXPLORATIONS
from tests.simulation.explorer import explore, on
from tests.simulation.fixed_seeds import FIXED
from tests.simulation.running import run
from tests.simulation.test_explorer import LATE
from tests.simulation.workloads import VERBS

from .changing import Begin, Functions, Tried, cpu_seconds, library_functions, try_mutant
from .mutants import Mutant
from .runner import UNREACHED, Report, in_processes

FOLLOWED = 2
"""Seeds of each workload in which it is seen what is reached; the others reach the same."""

LIMIT = 10.0
"""Seconds that a seed or an exploration may take: nothing in it waits."""


class Probe(NamedTuple):
    """Something that is well without a change."""

    name: str
    outcome: Callable[[], Any]
    """Anything else than before: a mutant is noticed."""
    usual: Any
    seconds: float
    """Of CPU, about."""


def run_simulated(mutants: list[Mutant], jobs: int, budget: float, report: Report) -> None:
    """Try *mutants* with what reaches them, for *budget* CPU seconds each."""
    probes = _probes()
    functions = library_functions()

    def work(mutants: Iterator[Mutant]) -> None:
        for mutant in mutants:
            chosen = sorted(probes[_place(mutant)], key=lambda probe: probe.seconds)
            report(mutant, _try(mutant, chosen, functions, budget) if chosen else UNREACHED)

    in_processes(jobs, mutants, work)


def _place(mutant: Mutant) -> str:
    function = mutant.function.split(".<locals>")[0]
    return mutant.function if mutant.file.endswith(".lua") else f"{mutant.file}::{function}"


def _try(mutant: Mutant, probes: list[Probe], functions: Functions, budget: float) -> Tried:
    def notices(begin: Begin) -> bool:
        until = cpu_seconds() + budget
        for probe in probes:
            begin(probe.name)
            if probe.outcome() != probe.usual:
                return True
            if cpu_seconds() > until:
                break
        return False

    return try_mutant(mutant, functions, notices, limit=LIMIT)


# ---- what there is, and what it reaches

Probes = dict[str, list[Probe]]
"""By function, as in the map, and by script."""


def _probes() -> Probes:
    probes: Probes = defaultdict(list)
    for name in EXPLORATIONS:
        _add_exploration(name, probes)
    for workload in VERBS:
        _add_seeds(workload.name, probes)
    return probes


def _add_exploration(name: str, probes: Probes) -> None:
    def wrong(when: Any) -> str | None:
        return explore(on(EXPLORATIONS[name], repeated=when)).wrong

    since = time.process_time()
    with _asked_scripts() as scripts:
        wrong("never")
    seconds = time.process_time() - since
    for script in scripts:
        probes[script] += [
            Probe(f"exploration {name}", partial(wrong, "never"), None, seconds),
            Probe(f"exploration {name}, late", partial(wrong, "late"), LATE.get(name), 2 * seconds),
            Probe(f"exploration {name}, twice", partial(wrong, "in time"), None, 8 * seconds),
        ]


def _add_seeds(workload: str, probes: Probes) -> None:
    with entered() as codes, _asked_scripts() as scripts:
        runs = [run(workload, seed) for seed in FIXED[:FOLLOWED]]
    seconds = max(each.cpu for each in runs)
    for place in {*named(codes), *scripts}:
        for order, seed in enumerate(FIXED):
            outcome = partial(_violations, workload, seed)
            # The first seeds of every workload before the next ones.
            probes[place].append(Probe(f"{workload} {seed}", outcome, 0, seconds * (order + 1)))


def _violations(workload: str, seed: int) -> int:
    return len(run(workload, seed).violations)


@contextmanager
def _asked_scripts() -> Iterator[set[str]]:
    """The names of the scripts that are sent meanwhile."""
    names = set[str]()
    original = capabilities._script_source

    def source(name: str) -> bytes:
        names.add(name)
        return original(name)

    capabilities._script_source = source
    capabilities._script_digest.cache_clear()
    try:
        yield names
    finally:
        capabilities._script_source = original
