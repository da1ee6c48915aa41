"""DIBS_TEST_URL: the tests of behaviour on a server that somebody else has started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dibs.testing import Server
from tests.outside import URL, OutsideServer

ROOT = Path(__file__).parents[2]
ASKS = [
    f"tests/behaviour/_async/test_{name}"
    for name in (
        "hold.py::test_a_free_key_is_taken_in_one_round_trip",
        "cached.py::test_a_hit_costs_one_command_and_no_load",
        "outage.py::test_a_database_that_does_not_exist_is_a_mistake",
        "at_least.py::test_a_slow_reply_does_not_shorten_it",
    )
]


@pytest.mark.parametrize("database", ["", "/9"], ids=["database 0", "database 9"])
def test_it_counts_what_others_ask_and_not_what_it_asks_itself(
    own_server: Server, database: str
) -> None:
    """As a server of the tests' own does; its keys are those of the database in the URL."""
    outside = OutsideServer(own_server.url + database)
    outside.flush()
    before = outside.commands(), outside.commands("get")
    outside.client().set("key", "1")
    outside.client().get("key")
    assert outside.keys() == ["key"]
    assert (outside.commands(), outside.commands("get")) == (before[0] + 2, before[1] + 1)
    outside.flush()
    assert outside.keys() == [] and outside.commands() == before[0] + 2
    outside.close()


def test_a_client_without_the_url_needs_database_0_of_this_machine(own_server: Server) -> None:
    """Through a proxy, tests would write into a database of which nobody has said it is empty."""
    here = OutsideServer(own_server.url)
    assert here.port == own_server.port
    here.close()
    elsewhere = OutsideServer(f"{own_server.url}/9")
    with pytest.raises(pytest.skip.Exception, match="database 0"):
        elsewhere.port  # noqa: B018
    elsewhere.close()


@pytest.mark.usefixtures("real_interpreters")  # pytest rewrites what it imports
def test_tests_run_on_it(own_server: Server) -> None:
    """Those that would have to stop it are skipped, with a line for the reason."""
    run = _tested(f"{own_server.url}/9")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "3 passed, 1 skipped" in run.stdout
    assert "SKIPPED [1] NOT TESTED: it leads to database 0" in run.stdout
    own_server.client().set("precious", "1")
    refused = _tested(own_server.url)
    assert refused.returncode == 4 and "the database is not empty" in refused.stdout
    assert own_server.keys() == ["precious"]


def _tested(url: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *ASKS]
    environment = {**os.environ, URL: url, "DIBS_NO_SKIP": ""}  # one of them is skipped here
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
