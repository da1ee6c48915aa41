"""For pytest, which finds it once local-line is installed: the fixture `local_line`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .blocking import BlockingLine


@pytest.fixture
def local_line_options() -> dict[str, Any]:
    """Override it: the options of `LocalLine`, such as `{"webhook_timeout": 20.0}`."""
    return {}


@pytest.fixture
def local_line(local_line_options: dict[str, Any]) -> "Iterator[BlockingLine]":
    """LINE on this machine, empty, for one test. `local_line.connect(app)` puts a bot behind it."""
    from .blocking import BlockingLine  # at first use: most tests of a project need no bot

    with BlockingLine(**local_line_options) as line:
        yield line
