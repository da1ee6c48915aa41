"""How async tests are run and judged by `tests/conftest.py`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("real_interpreters")  # pytest rewrites what it imports

INNER_TESTS = """
import asyncio, os, sys, warnings
import hypothesis, hypothesis.strategies, pytest

async def test_passes():
    task = asyncio.create_task(asyncio.sleep(9))
    task.cancel()

@hypothesis.given(hypothesis.strategies.integers())
async def test_passes_with_hypothesis(number):
    await asyncio.sleep(0)

class TestInClass:
    async def test_passes_in_class(self, tmp_path):
        await asyncio.sleep(0)

async def test_fails_in_body():
    await asyncio.sleep(0)
    assert 1 == 2

async def test_fails_leaving_a_task():
    asyncio.create_task(asyncio.sleep(9), name="forgotten")
    await asyncio.sleep(0)

async def test_fails_using_its_loop_in_another_thread():
    await asyncio.to_thread(asyncio.get_running_loop().call_soon, print)

async def test_fails_never_awaited():
    asyncio.sleep(9)

def test_fails_never_awaited_in_a_cycle():
    ring = [asyncio.sleep(9)]
    ring.append(ring)

async def test_fails_unseen_task_error():
    async def fail(): raise ValueError("unseen")
    asyncio.create_task(fail())
    await asyncio.sleep(0.01)

async def test_fails_unclosed_connection(proxy):
    await asyncio.open_connection("127.0.0.1", proxy.port)

@pytest.fixture
def standing_loop():
    loop = asyncio.new_event_loop()
    asyncio._set_running_loop(loop)
    yield
    asyncio._set_running_loop(None)
    loop.close()

async def test_passes_beside_a_loop_that_stands_still(standing_loop):
    await asyncio.sleep(0)

def test_passes_after_all():
    pass

def test_skipped():
    pytest.skip("for a reason")

@pytest.mark.only_on("amiga")
def test_elsewhere():
    pass

@pytest.mark.xfail
def test_passes_expected_failure():
    assert 0

@pytest.mark.parametrize("server", ["valkey"], indirect=True)
def test_passes_with_server(server):
    pass

@pytest.mark.parametrize("server", ["redis7"], indirect=True)
def test_passes_on_a_stand_in(server):
    assert server.engine in ("redis6", "valkey-lua")

@pytest.mark.parametrize("number", [1, 2])
def test_without_server(start_server, number):
    start_server("redis7")
"""


def run_inner(folder: Path, *arguments: str, **environment: str) -> tuple[dict[str, str], str]:
    """Run the inner tests under our conftest, with warnings as errors and no Redis 7.

    Returns the verdicts by test name, and all that was printed.
    """
    shutil.copy(Path(__file__).parents[1] / "conftest.py", folder)
    (folder / "test_inner.py").write_text(INNER_TESTS)
    (folder / "test_skipped_whole.py").write_text("import pytest; pytest.importorskip('no_such')")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-r",
        "fEpxX",
        "-W",
        "error",
        "-W",  # as in pyproject.toml
        "ignore:It looks like `register_random`",
        "-p",
        "no:cacheprovider",
    ]
    command += ["--continue-on-collection-errors", *arguments, "."]
    env = {name: value for name, value in os.environ.items() if name[:4] not in ("PYTE", "DIBS")}
    env |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PATH": "/nowhere"}
    env |= environment
    ran = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    verdicts = re.findall(r"^([A-Z]+) test_inner.py::(?:\w+::)?(\w+)", ran.stdout, re.MULTILINE)
    return {name: verdict for verdict, name in verdicts}, ran.stdout + ran.stderr


def test_async_tests_are_run_and_judged(tmp_path: Path) -> None:
    """Each guilty test fails itself, by name; no innocent one does; a skip is loud."""
    verdicts, output = run_inner(tmp_path)
    failed = {name for name, verdict in verdicts.items() if verdict == "FAILED"}
    passed = {name for name, verdict in verdicts.items() if verdict in ("PASSED", "XFAIL")}
    assert failed == set(re.findall(r"test_fails\w*", INNER_TESTS)), output
    assert passed == set(re.findall(r"test_passes\w*", INNER_TESTS)), output
    assert "name='forgotten'" in output
    assert "ValueError('unseen')" in output
    assert "5 skipped" in output
    assert "SKIPPED [2] NOT TESTED: no server for engine 'redis7': put a redis-server" in output
    assert output.count("engine 'redis7'") == 1
    assert "redis7 is not installed: its tests ran on " in output


def test_no_skip_means_no_skip(tmp_path: Path) -> None:
    """Any skip fails, whole modules too; only a test for elsewhere may be passed over."""
    chosen = "skipped or elsewhere or without_server"
    verdicts, output = run_inner(tmp_path, "-k", chosen, DIBS_NO_SKIP="1")
    assert verdicts["test_skipped"] == "FAILED", output
    assert verdicts["test_without_server"] == "FAILED", output
    assert "ERROR test_skipped_whole.py" in output
    assert "1 skipped" in output
