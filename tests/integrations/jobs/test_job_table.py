"""docs/internals/job-tables.md: what became of each way to send and to end a job.

They take minutes and real workers, and a loaded machine changes what meets what: `python -m
tests.integrations.job_table` runs them.
"""

import re

import pytest

from dibs.integrations._unique_jobs import UniqueKeywords
from tests.integrations.job_kills import PHASES
from tests.integrations.job_table import FRAMEWORKS
from tests.integrations.jobs import table


def test_the_page_has_the_table_of_kills_in_which_every_key_was_free() -> None:
    """In each phase, for each framework."""
    rows = table.section(table.PAGE.read_text("utf-8"), "kills").splitlines()
    phases = [row for row in rows if row.startswith("| ") and "killed:" not in row]
    # Where Redis is killed, most phases are alike, and in one row.
    assert len([row for row in phases if "each other phase" not in row]) >= len(PHASES)
    assert all(row.count("|") == len(FRAMEWORKS) + 2 and "**" not in row for row in phases)


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_page_has_the_tables_of_a_run_in_which_all_was_well(name: str) -> None:
    """Every cell is present, and none of them failed."""
    tables = table.section(table.PAGE.read_text("utf-8"), name)
    rows = [line for line in tables.splitlines() if line]
    assert rows[0].startswith("| sent") and len(rows) > 10
    assert all(row.startswith("|") and "**" not in row for row in rows)


def test_the_page_says_of_each_option_which_framework_carries_it() -> None:
    """An option that is new has a row, with a cell for each framework."""
    page = table.PAGE.read_text("utf-8").partition("## What each framework carries")[2]
    rows = [line for line in page.partition("## ")[0].splitlines() if line.startswith("|")]
    assert all(row.count("|") == len(FRAMEWORKS) + 2 for row in rows)
    options = re.findall(r"`(\w+)`", "".join(row.split("|")[1] for row in rows[2:]))
    assert {*options} == {*UniqueKeywords.__annotations__, "within"}
