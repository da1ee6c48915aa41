"""Runs every way to send and to end a job, and writes the tables of docs/jobs.md.

python -m tests.integrations.job_table            # all frameworks: about two minutes
python -m tests.integrations.job_table celery rq  # some of them, without writing
"""

from __future__ import annotations

import os
import sys

from dibs.testing import Server
from tests.integrations.jobs import table

FRAMEWORKS = ("celery", "rq", "dramatiq", "taskiq", "arq")


def tables_of(name: str, server: Server) -> str:
    """The tables of a framework, as they are now."""
    from tests.integrations.jobs.test_job_table import cells_of, observe

    cells = cells_of(name, server)
    found, fates = observe(cells, server)
    for (way, end), facts in found.items():
        if facts != (wanted := cells.expected(way, end)):
            print(f"{name}: {way}, {end}: {facts}; expected {wanted}", file=sys.stderr)
    return table.rendered(cells, found, fates)


def main(names: list[str]) -> None:
    text = table.PAGE.read_text()
    for name in names or FRAMEWORKS:
        with Server.start() as server:
            os.environ["JOBS_URL"] = server.url
            tables = tables_of(name, server)
        print(f"{name}\n{tables}\n")
        text = text if names else table.with_section(text, name, tables)
    table.PAGE.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
