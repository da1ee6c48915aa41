"""Every way to send and to end a job, in each framework: it runs once, and its key is free."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import pytest

from dibs.testing import Server
from tests.integrations.jobs import table
from tests.integrations.jobs.job_control import client_of
from tests.integrations.jobs.table import Facts, Fate, key_of, rendered, run_cells, section

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of redis-py, in frameworks


def cells_of(name: str, server: Server) -> Any:
    """The cells of a framework, on *server*."""
    from tests.integrations.jobs import job_control

    job_control.URL = table.URL = server.url
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


@pytest.fixture
def own_url(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is set by `cells_of` is undone."""
    from tests.integrations.jobs import job_control

    monkeypatch.setattr(job_control, "URL", job_control.URL)
    monkeypatch.setattr(table, "URL", table.URL)


@pytest.mark.parametrize("name", ["celery", "rq", "dramatiq", "taskiq", "arq"])
def test_every_job_runs_once_and_its_key_is_free_afterwards(
    name: str, broker: Server, own_url: None
) -> None:
    """However it is sent and ends; docs/jobs.md has the table of this run."""
    cells = cells_of(name, broker)
    found, fates = observe(cells, broker)
    wrong = {pair: (found[pair], cells.expected(*pair)) for pair in found}
    assert {pair: each for pair, each in wrong.items() if each[0] != each[1]} == {}
    assert rendered(cells, found, fates) == section(table.PAGE.read_text(), name), (
        "docs/jobs.md is not up to date: python -m tests.integrations.job_table"
    )
