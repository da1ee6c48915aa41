"""docs/internals/job-tables.md: what became of each way to send and to end a job.

They take minutes and real workers, and a loaded machine changes what meets what: `python -m
tests.integrations.job_table` runs them.
"""

import pytest

from tests.integrations.job_table import FRAMEWORKS
from tests.integrations.jobs import table


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_the_page_has_the_tables_of_a_run_in_which_all_was_well(name: str) -> None:
    """Every cell is there, and none of them failed."""
    tables = table.section(table.PAGE.read_text("utf-8"), name)
    rows = [line for line in tables.splitlines() if line]
    assert rows[0].startswith("| sent") and len(rows) > 10
    assert all(row.startswith("|") and "**" not in row for row in rows)
