"""The simulation itself: seeds that every run has, and that a seed is always the same run.

It runs in separate processes, because it replaces the clock before dibs is imported.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from . import fixed_seeds

ROOT = Path(__file__).parents[2]
OF_EVERY_RUN = 10
WORKLOADS = (
    "hold", "late", "limit", "all", "all_of_slots", "sentinel", "cluster", "leader", "handover",
    "claims", "cached", "cached_many", "scheduled", "jobs", "fetched", "sending", "alone", "again",
    "turns", "throttle", "units", "streamed",
)  # fmt: skip


def simulated(*arguments: str, hash_seed: str = "0") -> "subprocess.CompletedProcess[str]":
    """`python -m tests.simulation` with *arguments*."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("workload", WORKLOADS)
def test_no_promise_is_broken(workload: str) -> None:
    """In the seeds of every run, and in those that have once shown a defect."""
    run = simulated(workload, "--fixed", f"0-{OF_EVERY_RUN}", "--jobs", "1")
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.long
@pytest.mark.parametrize("workload", WORKLOADS)
def test_no_promise_is_broken_in_more_seeds(workload: str) -> None:
    """In the rest of those that are fixed."""
    run = simulated(workload, "--fixed", f"{OF_EVERY_RUN}-{len(fixed_seeds.FIXED)}", "--jobs", "1")
    assert run.returncode == 0, run.stdout + run.stderr


def test_a_seed_is_always_the_same_run() -> None:
    """To the byte, after any other run and with any hash seed of Python."""
    runs = [
        simulated(*WORKLOADS, "--digests", "7", "8"),
        simulated(*reversed(WORKLOADS), "--digests", "8", "7", hash_seed="1"),
    ]
    digests = [sorted(run.stdout.splitlines()) for run in runs]
    assert len(digests[0]) == 2 * len(WORKLOADS), runs[0].stderr
    assert digests[0] == digests[1]


def test_a_seed_that_fails_is_shown_by_its_shortest_trace() -> None:
    """A workload that is wrong on purpose: it expects that no caller is ever refused."""
    run = simulated("mistaken", "--seeds", "3", "--jobs", "1")
    assert run.returncode == 1
    assert "VIOLATION: k: refused" in run.stdout
    assert "fault at" not in run.stdout.partition("VIOLATION")[0]  # none is needed for it


FIND = """
import sys
from tests.simulation import system
from tests.simulation.running import run
fault, first, most = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
runs = (run(fault, seed) for seed in range(first, first + most))
print(next((each.violations for each in runs if each.violations), None))
"""


RARE = {"effects of rollbacks": 6240, "early in savepoints": 6220}
"""Where the first seed is far away."""
FAULTS = (
    "early leases", "early claims", "early values", "early functions", "lost releases",
    "lost functions", "one deletion", "no savepoints", "no savepoints of claims", *RARE,
)  # fmt: skip


@pytest.mark.parametrize(
    "fault",
    [pytest.param(each, marks=[] if "early" in each else [pytest.mark.long]) for each in FAULTS],
)
def test_an_effect_of_work_that_is_not_decided_is_found(fault: str) -> None:
    """And one that is missing after the commit: faults that are put in on purpose."""
    command = [sys.executable, "-c", FIND, fault, str(RARE.get(fault, 6000)), "400"]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    found = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert found.stdout.startswith(("['", '["')), found.stdout + found.stderr


def test_every_workload_is_listed() -> None:
    """Here, where no module of the simulation can be imported that imports dibs."""
    run = simulated("--list")
    assert tuple(run.stdout.split()) == WORKLOADS
    assert set(fixed_seeds.ONCE_FAILED) | set(fixed_seeds.KNOWN) <= set(WORKLOADS)
