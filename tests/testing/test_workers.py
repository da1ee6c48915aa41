"""`--workers`: tests in forks of the process that has collected them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workers import FOR_EACH_CORE, Plan

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("real_interpreters")  # pytest rewrites what it imports

CONFTEST = """
import os, pytest

def note(*words):
    with open("notes", "a") as file:
        print(*words, os.getpid(), file=file, flush=True)

note("collected")

@pytest.fixture(scope="session")
def whole_run():
    yield
    note("run ends")

@pytest.fixture(scope="module")
def whole_module(whole_run):
    note("module begins")
    yield
    note("module ends")
"""
FIRST = """
import os, pytest

@pytest.mark.parametrize("number", range(6))
def test_passes(whole_module, number, tmp_path):
    assert os.environ["PYTEST_XDIST_WORKER"] in str(tmp_path)

def test_fails():
    print("printed before it failed")
    assert 0

def test_dies():
    os.kill(os.getpid(), 9)

def test_passes_after_the_death():
    pass

def test_is_skipped():
    pytest.skip("why not")
"""


SECOND = """
def test_passes_elsewhere(whole_module):
    pass
"""
HANGING = """
import asyncio, threading, pytest

@pytest.mark.timeout(2)
async def test_of_tasks():
    async def reply():
        await asyncio.Event().wait()  # a reply
    await asyncio.gather(reply())

@pytest.mark.timeout(2)
def test_of_threads():
    never = threading.Event()
    thread = threading.Thread(target=lambda: never.wait(), daemon=True)  # in a thread
    thread.start()
    thread.join()  # its end
"""


def run_inner(folder: Path, *options: str, **tests: str) -> str:
    shutil.copy(Path(__file__).parents[1] / "conftest.py", folder)
    inner = folder / "inner"
    inner.mkdir()
    (inner / "conftest.py").write_text(CONFTEST)
    for name, text in (tests or {"first": FIRST, "second": SECOND}).items():
        (inner / f"test_{name}.py").write_text(text)
    env = {name: value for name, value in os.environ.items() if name[:4] not in ("PYTE", "DIBS")}
    env |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-m", "pytest", "-rA", "-W", "error", "--workers", "2", *options]
    done = subprocess.run([*command, "inner"], cwd=folder, env=env, capture_output=True, text=True)
    return done.stdout + done.stderr


def test_every_test_is_run_and_reported_once(tmp_path: Path) -> None:
    """Also beside one whose process dies, and one collection is for all of them."""
    output = run_inner(tmp_path)
    verdicts = re.findall(r"^(PASSED|FAILED) inner/\w+.py::(\w+)", output, re.MULTILINE)
    failed = [("FAILED", "test_dies"), ("FAILED", "test_fails")]
    passed = ["test_passes"] * 6 + ["test_passes_after_the_death", "test_passes_elsewhere"]
    assert sorted(verdicts) == [*failed, *(("PASSED", name) for name in passed)], output
    assert re.search(r"2 failed, 8 passed, 1 skipped", output)
    assert "printed before it failed" in output
    assert "test_dies ended with -9" in output

    notes = (tmp_path / "notes").read_text().splitlines()
    assert sum(note.startswith("collected") for note in notes) == 1
    begun = {note.split()[-1] for note in notes if note.startswith("module begins")}
    ended = {note.split()[-1] for note in notes if note.startswith("run ends")}
    assert ended <= begun
    assert ended, "fixtures of the session are torn down"


def test_nothing_is_begun_after_the_last_failure_that_is_wanted(tmp_path: Path) -> None:
    """`-x` stops all workers, and their fixtures are torn down."""
    output = run_inner(tmp_path, "-x", "-k", "fails or passes_after")
    assert re.search(r"stopping after 1 failures|1 failed", output), output


def test_a_test_that_hangs_is_reported_with_its_stack(tmp_path: Path) -> None:
    """Where it waits: the test, its other threads, and its tasks with all that they await."""
    output = run_inner(tmp_path, hanging=HANGING)
    assert "2 failed" in output and output.count("Failed: Timeout") >= 2, output
    for line in ("# a reply", "await asyncio.gather(reply())", "# its end", "# in a thread"):
        assert line in output.partition("FAILURES")[2], output
    assert "AssertionError" not in output


class Item:
    """As much of a test as a plan looks at."""

    def __init__(self, path: str, name: str) -> None:
        self.path, self.nodeid = path, f"{path}::{name}"


def test_modules_stay_together_until_there_are_no_more() -> None:
    """The longest module is first; who has nothing left takes half of what another has left."""
    items = [Item("short", name) for name in "ab"] + [Item("long", name) for name in "cdefgh"]
    plan = Plan(items, {f"long::{name}": 2.0 for name in "cdefgh"})  # pyright: ignore[reportArgumentType]
    assert [plan.next(0), plan.next(1)] == [2, 0]
    assert [plan.next(1), plan.next(1)] == [1, 6]  # of d to h, which are left to the first
    assert [plan.next(0), plan.next(0), plan.next(0)] == [3, 4, 5]
    assert Plan(items, {}, in_order=True).next(0) == 0  # pyright: ignore[reportArgumentType]
    plan.give_back([6], 1)
    assert [plan.next(2) for _ in range(4)] == [6, 7, None, None]


def test_one_long_test_does_not_hide_those_that_another_worker_has_left() -> None:
    """A worker without tests leaves, so there must be none that it could have taken."""
    items = [Item("long", name) for name in "ab"] + [Item("short", name) for name in "cdef"]
    plan = Plan(items, {"long::b": 60.0})  # pyright: ignore[reportArgumentType]
    assert [plan.next(0), plan.next(1)] == [0, 2]
    assert plan.next(2) == 5  # b alone lasts longer than d, e and f


@pytest.mark.only_on("linux")
def test_there_are_as_many_workers_as_the_cores_can_feed() -> None:
    """Those that this process may use: a container or `taskset` may have given it one of many."""
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"
    code += (
        "; from tests.workers import worker_count; print(worker_count('5'), worker_count('auto'))"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert run.stdout.split() == ["5", str(FOR_EACH_CORE)], run.stderr


def test_each_test_is_in_one_part() -> None:
    """What `make test` leaves out is in `make test-long` or in `make test-pages`."""
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider"]
    some = ["tests/simulation/test_simulation.py", "tests/console/test_console_in_a_browser.py"]
    listed = {
        part: _collected([*command, *(["--part", part] if part else []), *some])
        for part in ("usual", "long", "pages", "")
    }
    everything = listed.pop("")
    assert sum(map(len, listed.values())) == len(everything) and all(listed.values())
    assert set().union(*listed.values()) == everything


def _collected(command: list[str]) -> set[str]:
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {line for line in run.stdout.splitlines() if "::" in line}
