"""Runs every way to send and to end a job, and writes the tables of docs/internals/job-tables.md.

python -m tests.integrations.job_table            # all frameworks: about two minutes
python -m tests.integrations.job_table celery rq  # some of them, without writing
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from dibs.testing import Server
from tests.integrations.jobs import job_control, table
from tests.integrations.jobs.job_control import client_of
from tests.integrations.jobs.table import Facts, Fate, key_of, run_cells

FRAMEWORKS = ("celery", "rq", "dramatiq", "taskiq", "arq")
WRONG: list[str] = []
"""Cells that are not as they should be."""


def cells_of(name: str, server: Server) -> Any:
    """The cells of a framework, on *server*."""
    job_control.URL = job_control.STORE_URL = table.URL = server.url
    module = f"tests.integrations.jobs.table_{name}"
    sys.modules.pop(module, None)
    return getattr(importlib.import_module(module), f"{name.capitalize()}Cells")()


def observe(cells: Any, server: Server) -> tuple[dict[tuple[str, str], Facts], dict[str, str]]:
    """What every cell and every fate came to."""
    with cells.workers(server), client_of(server.url) as client:
        found = run_cells(cells, server)
        fates = {
            name: seen(run, Fate(server, client, key_of("fate", name)))
            for name, run in cells.fates.items()
        }
    cells.close()
    return found, fates


def seen(run: Any, fate: Fate) -> str:
    """What a fate came to."""
    try:
        return run(fate)
    except AssertionError as error:
        return f"**{(str(error) or repr(error)).splitlines()[0]}**"


def tables_of(name: str, server: Server) -> str:
    """The tables of a framework, as they are now."""
    cells = cells_of(name, server)
    found, fates = observe(cells, server)
    for (way, end), facts in found.items():
        if facts != (wanted := cells.expected(way, end)):
            WRONG.append(f"{name}: {way}, {end}: {facts}; expected {wanted}")
    return table.rendered(cells, found, fates)


def main(names: list[str]) -> int:
    text = table.PAGE.read_text()
    for name in names or FRAMEWORKS:
        with Server.start() as server:
            os.environ["JOBS_URL"] = server.url
            tables = tables_of(name, server)
        print(f"{name}\n{tables}\n")
        text = text if names else table.with_section(text, name, tables)
    table.PAGE.write_text(text)
    print("\n".join(WRONG), file=sys.stderr)
    return 1 if WRONG else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
