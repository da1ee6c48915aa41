"""The built site, for the tests that look at it."""

from pathlib import Path

import pytest

from tests.docs import site as built


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site. The build warns of nothing, or the test fails."""
    base = tmp_path_factory.getbasetemp()
    # With pytest-xdist each process has a folder of its own, in one that they share.
    shared = base.parent if base.name.startswith("popen-") else base
    problems = built.build(shared / "site-is-built")
    assert not problems, problems
    return built.FOLDER / "html"
