"""What several tests here ask for."""

from collections.abc import Iterator

import pytest

from dibs._transport import embedded
from dibs.testing import eventually

from .processes import PATIENT, Start, home_of


@pytest.fixture
def start() -> Iterator[Start]:
    """`embedded.start`, whose servers must all be gone soon after the test."""
    engines: list[embedded.Engine] = []

    def start(folder: str | None) -> embedded.Engine:
        engines.append(embedded.start(folder))
        return engines[-1]

    yield start
    for engine in engines:
        engine.close()
    eventually(lambda: not any(home_of(e.url).exists() for e in engines), within=PATIENT)
