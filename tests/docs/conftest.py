"""The built site, for the tests that look at it."""

import re
from pathlib import Path

import pytest

from tests.docs import site as built

PAGE = re.compile(r"\[([\w./-]+\.md)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With `--page`: of the tests that are run for each page, those of the named ones."""
    if pages := config.getoption("--page"):
        of_page = {item: PAGE.search(item.name) for item in items}
        others = [item for item, page in of_page.items() if page and page[1] not in pages]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in set(others)]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site. The build warns of nothing, or the test fails."""
    base = tmp_path_factory.getbasetemp()
    # With pytest-xdist each process has its own folder, in one that they share.
    shared = base.parent if base.name.startswith("popen-") else base
    problems = built.build(shared / "site-is-built")
    assert not problems, problems
    return built.FOLDER / "html"
