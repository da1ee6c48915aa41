"""Many seeds: in several processes, for some time, or those that are fixed."""

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from multiprocessing import get_context

from .fixed_seeds import FIXED, KNOWN, ONCE_FAILED
from .running import Outcome, run, shortest
from .tracing import trace_lines

Run = tuple[str, int]
_TOGETHER = 20
"""How many seeds a process gets at once."""


def seeds_of(names: list[str], first: int, count: int, jobs: int) -> Iterator[Outcome]:
    """Seeds from *first* on, of each workload."""
    runs = [(name, seed) for seed in range(first, first + count) for name in names]
    return _in_processes(runs, jobs)


def fixed(names: list[str], jobs: int, first: int, last: int) -> Iterator[Outcome]:
    """Those among FIXED, and with the first of them those that have failed once."""
    runs = list[Run]()
    for name in names:
        left_out = KNOWN.get(name, ())
        seeds = [*FIXED[first:last], *(ONCE_FAILED.get(name, ()) if first == 0 else ())]
        runs += [(name, seed) for seed in seeds if seed not in left_out]
    return _in_processes(runs, jobs)


def for_seconds(names: list[str], seconds: float, first: int) -> Iterator[Outcome]:
    """As many seeds as *seconds* of CPU allow, about the same number of each workload."""
    since, seed = time.process_time(), first
    while True:
        for name in names:
            if time.process_time() - since > seconds:
                return
            if seed not in KNOWN.get(name, ()):
                yield run(name, seed)
        seed += 1


def _in_processes(runs: list[Run], jobs: int) -> Iterator[Outcome]:
    if len(runs) < _TOGETHER:
        yield from (run(*each) for each in runs)
        return
    # A process that has run many seeds is slower: each leaves something that the next one collects.
    with get_context("fork").Pool(jobs, maxtasksperchild=5) as pool:
        yield from pool.imap_unordered(_run, runs, chunksize=_TOGETHER)


def _run(each: Run) -> Outcome:
    return run(*each)


def report(outcomes: Iterable[Outcome]) -> int:
    """Print what failed, the shortest trace of the first of each workload, and a table. 1: some."""
    totals: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        totals[outcome.workload].append(outcome)
        if outcome.violations:
            print(f"{outcome.workload} {outcome.seed}: {outcome.violations[0]}", flush=True)
    failed = [_first_failed(each) for each in totals.values()]
    for outcome in [each for each in failed if each is not None]:
        _print_shortest(outcome)
    print(
        f"{'workload':14}{'seeds':>7}{'failed':>8}{'commands':>10}{'simulated s':>13}{'CPU s':>8}"
    )
    for name, runs in totals.items():
        _print_row(name, runs)
    _print_row("all", [each for runs in totals.values() for each in runs])
    return 1 if any(failed) else 0


def _first_failed(runs: list[Outcome]) -> Outcome | None:
    failed = [each for each in runs if each.violations]
    return min(failed, key=lambda each: each.seed) if failed else None


def _print_shortest(outcome: Outcome) -> None:
    plan = shortest(outcome.workload, outcome.seed)
    traced = run(outcome.workload, outcome.seed, plan, is_traced=True)
    print(*trace_lines(traced, plan), "", sep="\n", flush=True)


def _print_row(name: str, runs: list[Outcome]) -> None:
    failed, cpu = sum(bool(each.violations) for each in runs), sum(each.cpu for each in runs)
    commands, simulated = sum(each.commands for each in runs), sum(each.simulated for each in runs)
    print(f"{name:14}{len(runs):7}{failed:8}{commands:10}{simulated:13.0f}{cpu:8.1f}")
    if os.environ.get("SIMULATION_COUNTS"):
        counts = sum([each.counts for each in runs], start=type(runs[0].counts)())
        print(" ", dict(sorted(counts.items())))
